"""The authors' BSA-TNP and SA-TNP."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from bsatnp.bias import AbstractBias, ExponentialNetwork, RBFNetwork, Sum
from bsatnp.compat.blocks import COMPONENTS, block, gaussian, ordered, width
from bsatnp.compat.names import Source, template
from bsatnp.groups import On
from bsatnp.likelihoods import AbstractHead
from bsatnp.models import BSATNP

#: Classes of bias with two numbers for each basis, which no name tells apart.
Form = type[RBFNetwork] | type[ExponentialNetwork]


def build(
    source: Source,
    *,
    groups: Mapping[str, Any] | None = None,
    forms: Mapping[str, Form] | None = None,
    embed: Mapping[str, Any] | None = None,
    heads: int | None = None,
    head: AbstractHead | None = None,
) -> BSATNP:
    """Build a BSA-TNP.

    Args:
        source: its arrays.
        groups: for every component with a bias, the group whose distance it is of.
        forms: for components whose bias is not an `RBFNetwork`, its class.
        embed: components that enter the tokens.
        heads: their number where no bias tells it; 4 as in the paper when None.
        head: the likelihood.
    """
    depth = source.count("KRBlock")
    blocks = source.stack([f"KRBlock_{i}" for i in range(depth)])
    biased = [name for name in COMPONENTS if blocks.has(f"attn/attn/{name}_bias_a")]
    acting = ordered("groups", groups)
    if biased != list(acting):
        raise ValueError(f"`groups` must name the components with a bias {biased}, got {list(acting)}.")
    if not set(forms or {}) <= set(biased):
        raise ValueError(f"`forms` must be of components with a bias {biased}, got {sorted(forms or {})}.")
    terms = [_bias(blocks, name, group, (forms or {}).get(name, RBFNetwork)) for name, group in acting.items()]
    told = {term.weight.shape[1] for term in terms} or {4 if heads is None else heads}
    if len(told) > 1 or heads not in (None, *told):
        raise ValueError(f"`heads` must be those of every bias {sorted(told)}, got {heads}.")
    joint, flag = source.widths("embed_all"), source.get("embed_obs/embedding")
    embed, head, n_heads = ordered("embed", embed), gaussian(head, source.widths("head")), told.pop()
    model = template(
        lambda key: BSATNP(
            embed=embed,
            bias=jax.tree.map(lambda x: x[0], _sum(terms)),
            head=head,
            depth=depth,
            dim=joint[-1],
            heads=n_heads,
            width=width(blocks),
            flag=flag.shape[-1],
            embed_sizes=joint[:-1],
            key=key,
        )
    )
    if terms:
        model = eqx.tree_at(lambda m: m.bias, model, _sum(terms))
    return eqx.tree_at(
        lambda m: (
            m.head,
            m.embedding.parts,
            m.embedding.flag,
            m.embedding.joint,
            m.norm_embedding,
            m.blocks,
            m.norm_out,
            m.predict,
        ),
        model,
        (
            head,
            tuple(embed.values()),
            flag,
            source.mlp(model.embedding.joint, "embed_all"),
            source.norm(model.norm_embedding, "LayerNorm_0"),
            block(blocks, model.blocks),
            source.norm(model.norm_out, "LayerNorm_1"),
            source.network(model.predict, "head", n_out=head.raw),
        ),
    )


def _bias(blocks: Source, name: str, group: Any, form: Form) -> RBFNetwork | ExponentialNetwork:
    """The bias of one component, with a leading axis for the blocks."""
    weight, rate = (blocks.get(f"attn/attn/{name}_bias_{letter}") for letter in "ab")
    if bool(jnp.any(rate <= 0)):
        raise ValueError(f"`params` must give the bias of '{name}' rates above zero, got {float(rate.min())}.")
    if weight.ndim != 3 or weight.shape != rate.shape:
        raise ValueError(f"`params` must give the bias of '{name}' shape (head, basis), got {weight.shape[1:]}.")
    term = form(On(name, group), heads=weight.shape[1], basis=weight.shape[2])
    return eqx.tree_at(lambda b: (b.weight, b.log_rate), term, (weight, jnp.log(rate)))


def _sum(terms: list[Any]) -> AbstractBias | None:
    if len(terms) > 1:
        return Sum(*terms)
    return terms[0] if terms else None
