"""Biases of all invariants, direction and sign included."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bsatnp._types import Key, whole, wide
from bsatnp.bias.interface import AbstractGroupBias, basis_start


class TISA(AbstractGroupBias):
    """Σ α exp(−β ‖invariants − c‖²): bumps at learned places, so that the sign of a lag can matter.

    **Units.** `lengths` and `reach` are in the units of the invariants.

    **Invariant under.** The group.

    Args:
        group: brings the invariants.
        dim: number of invariants of a pair.
        heads: number of heads.
        basis: number of bumps per head.
        lengths: shortest and longest initial width, log-spaced between.
        reach: standard deviation of the initial places.
        key: draws the places.

    Raises:
        ValueError: counts below 1 or lengths that are not positive and ordered.

    **Reference.** Translation-invariant self-attention, Wennberg and Henter (2021).
    """

    group: Any
    weight: Float[Array, "head basis"]
    log_rate: Float[Array, "head basis"]
    centre: Float[Array, "head basis dim"]

    def __init__(
        self,
        group: Any,
        *,
        dim: int,
        heads: int = 4,
        basis: int = 5,
        lengths: tuple[float, float] = (0.1, 2.0),
        reach: float = 1.0,
        key: Key,
    ):
        self.group = group
        self.weight, length = basis_start(heads, basis, lengths)
        self.log_rate = -jnp.log(2 * length**2)
        self.centre = reach * jax.random.normal(key, (heads, basis, whole("dim", dim)))

    @property
    def numbers_per_pair(self) -> int:
        """The differences from all places."""
        return self.centre.size

    def __call__(self, p: Any, q: Any) -> Float[Array, " head"]:
        """Scores of one pair, query first."""
        weight, rate, centre = wide(self.weight), jnp.exp(wide(self.log_rate)), wide(self.centre)
        place = self.invariants(p, q).astype(centre.dtype)
        _check_dim(place, centre.shape[-1])
        square = jnp.sum((place[None, None] - centre) ** 2, -1)
        return jnp.sum(weight * jnp.exp(-rate * square), -1)


class MLPBias(AbstractGroupBias):
    """A small network from invariants to scores, for symmetries whose shape is not known in advance.

    **Invariant under.** The group.

    Args:
        group: brings the invariants.
        dim: number of invariants of a pair.
        heads: number of heads.
        width: units of the hidden layer.
        depth: number of hidden layers.
        activation: a smooth function keeps gradients with respect to coordinates smooth.
        key: draws the weights.

    Raises:
        ValueError: counts below 1, a depth below 0; from a call, another number of invariants than `dim`.
    """

    group: Any
    network: eqx.nn.MLP

    def __init__(
        self,
        group: Any,
        *,
        dim: int,
        heads: int = 4,
        width: int = 32,
        depth: int = 1,
        activation: Callable = jax.nn.gelu,
        key: Key,
    ):
        self.group = group
        self.network = eqx.nn.MLP(
            whole("dim", dim),
            whole("heads", heads),
            whole("width", width),
            whole("depth", depth, 0),
            activation,
            key=key,
        )

    @property
    def numbers_per_pair(self) -> int:
        """What every layer of the network takes in and gives."""
        return sum(int(layer.out_features) for layer in self.network.layers) + int(self.network.in_size)

    def __call__(self, p: Any, q: Any) -> Float[Array, " head"]:
        """Scores of one pair, query first."""
        invariants = self.invariants(p, q)
        _check_dim(invariants, self.network.in_size)
        network = jax.tree.map(lambda leaf: wide(leaf) if eqx.is_inexact_array(leaf) else leaf, self.network)
        return network(invariants.astype(network.layers[0].weight.dtype))


def _check_dim(invariants: Array, dim: Any) -> None:
    if invariants.shape != (dim,):
        raise ValueError(f"`dim` must be {invariants.shape[0]}, the number of invariants, got {dim}.")
