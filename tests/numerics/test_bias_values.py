"""Every bias gives what its formula gives in float64 NumPy, alone and in tiles, with the right gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bias_cases import CASES, SPACE, TIME, points
from dense_oracle import close
from jax.flatten_util import ravel_pytree

import bsatnp.bias
from bsatnp.bias import (
    TISA,
    AbstractBias,
    Causal,
    ExponentialNetwork,
    Linear,
    MLPBias,
    RBFNetwork,
    Sum,
    Weighted,
    Window,
)
from bsatnp.groups import SO3, Euclidean, On, TimeShift, Translation
from bsatnp.tasks import Points, Task, centre

N_Q, N_K = 5, 7


def double(tree):
    return jax.tree.map(lambda a: np.asarray(a, np.float64) if eqx.is_inexact_array(a) else a, tree)


def test_every_public_bias_is_covered():
    public = {c for c in vars(bsatnp.bias).values() if isinstance(c, type) and issubclass(c, AbstractBias)}
    concrete = {c for c in public if not c.__name__.startswith("Abstract")}
    assert concrete == {type(case.make()) for case in CASES.values()}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    case, (p, x) = CASES[name], points(50, N_Q, N_K)
    bias = case.bias()
    tile = jax.jit(lambda arrays, p, x: eqx.combine(arrays, static).tile(p, x))
    arrays, static = eqx.partition(bias, eqx.is_array)
    got = tile(arrays, p, x)
    expected = case.formula(np, double(bias), double(p), double(x))
    assert got.shape == expected.shape and got.shape[0] in (1, 2)
    hidden = np.isneginf(expected)
    np.testing.assert_array_equal(np.isneginf(got), hidden)
    if name in ("causal", "window", "sum"):
        assert hidden.any() and not hidden.all()
    close(jnp.where(hidden, 0, got), np.where(hidden, 0, expected), times=5)
    pair = jax.jit(lambda p, x: bias(p, x))
    for i, j in [(0, 0), (1, 3), (4, 6)]:
        one = pair(*(jax.tree.map(lambda a, n=n: a[n], z) for z, n in ((p, i), (x, j))))
        assert one.shape == got.shape[:1]
        finite = ~hidden[:, i, j]
        close(one[finite], got[finite, i, j], times=5)
        np.testing.assert_array_equal(np.isneginf(one), ~finite)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    """Of parameters and coordinates; points that coincide are among them."""
    case, (p, x) = CASES[name], points(51, N_Q, N_K)
    arrays, static = eqx.partition((case.bias(), p, x), eqx.is_inexact_array)
    shape = jax.eval_shape(lambda a: eqx.combine(a, static)[0].tile(p, x), arrays).shape
    slope = np.random.default_rng(51).normal(size=shape)

    def package(arrays):
        bias, p, x = eqx.combine(arrays, static)
        scores = bias.tile(p, x)
        return jnp.sum(jnp.where(jnp.isneginf(scores), 0, scores) * jnp.asarray(slope, scores.dtype))

    grads = jax.jit(jax.grad(package))(arrays)
    with jax.enable_x64(True):

        def exact(arrays):
            scores = case.formula(jnp, *eqx.combine(arrays, static))
            return jnp.sum(jnp.where(jnp.isneginf(scores), 0, scores) * slope)

        expected = jax.tree.map(np.asarray, jax.jit(jax.grad(exact))(double(arrays)))
    close(grads, expected, times=20)
    assert any(np.any(np.asarray(g) != 0) for g in jax.tree.leaves(grads)) or name in ("causal", "window")


@pytest.mark.parametrize("make", [RBFNetwork, ExponentialNetwork, Linear])
def test_b1_radial_gradients_where_points_coincide_or_are_far(make):
    bias = make(TIME, heads=2)
    arrays, static = eqx.partition(bias, eqx.is_inexact_array)
    loss = lambda a, t: eqx.combine(a, static)({"t": t}, {"t": jnp.zeros(1)}).sum()  # noqa: E731
    gradient = jax.jit(jax.grad(loss, (0, 1)))
    for apart in (0.0, 1e-12, 1e-3, 1e3, 1e9):
        grads = gradient(arrays, jnp.full(1, apart))
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
        if apart == 0:
            np.testing.assert_array_equal(grads[1], 0.0)


def test_radial_sums_and_gradients_vanish_far_away():
    bias = CASES["rbf"].bias()

    def total(bias, square):
        return bias.of_square(square).sum()

    for far in (1e6, 1e30, 1e38):
        value, grads = jax.jit(jax.value_and_grad(total))(bias, jnp.asarray([far, far]))
        assert value == 0 and all((leaf == 0).all() for leaf in jax.tree.leaves(eqx.filter(grads, eqx.is_array)))


@pytest.mark.parametrize(("n_q", "n_k"), [(0, 3), (3, 0)])
def test_gradients_of_no_pairs_are_zero(n_q, n_k):
    bias, (p, x) = CASES["rbf"].bias(), points(54, 3, 3)
    p, x = (jax.tree.map(lambda leaf, n=n: leaf[:n], side) for side, n in ((p, n_q), (x, n_k)))
    grads = jax.grad(lambda bias: bias.tile(p, x).sum())(bias)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(eqx.filter(grads, eqx.is_array)))


def test_radial_sums_of_one_pair_of_a_row_and_of_a_tile():
    bias = CASES["rbf"].bias()
    square = jnp.asarray(np.random.default_rng(52).uniform(size=(N_Q, N_K)), float)
    tile = bias.of_square(square)
    close(bias.of_square(square[1]), tile[:, 1], times=2)
    close(bias.of_square(square[1, 2]), tile[:, 1, 2], times=2)


def test_batched_parameters():
    """A model maps over stacked biases, one for each block."""
    bias, (p, x) = CASES["rbf"].bias(), points(53, N_Q, N_K)
    slope = jnp.asarray(np.random.default_rng(53).normal(size=(2, N_Q, N_K)), float)
    stacked = jax.tree.map(lambda a: jnp.stack([a, 2 * a, -a]), bias)

    def loss(bias, p):
        return jnp.sum(slope * bias.tile(p, x))

    gradient = jax.jit(jax.grad(loss, (0, 1)))
    mixed = jax.jit(jax.vmap(gradient, (0, None)))(stacked, p)
    for i, factor in enumerate((1, 2, -1)):
        alone = gradient(jax.tree.map(lambda a: factor * a, bias), p)  # noqa: B023
        close(jax.tree.map(lambda g: g[i], mixed), double(alone), times=3)  # noqa: B023


@pytest.mark.parametrize("name", ["rbf", "exponential", "geodesic"])
def test_forward_mode_and_second_order(name):
    """Reverse over reverse and forward over reverse give the same second derivative, that of the formula."""
    case, (p, x) = CASES[name], points(54, 2, 2)
    p = jax.tree.map(lambda a: a[:1] + 0.1, p)
    arrays, static = eqx.partition((case.bias(), p), eqx.is_inexact_array)
    start, unravel = ravel_pytree(arrays)
    rng = np.random.default_rng(54)
    along = rng.normal(size=start.shape)

    def curvature(function, start, along, unravel, x):
        def loss(z):
            return jnp.sum(jnp.sin(function(*eqx.combine(unravel(z), static), x)))

        along = jnp.asarray(along, start.dtype)
        forward = jax.jvp(jax.grad(loss), (start,), (along,))[1]
        return forward, jax.grad(lambda z: jnp.sum(jax.grad(loss)(z) * along))(start)

    got = jax.jit(lambda z: curvature(lambda bias, p, x: bias.tile(p, x), z, along, unravel, x))(start)
    with jax.enable_x64(True):
        wide, unravel_wide = ravel_pytree(jax.tree.map(jnp.asarray, double(arrays)))
        formula = lambda bias, p, x: case.formula(jnp, bias, p, x)  # noqa: E731
        expected = jax.jit(lambda z: curvature(formula, z, along, unravel_wide, double(x))[0])(wide)
        expected = np.asarray(expected)
    close(got, (expected, expected), times=30)


# Starts and units


def test_starts():
    """Rates are those of log-spaced lengths, in the units of the data."""
    lengths = np.geomspace(0.5, 8.0, 4)
    starts = {"heads": 2, "basis": 4, "lengths": (0.5, 8.0)}
    rbf, exponential = RBFNetwork(SPACE, **starts), ExponentialNetwork(SPACE, **starts)
    np.testing.assert_allclose(np.exp(rbf.log_rate), np.tile(1 / (2 * lengths**2), (2, 1)), rtol=1e-5)
    np.testing.assert_allclose(np.exp(exponential.log_rate), np.tile(1 / lengths, (2, 1)), rtol=1e-5)
    np.testing.assert_allclose(np.exp(RBFNetwork(SPACE, basis=1, lengths=(1.0, 4.0)).log_rate), 1 / 8, rtol=1e-5)
    line = Linear(SPACE, heads=8, length=5.0)
    np.testing.assert_allclose(np.exp(line.log_slope), 2.0 ** -np.arange(1, 9) / 5, rtol=1e-5)
    assert np.ptp(TISA(TIME, dim=1, key=jax.random.key(0)).centre) > 0


def test_a15_small_distances_at_large_coordinates():
    rng = np.random.default_rng(55)
    base = 1e3 + rng.uniform(size=(1, 2))
    host = base + 1e-3 * rng.normal(size=(N_Q + N_K, 2))
    bias = eqx.tree_at(lambda b: b.log_slope, Linear(SPACE, heads=1), jnp.zeros(1))

    def distances(s):
        return -bias.tile({"s": s[:N_Q]}, {"s": s[N_Q:]})[0]

    def exact(s):
        return np.linalg.norm(s[:N_Q, None] - s[None, N_Q:], axis=-1)

    single = jnp.asarray(host, float)  # as rounded: subtraction of neighbours is exact
    np.testing.assert_allclose(distances(single), exact(np.asarray(single, np.float64)), rtol=1e-4)
    both = Task(Points({"s": host[:N_Q]}, np.zeros((N_Q, 1))), Points({"s": host[N_Q:]}))
    centred, _ = centre(both, ["s"])
    s = jnp.concatenate([jnp.asarray(z.index["s"], float) for z in (centred.ctx, centred.tgt)])
    np.testing.assert_allclose(distances(s), exact(host), rtol=1e-4)


def great_circle(p, x):
    """In float64, by the haversine near and by its antipode far away, in degrees."""
    p, x = np.radians(np.asarray(p, np.float64)), np.radians(np.asarray(x, np.float64))
    unit = lambda z: np.stack(  # noqa: E731
        [np.cos(z[..., 1]) * np.cos(z[..., 0]), np.cos(z[..., 1]) * np.sin(z[..., 0]), np.sin(z[..., 1])], -1
    )
    a, b = unit(p), unit(x)
    return np.degrees(2 * np.arctan2(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1)))


SPHERE_PAIRS = {
    "far": ([12.0, 40.0], [-100.0, -20.0]),
    "near": ([12.0, 40.0], [12.001, 40.0005]),
    "very near": ([12.0, 40.0], [12.0001, 40.0]),
    "across the date line": ([179.999, 10.0], [-179.999, 10.0]),
    "a full turn": ([359.5, 10.0], [-0.5, 10.0]),
    "antipodes": ([30.0, 20.0], [-150.0, -20.0]),
    "nearly antipodes": ([30.0, 20.0], [-149.999, -20.0]),
    "poles": ([0.0, 90.0], [77.0, -90.0]),
    "one pole, two longitudes": ([0.0, 90.0], [123.0, 90.0]),
    "beside a pole": ([0.0, 89.999], [180.0, 89.999]),
    "pole and equator": ([45.0, 90.0], [-80.0, 0.0]),
    "the same": ([12.0, 40.0], [12.0, 40.0]),
    "a quarter": ([0.0, 0.0], [90.0, 0.0]),
}


@jax.jit
def geodesic_slope(p, x):
    """Minus a linear bias of slope one, and its gradients."""
    bias = eqx.tree_at(lambda b: b.log_slope, Linear(On("g", SO3()), heads=1), jnp.zeros(1))
    return jax.value_and_grad(lambda p, x: -bias({"g": p}, {"g": x})[0], (0, 1))(p, x)


@pytest.mark.parametrize("name", SPHERE_PAIRS)
def test_geodesic_angle(name, x64):
    p, x = (jnp.asarray(z, float) for z in SPHERE_PAIRS[name])
    angle, gradients = geodesic_slope(p, x)
    absolute, relative = (1e-9, 1e-9) if x64 else (2e-5, 5e-6)
    np.testing.assert_allclose(angle, great_circle(p, x), rtol=relative, atol=absolute)
    for gradient in gradients:
        assert np.isfinite(gradient).all()
        assert np.max(np.abs(gradient)) < 1.001 + (0 if x64 else 0.01)  # a degree of angle for a degree of movement


def test_geodesic_angle_of_neighbours_is_relative(x64):
    rng = np.random.default_rng(56)
    p = np.stack([rng.uniform(-180, 180, 50), rng.uniform(-89, 89, 50)], -1)
    p, x = (np.asarray(jnp.asarray(z, float)) for z in (p, p + 1e-3 * rng.normal(size=p.shape)))
    got = jax.vmap(SO3().invariants)(jnp.asarray(p), jnp.asarray(x))[:, 0]
    np.testing.assert_allclose(got, great_circle(p, x), rtol=1e-9 if x64 else 1e-4)


# Inputs of other kinds


class Lag:
    """A user's group, as far as a bias needs it: differences of whatever the components hold."""

    def __init__(self, component):
        self.component = component

    def invariants(self, p, q):
        return p[self.component] - q[self.component]


@pytest.mark.parametrize("name", ["rbf", "exponential", "linear", "tisa", "mlp", "causal", "window"])
def test_a19_integer_invariants(name):
    """Seconds as integers: their squares do not fit 32 bits."""
    far, near, lengths = Lag("s"), Lag("t"), {"heads": 2, "basis": 3, "lengths": (1e4, 1e6)}
    bias = {
        "rbf": lambda: RBFNetwork(far, **lengths),
        "exponential": lambda: ExponentialNetwork(far, **lengths),
        "linear": lambda: Linear(far, heads=2, length=1e4),
        "tisa": lambda: TISA(near, dim=1, heads=2, basis=3, key=jax.random.key(0)),
        "mlp": lambda: MLPBias(near, dim=1, heads=2, width=8, key=jax.random.key(0)),
        "causal": lambda: Causal(near),
        "window": lambda: Window(far, 6e4),
    }[name]()
    rng = np.random.default_rng(57)
    p, x = ({"s": rng.integers(0, 10**5, (n, 2)), "t": rng.integers(0, 5, (n, 1))} for n in (N_Q, N_K))
    got = jax.jit(lambda p, x: bias.tile(p, x))(*(jax.tree.map(jnp.asarray, z) for z in (p, x)))
    floats = [{n: a.astype(float) for n, a in z.items()} for z in (p, x)]
    if name == "mlp":
        floats = [{"s": z["t"], "t": z["t"][:, :0]} for z in floats]  # the formula joins both components
    expected = CASES[name].formula(np, double(bias), *floats)
    hidden = np.isneginf(expected)
    np.testing.assert_array_equal(np.isneginf(got), hidden)
    close(jnp.where(hidden, 0, got), np.where(hidden, 0, expected), times=5)


def test_bfloat16_components():
    p, x = ({"s": jnp.asarray(z, jnp.bfloat16)} for z in ([[1.0, 2.5]], [[0.25, 3.0], [1.0, 2.5]]))
    bias = CASES["rbf"].bias()
    close(bias.tile(p, x), CASES["rbf"].formula(np, double(bias), double(p), double(x)), times=3)


@pytest.mark.parametrize("name", ["linear", "rbf", "exponential", "tisa"])
def test_parameters_of_half_precision_compute_in_float32(name):
    """Squares of distances beyond 256 do not fit float16, which such parameters would otherwise bring in."""
    bias = jax.tree.map(lambda a: a.astype(jnp.float16) if eqx.is_inexact_array(a) else a, CASES[name].bias())
    p, x = ({n: 300 * jnp.asarray(z, jnp.float32) for n, z in s.items()} for s in points(51, N_Q, N_K))

    def total(bias):
        return bias.tile(p, x).sum()

    value, slope = eqx.filter_value_and_grad(total)(bias)
    assert value.dtype == jnp.float32 and np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    close(bias.tile(p, x), CASES[name].formula(np, double(bias), double(p), double(x)), times=50)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RBFNetwork(SPACE, heads=0), "`heads` must be at least 1, got 0"),
        (lambda: RBFNetwork(SPACE, basis=0), "`basis` must be at least 1, got 0"),
        (lambda: RBFNetwork(SPACE, lengths=(2.0, 1.0)), "`lengths` must be positive, finite and ordered"),
        (lambda: RBFNetwork(SPACE, lengths=(1.0, np.inf)), "`lengths` must be positive, finite and ordered"),
        (lambda: ExponentialNetwork(SPACE, lengths=(0.0, 1.0)), "`lengths` must be positive, finite and ordered"),
        (lambda: Linear(SPACE, length=0.0), "`length` must be positive, got 0"),
        (lambda: Window(SPACE, -1.0), "`width` must be positive, got -1"),
        (lambda: Window(SPACE, float("nan")), "`width` must be positive, got nan"),
        (lambda: TISA(TIME, dim=0, key=jax.random.key(0)), "`dim` must be at least 1, got 0"),
        (
            lambda: TISA(SPACE, dim=1, key=jax.random.key(0))({"s": jnp.zeros(2)}, {"s": jnp.zeros(2)}),
            "`dim` must be 2, the number of invariants, got 1",
        ),
        (lambda: MLPBias(TIME, dim=1, width=0, key=jax.random.key(0)), "`width` must be at least 1, got 0"),
        (lambda: Sum(), "`terms` must hold at least one bias"),
        (lambda: Weighted(Causal(TIME)), "`bias` must have finite scores"),
        (lambda: Weighted(Sum(Linear(SPACE), Sum(Window(SPACE, 1.0)))), "`bias` must have finite scores"),
        (lambda: Causal(SPACE)({"s": jnp.zeros(2)}, {"s": jnp.zeros(2)}), "one signed invariant"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_euclidean_and_translation_give_the_same_radial_bias():
    p, x = (jnp.asarray(np.random.default_rng(58).normal(size=(n, 2)), float) for n in (N_Q, N_K))
    a, b = (RBFNetwork(group, heads=2).tile(p, x) for group in (Translation(2), Euclidean(2)))
    close(a, b, times=3)
    assert Sum(RBFNetwork(Euclidean(2)), Causal(TimeShift())).groups == (Euclidean(2), TimeShift())
