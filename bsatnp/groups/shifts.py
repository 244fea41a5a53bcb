"""Shifts of space, of time, of a phase."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from bsatnp._types import Key, namespace, whole
from bsatnp.groups.protocol import difference, shifted


class Translation(eqx.Module):
    """Shifts of a `dim`-dimensional space.

    **Units.** Elements and invariants are in the units of the coordinates.

    Args:
        dim: width of the component.
        scale: standard deviation of sampled shifts.
    """

    dim: int = eqx.field(static=True, default=1)
    scale: float = eqx.field(static=True, default=10.0)

    shift_invariant = True

    def __check_init__(self):
        whole("dim", self.dim)

    def sample(self, *, key: Key) -> Float[Array, " dim"]:
        """Draw a normal shift."""
        return self.scale * jax.random.normal(key, (self.dim,))

    def identity(self) -> Float[Array, " dim"]:
        """The zero shift."""
        return jnp.zeros(self.dim)

    def compose(self, g: Float[Array, " dim"], h: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The sum of two shifts."""
        return g + h

    def inverse(self, g: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The opposite shift."""
        return -g

    def act(self, g: Float[Array, " dim"], points: Num[Array, "point dim"]) -> Float[Array, "point dim"]:
        """Add the shift to every point."""
        return shifted(points, g)

    def invariants(self, p: Num[Array, " dim"], q: Num[Array, " dim"]) -> Float[Array, " dim"]:
        """The difference p − q."""
        return difference(p, q)


def TimeShift(scale: float = 10.0) -> Translation:
    """Shifts in time: translations of a component of width 1.

    The invariant is the signed lag p − q, positive where `q` lies before `p`.

    **Units.** Those of the time component.

    Args:
        scale: standard deviation of sampled shifts.
    """
    return Translation(1, scale)


class Cyclic(eqx.Module):
    """Shifts of a phase, such as the hour of the day (period 24) or the day of the year.

    **Units.** Those of the component. The invariant is the chord of the phase difference, (sin θ, 1 − cos θ) scaled by
    period / 2π: smooth, complete, and as long as the plain difference where that is small.

    Args:
        period: after which the phase comes back.
    """

    period: float = eqx.field(static=True)

    shift_invariant = True
    dim = 1

    def __check_init__(self):
        if not 0 < self.period < float("inf"):
            raise ValueError(f"`period` must be positive, got {self.period}.")

    def sample(self, *, key: Key) -> Float[Array, " 1"]:
        """Draw a phase shift, uniformly."""
        return jax.random.uniform(key, (1,), maxval=self.period)

    def identity(self) -> Float[Array, " 1"]:
        """No shift."""
        return jnp.zeros(1)

    def compose(self, g: Float[Array, " 1"], h: Float[Array, " 1"]) -> Float[Array, " 1"]:
        """The sum within one period."""
        return jnp.mod(g + h, self.period)

    def inverse(self, g: Float[Array, " 1"]) -> Float[Array, " 1"]:
        """The opposite shift within one period."""
        return jnp.mod(-g, self.period)

    def act(self, g: Float[Array, " 1"], points: Num[Array, "point 1"]) -> Float[Array, "point 1"]:
        """Add the shift and come back into one period."""
        moved = shifted(points, g)
        return namespace(moved).mod(moved, self.period)

    def invariants(self, p: Num[Array, " 1"], q: Num[Array, " 1"]) -> Float[Array, " 2"]:
        """The chord of the phase difference."""
        half = difference(p, q) * (jnp.pi / self.period)
        radius = self.period / jnp.pi
        return jnp.concatenate([jnp.sin(half) * jnp.cos(half), jnp.sin(half) ** 2]) * radius
