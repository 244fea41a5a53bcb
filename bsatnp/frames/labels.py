"""Labels of columns of text, as plain values in order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsatnp.frames.table import Table


def labels_of(name: str, tables: Sequence[Table]) -> tuple[Any, ...]:
    """The labels of a column in order; those that are written alike in several data sets are one.

    Raises:
        ValueError: labels of one data set that are written alike.
    """
    known: dict[str, Any] = {}
    for each in tables:
        found = sorted(set(plain_labels(name, each.columns[name])) - {None}, key=rank)
        if len(set(map(str, found))) < len(found):
            raise ValueError(f"Column {name!r} must hold labels that differ in writing, got {found}.")
        for label in found:
            known.setdefault(str(label), label)
    return tuple(sorted(known.values(), key=rank))


def plain_labels(name: str, column: np.ndarray) -> list[Any]:
    """Labels as plain Python values; whole floats as whole numbers, None for what is missing.

    Raises:
        ValueError: labels that are neither text nor numbers: no file could hold them.
    """
    found = []
    for label in column.tolist():
        label = label.item() if isinstance(label, np.generic) else label
        if not isinstance(label, str | int | float | None):
            raise ValueError(f"Column {name!r} must hold text or numbers as labels, got {_short(label)}.")
        if label is None or (isinstance(label, float) and np.isnan(label)):
            found.append(None)
        else:
            found.append(int(label) if isinstance(label, float) and label.is_integer() else label)
    return found


def rank(label: Any) -> tuple[str, Any]:
    """What labels of several types are sorted by."""
    return (type(label).__name__, label)


def _short(one: Any) -> str:
    return repr(one) if len(repr(one)) < 80 else f"{repr(one)[:80]}…"
