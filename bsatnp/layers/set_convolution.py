"""Grids, and convolutions of sets of points onto them and back."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bsatnp._types import Key, real, whole, wide
from bsatnp.layers.basic import linears
from bsatnp.layers.convolution import pointwise

#: Channels that are read from a grid at once: memory grows with this number, not with that of all channels.
_CHANNELS = 16


class Grid(eqx.Module):
    """A regular grid: a product of evenly spaced axes, at a fixed place or around the context of each task.

    **Units.** Those of the component that it lies in.

    Args:
        lower: the lowest corner.
        spacing: distance of neighbours along each axis.
        size: points along each axis.
        follows: whether the grid is centred on the bounding box of each context instead of lying where `lower` says.

    Raises:
        ValueError: numbers of axes that differ, a spacing that is not positive, a size below 1.
    """

    lower: tuple[float, ...] = eqx.field(static=True)
    spacing: tuple[float, ...] = eqx.field(static=True)
    size: tuple[int, ...] = eqx.field(static=True)
    follows: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if not 0 < len(self.lower) == len(self.spacing) == len(self.size):
            raise ValueError(
                "`lower`, `spacing` and `size` must have one number for each axis, "
                f"got {len(self.lower)}, {len(self.spacing)} and {len(self.size)}."
            )
        for low, width in zip(self.lower, self.spacing, strict=True):
            real("lower", low, -math.inf)
            real("spacing", width)
        for n in self.size:
            whole("size", n)

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.size)

    @property
    def extent(self) -> tuple[float, ...]:
        """Length of each axis, from its first point to its last."""
        return tuple(width * (n - 1) for width, n in zip(self.spacing, self.size, strict=True))

    @property
    def centre(self) -> np.ndarray:
        """The middle of the grid, where it does not follow. Shape `(dim,)`, in float64."""
        return np.asarray(self.lower) + np.asarray(self.extent) / 2

    def axes(self) -> list[np.ndarray]:
        """Coordinates along each axis, relative to the middle of the grid, in float64."""
        return [width * (np.arange(n) - (n - 1) / 2) for width, n in zip(self.spacing, self.size, strict=True)]

    def density(self, length: float) -> float:
        """The sum of exp(−d² / 2 length²) over a grid without edges; at least 1."""
        return max(1.0, math.prod(math.sqrt(2 * math.pi) * length / width for width in self.spacing))

    def covering(self, lower: Sequence[float], upper: Sequence[float]) -> "Grid":
        """A grid on the same lattice, with the same spacing, that reaches from `lower` to `upper` at least.

        Where two such grids overlap their points are the same; they differ in where the edges are.

        Raises:
            ValueError: bounds that are not one pair for each axis, the lower below the upper.
        """
        _check_bounds(lower, upper, self.dim)
        first = [math.floor((a - b) / h + 1e-6) for a, b, h in zip(lower, self.lower, self.spacing, strict=True)]
        last = [math.ceil((a - b) / h - 1e-6) for a, b, h in zip(upper, self.lower, self.spacing, strict=True)]
        return Grid(
            tuple(b + h * k for b, h, k in zip(self.lower, self.spacing, first, strict=True)),
            self.spacing,
            tuple(j - i + 1 for i, j in zip(first, last, strict=True)),
            self.follows,
        )

    def following(self) -> "Grid":
        """The same grid, centred on the bounding box of each context."""
        return Grid(self.lower, self.spacing, self.size, follows=True)


def grid_between(lower: Sequence[float], upper: Sequence[float], *, points_per_unit: float) -> Grid:
    """A grid from `lower` to `upper`, both ends included, with `points_per_unit` · (upper − lower) points an axis.

    The spacing is a little wider than 1 / `points_per_unit`, since both ends are points; so the authors' grids are.

    Raises:
        ValueError: bounds that do not fit each other, or fewer than two points on an axis.
    """
    _check_bounds(lower, upper, len(lower))
    real("points_per_unit", points_per_unit)
    size = tuple(int(points_per_unit * (b - a) + 1e-9) for a, b in zip(lower, upper, strict=True))
    if min(size) < 2:
        raise ValueError(f"`points_per_unit` must give at least 2 points on every axis, got {size}.")
    spacing = tuple((b - a) / (n - 1) for a, b, n in zip(lower, upper, size, strict=True))
    return Grid(tuple(float(a) for a in lower), spacing, size)


class SetConvolution(eqx.Module):
    """Smooths values from points onto a grid, or from a grid onto points, and mixes the channels linearly.

    A channel's weights are exp(−d² / 2ℓ²) with a length ℓ of its own. The first channel is the density, the sum of
    the weights alone; the others are divided by it. On a product of axes the weights factor into one small matrix for
    each axis, so that no (grid × point) matrix is ever made.

    **Units.** Lengths are in those of the coordinates.

    Args:
        n_in: number of channels, without the density.
        n_out: number of channels after mixing.
        length: where every ℓ starts.
        density: the density to expect, by which the weights of its channel are divided at the start.
        key: draws the weights.

    Raises:
        ValueError: a length that is not positive.

    **Reference.** The paper's appendix on model parameterisations.
    """

    log_length: Float[Array, " channel"]
    mix: eqx.nn.Linear

    def __init__(self, n_in: int, n_out: int, *, length: float, density: float = 1.0, key: Key):
        if not 0 < length < math.inf:
            raise ValueError(f"`length` must be positive, got {length}.")
        self.log_length = jnp.full(n_in + 1, math.log(length))
        (mix,) = linears([(n_in + 1, n_out)], key=key)
        self.mix = eqx.tree_at(lambda layer: layer.weight, mix, mix.weight.at[:, 0].divide(density))

    def to_grid(
        self,
        axes: Sequence[np.ndarray],
        points: Float[Array, "point dim"],
        values: Float[Array, "point n_in"],
        weight: Float[Array, " point"],
    ) -> Float[Array, "*grid n_out"]:
        """Values on a product of `axes` from values at points.

        Args:
            axes: coordinates along each axis.
            points: where the values are.
            values: one column for each channel.
            weight: 1 for points that count, 0 for padding, whose values are finite.
        """
        channels = jnp.concatenate([jnp.ones_like(values[:, :1]), values], 1) * weight[:, None]
        first, *rest = _factors(axes, points, self.log_length)
        first = first * channels.T.astype(first.dtype)[:, :, None]
        names = "abdefgh"[: len(axes)]
        terms = ",".join(f"cp{name}" for name in names)
        return self._mixed(jnp.einsum(f"{terms}->c{names}", first, *rest, precision=jax.lax.Precision.HIGHEST))

    def from_grid(
        self, axes: Sequence[np.ndarray], values: Float[Array, "*grid n_in"], points: Float[Array, "point dim"]
    ) -> Float[Array, "point n_out"]:
        """Values at points from values on a product of `axes`, a few channels at a time."""
        density = jnp.prod(jnp.stack([one[0].sum(-1) for one in _factors(axes, points, self.log_length[:1])]), 0)

        @jax.checkpoint
        def smooth(channel):
            log_length, values = channel
            first, *rest = (one[0] for one in _factors(axes, points, log_length[None]))
            values = jnp.tensordot(first, values, 1, precision=jax.lax.Precision.HIGHEST)
            for one in rest:
                values = jnp.einsum("pa,pa...->p...", one, values, precision=jax.lax.Precision.HIGHEST)
            return values

        channels = jnp.moveaxis(values, -1, 0).astype(density.dtype)
        smoothed = jax.lax.map(smooth, (self.log_length[1:], channels), batch_size=_CHANNELS)
        return self._mixed(jnp.concatenate([density[None], smoothed]))

    def _mixed(self, channels: Float[Array, "channel *where"]) -> Float[Array, "*where n_out"]:
        density = channels[:1]
        normed = jnp.concatenate([density, channels[1:] / (density + 1e-8)])
        return pointwise(self.mix, jnp.moveaxis(normed, 0, -1).astype(self.mix.weight.dtype))


def _factors(axes, points, log_length) -> list[Array]:
    """Weights exp(−d² / 2ℓ²) along each axis, `(channel, point, axis)`, in float32 or wider."""
    points, length = wide(points), jnp.exp(wide(log_length)) + 1e-6
    found = []
    for number, axis in enumerate(axes):
        away = jnp.asarray(axis, points.dtype)[None, :] - points[:, number, None]
        found.append(jnp.exp(-jnp.square(away.astype(length.dtype)[None] / length[:, None, None]) / 2))
    return found


def _check_bounds(lower: Sequence[float], upper: Sequence[float], dim: int) -> None:
    if not len(lower) == len(upper) == dim > 0:
        raise ValueError(f"`lower` and `upper` must have {max(dim, 1)} numbers, got {len(lower)} and {len(upper)}.")
    if not all(-math.inf < a < b < math.inf for a, b in zip(lower, upper, strict=True)):
        raise ValueError(f"`upper` must lie above `lower` on every axis, got {tuple(lower)} and {tuple(upper)}.")
