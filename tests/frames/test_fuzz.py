"""Whatever table or grid is handed in: the right answer, or the package's own error in one sentence.

Every place that is asked for is one of a few whose predictions are known; the column `known` says which, and goes
through everything that is done to the data, so that what comes back can be looked up, whatever its form and order.
"""

import functools
import importlib.util
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import assume, given
from hypothesis import strategies as st

from bsatnp import frames
from bsatnp.frames import fitting
from bsatnp.likelihoods import NegativeBinomialHead, PoissonHead
from tests.frames.conftest import RIVER, SOIL, river_data, soil_data, untrained
from tests.fuzzing import MANY, own

ARROW = ["int64[pyarrow]"] if importlib.util.find_spec("pyarrow") else []
LATTICE = pd.DataFrame(
    [
        {"x": 180_000.0 + 500 * i, "y": 330_000.0 + 700 * j, "elev": 6.0 + (3 * i + j) % 5, "known": 4.0 * j + i}
        for j in range(4)
        for i in range(4)
    ]
).assign(soil=[("clay", "sand", "peat")[k * k % 3] for k in range(16)])
NUMBERS = ["x", "y", "elev"]


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """The package's own checks alone."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


@functools.cache
def soil():
    """Two values in the plane."""
    return untrained(soil_data(), SOIL)


@functools.cache
def river():
    """A forecast on the sphere, and its predictions after the end."""
    return untrained(river_data(), RIVER)


@functools.cache
def answers(fitted, places):
    """What a model predicts at the places of a name, by name of the result."""
    found = fitted().predict(globals()[places])
    return {name: found[name].to_numpy() for name in found.columns if name not in globals()[places].columns}


def outcome(call, wrong):
    """What a call gives; None where the data were wrong and the package said so."""
    try:
        found = call()
    except Exception as error:
        assert own(error), repr(error)
        assert wrong, f"refused what is right: {error}"
        return None
    assert not wrong, f"took what is wrong: {wrong}"
    return found


def looked_up(known, values):
    """Known answers by their numbers, NaN for none."""
    known = np.asarray(known, float)
    return np.where(np.isnan(known), np.nan, values[np.nan_to_num(known).astype(int)])


# frames
def plain_or_objects(draw, column: pd.Series) -> Any:
    """The same numbers in a type that can hold them."""
    kinds = ["float64", "float32", "object", "Float64", "Int64", "category", "decimal", "mixed", "sparse", *ARROW]
    kinds += [] if column.isna().any() else ["int64", "int32", "uint32"]
    kind = draw(st.sampled_from(kinds))
    blank = draw(st.sampled_from([None, np.nan, pd.NA]))
    objects = [blank if np.isnan(one) else one for one in column]
    if kind == "object":
        return pd.Series(objects, column.index, dtype=object)
    if kind == "decimal":
        return pd.Series([one if one is blank else Decimal(one) for one in objects], column.index, dtype=object)
    if kind == "mixed":
        mixed = [one if one is blank else int(one) if i % 2 else np.float32(one) for i, one in enumerate(objects)]
        return pd.Series(mixed, column.index, dtype=object)
    if kind == "sparse":
        return pd.Series(pd.arrays.SparseArray(column.to_numpy()), column.index)
    return column.astype(kind)


def labels(draw, column: pd.Series) -> Any:
    """The same labels in another type."""
    kind = draw(st.sampled_from(["object", "string", "category", "unused", "ordered", "numpy"]))
    if kind in ("unused", "ordered"):
        levels = ["sand", "moon", "clay", "peat"]
        return pd.Series(pd.Categorical(column, levels, ordered=kind == "ordered"), column.index)
    if kind == "numpy":
        return pd.Series([np.str_(one) if isinstance(one, str) else one for one in column], column.index, dtype=object)
    return column.astype(kind)


def an_index(draw, n: int) -> Any:
    """Row names of any kind, unique or not."""
    made = {
        "range": pd.RangeIndex(n, 0, -1), "same": pd.Index(["a"] * n), "nan": pd.Index([np.nan] * n),
        "dates": pd.DatetimeIndex(["2024-03-31"] * n, tz="Europe/Berlin"), "named": pd.Index(range(n), name=3),
        "two": pd.MultiIndex.from_arrays([range(n), ["b"] * n], names=["known", None]),
        "category": pd.CategoricalIndex(["u", "v"] * n)[:n], "spans": pd.interval_range(0, n) if n else pd.Index([]),
    }  # fmt: skip
    return made[draw(st.sampled_from(sorted(made)))]


class Named(pd.DataFrame):
    """A subclass, as that of geopandas."""


@st.composite
def tables(draw):
    """A frame of some places as people have it."""
    rows = draw(st.lists(st.integers(0, 15), max_size=6))
    data: Any = LATTICE.iloc[rows].reset_index(drop=True)
    for name in draw(st.lists(st.sampled_from([*NUMBERS, "soil"]), max_size=2)):
        if len(rows) and draw(st.booleans()):
            data.loc[draw(st.integers(0, len(rows) - 1)), [name]] = np.nan if name in NUMBERS else None
            data.loc[data[name].isna(), "known"] = np.nan
    data.index = an_index(draw, len(rows))
    for name in draw(st.lists(st.sampled_from([*NUMBERS, "soil"]), max_size=4, unique=True)):
        data[name] = (labels if name == "soil" else plain_or_objects)(draw, data[name])
    for name in draw(st.lists(st.sampled_from([*NUMBERS, "soil"]), max_size=1)):
        if draw(st.integers(0, 5)) == 0:
            blank = draw(st.sampled_from([np.nan, None, pd.NaT, pd.NA]))
            data[name], data["known"] = pd.Series([blank] * len(rows), data.index, dtype=object), np.nan
            data[name] = data[name].astype(draw(st.sampled_from([object, "category"])))
    for extra in draw(st.lists(st.sampled_from([7, None, ("a", 1), "zinc", "lists", 2.5]), max_size=2, unique=True)):
        data[extra] = pd.Series([[1]] * len(rows), data.index, dtype=object)
    if len(rows):
        data = data[draw(st.permutations(list(data.columns)))]
    moved = draw(st.lists(st.sampled_from([*NUMBERS, "soil"]), max_size=2, unique=True))
    if moved and "known" not in data.index.names:
        data = data.set_index(moved, append=draw(st.booleans()), drop=draw(st.booleans()))
    data.attrs = draw(st.sampled_from([{}, {"units": {"x": "m"}}, {"units": 5}, {"units": {"x": None}}]))
    return Named(data) if draw(st.integers(0, 5)) == 0 else data


def put(data, name, value):
    """One entry replaced, in a column of objects."""
    column = data[name].astype(object).tolist()
    column[0] = value
    return data.assign(**{name: pd.Series(column, data.index, dtype=object)})


WRONG = {
    "dropped": lambda data, name: data.drop(columns=name),
    "twice": lambda data, name: pd.concat([data, data[[name]]], axis=1),
    "capital": lambda data, name: data.rename(columns={name: name.upper()}),
    "number": lambda data, name: data.rename(columns={name: 0}),
    "a level more": lambda data, name: pd.concat({"a": data}, axis=1),
    "nested": lambda data, name: pd.concat([data.drop(columns=name), pd.concat({name: data, 5: data}, axis=1)], axis=1),
    "infinite": lambda data, name: put(data, name, -np.inf),
    "huge": lambda data, name: put(data, name, 1e300),
    "too large": lambda data, name: put(data, name, 3e38),
    "text": lambda data, name: put(data, name, "moon"),
    "list": lambda data, name: put(data, name, [1.0]),
    "complex": lambda data, name: put(data, name, 1j),
    "date": lambda data, name: put(data, name, pd.Timestamp("2024-01-01")),
    "bytes": lambda data, name: put(data, name, b"clay"),
    "dates": lambda data, name: data.assign(**{name: pd.date_range("2024-01-01", periods=len(data)).to_numpy()}),
    "periods": lambda data, name: data.assign(**{name: pd.period_range("2024-01", periods=len(data), freq="M")}),
    "spans": lambda data, name: data.assign(**{name: pd.interval_range(0, len(data)).array}),
    "column": lambda data, name: data[name],
    "dict": lambda data, name: data.to_dict(),
    "array": lambda data, name: data.to_numpy(),
    "none": lambda data, name: None,
    "list of frames": lambda data, name: [data],
}  # fmt: skip
WRONG_OPTIONS: list[dict[str, Any]] = [
    {"quantiles": 0.5}, {"quantiles": None}, {"quantiles": [0.5, 1]}, {"quantiles": [np.nan]}, {"quantiles": ["a"]},
    {"quantiles": [0.1, 0.1 + 1e-10]}, {"context": []}, {"context": LATTICE}, {"context": 5}, {"context": [None]},
    {"context": soil_data().assign(zinc=-1.0)}, {"context": soil_data().assign(acid=np.inf)}, {"quantiles": [True]},
]  # fmt: skip


@MANY
@given(data=tables(), wrong=st.sampled_from([None] * 20 + sorted(WRONG)), where=st.sampled_from([*NUMBERS, "soil"]))
def test_tables_are_answered_right_or_refused(data, wrong, where):
    asked = data
    if wrong is not None:
        assume(where in data.columns and len(data) > 0 and not np.isnan(data["known"].to_numpy(float)).any())
        asked = WRONG[wrong](data, where)
        if isinstance(asked, pd.DataFrame) and wrong in ("dropped", "capital", "number", "nested", "a level more"):
            assume(where not in asked.index.names)  # then it is there still
    found = outcome(lambda: soil().predict(asked), wrong)
    if found is None:
        return
    pd.testing.assert_index_equal(found.index, data.index, exact="equiv")
    kept = [name for name in found.columns if name not in answers(soil, "LATTICE")]
    assert sorted(kept) == sorted(name for name in data.columns if isinstance(name, str) and name in [*NUMBERS, "soil"])
    for name in kept:
        pd.testing.assert_series_equal(found[name], data[name], check_index_type=False)
    for name, values in answers(soil, "LATTICE").items():
        np.testing.assert_allclose(found[name].to_numpy(), looked_up(data["known"], values), rtol=2e-4)


@pytest.mark.parametrize("options", WRONG_OPTIONS)
def test_options_that_are_wrong(options):
    assert outcome(lambda: soil().predict(LATTICE, **options), options) is None


def test_the_errors_of_libraries_are_told_from_the_packages_own():
    """The control: what pandas says of a column that is not there is no answer."""
    with pytest.raises(AssertionError, match="KeyError"):
        outcome(lambda: LATTICE["zinc"], "dropped")
    with pytest.raises(AssertionError, match="took what is wrong"):
        outcome(lambda: soil().predict(LATTICE), "dropped")
    with pytest.raises(AssertionError, match="refused what is right"):
        outcome(lambda: soil().predict(LATTICE.drop(columns="x")), None)


# grids
FORMS = {
    "turned": lambda grid: grid.assign(elev=grid["elev"].transpose()),
    "all turned": lambda grid: grid.transpose(),
    "stacked": lambda grid: grid.stack(cell=("x", "y")),
    "points": lambda grid: grid.stack(cell=("y", "x")).reset_index("cell"),
    "coordinates": lambda grid: grid.set_coords(["elev", "soil"]),
    "an array": lambda grid: grid.set_coords(["soil", "known"])["elev"],
    "an array without a name": lambda grid: grid.set_coords(["soil", "known"])["elev"].rename(None),
    "scalars": lambda grid: grid.assign_coords(run="a", zinc=1.0),
    "days": lambda grid: grid.assign(rain=("day", [1.0, 2.0])),
    "days too": lambda grid: grid.assign(elev=grid["elev"].expand_dims(day=pd.date_range("2024-01-01", periods=2))),
    "single": lambda grid: single(grid, "float32"),
    "objects": lambda grid: single(grid, object),
    "attrs": lambda grid: grid.assign_attrs(units=5).assign(elev=grid["elev"].assign_attrs(units=None)),
    "objects of labels": lambda grid: grid.assign(soil=grid["soil"].astype(object)),
    "renamed": lambda grid: grid.rename_dims(x="column", y="row").reset_index(["x", "y"], drop=False),
}


def single(grid, kind):
    return grid.assign(elev=grid["elev"].astype(kind))


WRONG_GRIDS = {
    "no variable": lambda grid: grid.drop_vars("elev"),
    "no coordinate": lambda grid: grid.drop_vars("x"),
    "infinite": lambda grid: grid.assign(elev=grid["elev"] * np.inf),
    "unseen": lambda grid: grid.assign(soil=grid["soil"].astype(object).where(False, "moon")),
    "bytes": lambda grid: grid.assign(soil=grid["soil"].astype("S4")),
    "complex": lambda grid: grid.assign(elev=grid["elev"] * 1j),
    "text": lambda grid: grid.assign(elev=grid["elev"].astype(str)),
    "dates": lambda grid: grid.assign_coords(x=pd.date_range("2024-01-01", periods=grid.sizes["x"])),
    "a result's name": lambda grid: grid.assign_coords(zinc_mean=("x", np.arange(grid.sizes["x"]))),
    "a result's dimension": lambda grid: grid.rename_dims(x="acid_q05"),
    "array of another": lambda grid: grid["soil"],
    "coordinate alone": lambda grid: grid["x"],
}


@MANY
@given(
    xs=st.lists(st.integers(0, 3), max_size=4), ys=st.lists(st.integers(0, 3), max_size=3),
    holes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=2),
    forms=st.lists(st.sampled_from(sorted(FORMS)), max_size=2, unique=True),
    wrong=st.sampled_from([None] * 20 + sorted(WRONG_GRIDS)), scalar=st.booleans(),
)  # fmt: skip
def test_grids_are_answered_right_or_refused(xs, ys, holes, forms, wrong, scalar):
    cells = np.array(ys, int)[:, None] * 4 + np.array(xs, int)
    columns = {name: (("y", "x"), LATTICE[name].to_numpy()[cells]) for name in ("elev", "soil", "known")}
    grid: Any = xr.Dataset(columns, {"x": 180_000.0 + 500 * np.array(xs, int), "y": 330_000 + 700 * np.array(ys, int)})
    for i, j in holes:
        if i < len(xs) and j < len(ys):
            grid["elev"][j, i] = grid["known"][j, i] = np.nan
    if wrong:
        assume(xs and ys and not bool(grid["elev"].isnull().any()))
        assert outcome(lambda: soil().predict(WRONG_GRIDS[wrong](grid)), wrong) is None
        return
    if scalar and xs:
        grid = grid.isel(x=0)
    for name in forms:
        try:
            grid = FORMS[name](grid)
        except Exception:
            assume(False)  # it does not go with the form before
    found: Any = outcome(lambda: soil().predict(grid), None)
    if isinstance(grid, xr.DataArray):
        grid = grid.coords.to_dataset() if "elev" in grid.coords else grid.to_dataset(name="elev")
    for name in [name for name in grid.coords if set(grid[name].dims) <= set(found.dims)]:
        assert found[name].dims == grid[name].dims and found[name].attrs == grid[name].attrs
        np.testing.assert_array_equal(found[name].values, grid[name].values)
    known = grid["known"]
    for name, values in answers(soil, "LATTICE").items():
        right, ours = xr.broadcast(known.copy(data=looked_up(known, values)), found[name])
        np.testing.assert_allclose(ours.transpose(*right.dims), right, rtol=2e-4)
        assert set(found[name].dims) == set(grid["elev"].dims) | set(grid["soil"].dims)


# dates
AFTER = pd.concat(
    [
        pd.DataFrame(
            {"when": river_data()["when"].max() + pd.to_timedelta([6, 12, 18, 24], "h"), "lon": lon, "lat": 50.0}
        )
        for lon in (350.0, 351.0)
    ],
    ignore_index=True,
).assign(known=np.arange(8.0))
DATES = {
    "same": lambda when: when,
    "utc": lambda when: when.dt.tz_convert("UTC"),
    "tokyo": lambda when: when.dt.tz_convert("Asia/Tokyo"),
    "seconds": lambda when: when.dt.as_unit("s"),
    "nanoseconds": lambda when: when.dt.as_unit("ns"),
    "text": lambda when: when.astype(str),
    "iso": lambda when: when.map(lambda one: None if pd.isna(one) else one.isoformat()).astype(object),
    "stamps": lambda when: when.astype(object),
    "python": lambda when: pd.Series([None if pd.isna(one) else one.to_pydatetime() for one in when], dtype=object),
    "two zones": lambda when: pd.Series(
        [one if i % 2 or pd.isna(one) else one.tz_convert("Asia/Tokyo") for i, one in enumerate(when)], dtype=object
    ),
    "category": lambda when: when.astype("category"),
    "string": lambda when: when.map(lambda one: pd.NA if pd.isna(one) else str(one)).astype("string"),
}
WRONG_DATES = {
    "no zone": lambda when: when.dt.tz_localize(None),
    "whole": lambda when: when.astype("int64"),
    "one whole": lambda when: pd.Series([5, *when.astype(object)[1:]], dtype=object),
    "period": lambda when: when.dt.tz_localize(None).dt.to_period("h"),
    "day first": lambda when: when.dt.strftime("%d.%m.%Y"),
    "clock": lambda when: when.dt.time,
    "beyond": lambda when: when + pd.Timedelta("3D"),
    "before": lambda when: when - pd.Timedelta("90D"),
    "far": lambda when: pd.Series(["9999-12-31T00:00Z"] * len(when)),
    "later": lambda when: pd.Series(["19999-12-31T00:00Z"] * len(when)),
    "list": lambda when: pd.Series([[1]] * len(when)),
    "lag": lambda when: when - when.min(),
}


@MANY
@given(
    rows=st.lists(st.integers(0, 7), max_size=6), holes=st.lists(st.integers(0, 5), max_size=2),
    form=st.sampled_from(sorted(DATES)), turns=st.sampled_from([0, -360]), as_index=st.booleans(),
    wrong=st.sampled_from([None] * 12 + sorted(WRONG_DATES)),
)  # fmt: skip
def test_dates_are_answered_right_or_refused(rows, holes, form, turns, as_index, wrong):
    data = AFTER.iloc[rows].reset_index(drop=True)
    data["lon"] += turns
    if wrong:
        assume(len(rows) > 0)
        data["when"] = WRONG_DATES[wrong](data["when"])
        outcome(lambda: river().predict(data), wrong)
        return
    for i in holes:
        if i < len(rows):
            data.loc[i, "when"], data.loc[i, "known"] = pd.NaT, np.nan
    data["when"] = DATES[form](data["when"])
    known, asked = data["known"].to_numpy(), data.set_index(["when", "lat"]) if as_index else data
    found: Any = outcome(lambda: river().predict(asked), None)
    pd.testing.assert_index_equal(found.index, asked.index)
    for name, values in answers(river, "AFTER").items():
        np.testing.assert_allclose(found[name].to_numpy(), looked_up(known, values), rtol=2e-3, atol=1e-5)


# fitting
DECLARED = [
    frames.Columns("a", space=frames.Plane("x", "y")),
    frames.Columns(["a", "b"], space=frames.Plane("x"), log="b", covariates="y"),
    frames.Columns(["b", "a"], time=frames.Time("t"), categories=["label", "n"], covariates="x"),
    frames.Columns("a", space=frames.Sphere("x", "y"), time=frames.Forward("t")),
    frames.Columns(
        "a", time=frames.Forward("t", horizon=3.0, history=9.0), others=[frames.Phase("t", 24.0, component="hour")]
    ),
    frames.Columns("n", space=frames.Plane("x", "y"), head=PoissonHead()),
    frames.Columns("n", others=[frames.Phase("x", 360.0, component="turn")], head=NegativeBinomialHead()),
    frames.Columns("label", covariates=["x", "y"]),
    frames.Columns("label", space=frames.Component("c", ("x", "y"), frames.Plane("x", "y").group)),
]  # fmt: skip
SPLITS = [None, None, frames.Random(5, 3), frames.Windows(4, 2), frames.Forecasts(6, 3, history=5.0, horizon=2.0)]
ENTRIES = st.sampled_from([np.nan, None, np.inf, -np.inf, 0.0, -1.0, 2.5, 1e9, 1e25, 1e155, "moon", [1], True, pd.NaT])


@st.composite
def data_sets(draw):
    """Columns to learn from: some whole, some with anything in them."""
    n = draw(st.sampled_from([0, 1, 2, 3, 5, 11, 12, 13, 20, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    data: Any = pd.DataFrame(
        {
            "x": rng.integers(0, 9, n) * draw(st.sampled_from([0.0, 1.0, 1e-9, 1e12])),
            "y": rng.normal(size=n) + draw(st.sampled_from([0.0, 50.0, 5e6])),
            "t": np.sort(rng.integers(0, 30, n)) * 1.0,
            "a": rng.normal(size=n) * draw(st.sampled_from([0.0, 1.0, 1e-12, 1e12])) + 3,
            "b": np.exp(rng.normal(size=n)),
            "n": rng.poisson(3, n),
            "label": np.array(["clay", "sand"], object)[rng.integers(0, 2, n)] if n else np.array([], object),
        }
    )
    for name in draw(st.lists(st.sampled_from(list(data.columns)), max_size=2)):
        how = draw(st.sampled_from(["entry", "entry", "holes", "constant", "dates", "text", "dropped", "empty"]))
        if how == "dropped" or name not in data:
            data = data.drop(columns=name, errors="ignore")
        elif how == "dates":
            data[name] = pd.date_range(
                "2024-03-30", periods=n, freq="7h", tz=draw(st.sampled_from([None, "Asia/Tokyo"]))
            )
        elif how == "text":
            data[name] = data[name].astype(str)
        elif how == "empty":
            data[name] = draw(st.sampled_from([np.nan, None]))
        elif n:
            column = data[name].astype(object).tolist()
            for i in range(n) if how == "constant" else draw(st.lists(st.integers(0, n - 1), max_size=8)):
                column[i] = column[0] if how == "constant" else np.nan
            if how == "entry":
                column[draw(st.integers(0, n - 1))] = draw(ENTRIES)
            data[name] = pd.Series(column, data.index, dtype=object)
            data[name] = data[name].infer_objects() if draw(st.booleans()) else data[name]
    return data


def drawn(start, stream, *, key, validation, **options):
    """Stands for the training: looks at what would be trained on."""
    del options
    for batch in [stream(step, key=jax.random.fold_in(key, step)) for step in range(2)] + [validation(0, key=key)]:
        for points in (batch.ctx, batch.tgt):
            mask = np.asarray(points.mask)
            assert all(np.isfinite(np.asarray(x, float)[mask]).all() for x in points.index.values())
            assert np.isfinite(np.asarray(points.f, float)[np.asarray(points.observed)]).all()
            assert batch.tgt.mask.any(-1).all()
    return SimpleNamespace(best=start, steps=2, history=[{"step": 2, "validation_nll": 1.0}])


@MANY
@given(
    data=data_sets(), columns=st.sampled_from(DECLARED), splits=st.sampled_from(SPLITS),
    held_out=st.sampled_from([0.15, 0.15, 0.01, 0.5, 0.95, 0.0, 1.0]), as_grid=st.integers(0, 4),
)  # fmt: skip
def test_data_to_learn_from_are_read_right_or_refused(data, columns, splits, held_out, as_grid):
    """All of `fit` but the training and its scores: the context that is kept is the data, scaled there and back."""
    given_ = data.to_xarray() if as_grid == 0 else [data[:9], data[9:]] if as_grid == 1 else data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "train", drawn)
        patch.setattr(fitting, "_scores", lambda *args: {})
        options = {"splits": splits, "held_out": held_out, "model": lambda *args, **options: None, "batch": 2}
        try:
            fitted = frames.fit(given_, columns, key=jax.random.key(0), progress=False, **options)
        except Exception as error:
            assert own(error), repr(error)
            return
    encoding, context = fitted.encoding, fitted.context
    assert context is not None and fitted.report.rows == len(data)
    needed = [*columns.coordinates, *columns.values]
    whole = data[~data[needed].isna().any(axis=1)]
    assert len(context) == len(whole)
    for i, name in enumerate(columns.values):
        ours = np.asarray(context.f)[:, i]
        if name in encoding.meaning.labels:
            right = [list(map(str, encoding.meaning.labels[name])).index(str(one)) for one in whole[name]]
        else:
            right = whole[name].astype(float)
            ours = encoding.f[name].inverse(ours[:, None])[:, 0] if encoding.f else ours
        np.testing.assert_allclose(ours, right, rtol=1e-9, atol=1e-9 * np.abs(right).max() if len(right) else 0)
    for role in columns.roles:
        ours = encoding.index[role.component].inverse(np.asarray(context.index[role.component]))
        right = role.read({name: _numbers(whole[name]) for name in role.columns})
        np.testing.assert_allclose(ours, right, rtol=1e-9, atol=1e-9 * np.abs(right).max() if len(right) else 0)


def _numbers(column: pd.Series) -> np.ndarray:
    """Numbers, or dates without their zone, read by hand."""
    if not pd.api.types.is_datetime64_any_dtype(column):
        try:
            return column.to_numpy(np.float64)
        except (TypeError, ValueError):
            pass
    dates = pd.to_datetime(column, format="ISO8601", utc=True)
    return dates.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
