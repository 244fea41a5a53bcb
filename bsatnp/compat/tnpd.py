"""The authors' TNP-D."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from bsatnp.compat.blocks import block, gaussian, ordered, width
from bsatnp.compat.names import Source, template
from bsatnp.likelihoods import AbstractHead
from bsatnp.models import TNPD


def build(source: Source, *, embed: Mapping[str, Any], heads: int = 4, head: AbstractHead | None = None) -> TNPD:
    """Build a TNP-D; where the norms sit is told by whether there is one after the last block.

    Args:
        source: its arrays.
        embed: components that enter the tokens.
        heads: their number, which no array tells; the paper has 4.
        head: the likelihood.
    """
    depth = source.under("enc").count("TransformerEncoderBlock")
    encoder = source.stack([f"enc/TransformerEncoderBlock_{i}" for i in range(depth)])
    joint = source.widths("embed_s_f")
    embed, head = ordered("embed", embed), gaussian(head, source.widths("head"))
    model = template(
        lambda key: TNPD(
            embed=embed,
            head=head,
            depth=depth,
            dim=joint[-1],
            heads=heads,
            width=width(encoder),
            embed_sizes=joint[:-1],
            pre_norm=source.has("enc/norm"),
            key=key,
        )
    )
    if model.norm_out is not None:
        model = eqx.tree_at(lambda m: m.norm_out, model, source.norm(model.norm_out, "enc/norm"))
    return eqx.tree_at(
        lambda m: (m.head, m.embedding.parts, m.embedding.joint, m.blocks, m.predict),
        model,
        (
            head,
            tuple(embed.values()),
            source.mlp(model.embedding.joint, "embed_s_f"),
            block(encoder, model.blocks),
            source.network(model.predict, "head", n_out=head.raw),
        ),
    )
