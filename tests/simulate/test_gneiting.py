"""The Gneiting kernel and mean against NumPy formulas, and the forecast tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bsatnp.simulate import Gneiting, GneitingTasks, posterior
from bsatnp.simulate.gneiting import GneitingMean, terrain
from bsatnp.simulate.kernels import gram

PARAMETERS = {
    "variance": 1.3,
    "lengthscale": np.array([0.4, 0.7]),
    "a": 2.0,
    "alpha": 0.6,
    "b": 0.5,
    "nu": 1.5,
    "gamma": 0.8,
}
STREAM = GneitingTasks(batch=40)


def formula(p, q, *, variance, lengthscale, a, alpha, b, nu, gamma):
    """The paper's equation, pair by pair."""
    out = np.empty((len(p), len(q)))
    for i, (x, y, t) in enumerate(p):
        for j, (x2, y2, t2) in enumerate(q):
            g = 1 + a * abs(t - t2) ** (2 * alpha)
            h = ((x - x2) / lengthscale[0]) ** 2 + ((y - y2) / lengthscale[1]) ** 2
            out[i, j] = variance / g**nu * np.exp(-((h / g**b) ** gamma))
    return out


@pytest.fixture(scope="module")
def drawn():
    return STREAM.draw(0, key=jax.random.key(0))


@pytest.mark.parametrize("change", [{}, {"b": 0.0}, {"alpha": 1.0, "gamma": 1.0}, {"a": 0.25, "nu": 4.0}])
def test_kernel_equals_the_formula_and_is_a_covariance(change):
    parameters = {**PARAMETERS, **change}
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(-1, 1, (25, 2)), rng.choice(np.linspace(0, 1, 12), (25, 1))], -1)
    kernel, expected = Gneiting(**parameters), formula(p, p, **parameters)
    np.testing.assert_allclose(gram(kernel, p, p), expected, atol=1e-12)
    device = gram(kernel, jnp.asarray(p), jnp.asarray(p))
    np.testing.assert_allclose(device, expected, atol=1e-12 if device.dtype == jnp.float64 else 1e-5)
    assert np.linalg.eigvalsh(expected).min() > -1e-10
    if not change:  # space and time interact: the kernel is no product of its margins
        space, time = p * [1, 1, 0], p * [0, 0, 1]
        product = formula(space, space, **parameters) * formula(time, time, **parameters) / 1.3
        assert np.abs(product - expected).max() > 0.03


def test_gradient_is_finite_where_points_coincide():
    p = jnp.array([0.1, 0.2, 0.3])
    assert np.isfinite(jax.grad(Gneiting(**PARAMETERS), argnums=0)(p, p)).all()


def test_mean_is_a_weighted_sum_of_shared_functions():
    rng = np.random.default_rng(1)
    p = np.concatenate([rng.uniform(-1, 1, (20, 2)), rng.uniform(0, 1, (20, 1))], -1)
    x, y, t = p.T
    height = np.asarray(terrain(p[:, :2]))
    assert abs(np.asarray(terrain(rng.uniform(-1, 1, (20_000, 2)))).mean()) < 0.05  # of unit variance over the domain
    assert abs(np.asarray(terrain(rng.uniform(-1, 1, (20_000, 2)))).std() - 1) < 0.05
    ripple = 0.35 * np.sin(np.pi * x + 0.35 * np.pi) * np.cos(0.8 * np.pi * y - 0.175 * np.pi)
    bumps = 1.3 * np.exp(-(((x + 0.72) / 0.3) ** 2) / 2 - ((y + 0.18) / 0.42) ** 2 / 2)
    bumps -= 1.05 * np.exp(-(((x + 0.08) / 0.26) ** 2) / 2 - ((y - 0.58) / 0.24) ** 2 / 2)
    bumps += 0.85 * np.exp(-(((x - 0.56) / 0.38) ** 2) / 2 - ((y + 0.48) / 0.5) ** 2 / 2)
    slope = np.polyfit(bumps + ripple, height, 1)
    np.testing.assert_allclose(np.polyval(slope, bumps + ripple), height, atol=1e-12)
    clock, half = np.sin(2 * np.pi * t), t - 0.5
    across, along = (x + 0.55 - 1.05 * half) / 0.24, (y + 0.25 - 0.55 * half) / 0.18
    parts = {
        "bias": np.ones(20),
        "terrain": height,
        "sine": clock,
        "cosine": np.cos(2 * np.pi * t),
        "harmonic": np.sin(4 * np.pi * t - 0.45 * np.pi),
        "interaction": height * clock,
        "trend": half,
        "hotspot": np.exp(-(across**2) / 2 - along**2 / 2),
    }
    weights = dict(zip(parts, rng.normal(size=8), strict=True))
    expected = 6 + 0.9 * sum(weights[name] * part for name, part in parts.items())
    mean = GneitingMean(**weights)
    np.testing.assert_allclose(mean(p), expected, rtol=1e-12)
    np.testing.assert_allclose(mean(jnp.asarray(p)), expected, rtol=1e-5)


def test_parameters_lie_in_the_ranges_of_the_paper(drawn):
    process = drawn[1]
    uniform, log = (
        {"alpha": (0.35, 1), "b": (0, 0.75), "nu": (1.1, 4), "gamma": (0.55, 1)},
        {"variance": (0.85 * 0.81, 1.75 * 0.81)},
    )
    log |= {"a": (0.25, 2.5), "lengthscale": (0.05, 0.15)}
    for name, (low, high) in uniform.items():
        values = np.asarray(getattr(process.kernel, name))
        assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 1e-3, name
    for name, (low, high) in log.items():
        values = np.asarray(getattr(process.kernel, name)).ravel()
        assert stats.kstest(values, stats.loguniform(low, high).cdf).pvalue > 1e-3, name
    assert stats.kstest(np.asarray(process.noise), stats.loguniform(0.009, 0.054).cdf).pvalue > 1e-3
    halves = [0.15, 0.75, 0.55, 0.55, 0.25, 0.35, 0.1, 0.55]
    for weight, half in zip(jax.tree.leaves(process.mean), halves, strict=True):
        assert np.abs(weight).max() <= half and np.abs(weight).max() > 0.7 * half


def test_tasks_are_forecasts_of_the_fifth_of_five_consecutive_times(drawn):
    task = drawn[0]
    places, t_tgt = np.asarray(task.tgt.index["s"]), np.asarray(task.tgt.index["t"])
    assert places.shape == (40, 256, 2) and np.abs(places).max() <= 1
    mask = np.asarray(task.ctx.mask)
    np.testing.assert_array_equal(mask, np.arange(60) < mask.sum(-1, keepdims=True))
    counts, last = [], set()
    for i in range(40):
        end = round(float(t_tgt[i, 0, 0]) * 11)
        last.add(end)
        np.testing.assert_allclose(t_tgt[i], end / 11, atol=1e-6)
        s, t = (np.asarray(task.ctx.index[name])[i][mask[i]] for name in "st")
        frames = np.round(t[:, 0] * 11).astype(int)
        np.testing.assert_allclose(t[:, 0], frames / 11, atol=1e-6)
        assert set(frames) == {end - 4, end - 3, end - 2, end - 1}
        for frame in set(frames):
            rows = {tuple(row) for row in s[frames == frame]}
            assert len(rows) == (frames == frame).sum()  # distinct, and among the targets' locations
            assert rows <= {tuple(row) for row in places[i]}
            counts.append(len(rows))
    assert last == {4, 5, 6, 7, 8, 9, 10, 11}
    assert set(counts) == set(range(8, 16))


def test_the_exact_posterior_explains_the_targets(drawn):
    task, process = drawn
    exact = posterior(
        process.kernel, task.ctx, task.tgt, noise=process.noise, tgt_noise=process.noise, mean=process.mean, full=True
    )
    residual = np.asarray(task.tgt.f[..., 0], np.float64) - exact.mean
    assert exact.covariance is not None
    square = np.einsum("bi,bi->b", residual, np.linalg.solve(exact.covariance, residual[..., None])[..., 0])
    assert stats.kstest(square, stats.chi2(256).cdf).pvalue > 1e-3
    # without the mean the same residuals are far too large: the process is only partly stationary
    flat = posterior(process.kernel, task.ctx, task.tgt, noise=process.noise, tgt_noise=process.noise)
    assert -exact.log_prob(task.tgt.f).mean() < -flat.log_prob(task.tgt.f).mean() - 1


def test_noise_free_targets_keep_the_rest_of_the_task(drawn):
    clean = GneitingTasks(batch=40, noisy_tgt=False)(0, key=jax.random.key(0))
    np.testing.assert_array_equal(clean.ctx.f, drawn[0].ctx.f)
    noise = np.asarray(drawn[0].tgt.f - clean.tgt.f)[..., 0]
    np.testing.assert_allclose(noise.std(-1), drawn[1].noise, rtol=0.25)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch": 0}, "`batch`"),
        ({"n_ctx": (8, 8)}, "`n_ctx`"),
        ({"n_ctx": (8, 300)}, "`n_ctx`"),
        ({"window": 13}, "`window`"),
        ({"n_ctx": (-1, 12)}, "`n_ctx` must be at least 0, got -1"),
        ({"locations": 0}, "`locations` must be at least 1, got 0"),
        ({"noise": (0.2, 0.1)}, "`noise` must be"),
        ({"noise": (0.0, 0.1)}, "`noise`"),
    ],
)
def test_bad_options_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        GneitingTasks(**options)


def test_covariance_by_frames_is_that_of_all_pairs():
    rng = np.random.default_rng(3)
    s, frame = rng.uniform(-1, 1, (20, 2)), rng.integers(0, 5, 20)
    kernel = Gneiting(**PARAMETERS)
    points = np.concatenate([s, frame[:, None] / 11], -1)
    got = kernel.gram(jnp.asarray(s), jnp.asarray(frame), frames=5, interval=1 / 11)
    np.testing.assert_allclose(got, gram(kernel, points, points), atol=2e-6)


def test_bad_parameters_are_named():
    for name, value in {"gamma": -1.0, "alpha": 1.5, "b": -0.1, "nu": 0.2}.items():
        with pytest.raises(ValueError, match=f"`{name}`"):
            Gneiting(**{**PARAMETERS, "b": 0.5, name: value})
    with pytest.raises(ValueError, match="`gamma` must be at least 0 and at most 1, got 1.9"):
        Gneiting(**{**PARAMETERS, "gamma": 1.9})  # has negative eigenvalues


def test_the_mean_takes_whole_numbers_as_any_others(drawn):
    mean = jax.tree.map(lambda x: np.asarray(x)[0], drawn[1].mean)
    points = np.array([[0, 1, 1], [-1, 0, 0]])
    np.testing.assert_allclose(mean(points), mean(points.astype(float)), rtol=1e-12)
