"""What the transformer models share: tokens, stacked blocks over kept keys and values, a prediction network."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bsatnp._types import Index, Key
from bsatnp.layers import MLP, KRBlock, TokenEmbedding, over_blocks, stacked
from bsatnp.likelihoods import AbstractHead, AbstractLikelihood
from bsatnp.models.base import AbstractModel, clean
from bsatnp.tasks import Points


class AbstractTransformer(AbstractModel):
    """A model whose targets go through a stack of blocks, each of which attends to tokens made from the context.

    How those tokens come about is what the concrete models differ in.
    """

    embedding: eqx.AbstractVar[TokenEmbedding]
    norm_embedding: eqx.AbstractVar[Any]  # a LayerNorm, or None for none
    blocks: eqx.AbstractVar[KRBlock]
    norm_out: eqx.AbstractVar[Any]  # a LayerNorm, or None for none
    predict: eqx.AbstractVar[MLP]
    head: eqx.AbstractVar[AbstractHead]

    @property
    def embedded(self) -> Mapping[str, int]:
        """Components whose values the model sees as they are, with their widths."""
        return {name: part.n_in for name, part in zip(self.embedding.names, self.embedding.parts, strict=True)}

    @property
    def groups(self) -> tuple[Any, ...]:
        """Groups through whose invariants the model sees pairs of points."""
        score = self.blocks.attention.score
        return () if score is None else score.groups

    def needs(self, index: Index) -> Index | None:
        """The components that attention looks at; None for none."""
        score = self.blocks.attention.score
        return None if score is None else score.needs(index)

    def context(self, ctx: Points) -> tuple[Index, Bool[Array, " ctx"], Float[Array, "ctx dim"]]:
        """Index set, mask and tokens of the context; nothing is left of what a masked row held."""
        mask = jnp.asarray(ctx.usable)
        index = clean(ctx, mask)
        values = jnp.where(mask[:, None], self.head.encode(ctx.f), 0)
        return index, mask, self.normed(self.embedding(index, values, observed=True))

    def targets(self, tgt: Points) -> tuple[Index, Float[Array, "tgt dim"]]:
        """Index set and tokens of targets, whose values are not known."""
        index = clean(tgt, jnp.asarray(tgt.mask))
        blank = jnp.zeros((len(tgt), self.head.features))
        return index, self.normed(self.embedding(index, blank, observed=False))

    def normed(self, tokens: Float[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Tokens as they enter the first block."""
        return tokens if self.norm_embedding is None else self.norm_embedding(tokens)

    def attend(
        self,
        tokens: Float[Array, "tgt dim"],
        keys_values: tuple[Array, Array],
        *,
        index: Index | None,
        ctx_index: Index | None,
        mask: Bool[Array, " k"],
    ) -> AbstractLikelihood:
        """Let targets attend to the keys and values of every block, and predict them."""

        def step(tokens, block, keys_values):
            return block(tokens, keys_values, index=index, ctx_index=ctx_index, mask=mask), None

        tokens, _ = over_blocks(step, tokens, self.blocks, keys_values)
        return self.head(self.predict(tokens if self.norm_out is None else self.norm_out(tokens)))


class ConditionedTransformer(eqx.Module):
    """A model that has seen its context: maps targets to their distribution at a cost of O(ctx) each."""

    model: AbstractTransformer
    keys_values: tuple[Array, Array]
    index: Any
    mask: Bool[Array, " ctx"]

    def __call__(self, tgt: Points) -> AbstractLikelihood:
        """Predict targets."""
        model = self.model
        index, tokens = model.targets(tgt)
        return model.attend(tokens, self.keys_values, index=model.needs(index), ctx_index=self.index, mask=self.mask)


def self_attended(model: AbstractTransformer, ctx: Points) -> ConditionedTransformer:
    """Run the context through all blocks, where it attends to itself, and keep every block's keys and values."""
    index, mask, tokens = model.context(ctx)
    needed = model.needs(index)

    def step(tokens, block):
        keys_values = block.keys_values(tokens)
        return block(tokens, keys_values, index=needed, ctx_index=needed, mask=mask), keys_values

    _, keys_values = over_blocks(step, tokens, model.blocks)
    return ConditionedTransformer(model, keys_values, needed, mask)


@eqx.filter_jit
def drawn(
    key: Key,
    embed: tuple[tuple[str, Any], ...],
    score: Any,
    *,
    features: int,
    flag: int | None,
    embed_sizes: Sequence[int],
    depth: int,
    block: Mapping[str, Any],
    predict_sizes: Sequence[int],
    activation: Callable,
) -> tuple[TokenEmbedding, KRBlock, MLP]:
    """Embedding, blocks and prediction network of a model whose context attends to itself.

    All weights are drawn in one compilation, where drawing array by array would take one for each shape. `embed` comes
    as pairs, since a mapping would come in the order of its names.
    """
    embedding, blocks, predict = jax.random.split(key, 3)
    return (
        TokenEmbedding(dict(embed), features, flag=flag, sizes=embed_sizes, activation=activation, key=embedding),
        stacked(depth, lambda key: score, key=blocks, activation=activation, **block),
        MLP(block["dim"], predict_sizes, activation=activation, key=predict),
    )
