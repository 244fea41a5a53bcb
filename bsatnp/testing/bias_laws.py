"""The laws of a bias."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.bias import AbstractBias
from bsatnp.groups import factors
from bsatnp.testing import strategies
from bsatnp.testing.compare import NOT_FINITE, Off, differ, finite, rounding, truth
from bsatnp.testing.perturb import nudges, perturbed
from bsatnp.testing.search import hold, name


def check_bias(
    bias: AbstractBias,
    group: Any = None,
    *,
    points: Any = None,
    elements: Any = None,
    n: int = 3,
    examples: int = 25,
    tolerance: float | None = None,
) -> None:
    """Check that a bias is invariant under a group, with any parameters.

    The laws: a pair of points gives floating scores `(head,)`; `tile` gives the scores of all pairs; the scores stay
    the same when both points are moved by one element; gradients are finite, where points coincide too. Every array of
    the bias is first moved at random, so that parameters which start at zero hide nothing.

    What a bias does at lengths much larger than the points drawn, ±5.5, is not seen: pass `points` in the units of your
    data.

    Args:
        bias: what to check, on bare points or on whole index sets.
        group: acts on the points; each of `bias.groups` in turn when None.
        points: a strategy or a sampler of points, see `bsatnp.testing.points`.
        elements: a strategy of elements, `bsatnp.testing.elements(group)` when None.
        n: number of points in a set.
        examples: number of cases tried for each law.
        tolerance: relative to the largest score; 300 units of rounding when None.

    Raises:
        LawError: a law does not hold.
        ValueError: points cannot be drawn without `points`; no group to check.
    """
    if group is None:
        if not bias.groups:
            raise ValueError(f"`group` must be given, since `groups` of {name(bias)} is empty.")
        for one in bias.groups:
            check_bias(bias, one, points=points, elements=elements, n=n, examples=examples, tolerance=tolerance)
        return
    what = f"{name(bias)} under {name(group)}"
    tolerance = rounding(300.0) if tolerance is None else tolerance
    if any(factors(one) for one in (group, *bias.groups)):
        x = strategies.index((group, *bias.groups), {}, n, each=points)
    else:
        x = strategies.points(group, n, each=points)
    g = strategies.elements(group) if elements is None else elements
    act = jax.jit(group.act)

    @functools.cache
    def moved(seed: int) -> Any:
        return perturbed(bias, key=jax.random.key(seed))

    def law(says: str, off: Callable[..., Off], *, why: str = "", **draws: Any) -> None:
        def at(seed, **case):
            return off(moved(seed), **case)

        draws = {"seed": strategies.seeds(), **draws}
        hold(what, says, draws, at, examples=examples, why=lambda **case: why)

    def shaped(bias, p, q):
        score = _pair(bias, _row(p, 0), _row(q, 0))
        return truth(score.ndim == 1 and jnp.issubdtype(score.dtype, jnp.floating))

    def tiled(bias, p, q):
        each = [[_pair(bias, _row(p, i), _row(q, j)) for j in range(n)] for i in range(n)]
        return differ(_tile(bias, p, q), np.moveaxis(np.asarray(each), -1, 0), tolerance)

    def kept(bias, g, p, q):
        after = act(g, p), act(g, q)
        return differ(
            _tile(bias, *after), _tile(bias, p, q), tolerance, nudged=[_tile(bias, *both) for both in nudges(*after)]
        )

    def smooth(bias, p, q):
        return finite(_slope((bias, p, q)), _slope((bias, p, p)))

    law("a pair of points gives floating scores (head,)", shaped, p=x, q=x)
    law("tile gives the scores of all pairs", tiled, p=x, q=x)
    law("bias(g·p, g·q) = bias(p, q)", kept, g=g, p=x, q=x)
    law("gradients are finite", smooth, why=NOT_FINITE, p=x, q=x)


def _row(points: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[i], points)  # on the host: slicing on the device would compile


@eqx.filter_jit
def _pair(bias: Any, p: Any, q: Any) -> Any:
    return bias(p, q)


@eqx.filter_jit
def _tile(bias: Any, p: Any, q: Any) -> Any:
    return bias.tile(p, q)


@eqx.filter_jit
@eqx.filter_grad
def _slope(arguments: tuple) -> Any:
    """The sum of finite scores; hard masks give −inf."""
    bias, p, q = arguments
    scores = bias.tile(p, q)
    return jnp.where(jnp.isfinite(scores), scores, jnp.zeros_like(scores)).sum()
