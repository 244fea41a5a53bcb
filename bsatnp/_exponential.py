"""exp(−x) for x ≥ 0 and powers of two: the innermost operation of attention and of every radial bias."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

#: 2^f on −1/2 ≤ f ≤ 1/2, constant term first, to a relative error of 1e-7.
_POLYNOMIAL = (
    1.0000000754548972,
    0.6931471880262285,
    0.2402210748530825,
    0.05550357114219401,
    0.00967603191832481,
    0.0013390863364571618,
)


#: Powers are not taken further down; what lies there is zero.
_LEAST = np.float32(-126)

#: Added to a power of at least `_LEAST`, the last bits are those of the exponent of half its whole part.
_EXPONENT = np.float32(1.5 * 2**23 + 126)

LOG2E = float(np.log2(np.e))


@jax.custom_jvp
def power_of_two(power: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """2^power for power ≤ 0, elementwise, to 3e-7 absolute in float32.

    On a CPU float32 goes through a polynomial and the bits of the exponent, in little more than half the time of
    `jnp.exp`. What is below 2^−125.5 is zero there.
    """
    if power.dtype != jnp.float32 or jax.default_backend() != "cpu":
        return jnp.exp2(power)
    # not `maximum`, which takes three operations for the sake of NaN; that passes through here too
    normal = jnp.where(power < _LEAST, _LEAST, power)
    rest = normal - lax.round(normal, lax.RoundingMethod.TO_NEAREST_EVEN)
    value = jnp.full_like(rest, 2 * _POLYNOMIAL[-1])
    for coefficient in _POLYNOMIAL[-2::-1]:
        value = value * rest + np.float32(2 * coefficient)
    # not a conversion to integers, which takes six operations for the sake of large numbers
    bits = lax.bitcast_convert_type(normal + _EXPONENT, jnp.int32)
    return value * lax.bitcast_convert_type(lax.shift_left(bits, jnp.int32(23)), jnp.float32)


@power_of_two.defjvp
def _(primals, tangents):
    (power,), (slope,) = primals, tangents
    value = power_of_two(power)
    return value, value * slope * np.log(2).astype(power.dtype)


def decay(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """exp(−x) for x ≥ 0, elementwise, as `power_of_two`."""
    return power_of_two(-LOG2E * x)
