"""Transformer blocks in which context and targets attend to the context."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float

from bsatnp._types import Index, Key
from bsatnp.bias import AbstractBias
from bsatnp.layers.attention import AdditiveScore, MultiHeadAttention
from bsatnp.layers.basic import MLP, LayerNorm


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
