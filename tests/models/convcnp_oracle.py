"""A ConvCNP written out in NumPy and float64, for a batch, with full (point × grid) matrices and loops."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.layers import Identity, grid_between
from bsatnp.likelihoods import GaussianHead
from bsatnp.models import ConvCNP
from bsatnp.tasks import Points
from bsatnp.testing import perturbed

#: A plane whose points lie between −3 and 3.
PLANE = grid_between((-3.0, -3.0), (3.0, 3.0), points_per_unit=7 / 6)
MOMENTUM = 0.8


def small(grid=PLANE, *, seed=0, moved=True, **options):
    """A ConvCNP that compiles in a moment, every number of which was moved at random."""
    sizes = {"depth": 2, "dim": 4, "kernel": 3, "hidden": (6,), "length": 1.0, "momentum": MOMENTUM}
    model = ConvCNP(grid=grid, **(sizes | options), key=jax.random.key(seed))
    if not moved:
        return model
    rng = np.random.default_rng(seed)
    return eqx.tree_at(
        lambda m: [leaf for norm in m.blocks.norms for leaf in (norm.running.mean, norm.running.variance)],
        perturbed(model, key=jax.random.key(seed + 1)),
        replace_fn=lambda leaf: leaf + jnp.asarray(rng.normal(0, 0.1, leaf.shape), leaf.dtype),
    )


@functools.cache
def covariates():
    """The same with two outputs and a covariate "x"."""
    return small(head=GaussianHead(2), embed={"x": Identity(2)})


def draw(seed=0, *, batch=3, n_ctx=5, n_tgt=4, dim=2, out=1, x=0, reach=2.5):
    """A batch of points, the last two rows of every context hidden."""
    rng = np.random.default_rng(seed)

    def index(n):
        named = {"s": rng.uniform(-reach, reach, (batch, n, dim))}
        return named | ({"x": rng.normal(size=(batch, n, x))} if x else {})

    mask = np.broadcast_to(np.arange(n_ctx) < n_ctx - 2, (batch, n_ctx))
    ctx = Points(index(n_ctx), rng.normal(size=(batch, n_ctx, out)), mask=mask)
    tgt = Points(index(n_tgt), rng.normal(size=(batch, n_tgt, out)))
    return jax.tree.map(_device, (ctx, tgt))


def _device(leaf):
    return jnp.asarray(leaf, float) if leaf.dtype.kind == "f" else jnp.asarray(leaf)


def oracle(model, ctx, tgt, *, learns):
    """Raw outputs of the network; for `learns` with statistics of the batch, which come second, one for each norm."""
    model, ctx, tgt = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64) if np.asarray(leaf).dtype.kind == "f" else np.asarray(leaf),
        (model, ctx, tgt),
    )
    grid, found = model.grid, []
    axes = [a + h * np.arange(n) for a, h, n in zip(grid.lower, grid.spacing, grid.size, strict=True)]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, grid.dim)
    x = []
    for i in range(len(ctx.mask)):
        keep = ctx.mask[i]
        values = np.concatenate([ctx.f[i], *([ctx.index["x"][i]] if model.parts else [])], 1)
        x.append(_smooth(model.encoder, ctx.index["s"][i][keep], values[keep], places).reshape(*grid.size, -1))
    x = np.stack(x)
    for d in range(len(model.blocks.norms[0].scale)):
        block = jax.tree.map(lambda leaf, d=d: leaf[d], model.blocks)
        y = x
        for i in range(2):
            norm, deep, point = block.norms[i], block.depthwise[i], block.pointwise[i]
            mean, variance = norm.running.mean, norm.running.variance
            if learns:
                grid_axes = tuple(range(y.ndim - 1))
                mean, variance = y.mean(grid_axes), y.var(grid_axes)
                found.append((mean, variance))
            y = (y - mean) / np.sqrt(variance + 1e-5) * norm.scale + norm.offset
            y = _depthwise(np.maximum(y, 0), deep.weight) + deep.bias
            y = (y + x if i else y) @ point.weight.T + point.bias
        x = y
    raw = []
    for i in range(len(tgt.mask)):
        y = _smooth(model.decoder, places, x[i].reshape(len(places), -1), tgt.index["s"][i])
        y = np.concatenate([y, *([tgt.index["x"][i]] if model.parts else [])], 1)
        for layer in model.predict.layers[:-1]:
            y = np.maximum(y @ layer.weight.T + layer.bias, 0)
        raw.append(y @ model.predict.layers[-1].weight.T + model.predict.layers[-1].bias)
    return np.stack(raw), found


def _smooth(layer, points, values, places):
    square = ((places[:, None] - points[None]) ** 2).sum(-1)[..., None]
    weight = np.exp(-square / (2 * (np.exp(layer.log_length) + 1e-6) ** 2))
    channels = np.concatenate([np.ones((len(points), 1)), values], 1)
    summed = (weight * channels[None]).sum(1)
    summed[:, 1:] /= summed[:, :1] + 1e-8
    return summed @ layer.mix.weight.T + layer.mix.bias


def _depthwise(x, weight):
    """The sum over the cells of the kernel of shifted copies, zeros beyond the edges."""
    half = [n // 2 for n in weight.shape[:-1]]
    padded = np.pad(x, [(0, 0), *((h, h) for h in half), (0, 0)])
    y = np.zeros_like(x)
    for cell in itertools.product(*(range(n) for n in weight.shape[:-1])):
        window = tuple(slice(c, c + n) for c, n in zip(cell, x.shape[1:-1], strict=True))
        y += padded[(slice(None), *window)] * weight[cell]
    return y
