"""The interface of a bias."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bsatnp._types import whole
from bsatnp.groups import check_is_group, pair_invariants


class AbstractBias(eqx.Module):
    """Interface of a bias: a score for each head, from one pair of points.

    Raises:
        ValueError: a group without the method `invariants`, or without a hash.
    """

    def __check_init__(self):
        for group in self.groups:
            check_is_group(group)

    @property
    @abc.abstractmethod
    def groups(self) -> tuple[Any, ...]:
        """The groups whose invariants the bias is a function of."""

    @property
    def numbers_per_pair(self) -> int:
        """Numbers held at once for each pair of points, all heads together; 0 where one for each head is all.

        Attention chooses its tiles by it.
        """
        return 0

    @abc.abstractmethod
    def __call__(self, p: Any, q: Any) -> Float[Array, " head"]:
        """Scores of one pair, query first."""

    def tile(self, p: Any, q: Any) -> Float[Array, "head q k"]:
        """Scores of all pairs of two sets of points."""
        over_keys = jax.vmap(self, in_axes=(None, 0), out_axes=-1)
        return jax.vmap(over_keys, in_axes=(0, None), out_axes=1)(p, q)


class AbstractGroupBias(AbstractBias):
    """A bias that is a function of the invariants of one group: what is left to write is the call.

    **Invariant under.** `group`.
    """

    group: eqx.AbstractVar[Any]

    @property
    def groups(self) -> tuple[Any, ...]:
        """The one group."""
        return (self.group,)

    def invariants(self, p: Any, q: Any) -> Array:
        """The invariants of one pair, query first.

        Raises:
            ValueError: they are no vector.
        """
        return pair_invariants(self.group, p, q)


def basis_start(
    heads: int, basis: int, lengths: tuple[float, float]
) -> tuple[Float[Array, "head basis"], Float[Array, "head basis"]]:
    """Weights of one, and length scales log-spaced from the shortest to the longest (geometric mean of one basis).

    Raises:
        ValueError: no heads, no bases, or lengths that are not positive and ordered.
    """
    shape = whole("heads", heads), whole("basis", basis)
    if np.shape(lengths) != (2,):
        raise ValueError(f"`lengths` must be two numbers (shortest, longest), got {lengths}.")
    shortest, longest = lengths
    if not 0 < shortest <= longest < np.inf:
        raise ValueError(f"`lengths` must be positive, finite and ordered (shortest, longest), got {lengths}.")
    if not 1e-18 <= shortest <= longest <= 1e18:
        raise ValueError(f"`lengths` must lie between 1e-18 and 1e18 for their squares to fit float32, got {lengths}.")
    if basis == 1:
        shortest = (shortest * longest) ** 0.5
    return jnp.ones(shape), jnp.broadcast_to(jnp.geomspace(shortest, longest, basis)[None], shape)
