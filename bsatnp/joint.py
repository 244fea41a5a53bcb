"""Joint samples: draws of all targets together, where a likelihood treats them one by one."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bsatnp import devices, tasks
from bsatnp._types import Array, Index, Key, typed, whole
from bsatnp.likelihoods.base import wide_on_device
from bsatnp.models.base import AbstractModel
from bsatnp.tasks import Points, Task

_SIZES = tuple(16 << k for k in range(28))


def joint_samples(
    model: AbstractModel,
    ctx: Points,
    tgt: Points | Index,
    *,
    samples: int = 100,
    key: Key,
    ordered: bool = False,
    together: int = 1,
    chunk: int = 16,
) -> np.ndarray:
    """Draw functions: the values at all targets of one task together, each target seeing those drawn before it.

    A target is drawn from its predictive distribution, joins the context with the value drawn, and so on, so that the
    draws have the dependence between targets that the model has learnt. Like predictions they are draws of
    observations, noise included. Every sample takes the targets in a random order of its own unless `ordered`.

    The same key gives the same samples, of which a larger `samples` adds further ones; `chunk` changes nothing but
    rounding.

    **Cost.** For each sample, and for every `together` targets, the model is conditioned afresh on context and targets:
    tgt / together · O((ctx + tgt)²) for a BSA-TNP. The buffer has a fixed size, a power of two for the context and one
    for the targets, so that all steps and all tasks of similar size share one compilation. Hundreds of targets are
    meant, not millions.

    **Shapes.** Components are `(ctx, dim)` and `(tgt, dim)`; the result is `(sample, tgt, out)`.

    Args:
        model: a model.
        ctx: what is known, unbatched; it may have no points.
        tgt: where to sample, unbatched.
        samples: number of draws.
        key: a typed key.
        ordered: whether targets are taken as they come, such as forward in time.
        together: how many targets are drawn at once, as if they were independent given those before. 1 is the joint
            distribution; more is faster and loses the dependence within each group of targets.
        chunk: samples that are computed at once.

    Returns:
        The draws, in the caller's order of targets; NaN in rows that `tgt` masks.

    Raises:
        ValueError: a count below 1, a key that is not one typed key, a batch instead of one task, points that the model
            does not take.

    **Reference.** Bruinsma et al. (2023), Autoregressive conditional neural processes.
    """
    key = typed(key)
    samples, together = whole("samples", samples), whole("together", together)
    chunk = min(whole("chunk", chunk), samples)
    if not isinstance(ctx, Points):
        raise ValueError(f"`ctx` must be Points, got {type(ctx).__name__}.")
    if not isinstance(tgt, Points | Mapping):
        raise ValueError(f"`tgt` must be Points or a mapping of component names to arrays, got {type(tgt).__name__}.")
    tgt = Points(tgt.index, mask=tgt.mask) if isinstance(tgt, Points) else Points(tgt)
    model.check_task(ctx, tgt)
    n, out = len(tgt), ctx.f.shape[-1]
    if not n:
        return np.zeros((samples, 0, out), wide_on_device(np.zeros(0, np.asarray(ctx.f).dtype)).dtype)
    size = tasks.bucket(n, _SIZES)
    task = Task(model.seen(ctx).pad(tasks.bucket(len(ctx), _SIZES)), model.seen(tgt).pad(size + -size % together))
    task, _ = tasks.centre(task, sorted(model.shift_invariant))
    known = Points(task.ctx.index, wide_on_device(task.ctx.f), mask=task.ctx.mask, observed=task.ctx.observed)
    steps = np.asarray(-(-int(np.asarray(tgt.mask).sum()) // together))
    drawn = []
    for first in range(0, samples, chunk):
        numbers = np.arange(first, first + chunk)
        drawn.append(np.asarray(_draw(model, known, task.tgt, key, numbers, steps, ordered=ordered, together=together)))
    return np.where(np.asarray(tgt.mask)[None, :, None], np.concatenate(drawn)[:samples, :n], np.nan)


@devices.jit
def _draw(
    model: AbstractModel,
    ctx: Points,
    tgt: Points,
    key: Key,
    numbers: Array,
    steps: Array,
    *,
    ordered: bool,
    together: int,
) -> Array:
    """The samples with the given numbers, `(sample, tgt, out)`, on context and targets that are padded and centred."""
    n_ctx, size = len(ctx), len(tgt)
    index = {name: _joined(ctx.index[name], tgt.index[name]) for name in ctx.index}
    blank = jnp.zeros((size, ctx.f.shape[-1]), ctx.f.dtype)
    f = jnp.concatenate([jnp.asarray(ctx.f), blank])
    known = jnp.concatenate([jnp.asarray(ctx.usable), jnp.zeros(size, bool)])
    wanted = jnp.asarray(tgt.mask)

    def one(number: Any) -> Array:
        order_key, value_key = jax.random.split(jax.random.fold_in(key, number))
        rank = jnp.arange(size) if ordered else jax.random.permutation(order_key, size)
        order = jnp.argsort(jnp.where(wanted, rank, size + rank))  # rows that are wanted come first

        def step(i, state):
            f, known = state
            rows = jax.lax.dynamic_slice_in_dim(order, i * together, together)
            here = Points({name: value[n_ctx + rows] for name, value in index.items()}, mask=wanted[rows])
            given = Points(index, f, mask=known)
            value = model.condition(given)(here).sample(key=jax.random.fold_in(value_key, i))
            return f.at[n_ctx + rows].set(value.astype(f.dtype)), known.at[n_ctx + rows].set(wanted[rows])

        f_all, _ = jax.lax.fori_loop(0, steps, step, (f, known))
        return f_all[n_ctx:]

    return jax.vmap(one)(jnp.asarray(numbers))


def _joined(ctx: Any, tgt: Any) -> jax.Array:
    """The rows of a component, context first, in one type."""
    ctx, tgt = jnp.asarray(ctx), jnp.asarray(tgt)
    if ctx.dtype != tgt.dtype:
        ctx, tgt = wide_on_device(ctx), wide_on_device(tgt)
        kind = max(ctx.dtype, tgt.dtype, key=lambda dtype: dtype.itemsize)
        ctx, tgt = ctx.astype(kind), tgt.astype(kind)
    return jnp.concatenate([ctx, tgt])
