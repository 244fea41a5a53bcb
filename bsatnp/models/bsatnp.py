"""The Biased Scan Attention Transformer Neural Process."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from bsatnp._types import Key
from bsatnp.bias import AbstractBias
from bsatnp.layers import MLP, KRBlock, LayerNorm, TokenEmbedding
from bsatnp.likelihoods import AbstractHead, AbstractLikelihood, GaussianHead
from bsatnp.models.base import AbstractModel, clean
from bsatnp.tasks import Points


class BSATNP(AbstractModel):
    """Embeddings, a stack of kernel regression blocks whose attention carries biases, and a likelihood head.

    Defaults are the paper's sizes. Without `bias` and with space embedded it is the paper's SA-TNP.

    **Invariant under.** Every group that leaves the embedded components and the bias unchanged (Theorem 2).

    **Shapes.** The context is `(ctx, …)`, targets `(tgt, …)`; conditioning costs O(ctx²), a target O(ctx).

    Args:
        embed: components whose values enter the tokens, each with its embedding (`Identity`, `MLP`); empty for none.
        bias: added to the attention scores; every block learns its own copy. None for none.
        head: the likelihood.
        depth: number of blocks.
        dim: width of the tokens.
        heads: number of attention heads.
        width: of queries, keys and values, all heads together.
        embed_sizes: hidden widths of the joint embedding network, which ends in `dim`.
        hidden: width of the hidden layer of the blocks' networks and of the prediction network.
        key: draws the weights.

    Raises:
        ValueError: sizes below 1, or heads of the bias that do not fit.

    **Reference.** Section 4 of the paper, Figure 1, and its appendix on model parameterisations.
    """

    embedding: TokenEmbedding
    norm_embedding: LayerNorm
    blocks: KRBlock  # arrays carry a leading axis, one entry for each block
    norm_out: LayerNorm
    predict: MLP
    head: AbstractHead

    def __init__(
        self,
        *,
        embed: Mapping[str, Any] | None = None,
        bias: AbstractBias | None = None,
        head: AbstractHead | None = None,
        depth: int = 6,
        dim: int = 64,
        heads: int = 4,
        width: int = 128,
        embed_sizes: Sequence[int] = (256, 128),
        hidden: int = 256,
        key: Key,
    ):
        if depth < 1:
            raise ValueError(f"`depth` must be at least 1, got {depth}.")
        self.head = GaussianHead() if head is None else head

        self.embedding, self.blocks, self.predict = _build(
            key,
            dict(embed or {}),
            bias,
            features=self.head.features,
            embed_sizes=(*embed_sizes, dim),
            depth=depth,
            block={"dim": dim, "heads": heads, "width": width, "hidden": hidden},
            predict_sizes=(hidden, dim, self.head.raw),
        )
        self.norm_embedding = LayerNorm(dim)
        self.norm_out = LayerNorm(dim)

    @property
    def bias(self) -> AbstractBias | None:
        """The learned bias; its arrays carry a leading axis, one entry for each block."""
        score = self.blocks.attention.score
        return None if score is None else score.bias

    @property
    def embedded(self) -> Mapping[str, int]:
        """Components whose values the model sees as they are, with their widths."""
        return {name: part.n_in for name, part in zip(self.embedding.names, self.embedding.parts, strict=True)}

    @property
    def groups(self) -> tuple[Any, ...]:
        """Groups through whose invariants the model sees pairs of points."""
        return () if self.bias is None else self.bias.groups

    def condition(self, ctx: Points) -> "ConditionedBSATNP":
        """Run the context through all blocks and keep every block's keys and values."""
        mask = jnp.asarray(ctx.usable)
        index = clean(ctx, mask)
        values = jnp.where(mask[:, None], self.head.encode(ctx.f), 0)
        tokens = self.norm_embedding(self.embedding(index, values, observed=True))
        needed = _needed(self.blocks, index)

        def step(tokens, block):
            keys_values = block.keys_values(tokens)
            return block(tokens, keys_values, index=needed, ctx_index=needed, mask=mask), keys_values

        _, keys_values = _over_blocks(step, tokens, self.blocks)
        return ConditionedBSATNP(self, keys_values, needed, mask)


class ConditionedBSATNP(eqx.Module):
    """A BSA-TNP that has seen its context: maps targets to their distribution at a cost of O(ctx) each."""

    model: BSATNP
    keys_values: tuple[Array, Array]
    index: Any
    mask: Bool[Array, " ctx"]

    def __call__(self, tgt: Points) -> AbstractLikelihood:
        """Predict targets."""
        model = self.model
        index = clean(tgt, jnp.asarray(tgt.mask))
        blank = jnp.zeros((len(tgt), model.head.features))
        tokens = model.norm_embedding(model.embedding(index, blank, observed=False))
        needed = _needed(model.blocks, index)

        def step(tokens, block, keys_values):
            return block(tokens, keys_values, index=needed, ctx_index=self.index, mask=self.mask), None

        tokens, _ = _over_blocks(step, tokens, model.blocks, self.keys_values)
        return model.head(model.predict(model.norm_out(tokens)))


@eqx.filter_jit
def _build(key, embed, bias, *, features, embed_sizes, depth, block, predict_sizes):
    """Draw all weights in one compilation, where drawing array by array would take one for each shape."""
    embedding, blocks, predict = jax.random.split(key, 3)
    make = eqx.filter_vmap(lambda key: KRBlock(**block, bias=bias, key=key))
    return (
        TokenEmbedding(embed, features, sizes=embed_sizes, key=embedding),
        make(jax.random.split(blocks, depth)),
        MLP(block["dim"], predict_sizes, key=predict),
    )


def _needed(blocks: KRBlock, index: dict[str, Any]) -> Any:
    score = blocks.attention.score
    return None if score is None else score.needs(index)


def _over_blocks(step, tokens, blocks, *extra):
    """Scan `step(tokens, block, *extra)` over stacked blocks: one block is compiled, not all."""
    arrays, static = eqx.partition(blocks, eqx.is_array)

    def body(tokens, arrays_extra):
        arrays, extra = arrays_extra
        return step(tokens, eqx.combine(arrays, static), *extra)

    return jax.lax.scan(body, tokens, (arrays, extra))
