"""Parameters of the authors' ConvCNP."""

from typing import Any

import equinox as eqx
import jax

from bsatnp.compat.blocks import gaussian
from bsatnp.compat.names import Source, replace
from bsatnp.layers import Grid
from bsatnp.likelihoods import AbstractHead
from bsatnp.models import ConvCNP


def build(source: Source, *, grid: Grid | None = None, head: AbstractHead | None = None) -> ConvCNP:
    """A ConvCNP from its named arrays, "batch_stats" among them; see `from_dl4bi`.

    Raises:
        ValueError: names that are missing, shapes that do not fit.
    """
    depth = source.under("conv_net").count("ConvCNPBlock")
    predict = source.widths("head")
    *kernel, _, dim = source.get("conv_net/ConvCNPBlock_0/Conv_0/kernel").shape
    if len(set(kernel)) != 1:
        raise ValueError(f"`params` must have kernels of one width along every axis, got {tuple(kernel)}.")
    model = ConvCNP(
        grid=grid,
        head=gaussian(head, predict),
        depth=depth,
        dim=dim,
        kernel=kernel[0],
        hidden=tuple(predict[:-1]),
        key=jax.random.key(0),
    )
    blocks = [f"ConvCNPBlock_{i}" for i in range(depth)]
    learned = source.stack([f"conv_net/{block}" for block in blocks])
    followed = source.stack([f"batch_stats/conv_net/{block}" for block in blocks])
    return eqx.tree_at(
        lambda m: (m.encoder, m.blocks, m.decoder, m.predict),
        model,
        (
            _set_convolution(model.encoder, source, "enc"),
            _blocks(model.blocks, learned, followed),
            _set_convolution(model.decoder, source, "dec"),
            source.mlp(model.predict, "head"),
        ),
    )


def _set_convolution(layer: Any, source: Source, name: str) -> Any:
    layer = replace(layer, lambda x: (x.log_length,), (source.get(f"{name}/log_lengthscale"),))
    return eqx.tree_at(lambda x: x.mix, layer, source.linear(layer.mix, f"{name}/Dense_0"))


def _blocks(blocks: Any, learned: Source, followed: Source) -> Any:
    for i in range(2):
        depthwise, pointwise, norm = f"Conv_{2 * i}", f"Conv_{2 * i + 1}", f"BatchNorm_{i}"
        blocks = replace(
            blocks,
            lambda b, i=i: (
                b.depthwise[i].weight,
                b.depthwise[i].bias,
                b.pointwise[i].weight,
                b.pointwise[i].bias,
                b.norms[i].scale,
                b.norms[i].offset,
                b.norms[i].running.mean,
                b.norms[i].running.variance,
            ),
            (
                learned.get(f"{depthwise}/kernel").squeeze(-2),
                learned.get(f"{depthwise}/bias"),
                _matrix(learned.get(f"{pointwise}/kernel")),
                learned.get(f"{pointwise}/bias"),
                learned.get(f"{norm}/scale"),
                learned.get(f"{norm}/bias"),
                followed.get(f"{norm}/mean"),
                followed.get(f"{norm}/var"),
            ),
        )
    return blocks


def _matrix(kernels: Any) -> Any:
    """Stacked kernels of one cell, `(block, 1, …, 1, in, out)`, as matrices `(block, out, in)`."""
    return kernels.reshape(kernels.shape[0], *kernels.shape[-2:]).swapaxes(-1, -2)
