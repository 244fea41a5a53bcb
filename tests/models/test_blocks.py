"""Stacks of blocks against a loop over them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.layers import over_blocks


def _keep(tokens, block):
    return jnp.sin(tokens) + block


def _step(tokens, block):
    return tokens * block, _keep(tokens, block)


@pytest.mark.parametrize("depth", [1, 3])
def test_the_last_block_may_only_keep(depth):
    tokens, blocks = jnp.array([1.0, 2.0]), jnp.arange(2.0, 2.0 + depth)
    end, kept = over_blocks(_step, tokens, blocks, last=_keep)
    entered = [np.array([1.0, 2.0])]  # what enters each block
    for block in np.arange(2.0, 1.0 + depth):
        entered.append(entered[-1] * block)
    wanted = [np.sin(each) + block for each, block in zip(entered, np.arange(2.0, 2.0 + depth), strict=True)]
    np.testing.assert_allclose(end, entered[-1])
    np.testing.assert_allclose(kept, np.stack(wanted), rtol=1e-6)


def test_what_the_last_block_keeps_has_the_gradient_of_all_blocks():
    def total(blocks, **last):
        return over_blocks(_step, jnp.array([1.0, 2.0]), blocks, **last)[1].sum()

    blocks = jnp.array([0.5, 1.5, 2.5])
    np.testing.assert_allclose(jax.grad(total)(blocks), jax.grad(lambda b: total(b, last=_keep))(blocks), rtol=1e-6)
