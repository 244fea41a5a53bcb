"""Whether predictions are calibrated, as pictures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsatnp import metrics
from bsatnp._types import Array
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.plot.canvas import BLUE, COLOURS, RED, new_axes, tidy


def calibration(
    pred: AbstractLikelihood,
    f: Array,
    observed: Array,
    *,
    levels: Sequence[float] = metrics.LEVELS,
    label: str = "model",
    ax: Any = None,
) -> Any:
    """How often values fell into central intervals against the probability of those: on the diagonal when calibrated.

    Call it again with the same `ax` to compare models; see `bsatnp.metrics.calibration`.

    **Shapes.** `f` and `observed` are `(…, tgt, out)`.

    Args:
        pred: the predictions.
        f: the values that came.
        observed: False for values that do not count.
        levels: probabilities of the intervals.
        label: name of the model.
        ax: where to draw.

    Raises:
        ValueError: nothing observed, a level that is not strictly between 0 and 1.
    """
    _count(observed)
    share = np.asarray(metrics.calibration(pred, f, observed, levels))
    ax = tidy(new_axes(width=4.2, height=4.0)[0] if ax is None else ax)
    if all(line.get_label() != "calibrated" for line in ax.lines):
        ax.plot([0, 1], [0, 1], "--", color="0.5", linewidth=1, label="calibrated")
        ax.text(0.04, 0.93, "intervals too wide", color="0.45", fontsize="small")
        ax.text(0.96, 0.04, "intervals too narrow", color="0.45", fontsize="small", ha="right")
    ax.plot(levels, share, "o-", color=COLOURS[(len(ax.lines) - 1) % len(COLOURS)], markersize=4, label=label)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("probability of the central interval")
    ax.set_ylabel("share of values inside")
    ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(0, 0.75))
    return ax


def pit(
    pred: AbstractLikelihood,
    f: Array,
    observed: Array,
    *,
    bins: int = 10,
    ax: Any = None,
) -> Any:
    """The histogram of the probability integral transform: flat when calibrated, see `bsatnp.metrics.pit_histogram`.

    The grey band holds 95 % of the bars of a calibrated prediction if values were independent; values near each other
    are not, and their bars scatter more.

    **Shapes.** `f` and `observed` are `(…, tgt, out)`.

    Args:
        pred: the predictions.
        f: the values that came.
        observed: False for values that do not count.
        bins: number of bars.
        ax: where to draw.

    Raises:
        ValueError: nothing observed, `bins` below 1.
    """
    n = _count(observed)
    density = bins * np.asarray(metrics.pit_histogram(pred, f, observed, bins))
    ax = tidy(new_axes(width=4.6, height=3.4)[0] if ax is None else ax)
    half = 1.96 * np.sqrt((bins - 1) / n)
    ax.axhspan(max(1 - half, 0), 1 + half, color="0.6", alpha=0.3, linewidth=0, label="95 % if independent")
    ax.bar((np.arange(bins) + 0.5) / bins, density, 0.94 / bins, color=BLUE, alpha=0.85)
    ax.axhline(1, color=RED, linewidth=1.2, linestyle="--", label="calibrated")
    ax.set(xlim=(0, 1), ylim=(0, 1.25 * max(density.max(), 1 + half)))
    ax.set_xlabel("predicted probability of a smaller value (PIT)")
    ax.set_ylabel("density")
    ax.legend(frameon=False, fontsize="small", ncols=2)
    return ax


def _count(observed: Array) -> int:
    """How many values count, at least one."""
    n = int(np.asarray(observed).sum())
    if not n:
        raise ValueError("`observed` must have at least one value that counts, got none.")
    return n
