"""Points and tasks: what a model is conditioned on and what it is asked.

Host arrays (NumPy) keep their precision until a model takes them: see `centre`. Device arrays are taken as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import Array, Key, is_traced


class Points(eqx.Module):
    """Points of an index set, with or without observed values.

    **Shapes.** Every component of `index` is `(point, dim)`, `f` is `(point, out)`, `mask` is `(point,)` and `observed`
    is `(point, out)`; a batch puts the same leading axes before all of them.

    **Units.** Those of the data. Coordinates may be `datetime64` or integers of any size while they are NumPy arrays.

    Args:
        index: the named components of the points.
        f: the values at the points; NaN means not observed. None where nothing is known, as for new targets.
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
        components = {name: _as_array(value) for name, value in index.items()}
        lead = _leading_axes(components)
        self.index = components
        self.mask = _as_array(mask) if mask is not None else _ones_like(components, lead)
        if self.mask.shape != lead or self.mask.dtype != bool:
            raise ValueError(
                f"`mask` must be boolean with axes (point,) = {lead}, got {self.mask.dtype} {self.mask.shape}."
            )
        if not is_traced((self.index, self.mask)):
            _check_coordinates(self.index, self.mask)
        if f is None:
            if observed is not None:
                raise ValueError("`observed` says which values of `f` are known, but `f` is None.")
            self.f, self.observed = None, None
            return
        values = _as_array(f)
        if values.ndim != len(lead) + 1 or values.shape[:-1] != lead:
            raise ValueError(f"`f` must have axes (point, out) = {(*lead, 'out')}, got {values.shape}.")
        if values.dtype.kind not in "fiub" and values.dtype != jnp.bfloat16:
            raise ValueError(f"`f` must hold numbers, got {values.dtype}.")
        xp = np if isinstance(values, np.ndarray) and isinstance(self.mask, np.ndarray) else jnp
        known = xp.broadcast_to(xp.asarray(self.mask)[..., None], values.shape)
        if observed is not None:
            given = _as_array(observed)
            if given.shape != values.shape or given.dtype != bool:
                raise ValueError(
                    f"`observed` must be boolean with axes (point, out) = {values.shape}, "
                    f"got {given.dtype} {given.shape}."
                )
            known = known & given
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
        return self.mask if self.observed is None else self.mask & self.observed.all(-1)

    @property
    def n_missing(self) -> int:
        """How many values of `f` in rows that are not padding were not observed."""
        if self.observed is None:
            return 0
        return int((~self.observed & self.mask[..., None]).sum())

    def take(self, rows: Array | slice) -> "Points":
        """The points at `rows`, along the point axis of one unbatched set."""
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
    """Raise ValueError unless `ctx` and `tgt` share components, their widths and their batch axes."""
    if ctx.f is None:
        raise ValueError("`ctx` must carry observed values `f`, got None.")
    if set(ctx.index) != set(tgt.index):
        raise ValueError(f"`tgt` must have the components of `ctx` {sorted(ctx.index)}, got {sorted(tgt.index)}.")
    for name in ctx.index:
        expected, got = ctx.index[name].shape[-1], tgt.index[name].shape[-1]
        if expected != got:
            raise ValueError(f"Component '{name}' of `tgt` must have width {expected} as in `ctx`, got {got}.")
    if ctx.mask.shape[:-1] != tgt.mask.shape[:-1]:
        raise ValueError(f"`tgt` must have the batch axes of `ctx` {ctx.mask.shape[:-1]}, got {tgt.mask.shape[:-1]}.")
    if tgt.f is not None and tgt.f.shape[-1] != ctx.f.shape[-1]:
        raise ValueError(f"`tgt.f` must have {ctx.f.shape[-1]} outputs as `ctx.f`, got {tgt.f.shape[-1]}.")


def bucket(n: int, sizes: Sequence[int]) -> int:
    """The smallest of `sizes` that holds `n` points, so that few shapes are ever compiled.

    Raises:
        ValueError: no size is large enough.
    """
    fitting = [size for size in sizes if size >= n]
    if not fitting:
        raise ValueError(f"`sizes` must hold {n} points, the largest is {max(sizes, default=0)}.")
    return min(fitting)


def batch(tasks: Sequence[Task], *, ctx_sizes: Sequence[int] = (), tgt_sizes: Sequence[int] = ()) -> Task:
    """Stack tasks of any lengths into one with a leading batch axis, padded to a common size.

    Args:
        tasks: unbatched tasks with the same components and outputs.
        ctx_sizes: bucket sizes of the context; the longest context when empty.
        tgt_sizes: the same for targets.

    Raises:
        ValueError: no tasks, or tasks that do not fit each other.
    """
    if not tasks:
        raise ValueError("`tasks` must hold at least one task, got none.")
    n_ctx = max(len(task.ctx) for task in tasks)
    n_tgt = max(len(task.tgt) for task in tasks)
    n_ctx = bucket(n_ctx, ctx_sizes) if ctx_sizes else n_ctx
    n_tgt = bucket(n_tgt, tgt_sizes) if tgt_sizes else n_tgt
    padded = [Task(task.ctx.pad(n_ctx), task.tgt.pad(n_tgt)) for task in tasks]
    structures = {jax.tree.structure(task) for task in padded}
    shapes = {tuple(leaf.shape for leaf in jax.tree.leaves(task)) for task in padded}
    if len(structures) > 1 or len(shapes) > 1:
        raise ValueError("`tasks` must share components, widths and outputs to be stacked into one batch.")

    def stack(*leaves):
        return (np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp).stack(leaves)

    return jax.tree.map(stack, *padded)


def split(points: Points, n_ctx: int, n_tgt: int | None = None, *, key: Key) -> Task:
    """Draw distinct context points at random; the targets are drawn from the rest.

    Args:
        points: one unbatched set with values; padding is left out.
        n_ctx: how many points become context.
        n_tgt: how many become targets; all that remain when None.
        key: chooses the points.

    Raises:
        ValueError: more points asked for than there are.
    """
    if not is_traced(points):
        points = points.take(np.flatnonzero(np.asarray(points.mask)))
    n = len(points)
    n_tgt = n - n_ctx if n_tgt is None else n_tgt
    if n_ctx < 0 or n_tgt < 0 or n_ctx + n_tgt > n:
        raise ValueError(f"`n_ctx` + `n_tgt` must be between 0 and the {n} points, got {n_ctx} + {n_tgt}.")
    order = jax.random.permutation(key, n)
    if not is_traced((order, points)):
        order = np.asarray(order)
    return Task(points.take(order[:n_ctx]), points.take(order[n_ctx : n_ctx + n_tgt]))


def centre(task: Task, components: Sequence[str], *, origin: Mapping[str, Any] | None = None) -> tuple[Task, dict]:
    """Move host coordinates near zero in full precision, then narrow everything to device precision.

    A component in `components` is one whose common shift changes no prediction: its origin (the mean of the context
    points, in float64, or exactly for dates and integers) is subtracted before it becomes float32. Other host
    components are narrowed as they are. Device arrays pass through untouched.

    **Units.** `datetime64` becomes seconds since the origin.

    Args:
        task: one task or a batch of tasks.
        components: names that may be moved.
        origin: the origins of an earlier call, so that later targets are moved as their context was.

    Returns:
        The narrowed task and the origin of every component that was moved.

    Raises:
        ValueError: points that differ on the host would coincide in device precision.
    """
    moved = dict(origin or {})
    index_ctx, index_tgt = dict(task.ctx.index), dict(task.tgt.index)
    for name, ctx in task.ctx.index.items():
        tgt = task.tgt.index[name]
        if not (isinstance(ctx, np.ndarray) and isinstance(tgt, np.ndarray)):
            continue
        if name in components and ctx.dtype != bool:
            if name not in moved:
                moved[name] = _origin(ctx, task.ctx.mask, tgt, task.tgt.mask)
            ctx, tgt = _minus(ctx, moved[name]), _minus(tgt, moved[name])
        index_ctx[name] = _narrow(name, ctx, task.ctx.mask)
        index_tgt[name] = _narrow(name, tgt, task.tgt.mask)
    ctx_points = _replace(task.ctx, index_ctx)
    return Task(ctx_points, _replace(task.tgt, index_tgt)), moved


def _replace(points: Points, index: dict[str, Any]) -> Points:
    where = lambda p: (p.index, p.f)  # noqa: E731
    f = points.f
    if isinstance(f, np.ndarray) and f.dtype == np.float64 and not jax.config.jax_enable_x64:  # pyright: ignore
        f = f.astype(np.float32)
    return eqx.tree_at(where, points, (index, f), is_leaf=lambda x: x is None)


def _origin(ctx, ctx_mask, tgt, tgt_mask):
    """Origin per task: mean of the valid context rows, of the targets where there is no context."""

    def one(values, mask, other, other_mask):
        rows = values[np.asarray(mask)]
        rows = rows if len(rows) else other[np.asarray(other_mask)]
        if not len(rows):
            return np.zeros(values.shape[-1:], values.dtype)
        if rows.dtype.kind == "f":
            return rows.astype(np.float64).mean(0)
        return rows.min(0) + (rows.max(0) - rows.min(0)) // 2

    lead = ctx.shape[:-2]
    n = int(np.prod(lead))
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
    return np.stack(flat).reshape(*lead, 1, ctx.shape[-1])


def _minus(values, origin):
    if values.dtype.kind == "M":
        return (values - origin.astype(values.dtype)) / np.timedelta64(1, "s")
    if values.dtype.kind in "iu":
        return (values.astype(np.int64) - origin.astype(np.int64)).astype(np.float64)
    return values.astype(np.float64) - origin


def _narrow(name, values, mask):
    """Host array in the precision of the device, unless points that differ would coincide there."""
    if values.dtype.kind == "M":
        values = (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    if values.dtype.kind in "iub":
        if values.dtype.kind == "b" or np.abs(values, dtype=np.float64).max(initial=0) < 2**31:
            return values.astype(bool if values.dtype.kind == "b" else np.int32)
        values = values.astype(np.float64)
    if jax.config.jax_enable_x64 or values.dtype.itemsize <= 4:  # pyright: ignore
        return values
    narrow = np.where(np.asarray(mask)[..., None], values, 0).astype(np.float32)
    for column in range(values.shape[-1]):
        wide = np.unique(np.where(np.asarray(mask), values[..., column], 0))
        gaps = np.diff(wide)
        gaps = gaps[gaps > 1e-11 * np.abs(wide).max(initial=0)]  # the rest is rounding
        lost = np.abs(wide.astype(np.float32) - wide).max(initial=0)
        span = wide[-1] - wide[0] if wide.size else 0.0
        if gaps.size and lost > 0.25 * max(np.median(gaps), 4e-7 * span):
            raise ValueError(
                f"Component '{name}' loses differences of {np.median(gaps):.3g} in float32 (values near "
                f"{wide[-1]:.6g}); subtract an origin, scale it, or enable x64."
            )
    return narrow


def _as_array(value: Any) -> Any:
    if isinstance(value, jax.Array | np.ndarray):
        return value
    return np.asarray(value)


def _ones_like(components: Mapping[str, Any], lead: tuple[int, ...]) -> Any:
    host = all(isinstance(value, np.ndarray) for value in components.values())
    return (np if host else jnp).ones(lead, bool)


def _leading_axes(components: Mapping[str, Any]) -> tuple[int, ...]:
    """The axes before `dim` that all components share."""
    for name, value in components.items():
        if not isinstance(name, str):
            raise ValueError(f"Component names must be strings, got {name!r}.")
        if value.ndim < 2:
            raise ValueError(f"Component '{name}' must have axes (point, dim), got shape {value.shape}.")
        if value.dtype.kind not in "fiubMV":
            raise ValueError(f"Component '{name}' must hold numbers or dates, got {value.dtype}.")
    leads = {name: tuple(value.shape[:-1]) for name, value in components.items()}
    first, lead = next(iter(leads.items()))
    for name, other in leads.items():
        if other != lead:
            raise ValueError(f"Components must share the axes before dim: '{first}' has {lead}, '{name}' has {other}.")
    return lead


def _check_coordinates(index: Mapping[str, Any], mask: Any) -> None:
    keep = np.asarray(mask)
    for name, value in index.items():
        rows = np.asarray(value)[keep]
        bad = np.isnat(rows) if rows.dtype.kind == "M" else ~np.isfinite(rows.astype(np.float64))
        if bad.any():
            raise ValueError(
                f"Component '{name}' must be finite in every row that is not masked, got {int(bad.sum())} NaN or "
                "infinite coordinates."
            )
