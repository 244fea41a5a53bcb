"""Tables and grids in files, by the suffix of their names."""

import os
import tempfile
from pathlib import Path
from typing import Any

from bsatnp.checkpoint import check_writable
from bsatnp.frames.table import need

_TABLES, _GRIDS = (".csv", ".csv.gz", ".parquet"), (".nc", ".nc4", ".netcdf")


def read(path: str | os.PathLike) -> Any:
    """A CSV or Parquet file as a DataFrame, a netCDF file as a Dataset.

    Raises:
        ValueError: another suffix, or a file that is not what its suffix says.
        OSError: no such file.
        ImportError: what reads such files is not installed.
    """
    kind = _kind(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    try:
        if kind in _GRIDS:
            xarray = need("xarray", "A netCDF file")
            need("netCDF4", "A netCDF file")
            with xarray.open_dataset(path) as data:
                return data.load()
        pandas = need("pandas", "A table")
        if kind == ".parquet":
            need("pyarrow", "A Parquet file")
            return pandas.read_parquet(path)
        return pandas.read_csv(path)
    except ImportError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"{os.fspath(path)!r} cannot be read as {kind[1:]}: {reason}.") from error


def write(data: Any, path: str | os.PathLike) -> None:
    """Write a DataFrame or a Dataset, each to any of the formats. The index goes along where it has a name.

    The file is written beside `path` and renamed: whoever reads it finds the old one or the new one, never a part.

    Raises:
        ValueError: another suffix.
        OSError: the folder is not there or cannot be written.
        ImportError: what writes such files is not installed.
    """
    check_out(path)
    kind, target = _kind(path), Path(os.path.realpath(path))
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as folder:
        whole = Path(folder, Path(path).name)
        _write(data, whole, kind)
        os.replace(whole, target)


def check_out(path: str | os.PathLike) -> None:
    """Say before long work that `write` could not write there.

    Raises:
        ValueError: a suffix that `write` does not know.
        OSError: see `bsatnp.checkpoint.check_writable`.
    """
    _kind(path)
    check_writable(path)


def _write(data: Any, path: Path, kind: str) -> None:
    is_frame = type(data).__module__.startswith("pandas")
    if kind in _GRIDS:
        need("xarray", "A netCDF file")
        need("netCDF4", "A netCDF file")
        grid = data.to_xarray() if is_frame else data
        for name, unit in data.attrs.get("units", {}).items() if is_frame else ():
            grid[name].attrs["units"] = unit
        grid.to_netcdf(path)
        return
    frame = data if is_frame else data.to_dataframe()
    named = any(name is not None for name in frame.index.names)
    if kind == ".parquet":
        need("pyarrow", "A Parquet file")
        frame.to_parquet(path, index=named)
        return
    frame.to_csv(path, index=named)


def _kind(path: str | os.PathLike) -> str:
    name = os.fspath(path).lower()
    for suffix in (*_TABLES, *_GRIDS):
        if name.endswith(suffix):
            return suffix
    raise ValueError(f"{os.fspath(path)!r} must end in one of {', '.join((*_TABLES, *_GRIDS))}.")
