"""Kernels against scikit-learn, on both array modules, and their gradients where points coincide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from bsatnp.simulate import GreatCircleExponential, Matern, SquaredExponential
from bsatnp.simulate.kernels import gram

CASES = {
    "squared exponential": (SquaredExponential(0.7, 1.3), 1.3 * sk.RBF(0.7)),
    "scale per axis": (SquaredExponential(np.array([0.4, 1.1])), sk.RBF(np.array([0.4, 1.1]))),  # pyright: ignore[reportArgumentType]
    "exponential": (Matern(0.7, 1.3, nu=0.5), 1.3 * sk.Matern(0.7, nu=0.5)),
    "Matern 3/2": (Matern(0.7, nu=1.5), sk.Matern(0.7, nu=1.5)),
    "Matern 5/2": (Matern(np.array([0.4, 1.1]), 2.0), 2.0 * sk.Matern(np.array([0.4, 1.1]), nu=2.5)),  # pyright: ignore[reportArgumentType]
}
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-13}


@pytest.mark.parametrize("name", CASES)
def test_gram_equals_scikit_learn(name):
    kernel, oracle = CASES[name]
    rng = np.random.default_rng(1)
    p, q = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))
    expected = oracle(p, q)
    np.testing.assert_allclose(gram(kernel, p, q), expected, atol=TOLERANCE[np.float64])
    device = gram(kernel, jnp.asarray(p), jnp.asarray(q))
    np.testing.assert_allclose(device, expected, atol=TOLERANCE[device.dtype.type])


@pytest.mark.parametrize("kernel", [SquaredExponential(), Matern(nu=0.5), Matern(), GreatCircleExponential()])
def test_gradient_is_finite_where_points_coincide(kernel):
    p = jnp.asarray([0.3, 0.4])
    gradients = jax.grad(lambda k, a, b: k(a, b), argnums=(1, 2))(kernel, p, p)
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("kernel", [SquaredExponential(1.9), Matern(1.9), GreatCircleExponential(10.5, 1.5)])
@pytest.mark.parametrize("module", [np, jnp])
def test_whole_numbers_are_places_like_any_others(kernel, module):
    """Lengths are not cut to whole numbers with them, and differences do not wrap around."""
    whole = module.asarray([[3, 1], [1, 2], [0, 5]], "uint8")
    expected = gram(kernel, *[whole.astype("float32")] * 2)
    np.testing.assert_allclose(gram(kernel, whole, whole), expected, rtol=1e-5)


def test_distance_keeps_small_differences_of_large_coordinates():
    p = np.array([[1000.0, 5.0]], np.float32)
    q = np.array([[1000.001, 5.0]], np.float32)
    exact = np.exp(-float(q[0, 0] - p[0, 0]) / 1e-3)
    got = gram(Matern(1e-3, nu=0.5), jnp.asarray(p), jnp.asarray(q))[0, 0]
    np.testing.assert_allclose(got, exact, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: SquaredExponential(0.0), "`lengthscale`"),
        (lambda: SquaredExponential(1.0, -1.0), "`variance`"),
        (lambda: Matern(np.array([1.0, np.nan])), "`lengthscale`"),
        (lambda: Matern(nu=2.0), "`nu`"),
        (lambda: GreatCircleExponential(-3.0), "`lengthscale`"),
        (lambda: SquaredExponential([1.0, -1.0]), "`lengthscale`"),
        (lambda: Matern(np.float32(-1.0)), "`lengthscale`"),
    ],
)
def test_bad_parameters_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()
