"""The container: a JSON header and named NumPy arrays in an uncompressed zip, written whole and read with suspicion."""

import contextlib
import io
import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping

import jax.numpy as jnp
import numpy as np

from bsatnp.checkpoint.writing import replacing

#: Files written now. Files of every earlier version still load.
FORMAT_VERSION = 1

_MAGIC, _HEADER = "bsatnp", "__header__"
_NATIVE = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 "
    "datetime64[D] datetime64[h] datetime64[m] datetime64[s] datetime64[ms] datetime64[us] datetime64[ns] "
    "timedelta64[s] timedelta64[ms] timedelta64[us] timedelta64[ns]"
)
_EXTENDED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")

#: Every type that an array of a file may have, by name.
DTYPES: dict[str, np.dtype] = {name: np.dtype(name) for name in _NATIVE.split()}
DTYPES |= {name: np.dtype(getattr(jnp, name)) for name in _EXTENDED}


class CheckpointError(ValueError):
    """A file that cannot be read as asked, or a tree that cannot be written."""


def stored_dtype(name: str) -> np.dtype:
    """The type in the file: types that NumPy lacks are kept as unsigned integers of their width."""
    return np.dtype(f"u{DTYPES[name].itemsize}") if name in _EXTENDED else DTYPES[name]


def write(path: str | os.PathLike, head: dict, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file, whole or not at all.

    Raises:
        CheckpointError: a name that an archive cannot hold.
    """
    text = json.dumps({"format": _MAGIC, "version": FORMAT_VERSION} | head, allow_nan=False)
    if _HEADER in arrays or any("\0" in name for name in arrays):
        raise CheckpointError(f"No array may be called {_HEADER!r} or have a null character in its name.")
    if broken := [name for name in arrays if name != name.encode("utf-8", "replace").decode()]:
        raise CheckpointError(f"No array may have half a character in its name, got {broken[0]!r}.")
    if any(len(f"{name}.npy".encode()) > 65535 for name in arrays):
        raise CheckpointError("No array may have a name of more than 65,531 bytes, got one that is longer.")
    members = {_HEADER: np.frombuffer(text.encode("ascii"), np.uint8), **arrays}
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as file:
        for name, array in members.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # its date is fixed: equal trees give equal files
            with file.open(entry, "w", force_zip64=array.nbytes > 2**30) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


@contextlib.contextmanager
def reading(path: str | os.PathLike) -> Iterator[zipfile.ZipFile]:
    """The archive at `path`; whatever goes wrong inside becomes a CheckpointError that names the file."""
    with open(path, "rb") as stream:
        try:
            with zipfile.ZipFile(stream) as file:
                yield file
        except CheckpointError as error:
            raise CheckpointError(f"{os.fspath(path)!r} cannot be loaded: {error}") from error
        except Exception as error:
            raise CheckpointError(f"{os.fspath(path)!r} is damaged or not a file of bsatnp: {error!r}.") from error


def read_header(file: zipfile.ZipFile) -> dict:
    """The header, once the directory of the archive agrees with the size of the file."""
    entries = file.infolist()
    size = os.fstat(file.fp.fileno()).st_size  # pyright: ignore[reportOptionalMemberAccess]
    names = {entry.filename for entry in entries}
    stored = all(e.compress_type == zipfile.ZIP_STORED and e.file_size == e.compress_size for e in entries)
    if f"{_HEADER}.npy" not in names or not stored or len(names) != len(entries):
        raise CheckpointError("it must be an uncompressed archive with a header, as bsatnp writes it.")
    if (claimed := sum(entry.file_size for entry in entries)) > size:
        raise CheckpointError(f"it claims {claimed} bytes, but has {size}.")
    head = json.loads(_read(file, _HEADER, np.dtype(np.uint8), None).tobytes())
    if not isinstance(head, dict) or head.get("format") != _MAGIC or type(head.get("version")) is not int:
        raise CheckpointError("it must have a header of bsatnp, got another one.")
    if head["version"] > FORMAT_VERSION:
        raise CheckpointError(
            f"its format version must be at most {FORMAT_VERSION}, got {head['version']}: install a newer bsatnp."
        )
    return head


def read_arrays(file: zipfile.ZipFile, claims: list[dict]) -> dict[str, np.ndarray]:
    """The arrays that the header claims (`array`, `dtype`, `shape`), in their stored types.

    All claims are held against the directory before any memory is taken.
    """
    names = [claim["array"] for claim in claims]
    members = {entry.filename: entry.file_size for entry in file.infolist()}
    if len(set(names)) != len(names) or {f"{name}.npy" for name in [*names, _HEADER]} != set(members):
        raise CheckpointError("its arrays must be those that its header names, each once.")
    for claim in claims:
        name, shape, dtype = claim["array"], claim["shape"], DTYPES[claim["dtype"]]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise CheckpointError(f"`{name}` must have sizes of at least 0, got {shape}.")
        held = members[f"{name}.npy"]
        if not 0 < held - math.prod(shape) * dtype.itemsize < 65536:  # the rest is the description of the array
            raise CheckpointError(f"`{name}` claims {dtype} {tuple(shape)}, more or less than its {held} bytes.")
    return {c["array"]: _read(file, c["array"], stored_dtype(c["dtype"]), tuple(c["shape"])) for c in claims}


def _read(file: zipfile.ZipFile, name: str, dtype: np.dtype, shape: tuple[int, ...] | None) -> np.ndarray:
    data = file.read(f"{name}.npy")  # no longer than the file, and its checksum holds
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    found, fortran, kind = np.lib.format.read_array_header_1_0(stream)
    count = math.prod(found)
    if version != (1, 0) or fortran or kind != dtype or (shape is not None and found != shape):
        raise CheckpointError(f"`{name}` must be {dtype} {shape}, got {kind} {found}.")
    if len(data) - stream.tell() != count * dtype.itemsize:
        raise CheckpointError(f"`{name}` must hold {count} values, got another number of bytes.")
    return np.frombuffer(data, dtype, count, stream.tell()).reshape(found)
