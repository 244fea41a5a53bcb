"""Great circles and rotations of points (longitude, latitude) in degrees, on NumPy and on JAX arrays."""

from typing import Any

import numpy as np

from bsatnp._types import Array, namespace


def half_chords(p: Array, q: Array) -> tuple[Any, Any]:
    """Squared half chords from `p` to `q` (haversine) and to the antipode of `q`, both sums of squares.

    **Shapes.** `(…, 2)` and `(…, 2)` to `(…)`.
    """
    xp = namespace(p)
    lon, lat, sum_lat = (
        xp.radians(x / 2) for x in (p[..., 0] - q[..., 0], p[..., 1] - q[..., 1], p[..., 1] + q[..., 1])
    )
    level = xp.cos(xp.radians(p[..., 1])) * xp.cos(xp.radians(q[..., 1]))
    near = xp.sin(lat) ** 2 + level * xp.sin(lon) ** 2
    return near, xp.sin(sum_lat) ** 2 + level * xp.cos(lon) ** 2


def angle(near: Any, far: Any) -> Any:
    """The angle whose squared half chord is `near`, with `far` that to the antipode, up to one factor.

    **Units.** Degrees. The gradient is zero where either is zero.
    """
    xp = namespace(near)
    inside = (near > 0) & (far > 0)
    inner = 2 * xp.arctan2(xp.sqrt(xp.where(inside, near, 1)), xp.sqrt(xp.where(inside, far, 1)))
    return xp.degrees(xp.where(inside, inner, xp.where(near > 0, np.pi, 0)))


def squared_angle(near: Any, far: Any) -> Any:
    """The square of `angle`, with all derivatives where the points coincide.

    **Units.** Square degrees.
    """
    xp = namespace(near)
    both = near + far  # 0 for two vectors of zeros, as hidden rows are
    share = near / xp.where(both > 0, both, 1)  # sin² of half the angle
    small = share < 1e-3
    s = xp.where(small, share, 0)
    series = 4 * s * (1 + s * (1 / 3 + s * (8 / 45 + s * (4 / 35 + s * 128 / 1575))))  # of (2 arcsin √s)²
    return xp.where(small, series * (180 / np.pi) ** 2, angle(xp.where(small, 1, near), far) ** 2)


def turn(points: Array, matrix: Array) -> Any:
    """Rotate points by a matrix that acts on unit vectors from the left: `(…, 2)` and `(3, 3)` to `(…, 2)`."""
    xp = namespace(points)
    lon, lat = xp.radians(points[..., 0]), xp.radians(points[..., 1])
    a, b, c = xp.cos(lat) * xp.cos(lon), xp.cos(lat) * xp.sin(lon), xp.sin(lat)
    x, y, z = (matrix[i, 0] * a + matrix[i, 1] * b + matrix[i, 2] * c for i in range(3))
    return xp.degrees(xp.stack([xp.arctan2(y, x), xp.arctan2(z, xp.hypot(x, y))], -1))
