"""What kind of entries each column holds, and whether its meaning takes them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bsatnp.frames.columns import Columns
from bsatnp.frames.roles import AbstractRole, Phase
from bsatnp.frames.table import Table
from bsatnp.likelihoods import CategoricalHead, GaussianHead

#: Kinds of columns that are numbers as they are.
_NUMBERS = ("number", "duration")


def kinds_of(columns: Columns, tables: Sequence[Table]) -> dict[str, str]:
    """The kind of each column over all data sets, "number" where none has an entry.

    Raises:
        ValueError: columns of a kind that their meaning does not take, or that differ between the data sets.
    """
    kinds: dict[str, str] = {}
    for each in tables:
        for name, kind in each.kinds.items():
            if kind != "nothing" and name not in columns.labelled:
                fitting(name, kinds.setdefault(name, kind), kind, each)
    kinds = {name: "number" for each in tables for name in each.kinds} | kinds
    _check_values(columns, kinds, tables)
    for role in columns.roles:
        for name in role.columns:
            _check_coordinate(name, role, kinds[name], tables)
    for name in columns.covariates:
        if kinds[name] not in _NUMBERS:
            what = "dates" if "date" in kinds[name] else _stranger(tables, name)
            hint = "" if "date" in kinds[name] or _some_number(tables, name) else ": name it in `categories`"
            raise ValueError(f"Covariate {name!r} must hold numbers, got {what}{hint}.")
    return kinds


def _check_values(columns: Columns, kinds: dict[str, str], tables: Sequence[Table]) -> None:
    labels_fit = len(columns.values) == 1 and isinstance(columns.head, GaussianHead) and not columns.log
    for name in columns.values:
        if "date" in kinds[name]:
            raise ValueError(f"Column {name!r} must hold numbers or text to be predicted, got dates.")
        if kinds[name] != "text" or isinstance(columns.head, CategoricalHead):
            continue
        if not labels_fit or _some_number(tables, name):
            hint = ": labels need `head=CategoricalHead(2)`" if labels_fit else ""
            raise ValueError(f"Column {name!r} must hold numbers, got {_stranger(tables, name)}{hint}.")


def _check_coordinate(name: str, role: AbstractRole, kind: str, tables: Sequence[Table]) -> None:
    if kind == "text" or ("date" in kind and not role.dates):
        what = "dates" if "date" in kind else _stranger(tables, name)
        raise ValueError(f"Column {name!r} must hold numbers for {type(role).__name__}, got {what}.")
    if getattr(role, "dated", False) and any(each.kinds[name] in _NUMBERS for each in tables):
        hint = "give `horizon` and `history` as numbers in their unit"
        if isinstance(role, Phase):
            hint = f"for numbers use `Phase({name!r}, period)` with the period in their unit, such as 24 for hours or "
            hint += "365.2425 for days"
        raise ValueError(f"Column {name!r} must hold dates, got numbers: {hint}.")
    if role.dates and kind == "number" and (how := _written_dates(tables, name)):
        raise ValueError(
            f"Column {name!r} must hold dates or a time that runs evenly, got {_first(tables, name):.0f}: read it "
            f"with `pandas.to_datetime({how})`."
        )


def fitting(name: str, before: str, now: str, data: Table) -> None:
    """Raise ValueError unless a column has the kind that it had before."""
    unzoned = {before, now} == {"date", "zoned date"} and "_Grid" in type(data.layout).__name__  # xarray has no zones
    if before == now or unzoned or now == "nothing":
        return
    words = {"number": "numbers", "duration": "spans of time", "date": "dates without a time zone"}
    words |= {"zoned date": "dates with a time zone"}
    raise ValueError(
        f"Column {name!r} must hold {words.get(before, 'labels')} as in training, got {words.get(now, 'text')}."
    )


def _first(tables: Sequence[Table], name: str) -> Any:
    return next(one for each in tables for one in each.columns[name].tolist() if one == one)


def _written_dates(tables: Sequence[Table], name: str) -> str:
    """How to read numbers that are all days written as 20240331, or months or weeks of several years as 202403.

    Empty where they are none of these.
    """
    values = np.unique(np.concatenate([each.columns[name] for each in tables]))
    values = values[np.isfinite(values)]
    if len(values) < 2 or (values != np.round(values)).any():
        return ""
    year, last = values // 100, values % 100
    if _between(year // 100, 1800, 2199) and _between(year % 100, 1, 12) and _between(last, 1, 31):
        return 'column.astype(str), format="%Y%m%d"'
    if not _between(year, 1800, 2199) or year[0] == year[-1] or not _between(last, 1, 53):
        return ""
    if _between(last, 1, 12):
        return 'column.astype(str), format="%Y%m"'
    return 'column.astype(str) + "1", format="%G%V%u"'


def _between(values: np.ndarray, low: float, high: float) -> bool:
    return bool(((low <= values) & (values <= high)).all())


def _strangers(tables: Sequence[Table], name: str) -> tuple[list[Any], int]:
    """The entries of a column of text that are no numbers, and how many others there are."""
    entries = [one for each in tables for one in each.columns[name].tolist() if one is not None]
    strange = [one for one in entries if not _is_number(one)]
    return strange, len(entries) - len(strange)


def _is_number(entry: Any) -> bool:
    try:
        return math.isfinite(float(entry))
    except (TypeError, ValueError):
        return False


def _some_number(tables: Sequence[Table], name: str) -> bool:
    return _strangers(tables, name)[1] > 0


def _stranger(tables: Sequence[Table], name: str) -> str:
    """What a column of text holds that is no number, in words."""
    strange, others = _strangers(tables, name)
    if not strange:
        return "numbers written as text"
    among = f" in {len(strange)} of {len(strange) + others} rows" if others else ""
    return f"text such as {strange[0]!r}{among}"
