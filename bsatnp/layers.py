"""The parts that models are made of. All are written for one task; `jax.vmap` makes a batch."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bsatnp._types import Index, Key
from bsatnp.attention import scan_attention
from bsatnp.bias import AbstractBias
from bsatnp.groups import components


def linears(shapes: Sequence[tuple[int, int]], *, key: Key) -> tuple[eqx.nn.Linear, ...]:
    """Linear layers (n_in, n_out) with normal weights of variance 1 / n_in and zero biases.

    All weights come from one draw: each shape that is drawn costs a compilation.
    """
    sizes = [n_in * n_out for n_in, n_out in shapes]
    numbers = jnp.split(jax.random.normal(key, (sum(sizes),)), list(accumulate(sizes))[:-1])
    layers = []
    for (n_in, n_out), draw in zip(shapes, numbers, strict=True):
        layer = eqx.nn.Linear(n_in, n_out, key=key)
        weight = draw.reshape(n_out, n_in) / math.sqrt(n_in)
        layers.append(eqx.tree_at(lambda x: (x.weight, x.bias), layer, (weight, jnp.zeros(n_out, weight.dtype))))
    return tuple(layers)


class MLP(eqx.Module):
    """Linear layers with an activation between them, none after the last.

    **Shapes.** `(point, n_in)` to `(point, sizes[-1])`.

    Args:
        n_in: width of the input.
        sizes: widths of the layers.
        activation: between the layers.
        key: draws the weights.
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable = eqx.field(static=True)

    def __init__(self, n_in: int, sizes: Sequence[int], *, activation: Callable = jax.nn.gelu, key: Key):
        if not sizes or min(n_in, *sizes) < 1:
            raise ValueError(f"`sizes` must be widths of at least 1 after an input of at least 1, got {n_in}, {sizes}.")
        widths = (n_in, *sizes)
        self.layers = linears(list(pairwise(widths)), key=key)
        self.activation = activation

    @property
    def n_in(self) -> int:
        """Width of the input."""
        return int(self.layers[0].in_features)

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return int(self.layers[-1].out_features)

    def __call__(self, x: Float[Array, "point n_in"]) -> Float[Array, "point n_out"]:
        """Apply to every point."""
        for layer in self.layers[:-1]:
            x = self.activation(jax.vmap(layer)(x))
        return jax.vmap(self.layers[-1])(x)


class Identity(eqx.Module):
    """An embedding that passes a component on as it is.

    Args:
        dim: width of the component.
    """

    n_in: int = eqx.field(static=True)

    @property
    def n_out(self) -> int:
        """Width of the output."""
        return self.n_in

    def __call__(self, x: Float[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Return `x`."""
        return x


class LayerNorm(eqx.Module):
    """Layer normalisation of every point, with the epsilon of the reference models."""

    norm: eqx.nn.LayerNorm

    def __init__(self, dim: int):
        self.norm = eqx.nn.LayerNorm(dim, eps=1e-6)

    def __call__(self, x: Float[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Normalise every point."""
        return jax.vmap(self.norm)(x)


class TokenEmbedding(eqx.Module):
    """Tokens from an observed flag, embedded components of the index set, and values.

    A component without an embedding does not reach the tokens at all: that is how a model stays invariant.

    **Shapes.** Tokens are `(point, dim)`.

    Args:
        embed: for each component to embed, a module `(point, dim)` → `(point, n_out)` with `n_in` and `n_out`; their
            order is the order of the joint input.
        features: numbers per point that the likelihood makes of its values.
        flag: width of the embedding of the observed flag.
        sizes: widths of the joint network.
        activation: of the joint network.
        key: draws the weights.

    **Reference.** Section 4.1 of the paper.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parts: tuple[Any, ...]
    flag: Float[Array, "2 flag"]
    joint: MLP

    def __init__(
        self,
        embed: Mapping[str, Any],
        features: int,
        *,
        flag: int = 4,
        sizes: Sequence[int] = (256, 128, 64),
        activation: Callable = jax.nn.gelu,
        key: Key,
    ):
        flag_key, joint_key = jax.random.split(key)
        self.names = tuple(embed)
        self.parts = tuple(embed.values())
        self.flag = jax.random.normal(flag_key, (2, flag)) / jnp.sqrt(float(flag))
        width = flag + sum(part.n_out for part in self.parts) + features
        self.joint = MLP(width, sizes, activation=activation, key=joint_key)

    def __call__(self, index: Index, f: Float[Array, "point features"], *, observed: bool) -> Float[Array, "point dim"]:
        """Tokens of points that are all observed, or all not."""
        kind = self.flag.dtype
        flags = jnp.tile(self.flag[int(observed)][None], (f.shape[0], 1))
        parts = [part(index[name].astype(kind)) for name, part in zip(self.names, self.parts, strict=True)]
        return self.joint(jnp.concatenate([flags, *parts, f.astype(kind)], -1))


class AdditiveScore(eqx.Module):
    """Scores of attention with a bias: dot products plus the bias of the pair."""

    bias: AbstractBias

    def __call__(self, dots: Float[Array, "head q k"], q_index: Index, k_index: Index) -> Float[Array, "head q k"]:
        """Scores of a tile."""
        scores = self.bias.tile(q_index, k_index)
        if scores.shape[0] not in (1, dots.shape[0]):
            raise ValueError(
                f"`bias` must give {dots.shape[0]} heads, or one score for all of them, got {scores.shape[0]}."
            )
        return dots + scores.astype(dots.dtype)

    def needs(self, index: Index) -> Index:
        """The components that the bias looks at; all of them for groups that do not say."""
        named = [components(group) for group in self.bias.groups]
        wanted = {name for names in named for name in names} if all(named) else set(index)
        return {name: index[name] for name in index if name in wanted}


class MultiHeadAttention(eqx.Module):
    """Multi-head attention whose keys and values can be made once and used for many queries.

    **Shapes.** Tokens are `(point, dim)`; `width` is that of all heads together.

    Args:
        dim: width of the tokens.
        heads: number of heads.
        width: of queries, keys and values, divided among the heads.
        score: see `scan_attention`; None for plain dot products.
        key: draws the weights.

    Raises:
        ValueError: heads that do not divide the width.
    """

    query: eqx.nn.Linear
    key: eqx.nn.Linear
    value: eqx.nn.Linear
    out: eqx.nn.Linear
    score: Any
    heads: int = eqx.field(static=True)

    def __init__(self, dim: int, *, heads: int, width: int, score: Any = None, key: Key):
        if heads < 1 or width % heads:
            raise ValueError(f"`heads` must divide the width of attention {width}, got {heads}.")
        self.query, self.key, self.value, self.out = linears([(dim, width)] * 3 + [(width, dim)], key=key)
        self.score = score
        self.heads = heads

    def keys_values(self, tokens: Float[Array, "k dim"]) -> tuple[Array, Array]:
        """Keys and values `(head, k, width / head)` of context tokens."""
        return self._split(self.key, tokens), self._split(self.value, tokens)

    def __call__(
        self,
        tokens: Float[Array, "q dim"],
        keys_values: tuple[Array, Array],
        *,
        q_index: Index | None = None,
        k_index: Index | None = None,
        mask: Bool[Array, " k"] | None = None,
    ) -> Float[Array, "q dim"]:
        """Let every token attend to keys and values made before."""
        keys, values = keys_values
        mixed = scan_attention(
            self._split(self.query, tokens),
            keys,
            values,
            score=self.score,
            q_index=q_index,
            k_index=k_index,
            mask=mask,
        )
        return jax.vmap(self.out)(jnp.moveaxis(mixed, 0, 1).reshape(len(tokens), mixed.shape[0] * mixed.shape[2]))

    def _split(self, layer: eqx.nn.Linear, tokens: Array) -> Array:
        wide = jax.vmap(layer)(tokens)
        return jnp.moveaxis(wide.reshape(len(tokens), self.heads, wide.shape[1] // self.heads), 1, 0)


class KRBlock(eqx.Module):
    """Kernel regression block: pre-norm attention and a feed-forward network, with residual connections.

    Context and targets go through the same weights; both attend to the context and to nothing else.

    **Invariant under.** Whatever leaves the scores of the attention unchanged.

    Args:
        dim: width of the tokens.
        heads: number of heads.
        width: of all heads together.
        bias: added to the attention scores; None for none.
        hidden: width of the feed-forward network's hidden layer.
        activation: of the feed-forward network.
        key: draws the weights.

    **Reference.** Section 4.2 of the paper.
    """

    norm_attention: LayerNorm
    attention: MultiHeadAttention
    norm_mlp: LayerNorm
    mlp: MLP

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        width: int,
        bias: AbstractBias | None,
        hidden: int,
        activation: Callable = jax.nn.gelu,
        key: Key,
    ):
        attention, mlp = jax.random.split(key)
        score = None if bias is None else AdditiveScore(bias)
        self.norm_attention = LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, heads=heads, width=width, score=score, key=attention)
        self.norm_mlp = LayerNorm(dim)
        self.mlp = MLP(dim, (hidden, dim), activation=activation, key=mlp)

    def keys_values(self, context: Float[Array, "ctx dim"]) -> tuple[Array, Array]:
        """What targets need of the context tokens that enter this block."""
        return self.attention.keys_values(self.norm_attention(context))

    def __call__(
        self,
        tokens: Float[Array, "point dim"],
        keys_values: tuple[Array, Array],
        *,
        index: Index | None,
        ctx_index: Index | None,
        mask: Bool[Array, " ctx"],
    ) -> Float[Array, "point dim"]:
        """Update tokens, of the context or of targets, from the context's keys and values."""
        mixed = self.attention(self.norm_attention(tokens), keys_values, q_index=index, k_index=ctx_index, mask=mask)
        tokens = tokens + mixed
        return tokens + self.mlp(self.norm_mlp(tokens))
