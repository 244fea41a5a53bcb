"""Whether predictive distributions promise what they keep, and how probable it is that a threshold is exceeded."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Bool, Float, Num

from bsatnp._types import Array, Key, whole
from bsatnp.likelihoods import AbstractLikelihood, Gaussian, LogNormal
from bsatnp.likelihoods.base import for_each, on_device, wide_on_device
from bsatnp.metrics.scores import coverage, over, safe

#: Probabilities of the central intervals that `calibration` looks at.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def calibration(
    pred: AbstractLikelihood,
    f: Num[Array, "*batch tgt out"],
    observed: Bool[Array, "*batch tgt out"],
    levels: Sequence[float] = LEVELS,
) -> Float[Array, " level"]:
    """The calibration curve: how often values fall into the central interval of each of `levels`.

    A calibrated prediction gives `levels` back; more means intervals that are too wide, less too narrow. Intervals of
    counts have a probability of at least their level, so that their curve lies above (`pit` has no such excess).

    Raises:
        ValueError: no levels, or one that is not strictly between 0 and 1.
    """
    if not np.shape(levels):
        raise ValueError(f"`levels` must be a list of probabilities, got {levels!r}.")
    if not len(levels):
        raise ValueError("`levels` must hold at least one probability, got none.")
    return jnp.stack([coverage(pred, f, observed, level) for level in levels])


def pit(
    pred: AbstractLikelihood,
    f: Num[Array, "*batch tgt out"],
    observed: Bool[Array, "*batch tgt out"],
    *,
    key: Key,
) -> Float[Array, "*batch tgt out"]:
    """The probability integral transform: the predicted probability of a value no larger than the one that came.

    It is uniform between 0 and 1 for a calibrated prediction. At a value of positive probability, such as a count, it
    is drawn from the jump of the distribution function there; elsewhere `key` has no effect. NaN where not observed.

    **Reference.** Czado, Gneiting and Held (2009), Predictive model assessment for count data.
    """
    pred, f, observed = safe(pred, f, observed)
    low, high = _jump(pred, f)
    return jnp.where(observed, low + (high - low) * jax.random.uniform(key, low.shape, low.dtype), jnp.nan)


def pit_histogram(
    pred: AbstractLikelihood,
    f: Num[Array, "*batch tgt out"],
    observed: Bool[Array, "*batch tgt out"],
    bins: int = 10,
) -> Float[Array, " bins"]:
    """The share of `pit` in each of equal bins, averaged over its draws: 1 / bins each for a calibrated prediction.

    A hump says that intervals are too wide, a valley too narrow, a slope that predictions are shifted. All are 0 where
    nothing was observed.

    Raises:
        ValueError: `bins` below 1.

    **Reference.** The non-randomised histogram of Czado, Gneiting and Held (2009), equation (2).
    """
    bins = whole("bins", bins)
    pred, f, observed = safe(pred, f, observed)
    low, high = _jump(pred, f)
    width = high - low
    jumps = width > 1e-5  # less is rounding: a value without probability of its own
    edges = jnp.linspace(0, 1, bins + 1, dtype=low.dtype).reshape(-1, *(1,) * low.ndim)
    share = jnp.clip((edges - low[None]) / jnp.where(jumps, width, jnp.ones_like(width))[None], 0, 1)
    passed = jnp.where(edges == 1, jnp.ones_like(share), (high[None] < edges).astype(low.dtype))
    below = jnp.where(jumps[None], share, passed)
    counts = jnp.where(observed[None], jnp.diff(below, axis=0), jnp.zeros_like(below[1:]))
    return over(counts.reshape(bins, -1).sum(1), observed.sum(dtype=jnp.int32))


def exceedance(pred: AbstractLikelihood, threshold: Num[Array, "..."] | float) -> Float[Array, "*batch tgt out"]:
    """The probability of a value above `threshold`, at every target and output.

    Small probabilities of Gaussian and log-normal distributions keep their digits; those of others are 1 minus the
    distribution function, exact to about 1e-6.

    **Units.** Those of `f`.

    Args:
        pred: a likelihood of numbers; labels have no order.
        threshold: one number, or an array that broadcasts to `(…, tgt, out)`, such as one threshold for each output.

    Raises:
        ValueError: thresholds that do not fit the prediction.
        NotImplementedError: a likelihood of labels.
    """
    shape = jnp.shape(pred.mean)
    try:
        given = threshold if isinstance(threshold, jax.Array) else np.asarray(threshold)
        threshold = jnp.broadcast_to(on_device(given), shape)
    except ValueError:
        got = jnp.shape(threshold)
        raise ValueError(f"`threshold` must broadcast to the prediction's axes {shape}, got {got}.") from None
    if isinstance(pred, LogNormal):
        # all of it lies above a threshold that is not positive
        threshold = jnp.log(jnp.maximum(wide_on_device(threshold), 0))
        pred = pred.log
    if isinstance(pred, Gaussian):
        mean, std = wide_on_device(pred.mean), wide_on_device(pred.std)
        return ndtr((mean - threshold.astype(mean.dtype)) / std)
    return 1 - jnp.asarray(for_each(pred, "cdf", pred.cdf(threshold), threshold))


def _jump(pred: AbstractLikelihood, f: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The distribution function just below the values and at them, equal where they have no probability of their own.

    Where that is not known, just below is the next smaller number, so that this holds for counts, numbers and mixtures
    of both.
    """
    high = jnp.asarray(for_each(pred, "cdf", pred.cdf(f), f))
    if isinstance(pred, Gaussian | LogNormal):
        return high, high
    value = f.astype(high.dtype)
    step = jnp.where(value == 0, 1e-30, jnp.finfo(high.dtype).eps * jnp.abs(value)).astype(high.dtype)
    return jnp.minimum(pred.cdf(value - step), high), high
