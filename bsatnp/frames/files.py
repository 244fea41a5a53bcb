"""Tables and grids in files, by the suffix of their names."""

import gzip
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from bsatnp.checkpoint import check_writable
from bsatnp.checkpoint.writing import replacing
from bsatnp.frames.table import in_floats, is_frame, need

_TABLES, _GRIDS = (".csv", ".csv.gz", ".parquet"), (".nc", ".nc4", ".netcdf")

#: Words that mean missing in CSV, as pandas reads it.
MISSING = frozenset("#N/A #NA N/A NA <NA> n/a None null NULL -1.#IND -1.#QNAN 1.#IND 1.#QNAN -NaN -nan".split())


def read(path: str | os.PathLike, *, labels: Collection[str] = ()) -> Any:
    """A CSV or Parquet file as a DataFrame, a netCDF file as a Dataset.

    Missing in CSV is what is blank, or NaN, NA, None, null or another of the words that pandas takes for it.

    Args:
        path: the file.
        labels: columns of labels, in which NA, None, null and alike are labels, unless the others are numbers.

    Raises:
        ValueError: another suffix, or a file that is not what its suffix says.
        OSError: no such file.
        ImportError: what reads such files is not installed.
    """
    kind = _kind(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    try:
        library = _need(kind)
        if kind in _GRIDS:
            with library.open_dataset(path) as data:
                return data.load()
        return library.read_parquet(path) if kind == ".parquet" else _read_csv(path, labels)
    except ImportError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"{os.fspath(path)!r} cannot be read as {kind[1:]}: {reason}.") from error


def _read_csv(path: str | os.PathLike, labels: Collection[str]) -> Any:
    pandas = need("pandas", "A table")
    data = pandas.read_csv(path)
    labels = [labels] if isinstance(labels, str) else labels
    known = [data[name] for name in labels if name in data.columns]
    words = [one.name for one in known if one.isna().all() or not pandas.api.types.is_numeric_dtype(one)]
    text = as_written(path) if words else data
    for name in words:
        data[name] = text[name].mask(text[name].isin(["", "NaN", "nan"])).array
    return data


def as_written(path: str | os.PathLike) -> Any:
    """The entries of a CSV file as text, in the rows of `read`."""
    return need("pandas", "A table").read_csv(path, dtype=str, keep_default_na=False)


def is_csv(path: str | os.PathLike) -> bool:
    """Whether a name is that of a CSV file."""
    return _kind(path).startswith(".csv")


def write(data: Any, path: str | os.PathLike) -> None:
    """Write a DataFrame or a Dataset, each to any of the formats. The index goes along where it has a name.

    netCDF holds less than a DataFrame: dates go there in UTC, labels as text, and "/" in a name as "_".

    The file is written beside `path`, synced and renamed: whoever reads it finds the old one or the new one, never a
    part. An array without a name is called "values".

    Raises:
        ValueError: another suffix, another kind of object, columns that netCDF does not take, or their names.
        OSError: the folder is not there or cannot be written.
        ImportError: what writes such files is not installed.
    """
    check_out(path)
    if not is_frame(data) and not hasattr(data, "data_vars"):
        if not hasattr(data, "to_dataset"):
            raise ValueError(f"`data` must be a DataFrame, a Dataset or a DataArray, got {type(data).__name__}.")
        data = data.rename("values") if data.name is None else data
    with replacing(path) as whole:
        _write(data, whole, _kind(path))


def check_out(path: str | os.PathLike) -> None:
    """Say before long work that `write` could not write there.

    Raises:
        ValueError: a suffix that `write` does not know.
        OSError: see `bsatnp.checkpoint.check_writable`.
        ImportError: what writes such files is not installed.
    """
    _need(_kind(path))
    check_writable(path)


def _need(kind: str) -> Any:
    """The library that reads and writes files of a kind."""
    if kind in _GRIDS:
        need("netCDF4", "A netCDF file")
        return need("xarray", "A netCDF file")
    if kind == ".parquet":
        need("pyarrow", "A Parquet file")
    return need("pandas", "A table")


def _write(data: Any, path: Path, kind: str) -> None:
    if kind in _GRIDS:
        _as_grid(data).to_netcdf(path)
        return
    frame = data if is_frame(data) else data.to_dataframe()
    named = any(name is not None for name in frame.index.names)
    if kind == ".parquet":
        frame.to_parquet(path, index=named)
        return
    if kind == ".csv":
        frame.to_csv(path, index=named)
        return
    with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:  # neither name nor date
        frame.to_csv(stream, index=named, mode="wb")


def _as_grid(data: Any) -> Any:
    """A Dataset of what netCDF takes.

    Raises:
        ValueError: columns whose names netCDF cannot tell apart, or are no text; columns that it cannot hold.
    """
    pandas = need("pandas", "A table")
    if is_frame(data):
        if len(twice := data.columns[data.columns.duplicated()]):
            raise ValueError(f"Column {twice[0]!r} must be there once for netCDF, got it several times.")
        index = data.index
        if isinstance(index.dtype, pandas.DatetimeTZDtype):
            index = index.tz_convert("UTC").tz_localize(None)
        columns = {name: _simple(name, data[name]).to_numpy() for name in data.columns}
        grid = pandas.DataFrame(columns, index=index).to_xarray()
        for name, unit in data.attrs.get("units", {}).items():
            if name in grid:
                grid[name].attrs["units"] = unit
    else:
        data = data if hasattr(data, "data_vars") else data.to_dataset()
        stacked = [name for name in data.dims if isinstance(data.indexes.get(name), pandas.MultiIndex)]
        grid = data.reset_index(stacked)
    if strange := [name for name in grid.variables if not isinstance(name, str)]:
        raise ValueError(f"Names of columns must be text for netCDF, got {strange[0]!r}.")
    names = {name: name.replace("/", "_") for name in grid.variables if "/" in name}
    if taken := [name for name in names.values() if name in grid.variables or list(names.values()).count(name) > 1]:
        raise ValueError(f"Columns must differ in more than '/' and '_' for netCDF, got {taken[0]!r} twice.")
    return grid.rename(names)


def _simple(name: Any, series: Any) -> Any:
    """A column of a type that netCDF has: dates in UTC, numbers in float64 where some may be missing, text, or spans.

    Raises:
        ValueError: anything else.
    """
    pandas = need("pandas", "A table")
    types = pandas.api.types
    if isinstance(series.dtype, pandas.DatetimeTZDtype):
        return series.dt.tz_convert("UTC").dt.tz_localize(None)
    if types.is_numeric_dtype(series.dtype) and not types.is_complex_dtype(series.dtype):
        return series.astype(float) if types.is_extension_array_dtype(series.dtype) else series
    objects = series.astype(object)
    for plain in (objects.infer_objects(), in_floats(objects)):
        if isinstance(plain.dtype, np.dtype) and plain.dtype.kind in "biufmM":
            return plain
    kind = types.infer_dtype(objects, skipna=True)
    if kind in ("date", "datetime", "datetime64"):
        return pandas.to_datetime(objects, utc=True).dt.tz_localize(None)
    if kind not in ("string", "bytes", "empty", "timedelta", "timedelta64"):
        raise ValueError(f"Column {name!r} must hold numbers, dates, spans of time or text for netCDF, got {kind}.")
    return objects


def _kind(path: str | os.PathLike) -> str:
    name = os.fspath(path).lower()
    for suffix in (*_TABLES, *_GRIDS):
        if name.endswith(suffix):
            return suffix
    raise ValueError(f"{os.fspath(path)!r} must end in one of {', '.join((*_TABLES, *_GRIDS))}.")
