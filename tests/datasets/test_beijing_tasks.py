"""The forecasting protocol: chronological parts, scaling from the training part alone, tasks in order, baselines."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from bsatnp.datasets import beijing
from bsatnp.datasets.beijing_tasks import BeijingTasks, forecasting, persistence, residual_std, station_mean
from bsatnp.datasets.scaling import MinMax
from bsatnp.tasks import Points, Task

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "examples" / "data" / "beijing_sample"


@pytest.fixture(scope="module")
def data():
    return beijing.load(SAMPLE)


@pytest.fixture(scope="module")
def parts(data):
    return forecasting(data)


def test_parts_are_chronological_and_share_no_row(data, parts):
    n = len(data)
    lengths = [len(part.f) for part in (parts.train, parts.valid, parts.test)]
    assert lengths == [n - 2 * (n // 10), n // 10, n // 10]
    assert parts.train.time[-1] <= parts.valid.time[0] and parts.valid.time[-1] <= parts.test.time[0]
    joined = np.concatenate([part.f for part in (parts.train, parts.valid, parts.test)])
    np.testing.assert_allclose(parts.scaling.f.inverse(joined), data.f, rtol=1e-12)


def test_scaling_equals_sklearn_fitted_on_the_training_part(data, parts):
    n_train = len(parts.train.f)
    for name, part in (("train", parts.train), ("valid", parts.valid), ("test", parts.test)):
        rows = {
            "train": slice(n_train),
            "valid": slice(n_train, n_train + len(part.f)),
            "test": slice(-len(part.f), None),
        }[name]
        for component in ("s", "t"):
            values = getattr(data, component)
            expected = MinMaxScaler().fit(values[:n_train]).transform(values[rows])
            np.testing.assert_allclose(part.index[component], expected, rtol=1e-9, atol=1e-12)
        numeric = MinMaxScaler().fit(data.x[:n_train]).transform(data.x[rows])
        encoder = OneHotEncoder(sparse_output=False).fit(data.wind[:n_train, None])
        onehot = np.asarray(encoder.transform(data.wind[rows, None]))
        np.testing.assert_allclose(part.index["x"], np.hstack((numeric, onehot)), rtol=1e-9, atol=1e-12)
        expected = MinMaxScaler().fit(data.f[:n_train]).transform(data.f[rows])
        np.testing.assert_allclose(part.f, expected, rtol=1e-9, atol=1e-12)
    assert parts.train.index["t"].max() == 1 and parts.test.index["t"].min() > 1


def test_later_parts_change_no_scaling(data, parts):
    """Values after the training part leave no trace in it."""
    n_train = len(parts.train.f)
    after = np.arange(len(data)) >= n_train
    altered = replace(
        data, f=np.where(after[:, None], 1e4, data.f), weather=np.where(after[:, None], -1e4, data.weather)
    )
    other = forecasting(altered)
    np.testing.assert_array_equal(other.train.f, parts.train.f)
    np.testing.assert_array_equal(other.train.index["x"], parts.train.index["x"])
    assert other.test.f.min() > 1


def test_unseen_wind_direction_raises(data):
    wind = data.wind.copy()
    wind[-1] = "UP"
    with pytest.raises(ValueError, match=r"`wd` must be one of \['E', .*got \['UP'\]"):
        forecasting(replace(data, wind=wind))


def test_a_task_is_624_rows_and_the_84_after_them(parts):
    part = parts.test
    task = part.task(10)
    assert (len(task.ctx), len(task.tgt)) == (624, 84)
    np.testing.assert_array_equal(task.ctx.f, part.f[10:634])
    np.testing.assert_array_equal(task.tgt.f, part.f[634:718])
    for name in ("x", "s", "t"):
        np.testing.assert_array_equal(task.ctx.index[name], part.index[name][10:634])
        np.testing.assert_array_equal(task.tgt.index[name], part.index[name][634:718])
    assert task.ctx.index["t"].max() <= task.tgt.index["t"].min()
    assert task.ctx.index["x"].shape[-1] == len(beijing.COVARIATES) + len(parts.scaling.wind)
    for start in (-1, len(part)):
        with pytest.raises(ValueError, match=rf"`start` must be between 0 and {len(part) - 1}, got {start}"):
            part.task(start)


def test_evaluation_covers_the_part_once_and_in_order(parts):
    part = parts.valid
    tasks = part.evaluation()
    n = len(tasks) * 84
    np.testing.assert_array_equal(np.concatenate([task.tgt.f for task in tasks]), part.f[-n:])
    assert len(part.f) - n - 624 < 84
    assert [float(task.ctx.index["t"][0, 0]) for task in tasks] == [
        part.index["t"][start, 0] for start in part.starts()
    ]
    assert list(part.starts(stride=300))[-1] == len(part) - 1
    with pytest.raises(ValueError, match="`stride` must be at least 1, got 0"):
        part.starts(stride=0)


def test_stream_is_a_function_of_step_and_key(parts):
    key = jax.random.key(3)
    first, again, later, other = (
        parts.train(0, key=key),
        parts.train(0, key=key),
        parts.train(1, key=key),
        parts.train(0, key=jax.random.key(4)),
    )
    assert first.ctx.f.shape == (32, 624, 2) and first.tgt.index["x"].shape == (32, 84, 27)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.ctx.f, later.ctx.f) and not np.array_equal(first.ctx.f, other.ctx.f)
    starts = np.searchsorted(parts.train.index["t"][:, 0], first.ctx.index["t"][:, 0, 0])
    assert len(np.unique(starts)) > 16  # spread over the part
    whole = parts.train.task(
        next(i for i in range(starts[0], starts[0] + 12) if np.array_equal(parts.train.f[i : i + 624], first.ctx.f[0]))
    )
    np.testing.assert_array_equal(whole.tgt.f, first.tgt.f[0])


def test_a_batch_starts_wherever_a_task_fits():
    rows = np.arange(11.0)[:, None]
    part = BeijingTasks({"t": rows}, np.zeros((11, 2)), rows[:, 0], rows[:, 0], n_ctx=5, n_tgt=4, batch=64)
    assert set(part(0, key=jax.random.key(0)).ctx.index["t"][:, 0, 0]) == {0, 1, 2}


def test_short_part_and_sizes(data):
    small = replace(data, **{name: getattr(data, name)[:3000] for name in ("time", "station", "wind", "weather", "f")})
    with pytest.raises(ValueError, match=r"at least `n_ctx` \+ `n_tgt` = 708 rows, got 300"):
        forecasting(small)
    assert len(forecasting(small, n_ctx=200, n_tgt=100).test) == 1
    with pytest.raises(ValueError, match="`n_tgt` must be at least 1, got 0"):
        forecasting(data, n_tgt=0)
    with pytest.raises(ValueError, match="`batch` must be at least 1, got 0"):
        BeijingTasks({"t": np.zeros((9, 1))}, np.zeros((9, 2)), np.zeros(9), np.zeros(9), n_ctx=1, n_tgt=1, batch=0)


def test_c4_minmax_constant_column_and_inverse():
    values = np.array([[3.0, 1e9, -4.0], [3.0, 1e9 + 0.5, 4.0]])
    scaling = MinMax.fit(values)
    np.testing.assert_array_equal(scaling.transform(values), [[0, 0, 0], [0, 1, 1]])
    np.testing.assert_array_equal(scaling.width, [1, 0.5, 8])
    other = np.array([[5.0, 1e9 - 2, 0.0]])
    np.testing.assert_array_equal(scaling.transform(other), [[2, -4, 0.5]])
    np.testing.assert_array_equal(scaling.inverse(scaling.transform(other)), other)
    with pytest.raises(ValueError, match=r"`values` must have 3 columns, got shape \(1, 2\)"):
        scaling.transform(other[:, :2])
    with pytest.raises(ValueError, match=r"at least one row, got shape \(0, 3\)"):
        MinMax.fit(values[:0])
    with pytest.raises(ValueError, match="`values` must be finite, got 1 NaN"):
        MinMax.fit(np.array([[np.nan, 1.0]]))


def small_task(*, mask=None):
    """Stations a and b in the context; targets at b, a and a place never seen."""
    a, b, c = (0.0, 0.0), (1.0, 0.5), (9.0, 9.0)
    ctx = Points({"s": np.array([a, b, a, b])}, np.array([[1.0], [10.0], [2.0], [30.0]]), mask=mask)
    return Task(ctx, Points({"s": np.array([b, a, c])}, np.array([[31.0], [0.0], [30.0]])))


def test_baselines_by_hand():
    task = small_task()
    np.testing.assert_array_equal(persistence(task), [[30], [2], [30]])
    np.testing.assert_array_equal(station_mean(task), [[20], [1.5], [10.75]])
    np.testing.assert_allclose(residual_std(persistence, [task, task]), [np.sqrt((1 + 4 + 0) / 3)], rtol=1e-12)
    padded = small_task(mask=np.array([True, True, True, False]))
    np.testing.assert_array_equal(persistence(padded), [[10], [2], [2]])
    np.testing.assert_array_equal(station_mean(padded), [[10], [1.5], [13 / 3]])
    for baseline in (persistence, station_mean):
        for other in (small_task(mask=np.zeros(4, bool)), jax.tree.map(lambda x: np.stack([x, x]), task)):
            with pytest.raises(ValueError, match="`task` must be one task with a known value in its context"):
                baseline(other)
    with pytest.raises(ValueError, match="`tasks` must hold at least one task"):
        residual_std(persistence, [])


def test_a_missing_target_is_no_error_of_a_baseline():
    task = small_task()
    missing = Task(task.ctx, Points(task.tgt.index, np.where([[True], [False], [True]], task.tgt.f, np.nan)))
    known = np.asarray(task.tgt.f - persistence(task))[[0, 2]]
    np.testing.assert_allclose(residual_std(persistence, [missing]), [np.sqrt((known**2).mean())], rtol=1e-12)
    none = Task(task.ctx, Points(task.tgt.index, np.full((3, 1), np.nan)))
    with pytest.raises(ValueError, match=r"`tasks` must hold observed targets of every output, got none of \[0\]"):
        residual_std(persistence, [none])


def test_persistence_is_the_value_an_hour_before_the_first_target(parts):
    part = parts.test
    task, start = part.task(0), 624
    for row in (0, 40, 83):
        before = np.flatnonzero(part.station[:624] == part.station[start + row])[-1]
        np.testing.assert_array_equal(persistence(task)[row], part.f[before])


def test_real_protocol_and_baselines(real):
    parts = forecasting(real)
    assert [len(part.f) for part in (parts.train, parts.valid, parts.test)] == [305_736, 38_216, 38_216]
    assert len(parts.scaling.wind) == 16
    tasks = parts.test.evaluation()
    assert len(tasks) == (38_216 - 624) // 84
    rmse = {predict: np.sqrt(np.mean(residual_std(predict, tasks) ** 2)) for predict in (persistence, station_mean)}
    assert rmse[persistence] < 0.08 < 0.1 < rmse[station_mean] < 0.13
