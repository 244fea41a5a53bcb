"""A module with one of everything that a file can describe."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

GELU = functools.partial(jax.nn.gelu, approximate=True)


@dataclasses.dataclass(frozen=True)
class Setting:
    dim: int
    name: str = "s"


class Everything(eqx.Module):
    weight: jax.Array
    half: jax.Array
    count: jax.Array
    flags: np.ndarray
    key: jax.Array
    inner: Setting
    layers: tuple[Any, ...]
    table: dict[str, Any]
    plain: list[Any] = eqx.field(static=True)
    names: frozenset[str] = eqx.field(static=True)
    activation: Any = eqx.field(static=True)
    missing: None = None

    def __init__(self, width: int = 3):
        odd = np.array([np.nan, -0.0, np.inf, 1e-45, 1 / 3], np.float32)
        self.weight = jnp.asarray(np.resize(odd, (2, width)))
        self.half = jnp.arange(5, dtype=jnp.bfloat16) / jnp.asarray(3, jnp.bfloat16)
        self.count = jnp.asarray(7, jnp.int32)
        self.flags = np.array([[True, False]])
        self.key = jax.random.key(5)
        self.inner = Setting(2)
        linear = eqx.nn.Linear(2, 1, key=jax.random.key(0))
        weights = (jnp.asarray([[0.5, -0.25]], jnp.float32), jnp.asarray([0.125], jnp.float32))
        self.layers = (eqx.tree_at(lambda m: (m.weight, m.bias), linear, weights), jnp.zeros((0, 4), jnp.float32))
        self.table = {"a/b~c": jnp.asarray([1.5], jnp.float32), "é": 2.5}
        self.plain = [None, True, 3, 0.1, float("inf"), -0.0, "text", (1, [2]), {"k": 1}]
        self.names = frozenset({"s", "t"})
        self.activation = GELU


@pytest.fixture
def everything():
    return Everything


@pytest.fixture
def classes():
    return (Everything, Setting)


@pytest.fixture
def same_bits():
    """Say whether two trees have one structure, equal plain values, and arrays equal bit for bit."""

    def bits(leaf):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        host = np.asarray(leaf)
        return type(leaf), host.dtype, host.shape, host.tobytes()

    def same(a, b):
        a_arrays, a_rest = eqx.partition(a, eqx.is_array_like)
        b_arrays, b_rest = eqx.partition(b, eqx.is_array_like)
        if jax.tree.structure(a_arrays) != jax.tree.structure(b_arrays) or not eqx.tree_equal(a_rest, b_rest):
            return False
        pairs = zip(jax.tree.leaves(a_arrays), jax.tree.leaves(b_arrays), strict=True)
        return all(bits(x) == bits(y) for x, y in pairs)

    return same
