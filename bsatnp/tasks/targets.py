"""Targets as a caller gives them: points, or a mapping of components that is read slice by slice."""

from collections.abc import Mapping
from typing import Any

from bsatnp._types import Index, is_traced
from bsatnp.tasks.points import Points


def index_of(tgt: Points | Index) -> Mapping[str, Any]:
    """The components of targets."""
    return tgt.index if isinstance(tgt, Points) else tgt


def check_kinds(model: Any, ctx: Any, tgt: Any) -> int:
    """How many targets there are, once both sides are those of one task.

    Raises:
        ValueError: another type, a batch, arrays or a model that are being traced, components of different lengths.
    """
    if not isinstance(ctx, Points):
        raise ValueError(f"`ctx` must be Points, got {type(ctx).__name__}.")
    if ctx.mask.ndim != 1:
        raise ValueError(f"`ctx` must be one task with axes (point,), got a mask of shape {ctx.mask.shape}.")
    if is_traced((model, ctx, dict(tgt) if isinstance(tgt, Mapping) else tgt)):
        raise ValueError(
            "`model`, `ctx` and `tgt` must be known arrays; inside compiled functions call `model(ctx, tgt)`."
        )
    if isinstance(tgt, Points):
        if tgt.mask.ndim != 1:
            raise ValueError(f"`tgt` must be one task with axes (point,), got a mask of shape {tgt.mask.shape}.")
        return len(tgt)
    if not isinstance(tgt, Mapping):
        raise ValueError(f"`tgt` must be Points or a mapping of component names to arrays, got {type(tgt).__name__}.")
    lengths: dict[str, Any] = {name: _length(value) for name, value in tgt.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        raise ValueError(f"The components of `tgt` must have one number of points, got {lengths}.")
    return next(iter(lengths.values()))


def _length(value: Any) -> int | None:
    """Rows of an array, of a list, or of what has a shape alone, as arrays of Zarr do; None for one number."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return shape[0] if len(shape) else None
    return len(value) if hasattr(value, "__len__") else None
