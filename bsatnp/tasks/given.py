"""What people hand in as arrays, made into plain ones."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def plain(name: str, value: Any) -> tuple[Any, np.ndarray | None]:
    """A device array as it is, anything else as a NumPy array in the byte order and the widths of this machine.

    Returns:
        The array, and where a NumPy masked array hides entries (None where nothing is hidden).

    Raises:
        ValueError: rows of different lengths.
    """
    if isinstance(value, jax.Array):
        return value, None
    hidden = np.ma.getmaskarray(value) if np.ma.isMaskedArray(value) else None
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be an array whose rows have one length, got rows that differ.") from error
    if array.dtype == np.longdouble and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False), hidden


def flags(name: str, value: Any, axes: str, shape: tuple[int, ...]) -> Any:
    """A boolean array of `shape`; what a NumPy masked array hides is False.

    Raises:
        ValueError: another type or shape.
    """
    array, hidden = plain(name, value)
    if array.shape != shape or array.dtype != bool:
        raise ValueError(f"{name} must be boolean with axes {axes} = {shape}, got {array.dtype} {array.shape}.")
    return array if hidden is None else array & ~hidden


def kind(array: Any) -> str:
    """The letter of NumPy for the kind of an array's type, "f" for bfloat16 too, "?" for what NumPy does not have."""
    return "f" if array.dtype == jnp.bfloat16 else getattr(array.dtype, "kind", "?")


def leading_axes(components: Mapping[str, Any]) -> tuple[int, ...]:
    """The axes before `dim` that all components share.

    Raises:
        ValueError: names, types or axes that an index set cannot have.
    """
    for name, value in components.items():
        if not isinstance(name, str):
            raise ValueError(f"Component names must be strings, got {name!r}.")
        if value.ndim < 2:
            hint = f": one coordinate is `{name}[:, None]` of an array" if value.ndim else ""
            raise ValueError(f"Component '{name}' must have axes (point, dim), got shape {value.shape}{hint}.")
        if kind(value) not in "fiubM":
            zoned = kind(value) == "O" and any(getattr(one, "tzinfo", None) for one in value.ravel()[:1])
            got = "dates with a time zone: convert them by `tz_convert(None)` of pandas" if zoned else value.dtype
            raise ValueError(f"Component '{name}' must hold numbers or dates (datetime64, UTC), got {got}.")
    leads = {name: tuple(value.shape[:-1]) for name, value in components.items()}
    first, lead = next(iter(leads.items()))
    for name, other in leads.items():
        if other != lead:
            raise ValueError(f"Components must share the axes before dim: '{first}' has {lead}, '{name}' has {other}.")
    return lead


def check_known(index: Mapping[str, Any], hidden: Mapping[str, Any], mask: Any) -> None:
    """Raise ValueError for coordinates that are missing, NaN or infinite in a row that `mask` keeps."""
    keep = np.asarray(mask)
    for name, value in index.items():
        rows = np.asarray(value)[keep]
        bad = np.isnat(rows) if rows.dtype.kind == "M" else ~np.isfinite(rows.astype(np.float64))
        if hidden[name] is not None:
            bad = bad | hidden[name][keep]
        if bad.any():
            raise ValueError(
                f"Component '{name}' must be finite in every row that is not masked, got {int(bad.sum())} NaN, "
                "infinite or missing coordinates."
            )
