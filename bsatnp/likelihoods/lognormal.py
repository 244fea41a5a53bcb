"""The log-normal likelihood: what a Gaussian of logarithms is in the units of the data."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Bool, Float, Num

from bsatnp._types import Array, Key
from bsatnp.likelihoods.base import AbstractLikelihood, check_same_shape, values_like, wide_on_device
from bsatnp.likelihoods.gaussian import Gaussian


class LogNormal(AbstractLikelihood):
    """Independent distributions of positive values whose logarithms are Gaussian.

    **Units.** `location` and `scale` are mean and standard deviation of the natural logarithm of `f`.

    Raises:
        ValueError: `location` and `scale` differ in shape.
    """

    location: Float[Array, "*batch tgt out"]
    scale: Float[Array, "*batch tgt out"]

    def __check_init__(self):
        check_same_shape(location=self.location, scale=self.scale)

    @property
    def log(self) -> Gaussian:
        """The distribution of the logarithm."""
        return Gaussian(self.location, self.scale)

    @property
    def mean(self) -> Float[Array, "*batch tgt out"]:
        """The predictive mean, exp(location + scale² / 2)."""
        return jnp.exp(wide_on_device(self.location) + jnp.square(wide_on_device(self.scale)) / 2)

    @property
    def std(self) -> Float[Array, "*batch tgt out"]:
        """The predictive standard deviation, mean · √(exp(scale²) − 1)."""
        return self.mean * jnp.sqrt(jnp.expm1(jnp.square(wide_on_device(self.scale))))

    @property
    def variance(self) -> Float[Array, "*batch tgt out"]:
        """The predictive variance; the smallest normal number where the square of `std` is less than that."""
        std = self.std
        return jnp.maximum(jnp.square(std), float(jnp.finfo(std.dtype).tiny))

    def log_prob(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The log density of `f`; −inf for what is not positive."""
        valid, log = _log(f, wide_on_device(self.location))
        return jnp.where(valid, self.log.log_prob(log) - log, -jnp.inf)

    def cdf(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The probability of a value no larger than `f`."""
        valid, log = _log(f, wide_on_device(self.location))
        return jnp.where(jnp.isnan(f), jnp.nan, jnp.where(valid, self.log.cdf(log), 0.0))

    def quantile(self, p: float) -> Float[Array, "*batch tgt out"]:
        """The smallest value whose `cdf` reaches `p`."""
        return jnp.exp(self.log.quantile(p))

    def covers(self, f: Num[Array, "*batch tgt out"], level: float) -> Bool[Array, "*batch tgt out"]:
        """Whether `f` lies in the central interval of probability `level`."""
        valid, log = _log(f, wide_on_device(self.location))
        return valid & self.log.covers(log, level)

    def sample(self, *, key: Key) -> Float[Array, "*batch tgt out"]:
        """One draw for every target and output."""
        return jnp.exp(self.log.sample(key=key))

    def crps(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The continuous ranked probability score of `f`.

        **Reference.** Baran and Lerch (2015), Log-normal distribution based EMOS models, equation (5).
        """
        scale = wide_on_device(self.scale)
        valid, log = _log(f, scale)
        f = values_like(f, scale)
        location = wide_on_device(self.location)
        z = (log - location) / scale

        def share(x):  # of the mean, in one exponential: of a wide distribution the mean alone overflows
            return jnp.exp(location + jnp.square(scale) / 2 + log_ndtr(x))

        below, shifted = (jnp.where(valid, part, 0.0) for part in (ndtr(z), share(z - scale)))  # none lies below 0
        return f * (2 * below - 1) - 2 * shifted + 2 * share(-scale / float(np.sqrt(2)))


def _log(f: Array, like: Array) -> tuple[Array, Array]:
    """Whether values are positive, and the logarithm of those that are."""
    f = values_like(f, like)
    valid = f > 0
    return valid, jnp.log(jnp.where(valid, f, jnp.ones_like(f)))
