"""Groups that act on named components of an index set."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bsatnp._types import Key, wide
from bsatnp.groups.protocol import pair_invariants, sum_of_squares


class On(eqx.Module):
    """A group that acts on one named component of an index set and leaves the others alone.

    **Shapes.** Points are mappings from names to `(point, dim)`; a pair is two mappings to `(dim,)`.

    Args:
        component: the name.
        group: what acts on it.

    Raises:
        ValueError: a name that is no string, something that is no group, or one without a hash.
    """

    component: str = eqx.field(static=True)
    group: Any

    def __check_init__(self):
        if not isinstance(self.component, str):
            raise ValueError(f"`component` must be the name of a component, got {self.component!r}.")
        check_is_group(self.group)

    @property
    def shift_invariant(self) -> bool:
        """Whether a common shift of the component changes nothing."""
        return bool(getattr(self.group, "shift_invariant", False))

    def sample(self, *, key: Key) -> Any:
        """Draw an element of the group."""
        return self.group.sample(key=key)

    def identity(self) -> Any:
        """The identity of the group."""
        return self.group.identity()

    def compose(self, g: Any, h: Any) -> Any:
        """Composition in the group."""
        return self.group.compose(g, h)

    def inverse(self, g: Any) -> Any:
        """Inverse in the group."""
        return self.group.inverse(g)

    def act(self, g: Any, points: Mapping[str, Any]) -> dict[str, Any]:
        """Move the component."""
        return {**points, self.component: self.group.act(g, points[self.component])}

    def invariants(self, p: Mapping[str, Any], q: Mapping[str, Any]) -> Array:
        """The invariants of the component's pair."""
        return pair_invariants(self.group, p[self.component], q[self.component])

    def squared(self, p: Mapping[str, Any], q: Mapping[str, Any]) -> Array:
        """The squared length of the invariants of the component's pair."""
        return squared_length(self.group, p[self.component], q[self.component])


class Product(eqx.Module):
    """Independent actions on different components, such as space and time.

    **Shapes.** As `On`. Elements are tuples with one element for each factor; invariants are joined end to end.

    Args:
        factors: groups made with `On`, no two of them on the same component; a product stands for its factors.

    Raises:
        ValueError: a factor that names no component, or one that another factor has named.
    """

    factors: tuple[On, ...]

    def __init__(self, *factors: "On | Product"):
        parts = [part for one in factors for part in (one.factors if isinstance(one, Product) else (one,))]
        names = [part.component for part in parts if isinstance(part, On)]
        if not parts or len(set(names)) != len(parts):
            raise ValueError(f"`factors` must be groups `On` different components, got {names}.")
        self.factors = tuple(parts)

    def sample(self, *, key: Key) -> tuple:
        """Draw an element of every factor."""
        keys = jax.random.split(key, len(self.factors))
        return tuple(factor.sample(key=k) for factor, k in zip(self.factors, keys, strict=True))

    def identity(self) -> tuple:
        """The identities."""
        return tuple(factor.identity() for factor in self.factors)

    def compose(self, g: tuple, h: tuple) -> tuple:
        """Composition, factor by factor."""
        return tuple(f.compose(a, b) for f, a, b in zip(self.factors, g, h, strict=True))

    def inverse(self, g: tuple) -> tuple:
        """Inverses, factor by factor."""
        return tuple(f.inverse(a) for f, a in zip(self.factors, g, strict=True))

    def act(self, g: tuple, points: Mapping[str, Any]) -> dict[str, Any]:
        """Move every component by its own element."""
        for factor, element in zip(self.factors, g, strict=True):
            points = factor.act(element, points)
        return dict(points)

    def invariants(self, p: Mapping[str, Any], q: Mapping[str, Any]) -> Array:
        """The invariants of every factor, joined."""
        return jnp.concatenate([factor.invariants(p, q) for factor in self.factors])

    def squared(self, p: Mapping[str, Any], q: Mapping[str, Any]) -> Array:
        """The squared length of all invariants together."""
        parts = [factor.squared(p, q) for factor in self.factors]
        return sum(parts[1:], parts[0])


def squared_length(group: Any, p: Any, q: Any) -> Array:
    """The squared length of the invariants of one pair, in float32 or wider.

    By the group's own `squared` where it has that: a distance that is squared again has no second derivative where
    points coincide.

    Raises:
        ValueError: invariants that are no vector, or a square that is no number.
    """
    if not callable(getattr(group, "squared", None)):
        return sum_of_squares(pair_invariants(group, p, q))
    found = group.squared(p, q)
    if np.shape(found) != ():
        raise ValueError(f"`squared` of {group} must be one number, got shape {np.shape(found)}.")
    return wide(jnp.asarray(found))


def check_is_group(group: Any) -> None:
    """Raise ValueError for what has no invariants, and for what JAX cannot keep as a static part of a model."""
    if isinstance(group, type) or not callable(getattr(group, "invariants", None)):
        got = f"the class {group.__name__}" if isinstance(group, type) else repr(group)
        raise ValueError(
            f"`group` must be an object with the method `invariants`, such as `Translation(2)`, got {got}."
        )
    if not hashes(group):
        raise ValueError(f"`group` must have a hash, as with `@dataclass(frozen=True)`, got {type(group).__name__}.")


def hashes(group: Any) -> bool:
    """Whether JAX can keep a group as a static part of a model: a pytree, or something that has a hash."""
    leaves = jax.tree.leaves(group)
    if len(leaves) != 1 or leaves[0] is not group:
        return True
    try:
        hash(group)
    except TypeError:
        return False
    return True


def components(group: Any) -> tuple[str, ...]:
    """The names of the components that a group made with `On` or `Product` acts on; empty for a bare group."""
    return tuple(factor.component for factor in factors(group))


def example_point(*groups: Any) -> Any:
    """A point of ones that groups act on, `(dim,)`, or a mapping to that; None where a group does not say its width."""
    parts = [factor for group in groups for factor in factors(group)]
    acting = parts or groups
    if not all(has_width(getattr(one, "group", one)) for one in acting):
        return None
    if not parts:
        return jnp.ones(groups[0].dim) if groups else {}
    return {part.component: jnp.ones(part.group.dim) for part in parts}


def has_width(group: Any) -> bool:
    """Whether a bare group says how wide its points are, by an integer `dim`."""
    return isinstance(getattr(group, "dim", None), int | np.integer)


def factors(group: Any) -> tuple[On, ...]:
    """The `On` parts of a group made with `On` or `Product`."""
    if isinstance(group, On):
        return (group,)
    return tuple(group.factors) if isinstance(group, Product) else ()
