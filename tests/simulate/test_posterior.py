"""The exact posterior against scikit-learn and SciPy, and where there is little or no context."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from bsatnp.simulate import Matern, SquaredExponential, log_marginal, posterior
from bsatnp.tasks import Points

RNG = np.random.default_rng(11)
S, Q = RNG.uniform(-1, 1, (9, 2)), RNG.uniform(-1, 1, (7, 2))
F = RNG.normal(size=(9, 1))
CTX, TGT = Points({"s": S}, F), Points({"s": Q})
KERNELS = {
    "squared exponential": (SquaredExponential(0.6, 1.7), 1.7 * sk.RBF(0.6)),
    "exponential": (Matern(0.6, nu=0.5), 1.0 * sk.Matern(0.6, nu=0.5)),
}


@pytest.mark.parametrize("noise", [0.1, 1.0])
@pytest.mark.parametrize("name", KERNELS)
def test_equals_scikit_learn(name, noise):
    kernel, oracle = KERNELS[name]
    model = GaussianProcessRegressor(oracle, alpha=noise**2, optimizer=None).fit(S, F[:, 0])  # pyright: ignore[reportArgumentType]
    mean, covariance = model.predict(Q, return_cov=True)
    exact = posterior(kernel, CTX, TGT, noise=noise, full=True)
    assert exact.covariance is not None
    np.testing.assert_allclose(exact.mean, mean, atol=1e-10)
    np.testing.assert_allclose(exact.covariance, covariance, atol=1e-10)
    np.testing.assert_allclose(exact.variance, np.diagonal(covariance), atol=1e-10)
    np.testing.assert_allclose(log_marginal(kernel, CTX, noise=noise), model.log_marginal_likelihood(), rtol=1e-10)


def test_noise_on_targets_adds_to_their_variance_alone():
    kernel = SquaredExponential(0.6)
    clean = posterior(kernel, CTX, TGT, noise=0.1, full=True)
    noisy = posterior(kernel, CTX, TGT, noise=0.1, tgt_noise=0.5, full=True)
    assert clean.covariance is not None and noisy.covariance is not None
    np.testing.assert_allclose(noisy.mean, clean.mean, rtol=1e-12)
    np.testing.assert_allclose(noisy.covariance - clean.covariance, 0.25 * np.eye(7), atol=1e-12)


def test_log_prob_is_that_of_the_marginals():
    exact = posterior(SquaredExponential(0.6), CTX, TGT, noise=0.1)
    f = RNG.normal(size=(7, 1))
    expected = stats.norm.logpdf(f[:, 0], exact.mean, np.sqrt(exact.variance))
    np.testing.assert_allclose(exact.log_prob(f), expected, rtol=1e-12)


def test_noise_may_differ_between_values():
    kernel, noise = SquaredExponential(0.6), RNG.uniform(0.1, 1.0, 9)
    oracle = GaussianProcessRegressor(1.0 * sk.RBF(0.6), alpha=noise**2, optimizer=None).fit(S, F[:, 0])  # pyright: ignore[reportArgumentType]
    padded = Points({"s": np.concatenate([S, S[:1]])}, np.concatenate([F, F[:1]]), mask=np.arange(10) < 9)
    levels = np.append(noise, np.nan)  # where nothing counts
    np.testing.assert_allclose(posterior(kernel, padded, TGT, noise=levels).mean, oracle.predict(Q), atol=1e-10)
    expected = oracle.log_marginal_likelihood()
    np.testing.assert_allclose(log_marginal(kernel, padded, noise=levels), expected, rtol=1e-10)
    two = jax.tree.map(lambda x: np.stack([x, x]), (CTX, TGT))
    kernels = jax.tree.map(lambda x: np.stack([x, x]), kernel)
    both = posterior(kernels, *two, noise=np.stack([noise, noise]))
    np.testing.assert_allclose(both.mean, np.stack([oracle.predict(Q)] * 2), atol=1e-10)


def test_draws_have_the_mean_and_the_covariance():
    exact = posterior(SquaredExponential(0.6), CTX, TGT, noise=0.1, tgt_noise=0.2, full=True)
    draws = exact.sample(key=jax.random.key(0), samples=20_000)
    assert draws.shape == (20_000, 7) and exact.covariance is not None
    np.testing.assert_allclose(draws.mean(0), exact.mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws.T), exact.covariance, atol=0.03)
    both = jax.tree.map(lambda x: np.stack([x, x]), exact)
    assert both.sample(key=jax.random.key(0), samples=3).shape == (3, 2, 7)


def test_padding_and_missing_values_are_left_out():
    f = np.concatenate([F, [[np.nan], [3.0]]])
    s = np.concatenate([S, [[0.1, 0.1], [np.nan, np.inf]]])
    mask = np.arange(11) < 10
    ctx = Points({"s": s}, f, mask=mask)
    kernel = SquaredExponential(0.6)
    a, b = posterior(kernel, ctx, TGT, noise=0.1), posterior(kernel, CTX, TGT, noise=0.1)
    np.testing.assert_array_equal(a.mean, b.mean)
    np.testing.assert_array_equal(a.variance, b.variance)
    assert log_marginal(kernel, ctx, noise=0.1) == log_marginal(kernel, CTX, noise=0.1)


@pytest.mark.parametrize("masked", [True, False])
def test_without_context_it_is_the_prior(masked):
    kernel = SquaredExponential(0.6, 1.7)
    n = 2 if masked else 0
    ctx = Points({"s": np.zeros((n, 2))}, np.zeros((n, 1)), mask=np.zeros(n, bool))
    exact = posterior(kernel, ctx, TGT, noise=0.1, mean=lambda p: p[:, 0], full=True)
    np.testing.assert_array_equal(exact.mean, Q[:, 0])
    assert exact.covariance is not None
    np.testing.assert_allclose(exact.covariance, np.asarray(sk.RBF(0.6)(Q)) * 1.7, atol=1e-14)
    assert log_marginal(kernel, ctx) == 0


def test_without_noise_it_interpolates_duplicates_too():
    twice = Points({"s": np.concatenate([S, S])}, np.concatenate([F, F]))
    exact = posterior(SquaredExponential(0.6), twice, Points({"s": S}))
    np.testing.assert_allclose(exact.mean, F[:, 0], atol=1e-5)
    assert (exact.variance > 0).all() and exact.variance.max() < 1e-6


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_duplicates_are_mended_by_as_much_as_the_variance_asks_for(size):
    twice = Points({"s": np.concatenate([S, S])}, np.concatenate([F, F]))
    exact = posterior(SquaredExponential(0.6, size), twice, Points({"s": S}))
    np.testing.assert_allclose(exact.mean, F[:, 0], atol=1e-5)
    assert (exact.variance > 0).all() and exact.variance.max() < 1e-6 * size


def test_no_targets_give_an_empty_result():
    exact = posterior(SquaredExponential(), CTX, Points({"s": np.zeros((0, 2))}), noise=0.1)
    assert exact.mean.shape == exact.variance.shape == (0,)


def test_a_mean_function_is_taken_off_and_put_back():
    kernel, line = SquaredExponential(0.6), lambda p: 3 + 2 * p[:, 1]
    bent = Points({"s": S}, F + line(S)[:, None])
    a, b = posterior(kernel, bent, TGT, noise=0.1, mean=line), posterior(kernel, CTX, TGT, noise=0.1)
    np.testing.assert_allclose(a.mean, b.mean + line(Q), atol=1e-12)
    np.testing.assert_allclose(a.variance, b.variance, rtol=1e-12)
    assert log_marginal(kernel, bent, noise=0.1, mean=line) == pytest.approx(log_marginal(kernel, CTX, noise=0.1))


def test_a_batch_is_its_tasks_one_by_one():
    scales = np.array([0.3, 0.9])
    stack = jax.tree.map(lambda x: np.stack([x, x]), (CTX, TGT))
    kernels = SquaredExponential(scales, np.ones(2))
    both = posterior(kernels, *stack, noise=np.array([0.1, 0.2]), full=True)
    for i, scale in enumerate(scales):
        one = posterior(SquaredExponential(scale), CTX, TGT, noise=[0.1, 0.2][i], full=True)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), both, one)


def test_components_are_joined_in_the_order_of_their_names():
    kernel = SquaredExponential(np.array([0.3, 0.8]))
    apart = Points({"t": S[:, 1:], "s": S[:, :1]}, F), Points({"t": Q[:, 1:], "s": Q[:, :1]})
    np.testing.assert_array_equal(
        posterior(kernel, *apart, noise=0.1).mean, posterior(kernel, CTX, TGT, noise=0.1).mean
    )


def test_dates_count_in_seconds_whatever_their_unit():
    days = np.array([["2024-01-01T00"], ["2024-01-01T06"]], "M8[h]")
    kernel, f = SquaredExponential(6 * 3600.0), np.array([[0.0], [2.0]])
    expected = posterior(kernel, Points({"t": np.array([[0.0], [21600.0]])}, f), Points({"t": np.zeros((1, 1))})).mean
    for unit in ("h", "s", "ns"):
        found = posterior(kernel, Points({"t": days}, f), Points({"t": days[:1].astype(f"M8[{unit}]")})).mean
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("noise", [np.float32(0.1), np.float64(0.1), jax.numpy.float32(0.1)])
def test_one_number_and_a_plain_function_are_shared_by_a_batch(noise):
    kernel = SquaredExponential(0.6)
    stack = jax.tree.map(lambda x: np.stack([x, x]), (CTX, TGT))
    both = posterior(jax.tree.map(lambda x: np.stack([x, x]), kernel), *stack, noise=noise, mean=lambda p: p[:, 0])
    one = posterior(kernel, CTX, TGT, noise=float(noise), mean=lambda p: p[:, 0])
    np.testing.assert_allclose(both.mean, np.stack([one.mean] * 2), rtol=1e-6)


def test_bad_arguments_are_named():
    kernel = SquaredExponential()
    stack = jax.tree.map(lambda x: np.stack([x, x]), (CTX, TGT))
    for call, says in (
        (
            lambda: posterior(kernel, CTX, Points({"x": Q})),
            r"`tgt` must have the components of `ctx` \['s'\], got \['x'",
        ),
        (lambda: posterior(kernel, *_widths((1, 2), (2, 1))), "Component 'a' of `tgt` must have width 1 as in `ctx`"),
        (lambda: posterior(kernel, *_widths((1,), (1,), "M8[D]")), "Component 'a' of `tgt` must hold dates where"),
        (lambda: posterior(kernel, stack[0], TGT), r"`tgt` must have the batch axes of `ctx` \(2,\), got \(\)"),
        (lambda: posterior(kernel, CTX, TGT, noise=-0.1), "`noise` must be at least 0 and finite, got -0.1"),
        (lambda: posterior(kernel, CTX, TGT, tgt_noise=np.nan), "`tgt_noise` must be at least 0 and finite, got nan"),
        (lambda: posterior(kernel, CTX, TGT, mean=lambda p: p), r"`mean` must give shape \(7,\).*got \(7, 2\)"),
        (
            lambda: posterior(kernel, CTX, TGT, noise=np.ones(8)),
            r"`noise` must be one number for a task, or one for each of its 9 points, got shape \(8,",
        ),
        (lambda: posterior(kernel, CTX, TGT, noise=-np.ones(9)), "`noise` must be at least 0 and finite, got -1"),
        (
            lambda: posterior(kernel, CTX, TGT, tgt_noise=np.ones(7)),
            r"`tgt_noise` must be one number for a task, got shape \(7,",
        ),
        (
            lambda: posterior(kernel, CTX, TGT).sample(key=jax.random.key(0)),
            r"`sample` needs the covariance of the targets, as `posterior\(…, full=True\)` gives",
        ),
        (
            lambda: posterior(kernel, CTX, TGT).log_prob(np.zeros((1, 7))),
            r"`f` must have the shape \(7,\).* got \(1, 7\)",
        ),
        (lambda: log_marginal(kernel, stack[0], noise=0.1), "`points` must be one set"),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    with pytest.raises(ValueError, match="one output, got 2"):
        posterior(kernel, Points({"s": S}, np.ones((9, 2))), TGT)
    with pytest.raises(ValueError, match="width 2"):
        posterior(kernel, CTX, Points({"s": Q[:, :1]}))
    with pytest.raises(ValueError, match="`kernel` must carry the batch axis 2"):
        posterior(kernel, *jax.tree.map(lambda x: np.stack([x, x]), (CTX, TGT)))
    with pytest.raises(ValueError, match="negative eigenvalues"):
        posterior(lambda p, q: -np.ones((p - q).shape[:-1]), CTX, TGT)


def _widths(ctx, tgt, kind="f8"):
    """A context and a target whose components "a" and "b" have these widths."""
    one, other = (
        {name: np.ones((1, width)).astype(dtype) for name, width in zip("ab", widths, strict=False)}
        for widths, dtype in ((ctx, kind), (tgt, "f8"))
    )
    return Points(one, np.ones((1, 1))), Points(other)


def test_a_kernel_and_a_mean_written_with_jax_count_in_float64():
    def kernel(p, q):
        return jnp.exp(-jnp.sum((p - q) ** 2, -1) / (2 * 0.6**2))

    options = {"noise": 1e-3, "full": True}
    got = posterior(kernel, CTX, TGT, mean=lambda p: jnp.sin(p[:, 0]), **options)
    want = posterior(SquaredExponential(0.6), CTX, TGT, mean=lambda p: np.sin(p[:, 0]), **options)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-9), got, want)
    marginal = [log_marginal(k, CTX, noise=1e-3) for k in (kernel, SquaredExponential(0.6))]
    np.testing.assert_allclose(*marginal, rtol=1e-9)
    assert jnp.zeros(1).dtype == jnp.result_type(float)
