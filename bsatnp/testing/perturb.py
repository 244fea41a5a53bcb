"""Small changes: of parameters, so that none of them hides anything, and of points, as rounding makes them."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import Key
from bsatnp.models.base import trainable

_Tree = TypeVar("_Tree")


def perturbed(tree: _Tree, *, scale: float = 0.1, key: Key) -> _Tree:
    """A model or bias with a normal number added to every floating parameter, see `bsatnp.models.base.trainable`.

    Symmetries must hold for any parameters. Some start at zero, or equal, and would hide that they do not.

    Args:
        tree: any pytree.
        scale: standard deviation of what is added.
        key: draws the numbers.
    """
    leaves, structure = jax.tree.flatten(tree)
    sizes = [leaf.size if eqx.is_inexact_array(leaf) else 0 for leaf in leaves]
    # one draw for all, split on the host: compiling one for each shape would take longer than the check
    noise = scale * np.asarray(jax.random.normal(key, (sum(sizes),)))
    ends = np.cumsum(sizes, dtype=int)

    def move(leaf, end):
        if not eqx.is_inexact_array(leaf):
            return leaf
        return leaf + jnp.asarray(noise[end - leaf.size : end].reshape(leaf.shape), leaf.dtype)

    moved = jax.tree.unflatten(structure, [move(leaf, end) for leaf, end in zip(leaves, ends, strict=True)])
    return eqx.combine(trainable(moved), tree)


def nudges(*sets: Any) -> list[tuple]:
    """Sets of points off by a few units of rounding, as a computation might leave them.

    Twice: rows of one number move against each other, then every row for itself. Arrays of whole numbers stay as they
    are, since they may be codes.
    """
    apart = tuple(_nudge(points, 0, (-1.0) ** i) for i, points in enumerate(sets))
    return [apart, tuple(_nudge(points, i + 1, 1.0) for i, points in enumerate(sets))]


def _nudge(points: Any, seed: int, sign: float) -> Any:
    rng = np.random.default_rng(seed)

    def move(leaf):
        values = np.asarray(leaf)
        if not jnp.issubdtype(values.dtype, jnp.floating) or (values == np.round(values)).all():
            return leaf
        step = sign * 4 * float(jnp.finfo(values.dtype).eps) * max(1.0, float(np.abs(values).max(initial=0)))
        return jnp.asarray((values + step * rng.choice([-1.0, 1.0], values.shape)).astype(values.dtype))

    return jax.tree.map(move, points)
