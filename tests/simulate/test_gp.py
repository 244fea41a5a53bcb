"""Draws of Gaussian processes: that they never fail and have the right covariance, and the stream of tasks."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bsatnp.simulate import AbstractKernel, GPTasks, Matern, SphereTasks, SquaredExponential, posterior, sample
from bsatnp.simulate.draws import cholesky
from bsatnp.simulate.gp import _draw
from bsatnp.simulate.kernels import gram

SMALL = GPTasks(batch=64, n_ctx=(4, 9), n_tgt=12, ctx_sizes=(8,), domain=(-1.0, 1.0))
MANY = 4000


def draws(kernel, points, *, seed=0, n=MANY):
    many = jax.jit(lambda kernel, points, keys: jax.vmap(partial(sample, kernel, points))(key=keys))
    return np.asarray(many(kernel, points, jax.random.split(jax.random.key(seed), n)), np.float64)


def assert_covariance(f, expected):
    """Empirical second moments within 5 standard errors of the expected ones, everywhere."""
    got = f.T @ f / len(f)
    variance = np.diagonal(expected)
    error = np.sqrt((np.outer(variance, variance) + expected**2) / len(f))
    assert np.abs((got - expected) / error).max() < 5


@pytest.mark.parametrize("kernel", [SquaredExponential(0.4, 2.0), Matern(0.7, nu=0.5)])
@pytest.mark.parametrize("shift", [0.0, 10.0])
def test_c11_draws_have_the_covariance_of_the_kernel_wherever_they_are(kernel, shift):
    s = np.random.default_rng(2).uniform(-1, 1, (8, 2))
    assert_covariance(draws(kernel, jnp.asarray(s + shift)), gram(kernel, s, s))


@pytest.mark.parametrize("lengthscale", [2.0, 50.0, 1e4])
def test_c11_long_lengthscales_and_duplicates_draw_in_float32(lengthscale):
    rng = np.random.default_rng(3)
    half = rng.uniform(-2, 2, (256, 2)).astype(np.float32)
    s = np.concatenate([half, half])  # every point twice
    kernel = SquaredExponential(lengthscale)
    expected = gram(kernel, s.astype(np.float64), s.astype(np.float64))
    factor = np.asarray(cholesky(gram(kernel, jnp.asarray(s), jnp.asarray(s))), np.float64)
    assert factor.dtype == np.float64 and np.isfinite(factor).all()
    np.testing.assert_allclose(factor @ factor.T, expected, atol=2e-4)
    f = draws(kernel, jnp.asarray(s), n=500)
    assert np.isfinite(f).all()
    # What is added to the diagonal is at most 2e-4, so two draws at one place differ by at most 0.02, one deviation.
    assert np.abs(f[:, :256] - f[:, 256:]).max() < 6 * 0.02
    rows = np.arange(0, 512, 73)
    assert_covariance(f[:, rows], expected[np.ix_(rows, rows)])


def test_every_kernel_of_a_batch_is_repaired_on_its_own():
    s = jnp.linspace(-1, 1, 64)[:, None]
    matrices = jnp.stack([gram(SquaredExponential(scale), s, s) for scale in (0.001, 100.0)])
    easy, hard = np.asarray(jax.vmap(cholesky)(matrices))
    np.testing.assert_allclose(easy, np.eye(64), atol=1e-5)
    np.testing.assert_allclose(hard @ hard.T, np.asarray(matrices[1]), atol=2e-4)


def test_a_matrix_that_is_no_covariance_ends_in_nan_and_does_not_hang():
    assert np.isnan(np.asarray(cholesky(jnp.array([[1.0, 5.0], [5.0, 1.0]])))).any()
    assert np.isnan(np.asarray(cholesky(jnp.full((2, 2), jnp.nan)))).any()


def test_c11_whole_numbers_and_duplicates_are_points():
    """A grid made by `arange`, and 512 points at one place."""
    whole, same = np.arange(4)[:, None], np.zeros((512, 1), np.float32)
    kernel, key = SquaredExponential(1e6), jax.random.key(0)
    np.testing.assert_allclose(sample(kernel, whole, key=key), sample(kernel, whole * 1.0, key=key), rtol=1e-6)
    f = np.asarray(sample(kernel, same, key=key))
    assert np.isfinite(f).all() and np.ptp(f) < 0.1


def test_points_that_cannot_be_drawn_at():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"`points` must have shape \(point, dim\), got \(3,\)"):
        sample(SquaredExponential(), np.arange(3.0), key=key)
    with pytest.raises(ValueError, match=r"`targets` must have shape \(tgt, 2\), got \(5, 1\)"):
        GPTasks().draw(0, key=key, targets=np.zeros((5, 1)))
    far = 5e6 + np.linspace(0, 1, 40)[:, None]
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(ValueError, match="loses differences"):
            sample(Matern(0.2, nu=0.5), far, key=key)
    half = jnp.asarray([[0.0], [0.5], [1.0]], jnp.float16)
    expected = sample(SquaredExponential(), half.astype(jnp.float32), key=key)
    np.testing.assert_array_equal(sample(SquaredExponential(), half, key=key), expected)


def test_no_points_give_no_values():
    assert sample(SquaredExponential(), jnp.zeros((0, 2)), key=jax.random.key(0)).shape == (0,)


def test_stream_is_a_function_of_step_and_key():
    a, b = SMALL(3, key=jax.random.key(0)), SMALL(3, key=jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    other = SMALL(4, key=jax.random.key(0))
    assert not np.array_equal(a.tgt.f, other.tgt.f)
    assert not np.array_equal(a.tgt.f, SMALL(3, key=jax.random.key(1)).tgt.f)


def test_stream_has_the_distributions_of_the_paper():
    tasks, kernels = zip(*(SMALL.draw(i, key=jax.random.key(7)) for i in range(20)), strict=True)
    lengthscale = np.concatenate([np.asarray(k.lengthscale) for k in kernels])
    assert stats.kstest(lengthscale, stats.beta(3, 7).cdf).pvalue > 1e-3
    s = np.concatenate([np.asarray(t.tgt.index["s"]).ravel() for t in tasks])
    assert stats.kstest(s, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    counts = np.concatenate([np.asarray(t.ctx.mask).sum(-1) for t in tasks])
    assert stats.chisquare(np.bincount(counts, minlength=9)[4:]).pvalue > 1e-3
    assert all(np.array_equal(k.variance, np.ones(64)) for k in kernels)


def test_noise_owes_nothing_to_the_values():
    """Points too far apart to be alike: values and noise of unit variance make 2 where they are independent."""
    task = dataclasses.replace(SMALL, noise=1.0, tgt_noise=1.0, domain=(-1e4, 1e4))(0, key=jax.random.key(0))
    for points in (task.ctx, task.tgt):
        f = np.asarray(points.f)[np.asarray(points.mask)]
        assert abs(f.var() - 2) < 5 * 2 * np.sqrt(2 / len(f))


def test_padding_comes_last_and_carries_nothing():
    ctx = SMALL(0, key=jax.random.key(0)).ctx
    mask, f = np.asarray(ctx.mask), np.asarray(ctx.f)
    np.testing.assert_array_equal(mask, np.arange(8) < mask.sum(-1, keepdims=True))
    assert (f[~mask] == 0).all() and (f[mask] != 0).all()
    np.testing.assert_array_equal(ctx.observed[..., 0], mask)


def test_values_at_fixed_targets_have_the_average_covariance_of_their_kernels():
    stream = GPTasks(batch=MANY, n_ctx=(1, 2), ctx_sizes=(1,), domain=(-1.0, 1.0), shift=5.0)
    s = stream.grid(3)
    task, kernels = stream.draw(0, key=jax.random.key(1), targets=s)
    np.testing.assert_allclose(task.tgt.index["s"], np.broadcast_to(s, (MANY, 9, 2)), atol=1e-6)
    squares = ((s[:, None] - s[None]) ** 2).sum(-1)
    expected = np.exp(-squares / (2 * np.asarray(kernels.lengthscale, np.float64)[:, None, None] ** 2)).mean(0)
    f = np.asarray(task.tgt.f[..., 0], np.float64)
    error = 5 * np.sqrt(3 / MANY)  # the products of a scale mixture have at most the variance 3 of a square
    np.testing.assert_allclose(f.T @ f / MANY, expected, atol=error)


@pytest.mark.parametrize("noise", [(0.1, 0.3), (0.5, 0.1)])
def test_the_exact_posterior_explains_the_targets(noise):
    """The whitened residuals of all targets are standard normal: kernel, noise and context fit the draws."""
    stream = dataclasses.replace(SMALL, domain=(-0.5, 0.5), noise=noise[0], tgt_noise=noise[1])
    task, kernels = stream.draw(0, key=jax.random.key(5))
    exact = posterior(kernels, task.ctx, task.tgt, noise=noise[0], tgt_noise=noise[1], full=True)
    residual = np.asarray(task.tgt.f[..., 0], np.float64) - exact.mean
    assert exact.covariance is not None
    square = np.einsum("bi,bi->b", residual, np.linalg.solve(exact.covariance, residual[..., None])[..., 0])
    assert stats.kstest(square, stats.chi2(12).cdf).pvalue > 1e-3
    wrong = posterior(kernels, task.ctx, task.tgt, noise=noise[0] / 4, tgt_noise=noise[1] / 4, full=True)
    assert wrong.covariance is not None
    square = np.einsum("bi,bi->b", residual, np.linalg.solve(wrong.covariance, residual[..., None])[..., 0])
    assert stats.kstest(square, stats.chi2(12).cdf).pvalue < 1e-3  # the test can fail


def test_a_shifted_stream_has_the_same_values_elsewhere():
    here, there = SMALL(0, key=jax.random.key(0)), SMALL.shifted(10.0)(0, key=jax.random.key(0))
    np.testing.assert_array_equal(here.ctx.f, there.ctx.f)
    np.testing.assert_array_equal(here.tgt.f, there.tgt.f)
    np.testing.assert_allclose(here.tgt.index["s"] + 10, there.tgt.index["s"], atol=2e-6)


def test_a_scaled_stream_keeps_the_density_of_points():
    wide = SMALL.scaled(2.0)
    assert (wide.domain, wide.n_ctx, wide.n_tgt, wide.ctx_sizes) == ((-2.0, 2.0), (16, 33), 48, (32,))
    s = np.abs(wide.grid(2))
    np.testing.assert_array_equal(s, np.ones((4, 2)))


def test_half_of_all_points_of_a_multiscale_task_are_in_the_middle():
    stream = GPTasks.multiscale(batch=64, n_ctx=(4, 9), n_tgt=12, ctx_sizes=(8,))
    batches = [stream(i, key=jax.random.key(0)) for i in range(10)]
    task = jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)
    for points in (task.ctx, task.tgt):
        s, mask = np.abs(np.asarray(points.index["s"])).max(-1), np.asarray(points.mask)
        assert s.max() <= 1.5
        inside = ((s < 0.5) & mask).sum(-1)
        assert (inside >= mask.sum(-1) // 2).all()  # at least the half that was put there
        count = mask.sum(-1)
        expected = (count + 1) // 2 + count // 2 / 9  # and a ninth of the other half
        assert abs(inside.sum() / expected.sum() - 1) < 0.03


def test_d5_buckets_bound_the_number_of_compilations():
    sizes = (6, 11, 16)
    stream = GPTasks(dim=1, batch=2, n_ctx=(2, 17), n_tgt=3, ctx_sizes=sizes, same_n_ctx=True)
    before = _draw._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    seen = set()
    for step in range(20):
        ctx = stream(step, key=jax.random.key(0)).ctx
        counts = np.asarray(ctx.mask).sum(-1)
        assert counts[0] == counts[1]
        assert len(ctx) == min(size for size in sizes if size >= counts[0])
        assert ctx.index["s"].shape == (2, len(ctx), 1)
        seen.add(len(ctx))
    assert seen == set(sizes)
    assert _draw._cache_size() - before == 3  # pyright: ignore[reportAttributeAccessIssue]


def test_streams_that_differ_in_domain_shift_or_noise_share_a_compilation():
    before = _draw._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    changes: list[dict[str, Any]] = [{"noise": 0.2}, {"shift": 10.0}, {"domain": (0.0, 9.0)}, {"inner": (0.0, 1.0)}]
    for change in changes:
        dataclasses.replace(SMALL, **change)(0, key=jax.random.key(0))
    assert _draw._cache_size() - before <= 1  # pyright: ignore[reportAttributeAccessIssue]


def test_grid_is_made_of_the_middles_of_cells():
    s = GPTasks().grid(64)
    assert s.shape == (4096, 2)
    np.testing.assert_allclose(
        s[[0, 1, 64, -1]], [[-1.96875] * 2, [-1.96875, -1.90625], [-1.90625, -1.96875], [1.96875] * 2]
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch": 0}, "`batch`"),
        ({"n_ctx": (5, 5)}, "`n_ctx`"),
        ({"n_tgt": 0}, "`n_tgt`"),
        ({"ctx_sizes": (256,)}, "`ctx_sizes`"),
        ({"dim": 0}, "`dim`"),
        ({"domain": (1.0, -1.0)}, "`domain`"),
        ({"inner": (0.0, 0.0)}, "`inner`"),
        ({"inner": (0.0, 3.0)}, "`inner` must lie within `domain`"),
        ({"shift": 1e9}, "`domain` .* must not lie as far off as 1e\\+09"),
        ({"domain": (0.0, np.inf)}, "`domain`"),
        ({"noise": -0.1}, "`noise` must be at least 0"),
        ({"tgt_noise": np.nan}, "`tgt_noise` must be at least 0"),
        ({"lengthscale": (-1.0, 7.0)}, "`lengthscale` must be positive"),
    ],
)
def test_bad_options_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        GPTasks(**options)


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (np.nan, "`factor` must be positive, got nan"),
        (np.inf, "`factor` must be positive, got inf"),
        (-2, "`factor` must be positive, got -2"),
        (0, "`factor` must be positive, got 0"),
    ],
)
def test_factors_that_scale_nothing_are_named(factor, says):
    with pytest.raises(ValueError, match=says):
        SMALL.scaled(factor)


@pytest.mark.parametrize("stream", [SMALL, SphereTasks()], ids=lambda stream: type(stream).__name__)
@pytest.mark.parametrize("n", [0, -3])
def test_grids_of_no_cells_are_named(stream, n):
    with pytest.raises(ValueError, match="`n` must be at least 1, got"):
        stream.grid(n)


class Dip(AbstractKernel):
    """No covariance: its diagonal is negative."""

    lengthscale: Any

    def __call__(self, p: Any, q: Any) -> Any:
        return -jnp.exp(-(((p - q) / self.lengthscale) ** 2).sum(-1))


def test_kernels_that_give_no_tasks_are_named():
    with pytest.raises(ValueError, match="`kernel` must give a positive semi-definite covariance"):
        dataclasses.replace(SMALL, kernel=Dip)(0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="`kernel` must give an `AbstractKernel`.* got function"):
        dataclasses.replace(SMALL, kernel=lambda scale: lambda p, q: scale)(0, key=jax.random.key(0))


def test_a_scaled_stream_of_two_resolutions_scales_both():
    wide = GPTasks.multiscale(domain=(-1.0, 2.0), inner=(0.0, 0.5)).scaled(2)
    assert (wide.domain, wide.inner) == ((-2.5, 3.5), (-0.5, 0.5))


def test_points_of_a_draw_are_finite_numbers_of_any_kind():
    kernel, key = SquaredExponential(0.4), jax.random.key(0)
    whole = sample(kernel, np.array([[0, 1], [2, 3]]), key=key)
    np.testing.assert_array_equal(sample(kernel, np.array([[0.0, 1.0], [2.0, 3.0]]), key=key), whole)
    for points in ([[0.0, np.nan]], np.ma.masked_less([[0.0, 1.0]], 0.5)):
        with pytest.raises(ValueError, match="`points` must be finite everywhere"):
            sample(kernel, np.ma.asarray(points), key=key)
