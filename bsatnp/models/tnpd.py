"""The Transformer Neural Process with independent outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from bsatnp._types import Key
from bsatnp.layers import MLP, KRBlock, LayerNorm, TokenEmbedding
from bsatnp.likelihoods import AbstractHead, GaussianHead
from bsatnp.models.transformer import AbstractContextTransformer, Memory, drawn, self_attended
from bsatnp.tasks import Points


class TNPD(AbstractContextTransformer):
    """Embedded locations and values in a stack of encoder blocks that attend to the context, and a likelihood head.

    Defaults are the paper's sizes. Context and targets attend to the context alone, so the context's keys and values
    are made once, where the authors of TNP-D mask a matrix of all pairs.

    **Invariant under.** No group that moves an embedded component: it sees their values. The order of the context does
    not matter, and targets do not see one another.

    **Shapes.** The context is `(ctx, …)`, targets `(tgt, …)`; conditioning costs O(ctx²), a target O(ctx).

    Args:
        embed: components that enter the tokens, each with its embedding (`Identity`, `MLP`).
        head: the likelihood.
        depth: number of blocks.
        dim: width of the tokens.
        heads: number of attention heads.
        width: of queries, keys and values, all heads together.
        embed_sizes: hidden widths of the joint embedding network, which ends in `dim`.
        hidden: width of the hidden layer of the blocks' networks and of the prediction network.
        pre_norm: whether norms come before attention and networks, and after the last block; the paper does so on two
            of its benchmarks, where the original, norms after the residual connections, did not learn.
        key: draws the weights.

    Raises:
        ValueError: no component to embed, or sizes below 1.

    **Reference.** Nguyen and Grover (2022), Transformer Neural Processes; the paper's appendix on model
    parameterisations.
    """

    embedding: TokenEmbedding
    norm_embedding: None
    blocks: KRBlock  # arrays carry a leading axis, one entry for each block
    norm_out: LayerNorm | None
    predict: MLP
    head: AbstractHead

    def __init__(
        self,
        *,
        embed: Mapping[str, Any],
        head: AbstractHead | None = None,
        depth: int = 6,
        dim: int = 64,
        heads: int = 4,
        width: int = 128,
        embed_sizes: Sequence[int] = (256, 128),
        hidden: int = 256,
        pre_norm: bool = False,
        key: Key,
    ):
        if not embed:
            raise ValueError("`embed` must name at least one component, got none.")
        self.head = GaussianHead() if head is None else head
        self.embedding, self.blocks, self.predict = drawn(
            key,
            tuple(embed.items()),
            None,
            features=self.head.features,
            flag=None,
            embed_sizes=(*embed_sizes, dim),
            depth=depth,
            block={"dim": dim, "heads": heads, "width": width, "hidden": hidden, "pre_norm": pre_norm},
            predict_sizes=(hidden, dim, self.head.raw),
            activation=jax.nn.relu,
        )
        self.norm_embedding = None
        self.norm_out = LayerNorm(dim) if pre_norm else None

    def remember(self, ctx: Points, *, axis: str | None = None) -> Memory:
        """Run the context through the blocks and keep every block's keys and values."""
        return self_attended(self, ctx, axis)
