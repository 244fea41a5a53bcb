"""Scores of a predictive distribution, averaged over the values that were observed.

Every function takes a likelihood, the values `f` and the boolean `observed`, both `(…, tgt, out)`, as NumPy or JAX
arrays, and reduces all axes: a mean over points × outputs, as in the paper's tables. They work under `jit`, `grad` and
`vmap` (one score per task). What was not observed never counts, whatever its value and its prediction are, NaN and
infinity included, and no gradient comes from it. Where nothing was observed the score is 0, so that the loss of a task
without targets stays finite and has no gradient; `Accumulator` gives such a batch no weight.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Num

from bsatnp._types import Array, is_traced
from bsatnp.likelihoods import AbstractLikelihood, Categorical, Gaussian
from bsatnp.likelihoods.base import for_each, minus, on_device


def nll(
    pred: AbstractLikelihood, f: Num[Array, "*batch tgt out"], observed: Bool[Array, "*batch tgt out"]
) -> Float[Array, ""]:
    """Mean negative log probability: the loss to train with. **Units.** Nats per observed value; 0 where none is."""
    return _mean(_nll, pred, f, observed)


def mae(
    pred: AbstractLikelihood, f: Num[Array, "*batch tgt out"], observed: Bool[Array, "*batch tgt out"]
) -> Float[Array, ""]:
    """Mean absolute error of the predictive mean; 0 where nothing is observed. **Units.** Those of `f`."""
    return _mean(_absolute, pred, f, observed)


def rmse(
    pred: AbstractLikelihood, f: Num[Array, "*batch tgt out"], observed: Bool[Array, "*batch tgt out"]
) -> Float[Array, ""]:
    """Root mean squared error of the predictive mean; 0 where nothing is observed. **Units.** Those of `f`."""
    return _safe_sqrt(_mean(_squared, pred, f, observed))


def coverage(
    pred: AbstractLikelihood,
    f: Num[Array, "*batch tgt out"],
    observed: Bool[Array, "*batch tgt out"],
    level: float = 0.95,
) -> Float[Array, ""]:
    """How often values fall into the central predictive interval of probability `level` (CVG@95% in the paper).

    The interval goes from one quantile to the other, ends included; for counts its probability is `level` or more. 0
    where nothing is observed.

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    return _mean(_covered(level), pred, f, observed)


def crps(
    pred: AbstractLikelihood, f: Num[Array, "*batch tgt out"], observed: Bool[Array, "*batch tgt out"]
) -> Float[Array, ""]:
    """Mean continuous ranked probability score, the less the better; 0 where nothing is observed.

    **Units.** Those of `f`.
    """
    return _mean(_crps, pred, f, observed)


def accuracy(
    pred: Categorical, f: Num[Array, "*batch tgt out"], observed: Bool[Array, "*batch tgt out"]
) -> Float[Array, ""]:
    """How often the most probable label is the right one; 0 where nothing is observed.

    Raises:
        TypeError: `pred` is no `Categorical`.
    """
    return _mean(_correct, pred, f, observed)


class Sums(eqx.Module):
    """Sums of scores over the observed values of one batch, small enough to bring to the host.

    `terms` holds what adds up: squared errors under "rmse", and under every other name the score itself.
    """

    terms: dict[str, Float[Array, ""]]
    count: Int[Array, ""]


def sums(
    pred: AbstractLikelihood,
    f: Num[Array, "*batch tgt out"],
    observed: Bool[Array, "*batch tgt out"],
    level: float = 0.95,
) -> Sums:
    """Sums of all scores that the likelihood defines (its `scores`), to be handed to `Accumulator.add_sums`."""
    pred, f, observed = safe(pred, f, observed)
    scores = {**_SCORES, "coverage": _covered(level)}
    if unknown := [name for name in pred.scores if name not in scores]:
        raise ValueError(f"`scores` of {type(pred).__name__} must be some of {list(scores)}, got {unknown[0]!r}.")
    terms = {name: _total(scores[name](pred, f), observed) for name in pred.scores}
    return Sums(terms, observed.sum(dtype=jnp.int32))


def summarise(
    pred: AbstractLikelihood,
    f: Num[Array, "*batch tgt out"],
    observed: Bool[Array, "*batch tgt out"],
    level: float = 0.95,
) -> dict[str, Array]:
    """All scores that the likelihood defines, by the names of the functions here."""
    total = sums(pred, f, observed, level)
    means = {name: over(term, total.count) for name, term in total.terms.items()}
    return {name: _safe_sqrt(mean) if name == "rmse" else mean for name, mean in means.items()}


class Accumulator:
    """The scores of many batches as if they were one, in float64 on the host.

    Every batch weighs as much as it has observed values, and squared errors are added up before the root is taken.
    All batches must have likelihoods with the same scores.
    """

    def __init__(self, level: float = 0.95):
        self.level = level
        self.count = 0
        self._terms: dict[str, float] = {}

    def add(
        self,
        pred: AbstractLikelihood,
        f: Num[Array, "*batch tgt out"],
        observed: Bool[Array, "*batch tgt out"],
    ) -> None:
        """Score a batch, compiled once per shape, and add it."""
        pred, f = _less_offset(pred, f, observed)
        self.add_sums(_jitted_sums(pred, on_device(f), observed, self.level))  # a `jit` would wrap large integers

    def add_sums(self, batch: Sums) -> None:
        """Add a batch that `sums` has scored, for instance inside a compiled step.

        Raises:
            ValueError: the batch has other scores than those before it.
        """
        if self._terms and set(self._terms) != set(batch.terms):
            raise ValueError(f"`batch` must have the scores {sorted(self._terms)}, got {sorted(batch.terms)}.")
        self.count += int(batch.count)
        self._terms = {name: self._terms.get(name, 0.0) + float(term) for name, term in batch.terms.items()}

    def result(self) -> dict[str, float]:
        """The scores over everything added.

        Raises:
            ValueError: no observed value was added.
        """
        if not self.count:
            raise ValueError("`result` needs at least one observed value, got none.")
        means = {name: term / self.count for name, term in self._terms.items()}
        return {name: mean**0.5 if name == "rmse" else mean for name, mean in means.items()}


_Score = Callable[[AbstractLikelihood, jax.Array], Array]


def _nll(pred, f):
    return -for_each(pred, "log_prob", pred.log_prob(f), f)


def _error(pred, f):
    return minus(f, for_each(pred, "mean", pred.mean, f))


def _absolute(pred, f):
    return jnp.abs(_error(pred, f))


def _squared(pred, f):
    return jnp.square(_error(pred, f))


def _covered(level: float) -> _Score:
    return lambda pred, f: for_each(pred, "covers", pred.covers(f, level), f).astype(jnp.float32)


def _crps(pred, f):
    return for_each(pred, "crps", pred.crps(f), f)


def _correct(pred, f):
    if not isinstance(pred, Categorical):
        raise TypeError(f"`pred` must be a Categorical, got {type(pred).__name__}.")
    label = f.astype(jnp.int32)  # in the type of `f` different labels might be equal
    return ((pred.mode.astype(jnp.int32) == label) & (label.astype(f.dtype) == f)).astype(jnp.float32)


_SCORES: dict[str, _Score] = {
    "nll": _nll,
    "mae": _absolute,
    "rmse": _squared,
    "crps": _crps,
    "accuracy": _correct,
}


def safe(pred: AbstractLikelihood, f: Array, observed: Array) -> tuple[AbstractLikelihood, jax.Array, jax.Array]:
    """Replace values and parameters that do not count before anything is computed from them.

    Raises:
        ValueError: `observed` or a parameter of `pred` does not have the axes of `f`.
    """
    pred, f = _less_offset(pred, f, observed)
    f, observed = on_device(f), jnp.asarray(observed)
    if observed.shape != f.shape or observed.dtype != bool:
        raise ValueError(
            f"`observed` must be boolean with the axes of `f` {f.shape}, got {observed.dtype} {observed.shape}."
        )
    for shape in map(jnp.shape, jax.tree.leaves(pred)):
        if shape[: f.ndim] != f.shape:
            raise ValueError(f"`pred` must have parameters with the axes of `f` {f.shape}, got {shape}.")
    return pred.masked(observed), jnp.where(observed, f, jnp.zeros_like(f)), observed


def _less_offset(pred: AbstractLikelihood, f: Array, observed: Array) -> tuple[AbstractLikelihood, Array]:
    """A Gaussian on the host and values less the mean of each output, beside which a device may not tell the errors.

    No score depends on it.
    """
    known = isinstance(pred, Gaussian) and isinstance(pred.mean, np.ndarray) and not is_traced((f, observed))
    if not known or isinstance(f, np.ma.MaskedArray) or not np.shape(f) == np.shape(observed) == pred.mean.shape:
        return pred, f
    seen, values = np.asarray(observed) > 0, np.asarray(f).astype(np.float64)
    axes = tuple(range(values.ndim - 1))
    usable = seen & np.isfinite(values)
    origin = np.where(usable, values, 0).sum(axes, keepdims=True) / np.maximum(usable.sum(axes, keepdims=True), 1)
    offset = origin.astype(pred.mean.dtype).astype(np.float64)  # which leaves what is exact as it is
    return Gaussian((pred.mean.astype(np.float64) - offset).astype(pred.mean.dtype), pred.std), values - offset


def _total(values: Array, observed: jax.Array) -> Array:
    return jnp.where(observed, values, jnp.zeros_like(values)).sum()


def over(total: Array, count: Array) -> jax.Array:
    """A total over a count, 0 where nothing was counted."""
    return jnp.asarray(total) / jnp.maximum(count, 1).astype(total.dtype)


def _mean(score: _Score, pred: AbstractLikelihood, f: Array, observed: Array) -> jax.Array:
    pred, f, observed = safe(pred, f, observed)
    return over(_total(score(pred, f), observed), observed.sum(dtype=jnp.int32))


def _safe_sqrt(x: jax.Array) -> jax.Array:
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, jnp.ones_like(x))), jnp.zeros_like(x))


_jitted_sums = eqx.filter_jit(sums)
