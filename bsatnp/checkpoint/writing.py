"""Files that are replaced whole: written beside their place, synced and renamed."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

_TMP = ".tmp"


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place and its mode at the end, or is removed after an error.

    A reader of `path` sees the old file or the new one, never a part. What a killed process leaves is removed by the
    next one, an hour later.
    """
    target = Path(os.path.realpath(path))
    temporary = _beside(target)
    try:
        temporary.touch(exist_ok=False)
        with contextlib.suppress(OSError):  # whoever may read the old file may read the new one
            temporary.chmod(target.stat().st_mode & 0o777)
        yield temporary
        with open(temporary, "rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a folder that cannot be listed has the file all the same
        _sweep(target)
        if os.name == "posix":  # the rename is on the disk only when its folder is
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def check_writable(path: str | os.PathLike) -> None:
    """Say before long work that its result could not be written.

    Raises:
        OSError: `path` is a folder, a device or a file that is protected, or in a folder that is not there
            or takes no file.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r} must be the name of a file, got a folder.")
    if target.exists() and not target.is_file():
        raise OSError(f"{os.fspath(path)!r} must be the name of a file, got a device or a pipe.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(target.parent)!r} for {os.fspath(path)!r}.")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{os.fspath(path)!r} is there and may not be written.")
    temporary = _beside(target)
    try:
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        raise type(error)(f"{os.fspath(path)!r} cannot be written: {error.strerror}.") from error


def _beside(target: Path) -> Path:
    """A name of its own for what becomes `target`; of a long name only a part, since the file system has a limit."""
    return target.with_name(f".{_short(target)}.{secrets.token_hex(8)}{_TMP}")


def _short(target: Path) -> str:
    return target.name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")


def _sweep(target: Path) -> None:
    """Remove what killed processes left beside `target` more than an hour ago."""
    for leftover in target.parent.iterdir():
        if re.fullmatch(rf"\.{re.escape(_short(target))}\.[0-9a-f]{{16}}{_TMP}", leftover.name):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > 3600:
                    leftover.unlink()
