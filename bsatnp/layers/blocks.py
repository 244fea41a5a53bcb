"""Transformer blocks in which every token attends to a context, and stacks of them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bsatnp._types import Index, Key, whole
from bsatnp.attention.scan import NAME as ATTENTION
from bsatnp.layers.attention import MultiHeadAttention
from bsatnp.layers.basic import MLP, LayerNorm


class KRBlock(eqx.Module):
    """Kernel regression block: attention and a feed-forward network, with residual connections.

    Context and targets go through the same weights and the same norms; both attend to the context and to nothing else.

    **Invariant under.** Whatever leaves the scores of the attention unchanged.

    Args:
        dim: width of the tokens.
        heads: number of heads.
        width: of all heads together.
        score: see `scan_attention`; None for plain dot products.
        hidden: width of the feed-forward network's hidden layer.
        activation: of the feed-forward network.
        pre_norm: whether norms come before attention and network, rather than after the residual connections.
        key: draws the weights.

    **Reference.** Section 4.2 of the paper.
    """

    norm_attention: LayerNorm
    attention: MultiHeadAttention
    norm_mlp: LayerNorm
    mlp: MLP
    pre_norm: bool = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        width: int,
        score: Any = None,
        hidden: int,
        activation: Callable = jax.nn.gelu,
        pre_norm: bool = True,
        key: Key,
    ):
        attention, mlp = jax.random.split(key)
        self.norm_attention = LayerNorm(dim)
        self.attention = MultiHeadAttention(dim, heads=heads, width=width, score=score, key=attention)
        self.norm_mlp = LayerNorm(dim)
        self.mlp = MLP(dim, (hidden, dim), activation=activation, key=mlp)
        self.pre_norm = pre_norm

    def keys_values(self, context: Float[Array, "ctx dim"]) -> tuple[Array, Array]:
        """What other tokens need of the context tokens that enter this block."""
        return self.attention.keys_values(self.norm_attention(context) if self.pre_norm else context)

    def __call__(
        self,
        tokens: Float[Array, "point dim"],
        keys_values: tuple[Array, Array],
        *,
        index: Index | None,
        ctx_index: Index | None,
        mask: Bool[Array, " ctx"] | None = None,
        axis: str | None = None,
    ) -> Float[Array, "point dim"]:
        """Update tokens, of the context or of targets, from the context's keys and values.

        `axis` names the mapped axis over which keys are spread, see `scan_attention`.
        """
        queries = self.norm_attention(tokens) if self.pre_norm else tokens
        mixed = self.attention(queries, keys_values, q_index=index, k_index=ctx_index, mask=mask, axis=axis)
        if self.pre_norm:
            tokens = tokens + mixed
            return tokens + self.mlp(self.norm_mlp(tokens))
        tokens = self.norm_attention(tokens + mixed)
        return self.norm_mlp(tokens + self.mlp(tokens))


def stacked(depth: int, make_score: Callable[[Key], Any], *, key: Key, **block: Any) -> KRBlock:
    """Blocks of the same sizes as one, whose arrays carry a leading axis with one entry for each.

    Args:
        depth: number of blocks.
        make_score: the score of one block, given a key.
        key: draws the weights.
        block: the other arguments of `KRBlock`.

    Raises:
        ValueError: no blocks.
    """
    whole("depth", depth)

    def make(key):
        # a block's own weights are drawn from the same key: it splits it further, and the score from its third part
        return KRBlock(**block, score=make_score(jax.random.split(key, 3)[2]), key=key)

    return eqx.filter_vmap(make)(jax.random.split(key, depth))


def over_blocks(
    step: Callable[..., tuple[Any, Any]],
    tokens: Any,
    blocks: Any,
    *extra: Any,
    last: Callable[..., Any] | None = None,
    recompute: bool = True,
) -> tuple[Any, Any]:
    """Scan `step(tokens, block, *extra)` over stacked blocks, so that one block is compiled for all.

    Args:
        step: gives the next tokens and what to keep of this block.
        tokens: what enters the first block.
        blocks: see `stacked`; or a pytree of such stacks.
        extra: pytrees of arrays with one entry for each block.
        last: what the last block keeps, called as `step` is, where nobody needs the tokens after it: the rest of its
            work is saved, and it is compiled apart. The tokens that are returned are then those that enter it.
        recompute: whether a gradient keeps only what enters a block and what its attention found, and computes the rest
            again: little work beside the attention, and most of the memory.

    Returns:
        The last tokens, and what was kept with one entry for each block.
    """
    arrays, static = eqx.partition(blocks, eqx.is_array)

    def called(function):
        def body(tokens, arrays_extra):
            arrays, extra = arrays_extra
            return function(tokens, eqx.combine(arrays, static), *extra)

        if not recompute:
            return body
        policy = jax.checkpoint_policies.save_only_these_names(ATTENTION)
        return jax.checkpoint(body, prevent_cse=False, policy=policy)  # pyright: ignore[reportPrivateImportUsage]

    each = arrays, extra
    if last is None:
        return jax.lax.scan(called(step), tokens, each)

    # what is kept goes where it stays: to join the last entry to those before would take a copy of them all
    before, final = (jax.tree.map(lambda x, part=part: x[part], each) for part in (slice(-1), -1))
    depth = len(jax.tree.leaves(each)[0])
    kept = jax.eval_shape(called(last), tokens, final)
    kept = jax.tree.map(lambda x: jnp.zeros((depth, *x.shape), x.dtype), kept)

    def put(kept, number, one):
        return jax.tree.map(lambda all, one: all.at[number].set(one), kept, one)

    def body(carry, numbered):
        (tokens, kept), (number, block) = carry, numbered
        tokens, one = called(step)(tokens, block)
        return (tokens, put(kept, number, one)), None

    (tokens, kept), _ = jax.lax.scan(body, (tokens, kept), (jnp.arange(depth - 1), before))
    return tokens, put(kept, depth - 1, called(last)(tokens, final))
