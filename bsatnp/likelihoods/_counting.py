"""Numerics of count distributions that hold in float32, from rates of 1e-6 to beyond 1e6.

Textbook formulas subtract numbers of size n·log(n) to get one of size 1: at a rate of 1e6 float32 keeps no digit of the
log probability. JAX's `gammaincc` and `betainc` lose theirs from there, so the distribution functions are integrated
here instead. Notation: count k, Poisson rate or negative binomial mean m, dispersion r (variance m + m²/r).

**Reference.** Loader (2000), Fast and accurate computation of binomial probabilities, for the log probabilities.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jax.scipy.special import digamma, gammaln

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_STIRLING_SLOPE = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132)


def _horner(x, coefficients):
    total = jnp.zeros_like(x)
    for c in reversed(coefficients):
        total = total * x + float(c)  # a NumPy float64 would widen float32
    return total


def _factorial_rest(x):
    """Log of x! over (x/e)^x, for x ≥ 0."""
    small = x < 8
    low, high = jnp.where(small, x, jnp.ones_like(x)), jnp.where(small, jnp.full_like(x, 8), x)
    return jnp.where(
        small,
        gammaln(low + 1) - jax.scipy.special.xlogy(low, low) + low,
        0.5 * jnp.log(2 * np.pi * high) + _horner(1 / high**2, _STIRLING) / high,
    )


def _factorial_rest_slope(x):
    """Derivative of `_factorial_rest`, for x > 0."""
    small = x < 8
    low, high = jnp.where(small, x, jnp.ones_like(x)), jnp.where(small, jnp.full_like(x, 8), x)
    square = 1 / high**2
    return jnp.where(small, digamma(low + 1) - jnp.log(low), 0.5 / high + _horner(square, _STIRLING_SLOPE) * square)


def _excess_ratio(y):
    """(y − log(1 + y)) / y², for |y| ≤ 0.4, without cancellation."""
    s = y / (2 + y)
    return 1 / (2 + y) - 2 * s / (2 + y) ** 2 * _horner(s * s, [1 / (2 * j + 3) for j in range(11)])


def _excess(y, ratio):
    """The excess y − log(ratio), where ratio = 1 + y may be known more precisely than y."""
    near = jnp.abs(y) < 0.3
    small = jnp.where(near, y, jnp.zeros_like(y))
    large = jnp.where(near, jnp.ones_like(ratio), ratio)
    return jnp.where(near, small**2 * _excess_ratio(small), y - jnp.log(large))


@jax.jit
def poisson_log_prob(k, m):
    """Log of m^k exp(−m) / k!, for whole k ≥ 0."""
    return _poisson_log_prob(k, m)


@jax.custom_jvp
def _poisson_log_prob(k, m):
    positive = k > 0
    count = jnp.where(positive, k, m)
    return -jnp.where(positive, count * _excess((m - count) / count, m / count), m) - _factorial_rest(k)


@_poisson_log_prob.defjvp
def _poisson_log_prob_jvp(primals, tangents):
    k, m = primals
    return _poisson_log_prob(k, m), (k - m) / m * tangents[1]


@jax.jit
def negative_binomial_log_prob(k, m, r):
    """Log of Γ(k + r) / (Γ(r) k!) (r/(r + m))^r (m/(r + m))^k, for whole k ≥ 0."""
    return _negative_binomial_log_prob(k, m, r)


@jax.custom_jvp
def _negative_binomial_log_prob(k, m, r):
    positive = k > 0
    count = jnp.where(positive, k, m)
    share = r / (r + m)
    failures = r * _excess((k - m) / (r + m), (r + k) / (r + m))
    successes = count * _excess(share * ((m - count) / count), (m / count) * ((r + count) / (r + m)))
    return (
        jnp.log(r / (r + k))
        + _factorial_rest(r + k)
        - _factorial_rest(r)
        - _factorial_rest(k)
        - failures
        - jnp.where(positive, successes, share * m)
    )


@_negative_binomial_log_prob.defjvp
def _negative_binomial_log_prob_jvp(primals, tangents):
    k, m, r = primals
    by_mean = (k - m) / m * (r / (r + m))
    by_dispersion = (
        k / (r + k) / r
        + _factorial_rest_slope(r + k)
        - _factorial_rest_slope(r)
        - _excess((k - m) / (r + m), (r + k) / (r + m))
    )
    return _negative_binomial_log_prob(k, m, r), by_mean * tangents[1] + by_dispersion * tangents[2]


def _log_density(u, a, share):
    """a·u − (a + b)·log(1 + share·(e^u − 1)) with share = a/(a + b): log odds of a Beta(a, b) about their mode.

    At share 0 this is a·(u − e^u + 1), the log of a Gamma(a) variable about its mode.
    """
    near = jnp.abs(u) <= 0.5
    small, large = jnp.where(near, u, jnp.full_like(u, 0.5)), jnp.where(near, jnp.ones_like(u), u)
    grown = jnp.expm1(small)
    second = _horner(small, 2 / np.cumprod([2.0, *range(3, 19)])) / 2
    inner = small**2 * second - share * grown**2 * _excess_ratio(share * grown)
    grown = jnp.expm1(large)
    y = share * grown
    tiny = jnp.abs(y) < 1e-30
    slope = jnp.where(tiny, jnp.ones_like(y), jnp.log1p(y) / jnp.where(tiny, jnp.ones_like(y), y))
    return jnp.where(near, -a * inner, a * (large - grown * slope))


def _split_mass(a, share, u):
    """The parts of a distribution with `_log_density` below and above `u`, by Gauss–Legendre on either side.

    Absolute errors are a few units of the last place of 1 for a ≥ 1 and share ≤ 1/2.
    """
    double = u.dtype == jnp.float64
    nodes, weights = np.polynomial.legendre.leggauss(64 if double else 32)
    depth = 36.0 if double else 18.0  # the ends are where the density has fallen by e^depth
    x, w = (jnp.asarray(values, u.dtype).reshape((1,) * (u.ndim + 1) + (-1,)) for values in (nodes, weights))
    a, share = jnp.stack([a, a]), jnp.stack([share, share])

    def newton(_, end):  # from outside, where the concave log density cannot overshoot
        grown = jnp.expm1(end)
        return end + (_log_density(end, a, share) + depth) * (1 + share * grown) / (a * (1 - share) * grown)

    spread = jnp.sqrt(2 * depth / (a * (1 - share)))
    outside = jnp.stack([-(depth / a + spread)[0], (depth * share / (a * (1 - share)) + spread)[1]])
    low, high = stop_gradient(jax.lax.fori_loop(0, 4, newton, outside))
    u = jnp.clip(u, low, high)
    start, stop = jnp.stack([low, u])[..., None], jnp.stack([u, high])[..., None]
    half = (stop - start) / 2
    density = jnp.exp(_log_density(start + half + half * x, a[..., None], share[..., None]))
    mass = (half * density * w).sum(-1)
    below, above = mass / mass.sum(0, keepdims=True)
    return below, above


def _log_ratio(numerator, denominator):
    """log(numerator / denominator), precise where the two are close."""
    near = jnp.abs(numerator - denominator) < 0.5 * denominator
    close = jnp.where(near, (numerator - denominator) / denominator, jnp.zeros_like(numerator))
    return jnp.where(near, jnp.log1p(close), jnp.log(numerator / denominator))


def _next_count(k):
    """The count after `k`, and 1 where `_with_ends` knows the answer."""
    return jnp.maximum(jnp.floor(jnp.where(k == jnp.inf, 0.0, k)), 0.0) + 1


def _with_ends(k, total):
    """A distribution function of counts, 0 below them and 1 at infinity."""
    return jnp.where(k < 0, jnp.zeros_like(total), jnp.where(k == jnp.inf, jnp.ones_like(total), total))


@jax.jit
def poisson_cdf(k, m):
    """P(count ≤ k), as the probability that a Gamma(k + 1) variable exceeds m."""
    whole = _next_count(k)
    above = _split_mass(whole, jnp.zeros_like(m), _log_ratio(m, whole))[1]
    return _with_ends(k, above)


@jax.jit
def negative_binomial_cdf(k, m, r):
    """P(count ≤ k), as the probability that a Beta(r, k + 1) variable does not exceed r/(r + m)."""
    whole = _next_count(k)
    # Below r = 1 the density has a long tail: step to r + 1 and add the difference of the two.
    step = r < 1
    raised = jnp.where(step, r + 1, r)
    extra = jnp.where(step, jnp.exp(negative_binomial_log_prob(whole, m, r)) * (whole / r), jnp.zeros_like(m))
    u = _log_ratio(whole, m) + jnp.log(r / raised)
    swap = raised > whole
    a = jnp.where(swap, whole, raised)  # not a minimum, which would halve the gradient of equals
    below, above = _split_mass(a, a / (raised + whole), jnp.where(swap, -u, u))
    total = jnp.minimum(jnp.where(swap, above, below) + extra, 1.0)
    return _with_ends(k, total)


@jax.jit
def negative_binomial_spread(m, r):
    """Half the mean absolute difference of two independent counts, integrated from the characteristic function.

    For a whole D, |D| is the mean of (1 − cos(Dθ)) / (1 − cos θ) over a period of θ. Equal to the ₂F₁ term of Wei and
    Held (2014), Calibration tests for count data, which cancels in float32.
    """
    nodes, weights = np.polynomial.legendre.leggauss(48)
    shape = (1,) * m.ndim + (-1,)
    x, w = jnp.asarray(nodes, m.dtype).reshape(shape), jnp.asarray(weights, m.dtype).reshape(shape)
    m, r = m[..., None], r[..., None]
    above_one = jnp.maximum(r, 1.0)
    inverse = jnp.sqrt((m / r) * (1 + m / r) * above_one)
    half = jnp.arcsinh(np.pi * inverse) / 2  # θ = sinh(w)/inverse crowds the nodes about 0 when the variance is large
    at = half + half * x
    sine = jnp.sin(jnp.sinh(at) / inverse / 2) * inverse
    lost = -jnp.expm1(-r * jnp.log1p(4 / above_one * sine**2))
    return (half * w * jnp.cosh(at) * (lost / sine**2) * inverse).sum(-1) / (4 * np.pi)


@jax.jit
def poisson_quantile(p, m):
    """The smallest k with P(count ≤ k) ≥ p."""
    return _smallest_count(lambda k: poisson_cdf(k, m), p, m, jnp.sqrt(m))


@jax.jit
def negative_binomial_quantile(p, m, r):
    """The smallest k with P(count ≤ k) ≥ p."""
    return _smallest_count(lambda k: negative_binomial_cdf(k, m, r), p, m, jnp.sqrt(m + m * (m / r)))


def reaches(total, p):
    """Whether a distribution function `total`, which carries rounding errors, is at least `p`: ties count."""
    slack = 1e-10 if total.dtype == jnp.float64 else 1e-6
    return total >= p - slack * jnp.minimum(p, 1 - p)


def _smallest_count(cdf, p, mean, std):
    """The smallest whole k ≥ 0 with cdf(k) ≥ p, by bisection between Cantelli's bounds."""
    odds = jnp.sqrt((1 - p) / p)
    low = jnp.maximum(jnp.floor(mean - std * odds) - 1, -1.0)
    high = jnp.maximum(jnp.ceil(mean + std / odds) + 1, 0.0)

    def unsure(state):
        step, low, high = state
        return (step < 64) & jnp.any(high - low > 1)

    def halve(state):
        step, low, high = state
        middle = jnp.floor(low + (high - low) / 2)
        reached = reaches(cdf(middle), p)
        return step + 1, jnp.where(reached, low, middle), jnp.where(reached, middle, high)

    return jax.lax.while_loop(unsure, halve, (0, low, high))[2]


#: The only kind of key that JAX draws Poisson counts with.
_POISSON_KEY = "threefry2x32"


def draw_poisson(key, m):
    """Poisson counts as floats; beyond a rate of 1e4 by Cornish–Fisher, where rejection loses its digits in float32."""
    split_at = 1e4
    exact_key, normal_key = jax.random.split(key)
    if str(jax.random.key_impl(key)) != _POISSON_KEY:
        exact_key = jax.random.wrap_key_data(jax.random.bits(exact_key, (2,), jnp.uint32), impl=_POISSON_KEY)
    small = m < split_at
    exact = jax.random.poisson(exact_key, jnp.where(small, m, jnp.ones_like(m)), m.shape).astype(m.dtype)
    normal = jax.random.normal(normal_key, m.shape, m.dtype)
    return jnp.where(small, exact, large_poisson_count(jnp.maximum(m, split_at), normal))


def large_poisson_count(m, z):
    """The Poisson quantile at the normal quantile `z`, by Cornish–Fisher, for m of 1e4 and more."""
    root = jnp.sqrt(m)
    return jnp.round(m + root * z + (z**2 - 1) / 6 + (z - z**3) / (72 * root))
