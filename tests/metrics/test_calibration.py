"""Calibration curve, PIT and exceedance probabilities against scipy in float64; CRPS against scoringrules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bsatnp import metrics
from bsatnp.likelihoods import Categorical, Gaussian, LogNormal, NegativeBinomial, Poisson

KINDS = ("gaussian", "poisson", "negative_binomial")
COUNTS = KINDS[1:]


def numeric(kind, mean, std):
    made = {"gaussian": Gaussian, "negative_binomial": NegativeBinomial}
    return Poisson(mean) if kind == "poisson" else made[kind](mean, std)


def frozen(kind, mean, std):
    mean, std = mean.astype(np.float64), std.astype(np.float64)
    if kind == "gaussian":
        return scipy.stats.norm(mean, std)
    return scipy.stats.poisson(mean) if kind == "poisson" else scipy.stats.nbinom(std, std / (std + mean))


def drawn(kind, n=1000, seed=0, *, wider=1.0):
    """Predictions, and values drawn from them (from wider ones if asked); a tenth is not observed."""
    rng = np.random.default_rng(seed)
    mean, std = rng.gamma(2, 3, (n, 2)).astype(np.float32), rng.gamma(3, 1, (n, 2)).astype(np.float32)
    if kind == "gaussian":
        mean = mean - 6
    f = frozen(kind, mean, std).rvs(random_state=rng)
    f = (mean + wider * (f - mean) if kind == "gaussian" else f).astype(np.float32)
    observed = rng.random(f.shape) < 0.9
    return numeric(kind, mean, std), frozen(kind, mean, std), np.where(observed, f, np.nan).astype(np.float32), observed


@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_is_the_coverage_of_scipys_intervals(kind):
    pred, truth, f, observed = drawn(kind)
    levels = (0.2, 0.5, 0.95)
    got = metrics.calibration(pred, f, observed, levels)
    for level, share in zip(levels, got, strict=True):
        low, high = truth.interval(level)
        inside = (f >= low - 1e-5) & (f <= high + 1e-5)
        np.testing.assert_allclose(share, inside[observed].mean(), atol=5e-4)
        excess = 0.25 if kind in COUNTS else 0.04
        assert level - 0.04 < share < level + excess


def test_the_curve_tells_too_narrow_from_too_wide():
    levels = np.array(metrics.LEVELS)
    for wider, sign in ((2.0, -1), (0.5, 1)):
        pred, _, f, observed = drawn("gaussian", wider=wider)
        off = np.asarray(metrics.calibration(pred, f, observed)) - levels
        assert (sign * off[2:-2] > 0.05).all()


def test_a_curve_without_levels_is_refused():
    pred, _, f, observed = drawn("gaussian", 3)
    with pytest.raises(ValueError, match="`levels` must hold at least one probability, got none"):
        metrics.calibration(pred, f, observed, ())


@pytest.mark.parametrize("kind", KINDS)
def test_pit_lies_in_the_jump_and_is_uniform(kind):
    pred, truth, f, observed = drawn(kind)
    key = jax.random.key(1)
    u = np.asarray(metrics.pit(pred, f, observed, key=key))
    assert np.isnan(u[~observed]).all()
    low = truth.cdf(f - 1) if kind in COUNTS else truth.cdf(f)
    assert (u >= low - 1e-5)[observed].all() and (u <= truth.cdf(f) + 1e-5)[observed].all()
    assert scipy.stats.kstest(u[observed], "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(u, metrics.pit(pred, f, observed, key=key))
    other = np.asarray(metrics.pit(pred, f, observed, key=jax.random.key(2)))
    apart = np.abs(other - u)[observed].max()
    assert apart > 0.05 if kind in COUNTS else apart < 1e-5


@pytest.mark.parametrize("kind", COUNTS)
def test_pit_without_its_randomness_is_not_uniform(kind):
    """The distribution function itself, which a careless PIT of counts would be, fails the test above."""
    pred, _, f, observed = drawn(kind)
    careless = np.asarray(pred.cdf(np.nan_to_num(f)))[observed]
    assert scipy.stats.kstest(careless, "uniform").pvalue < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_the_histogram_is_the_mean_over_draws_of_the_pit(kind):
    pred, truth, f, observed = drawn(kind, 300)
    got = np.asarray(metrics.pit_histogram(pred, f, observed, 8))
    high = truth.cdf(f)[observed]
    low = truth.cdf(f - 1)[observed] if kind in COUNTS else high
    edges = np.linspace(0, 1, 9)
    if kind in COUNTS:
        below = np.clip((edges[:, None] - low) / (high - low), 0, 1).mean(1)
    else:
        below = (high < edges[:, None]).mean(1)
    np.testing.assert_allclose(got, np.diff(below), atol=2e-3)
    np.testing.assert_allclose(got.sum(), 1, rtol=1e-5)


def test_the_small_jump_of_a_large_count_is_shared_by_its_bins():
    rate = np.full((1, 1), 1e6)
    count = scipy.stats.poisson(rate).median()
    low, high = (scipy.stats.poisson(rate).cdf(k).item() for k in (count - 1, count))
    assert low < 0.5 < high < low + 5e-4
    found = metrics.pit_histogram(Poisson(jnp.asarray(rate)), jnp.asarray(count), np.ones((1, 1), bool), 2)
    np.testing.assert_allclose(found[0], (0.5 - low) / (high - low), atol=0.02)


def test_the_histogram_has_a_valley_for_narrow_predictions_and_a_hump_for_wide_ones():
    for wider, valley in ((2.0, True), (0.5, False)):
        pred, _, f, observed = drawn("gaussian", wider=wider)
        shares = np.asarray(metrics.pit_histogram(pred, f, observed))
        assert (shares[[0, -1]].min() > 1.5 * shares[4:6].max()) == valley
        assert (shares[[0, -1]].max() < 0.5 * shares[4:6].min()) != valley


def test_certain_misses_fall_into_the_outer_bins():
    pred = Gaussian(jnp.zeros((4, 1)), jnp.ones((4, 1)))
    f = np.array([[-1e6], [1e6], [1e6], [0.0]], np.float32)
    got = metrics.pit_histogram(pred, f, np.array([[True], [True], [True], [False]]), 4)
    np.testing.assert_allclose(got, [1 / 3, 0, 0, 2 / 3], rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_pit_of_numbers_does_not_depend_on_their_unit(scale):
    rng = np.random.default_rng(3)
    mean, f = (scale * rng.normal(size=(50, 1))).astype(np.float32), (scale * rng.normal(size=(50, 1)))
    f[0] = 0
    pred = Gaussian(mean, np.full_like(mean, scale))
    got = metrics.pit(pred, f.astype(np.float32), np.ones(f.shape, bool), key=jax.random.key(0))
    np.testing.assert_allclose(got, scipy.stats.norm(mean, scale).cdf(f), atol=1e-5)


def test_pit_of_numbers_has_no_randomness():
    """Where values are large beside their spread the next smaller number is a good part of it away."""
    f = np.full((20, 1), 300.123, np.float32)
    for pred in (Gaussian(f - 0.003, np.full_like(f, 0.02)), LogNormal(np.log(f), np.full_like(f, 1e-4))):
        draws = [metrics.pit(pred, f, np.ones(f.shape, bool), key=jax.random.key(seed)) for seed in range(3)]
        np.testing.assert_array_equal(draws[0], draws[1])
        np.testing.assert_array_equal(draws[0], draws[2])


def test_nothing_observed_gives_an_empty_histogram():
    pred, _, f, observed = drawn("poisson", 5)
    assert (np.asarray(metrics.pit_histogram(pred, f, np.zeros_like(observed))) == 0).all()
    with pytest.raises(ValueError, match="`bins` must be at least 1, got 0"):
        metrics.pit_histogram(pred, f, observed, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_exceedance_is_scipys_survival_function(kind):
    pred, truth, _, _ = drawn(kind, 50)
    for threshold in (2, 4.5, np.array([3.0, 7.0]), np.linspace(0, 9, 50)[:, None]):
        expected = truth.sf(np.broadcast_to(threshold, (50, 2)))
        np.testing.assert_allclose(metrics.exceedance(pred, threshold), expected, rtol=2e-4, atol=2e-6)


def test_rare_exceedance_of_a_gaussian_keeps_its_digits():
    pred = Gaussian(np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32))
    np.testing.assert_allclose(metrics.exceedance(pred, 9.0), [[scipy.stats.norm.sf(9)]], rtol=1e-4)


def test_exceedance_of_a_log_normal():
    pred = LogNormal(np.full((1, 1), 0.5, np.float32), np.full((1, 1), 0.2, np.float32))
    for threshold in (1.0, 2.0, 6.0):
        expected = scipy.stats.lognorm(0.2, scale=np.exp(0.5)).sf(threshold)
        np.testing.assert_allclose(metrics.exceedance(pred, threshold), [[expected]], rtol=1e-4)
    np.testing.assert_array_equal(metrics.exceedance(pred, -1.0), [[1.0]])


def test_a_distribution_function_without_the_axis_of_outputs_is_refused():
    pred = type("Bad", (Poisson,), {"cdf": lambda self, f: jnp.ones(8)})(jnp.ones((8, 1)))
    says = r"`cdf` of Bad must give the axes of `f` \(8, 1\), got \(8,\)."
    with pytest.raises(ValueError, match=says):
        metrics.exceedance(pred, 0.5)
    with pytest.raises(ValueError, match=says):
        metrics.pit(pred, np.ones((8, 1)), np.ones((8, 1), bool), key=jax.random.key(0))


def test_what_has_no_order_has_no_exceedance_and_thresholds_must_fit():
    labels = Categorical(jnp.zeros((3, 1, 2)))
    with pytest.raises(NotImplementedError, match="order"):
        metrics.exceedance(labels, 0.5)
    pred, _, _, _ = drawn("gaussian", 5)
    with pytest.raises(ValueError, match=r"`threshold` must broadcast .* \(5, 2\), got \(3,\)"):
        metrics.exceedance(pred, np.zeros(3))


@pytest.mark.parametrize("kind", KINDS)
def test_crps_is_that_of_scoringrules(kind):
    scoringrules = pytest.importorskip("scoringrules", reason="scoringrules is not installed")
    pred, _, f, observed = drawn(kind, 200)
    mean, y = np.asarray(pred.mean, np.float64), np.nan_to_num(f).astype(np.float64)
    if kind == "gaussian":
        expected = scoringrules.crps_normal(y, mean, np.asarray(pred.std, np.float64))
    elif kind == "poisson":
        expected = scoringrules.crps_poisson(y, mean)
    else:
        assert isinstance(pred, NegativeBinomial)
        size = np.asarray(pred.dispersion, np.float64)
        expected = scoringrules.crps_negbinom(y, size, size / (size + mean))
    np.testing.assert_allclose(pred.crps(y), expected, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(metrics.crps(pred, f, observed), expected[observed].mean(), rtol=1e-4)


def test_crps_in_closed_form():
    """Two values by hand: at the mean of a standard normal, and at 0 for a Poisson, E X − E|X − X′| / 2."""
    pred = Gaussian(np.zeros((1, 1), np.float32), np.ones((1, 1), np.float32))
    np.testing.assert_allclose(pred.crps(np.zeros((1, 1))), (np.sqrt(2) - 1) / np.sqrt(np.pi), rtol=1e-5)
    rate = 0.7
    distance = 2 * rate * np.exp(-2 * rate) * (scipy.special.iv(0, 2 * rate) + scipy.special.iv(1, 2 * rate))
    counts = Poisson(np.full((1, 1), rate, np.float32))
    np.testing.assert_allclose(counts.crps(np.zeros((1, 1))), rate - distance / 2, rtol=1e-5)


def test_whole_thresholds_that_no_device_integer_holds():
    pred = Gaussian(np.full((1, 1), 2e9, np.float32), np.full((1, 1), 1e9, np.float32))
    expected = metrics.exceedance(pred, 3e9)
    for threshold in (3_000_000_000, np.array([3_000_000_000])):
        np.testing.assert_allclose(metrics.exceedance(pred, threshold), expected, rtol=1e-5)


@pytest.mark.parametrize("p", [1e-8, 1 - 1e-8])
def test_quantiles_close_to_certainty_are_finite(p):
    one = np.ones((1, 1), np.float32)
    normal = scipy.stats.norm.ppf(p)
    np.testing.assert_allclose(Gaussian(one, one).quantile(p), [[1 + normal]], rtol=1e-5)
    np.testing.assert_allclose(LogNormal(one, one).quantile(p), [[np.exp(1 + normal)]], rtol=1e-4)
    for counts in (Poisson(9 * one), NegativeBinomial(9 * one, 2 * one)):
        assert np.isfinite(counts.quantile(p)).all()
