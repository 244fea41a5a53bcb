"""Theorem 1 on exact Gaussian processes: a process is G-stationary if and only if its posterior map is G-invariant.

Forward: a stationary kernel gives a posterior map that no element of the group changes. Backward: with an empty context
the map is the law of the process, so an invariant map makes it stationary, and a process that is not stationary breaks
the invariance; each such process here is a negative control and must fail by a margin.
"""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.groups import SO3, Euclidean, On, Product, TimeShift, Translation
from bsatnp.simulate import (
    AbstractKernel,
    Gneiting,
    GreatCircleExponential,
    Matern,
    SquaredExponential,
    log_marginal,
    posterior,
)
from bsatnp.simulate.exact import coordinates
from bsatnp.simulate.gneiting import GneitingMean
from bsatnp.simulate.kernels import gram
from bsatnp.tasks import Points

LENGTHS = (0, 1, 7)


class Trend(AbstractKernel):
    """A line with random slopes on top of a stationary process: the variance grows away from the origin."""

    def __call__(self, p, q):
        """The covariance at `p` and `q`."""
        return (p * q).sum(-1) / 10 + SquaredExponential()(p, q)


def plane(rng, n):
    return {"s": rng.uniform(-2, 2, (n, 2))}


def sphere(rng, n):
    return {"s": np.stack([rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))], -1)}


def spacetime(rng, n):
    return {"s": rng.uniform(-1, 1, (n, 2)), "t": rng.uniform(0, 1, (n, 1))}


GNEITING = Gneiting(1.3, np.array([0.6, 0.9]), 2.0, 0.6, 0.5, 1.5, 0.8)
SHIFT, MOTION, TURN = On("s", Translation(2)), On("s", Euclidean(2)), On("s", SO3())
SHIFTS = Product(On("s", Translation(2)), On("t", TimeShift()))
WEIGHTS = GneitingMean(0.1, 0.7, 0.5, -0.5, 0.2, 0.3, 0.1, 0.5)

#: Kernel, mean, group and points of processes that are stationary under the group.
STATIONARY = {
    "squared exponential, shifts": (SquaredExponential(0.8), None, SHIFT, plane),
    "squared exponential, motions": (SquaredExponential(0.8), None, MOTION, plane),
    "exponential, motions": (Matern(0.8, nu=0.5), None, MOTION, plane),
    "two lengthscales, shifts": (SquaredExponential(np.array([0.3, 1.5])), None, SHIFT, plane),
    "constant mean, motions": (Matern(0.8), lambda p: np.full(len(p), 3.0), MOTION, plane),
    "great circle, rotations": (GreatCircleExponential(40.0), None, TURN, sphere),
    "Gneiting, shifts of space and time": (GNEITING, None, SHIFTS, spacetime),
}
#: The same for processes that are not.
NOT_STATIONARY = {
    "trend, shifts": (Trend(), None, SHIFT, plane),
    "mean function, shifts": (SquaredExponential(0.8), lambda p: p[:, 0] / 5, SHIFT, plane),
    "mean function, motions": (SquaredExponential(0.8), lambda p: np.sin(p[:, 1]), MOTION, plane),
    "two lengthscales, motions": (SquaredExponential(np.array([0.3, 1.5])), None, MOTION, plane),
    "degrees as a plane, rotations": (SquaredExponential(40.0), None, TURN, sphere),
    "great circle, shifts of degrees": (GreatCircleExponential(40.0), None, SHIFT, sphere),
    "Gneiting with a mean, shifts of space and time": (GNEITING, WEIGHTS, SHIFTS, spacetime),
}


def discrepancy(case, n_ctx, seed):
    """How far the posterior of five targets moves, in mean and covariance, when the group moves all points."""
    kernel, mean, group, places = case
    rng = np.random.default_rng(seed)
    index = places(rng, n_ctx + 5)
    f = rng.normal(size=(n_ctx, 1))
    with jax.enable_x64(True):
        g = group.sample(key=jax.random.key(seed))
        moved = group.act(g, {name: jnp.asarray(value) for name, value in index.items()})
    results = []
    for points in (index, {name: np.asarray(value) for name, value in moved.items()}):
        assert all(value.dtype == np.float64 for value in points.values())
        ctx = Points({name: value[:n_ctx] for name, value in points.items()}, f)
        tgt = Points({name: value[n_ctx:] for name, value in points.items()})
        results.append(posterior(kernel, ctx, tgt, noise=0.1, mean=mean, full=True))
    before, after = results
    assert before.covariance is not None and after.covariance is not None
    return max(np.abs(before.mean - after.mean).max(), np.abs(before.covariance - after.covariance).max())


@pytest.mark.parametrize("name", STATIONARY)
@hypothesis.given(n_ctx=st.sampled_from(LENGTHS), seed=st.integers(0, 2**31 - 1))
def test_a_stationary_process_has_an_invariant_posterior_map(name, n_ctx, seed):
    assert discrepancy(STATIONARY[name], n_ctx, seed) < 1e-8


@pytest.mark.parametrize("n_ctx", LENGTHS)
@pytest.mark.parametrize("name", NOT_STATIONARY)
def test_a_process_that_is_not_stationary_has_not(name, n_ctx):
    """The empty context, which the proof of the converse uses, is among the lengths."""
    worst = max(discrepancy(NOT_STATIONARY[name], n_ctx, seed) for seed in range(5))
    assert worst > 0.05


@pytest.mark.parametrize("name", [*STATIONARY, *NOT_STATIONARY])
@hypothesis.given(seed=st.integers(0, 2**31 - 1))
@hypothesis.settings(max_examples=5)
def test_with_an_empty_context_the_posterior_map_is_the_law_of_the_process(name, seed):
    """Hence an invariant map means an invariant law: the converse."""
    kernel, mean, _, places = {**STATIONARY, **NOT_STATIONARY}[name]
    index = places(np.random.default_rng(seed), 5)
    tgt = Points(index)
    empty = Points({key: value[:0] for key, value in index.items()}, np.zeros((0, 1)))
    law = posterior(kernel, empty, tgt, noise=0.1, mean=mean, full=True)
    p = coordinates(tgt)
    np.testing.assert_array_equal(law.mean, np.zeros(5) if mean is None else mean(p))
    assert law.covariance is not None
    np.testing.assert_allclose(law.covariance, gram(kernel, p, p), atol=1e-12)


@pytest.mark.parametrize("name", [*STATIONARY, *NOT_STATIONARY])
@hypothesis.given(seed=st.integers(0, 2**31 - 1))
@hypothesis.settings(max_examples=5)
def test_conditioning_is_consistent(name, seed):
    """Step (1) of the proof: the joint law is the law of the context times the posterior of the targets."""
    kernel, mean, _, places = {**STATIONARY, **NOT_STATIONARY}[name]
    rng = np.random.default_rng(seed)
    both = Points(places(rng, 8), rng.normal(size=(8, 1)))
    ctx, tgt = both.take(slice(5)), both.take(slice(5, 8))
    after = posterior(kernel, ctx, tgt, noise=0.3, tgt_noise=0.3, mean=mean, full=True)
    assert after.covariance is not None
    residual = tgt.f[:, 0] - after.mean
    square = residual @ np.linalg.solve(after.covariance, residual)
    given = -(square + np.linalg.slogdet(2 * np.pi * after.covariance)[1]) / 2
    joint = log_marginal(kernel, both, noise=0.3, mean=mean)
    np.testing.assert_allclose(joint, log_marginal(kernel, ctx, noise=0.3, mean=mean) + given, rtol=1e-8)
