"""Hypothesis strategies for elements of a group and for the points that it acts on."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.groups import SO3, Cyclic, On, Permutation, Product, Scaling, factors, has_width
from bsatnp.likelihoods import AbstractHead, CategoricalHead, NegativeBinomialHead, PoissonHead
from bsatnp.testing.compare import largest
from bsatnp.testing.search import hypothesis

#: A hypothesis strategy.
Strategy: TypeAlias = Any

#: Coordinates are whole multiples of this step, so that few distances are round numbers, where hard masks have edges.
_STEP = 0.137


def keys() -> Strategy:
    """Typed PRNG keys."""
    return _st().integers(0, 2**32 - 1).map(jax.random.key)


def seeds() -> Strategy:
    """Whole numbers to make a key of inside a compiled function."""
    return _st().integers(0, 2**16)


def elements(group: Any) -> Strategy:
    """Elements of a group: the identity, the simplest, and what `group.sample` draws."""
    return _st().one_of(_st().builds(group.identity), sampled(group))


def sampled(group: Any) -> Strategy:
    """Elements that `group.sample` draws."""
    sample = jax.jit(lambda seed: group.sample(key=jax.random.key(seed)))
    return seeds().map(lambda seed: sample(np.uint32(seed)))


def points(group: Any, n: int, *, each: Any = None) -> Strategy:
    """Sets of `n` points that a group acts on, duplicates among them now and then.

    **Shapes.** `(n, dim)`, or a mapping from component names to that for a group made with `On` or `Product`.

    **Units.** Those of the group: `SO3` gets longitudes and latitudes in degrees, poles included, or unit vectors;
    `Scaling` positive numbers; `Permutation` codes as whole floats; any other group coordinates between ±5.5.

    Args:
        group: what acts on them.
        n: how many.
        each: where the points of the group are none of these: a strategy for one point `(dim,)`, or a function that
            draws `(n, dim)` given `(n, key=key)`; for whole index sets, a mapping from component names to these.

    Raises:
        ValueError: a group without an integer `dim` when `each` is None.
    """
    st = _st()
    if callable(each) and not hasattr(each, "example"):
        return seeds().map(lambda seed: each(n, key=jax.random.key(seed)))
    if isinstance(group, On | Product) and (each is None or isinstance(each, Mapping)):
        parts = {f.component: points(f.group, n, each=(each or {}).get(f.component)) for f in factors(group)}
        return st.fixed_dictionaries(parts)
    if isinstance(each, Mapping):
        return st.fixed_dictionaries({name: points(None, n, each=one) for name, one in each.items()})
    one = _one(group) if each is None else each
    return rows(one, n)


def index(groups: tuple[Any, ...], widths: Mapping[str, int], n: int, *, each: Any = None) -> Strategy:
    """Index sets of `n` points with the components that any of `groups` acts on, and those of `widths`.

    Where two groups act on one component, the first of them says what its points are.
    """
    acting: dict[str, Any] = {}
    for factor in (factor for group in groups for factor in factors(group)):
        acting.setdefault(factor.component, factor.group)
    each = each or {}
    parts = {name: points(group, n, each=each.get(name)) for name, group in acting.items()}
    for name in (set(widths) | set(each)) - set(parts):
        one = each[name] if name in each else _coordinates(widths[name])
        parts[name] = points(None, n, each=one)
    return _st().fixed_dictionaries(parts)


def values(head: AbstractHead) -> Strategy:
    """Values at one point `(out,)` that a head takes."""
    st = _st()
    if isinstance(head, CategoricalHead):
        return st.integers(0, head.classes - 1).map(lambda label: [float(label)])
    if isinstance(head, PoissonHead | NegativeBinomialHead):
        return st.lists(st.integers(0, 20).map(float), min_size=head.out, max_size=head.out)
    return _coordinates(head.out)


def raws(width: int, n: int) -> Strategy:
    """Outputs of a network `(n, width)` between ±2."""
    return rows(_st().lists(_st().integers(-15, 15), min_size=width, max_size=width).map(_multiples), n)


def rows(one: Strategy, n: int) -> Strategy:
    """`n` draws as the rows of an array, of every array of a mapping."""
    return _st().lists(one, min_size=n, max_size=n).map(_stack)


def apart(group: Any) -> Callable[[Any, Any], float]:
    """How far two sets of points are apart at most, where one point may have several names."""
    if isinstance(group, SO3 | Cyclic) and group.dim != 3:
        measure = jax.jit(jax.vmap(group.invariants))
        return lambda x, y: largest(measure(x, y)) if _finite(x, y) else np.inf
    if isinstance(group, On | Product):
        inside = {factor.component: apart(factor.group) for factor in factors(group)}
        return lambda x, y: max(inside.get(name, _difference)(x[name], y[name]) for name in x)
    return _difference


def _difference(x: Any, y: Any) -> float:
    if not _finite(x, y):
        return np.inf
    x, y = (jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree) for tree in (x, y))
    return largest(jax.tree.map(np.subtract, x, y))


def _finite(*trees: Any) -> bool:
    return all(bool(np.isfinite(np.asarray(leaf, np.float64)).all()) for leaf in jax.tree.leaves(trees))


def _one(group: Any) -> Strategy:
    """One point of a group on one component."""
    st = _st()
    if isinstance(group, SO3):
        degrees = st.tuples(st.integers(-1314, 2627), st.integers(-657, 657)).map(
            lambda p: [_STEP * p[0], min(90.0, max(-90.0, _STEP * p[1]))]
        )
        return degrees if group.dim == 2 else degrees.map(_unit_vector)
    if isinstance(group, Scaling):
        return st.lists(st.integers(1, 40), min_size=group.dim, max_size=group.dim).map(_multiples)
    if isinstance(group, Permutation):
        return st.integers(0, group.size - 1).map(lambda code: [float(code)])
    if not has_width(group):
        raise ValueError(f"`points` must say what {type(group).__name__} acts on, since it has no integer `dim`.")
    return _coordinates(int(group.dim))


def _coordinates(dim: int) -> Strategy:
    st = _st()
    return st.lists(st.integers(-40, 40), min_size=dim, max_size=dim).map(_multiples)


def _multiples(row: Any) -> Any:
    return [_STEP * i for i in row]


def _unit_vector(point: Any) -> Any:
    lon, lat = np.radians(point)
    return [float(np.cos(lat) * np.cos(lon)), float(np.cos(lat) * np.sin(lon)), float(np.sin(lat))]


def _stack(rows: Any) -> Any:
    values = [jax.tree.map(np.asarray, row) for row in rows] if isinstance(rows[0], Mapping) else rows
    if isinstance(rows[0], Mapping):
        return jax.tree.map(lambda *leaves: _device(np.stack(leaves)), *values)
    return _device(np.stack([np.asarray(row) for row in rows]))


def _device(values: np.ndarray) -> jax.Array:
    kinds = {"f": float, "i": int}
    return jnp.asarray(values, jnp.result_type(kinds.get(values.dtype.kind, values.dtype)))


def _st() -> Any:
    hypothesis()
    return importlib.import_module("hypothesis.strategies")
