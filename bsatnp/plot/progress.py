"""How a training run went."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bsatnp.plot.canvas import BLUE, RED, labelled, new_axes, tidy


def training(
    history: Sequence[Mapping[str, float]],
    *,
    metric: str = "nll",
    against: str = "step",
    unit: str = "",
    ax: Any = None,
) -> Any:
    """The training loss and a validation score by step, the best validation marked.

    Args:
        history: the rows that `fit` gives.
        metric: which validation score; the loss is drawn beside "nll" alone, which is in its units.
        against: "step" or "seconds".
        unit: unit of the score; nats for "nll" when empty.
        ax: where to draw.

    Raises:
        ValueError: an empty history, or one without the score.
    """
    if not len(history):
        raise ValueError("`history` must have at least one row, got none.")
    name = f"validation_{metric}"
    scored = [row for row in history if name in row]
    if metric != "nll" and not scored:
        raise ValueError(f"`history` must have {name!r} in some row, got {sorted(history[-1])}.")
    for row in history:
        if against not in row:
            raise ValueError(f"`against` must be a number in every row of the history, got {against!r}.")
    ax = tidy(new_axes()[0] if ax is None else ax)
    if metric == "nll":
        x, y = ([row[key] for row in history] for key in (against, "loss"))
        ax.plot(x, y, color=BLUE, linewidth=1.2, alpha=0.8, label="training loss")
    if scored:
        x, y = (np.array([row[key] for row in scored]) for key in (against, name))
        ax.plot(x, y, "o-", color=RED, markersize=4, label=f"validation {metric.upper()}")
        if metric != "coverage":
            best = int(np.nanargmax(y) if metric == "accuracy" else np.nanargmin(y))
            ax.plot(
                x[best], y[best], "o", color="none", markeredgecolor=RED, markersize=10, label=f"best, {y[best]:.3g}"
            )
    ax.set_xlabel("updates" if against == "step" else labelled("training time", "s"))
    ax.set_ylabel(labelled(metric.upper(), unit or ("nats per value" if metric == "nll" else "")))
    ax.legend(frameon=False, fontsize="small")
    return ax
