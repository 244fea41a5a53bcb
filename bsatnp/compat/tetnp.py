"""The authors' TE-TNP and PT-TE-TNP."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.compat.blocks import block, gaussian, ordered, width
from bsatnp.compat.names import Source, replace, template
from bsatnp.groups import On, Product
from bsatnp.layers import MLP, KRBlock
from bsatnp.likelihoods import AbstractHead
from bsatnp.models import PTTETNP, TETNP


def build(source: Source, *, groups: Mapping[str, Any], head: AbstractHead | None = None) -> TETNP | PTTETNP:
    """Build a TE-TNP, or a PT-TE-TNP where there are pseudo-tokens.

    Args:
        source: its arrays.
        groups: for every component, the group whose invariants the scores see.
        head: the likelihood.
    """
    acting = [On(name, group) for name, group in ordered("groups", groups).items()]
    if not acting:
        raise ValueError("`groups` must name at least one component, got none.")
    count = source.under("encoder").count("TEBlock")
    pseudo = source.has("encoder/pseudo_tokens")
    roles = 3 if pseudo else 1
    stacks = [source.stack([f"encoder/TEBlock_{i}" for i in range(role, count, roles)]) for role in range(roles)]
    joint, score = source.widths("embed_f"), stacks[0].widths("attn/kernel")
    group, head = acting[0] if len(acting) == 1 else Product(*acting), gaussian(head, source.widths("decoder"))
    sizes = {
        "group": group,
        "head": head,
        "depth": count // roles,
        "dim": joint[-1],
        "heads": score[-1],
        "width": width(stacks[0]),
        "embed_sizes": joint[:-1],
        "score_sizes": score[:-1],
    }
    if not pseudo:
        model = template(lambda key: TETNP(**sizes, key=key))
        model = eqx.tree_at(lambda m: m.blocks, model, _block(stacks[0], model.blocks, group))
    else:
        sets = source.get("encoder/pseudo_tokens"), source.get("encoder/pseudo_locs")
        if any(len(part) != 1 for part in sets):
            raise ValueError(f"`params` must hold one set of pseudo-tokens, got shapes {[p.shape for p in sets]}.")
        tokens, places = (part[0] for part in sets)
        model = template(lambda key: PTTETNP(pseudo=len(tokens), **sizes, key=key))
        ends = np.cumsum([place.shape[1] for place in (model.places[factor.component] for factor in acting)])
        parts = jnp.split(places, ends[:-1].tolist(), axis=1)
        model = replace(
            model,
            lambda m: (m.pseudo_tokens, *(m.places[factor.component] for factor in acting)),
            (tokens, *parts),
        )
        filled = [_block(stack, getattr(model, name), group) for stack, name in zip(stacks, _ROLES, strict=True)]
        model = eqx.tree_at(lambda m: [getattr(m, name) for name in _ROLES], model, filled)
    return eqx.tree_at(
        lambda m: (m.head, m.embedding.joint, m.predict),
        model,
        (
            head,
            _embedding(source, model.embedding.joint),
            source.network(model.predict, "decoder", n_out=head.raw),
        ),
    )


#: Fields of `PTTETNP`, in the order of the authors' blocks in a layer.
_ROLES = ("pseudo_blocks", "context_blocks", "blocks")


def _block(source: Source, blocks: KRBlock, group: Any) -> KRBlock:
    """Fill a stack of blocks, their scores too: the networks, and what arrays the group may have, once for each."""
    blocks = block(source, blocks)
    network = source.mlp(blocks.attention.score.network, "attn/kernel")
    arrays, static = eqx.partition(group, eqx.is_array)
    depth = len(network.layers[0].weight)
    arrays = jax.tree.map(lambda x: jnp.broadcast_to(x, (depth, *x.shape)), arrays)
    score = lambda b: (b.attention.score.network, b.attention.score.group)  # noqa: E731
    return eqx.tree_at(score, blocks, (network, eqx.combine(arrays, static)))


def _embedding(source: Source, joint: MLP) -> MLP:
    """The embedding network; the observed flag comes last there and first here."""
    joint = source.mlp(joint, "embed_f")
    turned = jnp.roll(joint.layers[0].weight, 1, axis=1)
    return eqx.tree_at(lambda m: m.layers[0].weight, joint, turned)
