"""Coordinates as people have them: large, cyclic, dates. The same points give the same predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import bias
from bsatnp.groups import On, TimeShift
from bsatnp.tasks import Points, Task, centre
from bsatnp.testing import perturbed
from tests.registry import bsatnp, close, invariant_model, predict

RNG = np.random.default_rng(6)
S, T, F, X = RNG.normal(size=(8, 2)), RNG.normal(size=(8, 1)), RNG.normal(size=(8, 1)), RNG.normal(size=(8, 2))


def answer(model, **index):
    """Predictions for five context points and three targets."""
    ctx, tgt = ({name: value[rows] for name, value in index.items()} for rows in (slice(0, 5), slice(5, 8)))
    return predict(model, Points(ctx, F[:5]), Points(tgt))


@pytest.fixture(scope="module")
def plane():
    return perturbed(invariant_model("Translation"), key=jax.random.key(1))


@pytest.fixture(scope="module")
def sphere():
    return perturbed(invariant_model("SO3"), key=jax.random.key(1))


@pytest.fixture(scope="module")
def time():
    """Lengths of half a minute to five minutes, in seconds."""
    lags = bias.RBFNetwork(On("t", TimeShift()), heads=2, basis=3, lengths=(30.0, 300.0))
    return perturbed(bsatnp(lags), key=jax.random.key(1))


@pytest.mark.parametrize("shift", [10.0, 1e4, -5e6])
def test_a_shift_changes_nothing(plane, shift):
    assert close(answer(plane, s=S + shift, x=X), answer(plane, s=S, x=X))


def test_without_centring_a_large_shift_does(plane, x64):
    """The control: coordinates that were rounded to float32 before the model saw them."""
    if x64:
        pytest.skip("float64 has the digits")
    ctx, tgt = ({"s": (S[rows] + 5e6).astype(np.float32), "x": X[rows]} for rows in (slice(0, 5), slice(5, 8)))
    rounded = predict(plane, Points(ctx, F[:5]), Points(tgt))
    assert not close(rounded, answer(plane, s=S, x=X), atol=1e-3)


def test_an_embedded_component_stays_where_it_is(plane):
    assert not close(answer(plane, s=S, x=X + 10), answer(plane, s=S, x=X), atol=1e-3)


def test_b7_eastings_and_northings(plane):
    """B7: differences of 0.1 at 5e5 and 5e6."""
    local = np.array([[0.1, 0.0], [0.2, 0.1], [0.3, 0.0], [0.4, 0.3], [0.1, 0.2], [0.2, 0.2], [0.15, 0.1], [0.4, 0.0]])
    utm = local + np.array([500000.0, 5000000.0])
    assert close(answer(plane, s=utm, x=X), answer(plane, s=local, x=X))
    # 0.1 is seen: the model tells these points from those that lost it
    assert not close(answer(plane, s=np.round(utm), x=X), answer(plane, s=local, x=X), atol=1e-4)


def test_b4_longitudes_have_several_names(sphere):
    """B4."""
    s = np.array([[359.9, 10], [180, -20], [77, 90], [12, -90], [-0.1, 5], [-180, 30], [45, 90], [200, 0]], float)
    other = np.array([[-0.1, 10], [-180, -20], [-3, 90], [250, -90], [359.9, 5], [180, 30], [0, 90], [-160, 0]], float)
    assert close(answer(sphere, s=s, x=X), answer(sphere, s=other, x=X), atol=2e-5)
    # and a degree makes a difference
    assert not close(
        answer(sphere, s=s + np.array([0.0, -1.0]) * (np.arange(8)[:, None] == 0), x=X),
        answer(sphere, s=s, x=X),
        atol=1e-4,
    )


def test_b3_unit_vectors_and_degrees_agree(sphere):
    degrees = np.stack([RNG.uniform(-180, 180, 8), RNG.uniform(-90, 90, 8)], -1)
    lon, lat = np.radians(degrees).T
    vectors = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)
    other = perturbed(invariant_model("SO3 unit vectors"), key=jax.random.key(1))
    assert close(answer(other, s=vectors, x=X), answer(sphere, s=degrees, x=X), atol=2e-5)


def test_b3_latitudes_and_longitudes_swapped_are_refused(sphere):
    """B3."""
    with pytest.raises(ValueError, match=r"\(longitude, latitude\) in degrees; the second column goes up to 120"):
        answer(sphere, s=np.tile([[45.0, 120.0]], (8, 1)), x=X)


SECONDS = np.array([[0], [30], [60], [90], [240], [15], [60], [400]])


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("Unix seconds", 1.7e9 + SECONDS.astype(float)),
        ("whole Unix seconds", 1_700_000_000 + SECONDS),
        ("datetime64[s]", np.datetime64("2023-11-14T22:13:20") + SECONDS.astype("timedelta64[s]")),
        ("datetime64[ns]", (np.datetime64("2023-11-14T22:13:20") + SECONDS.astype("timedelta64[s]")).astype("M8[ns]")),
    ],
)
def test_b6_times(time, name, times):
    """B6: the same seconds, whatever they are counted from."""
    assert close(answer(time, t=times), answer(time, t=SECONDS.astype(float)))


def test_b6_nanoseconds_keep_their_differences():
    """B6: integers of any size, exact up to the digits of the device."""
    start = 1_700_000_000_123_456_789
    t = start + np.array([[0], [1], [3], [1000]])
    task, origin = centre(Task(Points({"t": t}, np.zeros((4, 1))), Points({"t": t})), ["t"])
    moved = np.asarray(task.ctx.index["t"], np.float64)
    np.testing.assert_array_equal(np.diff(moved[:, 0]), [1, 2, 997])
    assert int(origin["t"][0, 0]) + int(moved[0, 0]) == start
    dates = t.astype("M8[ns]")
    task, _ = centre(Task(Points({"t": dates}, np.zeros((4, 1))), Points({"t": dates})), ["t"])
    seconds = np.asarray(task.tgt.index["t"], np.float64)[:, 0]
    np.testing.assert_allclose(np.diff(seconds), [1e-9, 2e-9, 997e-9], atol=1e-13)


def test_targets_are_moved_as_their_context_was(time):
    """Targets far from the context keep their distance from it."""
    minutes = 60 * np.arange(5.0), 60 * np.arange(3.0)
    t = 1.7e9 + np.concatenate([minutes[0], 1e5 + minutes[1]])[:, None]
    assert close(answer(time, t=t), answer(time, t=t - 1.7e9))
    near = np.concatenate(minutes)[:, None]
    assert not close(answer(time, t=t), answer(time, t=near), atol=1e-3)


def test_device_arrays_are_taken_as_they_are(plane):
    s, x = jnp.asarray(S + 10), jnp.asarray(X)
    assert close(answer(plane, s=s, x=x), answer(plane, s=S, x=X))


def test_the_model_itself_centres_host_arrays(plane):
    """`model(ctx, tgt)` without the helper of the other tests."""
    ctx, tgt = ({"s": S[rows] + 5e6, "x": X[rows]} for rows in (slice(0, 5), slice(5, 8)))
    assert close(plane(Points(ctx, F[:5]), Points(tgt)), answer(plane, s=S, x=X))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Points({"s": S.T}, F), r"`f` must have axes \(point, out\) = \(2, 'out'\), got \(8, 1\)"),
        (lambda: Points({"s": S}, F.T), r"`f` must have axes \(point, out\) = \(8, 'out'\), got \(1, 8\)"),
        (lambda: Points({"s": S}, F[:, 0]), r"`f` must have axes \(point, out\) = \(8, 'out'\), got \(8,\)"),
        (lambda: Points({"s": S[:, 0]}, F), r"Component 's' must have axes \(point, dim\), got shape \(8,\)"),
        (lambda: Points({"s": S, "x": X[:4]}), r"must share the axes before dim: 's' has \(8,\), 'x' has \(4,\)"),
        (lambda: Points({"s": S[None], "x": X}), r"must share the axes before dim: 's' has \(1, 8\), 'x' has \(8,\)"),
        (lambda: Points({"s": S}, F, mask=np.ones(4, bool)), r"`mask` must be boolean with axes \(point,\) = \(8,\)"),
    ],
)
def test_b8_axes_that_do_not_fit_are_named(make, says):
    """B8."""
    with pytest.raises(ValueError, match=says):
        make()
