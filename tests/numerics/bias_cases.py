"""Every public bias beside a formula of its scores, written from its definition for NumPy and JAX alike."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.bias import (
    TISA,
    Causal,
    ExponentialNetwork,
    Linear,
    MLPBias,
    RBFNetwork,
    Sum,
    Weighted,
    Window,
)
from bsatnp.groups import SO3, Euclidean, On, Product, TimeShift, Translation

SPACE, TIME, SPHERE = On("s", Translation(2)), On("t", TimeShift()), On("g", SO3())
HEADS: dict[str, Any] = {"heads": 2, "basis": 3}


class Case(NamedTuple):
    """A bias with two heads, and the formula of what it gives for p `(q, dim)` and x `(k, dim)`."""

    make: Callable[[], Any]
    formula: Callable[..., Any]

    def bias(self) -> Any:
        """The bias, its learned arrays moved so that no two heads or bases are alike."""
        arrays, rest = eqx.partition(self.make(), eqx.is_inexact_array)
        rng = np.random.default_rng(0)
        moved = jax.tree.map(lambda a: a + jnp.asarray(rng.normal(size=a.shape) / 4, a.dtype), arrays)
        return eqx.combine(moved, rest)

    def scores(self, xp, score, dots, p, x):
        """The formula of attention with the bias, for the oracle."""
        return dots + self.formula(xp, score.bias, p, x)


def difference(xp, p, x):
    return p[:, None, :] - x[None, :, :]


def distance(xp, p, x):
    square = xp.sum(difference(xp, p, x) ** 2, -1)
    return xp.where(square > 0, xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)


def angle(xp, p, x):
    """In degrees, from the cross and the dot product of unit vectors."""
    (a, b, c), (d, e, f) = (_vector(xp, xp.deg2rad(z)) for z in (p[:, None, :], x[None, :, :]))
    cross = (b * f - c * e) ** 2 + (c * d - a * f) ** 2 + (a * e - b * d) ** 2
    safe = xp.arctan2(xp.sqrt(xp.where(cross > 0, cross, 1.0)), a * d + b * e + c * f)
    return xp.rad2deg(xp.where(cross > 0, safe, 0.0))


def _vector(xp, z):
    lon, lat = z[..., 0], z[..., 1]
    return xp.cos(lat) * xp.cos(lon), xp.cos(lat) * xp.sin(lon), xp.sin(lat)


def bumps(xp, bias, length):
    rate = xp.exp(bias.log_rate)[:, :, None, None]
    return xp.sum(bias.weight[:, :, None, None] * xp.exp(-rate * length[None, None]), 1)


def rbf(xp, bias, p, x):
    return bumps(xp, bias, xp.sum(difference(xp, p["s"], x["s"]) ** 2, -1))


def geodesic(xp, bias, p, x):
    return bumps(xp, bias, angle(xp, p["g"], x["g"]) ** 2)


def exponential(xp, bias, p, x):
    return bumps(xp, bias, distance(xp, p["s"], x["s"]))


def linear(xp, bias, p, x):
    return -xp.exp(bias.log_slope)[:, None, None] * distance(xp, p["s"], x["s"])[None]


def tisa(xp, bias, p, x):
    away = difference(xp, p["t"], x["t"])[None, None] - bias.centre[:, :, None, None, :]
    rate = xp.exp(bias.log_rate)[:, :, None, None]
    return xp.sum(bias.weight[:, :, None, None] * xp.exp(-rate * xp.sum(away**2, -1)), 1)


def mlp(xp, bias, p, x):
    inputs = xp.concatenate([difference(xp, p["s"], x["s"]), difference(xp, p["t"], x["t"])], -1)
    first, second = bias.network.layers
    hidden = xp.einsum("qki,wi->qkw", inputs, first.weight) + first.bias[None, None]
    hidden = 0.5 * hidden * (1 + xp.tanh((2 / np.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)))
    return xp.einsum("qkw,hw->hqk", hidden, second.weight) + second.bias[:, None, None]


def causal(xp, bias, p, x):
    return xp.where(p["t"][:, None, 0] >= x["t"][None, :, 0], 0.0, -np.inf)[None]


def window(xp, bias, p, x):
    return xp.where(distance(xp, p["s"], x["s"]) <= bias.width, 0.0, -np.inf)[None]


def weighted(xp, bias, p, x):
    return bias.weight[:, None, None] * rbf(xp, bias.bias, p, x)


def total(xp, bias, p, x):
    parts = zip((geodesic, weighted, causal), bias.terms, strict=True)
    return sum(formula(xp, term, p, x) for formula, term in parts)


def _total():
    return Sum(
        RBFNetwork(SPHERE, lengths=(10.0, 90.0), **HEADS), Weighted(RBFNetwork(SPACE, **HEADS), heads=2), Causal(TIME)
    )


CASES = {
    "rbf": Case(lambda: RBFNetwork(SPACE, **HEADS), rbf),
    "geodesic": Case(lambda: RBFNetwork(SPHERE, lengths=(10.0, 90.0), **HEADS), geodesic),
    "exponential": Case(lambda: ExponentialNetwork(On("s", Euclidean(2)), **HEADS), exponential),
    "linear": Case(lambda: Linear(SPACE, heads=2), linear),
    "tisa": Case(lambda: TISA(TIME, dim=1, key=jax.random.key(1), **HEADS), tisa),
    "mlp": Case(lambda: MLPBias(Product(SPACE, TIME), dim=3, heads=2, width=8, key=jax.random.key(2)), mlp),
    "causal": Case(lambda: Causal(TIME), causal),
    "window": Case(lambda: Window(SPACE, 1.5), window),
    "weighted": Case(lambda: Weighted(RBFNetwork(SPACE, **HEADS), heads=2), weighted),
    "sum": Case(_total, total),
}


def points(seed: int, n_q: int, n_k: int, dtype: Any = float):
    """Index sets in space, time and on the sphere: the first query is a key, two keys coincide, the last query is
    before every key."""
    rng = np.random.default_rng(seed)
    space, time = rng.normal(size=(n_q + n_k, 2)), rng.uniform(0, 2, size=(n_q + n_k, 1))
    sphere = np.stack([rng.uniform(-180, 180, n_q + n_k), rng.uniform(-80, 80, n_q + n_k)], -1)
    both = {"s": space, "t": time, "g": sphere}
    for name, z in both.items():
        z[0] = z[n_q]
        if n_k > 2:
            z[n_q + 1] = z[n_q + 2]
        if n_q > 1 and name == "t":
            z[n_q - 1] = -1.0
    p, x = ({n: jnp.asarray(z[s], dtype) for n, z in both.items()} for s in (slice(n_q), slice(n_q, None)))
    return p, x
