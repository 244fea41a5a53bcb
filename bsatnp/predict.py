"""Predictions at any number of targets: the context is digested once, the targets stream through in chunks."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from tqdm import tqdm

from bsatnp import devices, tasks
from bsatnp._types import Index, whole
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.models.base import AbstractModel
from bsatnp.tasks import Points, Task
from bsatnp.tasks.targets import check_kinds, index_of

_CHUNK, _SMALLEST, _STEP = 8192, 16, 2048


@overload
def predict(
    model: AbstractModel,
    ctx: Points,
    tgt: Points | Index,
    *,
    chunk: int | None = None,
    out: None = None,
    progress: bool = False,
    mesh: Mesh | None = None,
) -> AbstractLikelihood: ...
@overload
def predict(
    model: AbstractModel,
    ctx: Points,
    tgt: Points | Index,
    *,
    chunk: int | None = None,
    out: Mapping[str, Any],
    progress: bool = False,
    mesh: Mesh | None = None,
) -> None: ...
def predict(
    model: AbstractModel,
    ctx: Points,
    tgt: Points | Index,
    *,
    chunk: int | None = None,
    out: Mapping[str, Any] | None = None,
    progress: bool = False,
    mesh: Mesh | None = None,
) -> AbstractLikelihood | None:
    """The predictive distribution at the targets of one task, in the caller's order.

    Context and targets are checked, and moved together where the model allows it (see `bsatnp.tasks.centre`). All
    targets are checked before the first is predicted. Contexts are padded to a few sizes and all chunks have one size,
    so that calls with many sizes share their compilations.

    **Shapes.** Components are `(ctx, dim)` and `(tgt, dim)`; the arrays of the result are NumPy arrays
    `(tgt, out)`, or `(tgt, 1, class)`, NaN in rows that `tgt` masks, 0 where they are whole numbers, such as `mode`. No
    context gives the model's prior, no targets an empty result.

    Args:
        model: a model.
        ctx: what is known, unbatched.
        tgt: where to predict. A mapping of component names to arrays is read slice by slice: memory-mapped arrays then
            never come into memory as a whole.
        chunk: targets predicted at once.
        out: where to put results instead of returning them: names of fields or properties of the likelihood (`mean`,
            `std`, …) to arrays that take slices, such as memory maps or Zarr arrays. Memory then does not grow
            with the number of targets.
        progress: whether to show a bar.
        mesh: devices that share the work: targets are spread along its axis "tgt", the context along its axis "ctx",
            `jax.make_mesh((2, 4), ("tgt", "ctx"))`; one device when None. On several hosts every process makes the same
            call with the same arguments, and each gets all results.

    Returns:
        The likelihood, or None where `out` takes the results.

    Raises:
        ValueError: points that the model does not take or that do not fit; an `out` of a wrong name, shape or type; a
            `mesh` with other axes, or with "ctx" for a model that keeps nothing which grows with the context.
    """
    if out is not None and not (isinstance(out, Mapping) and out):
        got = "no name" if isinstance(out, Mapping) else type(out).__name__
        raise ValueError(f"`out` must map names to arrays, got {got}.")
    n = check_kinds(model, ctx, tgt)
    if mesh is not None:
        mesh = devices.checked(mesh, ("tgt", "ctx"))
    size = min(_CHUNK if chunk is None else whole("chunk", chunk), _round_up(n))
    size += -size % devices.size(mesh, "tgt")
    values = [*ctx.index.values(), *index_of(tgt).values()]
    precise = not all(isinstance(value, jax.Array) for value in values)  # device arrays are taken as they are
    movable = tuple(model.shift_invariant) if precise else ()
    ctx = jax.tree.map(np.asarray, ctx)
    model.check(ctx)
    rows = _round_up(len(ctx))
    ctx = ctx.pad(rows + -rows % devices.size(mesh, "ctx"))
    seen = model.seen(ctx)
    context, nothing, origin = None, seen.take(slice(0, 0)), {}
    for part in _chunks(tgt, n, size):
        tasks.check_pair(ctx, part)
        model.check(part)
        task = Task(seen if context is None else nothing, model.seen(part))
        task, origin = tasks.centre(task, movable, origin=origin)
        context = task.ctx if context is None else context

    results, conditioned, waiting = _Results(n, out), _condition(model, context, mesh), None
    for number, part in enumerate(tqdm(_chunks(tgt, n, size), total=-(-n // size), disable=not progress, unit="chunk")):
        task, _ = tasks.centre(Task(nothing, model.seen(part).pad(size)), movable, origin=origin)
        answer = _answer(conditioned, task.tgt, mesh)
        if waiting is not None:  # the device works on this chunk while the last one is copied
            results.put(*waiting)
        waiting = (number * size, np.asarray(part.mask), answer)
    if waiting is not None:
        results.put(*waiting)
    return results.whole


@devices.jit
def _condition(model, ctx, mesh):
    if devices.size(mesh, "ctx") > 1:
        return model.condition_over(ctx, mesh, "ctx")
    return model.condition(ctx)


@devices.jit
def _answer(conditioned, tgt, mesh):
    if mesh is None:
        return conditioned(tgt)
    arrays, static = eqx.partition(conditioned, eqx.is_array)
    held = conditioned.specs() if devices.size(mesh, "ctx") > 1 else PartitionSpec()
    among = devices.spec(mesh, "tgt")

    def local(arrays, tgt):
        return eqx.combine(arrays, static)(tgt)

    return jax.shard_map(local, mesh=mesh, in_specs=(held, among), out_specs=among, check_vma=False)(arrays, tgt)


class _Results:
    """Collects the chunks, in memory or in the arrays of the caller."""

    def __init__(self, n: int, out: Mapping[str, Any] | None):
        self._n, self._out, self.whole = n, out, None

    def put(self, start: int, mask: np.ndarray, answer: AbstractLikelihood) -> None:
        part = jax.tree.map(lambda leaf: _shown(leaf[: len(mask)], mask), devices.fetched(answer))
        where = slice(start, start + len(mask))
        if self._out is None:
            if self.whole is None:
                self.whole = jax.tree.map(lambda leaf: np.empty((self._n, *leaf.shape[1:]), leaf.dtype), part)
            for whole, leaf in zip(jax.tree.leaves(self.whole), jax.tree.leaves(part), strict=True):
                whole[where] = leaf
            return
        values = {name: _checked(part, name, array, self._n, mask) for name, array in self._out.items()}
        for name, array in self._out.items():
            array[where] = values[name]


def _shown(leaf: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A parameter of the likelihood, NaN in rows that are no targets."""
    if mask.all() or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return np.where(mask.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, np.asarray(np.nan, leaf.dtype))


def _checked(part: AbstractLikelihood, name: str, array: Any, n: int, mask: np.ndarray) -> np.ndarray:
    """What goes into `out[name]`, once that is known to take it."""
    value: Any = getattr(part, name, None)
    if not hasattr(value, "shape"):
        raise ValueError(f"`out` must name arrays of {type(part).__name__}, got {name!r}.")
    expected = (n, *np.shape(value)[1:])
    if (shape := getattr(array, "shape", None)) is None or tuple(shape) != expected:
        got = type(array).__name__ if shape is None else tuple(shape)
        raise ValueError(f"`out['{name}']` must have shape {expected}, got {got}.")
    if isinstance(array, jax.Array):
        raise ValueError(f"`out['{name}']` must be an array that can be written to, got one of JAX, which never can.")
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise ValueError(f"`out['{name}']` must be writable, got a read-only array.")
    value, into = np.asarray(value), getattr(array, "dtype", None)
    if into is None:
        return value
    into, whole_numbers = np.dtype(into), value.dtype.kind in "biu"
    if jnp.issubdtype(into, jnp.floating):  # whole numbers had no NaN for rows that are no targets
        return _shown(value.astype(np.float64), mask) if whole_numbers else value
    if not (whole_numbers and into.kind in "iu"):
        raise ValueError(f"`out['{name}']` must have a floating type, got {into}, which would round or cut.")
    if not np.array_equal(value.astype(into), value):
        raise ValueError(f"`out['{name}']` must hold numbers up to {value.max()}, got {into}.")
    return value


def _round_up(n: int) -> int:
    """The next size of the form 2^k or 3·2^k, so that few are compiled; k·2048 where padding costs more."""
    if n > 4 * _STEP:
        return -(-n // _STEP) * _STEP
    powers = (size for k in itertools.count() for size in (_SMALLEST << k, _SMALLEST * 3 // 2 << k))
    return next(size for size in powers if size >= n)


def _chunks(tgt: Points | Index, n: int, size: int) -> Iterator[Points]:
    """The targets on the host, without their values, `size` at a time; one empty chunk where there are none."""
    components = {name: np.asarray(v) if isinstance(v, jax.Array) else v for name, v in index_of(tgt).items()}
    mask = np.asarray(tgt.mask) if isinstance(tgt, Points) else None
    for start in range(0, max(n, 1), size):
        rows = slice(start, start + size)
        index = {name: value[rows] for name, value in components.items()}
        yield Points(index, mask=None if mask is None else mask[rows])
