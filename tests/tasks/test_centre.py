"""Centring on the host: differences survive float32, whatever the origin, the type and the unit."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.tasks import Points, Task, batch, centre
from bsatnp.tasks.centring import narrow

STEPS = np.array([[0], [30], [60], [95]])


def task(values, name="t"):
    """The first rows as context, the last as target."""
    f = np.zeros((len(values) - 1, 1))
    return Task(Points({name: values[:-1]}, f), Points({name: values[-1:]}))


def joined(moved, name="t"):
    return np.concatenate([np.asarray(moved.ctx.index[name]), np.asarray(moved.tgt.index[name])]).astype(np.float64)


@pytest.mark.parametrize(
    "values",
    [
        1.7e9 + STEPS,
        1_700_000_000 + STEPS,
        np.datetime64("2023-11-14T22:13:20", "ns") + STEPS * np.timedelta64(1, "s").astype("timedelta64[ns]"),
        np.datetime64("2023-11-14T22:13:20", "s") + STEPS * np.timedelta64(1, "s"),
        np.datetime64("2200-01-01", "ns") + STEPS * np.timedelta64(1, "s").astype("timedelta64[ns]"),
        (1_700_000_000 + STEPS).astype(np.uint32),
    ],
    ids=["float seconds", "integer seconds", "datetime64[ns]", "datetime64[s]", "two centuries on", "unsigned"],
)
def test_seconds_since_an_epoch_keep_their_differences(values):
    moved, _ = centre(task(values), ["t"])
    t = joined(moved)
    np.testing.assert_array_equal(t - t[0], STEPS)
    assert np.abs(t).max() < 100


def test_padding_hides_no_loss_of_differences():
    """What does not move and is lost in float32 is refused, with masked rows as without."""
    for values in (1.7e9 + STEPS, 5e6 + STEPS / 300):
        with pytest.raises(ValueError, match="Component 't' loses differences of"):
            centre(task(values), [])
        padded = Task(task(values).ctx.pad(16), task(values).tgt.pad(4))
        with pytest.raises(ValueError, match="Component 't' loses differences of"):
            centre(padded, [])
        with pytest.raises(ValueError, match="Component 't' loses differences of"):
            centre(batch([padded, task(values)]), [])


def test_a_mask_may_be_traced_where_nothing_moves():
    first = task(STEPS / 7)

    def places(mask):
        return centre(Task(Points(first.ctx.index, first.ctx.f, mask=mask), first.tgt), [])[0].ctx.index["t"]

    np.testing.assert_allclose(jax.jit(places)(jnp.ones(3, bool)), STEPS[:3] / 7, rtol=1e-6)


def test_integer_nanoseconds_keep_their_differences():
    t = joined(centre(task(1_700_000_000_000_000_000 + STEPS * 10**9), ["t"])[0])
    np.testing.assert_allclose(t - t[0], STEPS * 1e9, rtol=1e-6)


@pytest.mark.parametrize("origin", [(500000.1, 5e6), (0.0, 0.0)])
def test_metres_of_a_projection_keep_their_decimetres(origin):
    steps = np.array([[0, 0], [0.1, 0], [0, 0.1], [0.3, 0.2]])
    s = joined(centre(task(origin + steps, "s"), ["s"])[0], "s")
    np.testing.assert_allclose(s - s[0], steps, atol=1e-6)


@hypothesis.given(
    shift=st.floats(-1e7, 1e7), values=st.lists(st.integers(-1000, 1000), min_size=3, max_size=3, unique=True)
)
def test_a_common_shift_changes_next_to_nothing(shift, values):
    near = np.array(values, np.float64)[:, None] / 8
    a, b = joined(centre(task(near), ["t"])[0]), joined(centre(task(near + shift), ["t"])[0])
    np.testing.assert_allclose(a, b, atol=1e-4)


def test_later_targets_move_as_their_context_did():
    values = 1.7e9 + STEPS
    first, origin = centre(task(values), ["t"])
    again, same = centre(Task(task(values).ctx, Points({"t": values + 600})), ["t"], origin=origin)
    np.testing.assert_array_equal(again.ctx.index["t"], first.ctx.index["t"])
    np.testing.assert_array_equal(np.asarray(again.tgt.index["t"], np.float64) + same["t"][0], values + 600)


def test_every_task_of_a_batch_has_its_own_origin_and_padding_no_say_in_it():
    tasks = [task(1.7e9 + STEPS), task(5.0 + STEPS[:2])]
    moved, origin = centre(batch(tasks), ["t"])
    np.testing.assert_array_equal(origin["t"][:, 0, 0], [1.7e9 + 30, 5.0])
    alone, _ = centre(tasks[1], ["t"])
    np.testing.assert_array_equal(moved.ctx.index["t"][1, :1], alone.ctx.index["t"])
    np.testing.assert_array_equal(moved.tgt.index["t"][1], alone.tgt.index["t"])


def test_without_context_the_targets_give_the_origin():
    empty = Task(Points({"t": np.zeros((0, 1))}, np.zeros((0, 1))), Points({"t": 1.7e9 + STEPS}))
    t = np.asarray(centre(empty, ["t"])[0].tgt.index["t"], np.float64)
    np.testing.assert_allclose(t - t[0], STEPS, atol=1e-5)
    padded, origin = centre(Task(empty.ctx, empty.tgt.pad(16)), ["t"])
    assert origin["t"] == pytest.approx(1.7e9 + STEPS.mean(), abs=1e-5)
    np.testing.assert_array_equal(padded.tgt.index["t"][:4, 0], t[:, 0])


def test_masked_rows_may_hold_anything():
    values = np.array([[1.7e9], [1.7e9 + 30], [np.nan]])
    ctx = Points({"t": values}, np.zeros((3, 1)), mask=np.array([True, True, False]))
    moved, _ = centre(Task(ctx, Points({"t": values[:1]})), ["t"])
    np.testing.assert_array_equal(np.asarray(moved.ctx.index["t"])[:2], [[-15], [15]])


@pytest.mark.parametrize("hide", ["mask", "observed", "masked array"])
def test_hidden_whole_numbers_do_not_make_floats_of_labels(hide):
    labels, shown = np.array([[1], [2], [2**40]]), np.array([True, True, False])
    options = {} if hide == "masked array" else {hide: shown if hide == "mask" else shown[:, None]}
    f = np.ma.array(labels, mask=~shown[:, None]) if hide == "masked array" else labels
    ctx = Points({"s": np.where(shown[:, None], labels, 2**40 if hide == "mask" else 0)}, f, **options)
    moved, _ = centre(Task(ctx, Points({"s": np.zeros((1, 1), int)})), [])
    assert moved.ctx.f.dtype.kind == "i" and moved.ctx.index["s"].dtype.kind == "i"
    np.testing.assert_array_equal(moved.ctx.f[:2], [[1], [2]])


def test_components_that_may_not_move_are_narrowed_only(x64):
    values = np.array([[0.5], [1.5], [-3.0]])
    moved, origin = centre(task(values, "x"), ["t"])
    np.testing.assert_array_equal(joined(moved, "x"), values)
    assert origin == {} and moved.ctx.index["x"].dtype == (np.float64 if x64 else np.float32)
    codes, _ = centre(task(np.array([[3], [1], [2]]), "x"), [])
    assert codes.ctx.index["x"].dtype == np.int32
    flags, _ = centre(task(np.array([[True], [False], [True]]), "x"), ["x"])
    assert flags.ctx.index["x"].dtype == bool


def test_differences_that_float32_would_lose_are_refused(x64):
    values = task(5e6 + np.array([[0.0], [0.1], [0.2]]), "s")
    if x64:
        np.testing.assert_array_equal(joined(centre(values, [])[0], "s"), 5e6 + np.array([[0.0], [0.1], [0.2]]))
    else:
        with pytest.raises(ValueError, match="Component 's' loses differences of 0.1 in float32"):
            centre(values, [])


GROUPS = np.array([0, 0, 10, 10, 20, 20.0])  # pairs, each a rounding apart, or more


@pytest.mark.parametrize(
    ("steps", "held"),
    [
        (2.1 * np.arange(3), True),
        (1.9 * np.arange(3), False),
        ([-5.5e6, 0, 0.5, 1], True),
        ([-4.5e6, 0, 0.5, 1], False),
        (GROUPS + 6e-5 * (np.arange(6) % 2), True),
        (GROUPS + 1.2e-4 * (np.arange(6) % 2), False),
    ],
    ids=["wide", "narrow", "far", "less far", "rounding", "no rounding"],
)
def test_float32_may_lose_a_quarter_of_a_gap(steps, held, x64):
    """Half a unit is lost of the first number, here as in every case."""
    values = 2.0**23 + 0.5 + np.asarray(steps)[:, None]
    if held or x64:
        np.testing.assert_allclose(narrow("s", values, np.ones(len(values), bool)), values, atol=0.51)
    else:
        with pytest.raises(ValueError, match="Component 's' loses differences of"):
            narrow("s", values, np.ones(len(values), bool))


def test_device_arrays_pass_through_untouched():
    device = jax.tree.map(jnp.asarray, task(np.array([[10.0], [20.0], [30.0]])))
    moved, origin = centre(device, ["t"])
    assert origin == {} and moved.ctx.index["t"] is device.ctx.index["t"]


def test_values_are_narrowed_too(x64):
    moved, _ = centre(task(np.array([[10.0], [20.0], [30.0]])), ["t"])
    assert moved.ctx.f.dtype == (np.float64 if x64 else np.float32)
