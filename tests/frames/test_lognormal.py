"""The log-normal likelihood and the scaler of logarithms, against SciPy."""

from typing import Any

import jax
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from bsatnp.datasets import Log, Standard
from bsatnp.likelihoods import Gaussian, GaussianHead, LogNormal, Scaled

LOCATION, SCALE = np.array([[5.0], [-1.0], [0.3]]), np.array([[0.4], [1.2], [0.05]])
THEIRS: Any = scipy.stats.lognorm(SCALE, scale=np.exp(LOCATION))
F = np.array([[120.0], [0.9], [1.3]])


def test_moments_density_and_quantiles():
    ours = LogNormal(LOCATION, SCALE)
    for name, rtol in (("mean", 2e-6), ("std", 5e-6)):
        np.testing.assert_allclose(getattr(ours, name), getattr(THEIRS, name)(), rtol=rtol)
    np.testing.assert_allclose(ours.variance, THEIRS.var(), rtol=1e-5)
    np.testing.assert_allclose(ours.log_prob(F), THEIRS.logpdf(F), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.cdf(F), THEIRS.cdf(F), rtol=1e-5, atol=1e-6)
    for p in (0.025, 0.5, 0.95):
        np.testing.assert_allclose(ours.quantile(p), THEIRS.ppf(p), rtol=1e-5)
    inside = (THEIRS.ppf(0.025) <= F) & (THEIRS.ppf(0.975) >= F)
    np.testing.assert_array_equal(ours.covers(F, 0.95), inside)
    draws = np.stack([ours.sample(key=jax.random.key(i)) for i in range(400)])
    np.testing.assert_allclose(np.log(draws).mean(0), LOCATION, atol=4 * SCALE.max() / 20)


def test_what_is_not_positive():
    ours, zero = LogNormal(LOCATION, SCALE), np.array([[0.0], [-1.0], [0.0]])
    assert (np.asarray(ours.log_prob(zero)) == -np.inf).all()
    assert (np.asarray(ours.cdf(zero)) == 0).all() and not np.asarray(ours.covers(zero, 0.9)).any()


def test_crps_is_the_integral_of_the_squared_error_of_the_distribution():
    for f in (F, np.array([[-2.0], [0.0], [1.0]])):
        ours = np.asarray(LogNormal(LOCATION, SCALE).crps(f))
        for i in range(3):
            one: Any = scipy.stats.lognorm(SCALE[i, 0], scale=np.exp(LOCATION[i, 0]))
            low, high, at = min(0.0, f[i, 0]), one.ppf(1 - 1e-9), f[i, 0]
            below = scipy.integrate.quad(lambda z, one=one: one.cdf(z) ** 2, low, at, limit=400)[0]
            above = scipy.integrate.quad(lambda z, one=one: one.sf(z) ** 2, at, high, limit=400, points=[one.median()])[
                0
            ]
            np.testing.assert_allclose(ours[i, 0], below + above, rtol=2e-4)


def test_the_scaler_goes_there_and_back_and_makes_log_normal_predictions():
    rows = THEIRS.rvs((50, 3, 1), random_state=0)[:, 0]
    scaler = Log.fit(rows)
    scaled = scaler.transform(rows)
    np.testing.assert_allclose([scaled.mean(), scaled.std()], [0, 1], atol=1e-12)
    np.testing.assert_allclose(scaler.inverse(scaled), rows, rtol=1e-12)
    pred = Gaussian(np.array([[0.3]]), np.array([[0.7]]))
    back = Scaled(GaussianHead(), scaler).inverse(pred)
    assert isinstance(back, LogNormal)
    m, s = np.log(rows).mean(), np.log(rows).std()
    expected = scipy.stats.lognorm(0.7 * s, scale=np.exp(m + 0.3 * s))
    np.testing.assert_allclose(back.mean, expected.mean(), rtol=1e-5)
    f = np.array([[rows[0, 0]]])
    jacobian = -np.log(s) - np.log(f)
    np.testing.assert_allclose(back.log_prob(f), pred.log_prob(scaler.transform(f)) + jacobian, rtol=1e-5, atol=1e-5)
    assert isinstance(Scaled(GaussianHead(), Standard.fit(rows)).inverse(pred), Gaussian)
    with pytest.raises(ValueError, match="`values` must be positive for a logarithm, got 1 that are not"):
        Log.fit(np.array([[1.0], [0.0]]))


@pytest.mark.parametrize("scale", [0.05, 1.0, 6.0, 8.0, 12.0])
def test_the_crps_of_wide_distributions_is_that_of_its_integral(scale):
    """∫ (F(x) − 1[x ≥ f])² dx in float64, over u = log x, for distributions whose mean float32 barely holds."""
    for f in (0.3, 1.0, 40.0, 0.0):
        u = np.linspace(-60, 400, 2_000_001)
        below = u < (np.log(f) if f else -np.inf)
        part = np.where(below, 2 * scipy.stats.norm.logcdf(u / scale), 2 * scipy.stats.norm.logsf(u / scale))
        expected = scipy.integrate.trapezoid(np.exp(np.minimum(part + u, 700)), u)
        found = LogNormal(np.zeros((1, 1), np.float32), np.full((1, 1), scale, np.float32)).crps(np.array([[f]]))
        np.testing.assert_allclose(found, [[expected]], rtol=2e-3)
