"""Points of an index set, and tasks made of them."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import Array, is_traced
from bsatnp.tasks.given import check_known, flags, kind, leading_axes, plain


class Points(eqx.Module):
    """Points of an index set, with or without observed values.

    **Shapes.** Every component of `index` is `(point, dim)`, `f` is `(point, out)`, `mask` is `(point,)` and `observed`
    is `(point, out)`; a batch puts the same leading axes before all of them.

    **Units.** Those of the data. Coordinates may be `datetime64` (UTC) or integers of any size while they are NumPy
    arrays.

    Args:
        index: the named components of the points.
        f: the values at the points; NaN, and what a NumPy masked array hides, means not observed. None where nothing
            is known, as for new targets. A context row with one of several outputs missing is no context at all.
        mask: False for rows that are padding.
        observed: False for values that were not observed; they never count.

    Raises:
        ValueError: axes that do not fit, a NaN or infinite coordinate in a row that is not padding.
    """

    index: dict[str, Any]
    f: Any
    mask: Any
    observed: Any

    def __init__(
        self,
        index: Mapping[str, Array],
        f: Array | None = None,
        *,
        mask: Array | None = None,
        observed: Array | None = None,
    ):
        if not isinstance(index, Mapping) or not index:
            raise ValueError(
                "`index` must be a non-empty mapping from component names to arrays (point, dim), "
                f"got {type(index).__name__}."
            )
        both = {name: plain(f"Component '{name}'", value) for name, value in index.items()}
        components, hidden = ({name: pair[i] for name, pair in both.items()} for i in (0, 1))
        lead = leading_axes(components)
        self.index = components
        self.mask = _ones_like(components, lead) if mask is None else flags("`mask`", mask, "(point,)", lead)
        if not is_traced((self.index, self.mask)):
            check_known(self.index, hidden, self.mask)
        if f is None:
            if observed is not None:
                raise ValueError("`observed` says which values of `f` are known, but `f` is None.")
            self.f, self.observed = None, None
            return
        values, absent = plain("`f`", f)
        if values.ndim != len(lead) + 1 or values.shape[:-1] != lead:
            raise ValueError(f"`f` must have axes (point, out) = {(*lead, 'out')}, got {values.shape}.")
        if kind(values) not in "fiub":
            raise ValueError(f"`f` must hold numbers, got {values.dtype}.")
        xp = np if isinstance(values, np.ndarray) and isinstance(self.mask, np.ndarray) else jnp
        known = xp.broadcast_to(xp.asarray(self.mask)[..., None], values.shape)
        if observed is not None:
            known = known & flags("`observed`", observed, "(point, out)", values.shape)
        if absent is not None:
            known = known & ~absent
        if jnp.issubdtype(values.dtype, jnp.floating):
            known = known & ~xp.isnan(values)
            values = xp.where(known, values, xp.zeros_like(values))
            if not is_traced((values, known)) and xp.isinf(values).any():
                raise ValueError("`f` must be finite or NaN (not observed), got an infinite value.")
        self.f = values
        self.observed = known

    def __len__(self) -> int:
        return self.mask.shape[-1]

    @property
    def usable(self) -> Array:
        """Rows that can serve as context: not padding, and every output observed. Shape `(point,)`."""
        if self.observed is None:
            return self.mask
        if is_traced((self.mask, self.observed)):
            return self.mask & self.observed.all(-1)
        with jax.ensure_compile_time_eval():  # stays concrete where a compiled function closes over the points
            return self.mask & self.observed.all(-1)

    @property
    def n_missing(self) -> int:
        """How many values of `f` in rows that are not padding were not observed."""
        if self.observed is None:
            return 0
        return int((~self.observed & self.mask[..., None]).sum())

    def take(self, rows: Array | slice) -> "Points":
        """The points at `rows`, numbers or a boolean for each, along the point axis of one unbatched set.

        Raises:
            ValueError: a batch; rows that are no list.
            IndexError: a row that is not there.
        """
        if self.mask.ndim != 1:
            raise ValueError(f"`take` needs one set with axes (point,), got batch axes {self.mask.shape[:-1]}.")
        if not isinstance(rows, slice) and not is_traced(rows):
            rows = np.asarray(rows)
            rows = rows.astype(int) if rows.shape == (0,) else rows
            if rows.ndim != 1:
                raise ValueError(f"`rows` must be a list of rows, or a slice, got shape {rows.shape}.")
            if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(self)):
                rows = np.arange(len(self))[rows]  # a device array would take its last row for one beyond
        return jax.tree.map(lambda leaf: leaf[rows], self)

    def pad(self, size: int) -> "Points":
        """The same points followed by masked rows, up to `size` rows.

        Raises:
            ValueError: `size` is smaller than the number of points.
        """
        extra = size - len(self)
        if extra < 0:
            raise ValueError(f"`size` must be at least the number of points {len(self)}, got {size}.")
        if extra == 0:
            return self
        axis = self.mask.ndim - 1

        def pad(leaf):
            widths = [(0, extra if i == axis else 0) for i in range(leaf.ndim)]
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "M":
                return np.pad(leaf, widths, mode="constant", constant_values=np.datetime64(0, "s"))
            return (np if isinstance(leaf, np.ndarray) else jnp).pad(leaf, widths)

        return jax.tree.map(pad, self)


class Task(eqx.Module):
    """What is known (`ctx`) and what is asked (`tgt`). The paper's (d_c, f_c, d_t), and f_t to score it.

    Raises:
        ValueError: components, axes or outputs of `ctx` and `tgt` that do not fit each other.
    """

    ctx: Points
    tgt: Points

    def __check_init__(self):
        check_pair(self.ctx, self.tgt)


def check_pair(ctx: Points, tgt: Points) -> None:
    """Raise ValueError unless `ctx` and `tgt` share components, their widths and kinds, and their batch axes."""
    for name, value in (("ctx", ctx), ("tgt", tgt)):
        if not isinstance(value, Points):
            raise ValueError(f"`{name}` must be Points, got {type(value).__name__}.")
    if ctx.f is None:
        raise ValueError("`ctx` must carry observed values `f`, got None.")
    if set(ctx.index) != set(tgt.index):
        raise ValueError(f"`tgt` must have the components of `ctx` {sorted(ctx.index)}, got {sorted(tgt.index)}.")
    for name in ctx.index:
        expected, got = ctx.index[name].shape[-1], tgt.index[name].shape[-1]
        if expected != got:
            raise ValueError(f"Component '{name}' of `tgt` must have width {expected} as in `ctx`, got {got}.")
        one, other = ctx.index[name], tgt.index[name]
        if (kind(one) == "M") != (kind(other) == "M"):
            raise ValueError(
                f"Component '{name}' of `tgt` must hold dates where `ctx` does, got {other.dtype} beside {one.dtype}."
            )
    if ctx.mask.shape[:-1] != tgt.mask.shape[:-1]:
        raise ValueError(f"`tgt` must have the batch axes of `ctx` {ctx.mask.shape[:-1]}, got {tgt.mask.shape[:-1]}.")
    if tgt.f is not None and tgt.f.shape[-1] != ctx.f.shape[-1]:
        raise ValueError(f"`tgt.f` must have {ctx.f.shape[-1]} outputs as `ctx.f`, got {tgt.f.shape[-1]}.")


def _ones_like(components: Mapping[str, Any], lead: tuple[int, ...]) -> Any:
    host = all(isinstance(value, np.ndarray) for value in components.values())
    return (np if host else jnp).ones(lead, bool)
