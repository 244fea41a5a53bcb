"""Hourly 2 m temperature and elevation of the ERA5 reanalysis, from your own files or from the Climate Data Store.

`load` reads netCDF, GRIB or Zarr through xarray; `download` fetches what the paper uses, with your key. The data are
the Copernicus Climate Change Service's (Hersbach et al., Q. J. R. Meteorol. Soc. 146, 2020).
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bsatnp._types import whole

#: Standard gravity, m/s²: elevation is geopotential over it.
GRAVITY = 9.80665

#: Names that the Climate Data Store, its GRIB files and common conversions give to one thing.
_NAMES = {
    "time": ("valid_time", "time"),
    "latitude": ("latitude", "lat"),
    "longitude": ("longitude", "lon"),
    "temperature": ("t2m", "2t", "2m_temperature", "temperature"),
    "elevation": ("elevation", "elev"),
    "geopotential": ("z", "geopotential"),
}
_SUFFIXES = {".nc": None, ".nc4": None, ".cdf": None, ".grib": "cfgrib", ".grib2": "cfgrib", ".grb": "cfgrib"}
_SOURCE = "get it with `bsatnp.datasets.era5.download`, or from https://cds.climate.copernicus.eu"
_METRES = ("m", "metre", "metres", "meter", "meters")
_GEOPOTENTIAL = ("m**2 s**-2", "m2 s-2", "m^2 s^-2", "m2/s2", "m^2/s^2", "m**2/s**2", "J kg-1", "J kg**-1", "J/kg")
_KELVIN, _CELSIUS = ("k", "kelvin", "kelvins"), ("c", "celsius")  # what is left of a unit without its "degrees"
#: Axes of pressure levels. Model levels are none: on the first of them ERA5 gives the geopotential of the surface.
_LEVELS = ("pressure_level", "level", "isobaricInhPa", "isobaricInPa", "plev", "lev")
#: Names that say how high; xarray gives them the scalar coordinates of everything else that a file holds.
_LOW = ("t2m", "2t", "2m_temperature", "elevation", "elev")


@dataclass(frozen=True)
class Box:
    """A box of latitudes and longitudes, its edges included.

    **Units.** Degrees; west and east in ±180.

    Raises:
        ValueError: edges in the wrong order or off the globe.
    """

    south: float
    north: float
    west: float
    east: float

    def __post_init__(self):
        if not -90 <= self.south < self.north <= 90:
            raise ValueError(f"`south` and `north` must rise within ±90 degrees, got {self.south} and {self.north}.")
        if not -180 <= self.west < self.east <= 180:
            raise ValueError(f"`west` and `east` must rise within ±180 degrees, got {self.west} and {self.east}.")


#: The paper's boxes, and one that holds all three.
CENTRAL, NORTHERN, WESTERN = Box(42, 53, 8, 28), Box(53, 62, 8, 28), Box(42, 53, -4, 8)
EUROPE = Box(42, 62, -4, 28)


@dataclass(frozen=True, eq=False)
class Era5:
    """Temperature on a lattice of latitudes and longitudes, frame by frame.

    **Shapes.** `time` is `(frame,)`, `latitude` `(row,)`, `longitude` `(column,)`, `elevation` `(row, column)` and
    `temperature` `(frame, row, column)`. All coordinates rise.

    **Units.** UTC in seconds, degrees with longitudes in ±180, metres, kelvin.

    `cell`, degrees between rows and between columns, is looked at only where there is one of them, which does not tell;
    `within` sets it.
    """

    time: np.ndarray
    latitude: np.ndarray
    longitude: np.ndarray
    elevation: np.ndarray
    temperature: np.ndarray
    cell: tuple[float, float] = (0.0, 0.0)

    @property
    def hour(self) -> np.ndarray:
        """Hour of the day, UTC, `(frame,)`."""
        return (self.time - self.time.astype("datetime64[D]")) / np.timedelta64(1, "h")

    def within(self, box: Box) -> "Era5":
        """The part of the lattice in `box`; cut to the same box again, it stays as it is.

        Longitude 180 is −180, at the other end of the lattice: a box that ends there holds the columns before it.

        Raises:
            ValueError: the lattice does not reach all edges of the box.
        """
        cell = _cell(self.latitude, self.cell[0]), _cell(self.longitude, self.cell[1])
        rows, reach = _between(self.latitude, box.south, box.north, cell[0])
        columns, along = _between(self.longitude, box.west, box.east, cell[1])
        if not (reach and along):
            raise ValueError(
                f"`box` must lie within the data, which span {_span(self.latitude)} N and {_span(self.longitude)} E, "
                f"got {box}."
            )
        return replace(
            self,
            latitude=self.latitude[rows],
            longitude=self.longitude[columns],
            elevation=self.elevation[rows][:, columns],
            temperature=self.temperature[:, rows][:, :, columns],
            cell=cell,
        )


def _cell(values: np.ndarray, known: float) -> float:
    """The distance of values of a rising lattice; `known` where there is but one."""
    return float(np.median(np.diff(values))) if len(values) > 1 else known


def _between(values: np.ndarray, low: float, high: float, cell: float) -> tuple[np.ndarray, bool]:
    """Which values of a rising lattice lie in an interval, and whether they reach its ends to within a cell."""
    slack = max(1e-6, 1e-3 * cell)  # files hold float32
    inside = (values >= low - slack) & (values <= high + slack)
    reach = inside.any() and values[inside][0] < low + cell - slack
    reach = reach and values[inside][-1] > high - cell + (slack if high < 180 else -slack)  # 180 itself is -180
    return inside, bool(reach and (np.diff(values[inside]) < 1.5 * cell).all())


def _span(values: np.ndarray) -> str:
    return f"{values[0]:g}° to {values[-1]:g}°"


def load(path: str | Path) -> Era5:
    """Read 2 m temperature and elevation from a file, a Zarr store, or a folder of files that are joined in time.

    Variables may carry the names of the Climate Data Store or of its GRIB files; elevation may be geopotential, in any
    of the files. Longitudes may run from 0 to 360 or in ±180, latitudes in either direction, times in any step or, for
    one frame, without an axis; frames that are there twice are taken once.

    Raises:
        FileNotFoundError: no such file, or a folder without any.
        ImportError: a package that reads files of this kind is not installed; the error says which.
        ValueError: a variable or coordinate that is missing, in another unit or not finite; a variable on a pressure
            level; lattices that differ; a file that is cut; no frames.
    """
    path = Path(path)
    sources = _sources(path)
    frames: list[tuple[np.ndarray, np.ndarray]] = []
    lattice: tuple[np.ndarray, np.ndarray] | None = None
    elevation: np.ndarray | None = None
    for source in sources:
        with _whole(source), _open(source) as data:
            coordinates, order = _lattice(source, data)
            if lattice is not None and not all(
                a.shape == b.shape and np.allclose(a, b, atol=1e-6) for a, b in zip(lattice, coordinates, strict=True)
            ):
                raise ValueError(f"'{source.name}' must lie on the lattice of '{sources[0].name}', got another one.")
            lattice = coordinates
            if (name := _find(data, "temperature")) is not None:
                frames.append(_temperature(source, data, name, order))
            if elevation is None:
                elevation = _elevation(source, data, order)
    for found, names in ((frames, ["temperature"]), (elevation is not None, ["elevation", "geopotential"])):
        if not found:
            wanted = [name for kind in names for name in _NAMES[kind]]
            raise ValueError(f"'{path.name}' must hold a variable named one of {wanted}, got none; {_SOURCE}.")
    assert lattice is not None and elevation is not None
    time, first = np.unique(np.concatenate([time for time, _ in frames]), return_index=True)
    if not len(time):
        raise ValueError(f"'{path.name}' must hold at least one frame of temperature, got none; {_SOURCE}.")
    return Era5(time, *lattice, elevation, np.concatenate([values for _, values in frames])[first])


@contextmanager
def _whole(source: Path) -> Iterator[None]:
    """Name the file that the libraries below xarray cannot read."""
    try:
        yield
    except PermissionError:
        raise
    except (OSError, RuntimeError) as error:
        raise ValueError(f"'{source.name}' cannot be read to its end: {error}; {_SOURCE}.") from error


def _sources(path: Path) -> list[Path]:
    """What to open: the path itself, or the files in it."""
    if not path.exists():
        raise FileNotFoundError(f"`path` must be a netCDF or GRIB file, a Zarr store or a folder, got '{path}'.")
    if path.is_file() or _is_zarr(path):
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES or _is_zarr(p))
    if not found:
        raise FileNotFoundError(f"'{path}' must hold netCDF, GRIB or Zarr data of ERA5, got none; {_SOURCE}.")
    return found


def _is_zarr(path: Path) -> bool:
    return path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def _open(source: Path) -> Any:
    """An xarray dataset, opened lazily."""
    try:
        import xarray
        from xarray.backends import list_engines
    except ImportError as error:
        raise ImportError("ERA5 is read by xarray; install it with `pip install 'bsatnp[era5]'`.") from error
    engine = "zarr" if _is_zarr(source) else _SUFFIXES.get(source.suffix)
    try:
        options: Any = {"indexpath": ""} if engine == "cfgrib" else {}  # no index files beside the data
        return xarray.open_dataset(source, engine=engine, **options)
    except (ImportError, ValueError) as error:
        needed = engine or "netcdf4"
        if needed in list_engines():
            raise ValueError(f"'{source.name}' must be a file that xarray reads: {error}.") from error
        raise ImportError(f"'{source.name}' needs `{needed}`; install it with `pip install {needed}`.") from error


def _find(data: Any, kind: str) -> str | None:
    """The name under which a dataset holds something."""
    return next((name for name in _NAMES[kind] if name in data.variables), None)


def _coordinate(source: Path, data: Any, kind: str) -> str:
    """The dimension of that kind, under the name it has here."""
    name = next((name for name in _NAMES[kind] if name in data.dims), None)
    if name is None:
        raise ValueError(f"'{source.name}' must have the dimension '{kind}', got {sorted(map(str, data.dims))}.")
    return name


def _lattice(source: Path, data: Any) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Rising latitudes and longitudes, and the order that makes them so."""
    latitude, longitude = (
        np.asarray(data[_coordinate(source, data, kind)].values, np.float64) for kind in ("latitude", "longitude")
    )
    longitude = (longitude + 180) % 360 - 180
    orders = np.argsort(latitude), np.argsort(longitude)
    rising = latitude[orders[0]], longitude[orders[1]]
    for kind, line, values in zip(("latitude", "longitude"), ("row", "column"), rising, strict=True):
        if not (np.abs(values) <= (90.001 if kind == "latitude" else 180)).all():
            raise ValueError(f"'{source.name}' must have a {kind} in degrees, got {values[0]:g} to {values[-1]:g}.")
        if len(twice := values[1:][np.diff(values) < 1e-6]):
            advice = "; of 0 and 360, or of -180 and 180, drop one" if kind == "longitude" else ""
            raise ValueError(
                f"'{source.name}' must have one {kind} for each {line} of its lattice, got {twice[0]:g} twice{advice}."
            )
    return rising, orders


def _plane(source: Path, data: Any, name: str, order: tuple[np.ndarray, np.ndarray], *, time: str | None) -> np.ndarray:
    """Values as `(frame, row, column)`, or `(row, column)` without `time`, with rising coordinates."""
    axes = [_coordinate(source, data, kind) for kind in ("latitude", "longitude")]
    array = data[name]
    if "expver" in array.dims:  # final and preliminary data side by side, each NaN where the other is
        parts = [array.isel(expver=i, drop=True) for i in range(array.sizes["expver"])]
        array = parts[0]
        for part in parts[1:]:
            array = array.fillna(part)
    wanted = [*([time] if time else []), *axes]
    more = [dim for dim in array.dims if dim not in wanted and array.sizes[dim] > 1]
    if more or any(dim not in array.dims for dim in wanted):
        raise ValueError(f"Variable '{name}' of '{source.name}' must have the axes {wanted}, got {list(array.dims)}.")
    for level in _LEVELS:
        if level in (array.dims if name in _LOW else (*array.dims, *array.coords)):
            at = f"{level} {array[level].values.ravel()[0]}" if level in array.coords else f"an axis '{level}'"
            raise ValueError(f"Variable '{name}' of '{source.name}' must be at the surface, got {at}.")
    array = array.isel({dim: 0 for dim in array.dims if dim not in wanted}, drop=True).transpose(*wanted)
    values = np.asarray(array.values, np.float32)[..., order[0], :][..., order[1]]
    if absent := int((~np.isfinite(values)).sum()):
        raise ValueError(
            f"Variable '{name}' of '{source.name}' must be finite everywhere, got {absent} missing values."
        )
    return values


def _temperature(source: Path, data: Any, name: str, order: Any) -> tuple[np.ndarray, np.ndarray]:
    """Times and kelvin."""
    data = _framed(data)
    time = _coordinate(source, data, "time")
    values = _plane(source, data, name, order, time=time)
    unit = str(data[name].attrs.get("units", "K"))
    plain = re.sub(r"^(degrees?|deg|°)[ _]?", "", unit.strip().lower())
    if plain not in (*_KELVIN, *_CELSIUS):
        raise ValueError(f"Variable '{name}' of '{source.name}' must be in K or °C, got '{unit}'.")
    when = next((known for known in _NAMES["time"] if known in data.variables and data[known].dims == (time,)), time)
    if data[when].dtype.kind not in "MO":  # objects are dates of other calendars
        raise ValueError(f"'{source.name}' must have dates as '{when}', got {data[when].dtype} without a unit of time.")
    dates = data[when].values.astype("datetime64[s]")
    if np.isnat(dates).any():
        raise ValueError(
            f"'{source.name}' must have the time of every frame, got {int(np.isnat(dates).sum())} without."
        )
    return dates, values + np.float32(0 if plain in _KELVIN else 273.15)


def _framed(data: Any) -> Any:
    """The dataset with an axis of time, where it holds the time of its one frame as a plain number."""
    if any(name in data.dims for name in _NAMES["time"]):
        return data
    name = next((name for name in _NAMES["time"] if name in data.variables and data[name].ndim == 0), None)
    return data if name is None else data.set_coords(name).expand_dims(name)


def _elevation(source: Path, data: Any, order: Any) -> np.ndarray | None:
    """Metres, or None where the dataset has no such variable."""
    for kind, factor, units in (("elevation", 1.0, _METRES), ("geopotential", 1 / GRAVITY, _GEOPOTENTIAL)):
        if (name := _find(data, kind)) is not None:
            if (unit := str(data[name].attrs.get("units", ""))) not in ("", *units):
                raise ValueError(f"Variable '{name}' of '{source.name}' must be in {units[0]}, got '{unit}'.")
            still = data.isel({dim: 0 for dim in _NAMES["time"] if dim in data[name].dims})
            return _plane(source, still, name, order, time=None).astype(np.float64) * factor
    return None


def request(box: Box = EUROPE, *, year: int = 2019, month: int = 1, resolution: float = 0.25) -> dict[str, Any]:
    """What the Climate Data Store is asked for: hourly 2 m temperature and geopotential of one month in `box`.

    Raises:
        ValueError: a month that is none, a year before 1940.
    """
    whole("year", year)
    if not 1 <= whole("month", month) <= 12:
        raise ValueError(f"`month` must be between 1 and 12, got {month}.")
    if year < 1940:
        raise ValueError(f"`year` must be 1940 or later, where ERA5 begins, got {year}.")
    days = (np.datetime64(f"{year}-{month:02d}") + 1).astype("datetime64[D]") - np.datetime64(f"{year}-{month:02d}-01")
    return {
        "product_type": ["reanalysis"],
        "variable": ["2m_temperature", "geopotential"],
        "year": [str(year)],
        "month": [f"{month:02d}"],
        "day": [f"{day:02d}" for day in range(1, days.astype(int) + 1)],
        "time": [f"{hour:02d}:00" for hour in range(24)],
        "area": [box.north, box.west, box.south, box.east],
        "grid": [resolution, resolution],
        "data_format": "netcdf",
        "download_format": "unarchived",
    }


def download(
    folder: str | Path,
    *,
    box: Box = EUROPE,
    year: int = 2019,
    months: Sequence[int] = range(1, 13),
    client: Any = None,
    progress: Callable[[Path], None] | None = None,
) -> list[Path]:
    """Fetch the months that `folder` lacks, one file each; `load(folder)` then reads them.

    It needs the package `cdsapi` and a key of yours, see https://cds.climate.copernicus.eu/how-to-api.

    Args:
        folder: where `era5_<year>-<month>.nc` go; a file appears once it is whole. Names of another area than the
            default have its edges at the end. `load(folder)` takes files of one area.
        box: the area.
        year: which year.
        months: which months of it.
        client: an object whose `retrieve(dataset, request, target)` fetches; `cdsapi.Client()` when None.
        progress: called with each file before it is fetched.

    Raises:
        ImportError: `cdsapi` is not installed.
        ValueError: see `request`.
    """
    requests = [request(box, year=year, month=month) for month in months]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    area = "" if box == EUROPE else f"_{box.south:g}_{box.north:g}_{box.west:g}_{box.east:g}"
    files = [folder / f"era5_{year}-{wanted['month'][0]}{area}.nc" for wanted in requests]
    for file, wanted in zip(files, requests, strict=True):
        if file.exists():
            continue
        client = _client() if client is None else client
        if progress is not None:
            progress(file)
        beside = file.with_suffix(f".part{os.getpid()}")
        try:
            client.retrieve("reanalysis-era5-single-levels", wanted, str(beside))
            beside.replace(file)
        finally:
            beside.unlink(missing_ok=True)
    return files


def _client() -> Any:
    try:
        import cdsapi  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("Downloads of ERA5 need cdsapi; install it with `pip install 'bsatnp[era5]'`.") from error
    return cdsapi.Client()
