"""Sums and learned weights of biases."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from bsatnp._types import whole
from bsatnp.bias.interface import AbstractBias
from bsatnp.bias.masks import Causal, Window
from bsatnp.groups.protocol import wide


class Sum(AbstractBias):
    """The sum of several biases, such as one of space and one of time.

    **Invariant under.** Whatever leaves every term unchanged: the product of the terms' groups, where they act on
    different components.

    Args:
        terms: biases with the same number of heads, or with one score for all of them.

    Raises:
        ValueError: no terms.

    **Reference.** Equation (3) of the paper, with its weights γ inside the terms (or in `Weighted`).
    """

    terms: tuple[AbstractBias, ...]

    def __init__(self, *terms: AbstractBias):
        if not terms:
            raise ValueError("`terms` must hold at least one bias, got none.")
        self.terms = terms

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups of all terms."""
        return tuple(group for term in self.terms for group in term.groups)

    def __call__(self, p: Any, q: Any) -> Float[Array, " head"]:
        """Scores of one pair, query first."""
        return sum((term(p, q) for term in self.terms[1:]), self.terms[0](p, q))

    def tile(self, p: Any, q: Any) -> Float[Array, "head q k"]:
        """Scores of all pairs of two sets of points."""
        return sum((term.tile(p, q) for term in self.terms[1:]), self.terms[0].tile(p, q))


class Weighted(AbstractBias):
    """A bias times a learned weight for each head.

    **Invariant under.** What the bias is invariant under.

    Args:
        bias: a bias with finite scores.
        heads: number of heads.

    Raises:
        ValueError: a hard mask, whose −inf has no weight.

    **Reference.** The weights γ of equation (3) of the paper.
    """

    bias: AbstractBias
    weight: Float[Array, " head"]

    def __init__(self, bias: AbstractBias, *, heads: int = 4):
        if _has_mask(bias):
            raise ValueError("`bias` must have finite scores to be weighted, got a hard mask.")
        self.bias = bias
        self.weight = jnp.ones(whole("heads", heads))

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups of the bias."""
        return self.bias.groups

    def __call__(self, p: Any, q: Any) -> Float[Array, " head"]:
        """Scores of one pair, query first."""
        return wide(self.weight) * self.bias(p, q)

    def tile(self, p: Any, q: Any) -> Float[Array, "head q k"]:
        """Scores of all pairs of two sets of points."""
        return wide(self.weight)[:, None, None] * self.bias.tile(p, q)


def _has_mask(bias: AbstractBias) -> bool:
    if isinstance(bias, Sum):
        return any(_has_mask(term) for term in bias.terms)
    return isinstance(bias, Causal | Window)
