"""A small model with a closed form, and streams."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.likelihoods import AbstractHead, GaussianHead
from bsatnp.models import BSATNP, AbstractModel
from bsatnp.tasks import Points, Task
from bsatnp.train import optimizer


class Line(AbstractModel):
    """Predicts a line in the first component plus the mean of the context."""

    weight: jax.Array
    bias: jax.Array
    head: AbstractHead

    def __init__(self, *, width: int = 2, out: int = 1, key):
        self.head = GaussianHead(out)
        self.weight = 0.1 * jax.random.normal(key, (width, self.head.raw))
        self.bias = jnp.zeros(self.head.raw)

    @property
    def embedded(self):
        return {"s": self.weight.shape[0]}

    @property
    def groups(self):
        return ()

    def condition(self, ctx):
        keep = jnp.asarray(ctx.usable)[:, None]
        total = jnp.where(keep, ctx.f, jnp.zeros_like(ctx.f)).sum(0)
        return ConditionedLine(self, total / jnp.maximum(keep.sum(), 1).astype(total.dtype))


class ConditionedLine(eqx.Module):
    model: Line
    level: jax.Array

    def __call__(self, tgt):
        raw = jnp.asarray(tgt.index["s"]) @ self.model.weight + self.model.bias[None]
        return self.model.head(raw.at[:, : self.model.head.out].add(self.level[None]))


class Holder(Line):
    """A line that holds something more."""

    part: Any

    def __init__(self, part):
        super().__init__(key=jax.random.key(0))
        self.part = part


def one_step(changes: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `fit` for one step, changed."""
    return {"steps": 1, "key": jax.random.key(0), "progress": False} | changes


@pytest.fixture
def line():
    """A constructor of the model."""
    return lambda seed=0, **sizes: Line(key=jax.random.key(seed), **sizes)


@pytest.fixture(scope="session")
def tiny():
    """The paper's model, small."""
    return BSATNP(depth=2, dim=8, heads=2, width=8, embed_sizes=(8,), hidden=8, key=jax.random.key(0))


@pytest.fixture(scope="session")
def six():
    """An optimiser for six steps of `tiny`; sharing it shares the compilation."""
    return optimizer(6)


@functools.partial(jax.jit, static_argnames=("n_ctx", "n_tgt", "size"))
def draw(key, *, n_ctx=5, n_tgt=7, size=3):
    s, noise = jax.random.split(key)
    s = jax.random.uniform(s, (size, n_ctx + n_tgt, 2))
    f = 1.0 + s[..., :1] - 2.0 * s[..., 1:] + 0.1 * jax.random.normal(noise, (size, n_ctx + n_tgt, 1))
    return Task(Points({"s": s[:, :n_ctx]}, f[:, :n_ctx]), Points({"s": s[:, n_ctx:]}, f[:, n_ctx:]))


@pytest.fixture
def stream():
    """Noisy planes, drawn on the device."""
    return lambda step, *, key: draw(key)


@pytest.fixture
def host_stream():
    """Planes as host arrays, in four sizes that change with the step."""

    def call(step, *, key):
        rng = np.random.default_rng([*np.asarray(jax.random.key_data(key)).tolist()])
        n_ctx, n_tgt = (4, 8)[step % 2], (6, 12)[step // 2 % 2]
        s = rng.uniform(size=(3, n_ctx + n_tgt, 2))
        f = s[..., :1] - 2 * s[..., 1:]
        return Task(Points({"s": s[:, :n_ctx]}, f[:, :n_ctx]), Points({"s": s[:, n_ctx:]}, f[:, n_ctx:]))

    return call


@pytest.fixture
def same_bits():
    """Say whether two trees have one structure and arrays equal bit for bit."""

    def same(a, b):
        a, b = eqx.filter(a, eqx.is_array), eqx.filter(b, eqx.is_array)
        if jax.tree.structure(a) != jax.tree.structure(b):
            return False
        pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        return all(x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)

    return same
