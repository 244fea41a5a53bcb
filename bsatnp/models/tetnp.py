"""Transformer Neural Processes whose attention is a network of invariants, in full and through pseudo-tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bsatnp._types import Index, Key, whole
from bsatnp.groups import Translation, factors
from bsatnp.layers import MLP, InvariantScore, KRBlock, TokenEmbedding, over_blocks, stacked
from bsatnp.likelihoods import AbstractHead, AbstractLikelihood, GaussianHead
from bsatnp.models.transformer import AbstractContextTransformer, AbstractTransformer, Memory, kept
from bsatnp.tasks import Points


class TETNP(AbstractContextTransformer):
    """Targets attend to the context through scores that a network makes of dot products and invariants.

    Defaults are the sizes of its authors' code, since the paper names none; with `group` a translation it is TE-TNP.
    The tokens of the context are those of its values in every block; only targets are updated.

    **Invariant under.** `group`, as long as it moves no embedded component.

    **Shapes.** The context is `(ctx, …)`, targets `(tgt, …)`; conditioning costs O(ctx), a target O(ctx) calls of the
    network in every block. Nothing of size ctx × tgt is held.

    Args:
        group: made with `On` or `Product`; the scores see a pair of points through its invariants.
        embed: components whose values enter the tokens, each with its embedding; the paper's models have none.
        head: the likelihood.
        depth: number of blocks.
        dim: width of the tokens.
        heads: number of attention heads.
        width: of queries, keys and values, all heads together.
        embed_sizes: hidden widths of the embedding network, which ends in `dim`.
        hidden: width of the hidden layer of the blocks' networks and of the first of the prediction network.
        score_sizes: widths of the hidden layers of the score network.
        key: draws the weights.

    Raises:
        ValueError: a group that does not say what it acts on, or sizes below 1.

    **Reference.** Ashman et al. (2024), Translation Equivariant Transformer Neural Processes; the paper's appendix on
    extended results.
    """

    embedding: TokenEmbedding
    norm_embedding: None
    blocks: KRBlock  # arrays carry a leading axis, one entry for each block
    norm_out: None
    predict: MLP
    head: AbstractHead

    def __init__(
        self,
        *,
        group: Any,
        embed: Mapping[str, Any] | None = None,
        head: AbstractHead | None = None,
        depth: int = 5,
        dim: int = 128,
        heads: int = 8,
        width: int = 128,
        embed_sizes: Sequence[int] = (128,),
        hidden: int = 128,
        score_sizes: Sequence[int] = (128, 128),
        key: Key,
    ):
        self.head = GaussianHead() if head is None else head
        self.embedding, (self.blocks,), self.predict = _build(
            key,
            tuple((embed or {}).items()),
            group,
            stacks=1,
            features=self.head.features,
            embed_sizes=(*embed_sizes, dim),
            depth=depth,
            block={"dim": dim, "heads": heads, "width": width, "hidden": hidden},
            score_sizes=tuple(score_sizes),
            predict_sizes=(hidden, dim, self.head.raw),
        )
        self.norm_embedding = self.norm_out = None

    def remember(self, ctx: Points, *, axis: str | None = None) -> Memory:
        """Make every block's keys and values of the context's tokens."""
        index, mask, tokens = self.context(ctx)
        index, mask, tokens = kept((self.needs(index), mask, tokens), axis)
        _, keys_values = over_blocks(lambda tokens, block: (tokens, block.keys_values(tokens)), tokens, self.blocks)
        return Memory(keys_values, index, mask)


class PTTETNP(AbstractTransformer):
    """A `TETNP` whose context and targets exchange through a few pseudo-tokens with learned places.

    Defaults are the paper's sizes (PT-TE-TNP). In every layer the pseudo-tokens attend to the context, then the context
    to the pseudo-tokens, then the targets to the pseudo-tokens. The learned places are relative to the mean place of
    the context, and all places are taken relative to it. As in the authors' model nothing attends to the context after
    its last update, whose block is there and is not used.

    **Invariant under.** Shifts of the components of `group`. Rotations are not among its symmetries even with a group
    of invariants that they keep, since the learned places do not turn with the data; `group` is therefore made of
    translations. Without any context there is no mean place: the pseudo-tokens are then not seen, and every target has
    the same prediction.

    **Shapes.** The context is `(ctx, …)`, targets `(tgt, …)`; conditioning costs O(ctx · pseudo), a target O(pseudo).

    **Units.** `reach` is in the units of the coordinates.

    Args:
        group: translations, made with `On` or `Product`.
        pseudo: number of pseudo-tokens; the paper uses 32 and 128.
        reach: standard deviation of the initial places of the pseudo-tokens about the mean of the context.
        embed: components whose values enter the tokens, each with its embedding; the paper's models have none.
        head: the likelihood.
        depth: number of layers of three blocks.
        dim: width of the tokens.
        heads: number of attention heads.
        width: of queries, keys and values, all heads together.
        embed_sizes: hidden widths of the embedding network, which ends in `dim`.
        hidden: width of the hidden layer of the blocks' networks and of the first of the prediction network.
        score_sizes: widths of the hidden layers of the score networks.
        key: draws the weights.

    Raises:
        ValueError: a group that is not of translations, no pseudo-tokens, or sizes below 1.

    **Reference.** Ashman et al. (2024), Translation Equivariant Transformer Neural Processes, the induced set
    transformer; the paper's appendix on model parameterisations.
    """

    embedding: TokenEmbedding
    norm_embedding: None
    pseudo_tokens: Float[Array, "pseudo dim"]
    places: dict[str, Float[Array, "pseudo _"]]
    pseudo_blocks: KRBlock  # pseudo-tokens attend to the context
    context_blocks: KRBlock  # the context attends to pseudo-tokens
    blocks: KRBlock  # targets attend to pseudo-tokens
    norm_out: None
    predict: MLP
    head: AbstractHead

    def __init__(
        self,
        *,
        group: Any,
        pseudo: int = 32,
        reach: float = 1.0,
        embed: Mapping[str, Any] | None = None,
        head: AbstractHead | None = None,
        depth: int = 5,
        dim: int = 128,
        heads: int = 8,
        width: int = 128,
        embed_sizes: Sequence[int] = (128,),
        hidden: int = 128,
        score_sizes: Sequence[int] = (128, 128),
        key: Key,
    ):
        acting = factors(group)
        if not acting or any(not isinstance(factor.group, Translation) for factor in acting):
            raise ValueError(f"`group` must be made of translations with `On` or `Product`, got {group}.")
        whole("pseudo", pseudo)
        networks, tokens, places = jax.random.split(key, 3)
        self.head = GaussianHead() if head is None else head
        self.embedding, stacks, self.predict = _build(
            networks,
            tuple((embed or {}).items()),
            group,
            stacks=3,
            features=self.head.features,
            embed_sizes=(*embed_sizes, dim),
            depth=depth,
            block={"dim": dim, "heads": heads, "width": width, "hidden": hidden},
            score_sizes=tuple(score_sizes),
            predict_sizes=(hidden, dim, self.head.raw),
        )
        self.pseudo_blocks, self.context_blocks, self.blocks = stacks
        self.pseudo_tokens = jax.random.normal(tokens, (pseudo, dim))
        self.places = {
            factor.component: reach * jax.random.normal(part, (pseudo, factor.group.dim))
            for factor, part in zip(acting, jax.random.split(places, len(acting)), strict=True)
        }
        self.norm_embedding = self.norm_out = None

    def condition(self, ctx: Points) -> "ConditionedPTTETNP":
        """Run the pseudo-tokens and the context through all layers; keep what targets need of the pseudo-tokens."""
        index, mask, tokens = self.context(ctx)
        origin = self._origin(index, mask)
        here = self.relative(index, origin)

        def seeing(both, block):
            pseudo, tokens = both
            return block(pseudo, block.keys_values(tokens), index=self.places, ctx_index=here, mask=mask)

        def step(both, layer):
            to_pseudo, to_context, to_targets = layer
            pseudo = seeing(both, to_pseudo)
            tokens = to_context(both[1], to_context.keys_values(pseudo), index=here, ctx_index=self.places)
            return (pseudo, tokens), to_targets.keys_values(pseudo)

        def last(both, layer):
            to_pseudo, _, to_targets = layer
            return to_targets.keys_values(seeing(both, to_pseudo))

        layers = self.pseudo_blocks, self.context_blocks, self.blocks
        _, keys_values = over_blocks(step, (self.pseudo_tokens, tokens), layers, last=last)
        return ConditionedPTTETNP(self, keys_values, origin, mask.any())

    def relative(self, index: Index, origin: Index) -> dict[str, Array]:
        """Places relative to an origin, in the type of the parameters.

        Two subtractions, so that nothing large is left to round: of one of the points, then of the mean from there.
        """
        places = {}
        for factor in (factor for group in self.groups for factor in factors(group)):
            name = factor.component
            point, mean = origin[name]
            lag = jax.vmap(factor.group.invariants, (0, None))(jnp.asarray(index[name]), point)
            places[name] = (lag - mean[None]).astype(self.pseudo_tokens.dtype)
        return places

    def _origin(self, index: Index, mask: Array) -> dict[str, tuple[Array, Array]]:
        """For every component the first context point that counts, and the mean of all from there."""
        origin = {}
        for factor in (factor for group in self.groups for factor in factors(group)):
            values = jnp.asarray(index[factor.component])
            # a row of zeros comes last, for a context of nothing
            rows = jnp.concatenate([values, jnp.zeros_like(values, shape=(1, values.shape[1]))])
            point = rows[jnp.argmax(jnp.append(mask, True))]
            lag = jax.vmap(factor.group.invariants, (0, None))(values, point)
            count = jnp.maximum(mask.sum(), 1).astype(lag.dtype)
            origin[factor.component] = point, jnp.where(mask[:, None], lag, 0).sum(0) / count
        return origin


class ConditionedPTTETNP(eqx.Module):
    """A PT-TE-TNP that has seen its context: maps targets to their distribution at a cost of O(pseudo) each."""

    model: PTTETNP
    keys_values: tuple[Array, Array]
    origin: dict[str, tuple[Array, Array]]
    seen: Bool[Array, ""]

    def __call__(self, tgt: Points) -> AbstractLikelihood:
        """Predict targets."""
        model = self.model
        index, tokens = model.targets(tgt)
        return model.attend(
            tokens,
            self.keys_values,
            index=model.relative(index, self.origin),
            ctx_index=model.places,
            mask=jnp.broadcast_to(self.seen, (len(model.pseudo_tokens),)),
        )


@eqx.filter_jit
def _build(key, embed, group, *, stacks, features, embed_sizes, depth, block, score_sizes, predict_sizes):
    """Draw all weights in one compilation; `embed` comes as pairs, whose order is kept."""
    embedding, blocks, predict = jax.random.split(key, 3)
    relu = jax.nn.relu

    def score(key):
        return InvariantScore(group, heads=block["heads"], sizes=score_sizes, key=key)

    return (
        TokenEmbedding(dict(embed), features, flag=0, sizes=embed_sizes, activation=relu, key=embedding),
        tuple(stacked(depth, score, key=key, activation=relu, **block) for key in jax.random.split(blocks, stacks)),
        MLP(block["dim"], predict_sizes, activation=relu, key=predict),
    )
