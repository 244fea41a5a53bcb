"""The interface of a group, and what the groups here share."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from bsatnp._types import Key, floating, is_traced, wide


@runtime_checkable
class Group(Protocol):
    """What a symmetry has to offer. Any class with these methods is a group; no base class is needed.

    Elements are arrays or pytrees of arrays. A group whose invariants do not change when the same vector is added to
    both points may say so with an attribute `shift_invariant = True`: large coordinates are then centred without loss.
    A group that accepts only some points may offer `check(points)`, which raises ValueError. One whose invariants have
    no second derivative where points coincide, as a distance has none, may offer their squared length,
    `squared(p, q)`, which has one.
    """

    def sample(self, *, key: Key) -> Any:
        """Draw an element at random."""
        ...

    def identity(self) -> Any:
        """The element that moves nothing."""
        ...

    def compose(self, g: Any, h: Any) -> Any:
        """The element that acts as `h` first and `g` second."""
        ...

    def inverse(self, g: Any) -> Any:
        """The element that undoes `g`."""
        ...

    def act(self, g: Any, points: Any) -> Any:
        """Move points: `(point, dim)` to `(point, dim)`."""
        ...

    def invariants(self, p: Any, q: Any) -> Array:
        """What the action leaves unchanged of one pair of points: a vector.

        Biases of its length take it for a distance, and so want zero where the points coincide.
        """
        ...


def pair_invariants(group: Any, p: Any, q: Any) -> Array:
    """The invariants of one pair of points under a group, query first.

    Raises:
        ValueError: they are no vector.
    """
    found = group.invariants(p, q)
    shape = getattr(found, "shape", None)
    if shape is None or len(shape) != 1:
        got = type(found).__name__ if shape is None else f"shape {shape}"
        raise ValueError(f"`invariants` of {group} must be a vector, such as `distance[None]`, got {got}.")
    return found


def sum_of_squares(x: Array) -> Array:
    """The squared length of a vector, in float32 or wider."""
    # one by one: a sum over a short last axis is not vectorised
    squares = [wide(x[i]) ** 2 for i in range(x.shape[0])]
    return sum(squares[1:], squares[0])


def shifted(points: Any, g: Any) -> Any:
    """Points plus an element of a group of shifts, on the host where both are known there."""
    points = floating(points)
    if isinstance(points, np.ndarray) and not is_traced(g):
        g = np.asarray(g)
    return points + g[None].astype(points.dtype)


def difference(p: Num[Array, " dim"], q: Num[Array, " dim"]) -> Float[Array, " dim"]:
    """P − q in float32 or wider; integers and booleans are subtracted exactly first where that cannot wrap."""
    rough = wide(p) - wide(q)
    if any(jnp.issubdtype(x.dtype, jnp.inexact) for x in (p, q)):
        return rough
    exact = (p.astype(int) - q.astype(int)).astype(float)
    return jnp.where(jnp.abs(rough) < 2.0**30, exact, rough)


def safe_sqrt(square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Square root with a zero gradient at zero."""
    inside = square > 0
    return jnp.where(inside, jnp.sqrt(jnp.where(inside, square, 1)), 0)


def safe_norm(x: Float[Array, " dim"]) -> Float[Array, ""]:
    """Euclidean length with a zero gradient at zero, in float32 or wider: squares of half floats overflow at 256."""
    return safe_sqrt(jnp.sum(wide(x) ** 2))


def matmul(a: Array, b: Array) -> Array:
    """Product of matrices in full precision on every backend."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
