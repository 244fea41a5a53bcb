"""Plain columns from pandas and xarray, and results put back the way they came."""

import abc
import difflib
import importlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: What pandas calls plain objects that all are numbers.
_NUMBERS = ("floating", "integer", "mixed-integer-float", "decimal", "boolean")
#: Extras by the module they bring.
_EXTRAS = {"pandas": "pandas", "xarray": "xarray", "pyarrow": "parquet", "netCDF4": "netcdf", "hypothesis": "testing"}


def need(module: str, what: str) -> Any:
    """The module, or an error that says what to install.

    Raises:
        ImportError: it is not there.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        extra = _EXTRAS[module]
        raise ImportError(f'{what} needs {module}: pip install "bsatnp[{extra}]".') from None


class AbstractLayout(abc.ABC):
    """Where the rows of a table came from."""

    @abc.abstractmethod
    def check(self, results: Collection[str], *, drawn: bool = False) -> None:
        """Raise ValueError for names of results, or of draws, that what goes back with them has already."""

    @abc.abstractmethod
    def restore(self, results: Mapping[str, np.ndarray], attrs: Mapping[str, Mapping[str, str]]) -> Any:
        """Results `(row,)` by name, as the caller's own kind of object; `attrs` are theirs, such as units."""

    @abc.abstractmethod
    def drawn(self, draws: Mapping[str, np.ndarray], attrs: Mapping[str, Mapping[str, str]]) -> Mapping[str, Any]:
        """Draws `(sample, row)` by name: arrays for a table, a Dataset for a grid."""


@dataclass(frozen=True)
class Table:
    """Columns of one length.

    `kinds` says of each column whether it holds a "number", a "duration" (now in seconds), a "date", a "zoned date"
    (with a time zone, now in UTC) or "text", which stands for labels of any type; `columns` are then float64,
    datetime64 or objects. What is missing is NaN, NaT, None or an empty text, and then NaN, NaT or None. A column
    without any entry holds "nothing", whatever its type: NaN in float64.
    """

    columns: dict[str, np.ndarray]
    kinds: dict[str, str]
    units: dict[str, str]
    layout: AbstractLayout

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def table(data: Any, names: Sequence[str], *, whole: Sequence[str] = (), dates: Collection[str] = ()) -> Table:
    """The named columns of a DataFrame, a Dataset or a DataArray.

    Args:
        data: what holds them; the points of an xarray object are those of all its dimensions that matter here.
        names: which columns.
        whole: the columns that the points are of; all when empty. Others are repeated along the dimensions they lack.
        dates: columns in which text is read as dates.

    Raises:
        ValueError: another kind of object, a column that is not there (the nearest name is given) or cannot be read.
    """
    kinds = _kinds(data)
    if is_frame(data):
        return _blank(_of_frame(data, names, dates))
    if "xarray.DataArray" in kinds:
        data, kinds = _as_dataset(data, names, whole), ["xarray.Dataset"]
    if "xarray.Dataset" in kinds:
        return _blank(_of_dataset(data, names, whole or names, dates))
    raise ValueError(f"`data` must be a pandas DataFrame, an xarray Dataset or a DataArray, got {type(data).__name__}.")


def _kinds(data: Any) -> list[str]:
    return [f"{one.__module__.split('.')[0]}.{one.__name__}" for one in type(data).__mro__]


def is_frame(data: Any) -> bool:
    """Whether it is a DataFrame, or of a class that derives from it as GeoDataFrame does."""
    return "pandas.DataFrame" in _kinds(data)


def _as_dataset(data: Any, names: Sequence[str], whole: Sequence[str]) -> Any:
    """An array with its coordinates; one without a name is the only column that is not a coordinate."""
    if data.name in data.coords:
        return data.coords.to_dataset()
    if data.name is None:
        free = [name for name in whole or names if name not in data.coords]
        if len(free) > 1:
            raise ValueError(f"`data` must have a name where several columns are asked for, here {free}.")
        return data.to_dataset(name=free[0]) if free else data.coords.to_dataset()
    return data.to_dataset()


def _blank(found: Table) -> Table:
    """The same table; columns without any entry say so."""
    for name, column in found.columns.items():
        if is_missing(column).all():
            found.columns[name], found.kinds[name] = np.full(len(column), np.nan), "nothing"
    return found


def is_missing(column: np.ndarray) -> np.ndarray:
    """Where a column holds None, NaN or NaT."""
    if column.dtype == object:
        return np.array([one is None for one in column], bool)
    return np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)


def missing(name: str, known: Collection[Any]) -> ValueError:
    """The error of a column that is not there."""
    near = difflib.get_close_matches(name, [str(one) for one in known], 1, 0.5)
    near = near or [str(one) for one in known if str(one).lower() == name.lower()]
    hint = f"did you mean {near[0]!r}" if near else f"there are {', '.join(map(repr, map(str, known)))}"
    return ValueError(f"Column {name!r} is not in the data: {hint}.")


class _Frame(AbstractLayout):
    def __init__(self, frame: Any, names: Sequence[str]):
        kept = [name for name in names if name in frame.columns]
        self.frame = frame[kept]

    def check(self, results, *, drawn=False):
        if not drawn:
            check_names(results, self.frame.columns)

    def restore(self, results, attrs):
        pandas = need("pandas", "A table")
        frame = pandas.concat([self.frame, pandas.DataFrame(dict(results), index=self.frame.index)], axis=1)
        units = {name: of["units"] for name, of in attrs.items() if "units" in of}
        frame.attrs = {"units": units} if units else {}
        return frame

    def drawn(self, draws, attrs):
        return dict(draws)


def check_names(results: Collection[str], taken: Collection[Any]) -> None:
    """Raise ValueError for results that are called as a column that goes back with them."""
    if both := [name for name in results if name in taken]:
        raise ValueError(f"Column {both[0]!r} must have another name in `data`, which is that of a result.")


def _of_frame(frame: Any, names: Sequence[str], dates: Collection[str]) -> Table:
    levels = {name: i for i, name in enumerate(frame.index.names) if name is not None}
    columns, kinds = {}, {}
    for name in names:
        if name not in frame.columns and name not in levels:
            raise missing(name, [*frame.columns, *levels])
        series = frame[name] if name in frame.columns else frame.index.get_level_values(levels[name]).to_series()
        if series.ndim != 1:
            raise ValueError(f"Column {name!r} must be there once, got {series.shape[1]} columns of that name.")
        columns[name], kinds[name] = _plain(name, series, dates)
    units = frame.attrs.get("units", {})
    units = {name: str(units[name]) for name in names if name in units} if isinstance(units, Mapping) else {}
    return Table(columns, kinds, units, _Frame(frame, names))


def _plain(name: str, series: Any, dates: Collection[str]) -> tuple[np.ndarray, str]:
    """A series as a plain array, and its kind."""
    pandas = need("pandas", "A table")
    types = pandas.api.types
    if isinstance(series.dtype, pandas.PeriodDtype):
        raise ValueError(f"Column {name!r} must hold dates, got periods: use `column.dt.to_timestamp()`.")
    if isinstance(series.dtype, pandas.CategoricalDtype):
        series = series.astype(object)
    if type(series.dtype).__name__ == "ArrowDtype":
        series = series.astype(object)
    series = in_floats(series)
    if series.dtype == object and hasattr(next(iter(series.dropna()), None), "calendar"):
        series = pandas.Series(_of_cftime(name, series.to_numpy()), index=series.index)
    if series.dtype == object and types.infer_dtype(series, skipna=True) in ("datetime", "datetime64"):
        series = _dates(name, series)
    if name in dates and (series.dtype == object or types.is_string_dtype(series.dtype)):
        series = _dates(name, series)
    if isinstance(series.dtype, pandas.DatetimeTZDtype):
        return series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy().astype("datetime64[us]"), "zoned date"
    if types.is_datetime64_dtype(series.dtype):
        return series.to_numpy().astype("datetime64[us]"), "date"
    if types.is_timedelta64_dtype(series.dtype):
        return series.dt.total_seconds().to_numpy(np.float64), "duration"
    if types.is_numeric_dtype(series.dtype) and not types.is_complex_dtype(series.dtype):
        return series.to_numpy(np.float64, na_value=np.nan), "number"
    values = np.array(series.to_numpy(object))
    values[np.asarray(series.isna() | (series == ""), bool)] = None
    return values, "text"


def in_floats(series: Any) -> Any:
    """Plain objects that all are numbers in float64, NaN where they are missing; any other series as it is."""
    pandas = need("pandas", "A table")
    if series.dtype != object or pandas.api.types.infer_dtype(series, skipna=True) not in _NUMBERS:
        return series
    return series.where(~series.isna(), np.nan).astype(np.float64)


def _dates(name: str, series: Any) -> Any:
    """Text as dates; other orders than year, month, day would have to be guessed."""
    pandas = need("pandas", "A table")
    says = f"Column {name!r} must hold numbers or dates such as 2024-05-31 12:00"
    known = series[~series.isna()]
    if len(other := known[~known.map(lambda one: isinstance(one, str) or hasattr(one, "year"))]):
        raise ValueError(f"{says}, got {other.iloc[0]!r} among them.")
    try:
        return pandas.to_datetime(series, format="ISO8601")
    except (ValueError, TypeError):  # offsets that differ, as over a change of the clock, or what is no date
        read = pandas.to_datetime(series, format="ISO8601", utc=True, errors="coerce")
    if len(wrong := known[read[~series.isna()].isna().to_numpy()]):
        raise ValueError(f"{says}, got {wrong.iloc[0]!r}.")
    zoned = known.map(_is_zoned).astype(bool)
    if not zoned.all():
        raise ValueError(
            f"Column {name!r} must have a time zone in every entry or in none, got {known[~zoned].iloc[0]!r} beside "
            f"{known[zoned].iloc[0]!r}."
        )
    return read


def _is_zoned(date: Any) -> bool:
    """Whether a date, or a text of one, says what its time zone is."""
    if isinstance(date, str):
        return re.search(r"\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$", date.strip()) is not None
    return getattr(date, "tzinfo", None) is not None


def _of_cftime(name: str, values: np.ndarray) -> np.ndarray:
    """Dates of cftime as datetime64.

    Raises:
        ValueError: another calendar than the standard one.
    """
    calendars = {one.calendar for one in values.ravel() if hasattr(one, "calendar")}
    if other := calendars - {"standard", "gregorian", "proleptic_gregorian"}:
        options = ', align_on="date"' if "360_day" in other else ""
        raise ValueError(
            f"Column {name!r} must be in the standard calendar, got {min(other)!r}: use "
            f'`data.convert_calendar("standard"{options})` of xarray.'
        )
    dates = [np.datetime64(one.isoformat() if hasattr(one, "isoformat") else "NaT", "us") for one in values.ravel()]
    return np.array(dates).reshape(values.shape)


class _Grid(AbstractLayout):
    def __init__(self, data: Any, dims: Sequence[Any]):
        self.dims, self.shape = tuple(dims), tuple(data.sizes[dim] for dim in dims)
        self.coords = {name: c for name, c in data.coords.items() if set(c.dims) <= set(dims)}

    def check(self, results, *, drawn=False):
        check_names([*(("sample",) if drawn else ()), *results], [*self.coords, *self.dims])

    def restore(self, results, attrs):
        return self._dataset(results, attrs, ())

    def drawn(self, draws, attrs):
        return self._dataset(draws, attrs, ("sample",))

    def _dataset(self, results, attrs, lead):
        xarray = need("xarray", "A grid")
        shaped = {name: value.reshape(*value.shape[:-1], *self.shape) for name, value in results.items()}
        arrays = {name: ((*lead, *self.dims), value, attrs.get(name, {})) for name, value in shaped.items()}
        return xarray.Dataset(arrays, self.coords)


def _of_dataset(data: Any, names: Sequence[str], whole: Sequence[str], dates: Collection[str]) -> Table:
    for name in names:
        if name not in data.variables:
            raise missing(name, list(data.variables))
    of_points = {dim for name in whole for dim in data[name].dims}
    dims = [dim for dim in data.sizes if dim in of_points]
    longest = max((data[name].dims for name in whole), key=len)
    dims = list(longest) if set(longest) == of_points else dims
    columns, kinds, units = {}, {}, {}
    shape = tuple(data.sizes[dim] for dim in dims)
    for name in names:
        one = data[name]
        if extra := [dim for dim in one.dims if dim not in dims]:
            raise ValueError(
                f"Column {name!r} must have no dimension beside those of the values {tuple(dims)}, got {extra[0]!r}."
            )
        if name in whole and names != whole and set(one.dims) != of_points:
            raise ValueError(f"Values must share their dimensions {tuple(dims)}, but {name!r} has {one.dims}.")
        small, kinds[name] = _bare(name, one.transpose(*[dim for dim in dims if dim in one.dims]), dates)
        lead = tuple(data.sizes[dim] if dim in one.dims else 1 for dim in dims)
        columns[name] = np.broadcast_to(small.reshape(lead), shape).reshape(-1)
        if "units" in one.attrs:
            units[name] = str(one.attrs["units"])
    return Table(columns, kinds, units, _Grid(data, dims))


def _bare(name: str, array: Any, dates: Collection[str]) -> tuple[np.ndarray, str]:
    """The values of an array of xarray as a plain array, and its kind."""
    values = np.asarray(array.values)
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]"), "date"
    if values.dtype.kind == "m":
        return np.where(np.isnat(values), np.nan, values / np.timedelta64(1, "s")), "duration"
    if values.dtype.kind in "fiub":
        return values.astype(np.float64), "number"
    if values.dtype.kind == "O" and any(hasattr(one, "calendar") for one in values.ravel()[:1]):
        return _of_cftime(name, values), "date"
    if values.dtype.kind not in "OUST":
        raise ValueError(f"Column {name!r} must hold numbers, dates or text, got {values.dtype}.")
    series = need("pandas", "Text").Series(values.astype(object).ravel())
    plain, kind = _plain(name, series, dates)
    return plain.reshape(values.shape), kind
