"""Host coordinates and values in the precision of the device."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import device_integers, has_x64, is_traced
from bsatnp.tasks.points import Points, Task

#: The largest number of float32.
_LARGEST = float(np.finfo(np.float32).max)


def centre(task: Task, components: Sequence[str], *, origin: Mapping[str, Any] | None = None) -> tuple[Task, dict]:
    """Move host coordinates near zero in full precision, then narrow everything to device precision.

    A component in `components` is one whose common shift changes no prediction: its origin (the mean of the context
    points, in float64, or exactly for dates and integers) is subtracted before it becomes float32. Other host
    components are narrowed as they are. A component that is on the device in context and targets passes through
    untouched; one that is there in one of them joins the other on the host.

    **Units.** `datetime64` becomes seconds since the origin.

    Args:
        task: one task or a batch of tasks.
        components: names that may be moved.
        origin: the origins of an earlier call, so that later targets are moved as their context was.

    Returns:
        The narrowed task and the origin of every component that was moved.

    Raises:
        ValueError: points that differ on the host as neighbours usually do would coincide in device precision, or
            numbers would overflow there.
    """
    moved = dict(origin or {})
    index_ctx, index_tgt = dict(task.ctx.index), dict(task.tgt.index)
    for name, ctx in task.ctx.index.items():
        tgt = task.tgt.index[name]
        if isinstance(ctx, jax.Array) and isinstance(tgt, jax.Array):
            continue
        ctx, tgt = (x if is_traced(x) else np.asarray(x) for x in (ctx, tgt))
        if name in components and ctx.dtype != bool and not is_traced((ctx, tgt)):
            if name not in moved:
                moved[name] = _origin(ctx, task.ctx.mask, tgt, task.tgt.mask)
            ctx, tgt = _minus(ctx, moved[name]), _minus(tgt, moved[name])
        index_ctx[name] = ctx if is_traced(ctx) else narrow(name, ctx, task.ctx.mask)
        index_tgt[name] = tgt if is_traced(tgt) else narrow(name, tgt, task.tgt.mask)
    ctx_points = _replace(task.ctx, index_ctx)
    return Task(ctx_points, _replace(task.tgt, index_tgt)), moved


def _replace(points: Points, index: dict[str, Any]) -> Points:
    where = lambda p: (p.index, p.f)  # noqa: E731
    f = points.f
    if isinstance(f, np.ndarray):
        f = _narrow_values(f if is_traced(points.observed) else _visible(f, points.observed))
    return eqx.tree_at(where, points, (index, f), is_leaf=lambda x: x is None)


def _visible(values: np.ndarray, shown: Any) -> np.ndarray:
    """The values, with zeros for whole numbers that are hidden: these shall not decide how the others are held."""
    return np.where(np.asarray(shown), values, 0).astype(values.dtype) if values.dtype.kind in "iu" else values


def _narrow_values(f: np.ndarray) -> np.ndarray:
    """Values in the precision of the device; whole numbers that it cannot count become floats."""
    f = device_integers(f) if f.dtype.kind in "iu" else f
    if has_x64() or f.dtype.itemsize <= 4:
        return f
    if (most := np.abs(f, dtype=np.float64).max(initial=0)) > _LARGEST:
        raise ValueError(f"`f` must fit into float32, got {most:.3g}: scale it, or enable x64.")
    return f.astype(np.float32)


def _origin(ctx, ctx_mask, tgt, tgt_mask):
    """Origin per task: mean of the valid context rows, of the targets where there is no context."""

    def one(values, mask, other, other_mask):
        rows = values[np.asarray(mask)]
        rows = rows if len(rows) else other[np.asarray(other_mask)]
        if not len(rows):
            return np.zeros(values.shape[-1:], values.dtype)
        if jnp.issubdtype(rows.dtype, jnp.floating):
            rows = rows.astype(np.float64)
            return rows.min(0) + (rows - rows.min(0)).mean(0) if np.abs(rows).max() < _LARGEST else rows[0]
        if rows.dtype.kind == "M":  # as whole numbers, whose sum does not overflow once they are halved
            return (rows.min(0).astype(np.int64) // 2 + rows.max(0).astype(np.int64) // 2).astype(rows.dtype)
        return rows.min(0) // 2 + rows.max(0) // 2

    lead = ctx.shape[:-2]
    n = math.prod(lead)
    flat = [
        one(*args)
        for args in zip(
            ctx.reshape(n, *ctx.shape[-2:]),
            np.asarray(ctx_mask).reshape(n, ctx.shape[-2]),
            tgt.reshape(n, *tgt.shape[-2:]),
            np.asarray(tgt_mask).reshape(n, tgt.shape[-2]),
            strict=True,
        )
    ]
    return np.stack(flat).reshape(*lead, 1, ctx.shape[-1]) if flat else np.zeros((*lead, 1, ctx.shape[-1]), ctx.dtype)


def seconds(values: np.ndarray) -> np.ndarray:
    """Numbers as float64; dates of any unit as seconds since the start of 1970, NaN where there is none."""
    return _minus(values, np.datetime64(0, "s")) if values.dtype.kind == "M" else values.astype(np.float64)


def _minus(values, origin):
    """Values − origin in float64, exact where both are dates or both are whole numbers, whatever their units."""
    if values.dtype.kind == "M":
        (seconds, part), (seconds_0, part_0) = _split_seconds(values), _split_seconds(origin)
        return (seconds - seconds_0) / np.timedelta64(1, "s") + (part - part_0)
    with np.errstate(over="ignore"):  # infinite differences are refused when they are narrowed
        rough = values.astype(np.float64) - origin.astype(np.float64)
    if values.dtype.kind in "iub" and origin.dtype.kind in "iub":
        exact = (values.astype(np.int64) - origin.astype(np.int64)).astype(np.float64)
        return np.where(np.abs(rough) < 2**62, exact, rough)  # beyond, 64 bits may have wrapped around
    return rough


def _split_seconds(dates):
    """Dates of any unit as whole seconds and the float64 rest, below one second."""
    seconds = dates.astype("datetime64[s]")
    if np.datetime_data(dates.dtype)[0] not in ("ms", "us", "ns", "ps", "fs", "as"):
        return seconds, 0.0
    return seconds, (dates - seconds.astype(dates.dtype)) / np.timedelta64(1, "s")


def narrow(name: str, values: Any, mask: Any) -> np.ndarray:
    """A component on the host in the precision of the device.

    Raises:
        ValueError: points that lie as far apart as neighbours usually do would coincide there, or numbers overflow.
    """
    if values.dtype.kind == "M":
        values = seconds(values)
    values = values if is_traced(mask) else _visible(values, np.asarray(mask)[..., None])
    values = device_integers(values) if values.dtype.kind in "iu" else values
    if has_x64() or values.dtype.itemsize <= 4:
        return values
    keep = np.ones(values.shape[:-1], bool) if is_traced(mask) else np.asarray(mask)
    values = np.where(keep[..., None], values, 0)
    if (most := np.abs(values).max(initial=0)) > _LARGEST or np.isnan(most):
        raise ValueError(f"Component '{name}' must fit into float32, got {most:.3g}: scale it, or enable x64.")
    for column in range(values.shape[-1]):
        wide = np.unique(values[keep][:, column])
        gaps = np.diff(wide)
        gaps = gaps[gaps > 1e-11 * np.abs(wide).max(initial=0)]  # the rest is rounding
        lost = np.abs(wide.astype(np.float32) - wide).max(initial=0)
        span = wide[-1] - wide[0] if wide.size else 0.0
        if gaps.size and lost > 0.25 * max(np.median(gaps), 4e-7 * span):
            raise ValueError(
                f"Component '{name}' loses differences of {np.median(gaps):.3g} in float32 (values near "
                f"{wide[-1]:.6g}); subtract an origin, scale it, or enable x64."
            )
    return values.astype(np.float32)
