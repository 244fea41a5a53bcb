"""`devices.jit` is `eqx.filter_jit`, but for the instructions that a CPU gets."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp import devices
from bsatnp.train import batch_sums
from tests import registry
from tests.devices import eight


def double(x, name="a"):
    """Twice x."""
    return {"value": 2 * x, "name": name}


jitted: Any = devices.jit(double)


def test_what_is_not_an_array_passes_through():
    out = jitted(jnp.arange(3.0), name="b")
    np.testing.assert_array_equal(out["value"], [0, 2, 4])
    assert out["name"] == "b"
    assert jitted.__name__ == "double" and jitted.__doc__ == "Twice x."


def test_it_becomes_part_of_what_is_compiled_or_differentiated_around_it():
    x = jnp.arange(3.0)
    total = lambda x: (jitted(x)["value"] ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(jax.grad(total)(x), 8 * x)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(x), 8 * x)
    np.testing.assert_allclose(eqx.filter_jit(lambda: jitted(np.ones(2))["value"])(), [2, 2])
    np.testing.assert_allclose(jax.vmap(lambda x: jitted(x)["value"])(x), 2 * x)


def test_methods_and_models_can_be_compiled():
    class Scale(eqx.Module):
        factor: jax.Array

        def __call__(self, x):
            return self.factor * x

        @devices.jit
        def twice(self, x):
            return 2 * self(x)

    x = jnp.arange(3.0)
    scale = Scale(jnp.asarray(3.0))
    np.testing.assert_array_equal(scale.twice(x), 6 * x)
    np.testing.assert_array_equal(devices.jit(scale)(x), 3 * x)
    slope = eqx.filter_grad(lambda scale: devices.jit(scale)(np.ones(3)).sum())(scale)
    assert slope.factor == 3


def test_the_memory_of_what_is_donated_is_gone():
    x, y = jnp.ones(4), jnp.ones(4)
    assert devices.jit(lambda x, y: x + y, donate="all-except-first")(x, y)[0] == 2
    assert y.is_deleted() and not x.is_deleted()


def test_this_release_of_the_compiler_knows_the_option():
    assert devices._compiler_options() == {"xla_cpu_prefer_vector_width": 512}
    lowered = jitted.lower(jnp.ones(3))
    assert lowered.compile()(jnp.ones(3))["value"][0] == 2


def test_a_release_that_does_not_know_the_option_goes_without(monkeypatch):
    original = jax.jit

    def refusing(function, *, compiler_options=None, **how):
        if compiler_options:
            raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: No such compile option")
        return original(function, **how)

    monkeypatch.setattr(jax, "jit", refusing)
    devices._compiler_options.cache_clear()
    try:
        assert devices._compiler_options() == {}
        assert devices.jit(lambda x: x + 3)(jnp.ones(2))[0] == 4
    finally:
        devices._compiler_options.cache_clear()


def test_scores_can_be_differentiated():
    model = registry.biased()
    batch = jax.tree.map(jnp.asarray, eight.stream(0, key=None))
    gradient = eqx.filter_grad(lambda model: batch_sums(model, batch).terms["nll"])(model)
    assert sum(float(jnp.abs(leaf).sum()) for leaf in jax.tree.leaves(gradient)) > 0
