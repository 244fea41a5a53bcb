"""ERA5 in the forms in which it is met, what is refused, and what the Climate Data Store is asked for."""

import builtins
from pathlib import Path

import numpy as np
import pytest
import xarray

from bsatnp.datasets import era5
from bsatnp.datasets.era5 import Box

six = np.timedelta64(6, "h").astype("timedelta64[ns]")
REAL = Path(__file__).parents[3] / "shared" / "data" / "era5"


def small(*, times=("2019-01-31T18", "2019-02-01T00"), geopotential=False):
    """A dataset of 2 frames, 3 latitudes from north to south and 4 longitudes; each value names its place."""
    latitude, longitude = np.array([50.5, 50.25, 50.0]), np.array([-0.5, -0.25, 0.0, 0.25])
    time = np.array(times, "datetime64[ns]")
    at = latitude[:, None] + longitude / 100
    values = 200 + at[None] + np.arange(len(time))[:, None, None] * 10
    height = 1000 * at
    return xarray.Dataset(
        {
            "t2m": (("time", "latitude", "longitude"), values.astype(np.float32), {"units": "K"}),
            **(
                {"z": (("time", "latitude", "longitude"), np.stack([height * era5.GRAVITY] * len(time)))}
                if geopotential
                else {"elevation": (("latitude", "longitude"), height)}
            ),
        },
        coords={"time": time, "latitude": latitude, "longitude": longitude},
    )


def check(data, *, n=2):
    """Coordinates rise and every value is where it belongs."""
    assert data.temperature.shape == (n, 3, 4) and data.temperature.dtype == np.float32
    np.testing.assert_array_equal(data.latitude, [50.0, 50.25, 50.5])
    np.testing.assert_allclose(data.longitude, [-0.5, -0.25, 0.0, 0.25], atol=1e-12)
    at = data.latitude[:, None] + data.longitude / 100
    np.testing.assert_allclose(data.elevation, 1000 * at, rtol=1e-6)
    np.testing.assert_allclose(data.temperature[0], 200 + at, rtol=1e-6)
    assert data.time[0] == np.datetime64("2019-01-31T18") and data.time.dtype == "datetime64[s]"
    assert data.hour.tolist()[:2] == [18, 0]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d,
        lambda d: d.sortby("latitude"),
        lambda d: d.assign_coords(longitude=d.longitude % 360).sortby("longitude"),
        lambda d: d.rename(time="valid_time", latitude="lat", longitude="lon", t2m="2t"),
        lambda d: d.transpose("longitude", "time", "latitude"),
        lambda d: d.isel(time=[1, 0]),
        lambda d: d.expand_dims(number=[0], axis=1),
        lambda d: d.assign(t2m=(d.t2m - 273.15).assign_attrs(units="degC")),
        lambda d: xarray.concat([d.where(d.time < d.time[1]), d.where(d.time >= d.time[1])], "expver"),
        lambda d: d.assign_coords(number=0, expver="0001", heightAboveGround=2.0, surface=0.0),
        lambda d: d.assign_coords(time=d.time - six, step=six, valid_time=("time", d.time.values)),
    ],
    ids="plain rising 0-360 names axes times number celsius expver scalars forecast".split(),
)
def test_one_content_in_many_forms(tmp_path, change):
    changed = change(small())
    if "expver" in changed.dims:
        changed["elevation"] = small().elevation
    changed.to_netcdf(tmp_path / "one.nc", engine="netcdf4")
    check(era5.load(tmp_path / "one.nc"))


def test_zarr_and_geopotential(tmp_path):
    small(geopotential=True).to_zarr(tmp_path / "one.zarr")
    check(era5.load(tmp_path / "one.zarr"))


@pytest.mark.parametrize("names", [["time"], ["valid_time"], ["time", "valid_time"]], ids="-".join)
def test_one_frame_a_file_may_hold_its_time_without_an_axis(tmp_path, names):
    """As cfgrib gives it: `time` is when the run began, `valid_time` when its values hold."""
    for i, time in enumerate(("2019-02-01T00", "2019-01-31T18")):
        frame = small(times=(time,), geopotential=i == 0).isel(time=0)
        begun = {"time": frame.time - six} if len(names) == 2 else {}
        frame = frame.assign_coords({name: frame.time for name in names} | begun | {"step": six, "surface": 0.0})
        frame = frame.assign(t2m=frame.t2m + (10 if i == 0 else 0))
        frame.drop_vars({"time"} - set(names)).to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
    data = era5.load(tmp_path)
    check(data)
    np.testing.assert_allclose(data.temperature[1] - data.temperature[0], 10, rtol=1e-5)


@pytest.mark.parametrize("unit", "kelvin Kelvin degK deg_K degrees_kelvin".split())
def test_spellings_of_kelvin(tmp_path, unit):
    data = small()
    data.t2m.attrs["units"] = unit
    data.to_netcdf(tmp_path / "one.nc", engine="netcdf4")
    check(era5.load(tmp_path / "one.nc"))


@pytest.mark.parametrize("unit", "C °C celsius deg_C degC degree_C degree_Celsius degrees_Celsius".split())
def test_spellings_of_degrees_celsius(tmp_path, unit):
    data = small()
    data = data.assign(t2m=(data.t2m - 273.15).assign_attrs(units=unit))
    data.to_netcdf(tmp_path / "one.nc", engine="netcdf4")
    check(era5.load(tmp_path / "one.nc"))


@pytest.mark.parametrize("level", "pressure_level level isobaricInhPa isobaricInPa plev lev".split())
@pytest.mark.parametrize(("name", "called"), [("z", "geopotential"), ("z", "z"), ("t2m", "temperature")])
def test_a_pressure_level_is_not_the_surface(tmp_path, name, called, level):
    """Geopotential of 500 hPa is no elevation, whether its level is an axis of length 1 or a scalar."""
    data = small(geopotential=True).rename({name: called} if name != called else {})
    data[called] = data[called].expand_dims({level: [500]}, axis=1)
    for one, got in (
        (data, f"{level} 500"),
        (data.squeeze(level), f"{level} 500"),
        (data.drop_vars(level), f"an axis '{level}'"),
    ):
        one.to_netcdf(tmp_path / "one.nc", engine="netcdf4")
        with pytest.raises(ValueError, match=f"'{called}' of 'one.nc' must be at the surface, got {got}"):
            era5.load(tmp_path)
    data.squeeze(level, drop=True).to_netcdf(tmp_path / "one.nc", engine="netcdf4")
    check(era5.load(tmp_path))


def test_the_level_of_another_variable_does_not_move_what_is_at_2_metres(tmp_path):
    """A scalar coordinate of a file belongs to all of its variables, as xarray reads it."""
    data = small().assign(u=("time", [1.0, 2.0])).assign_coords(level=500)
    data.to_netcdf(tmp_path / "one.nc", engine="netcdf4")
    check(era5.load(tmp_path))
    data.assign(t2m=data.t2m.drop_vars("level").expand_dims(level=[500])).to_netcdf(
        tmp_path / "one.nc", engine="netcdf4"
    )
    with pytest.raises(ValueError, match="'t2m' of 'one.nc' must be at the surface, got level 500"):
        era5.load(tmp_path)


def test_files_of_a_folder_are_joined_in_time(tmp_path):
    whole = small(times=("2019-01-31T18", "2019-02-01T00", "2019-02-01T06"))
    whole.isel(time=[1, 2]).drop_vars("elevation").to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    whole.isel(time=[0, 1]).drop_vars("elevation").to_netcdf(tmp_path / "b.nc", engine="netcdf4")
    whole.drop_vars(["t2m", "time"]).to_netcdf(tmp_path / "height.nc", engine="netcdf4")
    data = era5.load(tmp_path)
    check(data, n=3)
    assert data.hour.tolist() == [18, 0, 6]
    (whole + 0.0).assign_coords(latitude=whole.latitude + 1).to_netcdf(tmp_path / "other.nc", engine="netcdf4")
    with pytest.raises(ValueError, match=r"'other.nc' must lie on the lattice of 'a.nc'"):
        era5.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.drop_vars("t2m"), r"'one.nc' must hold a variable named one of \['t2m', .*got none; get it with"),
        (lambda d: d.drop_vars("elevation"), r"one of \['elevation', 'elev', 'z', 'geopotential'\], got none"),
        (lambda d: d.rename(latitude="y"), r"'one.nc' must have the dimension 'latitude', got \['longitude', 'time'"),
        (lambda d: d.rename(time="when"), r"'one.nc' must have the dimension 'time', got"),
        (lambda d: d.assign(t2m=d.t2m.assign_attrs(units="F")), r"'t2m' of 'one.nc' must be in K or °C, got 'F'"),
        (lambda d: d.assign(t2m=d.t2m.where(d.t2m < 260)), r"'t2m' .* must be finite everywhere, got 10 missing"),
        (lambda d: d.expand_dims(level=[1, 2]), r"'t2m' .* must have the axes \['time', .*got \['level'"),
        (lambda d: d.assign(t2m=d.t2m.assign_attrs(units="degrees")), r"must be in K or °C, got 'degrees'"),
        (
            lambda d: d.assign_coords(longitude=[0, 120, 240, 360]),
            r"'one.nc' must have one longitude for each column of its lattice, got 0 twice; of 0 and 360, or of -180 "
            "and 180, drop one",
        ),
        (
            lambda d: d.assign_coords(longitude=[-180, 0, 90, 180]),
            "for each column of its lattice, got -180 twice; of 0 and 360, or of -180 and 180, drop one",
        ),
        (
            lambda d: d.assign_coords(latitude=[51, 50, 50]),
            r"'one.nc' must have one latitude for each row of its lattice, got 50 twice\.$",
        ),
        (
            lambda d: d.assign_coords(latitude=[120, 121, 122]),
            r"'one.nc' must have a latitude in degrees, got 120 to 122",
        ),
        (lambda d: d.drop_vars("time"), r"'one.nc' must have dates as 'time', got int64"),
        (lambda d: d.assign_coords(time=[876576, 876582]), r"'one.nc' must have dates as 'time', got int64"),
        (
            lambda d: d.assign_coords(time=np.array(["2019-01-31", "NaT"], "datetime64[ns]")),
            "'one.nc' must have the time of every frame, got 1 without",
        ),
        (lambda d: d.assign(elevation=d.elevation.assign_attrs(units="km")), r"'elevation' .* must be in m, got 'km'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path, change, message):
    change(small()).to_netcdf(tmp_path / "one.nc", engine="netcdf4")
    with pytest.raises(ValueError, match=message):
        era5.load(tmp_path / "one.nc")


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="`path` must be a netCDF or GRIB file, a Zarr store or a folder"):
        era5.load(tmp_path / "absent.nc")
    with pytest.raises(FileNotFoundError, match="must hold netCDF, GRIB or Zarr data of ERA5, got none; get it with"):
        era5.load(tmp_path)
    (tmp_path / "broken.nc").write_bytes(b"no such file")
    with pytest.raises(ValueError, match="'broken.nc' must be a file that xarray reads"):
        era5.load(tmp_path)


@pytest.mark.parametrize(("package", "named"), [("xarray", r"pip install 'bsatnp\[era5\]'"), ("cdsapi", r"\[era5\]")])
def test_errors_say_what_to_install(tmp_path, monkeypatch, package, named):
    (tmp_path / "one.nc").write_bytes(b"")
    real = builtins.__import__

    def without(name, *args, **options):
        if name == package:
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    call = era5.load if package == "xarray" else lambda folder: era5.download(folder)
    with pytest.raises(ImportError, match=named):
        call(tmp_path)


def test_grib_names_its_reader(tmp_path, monkeypatch):
    (tmp_path / "one.grib").write_bytes(b"GRIB")
    monkeypatch.setattr("xarray.backends.list_engines", lambda: {"netcdf4": None})
    monkeypatch.setattr(xarray, "open_dataset", lambda *a, **k: (_ for _ in ()).throw(ValueError("unrecognized")))
    with pytest.raises(ImportError, match=r"'one.grib' needs `cfgrib`; install it with `pip install cfgrib`"):
        era5.load(tmp_path)


def test_boxes():
    with pytest.raises(ValueError, match="`south` and `north` must rise within ±90 degrees, got 53 and 42"):
        Box(53, 42, 8, 28)
    with pytest.raises(ValueError, match="`west` and `east` must rise within ±180 degrees, got 8 and 188"):
        Box(42, 53, 8, 188)
    for part in (era5.CENTRAL, era5.NORTHERN, era5.WESTERN):
        assert era5.EUROPE.south <= part.south and era5.EUROPE.north >= part.north
        assert era5.EUROPE.west <= part.west and era5.EUROPE.east >= part.east


def test_a_box_is_cut_with_its_edges_or_refused(tmp_path):
    small().to_netcdf(tmp_path / "one.nc", engine="netcdf4")
    data = era5.load(tmp_path)
    part = data.within(Box(50.25, 50.5, -0.3, 0.0))
    np.testing.assert_array_equal(part.latitude, [50.25, 50.5])
    np.testing.assert_allclose(part.longitude, [-0.25, 0.0], atol=1e-12)
    np.testing.assert_array_equal(part.temperature, data.temperature[:, 1:, 1:3])
    np.testing.assert_array_equal(part.elevation, data.elevation[1:, 1:3])
    for box in (Box(49.5, 50.5, -0.5, 0.0), Box(50, 50.5, 0.0, 1.0), Box(60, 61, 0, 1)):
        with pytest.raises(ValueError, match=r"`box` must lie within the data, which span 50° to 50.5° N and -0.5°"):
            data.within(box)


@pytest.mark.parametrize(
    "box", [Box(42, 42.5, 0, 1), Box(42, 42.5, 0, 0.4), Box(41.5, 42.5, -0.3, 0.4), Box(42, 45, 0, 0.4)]
)
def test_a_part_is_a_part_of_itself(box):
    """One row or column does not tell how far the next would be; a part remembers it."""
    latitude, longitude = np.arange(40.0, 50.0), np.arange(-3.0, 4.0, 0.5)
    plane = latitude[:, None] + longitude
    data = era5.Era5(np.array(["2019-01-01"], "M8[s]"), latitude, longitude, plane, plane[None])
    part = data.within(box)
    again = part.within(box)
    assert 1 in part.elevation.shape and part.cell == again.cell == (1, 0.5)
    np.testing.assert_array_equal(again.temperature, part.temperature)
    np.testing.assert_array_equal(again.elevation, part.elevation)
    for wider in (Box(box.south - 1, box.north, box.west, box.east), Box(box.south, box.north, box.west, box.east + 2)):
        with pytest.raises(ValueError, match="`box` must lie within the data"):
            part.within(wider)
        data.within(wider)


def test_edges_of_a_box_are_met_by_coordinates_in_float32(tmp_path):
    ten = small().assign_coords(
        latitude=np.array([42.3, 42.2, 42.1], "float32"), longitude=np.array([8.1, 8.2, 8.3, 8.4], "float32")
    )
    ten.to_netcdf(tmp_path / "ten.nc", engine="netcdf4")
    part = era5.load(tmp_path).within(Box(42.1, 42.2, 8.1, 8.3))
    assert part.temperature.shape == (2, 2, 3)


def test_a_box_may_end_where_a_lattice_around_the_globe_begins(tmp_path):
    globe = small().assign_coords(longitude=[0.0, 90.0, 180.0, 270.0])
    globe.to_netcdf(tmp_path / "globe.nc", engine="netcdf4")
    data = era5.load(tmp_path)
    for box, columns in ((Box(50, 50.5, 90, 180), [90]), (Box(50, 50.5, 0, 180), [0, 90])):
        part = data.within(box)
        np.testing.assert_array_equal(part.longitude, columns)
        np.testing.assert_array_equal(part.within(box).longitude, columns)
    np.testing.assert_array_equal(data.within(Box(50, 50.5, -180, 180)).longitude, [-180, -90, 0, 90])


def test_a_file_that_is_cut_or_empty_is_named(tmp_path):
    file = tmp_path / "one.nc"
    small().isel(time=slice(0, 0)).to_netcdf(file, engine="netcdf4")
    with pytest.raises(ValueError, match="'one.nc' must hold at least one frame of temperature, got none"):
        era5.load(file)
    small(times=np.datetime64("2019-01-01T00") + np.arange(2000)).to_netcdf(file, engine="netcdf4")
    file.write_bytes(file.read_bytes()[:-40_000])
    with pytest.raises(ValueError, match="'one.nc' (cannot be read to its end|must be a file that xarray reads)"):
        era5.load(file)


def test_a_box_that_leaves_the_data_over_the_date_line_is_refused(tmp_path):
    pacific = small().assign_coords(longitude=[179.0, 179.5, 180.0, 180.5])
    pacific.to_netcdf(tmp_path / "pacific.nc", engine="netcdf4")
    data = era5.load(tmp_path)
    assert data.within(Box(50, 50.5, 179, 179.5)).temperature.shape == (2, 3, 2)
    with pytest.raises(ValueError, match="`box` must lie within the data"):
        data.within(Box(50, 50.5, -179.5, 179))


class Client:
    """Stands in for cdsapi.Client: notes what it is asked for and writes an answer."""

    def __init__(self):
        self.asked = []

    def retrieve(self, dataset, request, target):
        self.asked.append((dataset, request))
        small(times=(f"2019-{request['month'][0]}-01T00",)).to_netcdf(target, engine="netcdf4")


def test_download_asks_for_what_is_missing_and_load_reads_it(tmp_path):
    client, told = Client(), []
    small().isel(time=[0]).to_netcdf(tmp_path / "era5_2019-01.nc", engine="netcdf4")
    files = era5.download(tmp_path, months=[1, 2, 4], client=client, progress=told.append)
    assert [file.name for file in files] == ["era5_2019-01.nc", "era5_2019-02.nc", "era5_2019-04.nc"]
    assert told == files[1:] and sorted(tmp_path.iterdir()) == files
    (name, february), (_, april) = client.asked
    assert name == "reanalysis-era5-single-levels"
    assert february == era5.request(year=2019, month=2) and april["month"] == ["04"]
    assert february["variable"] == ["2m_temperature", "geopotential"]
    assert february["area"] == [62, -4, 42, 28] and february["grid"] == [0.25, 0.25]  # north, west, south, east
    assert february["day"][0] == "01" and february["day"][-1] == "28" and len(april["day"]) == 30
    assert february["time"][0] == "00:00" and february["time"][-1] == "23:00" and len(february["time"]) == 24
    assert february["data_format"] == "netcdf" and february["year"] == ["2019"]
    assert era5.request(year=2020, month=2)["day"][-1] == "29" and era5.request(month=12)["day"][-1] == "31"
    assert len(era5.load(tmp_path).time) == 3
    with pytest.raises(ValueError, match="`month` must be between 1 and 12, got 13"):
        era5.request(month=13)
    with pytest.raises(ValueError, match="`year` must be 1940 or later"):
        era5.request(year=1939)


def test_a_download_that_fails_leaves_no_file_that_looks_whole(tmp_path):
    class Broken(Client):
        def retrieve(self, dataset, request, target):
            Path(target).write_bytes(b"half")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        era5.download(tmp_path, months=[1], client=Broken())
    assert list(tmp_path.iterdir()) == []


def test_another_box_has_files_of_its_own(tmp_path):
    client = Client()
    first = era5.download(tmp_path, months=[1], client=client)
    second = era5.download(tmp_path, months=[1], box=Box(10, 11, -4.5, 3), client=client)
    assert [file.name for file in first + second] == ["era5_2019-01.nc", "era5_2019-01_10_11_-4.5_3.nc"]
    assert client.asked[1][1]["area"] == [11, -4.5, 10, 3]


def test_real_samples():
    if not REAL.is_dir():
        pytest.skip("the ERA5 samples are not in ../shared/data/era5")
    europe = era5.load(REAL / "era5_europe_t2m_elev_20220701-05_6h.nc")
    assert europe.temperature.shape == (20, 101, 161) and europe.hour.tolist()[:5] == [0, 6, 12, 18, 0]
    central = europe.within(era5.CENTRAL)
    assert central.temperature.shape == (20, 45, 81) and europe.within(era5.WESTERN).temperature.shape == (20, 45, 49)
    assert central.elevation.max() > 2000 and 280 < central.temperature.mean() < 305
    high = central.elevation > 1500
    assert central.temperature[:, high].mean() < central.temperature[:, ~high].mean() - 5
    kingdom = era5.load(REAL / "era5_uk_t2m_elev_201903_1h.nc")
    assert len(kingdom.time) == 744 and kingdom.hour.max() == 23
