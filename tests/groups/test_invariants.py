"""Invariants and actions against closed forms in NumPy, and what groups refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.groups import (
    SO3,
    Cyclic,
    Euclidean,
    On,
    Permutation,
    Product,
    Scaling,
    TimeShift,
    Translation,
    components,
    factors,
    safe_norm,
)

RNG = np.random.default_rng(0)


def angle(p, q):
    """Great-circle angle in degrees, in float64, by Vincenty's formula."""
    (a, b), (c, d) = np.radians(np.asarray(p, np.float64)), np.radians(np.asarray(q, np.float64))
    x = np.hypot(np.cos(d) * np.sin(c - a), np.cos(b) * np.sin(d) - np.sin(b) * np.cos(d) * np.cos(c - a))
    return np.degrees(np.arctan2(x, np.sin(b) * np.sin(d) + np.cos(b) * np.cos(d) * np.cos(c - a)))


def vector(p):
    lon, lat = np.radians(np.asarray(p, np.float64))
    return np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


def value(group, p, q):
    return np.asarray(group.invariants(jnp.asarray(p, float), jnp.asarray(q, float)))


PAIRS = [
    ([0, 0], [90, 0]),
    ([10, 20], [10.001, 20]),
    ([0, 90], [123, 90]),
    ([0, 90], [55, -90]),
    ([0, 0], [180, 0]),
    ([30, 40], [-150, -40]),
    ([30, 40], [-150, -39.99]),
    ([359.9, 12], [-0.1, 12]),
    ([180, 5], [-180, 6]),
    ([-75, 60], [80, -20]),
]


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_great_circle_angle(p, q):
    expected = angle(p, q)
    assert value(SO3(), p, q) == pytest.approx(expected, rel=1e-4, abs=2e-5)
    # a chord of unit vectors loses a little more next to antipodes
    assert value(SO3(3), vector(p), vector(q)) == pytest.approx(expected, rel=1e-4, abs=2e-5)


def test_translation_and_time():
    p, q = RNG.normal(size=(2, 3))
    np.testing.assert_allclose(value(Translation(3), p, q), p - q, rtol=1e-5)
    assert value(TimeShift(), [5.0], [2.0]) == pytest.approx(3.0)
    assert value(TimeShift(), [2.0], [5.0]) == pytest.approx(-3.0)


def test_small_distances_at_large_coordinates():
    """A15: distances come from differences, never from expanded squares."""
    p, q = np.array([[1000.0, 1000.0], [1000.001, 1000.0]], np.float32)
    expected = np.linalg.norm(p.astype(np.float64) - q.astype(np.float64))
    assert value(Euclidean(2), p, q) == pytest.approx(expected, rel=1e-4)


def test_euclidean():
    p, q = RNG.normal(size=(2, 3))
    assert value(Euclidean(3), p, q) == pytest.approx(np.linalg.norm(p - q), rel=1e-5)


@pytest.mark.parametrize(("p", "q"), [(23.5, 0.5), (6.0, 18.0), (1.0, 1.0), (100.0, 4.0), (0.0, 24.0)])
def test_cyclic(p, q):
    turn = 2 * np.pi * (p - q) / 24
    expected = 24 / (2 * np.pi) * np.array([np.sin(turn), 1 - np.cos(turn)])
    np.testing.assert_allclose(value(Cyclic(24.0), [p], [q]), expected, atol=2e-5)


def test_small_phases_are_as_long_as_their_difference():
    assert np.linalg.norm(value(Cyclic(24.0), [0.01], [23.99])) == pytest.approx(0.02, rel=1e-3)


def test_scaling():
    p, q = np.exp(RNG.normal(size=(2, 2)))
    np.testing.assert_allclose(value(Scaling(2), p, q), np.log(p / q), rtol=1e-4)


@pytest.mark.parametrize("kind", [int, float])
def test_permutation(kind):
    group = Permutation(4)
    codes = jnp.asarray([[0], [3], [3]], kind)
    assert group.invariants(codes[1], codes[2]) == 0
    assert group.invariants(codes[0], codes[2]) == 1
    renamed = group.act(jnp.asarray([1, 2, 3, 0]), codes)
    assert renamed.dtype == codes.dtype
    np.testing.assert_array_equal(np.asarray(renamed)[:, 0], [1, 0, 0])


def test_rotations_of_the_sphere_against_numpy():
    group = SO3()
    turn = group.sample(key=jax.random.key(1))
    lonlat = np.array([[0.0, 0.0], [50.0, -30.0], [170.0, 88.0], [0.0, 90.0]])
    moved = np.asarray(group.act(turn, jnp.asarray(lonlat, float)))
    for before, after in zip(lonlat, moved, strict=True):
        np.testing.assert_allclose(vector(after), np.asarray(turn, np.float64) @ vector(before), atol=2e-6)
    units = np.stack([vector(p) for p in lonlat])
    np.testing.assert_allclose(
        np.asarray(SO3(3).act(turn, jnp.asarray(units, float))), units @ np.asarray(turn, np.float64).T, atol=2e-6
    )


def test_components_of_index_sets():
    group = Product(On("s", Translation(2)), On("t", Cyclic(24.0)))
    assert components(group) == ("s", "t")
    assert components(On("s", SO3())) == ("s",)
    assert components(SO3()) == () and factors(SO3()) == ()
    index = {"s": jnp.ones((3, 2)), "t": jnp.full((3, 1), 23.0), "x": jnp.zeros((3, 4))}
    moved = group.act((jnp.asarray([1.0, 2.0]), jnp.asarray([2.0])), index)
    np.testing.assert_array_equal(moved["s"], np.full((3, 2), [2.0, 3.0]))
    np.testing.assert_allclose(moved["t"], np.ones((3, 1)), atol=1e-5)
    assert moved["x"] is index["x"]
    p, q = ({name: row[0] for name, row in points.items()} for points in (moved, index))
    joined = group.invariants(p, q)
    np.testing.assert_allclose(joined[:2], [1.0, 2.0])
    assert joined.shape == (4,)
    assert On("s", Translation(2)).shift_invariant and not On("s", SO3()).shift_invariant


def test_a_product_among_factors_stands_for_its_own():
    s, t, x = On("s", Translation(2)), On("t", TimeShift()), On("x", Scaling(1))
    group = Product(Product(s, t), x)
    assert components(group) == ("s", "t", "x") and factors(group) == (s, t, x)
    assert [g.shape for g in group.identity()] == [(2,), (1,), (1,)]
    with pytest.raises(ValueError, match=r"different components, got \['s', 't', 's'\]"):
        Product(Product(s, t), s)


def test_safe_norm():
    assert safe_norm(jnp.asarray([3.0, 4.0])) == pytest.approx(5)
    np.testing.assert_array_equal(jax.grad(safe_norm)(jnp.zeros(2)), [0, 0])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Translation(0), "`dim` must be at least 1, got 0"),
        (lambda: Euclidean(0), "`dim` must be at least 1, got 0"),
        (lambda: Scaling(-1), "`dim` must be at least 1, got -1"),
        (lambda: Permutation(0), "`size` must be at least 1, got 0"),
        (lambda: Cyclic(0.0), "`period` must be positive, got 0"),
        (lambda: SO3(4), r"`dim` must be 2 .* or 3 .*, got 4"),
        (lambda: Product(), "`factors` must be groups `On` different components"),
        (lambda: Product(On("s", SO3()), On("s", Translation(2))), r"different components, got \['s', 's'\]"),
        (lambda: SO3().check(np.array([[0.0, 120.0]])), "goes up to 120, beyond 90"),
        (lambda: SO3(3).check(np.array([[1.0, 1.0, 0.0]])), "must be unit vectors, got squared lengths off by 1"),
        (lambda: Scaling(1).check(np.array([[0.0]])), "must be positive, got 0"),
        (lambda: Permutation(3).check(np.array([[3]])), r"must be codes 0 … 2"),
        (lambda: Permutation(3).check(np.array([[0.5]])), r"must be codes 0 … 2"),
    ],
)
def test_errors(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("group", [SO3(), SO3(3), Scaling(1), Permutation(2)])
def test_empty_sets_of_points_pass_the_check(group):
    group.check(np.zeros((0, group.dim)))
