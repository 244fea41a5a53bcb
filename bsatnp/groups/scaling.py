"""Changes of unit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from bsatnp._types import Key, floating, whole, wide


class Scaling(eqx.Module):
    """Changes of unit: each coordinate is multiplied by a positive factor of its own.

    **Units.** None: the invariants are logarithms of ratios.

    Args:
        dim: width of the component, all of whose values must be positive.
        scale: standard deviation of the logarithm of sampled factors.

    Raises:
        ValueError: from `check`, values that are not positive.
    """

    dim: int = eqx.field(static=True, default=1)
    scale: float = eqx.field(static=True, default=1.0)

    shift_invariant = False

    def __check_init__(self):
        whole("dim", self.dim)

    def sample(self, *, key: Key) -> Float[Array, " dim"]:
        """Draw log-normal factors."""
        return jnp.exp(self.scale * jax.random.normal(key, (self.dim,)))

    def identity(self) -> Float[Array, " dim"]:
        """Factors of one."""
        return jnp.ones(self.dim)

    def compose(self, g: Float[Array, " dim"], h: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The product of the factors."""
        return g * h

    def inverse(self, g: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The reciprocal factors."""
        return 1 / g

    def act(self, g: Float[Array, " dim"], points: Num[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Multiply every point."""
        points = floating(points)
        return points * g[None].astype(points.dtype)

    def invariants(self, p: Num[Array, " dim"], q: Num[Array, " dim"]) -> Float[Array, " dim"]:
        """Log p − log q."""
        return _safe_log(wide(p)) - _safe_log(wide(q))

    def check(self, points: Any) -> None:
        """Raise ValueError for values that are not positive."""
        least = np.asarray(points).astype(np.float64).min(initial=np.inf)
        if least <= 0:
            raise ValueError(f"Points of `Scaling` must be positive, got {least:.6g}.")


def _safe_log(x: Num[Array, " dim"]) -> Float[Array, " dim"]:
    """Logarithm that stays finite, gradient too, where padding is zero."""
    positive = x > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1)), 0)
