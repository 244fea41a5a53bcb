"""Which context each target is predicted from: all of it, the nearest part of a large one, or the past alone."""

from collections.abc import Callable, Iterator

import numpy as np

from bsatnp.frames.drawing import blocks, nearest, thin

#: Pairs of row numbers: targets, and the context that they are predicted from.
Plan = Iterator[tuple[np.ndarray, np.ndarray]]

#: A whole context is used up to so many times the largest one of training; of a larger one so many of the nearest
#: points, or, in forecasts, as many as would be used whole, drawn at random.
_LONGER, _NEAREST = 4, 2
#: Targets that share the nearest context points.
_TARGETS = 256


def everywhere(ctx: np.ndarray, tgt: np.ndarray, n_ctx: int) -> Plan:
    """Predict from the whole context, or from the points nearest to each block of targets where it is too large.

    **Shapes.** `ctx` and `tgt` are positions, `(row, dim)`.

    Args:
        ctx: of the context.
        tgt: of the targets.
        n_ctx: the largest context of a task in training.
    """
    if len(ctx) <= _LONGER * n_ctx or not len(tgt):
        yield np.arange(len(tgt)), np.arange(len(ctx))
        return
    number = blocks(tgt, _TARGETS)
    order = np.argsort(number, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        low, high = tgt[rows].min(0), tgt[rows].max(0)
        middle = (low + high) / 2
        outside = np.maximum(np.abs(ctx - middle) - (high - low) / 2, 0)
        # points inside the box are told apart by their distance from its middle, far less than the others by theirs
        offsets = np.concatenate([outside, 1e-3 * (ctx - middle)], -1)
        yield rows, np.sort(nearest(offsets, _NEAREST * n_ctx))


def ahead(
    ctx: np.ndarray,
    tgt: np.ndarray,
    *,
    n_ctx: int,
    history: float,
    horizon: float,
    say: Callable[[float], str] = "{:.3g}".format,
) -> Plan:
    """Forecast from what lies before: targets go in blocks of at most `horizon`, none sees a value from its own block.

    A block has the last `history` before it as context, over all places. One that is much larger than in training is
    thinned at random, as there; which of the points stay depends on their number alone.

    **Shapes.** `ctx` and `tgt` are times, `(row,)`.

    **Units.** Scaled time throughout; `say` tells a span of it in an error.

    Raises:
        ValueError: a target without context before it, or further than `horizon` after the last of it.
    """
    order = np.argsort(tgt, kind="stable")
    times, sorted_ctx = tgt[order], np.argsort(ctx, kind="stable")
    past = ctx[sorted_ctx]
    start, slack = 0, 1e-6 * horizon
    while start < len(times):
        first = times[start]
        known = int(np.searchsorted(past, first - slack, "left"))
        if not known:
            raise ValueError(
                "`context` must hold values from before every target, got a target before the first of it."
            )
        last = past[known - 1]
        end = int(np.searchsorted(times, last + horizon + slack, "right"))
        if end <= start:
            raise ValueError(
                f"Targets must lie within the horizon, {say(horizon)}, of the last context before them, got one "
                f"{say(first - last)} after it: give newer values as `context`, or fit with a longer `horizon`."
            )
        oldest = int(np.searchsorted(past, last - history + slack, "left"))
        kept = thin(np.arange(oldest, known), _LONGER * n_ctx, np.random.default_rng(0))
        yield order[start:end], sorted_ctx[kept]
        start = end
