"""How far two sides of a law are apart, and how far rounding may bring them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

#: What to say of gradients that are not.
NOT_FINITE = "some are not: the root of a sum of squares has none at zero, take `bsatnp.groups.safe_norm` there"


class Off(NamedTuple):
    """How far two sides of a law differ, and what rounding explains."""

    deviation: float
    allowed: float


def truth(holds: Any) -> Off:
    """A law that holds or does not, with nothing in between."""
    return Off(0.0 if bool(holds) else np.inf, 0.0)


def worst(*offs: Off) -> Off:
    """The one that exceeds what is allowed by most."""
    return max(offs, key=lambda off: off.deviation - off.allowed)


def finite(*trees: Any) -> Off:
    """Whether every number is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(trees) if leaf.dtype != jax.dtypes.float0]
    return truth(all(bool(jnp.isfinite(leaf).all()) for leaf in leaves))


def rounding(factor: float) -> float:
    """`factor` units of rounding of the default floating type."""
    return factor * float(jnp.finfo(jnp.result_type(float)).eps)


def largest(*trees: Any) -> float:
    """The largest finite magnitude in trees of arrays."""
    sizes = [0.0]
    for leaf in jax.tree.leaves(trees):
        values = np.abs(np.asarray(leaf).astype(np.float64))
        sizes.append(float(values[np.isfinite(values)].max(initial=0)))
    return max(sizes)


def differ(got: Any, expected: Any, tolerance: float, *, nudged: Sequence[Any] = ()) -> Off:
    """Compare two trees of arrays, number by number, and say where they differ most beyond what is allowed.

    Args:
        got: one side.
        expected: the other side.
        tolerance: relative to the largest of the expected numbers and 1.
        nudged: `got` computed anew from inputs that differ by rounding alone; ten times what that changes in a column
            (the last axis) is allowed.
    """
    a_leaves, b_leaves, *others = ([np.asarray(x) for x in jax.tree.leaves(tree)] for tree in (got, expected, *nudged))
    if [leaf.shape for leaf in a_leaves] != [leaf.shape for leaf in b_leaves]:
        return Off(np.inf, 0.0)
    base = tolerance * max(1.0, largest(expected))
    found = [Off(0.0, base)]
    for i, leaves in enumerate(zip(a_leaves, b_leaves, strict=True)):
        a, b = (leaf.astype(np.float64).ravel() for leaf in leaves)
        slack = np.zeros(a.shape)
        for other in others:
            c = other[i].astype(np.float64).ravel()
            slack = np.maximum(slack, np.where(np.isnan(a) | np.isnan(c), 0.0, 10 * _apart(c, a)))
        slack = _shared(slack.reshape(leaves[0].shape)).ravel()
        found += [Off(float(d), float(base + s)) for d, s in zip(_apart(a, b), slack, strict=True) if np.isfinite(s)]
    return worst(*found)


def _shared(slack: np.ndarray) -> np.ndarray:
    """The largest finite slack of each column: by accident a nudge may change one number of many by nothing."""
    if slack.ndim < 2:
        return slack
    finite = np.isfinite(slack)
    most = np.where(finite, slack, 0.0).max(tuple(range(slack.ndim - 1)), keepdims=True, initial=0.0)
    return np.where(finite, most, slack)


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distances: 0 for equal infinities, infinite for NaN on either side."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b)
    return np.where(a == b, 0.0, np.where(np.isnan(gap), np.inf, gap))
