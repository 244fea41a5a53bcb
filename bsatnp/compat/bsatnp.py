"""Parameters of the authors' package, brought over to the models here."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from bsatnp.bias import AbstractBias, RBFNetwork, Sum
from bsatnp.groups import On
from bsatnp.likelihoods import AbstractHead, GaussianHead
from bsatnp.models import BSATNP


def from_dl4bi(
    params: Mapping[str, Any],
    *,
    groups: Mapping[str, Any],
    embed: Mapping[str, Any] | None = None,
    head: AbstractHead | None = None,
) -> BSATNP:
    """Build a BSA-TNP from the nested parameter dictionary of the authors' BSA-TNP.

    Widths, depth, heads and numbers of bases are read off the arrays; what an array does not tell is an argument.

    **Units.** Biases act on the same distances there and here: coordinates as they are, great-circle angles in degrees.

    Args:
        params: the dictionary under "params" of a `dl4bi` checkpoint.
        groups: for every component with a bias ("x", "s", "t"), the group whose distance it is of.
        embed: components that enter the tokens, in the authors' order x, s, t; as for `BSATNP`.
        head: the likelihood; Gaussian with as many outputs as the arrays have when None.

    Raises:
        ValueError: names that are missing or unknown, listed; shapes that do not fit; a bias that grows with distance.
    """
    flat = {_path(path): jnp.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(dict(params))}
    source = _Source(flat)
    depth = len({name.split("/")[0] for name in flat if name.startswith("KRBlock_")})
    if depth == 0:
        raise ValueError(f"`params` must be those of a BSA-TNP with `KRBlock_0`, got {sorted(params)}.")
    biased = sorted(name.split("/")[-1][0] for name in flat if name.startswith("KRBlock_0/") and "_bias_a" in name)
    if set(biased) != set(groups):
        raise ValueError(f"`groups` must name the components with a bias {biased}, got {sorted(groups)}.")
    weights = {name: source.stack(depth, f"attn/attn/{name}_bias_a") for name in groups}
    rates = {name: source.stack(depth, f"attn/attn/{name}_bias_b") for name in groups}
    for name, rate in rates.items():
        if bool(jnp.any(rate <= 0)):
            raise ValueError(f"The bias of '{name}' has a rate below zero and grows without bound with distance.")
    terms = [RBFNetwork(On(name, groups[name]), heads=a.shape[1], basis=a.shape[2]) for name, a in weights.items()]
    width = source.stack(depth, "attn/proj_qs/Dense_0/kernel").shape[-1]
    joint = [source.get(f"embed_all/Dense_{i}/bias").shape[0] for i in range(source.count("embed_all"))]
    predict = [source.get(f"head/Dense_{i}/bias").shape[0] for i in range(source.count("head"))]
    model = BSATNP(
        embed=embed,
        bias=_sum(terms),
        head=GaussianHead(out=predict[-1] // 2) if head is None else head,
        depth=depth,
        dim=joint[-1],
        heads=weights[biased[0]].shape[1] if biased else 4,
        width=width,
        embed_sizes=joint[:-1],
        hidden=predict[0],
        key=jax.random.key(0),
    )
    model = source.fill(model, depth)
    learned = [
        eqx.tree_at(lambda b: (b.weight, b.log_rate), term, (weights[name], jnp.log(rates[name])))
        for name, term in zip(groups, terms, strict=True)
    ]
    if learned:
        model = eqx.tree_at(lambda m: m.bias, model, _sum(learned))
    source.finish()
    return model


def _sum(terms: list[RBFNetwork]) -> AbstractBias | None:
    if len(terms) > 1:
        return Sum(*terms)
    return terms[0] if terms else None


class _Source:
    """Named arrays that know which of them were taken."""

    def __init__(self, arrays: dict[str, Any]):
        self.arrays = arrays
        self.taken: set[str] = set()

    def get(self, name: str) -> Any:
        if name not in self.arrays:
            raise ValueError(f"`params` lacks {name}; it has {sorted(self.arrays)}.")
        self.taken.add(name)
        return self.arrays[name]

    def stack(self, depth: int, name: str) -> Any:
        return jnp.stack([self.get(f"KRBlock_{i}/{name}") for i in range(depth)])

    def count(self, prefix: str) -> int:
        return len({name.split("/")[1] for name in self.arrays if name.startswith(f"{prefix}/Dense_")})

    def fill(self, model: BSATNP, depth: int) -> BSATNP:
        """Put every array but those of the biases where it belongs."""
        one, blocks = self.get, model.blocks

        def every(name):
            return self.stack(depth, name)

        def place(layer, kernel, bias):
            new = jnp.swapaxes(kernel, -1, -2), bias
            return _replace(layer, lambda x: (x.weight, x.bias), new)

        def mlp(network, name, take):
            layers = tuple(
                place(layer, take(f"{name}/Dense_{i}/kernel"), take(f"{name}/Dense_{i}/bias"))
                for i, layer in enumerate(network.layers)
            )
            return eqx.tree_at(lambda x: x.layers, network, layers)

        def norm(layer, name, take):
            new = take(f"{name}/scale"), take(f"{name}/bias")
            return _replace(layer, lambda x: (x.norm.weight, x.norm.bias), new)

        attention = blocks.attention
        for ours, theirs in {"query": "qs", "key": "ks", "value": "vs", "out": "out"}.items():
            name = f"attn/proj_{theirs}/Dense_0"
            new = place(getattr(attention, ours), every(f"{name}/kernel"), every(f"{name}/bias"))
            attention = eqx.tree_at(lambda x, ours=ours: getattr(x, ours), attention, new)
        blocks = eqx.tree_at(
            lambda b: (b.norm_attention, b.attention, b.norm_mlp, b.mlp),
            blocks,
            (
                norm(blocks.norm_attention, "norm", every),
                attention,
                norm(blocks.norm_mlp, "LayerNorm_0", every),
                mlp(blocks.mlp, "ffn", every),
            ),
        )
        model = _replace(model, lambda m: (m.embedding.flag,), (one("embed_obs/embedding"),))
        return eqx.tree_at(
            lambda m: (m.embedding.joint, m.norm_embedding, m.blocks, m.norm_out, m.predict),
            model,
            (
                mlp(model.embedding.joint, "embed_all", one),
                norm(model.norm_embedding, "LayerNorm_0", one),
                blocks,
                norm(model.norm_out, "LayerNorm_1", one),
                mlp(model.predict, "head", one),
            ),
        )

    def finish(self) -> None:
        unknown = sorted(set(self.arrays) - self.taken)
        if unknown:
            raise ValueError(f"`params` has names that a BSA-TNP does not use: {unknown}.")


def _replace(tree: Any, where: Any, new: tuple) -> Any:
    """Replace arrays by others of the same shape."""
    for old, value in zip(where(tree), new, strict=True):
        if old.shape != value.shape:
            raise ValueError(f"`params` must fit `embed` and `head`: expected shape {old.shape}, got {value.shape}.")
    return eqx.tree_at(where, tree, new)


def _path(path: Any) -> str:
    return "/".join(part.key for part in path)
