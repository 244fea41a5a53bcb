"""Likelihoods of counts, Poisson and negative binomial, and their heads."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jax.scipy.special import i0e, i1e
from jaxtyping import Bool, Float, Num

from bsatnp._types import Array, Key, whole
from bsatnp.likelihoods import _counting
from bsatnp.likelihoods.base import (
    AbstractHead,
    AbstractLikelihood,
    check_at_least,
    check_probability,
    check_raw,
    check_same_shape,
    concrete_values,
    probability_like,
    values_like,
    wide_on_device,
)

#: Where the link turns from an exponential into the straight line that touches it, so that nothing overflows.
_BEND = 15.0


class Poisson(AbstractLikelihood):
    """Independent Poisson counts of the given rate, above 0. **Units.** Counts."""

    rate: Float[Array, "*batch tgt out"]

    @property
    def mean(self) -> Float[Array, "*batch tgt out"]:
        """The predictive mean."""
        return wide_on_device(self.rate)

    @property
    def variance(self) -> Float[Array, "*batch tgt out"]:
        """The predictive variance."""
        return wide_on_device(self.rate)

    @property
    def std(self) -> Float[Array, "*batch tgt out"]:
        """The predictive standard deviation."""
        return jnp.sqrt(wide_on_device(self.rate))

    def log_prob(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The log probability of the counts `f`; −inf for what is no count."""
        rate = wide_on_device(self.rate)
        count, valid = _counts(f, rate)
        return jnp.where(valid, _counting.poisson_log_prob(count, rate), -jnp.inf)

    def cdf(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The probability of a value no larger than `f`."""
        rate = wide_on_device(self.rate)
        return _counting.poisson_cdf(values_like(f, rate), rate)

    def quantile(self, p: float) -> Float[Array, "*batch tgt out"]:
        """The smallest value whose `cdf` reaches `p`."""
        check_probability("p", p)
        rate = stop_gradient(wide_on_device(self.rate))
        return _counting.poisson_quantile(probability_like(p, rate), rate)

    def covers(self, f: Num[Array, "*batch tgt out"], level: float) -> Bool[Array, "*batch tgt out"]:
        """Whether `f` lies in the central interval of probability `level`."""
        return _covers(self, f, level)

    def sample(self, *, key: Key) -> Float[Array, "*batch tgt out"]:
        """One draw for every target and output."""
        return _counting.draw_poisson(key, wide_on_device(self.rate))

    def crps(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The continuous ranked probability score of `f`; NaN for what is no count."""
        rate = wide_on_device(self.rate)
        count, valid = _counts(f, rate)
        away = (count - rate) * (2 * self.cdf(count) - 1)
        away = away + 2 * rate * jnp.exp(_counting.poisson_log_prob(count, rate))
        return jnp.where(valid, away - rate * (i0e(2 * rate) + i1e(2 * rate)), jnp.nan)


class NegativeBinomial(AbstractLikelihood):
    """Independent counts with more spread than Poisson: variance = mean + mean² / dispersion. **Units.** Counts.

    A dispersion that grows without bound gives the Poisson distribution.

    Raises:
        ValueError: `mean` and `dispersion` differ in shape.
    """

    mean: Float[Array, "*batch tgt out"]  # pyright: ignore[reportIncompatibleMethodOverride]
    dispersion: Float[Array, "*batch tgt out"]

    def __check_init__(self):
        check_same_shape(mean=self.mean, dispersion=self.dispersion)

    @property
    def variance(self) -> Float[Array, "*batch tgt out"]:
        """The predictive variance."""
        mean, dispersion = self._wide
        return mean + mean * (mean / dispersion)

    @property
    def std(self) -> Float[Array, "*batch tgt out"]:
        """The predictive standard deviation."""
        return jnp.sqrt(self.variance)

    @property
    def _wide(self) -> tuple[jax.Array, jax.Array]:
        return wide_on_device(self.mean), wide_on_device(self.dispersion)

    def log_prob(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The log probability of the counts `f`; −inf for what is no count."""
        mean, dispersion = self._wide
        count, valid = _counts(f, mean)
        return jnp.where(valid, _counting.negative_binomial_log_prob(count, mean, dispersion), -jnp.inf)

    def cdf(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The probability of a value no larger than `f`."""
        mean, dispersion = self._wide
        return _counting.negative_binomial_cdf(values_like(f, mean), mean, dispersion)

    def quantile(self, p: float) -> Float[Array, "*batch tgt out"]:
        """The smallest value whose `cdf` reaches `p`."""
        check_probability("p", p)
        mean, dispersion = stop_gradient(self._wide)
        return _counting.negative_binomial_quantile(probability_like(p, mean), mean, dispersion)

    def covers(self, f: Num[Array, "*batch tgt out"], level: float) -> Bool[Array, "*batch tgt out"]:
        """Whether `f` lies in the central interval of probability `level`."""
        return _covers(self, f, level)

    def sample(self, *, key: Key) -> Float[Array, "*batch tgt out"]:
        """One draw for every target and output."""
        gamma_key, poisson_key = jax.random.split(key)
        mean, dispersion = self._wide
        log_gamma = jax.random.loggamma(gamma_key, dispersion, dtype=mean.dtype)
        return _counting.draw_poisson(poisson_key, jnp.exp(log_gamma + jnp.log(mean / dispersion)))

    def crps(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The continuous ranked probability score of `f`; NaN for what is no count."""
        mean, dispersion = self._wide
        count, valid = _counts(f, mean)
        away = (count - mean) * (2 * self.cdf(count) - 1)
        prob = jnp.exp(_counting.negative_binomial_log_prob(count, mean, dispersion))
        away = away + 2 * mean * prob * (1 + count / dispersion)
        return jnp.where(valid, away - _counting.negative_binomial_spread(mean, dispersion), jnp.nan)


class PoissonHead(AbstractHead):
    """Raw log rates in, a `Poisson` out; counts go into a network as log(1 + f).

    The rate is exp(raw) + floor; from raw = 15 on, the exponential goes on as a straight line and cannot overflow.

    Raises:
        ValueError: `out` below 1, `floor` below 1e-9.
    """

    out: int = eqx.field(static=True, default=1)
    fixed: ClassVar[tuple[float, ...]] = (0.0, 1.0)
    floor: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self):
        whole("out", self.out)
        check_at_least("floor", self.floor, 1e-9)

    @property
    def raw(self) -> int:
        """Network outputs per target."""
        return self.out

    @property
    def features(self) -> int:
        """Numbers per point that `encode` gives."""
        return self.out

    def encode(self, f: Num[Array, "*batch point out"]) -> Float[Array, "*batch point {self.features}"]:
        """The log of 1 + f, whatever the size of the counts."""
        return jnp.log1p(wide_on_device(f))

    def __call__(self, raw: Float[Array, "*batch tgt {self.raw}"]) -> Poisson:
        """Turn `raw`, which may be any number, into positive parameters."""
        check_raw(raw, self.raw)
        return Poisson(_positive(wide_on_device(raw), self.floor))

    def check(self, f: Array) -> None:
        """Raise ValueError for what is no count, or another number of outputs."""
        _check_counts(f, self.out, "Poisson")


class NegativeBinomialHead(AbstractHead):
    """Raw log means and log dispersions in, a `NegativeBinomial` out; counts go into a network as log(1 + f).

    Mean and dispersion are exp(raw) + floor each, the exponential bent as in `PoissonHead`.

    **Shapes.** `raw` is `(…, tgt, 2·out)`: the log means of all outputs, then their log dispersions.

    Raises:
        ValueError: `out` below 1, `floor` below 1e-9.
    """

    out: int = eqx.field(static=True, default=1)
    fixed: ClassVar[tuple[float, ...]] = (0.0, 1.0)
    floor: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self):
        whole("out", self.out)
        check_at_least("floor", self.floor, 1e-9)

    @property
    def raw(self) -> int:
        """Network outputs per target."""
        return 2 * self.out

    @property
    def features(self) -> int:
        """Numbers per point that `encode` gives."""
        return self.out

    def encode(self, f: Num[Array, "*batch point out"]) -> Float[Array, "*batch point {self.features}"]:
        """The log of 1 + f, whatever the size of the counts."""
        return jnp.log1p(wide_on_device(f))

    def __call__(self, raw: Float[Array, "*batch tgt {self.raw}"]) -> NegativeBinomial:
        """Turn `raw`, which may be any number, into positive parameters."""
        check_raw(raw, self.raw)
        mean, dispersion = jnp.split(wide_on_device(raw), 2, axis=-1)
        return NegativeBinomial(_positive(mean, self.floor), _positive(dispersion, self.floor))

    def check(self, f: Array) -> None:
        """Raise ValueError for what is no count, or another number of outputs."""
        _check_counts(f, self.out, "NegativeBinomial")


def _positive(raw: jax.Array, floor: float) -> jax.Array:
    bent = jnp.exp(jnp.minimum(raw, _BEND)) + float(np.exp(_BEND)) * jax.nn.relu(raw - _BEND)
    return bent + floor


def _counts(f: Array, parameter: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whole counts that can be scored, and whether each value was one to begin with."""
    f = values_like(f, parameter)
    valid = (f >= 0) & (f == jnp.floor(f)) & jnp.isfinite(f)
    return jnp.where(valid, f, jnp.zeros_like(f)), valid


def _covers(likelihood: Poisson | NegativeBinomial, f: Array, level: float) -> jax.Array:
    """quantile(α/2) ≤ f ≤ quantile(1 − α/2), said with two distribution functions instead of two searches."""
    check_probability("level", level)
    mean = wide_on_device(likelihood.mean)
    f = values_like(f, mean)
    at_least = _counting.reaches(likelihood.cdf(f), jnp.full_like(mean, (1 - level) / 2))
    beyond = _counting.reaches(likelihood.cdf(jnp.ceil(f) - 1), jnp.full_like(mean, (1 + level) / 2))
    return jnp.logical_and(at_least, jnp.logical_not(beyond))


def _check_counts(f: Array, out: int, name: str) -> None:
    values = concrete_values(f, out)
    if values is None:
        return
    wrong = values[(values != np.floor(values)) | (values < 0) | np.isinf(values)]
    if len(wrong):
        raise ValueError(f"`f` must hold whole numbers from 0 up for a {name} likelihood, got {wrong[0]:g}.")
