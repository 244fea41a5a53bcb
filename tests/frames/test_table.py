"""Columns from pandas and xarray: what is read, what is refused, and how results go back."""

import datetime
import decimal
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bsatnp import frames
from bsatnp.frames.table import need, table

GRID = xr.Dataset(
    {"t2m": (("time", "lat", "lon"), np.arange(24.0).reshape(2, 3, 4)), "elev": (("lat", "lon"), np.ones((3, 4)))},
    {"time": pd.date_range("2024-01-01", periods=2), "lat": [60.0, 50, 40], "lon": [0.0, 1, 2, 3], "run": "a"},
)
GRID["t2m"].attrs["units"] = "K"


def test_a_grid_becomes_points_of_its_own_order_and_goes_back():
    found = table(GRID, ("lon", "lat", "time", "elev", "t2m"), whole=("t2m",))
    frame = GRID["t2m"].to_dataframe().reset_index()
    for name in ("lon", "lat", "t2m"):
        np.testing.assert_array_equal(found.columns[name], frame[name])
    np.testing.assert_array_equal(found.columns["time"], frame["time"].to_numpy())
    assert found.kinds == {"lon": "number", "lat": "number", "time": "date", "elev": "number", "t2m": "number"}
    assert found.units == {"t2m": "K"}
    back = found.layout.restore({"a": found.columns["t2m"]}, {"a": {"units": "K"}})
    np.testing.assert_array_equal(back["a"], GRID["t2m"])
    assert back["a"].dims == ("time", "lat", "lon") and back["a"].attrs["units"] == "K"
    for name in GRID.coords:
        xr.testing.assert_identical(back[name], GRID[name])


def test_only_the_dimensions_that_matter_count():
    found = table(GRID, ("lon", "lat", "elev"))
    assert len(found) == 12
    assert found.layout.restore({"a": np.zeros(12)}, {})["a"].dims == ("lat", "lon")
    array = table(GRID["t2m"].transpose("lon", "time", "lat"), ("lon", "t2m"), whole=("t2m",))
    np.testing.assert_array_equal(array.columns["t2m"], GRID["t2m"].transpose("lon", "time", "lat").values.ravel())
    with pytest.raises(
        ValueError, match="Column 't2m' must have no dimension beside those of the values .*, got 'time'"
    ):
        table(GRID, ("t2m", "elev"), whole=("elev",))
    two = GRID.assign(soil=(("lat", "lon"), np.ones((3, 4))))
    with pytest.raises(ValueError, match="Values must share their dimensions .* but 'soil' has"):
        table(two, ("lon", "t2m", "soil"), whole=("t2m", "soil"))


def test_kinds_of_columns_of_a_frame():
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "flag": [True, False, True],
            "lead": pd.to_timedelta([1, 2, 3], unit="h"),
            "label": pd.Categorical(["a", None, "b"]),
            "code": pd.Categorical([1, 2, 1]),
            "zoned": pd.to_datetime(["2024-07-01T12:00+02:00"] * 3),
            "iso": ["2024-03-31T01:30+01:00", "2024-03-31T03:30+02:00", None],
            "plain": ["2024-01-01", "2024-01-02 12:00", "2024-01-03"],
        }
    ).set_index("flag", append=True)
    frame.attrs["units"] = {"lead": "s", "other": "m"}
    names = ("whole", "flag", "lead", "label", "code", "zoned", "iso", "plain")
    found = table(frame, names, dates={"iso", "plain"})
    kinds = ["number", "number", "duration", "text", "number", "zoned date", "zoned date", "date"]
    assert list(found.kinds.values()) == kinds
    np.testing.assert_array_equal(found.columns["whole"], [1, np.nan, 3])
    np.testing.assert_array_equal(found.columns["flag"], [1, 0, 1])
    np.testing.assert_array_equal(found.columns["lead"], [3600, 7200, 10800])
    assert found.columns["label"].tolist() == ["a", None, "b"]
    assert found.columns["zoned"][0] == np.datetime64("2024-07-01T10:00")
    assert found.columns["iso"][1] - found.columns["iso"][0] == np.timedelta64(1, "h") and np.isnat(
        found.columns["iso"][2]
    )
    assert found.units == {"lead": "s"}
    assert "label" in found.layout.restore({"a": np.zeros(3)}, {}) and len(found) == 3


@pytest.mark.parametrize(
    ("data", "names", "says"),
    [
        (
            pd.DataFrame({"Zinc": [1.0], "lead": [2.0]}),
            ("zinc",),
            "Column 'zinc' is not in the data: did you mean 'Zinc'?",
        ),
        (pd.DataFrame({"a": [1.0], "b": [2.0]}), ("zinc",), "there are 'a', 'b'"),
        (GRID, ("latt",), "did you mean 'lat'"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ("a",), "must be there once, got 2 columns"),
        (pd.DataFrame({"t": ["31.05.2024"]}), ("t",), "Column 't' must hold numbers or dates .*, got '31.05.2024'"),
        ({"a": [1]}, ("a",), "must be a pandas DataFrame, an xarray Dataset or a DataArray, got dict"),
        (
            pd.DataFrame({"t": ["yesterday"]}),
            ("t",),
            "Column 't' must hold numbers or dates such as .*, got 'yesterday'",
        ),
        (
            pd.DataFrame({"t": ["2024-01-01 00:00", "2024-01-02T00:00+01:00"]}),
            ("t",),
            "Column 't' must have a time zone in every entry or in none, got '2024-01-01 00:00' beside '2024-01-02T",
        ),
        (
            pd.DataFrame({"t": pd.period_range("2024-01", periods=2, freq="M")}),
            ("t",),
            r"Column 't' must hold dates, got periods: use `column.dt.to_timestamp\(\)`",
        ),
        (
            xr.Dataset(coords={"t": xr.date_range("2024-01-01", periods=2, calendar="360_day", use_cftime=True)}),
            ("t",),
            "Column 't' must be in the standard calendar, got '360_day': use .*, align_on=\"date\"",
        ),
        (
            pd.DataFrame({"t": xr.date_range("2024-01-01", periods=2, calendar="noleap", use_cftime=True)}),
            ("t",),
            r"Column 't' must be in the standard calendar, got 'noleap': use `data.convert_calendar\(\"standard\"\)`",
        ),
    ],
)
def test_what_is_refused(data, names, says):
    if says.startswith("Column 't' must be in"):
        pytest.importorskip("cftime")
    with pytest.raises(ValueError, match=says.replace("?", "")):
        table(data, names, dates={"t"})


@pytest.mark.parametrize(("module", "extra"), [("pandas", "pandas"), ("xarray", "xarray"), ("netCDF4", "netcdf")])
def test_what_is_not_installed_is_named(module, extra, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'A thing needs {module}: pip install "bsatnp\[{extra}\]".'):
        need(module, "A thing")
    path = tmp_path / ("a.csv" if module == "pandas" else "a.nc")
    path.write_text("x\n1\n")
    with pytest.raises(ImportError, match=f"needs {module}"):
        frames.read(path)


def test_dates_of_cftime_in_the_standard_calendar():
    pytest.importorskip("cftime")
    dates = xr.date_range("2024-02-28", periods=3, calendar="standard", use_cftime=True)
    expected = np.arange("2024-02-28", "2024-03-02", dtype="datetime64[D]")
    for data in (xr.Dataset(coords={"t": dates}), pd.DataFrame({"t": dates})):
        found = table(data, ("t",), dates={"t"})
        assert found.kinds == {"t": "date"}
        np.testing.assert_array_equal(found.columns["t"], expected)


def test_labels_that_are_missing_stay_so_in_a_file(tmp_path):
    """netCDF has no missing text: it comes back empty."""
    cover = np.array([["wood", None], ["crop", "wood"]], object)
    frames.write(xr.Dataset({"cover": (("a", "b"), cover)}), tmp_path / "a.nc")
    found = table(frames.read(tmp_path / "a.nc"), ("cover",))
    assert found.columns["cover"].tolist() == ["wood", None, "crop", "wood"]


class Special(pd.DataFrame):
    """A table of a class of its own, as GeoDataFrame is."""


def test_tables_of_a_class_that_derives_from_dataframe(tmp_path):
    data = Special({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    data.__class__.__module__ = "geopandas"
    columns = frames.Columns("v", space=frames.Plane("x", "y"))
    assert type(frames.grid(data, columns, cells=2)) is pd.DataFrame
    frames.write(data, tmp_path / "a.csv")
    assert len(frames.read(tmp_path / "a.csv")) == 2


def test_a_table_of_any_types_goes_to_netcdf(tmp_path):
    when = pd.date_range("2024-07-01", periods=2, tz="Europe/Berlin", name="when")
    columns = {"n": pd.array([1, None], dtype="Int64"), "kind": pd.Categorical(["a", None]), "is_crop/wood": [0.5, 0.5]}
    frames.write(pd.DataFrame(columns, index=when), tmp_path / "a.nc")
    found = frames.read(tmp_path / "a.nc")
    np.testing.assert_array_equal(found["n"], [1, np.nan])
    assert found["kind"].values.tolist() == ["a", ""] and "is_crop_wood" in found
    assert found["when"].values[0] == np.datetime64("2024-06-30T22:00")
    frames.write(GRID["t2m"], tmp_path / "b.nc")
    assert frames.read(tmp_path / "b.nc")["t2m"].size == GRID["t2m"].size
    frames.write(GRID.stack(place=("lat", "lon")), tmp_path / "b.nc")
    assert frames.read(tmp_path / "b.nc")["t2m"].size == GRID["t2m"].size
    with pytest.raises(ValueError, match="must differ in more than '/' and '_' for netCDF, got 'a_b' twice"):
        frames.write(pd.DataFrame({"a/b": [1.0], "a_b": [2.0]}), tmp_path / "c.nc")


def test_objects_go_to_netcdf_as_what_they_are_or_are_refused_by_name(tmp_path):
    noon = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=9)))
    columns = {
        "decimal": [decimal.Decimal("1.5"), None],  # as Parquet has them
        "day": [datetime.date(2024, 1, 1), None],
        "moment": np.array([noon, pd.NaT], object),
        "of dates": pd.Categorical([pd.Timestamp("2024-01-01"), None]),
        "of numbers": pd.Categorical([3, None]),
        "whole": np.array([2**40, 1], object),
        "flag": np.array([True, False], object),
        "span": pd.to_timedelta([90, 1], unit="min"),
    }
    frames.write(pd.DataFrame(columns), tmp_path / "a.nc")
    found = frames.read(tmp_path / "a.nc")
    np.testing.assert_array_equal(found["decimal"], [1.5, np.nan])
    np.testing.assert_array_equal(found["of numbers"], [3, np.nan])
    for name, date in {"day": "2024-01-01", "of dates": "2024-01-01", "moment": "2024-01-01T03:00"}.items():
        assert found[name].values[0] == np.datetime64(date) and np.isnat(found[name].values[1])
    assert found["whole"].dtype.kind == "i" and found["whole"].values.tolist() == [2**40, 1]
    assert found["flag"].dtype == bool and found["flag"].values.tolist() == [True, False]
    assert (found["span"].values / np.timedelta64(1, "m")).tolist() == [90, 1]
    days = pd.date_range("2024-01-01", periods=2)
    for given in (days.to_period("D"), pd.interval_range(0, 2), [1j, 2], [1, "a"], [[1], [2]]):
        with pytest.raises(ValueError, match="Column 'it' must hold numbers, dates, spans of time or text for netCDF"):
            frames.write(pd.DataFrame({"x": [0.0, 1.0], "it": given}), tmp_path / "b.nc")
        assert not (tmp_path / "b.nc").exists()


def test_parquet_brings_back_types_units_and_names_of_the_index(tmp_path):
    pytest.importorskip("pyarrow")
    day = pd.date_range("2024-03-30 23:00", periods=2, tz="Europe/Berlin")
    kept = {
        "v": [1.5, np.nan],
        "n": pd.array([1, None], dtype="Int64"),
        "soil": ["a", None],
        "when": day,
        "moment": pd.Series(day, index=["p", "q"]).astype("timestamp[us, tz=Europe/Berlin][pyarrow]"),
    }
    frame = pd.DataFrame(kept, index=pd.Index(["p", "q"], name="site"))
    frame.attrs = {"units": {"v": "m"}}
    frames.write(frame, tmp_path / "a.parquet")
    found = frames.read(tmp_path / "a.parquet")
    assert found.index.tolist() == ["p", "q"] and found.index.name == "site"
    read = table(found, list(kept))
    assert read.kinds == {"v": "number", "n": "number", "soil": "text", "when": "zoned date", "moment": "zoned date"}
    assert read.units == {"v": "m"} and read.columns["soil"].tolist() == ["a", None]
    np.testing.assert_array_equal(read.columns["n"], [1, np.nan])
    for name in ("when", "moment"):
        assert read.columns[name].tolist() == [
            datetime.datetime(2024, 3, 30, 22),
            datetime.datetime(2024, 3, 31, 21),
        ]  # summer time
    frames.write(found, tmp_path / "a.nc")
    assert frames.read(tmp_path / "a.nc")["moment"].values[0] == np.datetime64("2024-03-30T22:00")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:50])
    with pytest.raises(ValueError, match="cut.parquet' cannot be read as parquet"):
        frames.read(tmp_path / "cut.parquet")


def test_files_by_suffix(tmp_path):
    frame = pd.DataFrame({"x": [1.5, 2.5], "soil": ["a", "b"]})
    frames.write(frame, tmp_path / "a.csv")
    pd.testing.assert_frame_equal(frames.read(tmp_path / "a.csv"), frame)
    frames.write(GRID, tmp_path / "a.nc")
    xr.testing.assert_identical(frames.read(tmp_path / "a.nc")["t2m"], GRID["t2m"])
    frames.write(GRID[["t2m"]], tmp_path / "b.csv")
    assert list(frames.read(tmp_path / "b.csv").columns)[:3] == ["time", "lat", "lon"]
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="empty.csv' cannot be read as csv"):
        frames.read(tmp_path / "empty.csv")
    with pytest.raises(ValueError, match="must end in one of .csv"):
        frames.read(tmp_path / "a.xlsx")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        frames.read(tmp_path / "none.csv")
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        frames.write(frame, tmp_path / "none" / "a.csv")


@pytest.mark.parametrize(("suffix", "error"), [("csv", KeyboardInterrupt), ("nc", ValueError)])
def test_a_file_is_written_whole_or_not_at_all(suffix, error, tmp_path):
    class Interrupts:
        def __str__(self):
            raise KeyboardInterrupt

    path = tmp_path / f"a.{suffix}"
    before = pd.DataFrame({"x": np.arange(10.0)}, index=pd.Index(np.arange(10), name="i"))
    frames.write(before, path)
    kept = path.read_bytes()
    broken = pd.DataFrame({"x": [*["a" * 9999] * 99, Interrupts()]}, dtype=object)
    with pytest.raises(error):
        frames.write(broken, path)
    assert path.read_bytes() == kept and [one.name for one in tmp_path.iterdir()] == [path.name]
    (tmp_path / "link.csv").symlink_to(tmp_path / "b.csv")
    frames.write(before, tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink() and len(frames.read(tmp_path / "b.csv")) == 10


def test_words_for_what_is_missing_are_labels_where_it_is_said(tmp_path):
    text = "n,soil,code,none\n1,NA,1,None\nNA,None,NA,None\n3,,2,\n4,NaN,3,None\n"
    (tmp_path / "a.csv").write_text(text)
    plain, told = (frames.read(tmp_path / "a.csv", labels=labels) for labels in ((), ("soil", "code", "none", "other")))
    assert plain["soil"].isna().all() and plain["none"].isna().all()
    assert told["soil"].isna().tolist() == [False, False, True, True] and told["soil"].tolist()[:2] == ["NA", "None"]
    assert told["none"].isna().tolist() == [False, False, True, False]
    assert frames.read(tmp_path / "a.csv", labels="soil")["soil"].tolist() == told["soil"].tolist()
    for found in (plain, told):
        np.testing.assert_array_equal(found["n"], [1, np.nan, 3, 4])
        np.testing.assert_array_equal(found["code"], [1, np.nan, 2, 3])


def test_equal_tables_are_equal_files(tmp_path):
    frame = pd.DataFrame({"x": [1.5, 2.5], "name": ["a", "ü, b"]})
    for name in ("a.csv", "a.csv.gz"):
        kept = []
        for folder in (tmp_path / "one", tmp_path / "two"):
            folder.mkdir(exist_ok=True)
            frames.write(frame, folder / name)
            kept.append((folder / name).read_bytes())
            pd.testing.assert_frame_equal(frames.read(folder / name), frame)
        assert kept[0] == kept[1] and b"tmp" not in kept[0]


def test_a_replaced_file_keeps_its_mode(tmp_path):
    frame = pd.DataFrame({"x": [1.5, 2.5]})
    for name in ("a.csv", "a.csv.gz", "a.nc"):
        path = tmp_path / name
        path.touch()
        path.chmod(0o600)
        frames.write(frame, path)
        found = frames.read(path)
        np.testing.assert_array_equal(found["x"], frame["x"])
        assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a.csv.gz").read_bytes()[:2] == b"\x1f\x8b" and len(list(tmp_path.iterdir())) == 3


def test_what_is_written_is_a_table_or_a_grid(tmp_path):
    array = xr.DataArray([1.0, 2.0], {"x": [0.0, 1.0]}, ("x",))
    for name in ("o.csv", "o.nc"):
        frames.write(array, tmp_path / name)
        assert frames.read(tmp_path / name)["values"].shape == (2,)
    for data, says in (
        (pd.Series([1.0], name="a"), "`data` must be a DataFrame, a Dataset or a DataArray, got Series."),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), "Column 'a' must be there once for netCDF"),
        (pd.DataFrame({3: [1.0]}), "Names of columns must be text for netCDF, got 3."),
    ):
        with pytest.raises(ValueError, match=says):
            frames.write(data, tmp_path / "wrong.nc")
    assert {path.name for path in tmp_path.iterdir()} == {"o.csv", "o.nc"}


@pytest.mark.parametrize(
    ("lon", "low", "high"),
    [
        ([178.0, 179, -179, -178], 178, 182),
        ([178.0, 179, 181, 182], 178, 182),
        ([350.0, 355, 5, 10], -10, 10),
        ([-10.0, 0, 10], -10, 10),
        ([200.0, 250], 200, 250),
        ([-160.0, -110], -160, -110),
        ([120.0, 179, -150, -70.3], 120, 289.7),
        (np.arange(-180.0, 181, 20), -180, 180),
        (np.arange(0.0, 351, 10), 0, 350),
        ([150.0, -150, -60, 40, 90], 40, 300),
        ([170.0, 179, -179, -130, -70, -10, 50, 105], -179, 179),
        ([7.0, 7.0], 7, 7),
    ],
)
def test_grids_on_the_sphere_go_on_over_the_date_line(lon, low, high):
    data = pd.DataFrame({"lon": lon, "lat": np.linspace(-1, 1, len(lon))})
    made = frames.grid(data, frames.Columns("v", space=frames.Sphere("lon", "lat")), cells=21)
    step = max(high - low, 2) / 20
    assert made["lon"].min() == pytest.approx(low) and high - step < made["lon"].max() < high + 1e-6


def test_grids_have_square_cells_in_the_units_of_the_data():
    data = pd.DataFrame({"x": [0.0, 10, np.nan], "y": [5.0, 10, 7]})
    columns = frames.Columns("v", space=frames.Plane("x", "y"))
    made = frames.grid(data, columns, cells=5)
    assert sorted(set(made.x)) == [0, 2.5, 5, 7.5, 10] and sorted(set(made.y)) == [5, 7.5, 10]
    assert len(made) == 15 and not made.duplicated().any()
    assert dict(frames.grid(data.dropna().to_xarray(), columns, cells=5).sizes) == {"x": 5, "y": 3}
    with pytest.raises(ValueError, match="`cells` must be at least 2"):
        frames.grid(data, columns, cells=1)
