"""Scores against NumPy in float64; what was not observed never counts."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bsatnp import metrics
from bsatnp.likelihoods import Categorical, Gaussian, NegativeBinomial, Poisson
from bsatnp.metrics.scores import safe

SHAPE = (3, 7, 2)
NUMERIC = {"nll", "mae", "rmse", "coverage", "crps"}


def draw(seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    mean, std = rng.gamma(2, 3, shape).astype(np.float32), rng.gamma(3, 1, shape).astype(np.float32)
    return mean, std, rng.poisson(mean).astype(np.float32), rng.random(shape) < 0.6


def numeric(mean, std):
    return {"gaussian": Gaussian(mean, std), "poisson": Poisson(mean), "negative_binomial": NegativeBinomial(mean, std)}


KINDS = ("gaussian", "poisson", "negative_binomial")


def oracle(kind, mean, std):
    """The frozen distribution of scipy, and its log density or log probability."""
    mean, std = mean.astype(np.float64), std.astype(np.float64)
    if kind == "gaussian":
        return scipy.stats.norm(mean, std), lambda y: scipy.stats.norm.logpdf(y, mean, std)
    if kind == "poisson":
        return scipy.stats.poisson(mean), lambda y: scipy.stats.poisson.logpmf(y, mean)
    p = std / (std + mean)
    return scipy.stats.nbinom(std, p), lambda y: scipy.stats.nbinom.logpmf(y, std, p)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_means_over_observed_values(kind):
    mean, std, f, observed = draw()
    truth, log_prob = oracle(kind, mean, std)
    y = f.astype(np.float64)
    level = 0.5
    inside = (y >= truth.ppf(0.25)) & (y <= truth.ppf(0.75))
    error = (y - truth.mean())[observed]
    expected = {
        "nll": -log_prob(y)[observed].mean(),
        "mae": np.abs(error).mean(),
        "rmse": np.sqrt((error**2).mean()),
        "coverage": inside[observed].mean(),
    }
    got = metrics.summarise(numeric(mean, std)[kind], f, observed, level)
    assert set(got) == NUMERIC
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=name)
    assert 0 < got["coverage"] < 1
    np.testing.assert_allclose(got["crps"], np.asarray(numeric(mean, std)[kind].crps(f))[observed].mean(), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_summarise_is_the_functions_one_by_one(kind):
    mean, std, f, observed = draw(1)
    pred = numeric(mean, std)[kind]
    for name, value in metrics.summarise(pred, f, observed).items():
        np.testing.assert_allclose(value, getattr(metrics, name)(pred, f, observed), rtol=1e-6)


def test_categorical_has_nll_and_accuracy():
    logits = np.random.default_rng(0).normal(size=(6, 1, 4)).astype(np.float32)
    best = logits.argmax(-1)
    f = best.copy()
    f[:2] = (best[:2] + 1) % 4
    observed = np.array([[True], [False], [True], [True], [True], [False]])
    pred = Categorical(logits)
    got = metrics.summarise(pred, f, observed)
    assert set(got) == {"nll", "accuracy"}
    np.testing.assert_allclose(got["accuracy"], 3 / 4)
    np.testing.assert_allclose(metrics.accuracy(pred, f.astype(np.float32), observed), 3 / 4)
    picked = np.take_along_axis(logits.astype(np.float64), f[..., None], -1)[..., 0]
    nll = np.log(np.exp(logits.astype(np.float64)).sum(-1)) - picked
    np.testing.assert_allclose(got["nll"], nll[observed].mean(), rtol=1e-5)


def test_accuracy_is_for_labels():
    mean, std, f, observed = draw()
    with pytest.raises(Exception, match="Categorical"):  # TypeError, or the type checker of the tests before it
        metrics.accuracy(Gaussian(mean, std), f, observed)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_observed_never_leaks(kind):
    mean, std, f, observed = draw(2)

    @jax.jit
    def scores(mean, std, f):
        def total(mean, std):
            values = metrics.summarise(numeric(mean, std)[kind], f, jnp.asarray(observed))
            return sum(values.values()), values

        (_, values), gradient = jax.value_and_grad(total, (0, 1), has_aux=True)(mean, std)
        return values, gradient

    clean, clean_gradient = scores(mean, std, f)
    assert np.abs(clean_gradient[0]).sum() > 0
    for junk in (np.nan, np.inf, -np.inf):
        got, gradient = scores(*(np.where(observed, a, np.float32(junk)) for a in (mean, std, f)))
        jax.tree.map(np.testing.assert_array_equal, got, clean)
        for one, other in zip(gradient, clean_gradient, strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_array_equal(one, np.where(observed, other, 0))


def test_labels_that_were_not_observed_never_leak():
    logits = jnp.zeros((3, 1, 2)).at[1].set(jnp.nan)
    f, observed = jnp.array([[0.0], [jnp.nan], [1.0]]), jnp.array([[True], [False], [True]])
    value, gradient = jax.value_and_grad(lambda logits: metrics.nll(Categorical(logits), f, observed))(logits)
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)
    np.testing.assert_allclose(gradient[:, 0], [[-0.25, 0.25], [0, 0], [0.25, -0.25]], atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_observed_gives_zero_and_no_gradient(kind):
    mean, std, f, observed = draw(3)

    def total(mean, std):
        pred = numeric(mean, std)[kind]
        return sum(metrics.summarise(pred, np.full_like(f, np.nan), np.zeros_like(observed)).values())

    value, gradient = jax.jit(jax.value_and_grad(total, (0, 1)))(jnp.asarray(mean), jnp.asarray(std))
    assert value == 0
    assert all((g == 0).all() for g in gradient)


def test_perfect_predictions_have_a_gradient():
    f = jnp.ones((4, 1))
    value, gradient = jax.value_and_grad(lambda mean: metrics.rmse(Gaussian(mean, f), f, f > 0))(f)
    assert value == 0 and jnp.isfinite(gradient).all()


def test_vmap_scores_every_task_alone():
    mean, std, f, observed = draw(4)
    observed[1] = False
    pred = Gaussian(mean, std)
    got = jax.jit(jax.vmap(metrics.summarise))(pred, f, observed)
    for task in range(len(f)):
        alone = metrics.summarise(Gaussian(mean[task], std[task]), f[task], observed[task])
        for name, value in alone.items():
            np.testing.assert_allclose(got[name][task], value, rtol=1e-5)
    assert got["nll"][1] == 0 and got["nll"][0] != 0


def test_accumulator_equals_one_large_batch():
    mean, std, f, observed = draw(5, (9, 5, 2))
    observed[6:] &= np.random.default_rng(1).random((3, 5, 2)) < 0.1  # batches of very different weight
    total = metrics.Accumulator(level=0.7)
    thirds = (slice(0, 3), slice(3, 6), slice(6, 9))
    for rows in thirds:
        total.add(Gaussian(mean[rows], std[rows]), f[rows], observed[rows])
    total.add(Gaussian(mean[:3], std[:3]), f[:3] * np.nan, np.zeros_like(observed[:3]))  # weighs nothing
    expected = metrics.summarise(Gaussian(mean, std), f, observed, 0.7)
    assert total.count == observed.sum()
    assert set(total.result()) == set(expected)
    for name, value in total.result().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, err_msg=name)
    # and neither the mean of the batches' scores nor that of their roots is the same
    parts = [
        metrics.rmse(Gaussian(mean[r], std[r]), f[r], observed[r]) for r in (slice(0, 3), slice(3, 6), slice(6, 9))
    ]
    assert abs(np.mean(parts) - total.result()["rmse"]) > 1e-3


def test_accumulator_takes_sums_from_a_compiled_step():
    mean, std, f, observed = draw(6)
    total = metrics.Accumulator()
    total.add_sums(eqx.filter_jit(metrics.sums)(Poisson(mean), f, observed))
    np.testing.assert_allclose(total.result()["mae"], np.abs(f - mean)[observed].mean(), rtol=1e-5)
    labels = Categorical(jnp.zeros((2, 1, 3)))
    with pytest.raises(ValueError, match="`batch` must have the scores"):
        total.add(labels, jnp.zeros((2, 1)), jnp.ones((2, 1), bool))


def test_accumulator_does_not_lose_small_batches_after_many_large_ones():
    total = metrics.Accumulator()
    large, one = jnp.float32(2.0**25), jnp.float32(1.0)
    total.add_sums(metrics.Sums({"nll": large}, jnp.int32(2**25)))
    for _ in range(4):
        total.add_sums(metrics.Sums({"nll": one}, jnp.int32(0)))
    assert total.result()["nll"] == (2**25 + 4) / 2**25


def test_accumulator_without_values_refuses():
    with pytest.raises(ValueError, match="`result` needs at least one observed value, got none"):
        metrics.Accumulator().result()


def test_masks_that_do_not_fit_are_refused():
    mean, std, f, observed = draw()
    with pytest.raises(ValueError, match="`observed` must be boolean with the axes of `f`"):
        safe(Gaussian(mean, std), f, observed[..., 0])


@pytest.mark.parametrize(("pred", "f"), [((3, 2), (3, 1)), ((3, 3, 1), (3, 1)), ((3, 1), (3, 2)), ((1, 1), (3, 1))])
def test_predictions_that_do_not_fit_are_refused(pred, f):
    """Masking would broadcast them, and count an error once for each copy."""
    values, observed = np.zeros(f, np.float32), np.ones(f, bool)
    says = re.escape(f"`pred` must have parameters with the axes of `f` {f}, got {pred}")
    with pytest.raises(ValueError, match=says):
        safe(Gaussian(np.ones(pred, np.float32), np.ones(pred, np.float32)), values, observed)
    with pytest.raises(ValueError, match="`pred` must have parameters with the axes of `f`"):
        safe(Categorical(np.zeros((4, 1, 2), np.float32)), np.zeros((3, 1)), np.ones((3, 1), bool))


@pytest.mark.parametrize("name", ["log_prob", "crps", "covers", "mean"])
def test_values_of_a_likelihood_without_the_axis_of_outputs_are_refused(name):
    """A batch of as many tasks as each has targets: they would broadcast, and every task be scored with all others."""

    def dropped(self, *args):
        return jnp.ones(self.rate.shape[:-1])

    pred = type("Bad", (Poisson,), {name: property(dropped) if name == "mean" else dropped})(jnp.ones((8, 8, 1)))
    says = re.escape(f"`{name}` of Bad must give the axes of `f` (8, 8, 1), got (8, 8).")
    with pytest.raises(ValueError, match=says):
        metrics.summarise(pred, np.zeros((8, 8, 1)), np.ones((8, 8, 1), bool))


def test_errors_of_narrow_predictions_are_those_of_float32(monkeypatch):
    f, observed = np.array([[0.9], [2.6]], np.float32), np.ones((2, 1), bool)
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # whole numbers are not asked for
    whole = NegativeBinomial(np.array([[1], [2]]), np.ones((2, 1), np.float32))
    np.testing.assert_allclose(metrics.mae(whole, f, observed), 0.35, rtol=1e-5)
    half = Gaussian(np.zeros((2, 1), np.float16), np.ones((2, 1), np.float16))
    np.testing.assert_allclose(metrics.rmse(half, 1000 * f, observed), 1000 * np.sqrt(7.57 / 2), rtol=1e-5)


def test_an_offset_of_values_on_the_host_changes_no_score():
    """Gravity in mGal, 980,000 ± 0.02: float32 has steps of 0.06 there. Two outputs with offsets of their own."""
    rng = np.random.default_rng(4)
    z, offset = 0.02 * rng.normal(size=(500, 2)), np.array([[980_000.0, -7e7]])
    std, observed = np.full((500, 2), 0.02), rng.random((500, 2)) < 0.7
    near = metrics.summarise(Gaussian(np.zeros((500, 2)), std), z, observed)
    f = np.where(observed, offset + z, np.nan)
    far = metrics.summarise(Gaussian(np.zeros((500, 2)) + offset, std), f, observed)
    on_device = metrics.summarise(Gaussian(np.zeros((500, 2)) + offset, std), offset + z, jnp.asarray(observed))
    total = metrics.Accumulator()
    total.add(Gaussian(np.zeros((500, 2)) + offset, std), f, observed)
    for name in NUMERIC:
        np.testing.assert_allclose(far[name], near[name], rtol=1e-4)
        np.testing.assert_allclose(total.result()[name], near[name], rtol=1e-4)
        np.testing.assert_allclose(on_device[name], near[name], rtol=1e-4)


def test_one_infinite_value_spoils_no_other(x64):
    mean, std, f, _ = draw()
    pred, observed = Gaussian(mean, std), np.ones(SHAPE, bool)
    before = metrics.coverage(pred, f, observed)
    f[0, 0, 0] = np.inf
    assert before - 1 / f.size - 1e-6 <= metrics.coverage(pred, f, observed) <= before
    assert metrics.mae(pred, f, observed) == np.inf
    assert {score.dtype for score in metrics.summarise(pred, f, observed).values()} == {np.dtype(np.float32)}
    with pytest.raises(ValueError, match="numpy masked arrays"):  # what is hidden is said by `observed`
        metrics.mae(pred, np.ma.array(f, mask=~observed), observed)


def test_accumulated_counts_may_be_larger_than_a_device_counts():
    f, observed = np.array([[2**32 + 5], [2**33]]), np.ones((2, 1), bool)
    total = metrics.Accumulator()
    total.add(Gaussian(np.zeros((2, 1), np.float32), np.full((2, 1), 2.0**32, np.float32)), f, observed)
    np.testing.assert_allclose(total.result()["mae"], f.mean(), rtol=1e-6)


def test_calibrated_predictions_are_covered_as_often_as_promised():
    key_mean, key_f = jax.random.split(jax.random.key(0))
    mean = jnp.exp(jax.random.normal(key_mean, (20_000, 1)) + 3)
    observed = jnp.ones(mean.shape, bool)
    pred = Gaussian(mean, jnp.sqrt(mean))
    f = pred.sample(key=key_f)
    for level in (0.5, 0.95):
        covered = float(metrics.coverage(pred, f, observed, level))
        assert abs(covered - level) < 4 * np.sqrt(level * (1 - level) / 20_000)
    counts = Poisson(mean)
    assert 0.95 <= metrics.coverage(counts, counts.sample(key=key_f), observed) < 0.98


def test_labels_are_compared_as_whole_numbers():
    """In bfloat16 labels of 256 and 257 are one number."""
    logits = jnp.zeros((1, 1, 300)).at[0, 0, 257].set(1.0)
    seen = np.ones((1, 1), bool)
    for label, share in ((256, 0.0), (257.5, 0.0), (257, 1.0)):
        kind = jnp.bfloat16 if label == 256 else jnp.float32
        assert float(metrics.accuracy(Categorical(logits), jnp.full((1, 1), label, kind), seen)) == share
