"""Convolutions on a grid, with normalisation by the statistics of a batch."""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float
from scipy.fft import next_fast_len

from bsatnp._types import Key, wide
from bsatnp.layers.basic import linears


class RunningStatistics(eqx.Module):
    """Means and variances of channels, followed over training by an exponential average. No optimiser moves them."""

    trained: ClassVar[bool] = False

    mean: Float[Array, "*stack dim"]
    variance: Float[Array, "*stack dim"]

    def follow(
        self,
        mean: Float[Array, " dim"],
        variance: Float[Array, " dim"],
        *,
        momentum: float,
        count: Float[Array, ""],
    ) -> "RunningStatistics":
        """Move by 1 − momentum towards the statistics of a batch, unless it counts nothing."""

        def move(old, new):
            new = lax.stop_gradient(new)
            moved = momentum * old.astype(new.dtype) + (1 - momentum) * new
            return jnp.where(count > 0, moved.astype(old.dtype), old)

        return RunningStatistics(move(self.mean, mean), move(self.variance, variance))


class BatchNorm(eqx.Module):
    """Normalisation of every channel over a grid and a batch, then a learned scale and offset.

    A call uses the running statistics, `learn` those of the batch. The variance is that of the population (a sum
    divided by its count), in the running statistics too.

    **Shapes.** `(*grid, dim)` to the same.

    Args:
        dim: number of channels.
        momentum: what the running statistics keep of themselves at each step.
        epsilon: added to variances.

    Raises:
        ValueError: a momentum below 0, or not below 1.
    """

    scale: Float[Array, "*stack dim"]
    offset: Float[Array, "*stack dim"]
    running: RunningStatistics
    momentum: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    def __init__(self, dim: int, *, momentum: float = 0.99, epsilon: float = 1e-5):
        if not 0 <= momentum < 1:
            raise ValueError(f"`momentum` must be at least 0 and below 1, got {momentum}.")
        self.scale, self.offset = jnp.ones(dim), jnp.zeros(dim)
        self.running = RunningStatistics(jnp.zeros(dim), jnp.ones(dim))
        self.momentum, self.epsilon = momentum, epsilon

    def __call__(self, x: Float[Array, "*grid dim"]) -> Float[Array, "*grid dim"]:
        """Normalise by the running statistics; no gradient reaches them."""
        mean, variance = (lax.stop_gradient(part) for part in (self.running.mean, self.running.variance))
        return self._apply(x, mean, variance)

    def learn(
        self, x: Float[Array, "*grid dim"], *, weight: Float[Array, ""], axis: str
    ) -> tuple[Float[Array, "*grid dim"], RunningStatistics]:
        """Normalise one task of a batch by the statistics of the batch; also the running statistics after it.

        Args:
            x: the grid of one task, under `jax.vmap(…, axis_name=axis)`.
            weight: 1 for a task that counts, 0 for one that is all padding.
            axis: name of the axis of the batch.
        """
        whole = wide(x)
        weight = weight.astype(whole.dtype)
        count = lax.psum(weight, axis)
        share = weight / jnp.maximum(count, 1)
        grid = tuple(range(x.ndim - 1))
        mean = lax.psum(share * whole.mean(grid), axis)
        variance = lax.psum(share * jnp.square(_minus(whole, mean)).mean(grid), axis)
        after = self.running.follow(mean, variance, momentum=self.momentum, count=count)
        return self._apply(x, mean, variance), after

    def _apply(self, x, mean, variance):
        whole = wide(x)
        mean, variance, scale, offset = (part.astype(whole.dtype) for part in (mean, variance, self.scale, self.offset))
        factor = (scale * lax.rsqrt(variance + self.epsilon))[(None,) * (x.ndim - 1)]
        return (_minus(whole, mean) * factor + offset[(None,) * (x.ndim - 1)]).astype(x.dtype)


class DepthwiseConvolution(eqx.Module):
    """A convolution of every channel with its own kernel, zeros beyond the edges of the grid.

    **Shapes.** `(*grid, dim)` to the same.

    **Invariant under.** Moves with shifts by whole cells, as far as the edges are not reached.

    Args:
        dim: number of channels.
        kernel: odd widths of the kernel, one for each axis of the grid.
        key: draws the weights.

    Raises:
        ValueError: no width, or one that is even or below 1.
    """

    weight: Float[Array, "*kernel dim"]
    bias: Float[Array, "*stack dim"]

    def __init__(self, dim: int, kernel: tuple[int, ...], *, key: Key):
        if not kernel or any(width < 1 or width % 2 == 0 for width in kernel):
            raise ValueError(f"`kernel` must be odd widths of at least 1, got {kernel}.")
        self.weight = jax.random.normal(key, (*kernel, dim)) / math.sqrt(math.prod(kernel))
        self.bias = jnp.zeros(dim)

    def __call__(self, x: Float[Array, "*grid dim"]) -> Float[Array, "*grid dim"]:
        """Convolve; on a CPU by Fourier transforms, which take a tenth of the time there."""
        y = lax.platform_dependent(x, self.weight.astype(x.dtype), cpu=by_fourier, default=by_windows)
        return y + self.bias.astype(x.dtype)[(None,) * (x.ndim - 1)]


def by_windows(x: Float[Array, "*grid dim"], weight: Float[Array, "*kernel dim"]) -> Float[Array, "*grid dim"]:
    """The convolution of the backend."""
    axes = tuple(range(1, x.ndim))
    # one input channel for each group: the kernel's axes are (*kernel, 1, dim)
    numbers = lax.ConvDimensionNumbers((0, x.ndim, *axes), (x.ndim, x.ndim - 1, *range(x.ndim - 1)), (0, x.ndim, *axes))
    return lax.conv_general_dilated(
        x[None],
        weight[..., None, :],
        (1,) * len(axes),
        "SAME",
        dimension_numbers=numbers,
        feature_group_count=x.shape[-1],
    )[0]


def by_fourier(x: Float[Array, "*grid dim"], weight: Float[Array, "*kernel dim"]) -> Float[Array, "*grid dim"]:
    """The same, as a product of Fourier transforms; what wraps around falls beyond the edges."""
    axes = tuple(range(x.ndim - 1))
    half = [width // 2 for width in weight.shape[:-1]]
    sizes: Any = [next_fast_len(size + reach) for size, reach in zip(x.shape[:-1], half, strict=True)]
    flipped = jnp.flip(wide(weight), axes)
    product = jnp.fft.rfftn(wide(x), sizes, axes) * jnp.fft.rfftn(flipped, sizes, axes)
    inside = tuple(slice(reach, reach + size) for size, reach in zip(x.shape[:-1], half, strict=True))
    return jnp.fft.irfftn(product, sizes, axes)[inside].astype(x.dtype)


class ResidualBlock(eqx.Module):
    """Two depthwise-separable convolutions, each after a normalisation and a ReLU, around a residual connection.

    The input is added before the last pointwise layer, as in the authors' model.

    **Shapes.** `(*grid, dim)` to the same.

    Args:
        dim: number of channels.
        kernel: odd widths of the kernels, one for each axis of the grid.
        momentum: of the running statistics.
        key: draws the weights.

    Raises:
        ValueError: see `BatchNorm` and `DepthwiseConvolution`.

    **Reference.** The paper's appendix on model parameterisations.
    """

    norms: tuple[BatchNorm, BatchNorm]
    depthwise: tuple[DepthwiseConvolution, DepthwiseConvolution]
    pointwise: tuple[eqx.nn.Linear, eqx.nn.Linear]

    def __init__(self, dim: int, kernel: tuple[int, ...], *, momentum: float = 0.99, key: Key):
        first, second, points = jax.random.split(key, 3)
        self.norms = (BatchNorm(dim, momentum=momentum), BatchNorm(dim, momentum=momentum))
        self.depthwise = (DepthwiseConvolution(dim, kernel, key=first), DepthwiseConvolution(dim, kernel, key=second))
        one, two = linears([(dim, dim)] * 2, key=points)
        self.pointwise = (one, two)

    def __call__(self, x: Float[Array, "*grid dim"]) -> Float[Array, "*grid dim"]:
        """Predict with the running statistics."""
        y = self._first(self.norms[0](x))
        return self._second(self.norms[1](y), x)

    def learn(
        self, x: Float[Array, "*grid dim"], *, weight: Float[Array, ""], axis: str
    ) -> tuple[Float[Array, "*grid dim"], tuple[RunningStatistics, RunningStatistics]]:
        """Predict with the statistics of the batch, see `BatchNorm`; also both norms' running statistics after it."""
        y, one = self.norms[0].learn(x, weight=weight, axis=axis)
        y, two = self.norms[1].learn(self._first(y), weight=weight, axis=axis)
        return self._second(y, x), (one, two)

    def _first(self, y):
        return pointwise(self.pointwise[0], self.depthwise[0](jax.nn.relu(y)))

    def _second(self, y, x):
        return pointwise(self.pointwise[1], self.depthwise[1](jax.nn.relu(y)) + x)


def pointwise(layer: eqx.nn.Linear, x: Float[Array, "*grid n_in"]) -> Float[Array, "*grid n_out"]:
    """A linear layer at every point of a grid."""
    return jax.vmap(layer)(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], layer.out_features)


def _minus(x, mean):
    return x - mean[(None,) * (x.ndim - 1)]
