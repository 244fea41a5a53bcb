"""What the transformer models share: tokens, stacked blocks over kept keys and values, a prediction network."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
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
        if score is None:
            return ()
        return jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, score.groups)  # blocks are stacked, all alike

    def check(self, points: Points) -> None:
        """Say what is wrong with points, and with a head that was put in the place of another."""
        fits, has = (self.embedding.features, self.predict.n_out), (self.head.features, self.head.raw)
        if fits != has:
            raise ValueError(
                f"`head` must have (features, raw) = {fits}, for which the networks were made, got "
                f"{type(self.head).__name__} with {has}."
            )
        super().check(points)

    def needs(self, index: Index) -> Index | None:
        """The components that attention looks at; None for none."""
        score = self.blocks.attention.score
        return None if score is None else score.needs(index)

    def context(self, ctx: Points) -> tuple[Index, Bool[Array, " ctx"], Float[Array, "ctx dim"]]:
        """Index set, mask and tokens of the context; nothing is left of what a masked row held."""
        mask = jnp.asarray(ctx.usable)
        index = clean(self.seen(ctx), mask)
        values = jnp.where(mask[:, None], self.head.encode(ctx.f), 0)
        return index, mask, self.normed(self.embedding(index, values, observed=True))

    def targets(self, tgt: Points) -> tuple[Index, Float[Array, "tgt dim"]]:
        """Index set and tokens of targets, whose values are not known."""
        index = clean(self.seen(tgt), jnp.asarray(tgt.mask))
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
        axis: str | None = None,
    ) -> AbstractLikelihood:
        """Let targets attend to the keys and values of every block, and predict them."""

        def step(tokens, block, keys_values):
            return block(tokens, keys_values, index=index, ctx_index=ctx_index, mask=mask, axis=axis), None

        tokens, _ = over_blocks(step, tokens, self.blocks, keys_values)
        return self.head(self.predict(tokens if self.norm_out is None else self.norm_out(tokens)))


class AbstractContextTransformer(AbstractTransformer):
    """A transformer whose targets attend to the tokens of the context, point by point."""

    @abc.abstractmethod
    def remember(self, ctx: Points, *, axis: str | None = None) -> "Memory":
        """Every block's keys and values of the context.

        Args:
            ctx: the context.
            axis: a mapped axis whose devices each keep their own part of the context, all of the same length; None for
                all of it.
        """

    def condition(self, ctx: Points) -> "ConditionedTransformer":
        """Make and keep every block's keys and values of the context."""
        return ConditionedTransformer(self, self.remember(ctx))

    def condition_over(self, ctx: Points, mesh: jax.sharding.Mesh, axis: str) -> "ConditionedTransformer":
        """`condition` with the keys and values spread over the devices along an axis of a mesh.

        Raises:
            ValueError: context points that the devices cannot share evenly.
        """
        if len(ctx) % mesh.shape[axis]:
            raise ValueError(
                f"`ctx` must have a multiple of {mesh.shape[axis]} points for the devices along '{axis}', got "
                f"{len(ctx)}; add masked ones with `Points.pad`."
            )
        arrays, static = eqx.partition((self, ctx), eqx.is_array)

        def local(arrays):
            model, ctx = eqx.combine(arrays, static)
            return model.remember(ctx, axis=axis)

        spread = jax.shard_map(local, mesh=mesh, in_specs=P(), out_specs=Memory.specs(axis), check_vma=False)
        return ConditionedTransformer(self, spread(arrays), axis)


class Memory(eqx.Module):
    """What targets need of the context: every block's keys and values, and the points they belong to.

    **Shapes.** Keys and values are `(block, head, ctx, dim)`, leaves of `index` `(ctx, dim)`.
    """

    keys_values: tuple[Array, Array]
    index: Any
    mask: Bool[Array, " ctx"]

    @staticmethod
    def specs(axis: str | None) -> "Memory":
        """How its arrays lie on a mesh when the context is spread over an axis."""
        points = P(None, None, axis)
        return Memory((points, points), P(axis), P(axis))  # pyright: ignore[reportArgumentType]


class ConditionedTransformer(eqx.Module):
    """A model that has seen its context: maps targets to their distribution at a cost of O(ctx) each.

    With `axis` the context is spread over that axis of a mesh, and it is to be called inside `jax.shard_map`.
    """

    model: AbstractContextTransformer
    memory: Memory
    axis: str | None = eqx.field(static=True, default=None)

    def specs(self) -> "ConditionedTransformer":
        """How its arrays lie on a mesh."""
        return ConditionedTransformer(P(), Memory.specs(self.axis), self.axis)  # pyright: ignore[reportArgumentType]

    def __call__(self, tgt: Points) -> AbstractLikelihood:
        """Predict targets."""
        index, tokens = self.model.targets(tgt)
        return self.model.attend(
            tokens,
            self.memory.keys_values,
            index=self.model.needs(index),
            ctx_index=self.memory.index,
            mask=self.memory.mask,
            axis=self.axis,
        )


def self_attended(model: AbstractTransformer, ctx: Points, axis: str | None) -> Memory:
    """Run the context through the blocks, where it attends to itself, and keep every block's keys and values.

    With `axis` every device updates all tokens, from the keys that it keeps and what the others found with theirs.
    """
    index, mask, tokens = model.context(ctx)
    needed = model.needs(index)
    mine, here = kept((needed, mask), axis)

    def keep(tokens, block):
        return block.keys_values(kept(tokens, axis))

    def step(tokens, block):
        keys_values = keep(tokens, block)
        return block(tokens, keys_values, index=needed, ctx_index=mine, mask=here, axis=axis), keys_values

    _, keys_values = over_blocks(step, tokens, model.blocks, last=keep)
    return Memory(keys_values, mine, here)


def kept(tree: Any, axis: str | None) -> Any:
    """Of every leaf's first axis the part that this device keeps; all of it where `axis` is None."""
    if axis is None:
        return tree
    size = jax.lax.axis_size(axis)

    def part(x):
        rows = len(x) // size
        return jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(axis) * rows, rows)

    return jax.tree.map(part, tree)


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
