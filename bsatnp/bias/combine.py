"""Sums and learned weights of biases."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from bsatnp._types import whole, wide
from bsatnp.bias.interface import AbstractBias
from bsatnp.bias.masks import Causal, Window


class Sum(AbstractBias):
    """The sum of several biases, such as one of space and one of time.

    **Invariant under.** Whatever leaves every term unchanged: the product of the terms' groups, where they act on
    different components.

    Args:
        terms: biases with the same number of heads, or with one score for all of them.

    Raises:
        ValueError: no terms, or one that is no bias; from a call, terms with different numbers of heads.

    **Reference.** Equation (3) of the paper, with its weights γ inside the terms (or in `Weighted`).
    """

    terms: tuple[AbstractBias, ...]

    def __init__(self, *terms: AbstractBias):
        if not terms:
            raise ValueError("`terms` must hold at least one bias, got none.")
        for term in terms:
            _check_bias("terms", term)
        self.terms = terms

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups of all terms."""
        return tuple(group for term in self.terms for group in term.groups)

    @property
    def numbers_per_pair(self) -> int:
        """Those of the term that holds most."""
        return max(term.numbers_per_pair for term in self.terms)

    def __call__(self, p: Any, q: Any) -> Float[Array, " head"]:
        """Scores of one pair, query first."""
        return _total([term(p, q) for term in self.terms])

    def tile(self, p: Any, q: Any) -> Float[Array, "head q k"]:
        """Scores of all pairs of two sets of points."""
        return _total([term.tile(p, q) for term in self.terms])


def _total(scores: list[Array]) -> Array:
    heads = [len(score) for score in scores]
    if len({*heads, 1}) > 2:
        raise ValueError(f"`terms` must have the same number of heads, or one score for all, got {heads} heads.")
    return sum(scores[1:], scores[0])


class Weighted(AbstractBias):
    """A bias times a learned weight for each head.

    **Invariant under.** What the bias is invariant under.

    Args:
        bias: a bias with finite scores; a mask of your own goes beside it, in a `Sum`.
        heads: number of heads.

    Raises:
        ValueError: `Causal` or `Window`, whose −inf has no weight; from a call, a bias with another number of heads.

    **Reference.** The weights γ of equation (3) of the paper.
    """

    bias: AbstractBias
    weight: Float[Array, " head"]

    def __init__(self, bias: AbstractBias, *, heads: int = 4):
        _check_bias("bias", bias)
        if _has_mask(bias):
            raise ValueError("`bias` must have finite scores to be weighted, got a hard mask.")
        self.bias = bias
        self.weight = jnp.ones(whole("heads", heads))

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups of the bias."""
        return self.bias.groups

    @property
    def numbers_per_pair(self) -> int:
        """Those of the bias."""
        return self.bias.numbers_per_pair

    def __call__(self, p: Any, q: Any) -> Float[Array, " head"]:
        """Scores of one pair, query first."""
        return self._times(self.bias(p, q))

    def tile(self, p: Any, q: Any) -> Float[Array, "head q k"]:
        """Scores of all pairs of two sets of points."""
        return self._times(self.bias.tile(p, q))

    def _times(self, scores: Array) -> Array:
        if len(scores) not in (1, len(self.weight)):
            raise ValueError(f"`heads` must be {len(scores)}, as many as `bias` has, got {len(self.weight)}.")
        return wide(self.weight).reshape(-1, *(1,) * (scores.ndim - 1)) * scores


def _check_bias(name: str, bias: Any) -> None:
    if not isinstance(bias, AbstractBias):
        raise ValueError(f"`{name}` must be biases, one by one, such as `Sum(a, b)`, got {type(bias).__name__}.")


def _has_mask(bias: AbstractBias) -> bool:
    if isinstance(bias, Sum):
        return any(_has_mask(term) for term in bias.terms)
    return isinstance(bias, Causal | Window)
