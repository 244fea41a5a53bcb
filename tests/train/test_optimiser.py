"""The optimiser against its formulas in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bsatnp.train import learning_rate, optimizer


@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_the_rate_ends_at_the_stated_value(warmup):
    steps, peak, end = 20, 1e-4, 2e-5
    rate = learning_rate(steps, peak=peak, end=end, warmup=warmup)
    rates = np.array([np.asarray(rate(n)) for n in range(steps + 3)])
    done = np.clip((np.arange(steps + 3) - warmup) / (steps - 1 - warmup), 0, 1)
    expected = end + (peak - end) * (1 + np.cos(np.pi * done)) / 2
    expected[:warmup] = peak * (np.arange(warmup) + 1) / (warmup + 1)
    np.testing.assert_allclose(rates, expected, rtol=1e-5)
    assert rates[steps - 1] == rates[-1] == np.float32(end) and rates[warmup] == np.float32(peak)


def test_a_run_of_one_step_has_a_rate():
    assert np.asarray(learning_rate(1, peak=1e-3)(0)) == pytest.approx(1e-3)


def test_what_is_not_said_is_as_in_the_paper():
    """Equal arguments give one object."""
    said: dict[str, Any] = {"peak": 1e-3, "end": 1e-5, "clip": 0.5, "weight_decay": 1e-4, "b1": 0.9, "b2": 0.999}
    assert optimizer(100) is optimizer(100, warmup=5, **said)
    assert optimizer(50_000) is optimizer(50_000, warmup=1000, **said)
    rate = learning_rate(10)
    np.testing.assert_allclose([np.asarray(rate(0)), np.asarray(rate(9))], [1e-3, 1e-5], rtol=1e-6)


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_updates_are_clipped_adamw(scale):
    """Three updates against AdamW written out in NumPy, with gradients below and above the clipping norm."""
    steps, clip, decay, b1, b2 = 3, 0.5, 0.1, 0.9, 0.999
    transform = optimizer(steps, peak=0.1, end=0.01, warmup=0, clip=clip, weight_decay=decay, b1=b1, b2=b2)
    rng = np.random.default_rng(0)
    parameters = {"a": rng.normal(size=3), "b": rng.normal(size=(2, 2))}
    update_once = jax.jit(transform.update)
    device: Any = {name: jnp.asarray(value, jnp.float32) for name, value in parameters.items()}
    state = transform.init(device)
    m, v = ({name: np.zeros_like(value) for name, value in parameters.items()} for _ in range(2))
    for n in range(steps):
        gradient = {name: scale * rng.normal(size=value.shape) for name, value in parameters.items()}
        given = {name: jnp.asarray(value, jnp.float32) for name, value in gradient.items()}
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes types
            update, state = update_once(given, state, device)
        device = optax.apply_updates(device, update)
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        rate = 0.01 + 0.09 * (1 + np.cos(np.pi * n / 2)) / 2
        for name in parameters:
            g = gradient[name] * min(1.0, clip / norm)
            m[name] = b1 * m[name] + (1 - b1) * g
            v[name] = b2 * v[name] + (1 - b2) * g**2
            step = m[name] / (1 - b1 ** (n + 1)) / (np.sqrt(v[name] / (1 - b2 ** (n + 1))) + 1e-8)
            parameters[name] = parameters[name] - rate * (step + decay * parameters[name])
    for name, value in parameters.items():
        np.testing.assert_allclose(device[name], value, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "`steps` must be at least 1, got 0"),
        ({"steps": 5, "warmup": 5}, "`warmup` must be below the 5 steps, got 5"),
        ({"steps": 5, "warmup": -1}, "`warmup` must be at least 0, got -1"),
        ({"steps": 5, "clip": 0.0}, "`clip` must be positive, got 0.0"),
        ({"steps": 5, "clip": float("nan")}, "`clip` must be positive, got nan"),
        ({"steps": 5, "peak": float("nan")}, "`peak` must be at least 0 and finite, got nan"),
        ({"steps": 5, "end": -1.0}, "`end` must be at least 0"),
        ({"steps": 5, "weight_decay": -1.0}, "`weight_decay` must be at least 0"),
        ({"steps": 5, "b2": 1.0}, "`b2` must lie between 0 and 1, got 1.0"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimizer(**arguments)
