"""Heads: finite for any raw output, floors, encodings, and values outside the support."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bsatnp.likelihoods import (
    CategoricalHead,
    GaussianHead,
    NegativeBinomial,
    NegativeBinomialHead,
    Poisson,
    PoissonHead,
)

HEADS = {
    "gaussian": GaussianHead(out=2),
    "categorical": CategoricalHead(3),
    "poisson": PoissonHead(out=2),
    "negative_binomial": NegativeBinomialHead(out=2),
}
EXTREMES = (-200.0, -20.0, 0.0, 15.0, 20.0, 200.0)


def values(head):
    """Noise-free values of every size that the head takes: `(tgt, out)`."""
    column = np.array([0.0, 1.0, 2.0, 0.0]) if isinstance(head, CategoricalHead) else np.array([0.0, 1.0, 37.0, 1e6])
    return jnp.asarray(np.repeat(column[:, None], head.out, -1), jnp.float32)


@pytest.mark.parametrize("name", HEADS)
def test_c10_nll_and_gradient_are_finite_for_any_raw_output(name):
    head = HEADS[name]
    f = values(head)

    def loss(raw):
        return -head(raw).log_prob(f).sum()

    # every pair of extremes in the first and the last output of the network
    rows = jnp.array([[a] * (head.raw - head.raw // 2) + [b] * (head.raw // 2) for a in EXTREMES for b in EXTREMES])
    raws = jnp.broadcast_to(rows[:, None, :], (len(rows), len(f), head.raw))
    nll, gradient = jax.jit(jax.vmap(jax.value_and_grad(loss)))(raws)
    assert jnp.isfinite(nll).all()
    assert jnp.isfinite(gradient).all()
    # at −200 the floors have taken over; wherever an output is larger, something is left to learn from
    assert (jnp.abs(gradient).sum((1, 2)) > 0)[(rows > -200).any(-1)].all()


@pytest.mark.parametrize("name", ["gaussian", "poisson", "negative_binomial"])
def test_c12_predictive_variance_is_positive(name):
    head = HEADS[name]
    rows = jnp.array([[a] * head.out + [b] * (head.raw - head.out) for a in EXTREMES for b in EXTREMES])
    pred = head(rows)
    assert (pred.variance > 0).all() and jnp.isfinite(pred.variance).all()
    np.testing.assert_allclose(pred.std, np.sqrt(pred.variance), rtol=1e-6)
    assert jnp.isfinite(pred.crps(jnp.full_like(pred.mean, 3.0))).all()


def test_gaussian_head_splits_means_and_scales():
    raw = np.array([[1.0, 2.0, 0.3, -200.0]], np.float32)
    pred = GaussianHead(out=2, floor=0.01)(raw)
    np.testing.assert_allclose(pred.mean, [[1.0, 2.0]])
    np.testing.assert_allclose(pred.std, [[np.hypot(np.log1p(np.exp(0.3)), 0.01), 0.01]], rtol=1e-6)


def test_floors_where_none_is_given():
    low = jnp.full((1, 2), -200.0)
    np.testing.assert_allclose(GaussianHead()(low).std, 1e-3, rtol=1e-6)
    np.testing.assert_allclose(PoissonHead()(low[:, :1]).rate, 1e-6, rtol=1e-6)


def test_c10_gaussian_at_the_floor_has_the_nll_and_gradient_of_that_std():
    head = GaussianHead(floor=1e-3)
    raw = jnp.array([[0.5, -200.0]])
    nll, gradient = jax.value_and_grad(lambda raw: -head(raw).log_prob(jnp.array([[0.502]])).sum())(raw)
    np.testing.assert_allclose(nll, -scipy.stats.norm.logpdf(0.502, 0.5, 1e-3), rtol=1e-3)
    np.testing.assert_allclose(gradient[0, 0], -0.002 / 1e-6, rtol=1e-3)
    assert gradient[0, 1] == 0


def test_count_heads_are_exponential_and_then_straight():
    raw = np.array([[-3.0], [2.0], [15.0], [16.0], [200.0]], np.float32)
    rate = PoissonHead(floor=1e-6)(raw).rate
    top = np.exp(15)
    np.testing.assert_allclose(rate[:, 0], [np.exp(-3) + 1e-6, np.exp(2), top, 2 * top, 186 * top], rtol=1e-5)
    pred = NegativeBinomialHead(floor=0.1)(np.array([[1.0, -200.0]], np.float32))
    np.testing.assert_allclose([pred.mean[0, 0], pred.dispersion[0, 0]], [np.e + 0.1, 0.1], rtol=1e-6)


# dispersion and mean deep in the region where the textbook formula has no digit left in float32
@pytest.mark.parametrize(
    ("mean", "r", "k"), [(1e6, 1e6, 1_001_000.0), (1e6, 0.5, 10.0), (3.0, 1e7, 5.0), (8.0, 2.0, 0.0)]
)
def test_count_gradients_equal_the_derivative_in_float64(mean, r, k, x64):
    f = jnp.array([[k]])

    def slope(log_prob, x):
        h = 1e-4 * x
        return (8 * (log_prob(x + h) - log_prob(x - h)) - (log_prob(x + 2 * h) - log_prob(x - 2 * h))) / (12 * h)

    m, s = jnp.array([[mean]]), jnp.array([[r]])
    got = jax.grad(lambda m: Poisson(m).log_prob(f).sum())(m)[0, 0]
    np.testing.assert_allclose(got * mean, k - mean, rtol=1e-6)
    by_mean, by_r = jax.grad(lambda m, s: NegativeBinomial(m, s).log_prob(f).sum(), (0, 1))(m, s)
    np.testing.assert_allclose(by_mean[0, 0], r * (k - mean) / (mean * (mean + r)), rtol=1e-5)
    if r < 1e4:  # beyond, float64 differences of scipy's formula are no oracle
        expected = slope(lambda r: scipy.stats.nbinom.logpmf(k, r, r / (r + mean)), r)
        np.testing.assert_allclose(by_r[0, 0], expected, rtol=1e-5)
    else:  # second-order expansion of the log probability in 1/r
        expected = -(((k - mean) ** 2 - k) / 2) / r**2
        np.testing.assert_allclose(by_r[0, 0] * r, expected * r, atol=1e-6 if x64 or r > 1e6 else 0.3)


@pytest.mark.parametrize("name", HEADS)
def test_raw_and_features_are_what_the_head_says(name):
    head = HEADS[name]
    pred = head(jnp.zeros((5, head.raw)))
    f = values(head)
    assert pred.log_prob(jnp.zeros((5, head.out))).shape == (5, head.out)
    assert head.encode(f).shape == (len(f), head.features)


@pytest.mark.parametrize("name", HEADS)
def test_raw_outputs_of_another_width_are_refused(name, no_shape_checks):
    head = HEADS[name]
    with pytest.raises(ValueError, match=f"`raw` must have {head.raw} numbers per target, got {head.raw + 1}."):
        head(jnp.zeros((5, head.raw + 1)))


def test_encodings():
    f = np.array([[0.0], [2.0]], np.float32)
    np.testing.assert_array_equal(GaussianHead().encode(f), f)
    np.testing.assert_array_equal(CategoricalHead(3).encode(f), [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(CategoricalHead(3).encode(f.astype(np.int32)), [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(PoissonHead().encode(f), np.log1p(f), rtol=1e-6)
    np.testing.assert_allclose(NegativeBinomialHead().encode(f.astype(np.int32)), np.log1p(f), rtol=1e-6)


@pytest.mark.parametrize(
    ("head", "bad", "message"),
    [
        (GaussianHead(), np.inf, "`f` must hold finite values for a Gaussian likelihood"),
        (CategoricalHead(3), 3.0, "`f` must hold labels from 0 to 2, got 3."),
        (CategoricalHead(3), -1.0, "got -1."),
        (CategoricalHead(3), 0.5, "got 0.5."),
        (PoissonHead(), -2.0, "`f` must hold whole numbers from 0 up for a Poisson likelihood, got -2."),
        (PoissonHead(), 1.5, "got 1.5."),
        (PoissonHead(), np.inf, "got inf."),
        (NegativeBinomialHead(), -2.0, "for a NegativeBinomial likelihood, got -2."),
    ],
)
def test_values_outside_the_support_are_refused(head, bad, message):
    good = np.array([[1.0], [np.nan], [0.0]])  # NaN is a value that was not observed
    head.check(good)
    with pytest.raises(ValueError, match=message):
        head.check(np.concatenate([good, [[bad]]]))
    jax.jit(lambda f: head.check(f))(jnp.full((3, 1), bad))  # traced values pass unseen
    with pytest.raises(ValueError, match=r"`f` must have axes \(…, point, out\) with 1 outputs, got \(3, 2\)"):
        head.check(np.zeros((3, 2)))


@pytest.mark.parametrize("head", [GaussianHead, PoissonHead, NegativeBinomialHead])
def test_configurations_out_of_range_are_refused(head):
    with pytest.raises(ValueError, match="`out` must be at least 1, got 0."):
        head(out=0)
    for floor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="`floor` must be at least 1e-09"):
            head(floor=floor)
    with pytest.raises(ValueError, match="`classes` must be at least 2, got 1."):
        CategoricalHead(1)
