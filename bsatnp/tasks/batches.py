"""Many tasks of many lengths in few shapes, and one set of points split into a task."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import Key, is_traced, typed, whole
from bsatnp.tasks.given import kind
from bsatnp.tasks.points import Points, Task


def bucket(n: int, sizes: Sequence[int]) -> int:
    """The smallest of `sizes` that holds `n` points, so that few shapes are ever compiled.

    Raises:
        ValueError: no size is large enough.
    """
    if not isinstance(sizes, Iterable):
        raise ValueError(f"`sizes` must be a list of numbers of points, got {sizes!r}.")
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
        ValueError: no tasks, tasks that do not fit each other, dates that no common unit holds, or whole numbers that
            the floats of another task do not hold.
    """
    tasks = list(tasks)
    if not tasks:
        raise ValueError("`tasks` must hold at least one task, got none.")
    if batched := [task.ctx.mask.shape for task in tasks if task.ctx.mask.ndim != 1]:
        raise ValueError(f"`tasks` must be single tasks with axes (point,), got a mask of shape {batched[0]}.")
    n_ctx = max(len(task.ctx) for task in tasks)
    n_tgt = max(len(task.tgt) for task in tasks)
    n_ctx = bucket(n_ctx, ctx_sizes) if ctx_sizes else n_ctx
    n_tgt = bucket(n_tgt, tgt_sizes) if tgt_sizes else n_tgt
    dates = {tuple(sorted(name for name, x in task.ctx.index.items() if kind(x) == "M")) for task in tasks}
    padded = [Task(task.ctx.pad(n_ctx), task.tgt.pad(n_tgt)) for task in tasks]
    structures = {jax.tree.structure(task) for task in padded}
    shapes = {tuple(leaf.shape for leaf in jax.tree.leaves(task)) for task in padded}
    if len(structures) > 1 or len(shapes) > 1 or len(dates) > 1:
        raise ValueError(
            "`tasks` must share components, widths and outputs, and hold dates in the same components, to be stacked."
        )
    return jax.tree.map(_stack, *padded)


def _stack(*leaves: Any) -> Any:
    """On the host as soon as one of them is there, in whose precision the others are kept."""
    if is_traced(leaves) or not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        return jnp.stack(leaves)
    stacked = np.stack([np.asarray(leaf) for leaf in leaves])
    for leaf, row in zip(leaves, stacked, strict=True):
        if leaf.dtype == row.dtype or leaf.dtype.kind not in "Miu":
            continue
        lost = row.astype(leaf.dtype) != leaf
        lost = lost & ~np.isnat(leaf) if leaf.dtype.kind == "M" else lost
        if lost.any():
            what = "dates" if leaf.dtype.kind == "M" else "whole numbers"
            raise ValueError(
                f"`tasks` must hold {what} that {stacked.dtype} can hold, got {np.asarray(leaf)[lost][0]}."
            )
    return stacked


def split(points: Points, n_ctx: int, n_tgt: int | None = None, *, key: Key) -> Task:
    """Draw distinct context points at random; the targets are drawn from the rest.

    Args:
        points: one unbatched set with values; padding is left out.
        n_ctx: how many points become context.
        n_tgt: how many become targets; all that remain when None.
        key: chooses the points.

    Raises:
        ValueError: points without values, more points asked for than there are, no whole numbers from 0 up, a batch
            instead of one set, a legacy key, points on the host under `jit` or `vmap`.
    """
    typed(key)
    if points.f is None:
        raise ValueError("`points` must have values `f` to be split into context and targets.")
    if points.mask.ndim != 1:
        raise ValueError(f"`points` must be one set with axes (point, dim), got batch axes {points.mask.shape[:-1]}.")
    n_ctx = whole("n_ctx", n_ctx, 0)
    if not is_traced(points):
        points = points.take(np.flatnonzero(np.asarray(points.mask)))
    n = len(points)
    n_tgt = max(n - n_ctx, 0) if n_tgt is None else whole("n_tgt", n_tgt, 0)
    if n_ctx + n_tgt > n:
        raise ValueError(f"`n_ctx` + `n_tgt` must be at most the {n} points, got {n_ctx} + {n_tgt}.")
    if is_traced(key) and any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(points)):
        raise ValueError("`points` must be on the device where `split` is traced: make their arrays `jnp` ones first.")
    order = jax.random.permutation(key, n)
    if is_traced(points):  # padding comes last, and only where the rest does not suffice
        order = order[jnp.argsort(~points.mask[order], stable=True)]
    return Task(points.take(order[:n_ctx]), points.take(order[n_ctx : n_ctx + n_tgt]))
