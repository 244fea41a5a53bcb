"""Scores of attention: what becomes of the dot products of a tile and the index sets of its rows."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bsatnp._types import Index, Key
from bsatnp.bias import AbstractBias
from bsatnp.groups import components, example_point, factors
from bsatnp.layers.basic import MLP


class AbstractScore(eqx.Module):
    """A score that sees pairs of points through the invariants of groups alone."""

    @property
    @abc.abstractmethod
    def groups(self) -> tuple[Any, ...]:
        """The groups."""

    @property
    @abc.abstractmethod
    def numbers_per_pair(self) -> int:
        """Numbers held for each pair of points, all heads together; 0 where one for each head is all."""

    @abc.abstractmethod
    def __call__(self, dots: Float[Array, "head q k"], q_index: Index, k_index: Index) -> Float[Array, "head q k"]:
        """Scores of a tile."""

    def needs(self, index: Index) -> Index:
        """The components that the score looks at; all of them for groups that do not say."""
        named = [components(group) for group in self.groups]
        wanted = {name for names in named for name in names} if all(named) else set(index)
        return {name: index[name] for name in index if name in wanted}


class AdditiveScore(AbstractScore):
    """Scores of attention with a bias: dot products plus the bias of the pair."""

    bias: AbstractBias

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups of the bias."""
        return self.bias.groups

    @property
    def numbers_per_pair(self) -> int:
        """Those of the bias."""
        return self.bias.numbers_per_pair

    def __call__(self, dots: Float[Array, "head q k"], q_index: Index, k_index: Index) -> Float[Array, "head q k"]:
        """Scores of a tile."""
        scores = self.bias.tile(q_index, k_index)
        if scores.shape[0] not in (1, dots.shape[0]):
            raise ValueError(
                f"`bias` must give {dots.shape[0]} heads, or one score for all of them, got {scores.shape[0]}."
            )
        return dots + scores.astype(dots.dtype)


class InvariantScore(AbstractScore):
    """Scores from a network of the dot products of all heads and the invariants of the pair.

    **Invariant under.** The group.

    Args:
        group: made with `On` or `Product`, of groups with an integer `dim`.
        heads: number of heads.
        sizes: widths of the hidden layers, with ReLU after each.
        key: draws the weights.

    Raises:
        ValueError: a group that does not say what it acts on, or sizes below 1.

    **Reference.** Ashman et al. (2024), Translation Equivariant Transformer Neural Processes, cited in Section 2.3 of
    the paper; its appendix on model parameterisations.
    """

    group: Any
    network: MLP

    def __init__(self, group: Any, *, heads: int, sizes: Sequence[int] = (128, 128), key: Key):
        self.group = group
        self.network = MLP(heads + _count(group), (*sizes, heads), activation=jax.nn.relu, key=key)

    @property
    def groups(self) -> tuple[Any, ...]:
        """The one group."""
        return (self.group,)

    @property
    def numbers_per_pair(self) -> int:
        """What every layer of the network takes in and gives."""
        return self.network.n_in + sum(int(layer.out_features) for layer in self.network.layers)

    def __call__(self, dots: Float[Array, "head q k"], q_index: Index, k_index: Index) -> Float[Array, "head q k"]:
        """Scores of a tile."""
        kind = self.network.layers[0].weight.dtype
        pairs = jax.vmap(jax.vmap(self.group.invariants, (None, 0)), (0, None))(q_index, k_index)
        inputs = jnp.concatenate([jnp.moveaxis(dots, 0, -1).astype(kind), pairs.astype(kind)], -1)
        scores = self.network(inputs.reshape(-1, inputs.shape[-1]))
        return jnp.moveaxis(scores.reshape(*dots.shape[1:], dots.shape[0]), -1, 0).astype(dots.dtype)


def _count(group: Any) -> int:
    """How many invariants a pair of points has."""
    point = example_point(group)
    if not factors(group) or point is None:
        raise ValueError(
            "`group` must act on named components of known width, as `On` and `Product` of groups with an integer "
            f"`dim` do, got {group}."
        )
    return int(jax.eval_shape(group.invariants, point, point).shape[0])
