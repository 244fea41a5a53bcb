"""The Biased Scan Attention Transformer Neural Process."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax

from bsatnp._types import Key
from bsatnp.bias import AbstractBias
from bsatnp.groups import components, example_point, has_width
from bsatnp.layers import MLP, AdditiveScore, KRBlock, LayerNorm, TokenEmbedding
from bsatnp.likelihoods import AbstractHead, GaussianHead
from bsatnp.models.transformer import AbstractContextTransformer, Memory, drawn, self_attended
from bsatnp.tasks import Points


class BSATNP(AbstractContextTransformer):
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
        flag: width of the learned embedding that tells context from targets.
        embed_sizes: hidden widths of the joint embedding network, which ends in `dim`.
        hidden: width of the hidden layer of the blocks' networks and of the prediction network.
        key: draws the weights.

    Raises:
        ValueError: sizes below 1, a bias that is none or acts on no component, or whose heads do not fit.

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
        flag: int = 4,
        embed_sizes: Sequence[int] = (256, 128),
        hidden: int = 256,
        key: Key,
    ):
        self.head = GaussianHead() if head is None else head
        if bias is not None:
            _check_bias(bias, heads)
        self.embedding, self.blocks, self.predict = drawn(
            key,
            tuple((embed or {}).items()),
            None if bias is None else AdditiveScore(bias),
            features=self.head.features,
            flag=flag,
            embed_sizes=(*embed_sizes, dim),
            depth=depth,
            block={"dim": dim, "heads": heads, "width": width, "hidden": hidden},
            predict_sizes=(hidden, dim, self.head.raw),
            activation=jax.nn.gelu,
        )
        self.norm_embedding = LayerNorm(dim)
        self.norm_out = LayerNorm(dim)

    @property
    def bias(self) -> AbstractBias | None:
        """The learned bias; its arrays carry a leading axis, one entry for each block."""
        score = self.blocks.attention.score
        return None if score is None else score.bias

    def remember(self, ctx: Points, *, axis: str | None = None) -> Memory:
        """Run the context through the blocks and keep every block's keys and values."""
        return self_attended(self, ctx, axis)


def _check_bias(bias: Any, heads: int) -> None:
    """Raise ValueError for what is no bias of index sets with that many heads, as far as its groups tell."""
    if not isinstance(bias, AbstractBias):
        raise ValueError(f"`bias` must be a bias, such as those of `bsatnp.bias`, got {type(bias).__name__}.")
    for group in bias.groups:
        if not components(group) and has_width(group):
            raise ValueError(
                f'`bias` must act on a component of the points, as with `On("s", group)`, got {type(group).__name__}.'
            )
    point = example_point(*bias.groups)
    if point is None:
        return
    try:
        found = eqx.filter_eval_shape(bias, point, point).shape[0]
    except KeyError as missing:
        raise ValueError(
            f"`bias` must look at the components of its groups alone, {sorted(point)}, got one that needs {missing}; "
            "what one group moves together goes into one component, column beside column."
        ) from None
    if found not in (1, heads):
        raise ValueError(f"`bias` must give {heads} heads, or one score for all of them, got {found}.")
