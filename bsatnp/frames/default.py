"""The model and the tasks that a data set gets where none are given."""

from collections.abc import Mapping

import numpy as np

from bsatnp._types import Key
from bsatnp.bias import Sum
from bsatnp.frames.columns import Columns
from bsatnp.frames.drawing import AbstractSplits, Forecasts, Random, Windows
from bsatnp.layers import Identity
from bsatnp.likelihoods import AbstractHead
from bsatnp.models import BSATNP

#: Up to so many points, tasks are drawn from all of them, and Gaussian processes are learned from as well.
FEW = 1500


def default_model(columns: Columns, index: Mapping[str, np.ndarray], head: AbstractHead, *, key: Key) -> BSATNP:
    """A BSA-TNP that is small enough for minutes on two cores: a bias for each component, covariates embedded.

    **Invariant under.** The groups of all components of `columns`.

    Args:
        columns: what the columns mean.
        index: scaled coordinates by component, `(row, dim)`, from which length scales are taken.
        head: the likelihood.
        key: draws the weights.
    """
    heads = 4
    biases = [role.bias(index[role.component], heads=heads) for role in columns.roles]
    return BSATNP(
        embed={"x": Identity(index["x"].shape[-1])} if "x" in index else None,
        bias=Sum(*biases) if biases else None,
        head=head,
        depth=4,
        dim=64,
        heads=heads,
        width=64,
        embed_sizes=(128,),
        hidden=128,
        key=key,
    )


def default_splits(columns: Columns, index: Mapping[str, np.ndarray]) -> AbstractSplits:
    """Forecasts where time runs forward, random splits of few points, windows of many.

    Args:
        columns: what the columns mean.
        index: coordinates of all rows, not scaled, `(row, dim)`.

    Raises:
        ValueError: too few rows.
    """
    n = len(next(iter(index.values())))
    if n < 12:
        raise ValueError(f"`data` must have at least 12 rows with coordinates and a value, got {n}.")
    if (forward := columns.forward) is not None:
        times = np.unique(index["t"])
        if len(times) < 6:
            raise ValueError(f"`data` must have at least 6 different times to forecast, got {len(times)}.")
        step, each = float(np.median(np.diff(times))), n / len(times)
        back = int(np.clip(round(256 / each), 2, len(times) // 2))
        history = forward.history if forward.history else _longest(times, back, step)
        horizon = forward.horizon if forward.horizon else _longest(times, max(1, round(history / step / 4)), step)
        span = float(times[-1] - times[0])
        if horizon + step > span / 2:
            raise ValueError(f"`horizon` must be below half of the time that the data span, got {horizon / span:.2g}.")
        n_ctx = int(np.clip(np.ceil(each * history / step * 1.1), 16, 384))
        n_tgt = int(np.clip(np.ceil(each * horizon / step * 1.1), 8, 128))
        return Forecasts(n_ctx, n_tgt, history=history, horizon=horizon)
    if n <= FEW:
        return Random(min(256, round(0.75 * n)), min(64, max(2, n // 4)))
    return Windows(256, 64)


def _longest(times: np.ndarray, count: int, step: float) -> float:
    """How long `count` steps last at most, where months and years differ by some days; gaps are no steps."""
    lasting = times[count:] - times[:-count]
    return float(lasting[lasting <= 1.05 * count * step].max(initial=count * step))
