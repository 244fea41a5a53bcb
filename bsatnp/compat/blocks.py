"""Parts that the authors' architectures share."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from bsatnp.compat.names import Source
from bsatnp.layers import KRBlock
from bsatnp.likelihoods import AbstractHead, GaussianHead

#: The authors' components, in the order in which they are joined.
COMPONENTS = ("x", "s", "t")


def ordered(name: str, parts: Mapping[str, Any] | None) -> dict[str, Any]:
    """Components in the authors' order.

    Raises:
        ValueError: other components than theirs.
    """
    parts = parts or {}
    if not set(parts) <= set(COMPONENTS):
        raise ValueError(f"`{name}` must be of components among {list(COMPONENTS)}, got {sorted(parts)}.")
    return {component: parts[component] for component in COMPONENTS if component in parts}


def gaussian(head: AbstractHead | None, widths: list[int]) -> AbstractHead:
    """The head; where that is None, the Gaussian one that suits a last network of these widths."""
    return GaussianHead(out=max(1, widths[-1] // 2) if widths else 1) if head is None else head


def width(blocks: Source) -> int:
    """The width of the queries."""
    return blocks.get("attn/proj_qs/Dense_0/bias").shape[-1]


def block(source: Source, blocks: KRBlock) -> KRBlock:
    """Fill one block, or a stack of them from a stack of names: all but its score."""
    attention = blocks.attention
    names = {"query": "qs", "key": "ks", "value": "vs", "out": "out"}
    filled = [source.linear(getattr(attention, ours), f"attn/proj_{name}/Dense_0") for ours, name in names.items()]
    attention = eqx.tree_at(lambda x: [getattr(x, ours) for ours in names], attention, filled)
    return eqx.tree_at(
        lambda x: (x.norm_attention, x.attention, x.norm_mlp, x.mlp),
        blocks,
        (
            source.norm(blocks.norm_attention, "norm"),
            attention,
            source.norm(blocks.norm_mlp, "LayerNorm_0"),
            source.network(blocks.mlp, "ffn", n_out=blocks.mlp.n_out),
        ),
    )
