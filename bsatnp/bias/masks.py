"""Hard masks: nothing, or −inf."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bsatnp._types import wide
from bsatnp.bias.interface import AbstractGroupBias
from bsatnp.groups import components, example_point
from bsatnp.groups.protocol import safe_norm


class Causal(AbstractGroupBias):
    """Nothing for keys at or before the query in time, −inf for later ones.

    **Shapes.** The group must bring a single signed invariant, query minus key, as `TimeShift` does.

    **Invariant under.** The group.

    Args:
        group: brings the invariant.

    Raises:
        ValueError: a group whose invariant has no sign, such as a distance; from a call, several invariants.
    """

    group: Any

    def __check_init__(self):
        if not all(_signed(self.group, point) for point in _points(self.group)):
            raise ValueError(
                "`group` must bring a signed invariant, query minus key as `TimeShift` does, got "
                f"{self.group}: the future would pass."
            )

    def __call__(self, p: Any, q: Any) -> Float[Array, " 1"]:
        """Scores of one pair, query first."""
        lag = self.invariants(p, q)
        if lag.shape != (1,):
            raise ValueError(f"`Causal` needs a group with one signed invariant, got invariants of shape {lag.shape}.")
        return jnp.where(lag >= 0, 0.0, -jnp.inf)


def _points(group: Any) -> list[Any]:
    """Points of ones to try a group on, of several widths where it does not say its own."""
    point = example_point(group)
    if point is not None:
        return [point]
    names = components(group)
    return [{name: jnp.ones(n) for name in names} if names else jnp.ones(n) for n in (1, 2, 3)]


def _signed(group: Any, point: Any) -> bool:
    """Whether a later query has a positive lag and an earlier one not, or the group does not take such points."""
    later = jax.tree.map(lambda leaf: 2 * leaf, point)
    with jax.ensure_compile_time_eval():
        try:
            after, before = group.invariants(later, point), group.invariants(point, later)
            return after.shape != (1,) or before.shape != (1,) or bool((before[0] < 0) & (after[0] >= 0))
        except Exception:
            return True


class Window(AbstractGroupBias):
    """Nothing for pairs at most `width` apart, −inf beyond.

    **Units.** `width` is in the units of the invariants.

    **Invariant under.** The group.

    Args:
        group: brings the invariants.
        width: the largest length of the invariants that is let through.

    Raises:
        ValueError: a width that is not positive.
    """

    group: Any
    width: float = eqx.field(static=True)

    def __check_init__(self):
        if not self.width > 0:
            raise ValueError(f"`width` must be positive, got {self.width}.")

    def __call__(self, p: Any, q: Any) -> Float[Array, " 1"]:
        """Scores of one pair, query first."""
        return jnp.where(safe_norm(wide(self.invariants(p, q))) <= self.width, 0.0, -jnp.inf)[None]
