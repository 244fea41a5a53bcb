"""The laws of a model."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from bsatnp.groups import factors
from bsatnp.models import AbstractModel
from bsatnp.tasks import Points
from bsatnp.testing import strategies
from bsatnp.testing.compare import Off, differ, finite, rounding, truth
from bsatnp.testing.perturb import nudges, perturbed
from bsatnp.testing.search import compiles, hold, name


def check_model(
    model: AbstractModel,
    group: Any = None,
    *,
    sets: bool = True,
    points: Any = None,
    elements: Any = None,
    values: Any = None,
    n_ctx: int = 5,
    n_tgt: int = 3,
    examples: int = 25,
    tolerance: float | None = None,
) -> None:
    """Check that a model's predictions are invariant under a group, and that it treats points as sets.

    The laws: moving context and targets by one element changes no parameter of the likelihood (mean and std alike);
    and, for `sets`: what `condition` gives goes through jit; a common shift of each component that the model calls
    `shift_invariant`, and which `predict` therefore centres, does not matter; the order of the context does not matter;
    targets come in the caller's order and do not see one another; padding of context and targets does not matter,
    whatever it holds; a row without an observed value is no context; predictions and the gradient of the log-likelihood
    are finite, where points coincide and without any context too. Every parameter is first moved at random, so that
    those which start at zero hide nothing.

    Args:
        model: what to check.
        group: made with `On` or `Product`; None for the laws of sets alone, when nothing but shifts is tried of the
            groups that the model claims.
        sets: whether to check what does not depend on the group.
        points: components to strategies or samplers of their points, see `bsatnp.testing.points`.
        elements: a strategy of elements, `bsatnp.testing.elements(group)` when None.
        values: a strategy for the values at one point, `(out,)`; what the model's head takes when None.
        n_ctx: number of context points.
        n_tgt: number of targets.
        examples: number of cases tried for each law.
        tolerance: relative to the largest parameter of the likelihood; 300 units of rounding when None.

    Raises:
        LawError: a law does not hold.
        ValueError: points cannot be drawn without `points`, or `group` acts on bare points.
    """
    if group is not None and not factors(group) and points is None:
        raise ValueError(
            f'`group` must act on components of an index set, as `On("s", group)` does, got {name(group)}.'
        )
    what = name(model) if group is None else f"{name(model)} under {name(group)}"
    tolerance = rounding(300.0) if tolerance is None else tolerance
    groups = tuple(model.groups) if group is None else (group, *model.groups)
    x, y = (strategies.index(groups, model.embedded, n, each=points) for n in (n_ctx, n_tgt))
    one = strategies.values(model.head) if values is None else values
    f, f_tgt = strategies.rows(one, n_ctx), strategies.rows(one, n_tgt)

    @functools.cache
    def moved(seed: int) -> Any:
        return perturbed(model, key=jax.random.key(seed))

    def law(says: str, off: Callable[..., Off], **draws: Any) -> None:
        def at(seed, ctx, f, tgt, **case):
            return off(moved(seed), ctx, f, tgt, **case)

        draws = {"seed": strategies.seeds(), "ctx": x, "f": f, "tgt": y, **draws}
        hold(what, says, draws, at, examples=examples)

    if group is not None:
        act = jax.jit(group.act)

        def kept(model, ctx, f, tgt, g):
            after = act(g, ctx), act(g, tgt)
            got, *nudged = (_predict(model, c, f, t) for c, t in (after, *nudges(*after)))
            return differ(got, _predict(model, ctx, f, tgt), tolerance, nudged=nudged)

        law(
            "model(g·ctx, g·tgt) = model(ctx, tgt)",
            kept,
            g=strategies.elements(group) if elements is None else elements,
        )
    if not sets:
        return

    def answered(model, ctx, f, tgt):
        _predict(model, ctx, f, tgt)
        return truth(True)  # noqa: FBT003

    def unshifted(model, ctx, f, tgt, by):
        after = [{n: x + by[n][:1] if n in movable else x for n, x in points.items()} for points in (ctx, tgt)]
        got, *nudged = (_predict(model, c, f, t) for c, t in (after, *nudges(*after)))
        return differ(got, _predict(model, ctx, f, tgt), tolerance, nudged=nudged)

    def unordered(model, ctx, f, tgt):
        return differ(_predict(model, _flip(ctx), f[::-1], tgt), _predict(model, ctx, f, tgt), tolerance)

    def ordered(model, ctx, f, tgt):
        got, expected = _predict(model, ctx, f, _roll(tgt)), _predict(model, ctx, f, tgt)
        return differ(got, _roll(expected), tolerance)

    def alone(model, ctx, f, tgt):
        first = jax.tree.map(lambda leaf: leaf[:1], tgt)
        return differ(_predict(model, ctx, f, first), [leaf[:1] for leaf in _predict(model, ctx, f, tgt)], tolerance)

    def padded(model, ctx, f, tgt):
        longer, rubbish, more = jax.tree.map(lambda leaf: jnp.concatenate([leaf, _rubbish(leaf)]), (ctx, f, tgt))
        mask, wanted = (jnp.arange(n + 2) < n for n in (n_ctx, n_tgt))
        got = _predict(model, longer, rubbish, more, mask=mask, wanted=wanted)
        return differ([leaf[:n_tgt] for leaf in got], _predict(model, ctx, f, tgt), tolerance)

    def missing(model, ctx, f, tgt):
        first = jnp.arange(n_ctx) == 0
        observed = jnp.ones(f.shape, bool).at[0, 0].set(False)
        return differ(
            _predict(model, ctx, f, tgt, observed=observed), _predict(model, ctx, f, tgt, mask=~first), tolerance
        )

    nothing = jnp.zeros(n_ctx, bool)

    def prior(model, ctx, f, tgt, f_tgt):
        return finite(_predict(model, ctx, f, tgt, mask=nothing), _slope((model, ctx, tgt), f, f_tgt, nothing))

    def smooth(model, ctx, f, tgt, f_tgt):
        twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf[:1], leaf[:1], leaf[2:]]), ctx)
        met = jax.tree.map(lambda a, b: jnp.concatenate([a[:1], b[1:]]), ctx, tgt)
        return finite(_slope((model, twice, met), f, f_tgt, ~nothing))

    through = "what `condition` gives goes through jit"
    compiles(what, through, lambda: law(through, answered))
    if movable := model.shift_invariant:
        law(f"a common shift of {' or '.join(map(repr, sorted(movable)))} does not matter", unshifted, by=x)
    law("the order of the context does not matter", unordered)
    law("targets come in the caller's order", ordered)
    law("targets do not see one another", alone)
    law("padding does not matter", padded)
    law("a row without an observed value is no context", missing)
    law("without context predictions and gradients are finite", prior, f_tgt=f_tgt)
    law("gradients are finite", smooth, f_tgt=f_tgt)


def _predict(
    model: Any, ctx: Any, f: Any, tgt: Any, *, mask: Any = None, observed: Any = None, wanted: Any = None
) -> Any:
    """The arrays of the likelihood. All rows and values count where nothing else is said, in one compilation."""
    mask = jnp.ones(f.shape[:1], bool) if mask is None else mask
    observed = jnp.ones(f.shape, bool) if observed is None else observed
    wanted = jnp.ones(len(jax.tree.leaves(tgt)[0]), bool) if wanted is None else wanted
    conditioned = _conditioned(model, Points(ctx, f, mask=mask, observed=observed))
    return _answer(conditioned, Points(tgt, mask=wanted))


@eqx.filter_jit
def _conditioned(model: Any, ctx: Points) -> Any:
    return model.condition(ctx)


@eqx.filter_jit
def _answer(conditioned: Any, tgt: Points) -> Any:
    return jax.tree.leaves(conditioned(tgt))


@eqx.filter_jit
@eqx.filter_grad
def _slope(arguments: tuple, f: Any, f_tgt: Any, mask: Any) -> Any:
    model, ctx, tgt = arguments
    return model(Points(ctx, f, mask=mask), Points(tgt)).log_prob(f_tgt).sum()


def _flip(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[::-1], tree)


def _roll(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.roll(leaf, 1, 0), tree)


def _rubbish(leaf: Any) -> Any:
    """Two rows of what padding may hold: NaN and infinity, the first row for codes."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.repeat(leaf[:1], 2, 0)
    return jnp.stack([jnp.full_like(leaf[0], jnp.nan), jnp.full_like(leaf[0], jnp.inf)])
