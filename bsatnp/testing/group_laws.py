"""The laws of a group: its elements, its action, its invariants."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.groups import Group, On, hashes, pair_invariants, squared_length
from bsatnp.testing import strategies
from bsatnp.testing.compare import NOT_FINITE, Off, differ, finite, largest, rounding, truth, worst
from bsatnp.testing.perturb import nudges
from bsatnp.testing.search import LawError, compiles, hold, name

_NAMES = "where one point has several names, as on a circle, do not wrap them in `act`, or give `apart`"
_METHODS = ("sample", "identity", "compose", "inverse", "act", "invariants")


def check_group(
    group: Any,
    *,
    points: Any = None,
    elements: Any = None,
    apart: Callable[[Any, Any], Any] | None = None,
    n: int = 4,
    examples: int = 25,
    tolerance: float | None = None,
) -> None:
    """Check that a group is one, that it acts, and that its invariants are invariant.

    The laws: the group is an object with a hash, and holds no trainable arrays; elements go through jit and vmap; `act`
    keeps shape and type of the points; some of the elements that `sample` draws move some of the points, and its keys
    do not all give the same; `compose`,
    `inverse` and `identity` give elements of one shape; the identity moves nothing; `inverse(g)` undoes g; `compose(g,
    h)` acts as h, then g; `invariants` is a vector that `act` does not change, with finite gradients even where points
    coincide, and `squared`, where the group has that, their squared length; `check` accepts moved points; where the
    group says `shift_invariant`, adding a vector to both points changes nothing. That the invariants tell apart all
    pairs that no element maps onto each other is for you to prove.

    What a group does far beyond the points drawn, ±5.5, is not seen: pass `points` in the units of your data.

    Args:
        group: what to check, see `bsatnp.groups.Group`.
        points: a strategy or a sampler of points, see `bsatnp.testing.points`.
        elements: a strategy of elements, `bsatnp.testing.elements(group)` when None.
        apart: gives the largest distance of two sets of points, for coordinates in which one point has several names
            such as longitudes; the largest difference of coordinates when None, the angle for `SO3` and `Cyclic`.
        n: number of points in a set.
        examples: number of cases tried for each law.
        tolerance: relative to the largest number in sight; 100 units of rounding when None.

    Raises:
        LawError: a law does not hold.
        ValueError: points cannot be drawn without `points`.
    """
    what = name(group)
    missing = [method for method in _METHODS if not callable(getattr(group, method, None))]
    if isinstance(group, type):
        raise LawError(what, "a group is an object", {}, np.inf, 0.0, f"{what} is a class")
    if not hashes(group):
        why = "make it a `@dataclass(frozen=True)`, or a class that is no dataclass"
        raise LawError(what, "a group has a hash", {}, np.inf, 0.0, why)
    if missing or not isinstance(group, Group):
        raise LawError(what, f"a group has methods {', '.join(_METHODS)}", {"missing": missing}, np.inf, 0.0)
    trained = [leaf for leaf in jax.tree.leaves(group) if eqx.is_inexact_array(leaf)]
    if trained:
        raise LawError(what, "a group holds no arrays, which training would move", {"arrays": trained}, np.inf, 0.0)
    tolerance = rounding(100.0) if tolerance is None else tolerance
    x = strategies.points(group, n, each=points)
    g = strategies.elements(group) if elements is None else elements
    drawn = strategies.sampled(group) if elements is None else elements
    distance = strategies.apart(group) if apart is None else apart
    act = jax.jit(group.act)
    invariants = jax.jit(jax.vmap(group.invariants))
    slope = jax.jit(jax.vmap(jax.grad(lambda p, q: group.invariants(p, q).sum(), (0, 1), allow_int=True)))

    def law(says: str, off: Callable[..., Off], *, why: Callable[..., str] = lambda **case: "", **draws: Any) -> None:
        hold(what, says, draws, off, examples=examples, why=why)

    def same(a: Any, b: Any, *others: Any) -> Off:
        return Off(float(distance(a, b)), tolerance * max(1.0, largest(a, b, others)))

    def lifted(g, h, x):
        plain = group.act(g, x), group.act(h, x)
        both = jax.tree.map(lambda a, b: jnp.stack([a, b]), g, h)
        mapped = jax.vmap(group.act, (0, None))(both, x)
        rows = [jax.tree.map(lambda leaf, i=i: leaf[i], mapped) for i in range(2)]
        return worst(same(act(g, x), plain[0]), same(rows[0], plain[0]), same(rows[1], plain[1]))

    moved = False

    def closed(g, x):
        nonlocal moved
        after = act(g, x)
        kept = jax.tree.map(_kind, after) == jax.tree.map(_kind, x)
        moved = moved or kept and not float(distance(after, x)) <= tolerance * max(1.0, largest(x))
        return truth(kept)

    def shaped(g, h):
        made = group.compose(g, h), group.inverse(g), group.identity()
        return truth(all(_shapes(one) == _shapes(g) for one in made))

    def undone(g, x):
        moved = act(g, x)
        return same(act(group.inverse(g), moved), x, moved)

    def composed(g, h, x):
        first = act(h, x)
        return same(act(group.compose(g, h), x), act(g, first), first)

    def squared(p, q):
        own = jax.vmap(partial(squared_length, group))
        return differ(own(p, q), jnp.sum(invariants(p, q) ** 2, -1), tolerance)

    def kept(g, p, q):
        return _change(invariants, (p, q), (act(g, p), act(g, q)), tolerance)

    def unshifted(p, q, by):
        return _change(invariants, (p, q), (_plus(group, p, by), _plus(group, q, by)), tolerance)

    def smooth(p, q):
        return finite(slope(p, q), slope(p, p))

    def no_vector(p, q):
        return _no_vector(group, p, q)

    law("compose, inverse and identity give elements of one shape", shaped, g=drawn, h=drawn)
    through = "elements go through jit and vmap"
    compiles(what, through, lambda: law(through, lifted, g=g, h=g, x=x))
    law("act keeps the shape and the type of points", closed, g=g, x=x)
    if not moved:
        raise LawError(what, "sample draws elements that move points", {}, np.inf, 0.0, "none did")
    if elements is None and _one_for_all(group):
        raise LawError(
            what, "keys of sample give different elements", {}, np.inf, 0.0, "20 of them gave one and the same"
        )
    law("the identity moves nothing", lambda x: same(act(group.identity(), x), x), why=lambda x: _NAMES, x=x)
    law("inverse(g) undoes g", undone, g=g, x=x)
    law("compose(g, h) acts as h, then g", composed, g=g, h=g, x=x)
    law("invariants of a pair are a vector", lambda p, q: truth(not _no_vector(group, p, q)), why=no_vector, p=x, q=x)
    law("act does not change invariants", kept, g=g, p=x, q=x)
    law("gradients of invariants are finite", smooth, why=lambda p, q: NOT_FINITE, p=x, q=x)
    law("squared is the squared length of invariants", squared, p=x, q=x)
    if hasattr(group, "check"):
        law("check accepts moved points", lambda g, x: truth(_accepts(group, act(g, x))), g=g, x=x)
    if getattr(group, "shift_invariant", False):
        law("a shift_invariant group ignores a common shift", unshifted, p=x, q=x, by=x)


def _one_for_all(group: Any) -> bool:
    """Whether `sample` gives one element, whatever its key; of two elements twenty keys hardly ever miss one."""
    sample = jax.jit(lambda seed: group.sample(key=jax.random.key(seed)))
    first, *others = ([np.asarray(x) for x in jax.tree.leaves(sample(np.uint32(seed)))] for seed in range(20))
    return all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def _no_vector(group: Any, p: Any, q: Any) -> str:
    """What is wrong with the shape of the invariants; nothing when empty."""
    p, q = (jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x) for x in (p, q))
    try:
        eqx.filter_eval_shape(lambda p, q: pair_invariants(group, p, q), p, q)
    except ValueError as error:
        return str(error).rstrip(".")
    return ""


def _change(value: Callable[..., Any], before: tuple, after: tuple, tolerance: float) -> Off:
    """How much `value` differs after a motion, beyond what rounding of the moved points explains."""
    nudged = [value(*points) for points in nudges(*after)]
    return differ(value(*after), value(*before), tolerance, nudged=nudged)


def _plus(group: Any, points: Any, by: Any) -> Any:
    """Points with the first row of `by` added, to the component that a group made with `On` acts on."""
    if isinstance(group, On):
        return {**points, group.component: points[group.component] + by[group.component][:1]}
    return jax.tree.map(lambda a, b: a + b[:1], points, by)


def _accepts(group: Any, points: Any) -> bool:
    try:
        group.check(jax.tree.map(np.asarray, points))
    except ValueError:
        return False
    return True


def _kind(leaf: Any) -> tuple:
    return tuple(leaf.shape), str(leaf.dtype)


def _shapes(element: Any) -> tuple:
    return jax.tree.structure(element), [np.shape(leaf) for leaf in jax.tree.leaves(element)]
