"""Save and load models and training states."""

import importlib.metadata
import json
import os
import reprlib
from collections.abc import Iterable
from typing import Any, TypeVar

import equinox as eqx

from bsatnp.checkpoint.archive import CheckpointError, read_arrays, read_header, reading, write
from bsatnp.checkpoint.compare import array_nodes, difference
from bsatnp.checkpoint.trees import describe, known_names, rebuild
from bsatnp.checkpoint.writing import check_writable

_Tree = TypeVar("_Tree")


def save(path: str | os.PathLike, model: eqx.Module, *, extra: dict | None = None) -> None:
    """Write a model to one file, whole or not at all.

    The file is written beside `path`, synced and renamed, so that a process killed at any moment leaves the earlier
    file or the new one. Weak types become ordinary ones; everything else comes back bit for bit. `numpy.load` reads
    the arrays by their paths.

    Args:
        path: name of the file; an existing one is replaced.
        model: any Equinox module made of arrays, plain values, modules, dataclasses, named functions, and objects that
            are their attributes alone, such as a group of one's own.
        extra: a JSON object kept in the header, such as the scaling and the units of the data; see `header`.

    Raises:
        CheckpointError: a part of the model that no file can describe, named by its path; `extra` is not JSON.
        OSError: `path` cannot be written, see `check_writable`.
    """
    check_writable(path)
    _save(path, "model", model, extra, opaque=False)


def load(path: str | os.PathLike, *, like: Any = None, classes: Iterable[Any] = ()) -> Any:
    """Read the model of a file, without running anything that the file brings.

    Args:
        path: a file written by `save`.
        like: a model that the file must agree with, in structure, configuration, shapes and types.
        classes: the caller's own classes and functions that the model is made of.

    Raises:
        CheckpointError: the file is truncated, foreign, newer, of another kind, or disagrees with `like` (the first
            difference is named); it needs a class that is not of `bsatnp`, of `equinox.nn`, or among `classes`.
        ValueError: `classes` are not classes and functions.
    """
    return _load(path, "model", like, classes)


def save_state(path: str | os.PathLike, state: Any, *, extra: dict | None = None) -> None:
    """Write a training state: any pytree of modules, optimiser states, arrays, plain values and typed keys.

    Closures and other things that are called, modules of Python and bare objects are left to `like` when the state is
    loaded; so is configuration of other kinds inside modules and dataclasses, such as dates, which must then agree.

    Raises:
        CheckpointError: values of other kinds outside modules and dataclasses; `extra` is not JSON.
        OSError: `path` cannot be written, see `check_writable`.
    """
    check_writable(path)
    _save(path, "state", state, extra, opaque=True)


def check_state(state: Any) -> None:
    """Say before long work that `save_state` would refuse a state.

    Raises:
        CheckpointError: as `save_state`.
    """
    describe(state, opaque=True)


def load_state(path: str | os.PathLike, like: _Tree) -> _Tree:
    """Read a training state into the structure of `like`.

    Arrays come from the file, and so do numbers and strings in plain containers; those inside modules are
    configuration, and must agree.

    Raises:
        CheckpointError: as `load`.
    """
    return _load(path, "state", like, ())


def header(path: str | os.PathLike) -> dict:
    """What a file says of itself, without reading its arrays: `version`, `package`, `kind`, `tree` and `extra`.

    Raises:
        CheckpointError: the file is truncated, foreign or newer.
    """
    with reading(path) as file:
        return read_header(file)


def package_version() -> str:
    """The version of this package; "unknown" where it runs without being installed."""
    try:
        return importlib.metadata.version("bsatnp")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _save(path: str | os.PathLike, kind: str, tree: Any, extra: dict | None, *, opaque: bool) -> None:
    extra = {} if extra is None else extra
    try:
        same = isinstance(extra, dict) and json.loads(json.dumps(extra, allow_nan=False)) == extra
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise CheckpointError(
            f"`extra` must be a JSON object (string keys, lists, finite numbers), got {reprlib.repr(extra)}."
        )
    node, arrays = describe(tree, opaque=opaque)
    write(path, {"package": package_version(), "kind": kind, "tree": node, "extra": extra}, arrays)


def _load(path: str | os.PathLike, kind: str, like: Any, classes: Iterable[Any]) -> Any:
    known = known_names(classes)
    with reading(path) as file:
        head = read_header(file)
        if head["kind"] != kind:
            raise CheckpointError(f"it must hold a {kind}, got a {head['kind']}.")
        if like is not None or kind == "state":
            expected, _ = describe(like, opaque=kind == "state")
            if sentence := difference(head["tree"], expected, fixed=kind == "model"):
                raise CheckpointError(sentence)
        arrays = read_arrays(file, list(array_nodes(head["tree"])))
        return rebuild(head["tree"], arrays, known, like)
