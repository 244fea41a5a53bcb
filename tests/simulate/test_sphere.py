"""Distances, rotations and tasks on the sphere, against unit vectors in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.transform import Rotation

from bsatnp.simulate import GreatCircleExponential, SphereTasks, posterior, sample
from bsatnp.simulate.kernels import gram
from bsatnp.simulate.sphere import great_circle, rotate

SMALL = SphereTasks(batch=64, n_ctx=(4, 9), n_tgt=12, ctx_sizes=(8,))


def vectors(points):
    lon, lat = np.radians(np.asarray(points, np.float64)).T
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)


def angles(p, q):
    """Great-circle angles in degrees by chords, in float64."""
    near = np.linalg.norm(p[:, None] - q[None], axis=-1)
    far = np.linalg.norm(p[:, None] + q[None], axis=-1)
    return np.degrees(2 * np.arctan2(near, far))


def anywhere(n, seed=0):
    v = np.random.default_rng(seed).normal(size=(n, 3))
    return np.degrees(np.stack([np.arctan2(v[:, 1], v[:, 0]), np.arctan2(v[:, 2], np.hypot(v[:, 0], v[:, 1]))], -1))


def test_great_circle_equals_the_angle_of_unit_vectors():
    special = [
        [0, 0],
        [180, 0],
        [-180, 0],
        [359.9, 12],
        [-0.1, 12],
        [33, 90],
        [-100, 90],
        [5, -90],
        [50, 30],
        [-130, -30],
    ]
    p = np.concatenate([anywhere(20), np.array(special, np.float64)])
    expected = angles(vectors(p), vectors(p))
    host = great_circle(p[:, None], p[None])
    np.testing.assert_allclose(host, expected, atol=1e-10)
    device = jax.vmap(jax.vmap(great_circle, (None, 0)), (0, None))(jnp.asarray(p), jnp.asarray(p))
    np.testing.assert_allclose(device, expected, atol=1e-10 if device.dtype == jnp.float64 else 1e-4)


def test_great_circle_keeps_small_angles_in_float32():
    p, q = jnp.float32([100.0, 45.0]), jnp.float32([100.001, 45.0])
    exact = angles(vectors(p[None]), vectors(q[None]))[0, 0]
    np.testing.assert_allclose(great_circle(p, q), exact, rtol=1e-4)


@pytest.mark.parametrize("q", [[20.0, 30.0], [-160.0, -30.0]])
def test_gradient_is_finite_at_the_same_point_and_at_the_antipode(q):
    assert np.isfinite(jax.grad(great_circle)(jnp.array([20.0, 30.0]), jnp.array(q))).all()


def test_rotation_moves_the_landmarks_of_the_paper():
    origin = np.zeros((1, 2))
    np.testing.assert_allclose(rotate(origin, north=60.0), [[0, 60]], atol=1e-12)
    np.testing.assert_allclose(rotate(origin, north=60.0, east=30.0), [[30, 60]], atol=1e-12)
    np.testing.assert_allclose(rotate(origin, tilt=20.0), [[0, 0]], atol=1e-12)  # on the axis
    np.testing.assert_allclose(rotate(np.array([[90.0, 0.0]]), tilt=20.0), [[90, 20]], atol=1e-12)


@pytest.mark.parametrize("turn", [(60.0, 30.0, 0.0), (60.0, 30.0, 20.0), (-170.0, 200.0, 95.0)])
def test_rotation_equals_scipy_about_fixed_axes(turn):
    north, east, tilt = turn
    p = anywhere(30, seed=1)
    oracle = Rotation.from_euler("yzx", [-north, east, tilt], degrees=True).apply(vectors(p))
    np.testing.assert_allclose(vectors(rotate(p, north=north, east=east, tilt=tilt)), oracle, atol=1e-12)
    device = rotate(jnp.asarray(p), north=north, east=east, tilt=tilt)
    np.testing.assert_allclose(vectors(device), oracle, atol=1e-12 if device.dtype == jnp.float64 else 1e-6)


@pytest.mark.parametrize("turn", [(0.0, 0.0, 0.0), (60.0, 30.0, 20.0)])
def test_draws_have_the_covariance_of_the_kernel_wherever_the_patch_is(turn):
    p = np.random.default_rng(2).uniform(-10, 10, (8, 2))
    expected = np.exp(-angles(vectors(p), vectors(p)) / 15)
    north, east, tilt = turn
    moved = rotate(p, north=north, east=east, tilt=tilt)
    kernel = GreatCircleExponential(15.0)
    np.testing.assert_allclose(gram(kernel, moved, moved), expected, atol=1e-12)
    keys = jax.random.split(jax.random.key(0), 4000)
    f = np.asarray(jax.vmap(partial(sample, kernel, jnp.asarray(moved)))(key=keys), np.float64)
    error = np.sqrt((1 + expected**2) / len(f))
    assert np.abs((f.T @ f / len(f) - expected) / error).max() < 5


def test_a_rotated_stream_has_the_same_values_elsewhere():
    here, there = SMALL(0, key=jax.random.key(0)), SMALL.rotated(60.0, 30.0, 20.0)(0, key=jax.random.key(0))
    np.testing.assert_array_equal(here.ctx.f, there.ctx.f)
    np.testing.assert_array_equal(here.tgt.f, there.tgt.f)
    s, moved = (np.asarray(t.tgt.index["s"], np.float64)[0] for t in (here, there))
    np.testing.assert_allclose(rotate(s, north=60.0, east=30.0, tilt=20.0), moved, atol=1e-4)
    assert np.abs(s).max() <= 10 and moved[:, 1].min() > 40


@pytest.mark.parametrize("turn", [(0.0, 30.0, 0.0), (0.0, 0.0, 20.0), (15.0, 0.0, 0.0)])
def test_a_stream_turns_about_any_one_axis(turn):
    north, east, tilt = turn
    here, there = (
        np.asarray(stream(0, key=jax.random.key(0)).tgt.index["s"]) for stream in (SMALL, SMALL.rotated(*turn))
    )
    np.testing.assert_allclose(rotate(here, north=north, east=east, tilt=tilt), there, atol=1e-4)
    assert np.abs(here - there).max() > 3


def test_stream_has_the_distributions_of_the_paper():
    tasks, kernels = zip(*(SMALL.draw(i, key=jax.random.key(7)) for i in range(10)), strict=True)
    lengthscale = np.concatenate([np.asarray(k.lengthscale) for k in kernels])
    assert stats.kstest(lengthscale, stats.invgamma(3, scale=30).cdf).pvalue > 1e-3
    s = np.concatenate([np.asarray(t.ctx.index["s"]).ravel() for t in tasks])
    assert stats.kstest(s, stats.uniform(-10, 20).cdf).pvalue > 1e-3


def test_the_exact_posterior_explains_the_targets_after_rotation():
    stream = SphereTasks(batch=64, n_ctx=(4, 9), n_tgt=12, ctx_sizes=(8,), tgt_noise=0.1, rotation=(60.0, 30.0, 20.0))
    task, kernels = stream.draw(0, key=jax.random.key(5))
    exact = posterior(kernels, task.ctx, task.tgt, noise=0.1, tgt_noise=0.1, full=True)
    residual = np.asarray(task.tgt.f[..., 0], np.float64) - exact.mean
    assert exact.covariance is not None
    square = np.einsum("bi,bi->b", residual, np.linalg.solve(exact.covariance, residual[..., None])[..., 0])
    assert stats.kstest(square, stats.chi2(12).cdf).pvalue > 1e-3


def test_targets_can_be_a_grid():
    task, _ = SMALL.draw(0, key=jax.random.key(0), targets=SMALL.grid(4))
    np.testing.assert_allclose(
        task.tgt.index["s"][3, :5], [[-7.5, -7.5], [-7.5, -2.5], [-7.5, 2.5], [-7.5, 7.5], [-2.5, -7.5]]
    )


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="`half_width`"):
        SphereTasks(half_width=120.0)
    with pytest.raises(ValueError, match="`n_ctx`"):
        SphereTasks(n_ctx=(-1, 5))
    with pytest.raises(ValueError, match="`rotation` must be finite, got nan"):
        SphereTasks(rotation=(np.nan, 0.0, 0.0))
    with pytest.raises(ValueError, match="`lengthscale` must be positive, got -30.0"):
        SphereTasks(lengthscale=(3.0, -30.0))
    with pytest.raises(
        ValueError, match=r"`targets` must be \(longitude, latitude\) in degrees, got a latitude of 120"
    ):
        SMALL.draw(0, key=jax.random.key(0), targets=np.array([[0.0, 120.0]]))


def test_whole_degrees_turn_like_any_others():
    whole = np.array([[0, 0], [10, 0], [-20, 35]])
    np.testing.assert_allclose(rotate(whole, north=60.0, tilt=20.0), rotate(whole * 1.0, north=60.0, tilt=20.0))
