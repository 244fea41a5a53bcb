"""Attention whose keys lie on several devices, in value and gradient the attention to all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dense_oracle import ENTRIES, Answer, close, draw, oracle

DEVICES, N_Q, N_K = 3, 5, 12


def split(x, axis):
    """The keys of each device, `(device, …)`."""
    return jnp.stack(jnp.split(x, DEVICES, axis))


def answer(entry, q, k, v, slope, *, mask):
    """What every device says, and the gradient of Σ slope · output of one of them."""

    def call(q, k, v):
        one = jax.vmap(lambda k, v, mask: ENTRIES[entry](q, k, v, mask=mask, axis="device"), axis_name="device")
        return one(split(k, 1), split(v, 1), split(mask, -1))

    out, pull = jax.vjp(jax.jit(call), q, k, v)
    for other in out[1:]:
        np.testing.assert_array_equal(other, out[0])
    return Answer(out[0], *pull(jnp.zeros_like(out).at[1].set(slope)))


@pytest.mark.parametrize("entry", ENTRIES)
def test_keys_of_several_devices_are_one_set_of_keys(entry):
    four = draw(0, N_Q, N_K)
    mask = np.random.default_rng(1).random((N_Q, N_K)) < 0.7
    mask[0, 4:8], mask[1] = False, False  # a device without a key for the first query, no key at all for the second
    for shown in (np.ones((N_Q, N_K), bool), mask, np.broadcast_to(np.arange(N_K) < 8, (N_Q, N_K))):
        close(answer(entry, *four, mask=jnp.asarray(shown)), oracle(*four, mask=shown))


@pytest.mark.parametrize("entry", ENTRIES)
def test_without_any_key_there_is_zero_and_nothing_to_learn(entry):
    actual = answer(entry, *draw(2, N_Q, N_K), mask=jnp.zeros((N_Q, N_K), bool))
    for leaf in jax.tree.leaves(actual):
        np.testing.assert_array_equal(leaf, 0.0)


@pytest.mark.parametrize("entry", ENTRIES)
def test_scores_of_one_device_may_lie_far_above_the_others(entry):
    q, k, v, slope = draw(3, N_Q, N_K)
    k = k.at[:, :4].add(64.0)
    close(answer(entry, q, k, v, slope, mask=jnp.ones((N_Q, N_K), bool)), oracle(q, k, v, slope), times=10)
