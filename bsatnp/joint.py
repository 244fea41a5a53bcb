"""All targets together, where a likelihood treats them one by one: joint samples, and the joint log probability."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bsatnp import devices, tasks
from bsatnp._types import Array, Index, Key, typed, whole
from bsatnp.likelihoods.base import for_each, wide_on_device
from bsatnp.models.base import AbstractModel
from bsatnp.tasks import Points, Task
from bsatnp.tasks.targets import check_kinds

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
    places = Points(tgt.index, mask=tgt.mask) if isinstance(tgt, Points) else tgt
    count = whole("samples", samples)
    drawn, _ = _chains(model, ctx, places, count, key=key, ordered=ordered, together=together, chunk=chunk)
    return drawn


def joint_log_prob(
    model: AbstractModel,
    ctx: Points,
    tgt: Points,
    *,
    orders: int = 1,
    key: Key,
    ordered: bool = False,
    together: int = 1,
    chunk: int = 16,
) -> np.ndarray:
    """The log probability of all values of one task together: of each given the context and the values before it.

    The sum of `pred.log_prob` takes every target alone; this counts what the model has learnt of how they depend on
    each other. A stochastic process has one joint probability whatever the order of the targets: how far the numbers
    of several orders lie apart says how far the model is from one.

    **Cost.** For each order that of a sample of `joint_samples`.

    **Shapes.** Components are `(ctx, dim)` and `(tgt, dim)`; the result is `(order,)`.

    **Units.** Nats, summed over all observed values of `tgt`.

    Args:
        model: a model.
        ctx: what is known, unbatched; it may have no points.
        tgt: the values to score, unbatched. One that was not observed does not count, and a target that lacks one of
            several outputs joins no context.
        orders: number of random orders of the targets.
        key: a typed key, which draws the orders.
        ordered: whether targets are taken as they come, such as forward in time, in one order.
        together: how many targets are scored at once, as if they were independent given those before.
        chunk: orders that are computed at once.

    Raises:
        ValueError: as `joint_samples`; targets without values; several orders of targets that are `ordered`.

    **Reference.** Bruinsma et al. (2023), Autoregressive conditional neural processes.
    """
    count = whole("orders", orders)
    if ordered and count > 1:
        raise ValueError(f"`orders` must be 1 where targets are `ordered`, got {orders}.")
    if not isinstance(tgt, Points) or tgt.f is None:
        raise ValueError("`tgt` must be Points with the values `f` to score.")
    return _chains(model, ctx, tgt, count, key=key, ordered=ordered, together=together, chunk=chunk)[1]


def _chains(
    model: AbstractModel,
    ctx: Points,
    tgt: Points | Index,
    count: int,
    *,
    key: Key,
    ordered: bool,
    together: int,
    chunk: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Values at all targets, `(chain, tgt, out)`, and the log probability of those that were given, `(chain,)`."""
    key, together = typed(key), whole("together", together)
    chunk = min(whole("chunk", chunk), count)
    n = check_kinds(model, ctx, tgt)
    tgt = tgt if isinstance(tgt, Points) else Points(tgt)
    model.check_task(ctx, tgt)
    out = ctx.f.shape[-1]
    if not n:
        kind = wide_on_device(np.zeros(0, np.asarray(ctx.f).dtype)).dtype
        return np.zeros((count, 0, out), kind), np.zeros(count, kind)
    size = tasks.bucket(n, _SIZES)
    task = Task(model.seen(ctx).pad(tasks.bucket(len(ctx), _SIZES)), model.seen(tgt).pad(size + -size % together))
    task, _ = tasks.centre(task, sorted(model.shift_invariant))
    known, asked = _on_device(task.ctx), _on_device(task.tgt)
    steps = np.asarray(-(-int(np.asarray(tgt.mask).sum()) // together))
    found = []
    for first in range(0, count, chunk):
        numbers = np.arange(first, first + chunk)
        found.append(_chain(model, known, asked, key, numbers, steps, ordered=ordered, together=together))
    values, log_prob = (np.concatenate(part)[:count] for part in zip(*found, strict=True))
    return np.where(np.asarray(tgt.mask)[None, :, None], values[:, :n], np.nan), log_prob


def _on_device(points: Points) -> Points:
    """The points with values in float32 or wider, on the device."""
    f = None if points.f is None else wide_on_device(points.f)
    return Points(points.index, f, mask=points.mask, observed=points.observed)


@devices.jit
def _chain(
    model: AbstractModel,
    ctx: Points,
    tgt: Points,
    key: Key,
    numbers: Array,
    steps: Array,
    *,
    ordered: bool,
    together: int,
) -> tuple[Array, Array]:
    """The chains with the given numbers, on context and targets that are padded and centred.

    Values that `tgt` does not have are drawn; the log probability is of those that it has.
    """
    n_ctx, size = len(ctx), len(tgt)
    index = {name: _joined(ctx.index[name], tgt.index[name]) for name in ctx.index}
    blank = jnp.zeros((size, ctx.f.shape[-1]), ctx.f.dtype)
    f = jnp.concatenate([jnp.asarray(ctx.f), blank])
    known = jnp.concatenate([jnp.asarray(ctx.usable), jnp.zeros(size, bool)])
    wanted, usable = jnp.asarray(tgt.mask), jnp.asarray(tgt.usable)

    def one(number: Any) -> tuple[Array, Array]:
        order_key, value_key = jax.random.split(jax.random.fold_in(key, number))
        rank = jnp.arange(size) if ordered else jax.random.permutation(order_key, size)
        order = jnp.argsort(jnp.where(wanted, rank, size + rank))  # rows that are wanted come first

        def step(i, state):
            f, known, log_prob = state
            rows = jax.lax.dynamic_slice_in_dim(order, i * together, together)
            here = Points({name: value[n_ctx + rows] for name, value in index.items()}, mask=wanted[rows])
            pred = model.condition(Points(index, f, mask=known))(here)
            if tgt.f is None:
                value = for_each(pred, "sample", pred.sample(key=jax.random.fold_in(value_key, i)), f[n_ctx + rows])
            else:
                seen = jnp.asarray(tgt.observed)[rows]
                value = jnp.where(seen, jnp.asarray(tgt.f)[rows], 0)
                each = for_each(pred, "log_prob", pred.masked(seen).log_prob(value), value)
                gained = jnp.where(seen, each, 0).sum()
                log_prob = log_prob + gained.astype(log_prob.dtype)
            at = n_ctx + rows
            return f.at[at].set(value.astype(f.dtype)), known.at[at].set(usable[rows]), log_prob

        f_all, _, log_prob = jax.lax.fori_loop(0, steps, step, (f, known, jnp.zeros((), f.dtype)))
        return f_all[n_ctx:], log_prob

    return jax.vmap(one)(jnp.asarray(numbers))


def _joined(ctx: Any, tgt: Any) -> jax.Array:
    """The rows of a component, context first, in one type."""
    ctx, tgt = jnp.asarray(ctx), jnp.asarray(tgt)
    if ctx.dtype != tgt.dtype:
        ctx, tgt = wide_on_device(ctx), wide_on_device(tgt)
        kind = max(ctx.dtype, tgt.dtype, key=lambda dtype: dtype.itemsize)
        ctx, tgt = ctx.astype(kind), tgt.astype(kind)
    return jnp.concatenate([ctx, tgt])
