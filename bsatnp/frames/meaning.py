"""What the columns of a data set mean, before anything is scaled."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bsatnp.frames.columns import Columns
from bsatnp.frames.kinds import fitting, kinds_of
from bsatnp.frames.labels import labels_of, plain_labels, rank
from bsatnp.frames.roles import Sphere
from bsatnp.frames.table import Table
from bsatnp.likelihoods import AbstractHead, CategoricalHead


@dataclass(frozen=True)
class Meaning:
    """What is known of the columns before anything is scaled: their kinds, labels and units.

    `labels` are the categories of each column of labels, in order; `units` those of all columns that have them, and
    `named` those that the training data named.
    """

    columns: Columns
    head: AbstractHead
    kinds: dict[str, str]
    labels: dict[str, tuple[Any, ...]]
    units: dict[str, str]
    named: dict[str, str] | None = None  # in files that are older

    @classmethod
    def of(cls, columns: Columns, tables: Sequence[Table]) -> "Meaning":
        """Look at all data sets.

        Raises:
            ValueError: columns of a kind that their meaning does not take, or that differ between the data sets.
        """
        kinds, units = kinds_of(columns, tables), _units_of(columns, tables)
        first = columns.values[0]
        labelled = kinds[first] == "text" or isinstance(columns.head, CategoricalHead)
        labels = {name: labels_of(name, tables) for name in (*columns.categories, *((first,) if labelled else ()))}
        if short := [name for name, found in labels.items() if len(found) < (2 if name in columns.values else 1)]:
            raise ValueError(f"Column {short[0]!r} must hold labels, got {len(labels[short[0]])}.")
        if labelled:
            head: AbstractHead = CategoricalHead(len(labels[first]))
        else:
            head = dataclasses.replace(columns.head, out=len(columns.values))
        return cls(columns, head, kinds, labels, units | columns.units, units)

    def read(self, data: Table) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Coordinates by component, `(row, dim)`, and which rows have all of them.

        Raises:
            ValueError: a column of another kind than when this was made, or a category that was not there.
        """
        for name in self.columns.coordinates:
            if name not in self.columns.labelled:
                fitting(name, self.kinds[name], data.kinds[name], data)
        index = {role.component: role.read(data.columns) for role in self.columns.roles}
        parts = [data.columns[name].astype(np.float64)[:, None] for name in self.columns.covariates]
        parts += [self._one_hot(name, data.columns[name]) for name in self.columns.categories]
        if parts:
            index["x"] = np.concatenate(parts, -1)
        for name, values in index.items():
            if np.isinf(values).any():
                raise ValueError(f"Component {name!r} must be finite or missing, got an infinite coordinate.")
            _check_size(f"Component {name!r}", values)
        return index, np.logical_and.reduce([~np.isnan(values).any(-1) for values in index.values()])

    def span(self, length: float) -> str:
        """A length of time in words, given in the unit of the time column, seconds for dates."""
        time = self.columns.time
        if time is None or self.kinds[time.columns[0]] == "number":
            return f"{length:.4g}"
        unit, name = next((one for one in ((86400, "day"), (3600, "hour")) if length >= one[0]), (1, "s"))
        told = f"{length / unit:.4g}"
        return f"{told} {name}" if told == "1" or unit == 1 else f"{told} {name}s"

    def check_units(self, data: Table) -> None:
        """Compare the units that the data name with those declared or named by the training data, but those of degrees.

        Raises:
            ValueError: a unit that is neither.
        """
        for name, unit in data.units.items():
            before = [known[name] for known in (self.named or {}, self.units) if name in known]
            if self.named is None and name in self.columns.units:  # an older file does not tell what the data named
                continue
            if before and unit not in before and name not in _degrees(self.columns):
                raise ValueError(
                    f"Column {name!r} must be in {before[0]!r} as in training, got {unit!r}: convert it, or correct "
                    "the unit in its `attrs`."
                )

    def values(self, data: Table) -> np.ndarray:
        """The values, `(row, out)` in float64 and in their units; labels as their number, NaN for what is missing."""
        if self.columns.values[0] in self.labels:
            return self._codes(self.columns.values[0], data.columns[self.columns.values[0]])[:, None]
        for name in self.columns.values:
            fitting(name, self.kinds[name], data.kinds[name], data)
        f = np.stack([data.columns[name] for name in self.columns.values], -1)
        for name, column in zip(self.columns.values, f.T, strict=True):
            if np.isinf(column).any():
                raise ValueError(f"Column {name!r} must hold finite numbers or NaN, got an infinite one.")
            _check_size(f"Column {name!r}", column)
            if name in self.columns.log and (wrong := int((column <= 0).sum())):
                raise ValueError(
                    f"Column {name!r} must be positive to take logarithms, got {wrong} values that are not."
                )
        try:
            self.head.check(f)
        except ValueError as error:
            raise ValueError(f"Columns {list(self.columns.values)} do not suit the likelihood: {error}") from None
        return f

    def _codes(self, name: str, column: np.ndarray) -> np.ndarray:
        known = {str(label): float(code) for code, label in enumerate(self.labels[name])}
        found = plain_labels(name, column)
        unseen = sorted({label for label in found if label is not None and str(label) not in known}, key=rank)
        if unseen:
            count = sum(label in unseen for label in found)
            raise ValueError(
                f"Column {name!r} must hold one of {list(self.labels[name])}, got {unseen} in {count} of "
                f"{len(found)} rows, which training did not have."
            )
        return np.array([np.nan if label is None else known[str(label)] for label in found])

    def _one_hot(self, name: str, column: np.ndarray) -> np.ndarray:
        codes = self._codes(name, column)
        hot = (codes[:, None] == np.arange(len(self.labels[name]))).astype(np.float64)
        return np.where(np.isnan(codes)[:, None], np.nan, hot)


def _units_of(columns: Columns, tables: Sequence[Table]) -> dict[str, str]:
    """The units that the data name; all data sets must name the same, but for degrees."""
    units: dict[str, str] = {}
    for each in tables:
        for name, unit in each.units.items():
            if units.setdefault(name, unit) != unit and name not in _degrees(columns):
                raise ValueError(f"Column {name!r} must have one unit in all data, got {units[name]!r} and {unit!r}.")
    return units


def _degrees(columns: Columns) -> tuple[str, ...]:
    """Columns whose unit is known, however the data call it."""
    return columns.space.columns if isinstance(columns.space, Sphere) else ()


def _check_size(what: str, values: np.ndarray) -> None:
    """Raise ValueError for numbers whose squares overflow."""
    if (size := np.abs(values[~np.isnan(values)]).max(initial=0)) > 1e150:
        raise ValueError(f"{what} must be at most 1e150 in size, got {size:.3g}.")
