"""Biases of the distance alone."""

import abc
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from bsatnp._exponential import LOG2E, power_of_two
from bsatnp._types import whole, wide
from bsatnp.bias.interface import AbstractGroupBias, basis_start
from bsatnp.groups import squared_length
from bsatnp.groups.protocol import safe_sqrt


class AbstractRadialBias(AbstractGroupBias):
    """A bias that depends on the length of the invariants alone."""

    @abc.abstractmethod
    def of_square(self, square: Float[Array, "*pairs"]) -> Float[Array, "head *pairs"]:
        """Scores from squared lengths, one or many."""

    def __call__(self, p: Any, q: Any) -> Float[Array, " head"]:
        """Scores of one pair, query first."""
        return self.of_square(squared_length(self.group, p, q))

    def tile(self, p: Any, q: Any) -> Float[Array, "head q k"]:
        """Scores of all pairs; lengths are computed once for all heads."""
        square = jax.vmap(jax.vmap(partial(squared_length, self.group), (None, 0)), (0, None))
        return self.of_square(square(p, q))


class RBFNetwork(AbstractRadialBias):
    """Σ α exp(−β ‖invariants‖²), summed over bases, for each head.

    With `Translation` this is the paper's bias, with `SO3` its geodesic bias.

    **Units.** `lengths` are in the units of the invariants; β = 1 / (2 length²).

    **Invariant under.** The group.

    Args:
        group: brings the invariants.
        heads: number of heads.
        basis: number of basis functions per head.
        lengths: shortest and longest initial length scale; the bases start log-spaced between them, since bases that
            start equal receive equal gradients and stay equal.

    Raises:
        ValueError: no heads, no bases, or lengths that are not positive and ordered.

    **Reference.** Equation (4) of the paper.
    """

    group: Any
    weight: Float[Array, "head basis"]
    log_rate: Float[Array, "head basis"]

    def __init__(self, group: Any, *, heads: int = 4, basis: int = 5, lengths: tuple[float, float] = (0.1, 2.0)):
        self.group = group
        self.weight, length = basis_start(heads, basis, lengths)
        self.log_rate = -jnp.log(2 * length**2)

    def of_square(self, square: Float[Array, "*pairs"]) -> Float[Array, "head *pairs"]:
        """Scores from squared lengths, one or many."""
        weight, rate = wide(self.weight), jnp.exp(wide(self.log_rate))
        return radial_sum(weight, rate, square.astype(weight.dtype))


class ExponentialNetwork(AbstractRadialBias):
    """Σ α exp(−β ‖invariants‖), summed over bases, for each head: a cusp at zero and longer tails than `RBFNetwork`.

    **Units.** `lengths` are in the units of the invariants; β = 1 / length.

    **Invariant under.** The group.

    Args:
        group: brings the invariants.
        heads: number of heads.
        basis: number of basis functions per head.
        lengths: shortest and longest initial length scale, log-spaced between.

    Raises:
        ValueError: no heads, no bases, or lengths that are not positive and ordered.
    """

    group: Any
    weight: Float[Array, "head basis"]
    log_rate: Float[Array, "head basis"]

    def __init__(self, group: Any, *, heads: int = 4, basis: int = 5, lengths: tuple[float, float] = (0.1, 2.0)):
        self.group = group
        self.weight, length = basis_start(heads, basis, lengths)
        self.log_rate = -jnp.log(length)

    def of_square(self, square: Float[Array, "*pairs"]) -> Float[Array, "head *pairs"]:
        """Scores from squared lengths, one or many."""
        weight, rate = wide(self.weight), jnp.exp(wide(self.log_rate))
        return radial_sum(weight, rate, safe_sqrt(square.astype(weight.dtype)))


class Linear(AbstractRadialBias):
    """−m ‖invariants‖ with a positive slope m for each head.

    **Units.** `length` is in the units of the invariants.

    **Invariant under.** The group.

    Args:
        group: brings the invariants.
        heads: number of heads; their slopes start as 2^(−8 h / heads) over `length`, h = 1 … heads.
        length: the distance over which head h loses 2^(−8 h / heads).

    Raises:
        ValueError: no heads or a length that is not positive.

    **Reference.** ALiBi, cited in Section 2.4 of the paper.
    """

    group: Any
    log_slope: Float[Array, " head"]

    def __init__(self, group: Any, *, heads: int = 4, length: float = 1.0):
        if not length > 0:
            raise ValueError(f"`length` must be positive, got {length}.")
        self.group = group
        ranks = jnp.arange(1, whole("heads", heads) + 1, dtype=float)
        self.log_slope = -jnp.log(2.0) * 8 * ranks / heads - jnp.log(jnp.asarray(length, float))

    def of_square(self, square: Float[Array, "*pairs"]) -> Float[Array, "head *pairs"]:
        """Scores from squared lengths, one or many."""
        slope = jnp.exp(wide(self.log_slope))
        distance = safe_sqrt(square.astype(slope.dtype))
        return -_like_head(slope, distance) * distance[None]


@jax.custom_jvp
def radial_sum(
    weight: Float[Array, "head basis"], rate: Float[Array, "head basis"], x: Float[Array, "*pairs"]
) -> Float[Array, "head *pairs"]:
    """Σ weight exp(−rate x), summed over bases; rates and x are not negative."""
    total, power = 0.0, -LOG2E * rate
    for m in range(weight.shape[1]):
        total = total + _like_head(weight[:, m], x) * power_of_two(_like_head(power[:, m], x) * x[None])
    return jnp.asarray(total)


@partial(radial_sum.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    weight, rate, x = primals
    by_weight, by_rate, by_x = (None if isinstance(t, SymbolicZero) else t for t in tangents)
    flat = x.reshape(-1)

    @partial(jax.checkpoint, prevent_cse=False)  # pyright: ignore[reportPrivateImportUsage]
    def add(tangent, basis):
        weight, rate, by_weight, by_rate = basis
        factor = 0.0
        if by_weight is not None:
            factor = factor + _like_head(by_weight, x)
        if by_rate is not None:
            # an outer product, so that the sum over pairs in its transpose is a product of a matrix and a vector
            outer = jnp.tensordot(-weight * by_rate, flat, 0, precision=jax.lax.Precision.HIGHEST)
            factor = factor + outer.reshape(len(weight), *x.shape)
        if by_x is not None:
            factor = factor - _like_head(weight * rate, x) * by_x[None]
        return tangent + factor * power_of_two(_like_head(-LOG2E * rate, x) * x[None]), None

    # a loop, so that the compiler keeps the cotangent of the scores instead of computing it again for every basis
    bases = jax.tree.map(jnp.transpose, (weight, rate, by_weight, by_rate))
    tangent = jnp.zeros((weight.shape[0], *x.shape), weight.dtype)
    return radial_sum(weight, rate, x), jax.lax.scan(add, tangent, bases)[0]


def _like_head(per_head: Array, pairs: Array) -> Array:
    return per_head.reshape(-1, *(1,) * pairs.ndim)
