"""Biases against formulas in NumPy float64, how they start, and what they refuse."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import bias
from bsatnp.groups import SO3, Euclidean, On, Permutation, Product, TimeShift, Translation

RNG = np.random.default_rng(1)
P, Q = RNG.normal(size=(4, 2)), RNG.normal(size=(3, 2))
DISTANCE = np.linalg.norm(P[:, None] - Q[None], axis=-1)


class Distance:
    """A group whose invariant has no sign, and which does not say how wide its points are."""

    def invariants(self, p, q) -> Any:
        return jnp.abs(p - q).sum()[None]


class Backward:
    """A group whose lag is that of the key after the query."""

    def invariants(self, p, q):
        return q - p


class Traced(eqx.Module):
    """A lag in units of its own."""

    unit: jax.Array

    def invariants(self, p, q):
        return (p - q) / self.unit


class Vector(Distance):
    """A group whose square is no number."""

    def squared(self, p, q):
        return (p - q) ** 2


class Listed(Distance):
    """A group whose invariants are a list."""

    def invariants(self, p, q):
        return [p[0] - q[0]]


@dataclasses.dataclass
class NoHash(Distance):
    """A group that no model can keep."""


class Length(Distance):
    """A group whose invariant is no vector."""

    def invariants(self, p, q):
        return super().invariants(p, q)[0]


def tile(made, p=P, q=Q):
    return np.asarray(made.tile(jnp.asarray(p, float), jnp.asarray(q, float)), np.float64)


def spread(made, seed=0):
    """A bias whose arrays differ from head to head and basis to basis."""
    arrays, rest = eqx.partition(made, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    rng = np.random.default_rng(seed)
    moved = [leaf + jnp.asarray(0.5 * rng.normal(size=leaf.shape), leaf.dtype) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(structure, moved), rest)


def host(array):
    return np.asarray(array, np.float64)


def test_rbf_network_is_equation_4():
    made = spread(bias.RBFNetwork(Translation(2), heads=2, basis=3))
    alpha, beta = host(made.weight), np.exp(host(made.log_rate))
    expected = (alpha[:, None, None] * np.exp(-beta[:, None, None] * DISTANCE[None, ..., None] ** 2)).sum(-1)
    np.testing.assert_allclose(tile(made), expected, rtol=1e-4, atol=1e-5)
    pair = made(jnp.asarray(P[1], float), jnp.asarray(Q[2], float))
    np.testing.assert_allclose(pair, expected[:, 1, 2], rtol=1e-4, atol=1e-5)


def test_geodesic_bias_is_of_the_angle_in_degrees():
    made = bias.RBFNetwork(SO3(), heads=1, basis=1, lengths=(30.0, 30.0))
    score = tile(made, np.zeros((1, 2)), np.array([[30.0, 0.0], [0.0, -60.0], [360.0, 0.0]]))
    np.testing.assert_allclose(score[0, 0], np.exp([-0.5, -2.0, 0.0]), rtol=1e-4)


def test_exponential_network():
    made = spread(bias.ExponentialNetwork(Euclidean(2), heads=2, basis=3))
    alpha, beta = host(made.weight), np.exp(host(made.log_rate))
    expected = (alpha[:, None, None] * np.exp(-beta[:, None, None] * DISTANCE[None, ..., None])).sum(-1)
    np.testing.assert_allclose(tile(made), expected, rtol=1e-4, atol=1e-5)


def test_linear_starts_with_the_slopes_of_alibi():
    made = bias.Linear(Euclidean(2), heads=8, length=2.0)
    slopes = 2.0 ** -np.arange(1, 9) / 2
    np.testing.assert_allclose(tile(made), -slopes[:, None, None] * DISTANCE, rtol=1e-4)


def test_tisa():
    made = spread(bias.TISA(Translation(2), dim=2, heads=2, basis=3, key=jax.random.key(0)))
    alpha, beta, centre = host(made.weight), np.exp(host(made.log_rate)), host(made.centre)
    square = ((P[None, :, None, None] - Q[None, None, :, None] - centre[:, None, None]) ** 2).sum(-1)
    expected = (alpha[:, None, None] * np.exp(-beta[:, None, None] * square)).sum(-1)
    np.testing.assert_allclose(tile(made), expected, rtol=1e-4, atol=1e-5)


def test_the_places_of_tisa_reach_as_far_as_is_said():
    near, far = (bias.TISA(TimeShift(), dim=1, reach=reach, key=jax.random.key(0)).centre for reach in (1.0, 3.0))
    np.testing.assert_allclose(far, 3 * near, rtol=1e-5)


def test_mlp_bias():
    made = spread(bias.MLPBias(Translation(2), dim=2, heads=3, width=5, activation=jnp.tanh, key=jax.random.key(0)))
    first, last = made.network.layers
    hidden = np.tanh((P[:, None] - Q[None]) @ host(first.weight).T + host(first.bias))
    expected = np.moveaxis(hidden @ host(last.weight).T + host(last.bias), -1, 0)
    np.testing.assert_allclose(tile(made), expected, rtol=1e-4, atol=1e-5)


def test_masks():
    times = np.array([[0.0], [1.0], [2.5]])
    causal = tile(bias.Causal(TimeShift()), times, times)
    np.testing.assert_array_equal(causal[0] == 0, np.tril(np.ones((3, 3), bool)))
    assert (causal[0][~np.tril(np.ones((3, 3), bool))] == -np.inf).all()
    window = tile(bias.Window(TimeShift(), 1.2), times, times)
    np.testing.assert_array_equal(window[0] == 0, np.abs(times - times.T) <= 1.2)
    as_wide = tile(bias.Window(TimeShift(), 1.5), times, times)
    np.testing.assert_array_equal(as_wide[0] == 0, np.abs(times - times.T) <= 1.5)


def test_sum_and_weights():
    near, far = bias.RBFNetwork(Translation(2), heads=2), bias.Linear(Translation(2), heads=2)
    weighted = eqx.tree_at(lambda w: w.weight, bias.Weighted(far, heads=2), jnp.asarray([2.0, -1.0]))
    both = bias.Sum(near, weighted, bias.Window(Translation(2), 1.5))
    expected = tile(near) + np.array([2.0, -1.0])[:, None, None] * tile(far)
    expected = np.where(DISTANCE <= 1.5, expected, -np.inf)
    np.testing.assert_allclose(tile(both), expected, rtol=1e-5)
    pair = both(jnp.asarray(P[0], float), jnp.asarray(Q[0], float))
    np.testing.assert_allclose(pair, expected[:, 0, 0], rtol=1e-5)


@pytest.mark.parametrize(
    "made",
    [bias.RBFNetwork(Translation(2), lengths=(0.1, 2.0)), bias.RBFNetwork(Translation(2), basis=2, lengths=(3.0, 4.0))],
)
def test_bases_start_apart_between_the_lengths(made):
    lengths = np.sqrt(0.5 / np.exp(host(made.log_rate)))
    ratios = lengths[:, 1:] / lengths[:, :-1]
    assert (ratios > 1.05).all() and np.ptp(ratios) < 1e-4
    assert made.weight.shape == made.log_rate.shape


def test_one_basis_starts_in_the_middle():
    made = bias.RBFNetwork(Translation(2), basis=1, lengths=(0.5, 2.0))
    assert np.sqrt(0.5 / np.exp(host(made.log_rate))) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("away", [0.0, 1e-3, 0.7])
def test_second_derivatives_are_those_of_the_square(away):
    """A distance has none where points coincide; its square has, on the plane and, near the equator, on the sphere."""
    groups = {
        "plane": (Translation(2), Euclidean(2)),
        "product": (Product(On("s", Euclidean(2)), On("t", TimeShift())),),
    }
    groups["sphere"] = (SO3(),)
    q = jnp.asarray([away, 0.0])

    def score(group):
        made = bias.RBFNetwork(group, heads=1, basis=1, lengths=(1.0, 1.0))
        bare = not isinstance(group, Product)
        return lambda p: made(p if bare else {"s": p, "t": p[:1]}, q if bare else {"s": q, "t": q[:1]})[0]

    for name, several in groups.items():
        more = np.array([2.0 if name == "product" else 1.0, 1.0])  # the product sees the first coordinate twice
        value = np.exp(-more[0] * away**2 / 2)
        expected = value * (np.outer([more[0] * away, 0], [more[0] * away, 0]) - np.diag(more))
        for group in several:
            np.testing.assert_allclose(jax.hessian(score(group))(jnp.zeros(2)), expected, atol=2e-3)


def test_rows_of_zeros_have_no_gradient():
    """What attention puts in rows that are hidden is no unit vector."""
    made, zeros = bias.RBFNetwork(SO3(3), heads=2), jnp.zeros((2, 3))
    np.testing.assert_array_equal(jax.grad(lambda x: made.tile(x, x).sum())(zeros), 0)


def test_a_group_may_hold_what_is_traced():
    def pair(period):
        lag = bias.Causal(Traced(period))(jnp.ones(1), jnp.zeros(1))
        return lag

    np.testing.assert_array_equal(jax.jit(pair)(2.0), [0.0])


def test_numbers_that_are_held_for_each_pair():
    key, group = jax.random.key(0), Translation(2)
    network = bias.MLPBias(group, dim=2, heads=4, width=32, depth=2, key=key)
    bumps = bias.TISA(group, dim=2, heads=4, basis=5, key=key)
    assert network.numbers_per_pair == 2 + 32 + 32 + 4 and bumps.numbers_per_pair == 4 * 5 * 2
    both = bias.Sum(bias.RBFNetwork(group), bias.Weighted(network), bumps)
    assert both.numbers_per_pair == 70 and bias.RBFNetwork(group).numbers_per_pair == 0


def test_index_sets():
    made = bias.RBFNetwork(On("s", Translation(2)), heads=2)
    bare = bias.RBFNetwork(Translation(2), heads=2)
    p, q = ({"s": jnp.asarray(x, float), "t": jnp.zeros((len(x), 1))} for x in (P, Q))
    np.testing.assert_array_equal(made.tile(p, q), bare.tile(p["s"], q["s"]))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: bias.RBFNetwork(Translation(2), heads=0), "`heads` must be at least 1, got 0"),
        (lambda: bias.RBFNetwork(Translation(2), basis=0), "`basis` must be at least 1, got 0"),
        (
            lambda: bias.RBFNetwork(Translation(2), lengths=(2.0, 1.0)),
            r"shortest, longest\), got \(2.0, 1.0\)",
        ),
        (lambda: bias.ExponentialNetwork(Translation(2), lengths=(0.0, 1.0)), "`lengths` must be positive"),
        (lambda: bias.Linear(Translation(2), length=0.0), "`length` must be positive, got 0"),
        (lambda: bias.Linear(Translation(2), heads=0), "`heads` must be at least 1, got 0"),
        (lambda: bias.TISA(Translation(2), dim=0, key=jax.random.key(0)), "`dim` must be at least 1, got 0"),
        (lambda: bias.MLPBias(Translation(2), dim=2, width=0, key=jax.random.key(0)), "`width` must be at least 1"),
        (lambda: bias.Window(Translation(2), -1.0), "`width` must be positive, got -1"),
        (lambda: bias.Sum(), "`terms` must hold at least one bias"),
        (lambda: bias.RBFNetwork("s"), "`group` must be an object with the method `invariants`, such as .*, got 's'"),
        (lambda: bias.RBFNetwork(NoHash()), r"`group` must have a hash, as with .*, got NoHash"),
        (lambda: bias.RBFNetwork(Translation(2), lengths=(1e-20, 1.0)), "`lengths` must lie between 1e-18 and 1e18"),
        (lambda: tile(bias.RBFNetwork(Vector())), r"`squared` of .*Vector.* must be one number, got shape \(2,\)"),
        (lambda: tile(bias.RBFNetwork(Listed())), "`invariants` of .*Listed.* must be a vector, .* got list"),
        (lambda: bias.Causal(Backward()), "`group` must bring a signed invariant, query minus key"),
        (lambda: bias.Causal(Euclidean(1)), "signed invariant, query minus key as `TimeShift` does.* the future"),
        (lambda: bias.Causal(On("s", SO3())), "`group` must bring a signed invariant"),
        (lambda: bias.Causal(Distance()), "`group` must bring a signed invariant"),
        (lambda: bias.Causal(On("s", Distance())), "`group` must bring a signed invariant"),
        (lambda: bias.Causal(Permutation(3)), "`group` must bring a signed invariant"),
        (lambda: bias.MLPBias(Translation(2), dim=2, depth=-1, key=jax.random.key(0)), "`depth` must be at least 0"),
        (
            lambda: tile(bias.MLPBias(Translation(2), dim=3, key=jax.random.key(0))),
            "`dim` must be 2, the number of invariants, got 3",
        ),
        (
            lambda: tile(bias.Sum(*(bias.RBFNetwork(Translation(2), heads=heads) for heads in (2, 4)))),
            r"`terms` must have the same number of heads, or one score for all, got \[2, 4\] heads",
        ),
        (
            lambda: tile(bias.Weighted(bias.RBFNetwork(Translation(2), heads=4), heads=2)),
            "`heads` must be 4, as many as `bias` has, got 2",
        ),
        (lambda: bias.Weighted(bias.Causal(TimeShift())), "must have finite scores to be weighted"),
        (lambda: bias.Weighted(bias.Linear(TimeShift()), heads=0), "`heads` must be at least 1, got 0"),
        (lambda: tile(bias.Causal(Translation(2))), r"one signed invariant, got invariants of shape \(2,\)"),
        *(
            (lambda make=make: tile(make(Length())), r"`invariants` of .*Length.* must be a vector.*got shape \(\)")
            for make in (
                bias.RBFNetwork,
                bias.ExponentialNetwork,
                bias.Linear,
                bias.Causal,
                lambda group: bias.Window(group, 1.0),
                lambda group: bias.TISA(group, dim=1, key=jax.random.key(0)),
                lambda group: bias.MLPBias(group, dim=1, key=jax.random.key(0)),
            )
        ),
        (lambda: bias.Weighted(bias.Sum(bias.Sum(bias.Window(TimeShift(), 1.0)))), "must have finite scores"),
        (lambda: bias.Weighted(bias.Weighted(bias.Sum(bias.Causal(TimeShift())))), "must have finite scores"),
    ],
)
def test_errors(make, says):
    with pytest.raises(ValueError, match=says):
        make()
