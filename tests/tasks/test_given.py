"""Arrays as people have them: masked, big-endian, wider than any device, of other kinds in context and targets."""

import datetime
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import tasks
from bsatnp.tasks import Task, batch, centre, split

#: Takes what people hand in; its annotations name arrays alone.
Points: Any = tasks.Points
S, F = np.arange(6.0).reshape(3, 2), np.array([[1.0], [2.0], [3.0]])


def task(ctx, tgt, f=None):
    """A task on "t"."""
    return Task(Points({"t": ctx}, np.zeros((len(ctx), 1)) if f is None else f), Points({"t": tgt}))


def joined(ctx, tgt):
    """Where `centre` puts context and targets, relative to the first row, in float64."""
    moved, _ = centre(task(ctx, tgt), ["t"])
    rows = np.concatenate([np.asarray(moved.ctx.index["t"]), np.asarray(moved.tgt.index["t"])]).astype(np.float64)
    return (rows - rows[0])[:, 0]


def test_c1_what_a_masked_array_hides_is_not_observed():
    hidden = np.ma.array(F, mask=F == 2)
    points = Points({"s": S}, hidden)
    assert type(points.f) is type(points.observed) is np.ndarray
    np.testing.assert_array_equal(points.observed[:, 0], [True, False, True])
    assert points.n_missing == 1 and points.f[1, 0] == 0
    counts = Points({"s": S}, hidden.astype(int), mask=np.ma.array([True] * 3, mask=np.arange(3) == 2))
    np.testing.assert_array_equal(counts.observed[:, 0], [True, False, False])
    np.testing.assert_array_equal(counts.mask, [True, True, False])
    both = Points({"s": S}, hidden, observed=np.array([[False], [True], [True]]))
    np.testing.assert_array_equal(both.observed[:, 0], [False, False, True])


def test_c1_a_coordinate_that_a_masked_array_hides_is_refused():
    hidden = np.ma.array(S, mask=S > 3)
    with pytest.raises(ValueError, match="Component 's' must be finite .* got 2 NaN, infinite or missing"):
        Points({"s": hidden}, F)
    kept = Points({"s": hidden}, F, mask=np.array([True, True, False]))
    assert type(kept.index["s"]) is np.ndarray


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i4", ">i8", np.longdouble])
def test_other_byte_orders_and_widths_become_those_of_the_machine(kind):
    points = Points({"s": S.astype(kind)}, F.astype(kind))
    for array in (points.index["s"], points.f):
        assert array.dtype.isnative and array.dtype.itemsize <= 8
        assert jnp.asarray(array).shape == array.shape
    np.testing.assert_array_equal(points.index["s"], S)
    np.testing.assert_array_equal(points.f, F)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Points({"s": [[0, 1], [2]]}, F), "Component 's' must be an array whose rows have one length"),
        (lambda: Points({"s": S}, [[1.0], [2.0, 3.0], [4.0]]), "`f` must be an array whose rows have one length"),
        (lambda: Points({"s": np.zeros((3, 1), [("a", "f4")])}), r"Component 's' must hold numbers or dates .*UTC"),
        (lambda: Points({"s": np.zeros((3, 1), "V8")}), "Component 's' must hold numbers or dates"),
        (lambda: Points({"s": S.astype(object)}), "Component 's' must hold numbers or dates .* got object"),
        (lambda: Points({"s": S.astype(complex)}), "Component 's' must hold numbers or dates .* got complex128"),
        (lambda: Points({"s": np.zeros((3, 1), "m8[s]")}), "Component 's' must hold numbers or dates .* got timedelta"),
        (lambda: Points({"s": S[:, 0]}), r"axes \(point, dim\), got shape \(3,\): one coordinate is `s\[:, None\]`"),
        (lambda: Points({"s": [[datetime.datetime(2024, 1, 1)]] * 3}), r"must hold numbers or dates \(datetime64, UTC"),
        (
            lambda: Points({"s": jax.random.split(jax.random.key(0), 3)[:, None]}),
            "must hold numbers or dates .* got key",
        ),
        (lambda: Points({"s": S}, F.astype(object)), "`f` must hold numbers, got object"),
        (lambda: Points({"s": np.float64(1)}), r"must have axes \(point, dim\), got shape \(\)"),
        (lambda: Points({"s": S}, np.float64(1)), r"`f` must have axes \(point, out\)"),
        (lambda: Points({"s": S}, F, mask=np.ones(3, int)), "`mask` must be boolean .* got int64"),
        (lambda: Points({"s": S}, F, mask=np.ones(3)), "`mask` must be boolean .* got float64"),
        (lambda: Points({"s": S}, F, observed=np.ones((3, 1), int)), "`observed` must be boolean .* got int64"),
        (lambda: split(Points({"s": S[None]}, F[None]), 1, key=jax.random.key(0)), "`points` must be one set"),
    ],
)
def test_b8_what_is_no_array_of_points_is_named(make, says, no_shape_checks):
    with pytest.raises(ValueError, match=says):
        make()


def test_times_with_a_zone_are_refused_and_naive_ones_taken(no_shape_checks):
    pandas = pytest.importorskip("pandas")
    times = pandas.date_range("2024-01-01", periods=3, tz="Europe/Paris")
    with pytest.raises(
        ValueError, match=r"must hold numbers or dates \(datetime64, UTC\), got dates with a time zone: .* `tz_convert"
    ):
        Points({"t": times.to_frame()}, F)
    utc = Points({"t": times.tz_convert("UTC").tz_localize(None).to_frame()}, F)
    assert utc.index["t"][0, 0] == np.datetime64("2023-12-31T23:00")


def test_half_precision_lists_views_and_arrays_that_may_not_be_written(no_shape_checks):
    frozen = S.copy()
    frozen.flags.writeable = False
    for s in (S.astype(np.float16), S.astype(jnp.bfloat16), S.tolist(), np.asfortranarray(S), S[::-1][::-1], frozen):
        moved, _ = centre(Task(Points({"t": s}, F.tolist()).pad(5), Points({"t": s})), ["t"])
        np.testing.assert_array_equal(np.asarray(moved.tgt.index["t"], np.float64), S - S.mean(0))


def test_b6_a_context_in_hours_and_targets_in_days():
    """The origin is that of the context, whatever the unit of the targets."""
    hours = np.array([["2024-01-01T12"], ["2024-01-01T13"]], "M8[h]")
    days = np.array([["2024-01-01"], ["2024-01-03"]], "M8[D]")
    expected = [0, 3600, -12 * 3600, 36 * 3600]
    np.testing.assert_array_equal(joined(hours, days), expected)
    np.testing.assert_array_equal(joined(hours.astype("M8[ns]"), days), expected)
    np.testing.assert_array_equal(joined(hours.astype("M8[s]"), days.astype("M8[us]")), expected)
    np.testing.assert_array_equal(joined(days, hours), np.array([0, 2, 0.5, 13 / 24]) * 86400)


def test_b6_years_and_months():
    years = np.array([["2023"], ["2024"]], "M8[Y]")
    np.testing.assert_array_equal(joined(years, np.array([["2024-03"]], "M8[M]")), np.array([0, 365, 365 + 60]) * 86400)
    moved, _ = centre(task(years, years), [])  # a component that stays: seconds since 1970
    np.testing.assert_allclose(np.asarray(moved.ctx.index["t"])[:, 0], [1672531200, 1704067200], rtol=1e-6)


def test_b6_dates_that_nanoseconds_do_not_reach():
    old, new = np.array([["1500-01-01"]], "M8[D]"), np.array([["2024-01-01"]], "M8[ns]")
    np.testing.assert_allclose(joined(old, new)[1], (new[0, 0] - np.datetime64("1970")).astype("m8[s]").astype(int)
                               - int(old[0, 0].astype("M8[s]").astype(int)), rtol=1e-6)  # fmt: skip


def test_b6_whole_targets_beside_a_context_in_halves():
    """A float origin is not rounded for integer targets."""
    np.testing.assert_array_equal(
        joined(np.array([[0.5], [1.25]]), np.array([[0], [1], [2]])), [0, 0.75, -0.5, 0.5, 1.5]
    )
    np.testing.assert_array_equal(joined(np.array([[0], [1]]), np.array([[0.5]])), [0, 1, 0.5])


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_b6_whole_numbers_at_the_ends_of_their_type(kind):
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    values = np.array([[low], [high]], kind)
    got = joined(values, np.array([[0]], kind))
    np.testing.assert_allclose(got, [0, float(high) - float(low), -float(low)], rtol=1e-6)
    if np.iinfo(kind).bits == 64:
        near = np.array([[high], [high - 1], [high - 60]], kind)
        np.testing.assert_array_equal(joined(near, near[:1]), [0, -1, -60, 0])


def test_b7_host_points_beside_device_points():
    """Points on the device join those on the host: the differences of the host's are kept."""
    host, device = 5e6 + np.array([[0.0], [0.1], [0.3]]), jnp.asarray([[5e6 + 8.0]])
    for ctx, tgt in ((host, device), (device, host)):
        moved, _ = centre(task(ctx, tgt), ["t"])
        one, other = (np.asarray(jnp.asarray(p.index["t"]), np.float64) for p in (moved.ctx, moved.tgt))
        both = (one, other) if ctx is host else (other, one)
        np.testing.assert_allclose(both[0] - both[0][0], host - host[0], atol=1e-6)
        np.testing.assert_allclose(both[1] - both[0][0], [[8.0]], atol=1e-6)


def test_numbers_that_overflow_float32_are_refused_without_a_warning(x64):
    if x64:
        pytest.skip("float64 holds them")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for moved in ([], ["t"]):
            with pytest.raises(ValueError, match="Component 't' must fit into float32, got .*e\\+30"):
                centre(task(S[:, :1] * 1e300, S[:, :1]), moved)
            with pytest.raises(ValueError, match="Component 't' must fit into float32"):
                centre(task(np.array([[-1.7e308], [1.7e308]]), S[:, :1]), moved)
        with pytest.raises(ValueError, match=r"`f` must fit into float32, got 3e\+300"):
            centre(task(S[:, :1], S[:, :1], F * 1e300), ["t"])


def test_counts_that_32_bits_do_not_hold_become_floats(x64):
    f = np.array([[2**40], [3], [-(2**35)]])
    moved, _ = centre(task(S[:, :1], S[:, :1], f), ["t"])
    np.testing.assert_array_equal(np.asarray(jnp.asarray(moved.ctx.f), np.float64), f)
    small, _ = centre(task(S[:, :1], S[:, :1], np.array([[2], [3], [4]])), ["t"])
    assert small.ctx.f.dtype == (np.int64 if x64 else np.int32)


def test_dates_beside_numbers_are_refused():
    dates = np.array([["2024-01-01"], ["2024-01-02"]], "M8[D]")
    with pytest.raises(ValueError, match="Component 't' of `tgt` must hold dates where `ctx` does, got float64"):
        task(dates, S[:2, :1])
    with pytest.raises(ValueError, match="Component 't' of `tgt` must hold dates where `ctx` does, got datetime64"):
        task(S[:2, :1], dates)
    with pytest.raises(ValueError, match="hold dates in the same components"):
        batch([task(dates, dates), task(S[:2, :1], S[:2, :1])])


def test_a21_nothing_to_centre():
    """No tasks, no points at all, no points but dates."""
    none = Task(Points({"t": np.zeros((0, 3, 1))}, np.zeros((0, 3, 1))), Points({"t": np.zeros((0, 2, 1))}))
    assert centre(none, ["t"])[0].ctx.index["t"].shape == (0, 3, 1)
    for kind in (float, int, "M8[s]", "M8[Y]"):
        empty = task(np.zeros((0, 1), kind), np.zeros((0, 1), kind))
        assert centre(empty, ["t"])[0].tgt.index["t"].shape == (0, 1)


@pytest.mark.parametrize("n_ctx", [1.5, "2", None])
def test_c7_a_number_of_points_that_is_not_whole(n_ctx, no_shape_checks):
    with pytest.raises(ValueError, match="`n_ctx` must be a whole number"):
        split(Points({"s": S}, F), n_ctx, key=jax.random.key(0))


def test_a_task_is_made_of_points(no_shape_checks):
    make: Any = Task
    for ctx, tgt, name in (({"s": S}, Points({"s": S}), "ctx"), (Points({"s": S}, F), {"s": S}, "tgt")):
        with pytest.raises(ValueError, match=f"`{name}` must be Points, got dict"):
            make(ctx, tgt)


def test_usable_rows_stay_concrete_under_a_compiled_function_that_closes_over_them():
    points = Points({"s": jnp.asarray(S)}, jnp.asarray(F), mask=jnp.asarray([True, False, True]))
    seen = []
    jax.jit(lambda: seen.append(np.asarray(points.usable)))()
    np.testing.assert_array_equal(seen[0], [True, False, True])
