"""The Gaussian likelihood of continuous values, and its head."""

from statistics import NormalDist

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Bool, Float, Num

from bsatnp._types import Array, Key, is_traced, whole
from bsatnp.likelihoods.base import (
    AbstractHead,
    AbstractLikelihood,
    check_at_least,
    check_probability,
    check_raw,
    check_same_shape,
    concrete_values,
    minus,
    wide_on_device,
)

_LOG_SQRT_2PI = 0.5 * float(np.log(2 * np.pi))


class Gaussian(AbstractLikelihood):
    """Independent normal distributions. **Units.** Both parameters have those of `f`.

    Raises:
        ValueError: `mean` and `std` differ in shape.
    """

    mean: Float[Array, "*batch tgt out"]  # pyright: ignore[reportIncompatibleMethodOverride]
    std: Float[Array, "*batch tgt out"]  # pyright: ignore[reportIncompatibleMethodOverride]

    def __check_init__(self):
        check_same_shape(mean=self.mean, std=self.std)

    @property
    def variance(self) -> Float[Array, "*batch tgt out"]:
        """The predictive variance; the smallest normal number where the square of `std` is less than that."""
        std = wide_on_device(self.std)
        return jnp.maximum(jnp.square(std), float(jnp.finfo(std.dtype).tiny))

    def _standard(self, f: Array) -> tuple[jax.Array, jax.Array]:
        std = wide_on_device(self.std)
        return minus(f, self.mean).astype(std.dtype) / std, std

    def log_prob(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The log density of `f`."""
        z, std = self._standard(f)
        return -0.5 * jnp.square(z) - jnp.log(std) - _LOG_SQRT_2PI

    def cdf(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The probability of a value no larger than `f`."""
        return ndtr(self._standard(f)[0])

    def quantile(self, p: float) -> Float[Array, "*batch tgt out"]:
        """The smallest value whose `cdf` reaches `p`."""
        check_probability("p", p)
        mean, std = wide_on_device(self.mean), wide_on_device(self.std)
        # in float64 where the number is known: in float32 a probability close to 1 would be 1
        z = ndtri(jnp.asarray(p, mean.dtype)) if is_traced(p) else NormalDist().inv_cdf(float(p))
        return mean + std * z

    def covers(self, f: Num[Array, "*batch tgt out"], level: float) -> Bool[Array, "*batch tgt out"]:
        """Whether `f` lies in the central interval of probability `level`."""
        check_probability("level", level)
        z, std = self._standard(f)
        return jnp.abs(z) <= -ndtri(jnp.asarray((1 - level) / 2, std.dtype))

    def sample(self, *, key: Key) -> Float[Array, "*batch tgt out"]:
        """One draw for every target and output."""
        mean, std = wide_on_device(self.mean), wide_on_device(self.std)
        return mean + std * jax.random.normal(key, mean.shape, mean.dtype)

    def crps(self, f: Num[Array, "*batch tgt out"]) -> Float[Array, "*batch tgt out"]:
        """The continuous ranked probability score of `f`."""
        z, std = self._standard(f)
        density = jnp.exp(-0.5 * jnp.square(z) - _LOG_SQRT_2PI)
        return std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / float(np.sqrt(np.pi)))


class GaussianHead(AbstractHead):
    """Means and raw scales in, a `Gaussian` out: std² = softplus(raw)² + floor², so that std never falls below `floor`.

    **Shapes.** `raw` is `(…, tgt, 2·out)`: the means of all outputs, then their raw scales.

    **Units.** `floor` has those of `f`.

    Raises:
        ValueError: `out` below 1, `floor` below 1e-9.
    """

    out: int = eqx.field(static=True, default=1)
    floor: float = eqx.field(static=True, default=1e-3)

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
        """The values themselves."""
        return wide_on_device(f)

    def __call__(self, raw: Float[Array, "*batch tgt {self.raw}"]) -> Gaussian:
        """Split `raw` into means and scales."""
        check_raw(raw, self.raw)
        mean, scale = jnp.split(wide_on_device(raw), 2, axis=-1)
        return Gaussian(mean, jnp.sqrt(jnp.square(jax.nn.softplus(scale)) + self.floor**2))

    def check(self, f: Array) -> None:
        """Raise ValueError for infinite values, or another number of outputs."""
        values = concrete_values(f, self.out)
        if values is not None and np.isinf(values).any():
            raise ValueError("`f` must hold finite values for a Gaussian likelihood, got an infinite value.")
