"""The attention's edge cases seen from a model: padding, empty contexts, a batch of unlike tasks, training."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.layers import Identity
from bsatnp.models import BSATNP
from bsatnp.tasks import Points, Task
from bsatnp.train import fit

N_CTX, N_TGT = 6, 4


@pytest.fixture(scope="module")
def model():
    bias = RBFNetwork(On("s", Translation(2)), heads=2, basis=2)
    sizes = {"depth": 1, "dim": 8, "heads": 2, "width": 8, "embed_sizes": (8,), "hidden": 8}
    return BSATNP(embed={"t": Identity(1)}, bias=bias, **sizes, key=jax.random.key(0))


def numbers(seed, n, batch=()):
    rng = np.random.default_rng(seed)
    index = {"s": rng.normal(size=(*batch, n, 2)), "t": rng.uniform(size=(*batch, n, 1))}
    f = np.sin(index["s"][..., :1]) + index["t"]
    return {name: jnp.asarray(z, float) for name, z in index.items()}, jnp.asarray(f, float)


def task(seed, keep, batch=()):
    ctx, tgt = numbers(seed, N_CTX, batch), numbers(seed + 1, N_TGT, batch)
    return Task(Points(*ctx, mask=jnp.asarray(keep)), Points(*tgt))


@eqx.filter_jit
def loss_and_gradient(model, task):
    """NLL of each task, and its gradient in the model."""

    def one(arrays, task, static):
        log_prob = eqx.combine(arrays, static)(task.ctx, task.tgt).log_prob(task.tgt.f)
        return -jnp.mean(log_prob)

    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    axes = (None, 0, None)
    return jax.vmap(jax.value_and_grad(lambda a, t, _: one(a, t, static)), axes)(arrays, task, None)


@pytest.fixture
def near(x64):
    """Compare trees to a few roundings."""
    atol = 1e-10 if x64 else 2e-5

    def check(a, b):
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=atol * max(1.0, float(jnp.max(jnp.abs(y), initial=0.0))))

    return check


def test_a3_a_task_without_context_beside_one_with_it(model, near):
    keep = np.ones((2, N_CTX), bool)
    keep[0, 4:], keep[1] = False, False
    both = task(0, keep, (2,))
    loss, grads = loss_and_gradient(model, both)
    assert np.isfinite(loss).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))
    twice = jax.tree.map(lambda z: jnp.stack([z[0], z[0]]), both)
    alone, alone_grads = loss_and_gradient(model, twice)
    near(jax.tree.map(lambda z: z[0], (loss, grads)), jax.tree.map(lambda z: z[1], (alone, alone_grads)))


def test_a4_padding_may_hold_anything(model, near):
    keep = np.ones((2, N_CTX), bool)
    keep[:, 4:] = False
    clean = task(2, keep, (2,))
    hidden = ~jnp.asarray(keep)[..., None]
    dirty = {name: jnp.where(hidden, jnp.nan, z) for name, z in clean.ctx.index.items()}
    f = jnp.where(hidden, jnp.inf, clean.ctx.f)
    padded = eqx.tree_at(lambda t: (t.ctx.index, t.ctx.f), clean, (dirty, f))
    near(loss_and_gradient(model, padded), loss_and_gradient(model, clean))
    short = jax.tree.map(lambda z: z[:, :4], clean.ctx)
    near(loss_and_gradient(model, padded), loss_and_gradient(model, Task(short, clean.tgt)))


def test_a21_no_context_and_no_targets(model, near):
    predict = eqx.filter_jit(lambda model, ctx, tgt: model(ctx, tgt))
    masked = task(4, np.zeros(N_CTX, bool))
    empty = jax.tree.map(lambda z: z[:0], masked.ctx)
    a, b = predict(model, masked.ctx, masked.tgt), predict(model, empty, masked.tgt)
    assert np.isfinite(a.mean).all() and np.isfinite(a.std).all() and (np.asarray(a.std) > 0).all()
    near((a.mean, a.std), (b.mean, b.std))
    index, f = numbers(99, N_CTX)  # prior-like: what the masked rows hold changes nothing
    near(predict(model, Points(index, f, mask=masked.ctx.mask), masked.tgt).mean, b.mean)
    nothing = predict(model, task(4, np.ones(N_CTX, bool)).ctx, jax.tree.map(lambda z: z[:0], masked.tgt))
    assert nothing.mean.shape == nothing.std.shape == (0, 1)


def test_a24_five_steps_on_a_cpu_without_warnings(model):
    batch = task(6, np.ones((3, N_CTX), bool), (3,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = fit(model, lambda step, *, key: batch, steps=5, log_every=1, progress=False, key=jax.random.key(1))
    losses = [row["loss"] for row in done.history]
    assert done.steps == 5 and np.isfinite(losses).all()
    assert losses[-1] < losses[0]
