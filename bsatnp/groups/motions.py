"""Motions of flat space and of the sphere."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from bsatnp._sphere import angle, half_chords, squared_angle, turn
from bsatnp._types import Key, floating, whole, wide
from bsatnp.groups.protocol import difference, matmul, safe_norm, sum_of_squares


class Euclidean(eqx.Module):
    """Rotations, reflections and shifts of a `dim`-dimensional space.

    **Units.** The invariant is the distance, in the units of the coordinates.

    Args:
        dim: width of the component.
        scale: standard deviation of sampled shifts.
    """

    dim: int = eqx.field(static=True, default=2)
    scale: float = eqx.field(static=True, default=10.0)

    shift_invariant = True

    def __check_init__(self):
        whole("dim", self.dim)

    def sample(self, *, key: Key) -> tuple[Float[Array, "dim dim"], Float[Array, " dim"]]:
        """Draw an orthogonal matrix, uniformly, and a normal shift."""
        rotation, shift = jax.random.split(key)
        return jax.random.orthogonal(rotation, self.dim), self.scale * jax.random.normal(shift, (self.dim,))

    def identity(self) -> tuple[Float[Array, "dim dim"], Float[Array, " dim"]]:
        """The unit matrix and no shift."""
        return jnp.eye(self.dim), jnp.zeros(self.dim)

    def compose(self, g: tuple[Array, Array], h: tuple[Array, Array]) -> tuple[Array, Array]:
        """The product of two motions."""
        return matmul(g[0], h[0]), matmul(g[0], h[1]) + g[1]

    def inverse(self, g: tuple[Array, Array]) -> tuple[Array, Array]:
        """The motion back."""
        return g[0].T, -matmul(g[0].T, g[1])

    def act(self, g: tuple[Array, Array], points: Num[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Turn every point about the origin, then shift it."""
        points = floating(points)
        return matmul(points, g[0].T.astype(points.dtype)) + g[1][None].astype(points.dtype)

    def invariants(self, p: Num[Array, " dim"], q: Num[Array, " dim"]) -> Float[Array, " 1"]:
        """The distance, with a zero gradient where the points coincide."""
        return safe_norm(difference(p, q))[None]

    def squared(self, p: Num[Array, " dim"], q: Num[Array, " dim"]) -> Float[Array, ""]:
        """The squared distance."""
        return sum_of_squares(difference(p, q))


class SO3(eqx.Module):
    """Rotations of the sphere.

    **Shapes.** With `dim` 2 points are (longitude, latitude); with `dim` 3 they are unit vectors.

    **Units.** Longitude and latitude in degrees, in that order. The invariant is the great-circle angle, in degrees for
    either kind of points, accurate for neighbours and antipodes alike, where its gradient is finite.

    Args:
        dim: 2 for (longitude, latitude), 3 for unit vectors.

    Raises:
        ValueError: from `check`, latitudes beyond ±90 degrees or vectors that are not of unit length.

    **Reference.** The geodesic bias of the paper's appendix on spherical GPs.
    """

    dim: int = eqx.field(static=True, default=2)

    shift_invariant = False

    def __check_init__(self):
        if self.dim not in (2, 3):
            raise ValueError(f"`dim` must be 2 (longitude, latitude) or 3 (unit vectors), got {self.dim}.")

    def sample(self, *, key: Key) -> Float[Array, "3 3"]:
        """Draw a rotation matrix, uniformly."""
        q = jax.random.orthogonal(key, 3)
        return q * jnp.sign(jnp.linalg.det(q))

    def identity(self) -> Float[Array, "3 3"]:
        """The unit matrix."""
        return jnp.eye(3)

    def compose(self, g: Float[Array, "3 3"], h: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
        """The matrix product."""
        return matmul(g, h)

    def inverse(self, g: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
        """The transpose."""
        return g.T

    def act(self, g: Float[Array, "3 3"], points: Num[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Rotate every point; x points to longitude 0 and latitude 0, z to the north pole."""
        points = floating(points)
        if self.dim == 3:
            return matmul(points, g.T.astype(points.dtype))
        return turn(points, g.astype(points.dtype))

    def invariants(self, p: Num[Array, " dim"], q: Num[Array, " dim"]) -> Float[Array, " 1"]:
        """The great-circle angle."""
        return angle(*self._chords(p, q))[None]

    def squared(self, p: Num[Array, " dim"], q: Num[Array, " dim"]) -> Float[Array, ""]:
        """The squared great-circle angle."""
        return squared_angle(*self._chords(p, q))

    def _chords(self, p, q):
        p, q = wide(p), wide(q)
        return (sum_of_squares(p - q), sum_of_squares(p + q)) if self.dim == 3 else half_chords(p, q)

    def check(self, points: Any) -> None:
        """Raise ValueError for points that are not on the sphere."""
        values = np.asarray(points).astype(np.float64)  # on the host, where concrete points are not traced by a `jit`
        if self.dim == 2 and (most := np.abs(values[..., 1]).max(initial=0)) > 90.001:
            raise ValueError(
                "Points of `SO3` are (longitude, latitude) in degrees; the second column goes up to "
                f"{most:.6g}, beyond 90."
            )
        if self.dim == 3:
            off = np.abs(np.sum(values**2, -1) - 1).max(initial=0)
            if off > 1e-3:
                raise ValueError(f"Points of `SO3(dim=3)` must be unit vectors, got squared lengths off by {off:.3g}.")
