"""A small model whose predictions NumPy can repeat."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.groups import On, Translation
from bsatnp.likelihoods import AbstractHead, GaussianHead
from bsatnp.models import AbstractModel
from bsatnp.tasks import Points

TRACES: list[tuple[str, int]] = []


class Kernel(AbstractModel):
    """The mean of the context's values weighted by a squared exponential of the distance, plus a constant."""

    length: jax.Array
    prior: jax.Array
    head: AbstractHead

    def __init__(self, length=1.0, head=None):
        self.length = jnp.asarray(length, jnp.zeros(()).dtype)
        self.prior = jnp.asarray(0.5, self.length.dtype)
        self.head = GaussianHead() if head is None else head

    @property
    def embedded(self):
        return {}

    @property
    def groups(self):
        return (On("s", Translation(2)),)

    def condition(self, ctx):
        TRACES.append(("condition", len(ctx)))
        return ConditionedKernel(
            self, jnp.asarray(ctx.index["s"]), jnp.asarray(ctx.f).astype(self.length.dtype), jnp.asarray(ctx.usable)
        )


class ConditionedKernel(eqx.Module):
    model: Kernel
    s: jax.Array
    f: jax.Array
    usable: jax.Array

    def __call__(self, tgt):
        TRACES.append(("answer", len(tgt)))
        squares = jnp.square(jnp.asarray(tgt.index["s"])[:, None] - self.s[None]).sum(-1)
        weights = jnp.where(
            self.usable[None], jnp.exp(-squares / (2.0 * self.model.length**2)), jnp.zeros_like(squares)
        )
        total = weights.sum(1, keepdims=True)
        mean = (weights @ self.f + self.model.prior * 0.1) / (total + 0.1)
        raw = [mean, -total] if self.model.head.raw == 2 else [mean, -total, mean - total]
        return self.model.head(jnp.concatenate(raw, axis=1))


def expected(ctx, tgt, *, length=1.0):
    """The mean and standard deviation of `Kernel` in float64."""
    keep = np.asarray(ctx.usable)
    s, f = np.asarray(ctx.index["s"], np.float64)[keep], np.asarray(ctx.f, np.float64)[keep]
    t = np.asarray(tgt["s"], np.float64)
    squares = np.square(t[:, None, :] - s[None]).sum(-1)
    weights = np.exp(-squares / 2 / length**2)
    total = weights.sum(1, keepdims=True)
    mean = (weights @ f + 0.05) / (total + 0.1)
    return mean, np.sqrt(np.log1p(np.exp(-total)) ** 2 + 1e-6)


@pytest.fixture
def kernel():
    return Kernel()


@pytest.fixture
def oracle():
    return expected


@pytest.fixture
def traces():
    """The shapes that are traced from now on."""
    TRACES.clear()
    return TRACES


@pytest.fixture
def points():
    """Random points, with values if asked for."""

    def make(n, seed=0, *, shift=0.0, values=True):
        rng = np.random.default_rng([n, seed])
        s = rng.uniform(-2, 2, (n, 2)) + shift
        return Points({"s": s}, rng.normal(size=(n, 1)) if values else None)

    return make
