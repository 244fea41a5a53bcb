"""Points of every kind of number: invariants are those of float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.groups import SO3, Cyclic, Euclidean, On, Permutation, Product, Scaling, Translation, safe_norm

KINDS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.float16, jnp.bfloat16, np.float32]
LOW, HIGH = np.array([[3, 5], [1, 90]]), np.array([[120, 7], [100, 4]])

GROUPS = {
    "Translation": (Translation(2), lambda p, q: p - q),
    "Euclidean": (Euclidean(2), lambda p, q: np.sqrt(((p - q) ** 2).sum(-1, keepdims=True))),
    "Cyclic": (
        Cyclic(24.0),
        lambda p, q: np.stack([np.sin(a := (p - q)[:, 0] * np.pi / 12), 1 - np.cos(a)], -1) * 12 / np.pi,
    ),
    "Scaling": (Scaling(2), lambda p, q: np.log(p / q)),
    "Permutation": (Permutation(128), lambda p, q: (p[:, :1] != q[:, :1]).astype(float)),
    "SO3": (SO3(), None),
}


def angle(p, q):
    """Of (longitude, latitude) in degrees, from unit vectors."""
    (a, b), (c, d) = (np.radians(x).T for x in (p, q))
    x, y = (np.stack([np.cos(v) * np.cos(u), np.cos(v) * np.sin(u), np.sin(v)]) for u, v in ((a, b), (c, d)))
    return np.degrees(np.arctan2(np.linalg.norm(np.cross(x.T, y.T), axis=-1), (x * y).sum(0)))[:, None]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("name", GROUPS)
def test_a19_invariants_of_narrow_and_unsigned_numbers(name, kind):
    group, formula = GROUPS[name]
    width = {"Cyclic": 1, "Permutation": 1}.get(name, 2)
    for p, q in ((LOW, HIGH), (HIGH, LOW), (LOW, LOW)):
        p, q = (x[:, :width] for x in (p, q))
        if name == "SO3":
            p, q = np.minimum(p, [120, 90]), np.minimum(q, [120, 90])
        got = jax.vmap(group.invariants)(jnp.asarray(p.astype(kind)), jnp.asarray(q.astype(kind)))
        exact = (formula or angle)(p.astype(np.float64), q.astype(np.float64))
        rough = jnp.issubdtype(got.dtype, jnp.floating) and got.dtype.itemsize == 2
        np.testing.assert_allclose(np.asarray(got, np.float64), exact, rtol=2e-2 if rough else 1e-5, atol=1e-4)


G = np.array([0.5, 1.5], np.float32)
ACTS = {
    "Translation": (Translation(2), G, lambda p: p + G),
    "Euclidean": (Euclidean(2), (np.eye(2, dtype=np.float32), G), lambda p: p + G),
    "Cyclic": (Cyclic(24.0), G[:1], lambda p: (p[:, :1] + G[:1]) % 24),
    "Scaling": (Scaling(2), G, lambda p: p * G),
    "SO3": (SO3(), 0.5 * np.eye(3, dtype=np.float32), lambda p: p),  # degrees do not depend on the radius
    "SO3 unit vectors": (SO3(3), 0.5 * np.eye(3, dtype=np.float32), lambda p: 0.5 * np.eye(3)),
}


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64], ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("name", ACTS)
def test_whole_points_are_moved_by_fractions(name, kind, monkeypatch):
    group, g, formula = ACTS[name]
    p = np.minimum(LOW, 80).astype(kind)  # off the pole, where there is no longitude
    exact = formula(p.astype(np.float64))
    points = np.eye(3, dtype=kind) if name == "SO3 unit vectors" else p[:, : exact.shape[1]]
    got = group.act(jax.tree.map(jnp.asarray, g), jnp.asarray(points))
    assert got.dtype == jnp.result_type(float)
    np.testing.assert_allclose(got, exact, rtol=1e-5)
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # points on the host
    np.testing.assert_allclose(group.act(g, points), exact, rtol=1e-5)


def test_the_host_moves_whole_points_in_double_precision_and_spans_of_time_as_such(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    act: Any = Translation(1).act
    far = np.array([[2**40 + 1]])
    np.testing.assert_array_equal(act(np.array([0.5]), far), far + 0.5)
    np.testing.assert_array_equal(act(np.array([0.5]), np.array([[True]])), [[1.5]])
    spans = far.astype("timedelta64[s]")
    moved = act(np.array([5], "timedelta64[s]"), spans)
    assert moved.dtype == spans.dtype and moved[0, 0].astype(int) == 2**40 + 6
    seconds = 1.7e9 + np.array([[0.0], [30.0], [60.0]])
    around: Any = Cyclic(86400.0).act
    for g in (np.zeros(1), jnp.zeros(1)):
        np.testing.assert_array_equal(act(g, seconds), seconds)
        np.testing.assert_array_equal(around(g, seconds), seconds % 86400)


def test_a19_whole_numbers_whose_difference_does_not_fit(monkeypatch):
    top, bottom = jnp.asarray([2**31 - 1], jnp.int32), jnp.asarray([-(2**31)], jnp.int32)
    np.testing.assert_allclose(Translation(1).invariants(top, bottom), [2.0**32], rtol=1e-6)
    high, low = jnp.asarray([2**32 - 1], jnp.uint32), jnp.asarray([3], jnp.uint32)
    np.testing.assert_allclose(Translation(1).invariants(low, high), [4.0 - 2.0**32], rtol=1e-6)
    near = jnp.asarray([2**31 - 1], jnp.int32), jnp.asarray([2**31 - 31], jnp.int32)
    np.testing.assert_array_equal(Translation(1).invariants(*near), [30.0])
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # numbers are asked for, booleans do no harm
    flags = jnp.asarray([True]), jnp.asarray([False])
    np.testing.assert_array_equal(Translation(1).invariants(*flags), [1.0])


def test_a15_distances_of_half_floats_do_not_overflow():
    """Squares of float16 overflow from 256 on."""
    p, q = jnp.asarray([1000.0, 0.0], jnp.float16), jnp.asarray([0.0, 0.0], jnp.float16)
    np.testing.assert_allclose(Euclidean(2).invariants(p, q), [1000.0])
    np.testing.assert_allclose(safe_norm(jnp.asarray([300.0, 400.0], jnp.float16)), 500.0)


def test_checks_look_at_concrete_points_inside_a_compiled_function():
    def inside(group, points):
        points = jnp.asarray(points)
        jax.jit(lambda: group.check(points))()

    for group, points in (
        (SO3(), [[0, 90.0]]),
        (SO3(3), [[1.0, 0, 0]]),
        (Scaling(1), [[2.0]]),
        (Permutation(2), [[True]]),
    ):
        inside(group, points)
    for group, points in ((SO3(), [[0, 91.0]]), (SO3(3), [[2.0, 0, 0]]), (Scaling(1), [[0]]), (Permutation(2), [[2]])):
        with pytest.raises(ValueError, match="Points of"):
            inside(group, points)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Translation(1.5), "`dim` must be a whole number, got 1.5"),  # pyright: ignore
        (lambda: Permutation(2.5), "`size` must be a whole number, got 2.5"),  # pyright: ignore
        (lambda: Euclidean(True), "`dim` must be a whole number, got True"),
        (lambda: Cyclic(float("inf")), "`period` must be positive, got inf"),
        (lambda: Cyclic(float("nan")), "`period` must be positive, got nan"),
        (lambda: On(3, Translation(1)), "`component` must be the name of a component, got 3"),  # pyright: ignore
        (lambda: Product(SO3()), r"must be groups `On` different components, got \[\]"),  # pyright: ignore
        (lambda: On("s", 3), "`group` must be an object with the method `invariants`, .* got 3"),
    ],
)
def test_what_is_no_group_is_named(make, says, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=says):
        make()
