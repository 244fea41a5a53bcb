"""exp(−x) and powers of two as attention and the radial biases take them, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp._exponential import LOG2E, decay, power_of_two


@pytest.mark.parametrize("kind", [jnp.float32, jnp.bfloat16])
def test_it_is_the_exponential(kind):
    x = jnp.asarray(np.concatenate([np.linspace(0, 2, 501), np.geomspace(1e-30, 1e30, 501)]), kind)
    expected = np.exp(-np.asarray(x, np.float64))
    allowed = 3e-7 if kind == jnp.float32 else 1e-2
    for function in (decay, jax.jit(decay)):
        assert np.abs(np.asarray(function(x), np.float64) - expected).max() < allowed
    power = -LOG2E * x
    expected = 2.0 ** np.asarray(power, np.float64)
    for function in (power_of_two, jax.jit(power_of_two)):
        assert np.abs(np.asarray(function(power), np.float64) - expected).max() < allowed


def test_infinity_and_every_nan():
    nan = np.array([0x7FC00000, 0x7FC00001, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    for function, sign in ((decay, 1), (power_of_two, -1)):
        got = jax.jit(function)(sign * jnp.asarray([jnp.inf, 1e30, 0.0], jnp.float32))
        np.testing.assert_allclose(got, [0, 0, 1], atol=1e-7)
        assert got[0] == got[1] == 0
        assert jnp.isnan(jax.jit(function)(jnp.asarray(nan))).all()


def test_all_derivatives_are_its_own():
    x = jnp.linspace(0.0, 20.0, 41)
    first, second = jax.vmap(jax.grad(decay)), jax.vmap(jax.hessian(decay))
    np.testing.assert_allclose(first(x), -np.exp(-np.asarray(x)), atol=1e-6)
    np.testing.assert_allclose(second(x), np.exp(-np.asarray(x)), atol=1e-6)
    first, second = jax.vmap(jax.grad(power_of_two)), jax.vmap(jax.hessian(power_of_two))
    expected = np.exp2(-np.asarray(x, np.float64))
    np.testing.assert_allclose(first(-x), np.log(2) * expected, atol=1e-6)
    np.testing.assert_allclose(second(-x), np.log(2) ** 2 * expected, atol=1e-6)
