"""The forecasting tasks on ERA5: what is in a batch, from where and when, in what units."""

import jax
import numpy as np
import pytest

from bsatnp.datasets.era5 import Era5
from bsatnp.datasets.era5_tasks import Era5Tasks, standard

KEY = jax.random.key(5)
SMALL = {"batch": 3, "window": 4, "n_ctx": (2, 7), "ctx_sizes": (16, 24)}


def world(*, rows=9, columns=7, hours=None, resolution=0.25):
    """Data whose every value says where and when it is: place in the units, frame in the thousands."""
    hours = np.arange(0, 60) if hours is None else np.asarray(hours)
    time = np.datetime64("2019-01-01T00", "s") + hours * np.timedelta64(3600, "s")
    cell = np.arange(rows)[:, None] * columns + np.arange(columns)
    temperature = (hours[:, None, None] * 1000 + cell).astype(np.float32)
    latitude, longitude = 50 + resolution * np.arange(rows), 8 + resolution * np.arange(columns)
    return Era5(time, latitude, longitude, 10.0 * cell, temperature)


def where(points, scaling, data):
    """Row, column and hour of each point, read off its coordinates and checked against its covariates and value."""
    s, x = scaling.s.inverse(points.index["s"]), scaling.x.inverse(points.index["x"])
    row = np.rint((s[..., 0] - data.latitude[0]) / 0.25).astype(int)
    column = np.rint((s[..., 1] - data.longitude[0]) / 0.25).astype(int)
    hour = np.rint(scaling.t.inverse(points.index["t"])[..., 0]).astype(int)
    mask = np.asarray(points.mask)
    cell = row * len(data.longitude) + column
    np.testing.assert_allclose(scaling.f.inverse(points.f)[..., 0][mask], (hour * 1000 + cell)[mask], atol=0.1)
    np.testing.assert_allclose(x[..., 0][mask], 10 * cell[mask], atol=1e-6)
    np.testing.assert_allclose(x[..., 1][mask], hour[mask] % 24, atol=1e-6)
    return row, column, hour


def test_every_point_carries_its_own_place_time_covariates_and_value():
    data = world()
    scaling = standard(data)
    stream = Era5Tasks(data, scaling, **SMALL)
    phases, corners, counts = set(), set(), set()
    for step in range(30):
        task = stream(step, key=KEY)
        assert task.ctx.f.shape[1] in (16, 24) and task.tgt.f.shape == (3, 16, 1) and task.tgt.mask.all()
        row, column, hour = where(task.tgt, scaling, data)
        seen_row, seen_column, seen_hour = where(task.ctx, scaling, data)
        for i in range(3):
            corner, last = (row[i].min(), column[i].min()), hour[i, 0]
            assert {*zip(row[i], column[i], strict=True)} == {
                (corner[0] + a, corner[1] + b) for a in range(4) for b in range(4)
            }
            assert (hour[i] == last).all()
            mask = np.asarray(task.ctx.mask[i])
            for back in (24, 18, 12, 6):
                at = mask & (seen_hour[i] == last - back)
                cells = {*zip(seen_row[i][at], seen_column[i][at], strict=True)}
                assert at.sum() == len(cells) and 2 <= len(cells) < 7  # none twice
                assert cells <= {*zip(row[i], column[i], strict=True)}
                counts.add(len(cells))
            assert mask.sum() == sum((seen_hour[i][mask] == last - back).sum() for back in (24, 18, 12, 6))
            phases.add(last % 6)
            corners.add(corner)
    assert phases == set(range(6)) and counts == {2, 3, 4, 5, 6}
    assert {c[0] for c in corners} == set(range(6)) and {c[1] for c in corners} == set(range(4))


def test_a_stream_is_a_function_of_step_and_key():
    stream = Era5Tasks(world(), standard(world()), **SMALL)
    first, again, later = stream(0, key=KEY), stream(0, key=KEY), stream(1, key=KEY)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(first.tgt.f, later.tgt.f)
    assert not np.array_equal(first.tgt.f, stream(0, key=jax.random.key(6)).tgt.f)


def test_scaling_is_that_of_the_training_box_alone():
    train, test = world(), world(rows=12, columns=12)
    scaling = standard(train)
    np.testing.assert_allclose(scaling.f.mean, train.temperature.mean(dtype=np.float64))
    np.testing.assert_allclose(scaling.f.std, train.temperature.std(dtype=np.float64))
    np.testing.assert_allclose(scaling.s.std, [train.latitude.std(), train.longitude.std()])
    np.testing.assert_allclose(scaling.x.mean, [train.elevation.mean(), train.hour.mean()])
    np.testing.assert_allclose(scaling.t.std, np.std(np.arange(60)))
    row, column, _ = where(Era5Tasks(test, scaling, **SMALL)(0, key=KEY).tgt, scaling, test)
    assert row.max() < 12 and column.max() < 12


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (np.arange(0, 120, 6), 16),  # six-hourly, five days
        (np.arange(0, 120, 3), 32),
        (np.arange(120), 96),
        (np.delete(np.arange(0, 120, 6), 10), 11),  # a gap costs the five tasks that need the frame
        (np.array([0, 6, 12, 18, 24]), 1),
    ],
)
def test_tasks_start_where_all_their_frames_are(hours, expected):
    stream = Era5Tasks(world(hours=hours), standard(world()), **SMALL)
    assert len(stream.starts) == expected
    assert (np.diff(hours[stream.starts], axis=1) == 6).all()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (world(rows=3), {}, "`data` must be at least `window` = 4 cells along latitude, got 3"),
        (world(columns=3), {}, "`data` must be at least `window` = 4 cells along longitude, got 3"),
        (world(resolution=0.5), {}, r"`data` must have cells of 0.25° along latitude, got 0.5° to 0.5°"),
        (world(hours=[0, 6, 12, 18]), {}, "`data` must hold 5 frames 6 hours apart, got 4 frames from 2019-01-01T00"),
        (world(hours=np.arange(0, 99, 4)), {}, "`data` must hold 5 frames 6 hours apart"),
        (world(), {"n_ctx": (3, 18)}, r"`n_ctx` must be \(low, high\) with 0 <= low < high <= 17"),
        (world(), {"ctx_sizes": (20,)}, r"`ctx_sizes` must hold 24 context points, got \(20,\)"),
        (world(), {"frames": 1}, "`frames` must be at least 2, got 1"),
        (world(), {"batch": 0}, "`batch` must be at least 1, got 0"),
    ],
)
def test_what_does_not_fit_is_named(data, options, message):
    with pytest.raises(ValueError, match=message):
        Era5Tasks(data, standard(data), **(SMALL | options))
