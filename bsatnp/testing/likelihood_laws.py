"""The laws of a likelihood and its head."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.likelihoods import AbstractHead, AbstractLikelihood
from bsatnp.testing import strategies
from bsatnp.testing.compare import Off, differ, finite, rounding, truth, worst
from bsatnp.testing.search import LawError, hold, name

#: What a likelihood answers, at values `f` where it takes some.
_ANSWERS: dict[str, Callable[[Any, Any], Any]] = {
    "log_prob": lambda pred, f: pred.log_prob(f),
    "mean": lambda pred, f: pred.mean,
    "std": lambda pred, f: pred.std,
    "variance": lambda pred, f: pred.variance,
    "cdf": lambda pred, f: pred.cdf(f),
    "quantile": lambda pred, f: pred.quantile(0.5),
    "covers": lambda pred, f: pred.covers(f, 0.4),
    "crps": lambda pred, f: pred.crps(f),
    "sample": lambda pred, f: pred.sample(key=jax.random.key(0)),
}

#: Probabilities of the quantiles that are looked at. The second and the fourth are the ends of what `covers` tries.
_PROBABILITIES = (0.1, 0.3, 0.5, 0.7, 0.9)
#: Values at which a likelihood is asked at once, always as many so that each answer is compiled once.
_MANY = 20
_DRAWS = 1000
#: How many standard errors of the mean of draws are allowed.
_ERRORS = 6.0


def check_likelihood(head: AbstractHead, *, n: int = 3, examples: int = 25, tolerance: float | None = None) -> None:
    """Check that a head and its likelihood keep what `AbstractHead` and `AbstractLikelihood` promise.

    The laws: parameters have axes `(…, tgt, out)`, and so has every result; `check` takes what `sample` draws, and
    `encode` makes `features` finite numbers of it; log probabilities and their gradients are finite, beside a missing
    value too, in whose place `masked` puts parameters of 1; `cdf` rises between 0 and 1; `quantile(p)` is where `cdf`
    reaches p; `log_prob` is what `cdf` says: its slope, or for counts (`head.fixed` holds 0 and 1) its steps at whole
    numbers; `covers` holds between two quantiles; draws follow `cdf`, have the `mean` and the `crps`, and spread no
    farther than `std` says (an `std` that is too large could be the mark of rare large values); `variance` is the
    square of `std`. What raises `NotImplementedError` is left out.

    Outputs of a network are tried between ±2, as they are at the start of training.

    Args:
        head: what to check, together with the likelihood that it makes.
        n: number of targets.
        examples: number of cases tried for each law.
        tolerance: of probabilities; 300 units of rounding when None.

    Raises:
        LawError: a law does not hold.
    """
    pred = eqx.filter_eval_shape(head, jnp.zeros((n, head.raw)))
    if not isinstance(pred, AbstractLikelihood):
        raise LawError(name(head), "a head makes a likelihood", {}, np.inf, 0.0, f"it makes {type(pred).__name__}")
    what = f"{type(pred).__name__} of {name(head)}"
    defined = _shaped(what, head, (n,)) & _shaped(what, head, (2, n))
    tolerance = rounding(300.0) if tolerance is None else tolerance

    def law(says: str, off: Callable[..., Off], *needs: str) -> None:
        if defined >= set(needs):
            hold(what, says, {"raw": strategies.raws(head.raw, n), "seed": strategies.seeds()}, off, examples=examples)

    def taken(raw, seed):
        f = _draws(head, raw, seed)[0]
        head.check(f)
        code = head.encode(f)
        return worst(truth(code.shape == (n, head.features)), finite(code))

    def smooth(raw, seed):
        return finite(_scored(head, raw, _draws(head, raw, seed)[0]))

    def missing(raw, seed):
        return finite(_without_first(head, raw, _draws(head, raw, seed)[0]))

    def rises(raw, seed):
        p = _at(head, raw, "cdf", np.sort(_draws(head, raw, seed)[:_MANY], 0))
        return Off(float(max(0.0, -np.diff(p, axis=0).min(), -p.min(), p.max() - 1)), tolerance)

    def reached(raw, seed):
        ends, step = _ends(head, raw)
        p = np.array(_PROBABILITIES)[:, None, None]
        below, _, _, above = np.split(_at(head, raw, "cdf", np.concatenate([ends - step, ends, ends, ends + step])), 4)
        return Off(float(max(0.0, (below - p).max(), (p - above).max())), tolerance)

    def steps(raw, seed):
        f = _draws(head, raw, seed)[:_MANY]
        step = _at(head, raw, "cdf", f) - _at(head, raw, "cdf", f - 1)
        return differ(np.exp(_at(head, raw, "log_prob", f)), step, tolerance)

    def slope(raw, seed):
        ends, _ = _ends(head, raw)
        at, weights = (x[:, None, None] for x in np.polynomial.legendre.leggauss(_MANY // (len(ends) - 1)))
        half = np.diff(ends, axis=0)[:, None] / 2
        inside = (ends[:-1] + ends[1:])[:, None] / 2 + half * at
        density = np.exp(_at(head, raw, "log_prob", inside.reshape(_MANY, *ends.shape[1:]))).reshape(inside.shape)
        return differ((density * half * weights).sum(1), np.diff(_cdf_at(head, raw, ends), axis=0), 1e-2 + tolerance)

    def covered(raw, seed):
        f = _draws(head, raw, seed)[:_MANY]
        ends, step = _ends(head, raw)
        inside, reach = ((f >= ends[1] + s) & (f <= ends[3] - s) for s in (step, -step))
        holds = _at(head, raw, "covers", f) > 0
        return truth(holds[inside].all() and not holds[~reach].any())

    def follows(raw, seed):
        ends, step = _ends(head, raw)
        share = (_draws(head, raw, seed)[None] <= (ends + step)[:, None]).mean(1)
        return Off(float(np.abs(share - _cdf_at(head, raw, ends + step)).max()), _ERRORS / 2 / _DRAWS**0.5)

    def centred(raw, seed):
        draws = _draws(head, raw, seed)
        return _mean_of(draws, _at(head, raw, "mean", draws[:_MANY])[0])

    def spread(raw, seed):
        draws = _draws(head, raw, seed)
        mean, std = (_at(head, raw, answer, draws[:_MANY])[0] for answer in ("mean", "std"))
        square = np.square((draws - mean) / np.maximum(std, np.finfo(std.dtype).tiny))
        return Off(float(square.mean() - 1), float(_ERRORS * square.std() / square.size**0.5 + 1e-2))

    def ranked(raw, seed):
        draws = _draws(head, raw, seed)
        left, right = np.split(draws, 2)
        scores = zip(draws[:_MANY], _at(head, raw, "crps", draws[:_MANY]), strict=True)
        return worst(*(_mean_of(np.abs(left - f) - np.abs(left - right) / 2, score) for f, score in scores))

    def squared(raw, seed):
        f = np.zeros((_MANY, n, head.out))
        return differ(_at(head, raw, "variance", f), _at(head, raw, "std", f) ** 2, tolerance)

    law("check and encode take what sample draws", taken)
    law("log_prob and its gradient are finite", smooth)
    law("beside a missing value the gradient of log_prob is finite", missing)
    law("cdf rises between 0 and 1", rises, "cdf")
    law("quantile(p) is where cdf reaches p", reached, "cdf", "quantile")
    if {0.0, 1.0} <= set(head.fixed):
        law("log_prob is the step of cdf at whole numbers", steps, "cdf")
    else:
        law("log_prob is the slope of cdf", slope, "cdf", "quantile")
    law("covers holds between two quantiles", covered, "covers", "quantile")
    law("draws follow cdf", follows, "cdf", "quantile")
    law("draws have the mean", centred, "mean")
    law("draws spread no farther than std", spread, "mean", "std")
    law("draws have the crps", ranked, "crps")
    law("variance is the square of std", squared, "variance", "std")


def _shaped(what: str, head: AbstractHead, points: tuple[int, ...]) -> set[str]:
    """The answers that a likelihood defines; raise LawError where their axes are not those of targets and outputs."""
    raw, f = jnp.zeros((*points, head.raw)), jnp.zeros((*points, head.out))

    def must(name: str, got: Any) -> None:
        if got != f.shape:
            why = f"`{name}` must have {f.shape}, got {got}"
            raise LawError(what, "everything has axes (…, tgt, out)", {}, np.inf, 0.0, why)

    for leaf in jax.tree.leaves(eqx.filter_eval_shape(head, raw)):
        must("parameters", leaf.shape[: f.ndim])
    defined = set()
    for answer in _ANSWERS:
        try:
            found = eqx.filter_eval_shape(lambda raw, f, answer=answer: _ANSWERS[answer](head(raw), f), raw, f)
        except NotImplementedError:
            continue
        must(answer, getattr(found, "shape", None))
        defined.add(answer)
    return defined


def _mean_of(draws: np.ndarray, expected: np.ndarray) -> Off:
    """Compare the mean of draws, and allow for its standard error."""
    gap = np.abs(draws.mean(0) - expected)
    allowed = _ERRORS * draws.std(0) / len(draws) ** 0.5 + 1e-3 * (1 + np.abs(expected))
    return worst(*(Off(float(d), float(a)) for d, a in zip(gap.flat, allowed.flat, strict=True)))


def _draws(head: AbstractHead, raw: Any, seed: int) -> np.ndarray:
    """`(draw, tgt, out)`."""
    return np.asarray(_sampled(head, raw, np.uint32(seed)), float)


def _ends(head: AbstractHead, raw: Any) -> tuple[np.ndarray, np.ndarray]:
    """The quantiles, `(5, tgt, out)`, and a small step on their scale."""
    ends = np.asarray(_quantiles(head, raw), float)
    width = ends[-1] - ends[0]
    return ends, np.where(width > 0, width, 1.0) * 1e-3


def _at(head: AbstractHead, raw: Any, answer: str, f: np.ndarray) -> np.ndarray:
    """One answer at values `(20, tgt, out)`."""
    return np.asarray(_answered(head, raw, answer, jnp.asarray(f, raw.dtype)), float)


def _cdf_at(head: AbstractHead, raw: Any, ends: np.ndarray) -> np.ndarray:
    return _at(head, raw, "cdf", np.concatenate([ends] * (_MANY // len(ends))))[: len(ends)]


@eqx.filter_jit
def _sampled(head: Any, raw: Any, seed: Any) -> Any:
    return jax.vmap(lambda key: head(raw).sample(key=key))(jax.random.split(jax.random.key(seed), _DRAWS))


@eqx.filter_jit
def _quantiles(head: Any, raw: Any) -> Any:
    pred = head(raw)
    return jnp.stack([pred.quantile(p) for p in _PROBABILITIES])


@eqx.filter_jit
def _answered(head: Any, raw: Any, answer: str, f: Any) -> Any:
    return jax.vmap(lambda f: _ANSWERS[answer](head(raw), f))(f)


@eqx.filter_jit
def _scored(head: Any, raw: Any, f: Any) -> Any:
    return eqx.filter_value_and_grad(lambda raw: head(raw).log_prob(f).sum())(raw)


@eqx.filter_jit
def _without_first(head: Any, raw: Any, f: Any) -> Any:
    """The gradient by the parameters, where the first target has no value and its parameters are not finite."""
    observed = jnp.broadcast_to(jnp.arange(len(f))[:, None] > 0, f.shape)

    def scored(pred):
        each = pred.masked(observed).log_prob(jnp.where(observed, f, jnp.zeros_like(f)))
        return jnp.where(observed, each, jnp.zeros_like(each)).sum()

    return eqx.filter_grad(scored)(jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), head(raw)))
