"""Every likelihood against scipy in float64, at ordinary and at extreme parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from bsatnp.likelihoods import Categorical, Gaussian, LogNormal, NegativeBinomial, Poisson
from bsatnp.likelihoods._counting import large_poisson_count

P = (0.001, 0.025, 0.5, 0.9, 0.999)
RATES = (1e-6, 1e-3, 0.1, 1.0, 3.7, 42.0, 1e3, 1e6)
DISPERSIONS = (1e-6, 0.02, 0.5, 1.0, 7.3, 300.0, 1e6)


def grid(x64):
    """Counts around the bulk of every rate, and at its edges: rates and counts `(tgt, 1)`."""
    rows = []
    for rate in RATES:
        around = np.round(rate + np.sqrt(rate) * np.linspace(-5, 8, 20))
        rows += [(rate, k) for k in [*np.clip(around, 0, None), 0, 1, 2, 5, 300]]
    rate, count = np.array(rows, np.float64 if x64 else np.float32).T[:, :, None]
    return rate, count


def wide_grid(x64):
    rows = []
    for mean in RATES:
        for r in DISPERSIONS:
            std = min(np.sqrt(mean + mean**2 / r), 1e6)
            rows += [(mean, r, k) for k in [*np.clip(np.round(mean + std * np.linspace(-4, 6, 9)), 0, None), 0, 1, 20]]
    mean, r, count = np.array(rows, np.float64 if x64 else np.float32).T[:, :, None]
    return mean, r, count


def double(*arrays):
    return [np.asarray(a, np.float64) for a in arrays]


def assert_log_prob(got, expected, rtol):
    """Relative to the size of the log probability, where that is more than 1."""
    got, expected = double(got, expected)
    # beyond this scipy itself returns −inf
    ok = np.isfinite(expected)
    assert ok.mean() > 0.8
    np.testing.assert_array_less(np.abs(got - expected)[ok], rtol * np.maximum(1, np.abs(expected))[ok])


# Gaussian -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def gaussian(x64):
    dtype = np.float64 if x64 else np.float32
    mean = np.array([[0.0, -3.0], [1e3, 2.5], [0.1, 7.0]], dtype)
    std = np.array([[1.0, 1e-3], [20.0, 1e4], [0.3, 2.0]], dtype)
    z = np.array([[0.0, 2.0], [-1.3, 0.4], [5.0, -30.0]], dtype)
    return Gaussian(mean, std), (mean + std * z).astype(dtype), scipy.stats.norm(*double(mean, std))


def test_gaussian_equals_scipy(gaussian, x64):
    pred, f, oracle = gaussian
    rtol, atol = (1e-12, 1e-12) if x64 else (1e-5, 2e-6)
    np.testing.assert_allclose(pred.log_prob(f), oracle.logpdf(double(f)[0]), rtol=rtol, atol=atol)
    np.testing.assert_allclose(pred.cdf(f), oracle.cdf(double(f)[0]), rtol=rtol, atol=atol)
    np.testing.assert_allclose(pred.variance, oracle.var(), rtol=rtol, atol=atol)
    for p in P:
        np.testing.assert_allclose(pred.quantile(p), oracle.ppf(p), rtol=rtol, atol=atol)


def test_gaussian_crps_is_the_integral_of_the_squared_cdf_error(gaussian, x64):
    pred, f, oracle = gaussian
    mean, std, y = double(pred.mean, pred.std, f)

    def integral(mean, std, y):
        cdf = scipy.stats.norm(mean, std).cdf
        low, high = min(y, mean) - 9 * std, max(y, mean) + 9 * std
        below = scipy.integrate.quad(lambda x: cdf(x) ** 2, low, y, points=[mean], limit=200)[0]
        above = scipy.integrate.quad(lambda x: (1 - cdf(x)) ** 2, y, high, points=[mean], limit=200)[0]
        return below + above

    np.testing.assert_allclose(pred.crps(f), np.vectorize(integral)(mean, std, y), rtol=1e-7 if x64 else 2e-5)


@pytest.mark.filterwarnings("error")
def test_errors_of_host_values_are_taken_in_double_precision():
    """A Julian date by the second: a device in single precision cannot tell mean and value apart."""
    mean, std, f = np.array([[2_460_000.0]]), np.array([[1e-5]]), np.array([[2_460_000.00002]])
    pred = Gaussian(mean, std)
    np.testing.assert_allclose(pred.log_prob(f), scipy.stats.norm.logpdf(f, mean, std), rtol=1e-3)
    np.testing.assert_allclose(pred.cdf(f), scipy.stats.norm.cdf(f, mean, std), rtol=1e-3)
    np.testing.assert_allclose(pred.crps(f), Gaussian(mean - mean, std).crps(f - mean), rtol=1e-3)


def test_gaussian_samples_have_its_moments():
    pred = Gaussian(jnp.full((20_000, 2), 5.0), jnp.stack([jnp.full(20_000, 0.5), jnp.full(20_000, 30.0)], -1))
    draws = np.asarray(pred.sample(key=jax.random.key(0)), np.float64)
    for column, std in zip(draws.T, (0.5, 30.0), strict=True):
        assert scipy.stats.kstest(column, scipy.stats.norm(5, std).cdf).pvalue > 1e-3


def test_a_log_normal_keeps_nan_and_covers_nothing_below_zero():
    wide = LogNormal(np.zeros((4, 1)), np.ones((4, 1)))
    f = np.array([[np.nan], [0.0], [-1.0], [1.0]])
    np.testing.assert_allclose(wide.cdf(f), [[np.nan], [0], [0], [0.5]], atol=1e-6)
    np.testing.assert_array_equal(wide.covers(f, 0.9), [[False], [False], [False], [True]])


# Counts ---------------------------------------------------------------------------------------------------------------


def test_poisson_equals_scipy(x64):
    rate, count = grid(x64)
    pred = Poisson(rate)
    m, k = double(rate, count)
    assert_log_prob(pred.log_prob(count), scipy.stats.poisson.logpmf(k, m), 1e-9 if x64 else 2e-6)
    np.testing.assert_allclose(pred.cdf(count), scipy.stats.poisson.cdf(k, m), atol=1e-10 if x64 else 1e-6)
    np.testing.assert_allclose(pred.cdf(count + 0.25), pred.cdf(count), atol=0 if x64 else 1e-3)
    np.testing.assert_array_equal(pred.cdf(-np.ones_like(count)), 0)
    for p in P:
        np.testing.assert_allclose(pred.quantile(p), scipy.stats.poisson.ppf(p, m), atol=0)


def test_negative_binomial_equals_its_closed_form(x64):
    mean, r, count = wide_grid(x64)
    pred = NegativeBinomial(mean, r)
    m, s, k = double(mean, r, count)
    # both forms are exact where scipy's own nbinom rounds r / (r + m) to 1
    ways = scipy.special.gammaln(k + s) - scipy.special.gammaln(s) - scipy.special.gammaln(k + 1)
    assert_log_prob(pred.log_prob(count), ways - s * np.log1p(m / s) - k * np.log1p(s / m), 1e-8 if x64 else 5e-6)
    np.testing.assert_allclose(pred.cdf(count), scipy.stats.beta.sf(m / (s + m), k + 1, s), atol=1e-9 if x64 else 1e-5)
    np.testing.assert_allclose(pred.variance, m + m**2 / s, rtol=1e-12 if x64 else 1e-6)


def test_negative_binomial_quantiles_are_the_smallest_that_reach(x64):
    mean, r, _ = wide_grid(x64)
    # few shapes: one row per pair of parameters; where the heavy tail passes 2^24, float32 cannot hold the counts
    keep = np.unique(np.concatenate([mean, r], -1), axis=0)
    keep = keep[(keep[:, 0] / keep[:, 1] < 1e5) & (keep[:, 1] < 1e5)]
    m, s = keep.T[:, :, None]
    pred = NegativeBinomial(m, s)
    oracle = scipy.stats.nbinom(*double(s, s / (s + m)))
    slack = 1e-9 if x64 else 1e-5
    for p in P:
        k = double(pred.quantile(p))[0]
        np.testing.assert_array_equal(k, np.round(k))
        assert (oracle.cdf(k) >= p - slack).all()
        assert (oracle.cdf(k - 1) < p + slack).all()


def test_a_tie_counts_as_reached(x64):
    dtype = np.float64 if x64 else np.float32
    # a dispersion of 1 and a mean of 1 is the geometric distribution with cdf 1/2, 3/4, 7/8, ...
    pred = NegativeBinomial(np.ones((1, 1), dtype), np.ones((1, 1), dtype))
    assert [float(pred.quantile(p)[0, 0]) for p in (0.5, 0.75, 0.875, 0.876)] == [0, 1, 2, 3]


def count_crps(cdf, y, top):
    k = np.arange(top, dtype=np.float64)
    return ((cdf(k) - (k >= y)) ** 2).sum()


def test_poisson_crps_is_the_sum_of_the_squared_cdf_error(x64):
    dtype = np.float64 if x64 else np.float32
    rows = [(1e-6, 0), (1e-6, 3), (0.4, 0), (0.4, 2), (9.3, 4), (9.3, 40), (1e3, 1040), (1e6, 1_000_500), (1e6, 0)]
    rate, count = np.array(rows, dtype).T[:, :, None]
    expected = [
        count_crps(scipy.stats.poisson(float(m)).cdf, k, int(m + 12 * np.sqrt(m) + k + 20))
        for m, k in zip(rate[:, 0], count[:, 0], strict=True)
    ]
    np.testing.assert_allclose(
        Poisson(rate).crps(count)[:, 0], expected, rtol=1e-8 if x64 else 1e-4, atol=1e-15 if x64 else 1e-11
    )


def test_negative_binomial_crps_is_the_sum_of_the_squared_cdf_error(x64):
    dtype = np.float64 if x64 else np.float32
    rows = [
        (1e-6, 2.0, 0),
        (0.4, 0.3, 0),
        (0.4, 0.3, 5),
        (9.3, 1.0, 4),
        (9.3, 50.0, 40),
        (1e3, 7.0, 900),
        (2e4, 1e6, 2e4),
    ]
    mean, r, count = np.array(rows, dtype).T[:, :, None]
    expected = [
        count_crps(scipy.stats.nbinom(s, s / (s + m)).cdf, k, int(m + 40 * np.sqrt(m + m**2 / s) + k + 100))
        for m, s, k in np.array(rows, dtype).astype(np.float64)
    ]
    got = NegativeBinomial(mean, r).crps(count)[:, 0]
    np.testing.assert_allclose(got, expected, rtol=1e-8 if x64 else 1e-4, atol=1e-15 if x64 else 1e-11)


def test_negative_binomial_crps_of_a_heavy_tail_equals_the_published_formula(x64):
    dtype = np.float64 if x64 else np.float32
    mean, r, count = np.array([(1e3, 0.01, 0), (1e6, 0.5, 3e5), (1e6, 3.0, 1e6)], dtype).T[:, :, None]
    m, n, y = double(mean, r, count)
    p, q = n / (n + m), m / (n + m)
    cdf = scipy.stats.nbinom.cdf
    # Wei and Held (2014); scoringRules::crps_nbinom
    spread = m / p * scipy.special.hyp2f1(n + 1, 0.5, 2, -4 * q / p**2)
    expected = y * (2 * cdf(y, n, p) - 1) - m * (2 * cdf(y - 1, n + 1, p) - 1) - spread
    np.testing.assert_allclose(NegativeBinomial(mean, r).crps(count), expected, rtol=1e-7 if x64 else 1e-4)


def test_negative_binomial_of_huge_dispersion_is_poisson():
    rate, count = jnp.array([[0.5], [40.0], [900.0]]), jnp.array([[1.0], [31.0], [950.0]])
    wide, limit = NegativeBinomial(rate, jnp.full((3, 1), 1e9)), Poisson(rate)
    for name in ("log_prob", "cdf", "crps"):
        np.testing.assert_allclose(getattr(wide, name)(count), getattr(limit, name)(count), rtol=2e-5)


@pytest.mark.parametrize("dispersion", [None, 0.5, 3.0])
def test_every_count_lies_below_infinity(dispersion):
    f = jnp.array([[np.inf], [np.nan], [-np.inf]])

    def cdf(mean):
        pred = Poisson(mean) if dispersion is None else NegativeBinomial(mean, jnp.full((3, 1), dispersion))
        return pred.cdf(f)

    np.testing.assert_array_equal(cdf(jnp.full((3, 1), 3.0)), [[1.0], [np.nan], [0.0]])
    gradient = jax.grad(lambda mean: cdf(mean)[::2].sum())(jnp.full((3, 1), 3.0))
    np.testing.assert_array_equal(gradient[::2], 0)


@pytest.mark.parametrize("bad", [-1.0, 0.5, np.inf, np.nan])
def test_what_is_no_count_has_probability_zero(bad):
    one, f = jnp.ones((1, 1)), jnp.full((1, 1), bad)
    assert Poisson(one).log_prob(f) == -np.inf
    assert NegativeBinomial(one, one).log_prob(f) == -np.inf
    assert np.isnan(Poisson(one).crps(f)).all()


@pytest.mark.parametrize("rate", [0.3, 20.0, 3e4, 1e6])
def test_poisson_samples_follow_their_cdf(rate):
    draws = np.asarray(Poisson(jnp.full((20_000, 1), rate)).sample(key=jax.random.key(1)), np.float64)[:, 0]
    np.testing.assert_array_equal(draws, np.round(draws))
    assert_follows(draws, scipy.stats.poisson(float(np.float32(rate))))


def test_large_poisson_samples_are_quantiles_to_the_last_count():
    z = np.linspace(-4, 4, 161, dtype=np.float32)
    for rate in (1e4, 3e5):
        got = large_poisson_count(jnp.full(z.shape, rate, jnp.float32), jnp.asarray(z))
        error = np.asarray(got, np.float64) - scipy.stats.poisson.ppf(scipy.stats.norm.cdf(z.astype(np.float64)), rate)
        assert np.abs(error).max() <= 1
        assert np.abs(error.mean()) < 0.05


@pytest.mark.parametrize(("mean", "r"), [(0.3, 0.05), (20.0, 3.0), (1e6, 2.0), (1e5, 1e4)])
def test_negative_binomial_samples_follow_their_cdf(mean, r):
    shape = (20_000, 1)
    pred = NegativeBinomial(jnp.full(shape, mean), jnp.full(shape, r))
    assert_follows(
        np.asarray(pred.sample(key=jax.random.key(2)), np.float64)[:, 0], scipy.stats.nbinom(r, r / (r + mean))
    )


def assert_follows(draws, oracle):
    """The empirical distribution stays within 2/√n (Kolmogorov: p ≈ 7e-4) of the true one at every value drawn."""
    at = np.unique(draws)
    empirical = np.searchsorted(np.sort(draws), at, side="right") / len(draws)
    assert np.abs(empirical - oracle.cdf(at)).max() < 2 / np.sqrt(len(draws))


# Intervals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_covers_is_between_the_quantiles(level, x64):
    dtype = np.float64 if x64 else np.float32
    f = np.repeat(np.arange(40, dtype=dtype)[:, None], 2, -1)
    mean = np.broadcast_to(np.array([4.3, 17.0], dtype), f.shape)
    for pred in (Gaussian(mean, mean / 3), Poisson(mean), NegativeBinomial(mean, mean / 2)):
        low, high = pred.quantile((1 - level) / 2), pred.quantile((1 + level) / 2)
        expected = (f >= low) & (f <= high)
        assert 0 < expected.sum() < expected.size
        np.testing.assert_array_equal(pred.covers(f, level), expected)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_probabilities_off_the_open_interval_are_refused(p):
    one = jnp.ones((1, 1))
    for pred in (Gaussian(one, one), Poisson(one), NegativeBinomial(one, one)):
        with pytest.raises(ValueError, match="`p` must lie strictly between 0 and 1"):
            pred.quantile(p)
        with pytest.raises(ValueError, match="`level` must lie strictly between 0 and 1"):
            pred.covers(one, p)


# Categorical ----------------------------------------------------------------------------------------------------------


def test_categorical_equals_a_softmax():
    logits = np.array([[[0.0, 1.0, 2.0]], [[200.0, -200.0, 0.0]], [[5.0, 5.0, 5.0]]], np.float32)
    labels = np.array([[2], [1], [0]])
    pred = Categorical(logits)
    expected = np.take_along_axis(scipy.special.log_softmax(double(logits)[0], -1), labels[..., None], -1)[..., 0]
    for f in (labels, labels.astype(np.float32)):
        np.testing.assert_allclose(pred.log_prob(f), expected, rtol=1e-6)
    np.testing.assert_allclose(pred.probs, scipy.special.softmax(double(logits)[0], -1), rtol=1e-6, atol=1e-30)
    np.testing.assert_array_equal(pred.mode, [[2], [0], [0]])


def test_categorical_gives_what_is_no_label_no_probability():
    pred = Categorical(jnp.zeros((4, 1, 3)))
    np.testing.assert_allclose(
        pred.log_prob(jnp.array([[-1.0], [3.0], [0.5], [2.0]])), [[-np.inf]] * 3 + [[-np.log(3)]]
    )


def test_categorical_samples_have_its_probabilities():
    probs = np.array([0.1, 0.6, 0.3])
    pred = Categorical(jnp.broadcast_to(jnp.log(jnp.asarray(probs)), (20_000, 1, 3)))
    counts = np.bincount(np.asarray(pred.sample(key=jax.random.key(0)))[:, 0], minlength=3)
    assert scipy.stats.chisquare(counts, 20_000 * probs).pvalue > 1e-3


@pytest.mark.parametrize("name", ["mean", "std", "variance", "cdf", "quantile", "covers", "crps"])
def test_categorical_has_no_order(name):
    pred, f = Categorical(jnp.zeros((2, 1, 3))), jnp.zeros((2, 1))
    arguments = {"cdf": (f,), "crps": (f,), "quantile": (0.5,), "covers": (f, 0.5)}
    with pytest.raises(NotImplementedError, match=f"`{name}` needs values that have an order"):
        member = getattr(pred, name)
        member(*arguments[name])


# Shapes and types -----------------------------------------------------------------------------------------------------


def test_batches_are_the_tasks_one_by_one():
    mean, r = jnp.exp(jax.random.normal(jax.random.key(0), (2, 3, 5, 2))) * 4
    f = jnp.round(mean)

    def log_prob(pred, f):
        return (pred.log_prob(f),)

    def all_scores(pred, f):
        return pred.log_prob(f), pred.crps(f), pred.quantile(0.3)

    # compiling is the cost: the negative binomial's other scores are made as the Poisson's are
    cases = ((Gaussian(mean, r), all_scores), (Poisson(mean), all_scores), (NegativeBinomial(mean, r), log_prob))
    for pred, scores in cases:
        together = scores(pred, f)
        for one, other in zip(jax.jit(jax.vmap(scores))(pred, f), together, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_half_precision_parameters_are_scored_in_single():
    pred = Gaussian(jnp.full((1, 1), 1.0, jnp.bfloat16), jnp.full((1, 1), 0.5, jnp.bfloat16))
    got = pred.log_prob(np.array([[1.3]]))
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, scipy.stats.norm.logpdf([[1.3]], 1, 0.5), rtol=1e-6)


def test_shapes_that_do_not_fit_are_refused(no_shape_checks):
    mean = np.ones((3, 2), np.float32)
    with pytest.raises(ValueError, match=r"`f` must have axes \(…, tgt, out\) = \(3, 2\), got \(3, 1\)"):
        Gaussian(mean, mean).log_prob(mean[:, :1])
    with pytest.raises(ValueError, match=r"`f` must have axes \(…, tgt, 1\) = \(3, 1\), got \(3, 2\)"):
        Categorical(np.ones((3, 1, 4), np.float32)).log_prob(mean)
    with pytest.raises(ValueError, match=r"`std` must have the shape of `mean` \(3, 2\), got \(3, 1\)"):
        Gaussian(mean, mean[:, :1])
    with pytest.raises(ValueError, match=r"`dispersion` must have the shape of `mean` \(3, 2\), got \(2,\)"):
        NegativeBinomial(mean, mean[0])
    with pytest.raises(ValueError, match=r"`logits` must have axes \(…, tgt, 1, class\), got \(3, 2\)"):
        Categorical(mean)


@pytest.mark.parametrize("make", [lambda r: Poisson(r), lambda r: NegativeBinomial(r, jnp.full_like(r, 2.5))])
def test_counts_in_single_precision_beside_doubles(make):
    """With x64 on and strict promotion, float32 parameters are neither widened nor refused."""
    rate = np.asarray([[0.3], [3.0], [40.0], [9e5]], np.float32)
    with jax.enable_x64(True):
        median = make(jnp.asarray(rate)).quantile(0.5)
        density = make(jnp.asarray(rate)).log_prob(jnp.asarray(rate).round())
    assert median.dtype == density.dtype == np.float32
    with jax.enable_x64(False):
        np.testing.assert_array_equal(median, make(jnp.asarray(rate)).quantile(0.5))
