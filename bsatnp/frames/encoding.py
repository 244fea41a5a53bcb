"""From columns to points near 1, and from predictions back to columns in the units of the data."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bsatnp.datasets.scaling import AbstractScaler, Log, Standard
from bsatnp.frames.columns import Columns
from bsatnp.frames.roles import Phase, Sphere
from bsatnp.frames.table import Table
from bsatnp.likelihoods import (
    AbstractHead,
    AbstractLikelihood,
    Categorical,
    CategoricalHead,
    GaussianHead,
    Scaled,
)
from bsatnp.tasks import Points

#: Kinds of columns that are numbers as they are.
_NUMBERS = ("number", "duration")


@dataclass(frozen=True)
class Meaning:
    """What is known of the columns before anything is scaled: their kinds, labels and units.

    `labels` are the categories of each column of labels, in order; `units` those of all columns that have them.
    """

    columns: Columns
    head: AbstractHead
    kinds: dict[str, str]
    labels: dict[str, tuple[Any, ...]]
    units: dict[str, str]

    @classmethod
    def of(cls, columns: Columns, tables: Sequence[Table]) -> "Meaning":
        """Look at all data sets.

        Raises:
            ValueError: columns of a kind that their meaning does not take, or that differ between the data sets.
        """
        kinds, units = {}, {}
        for each in tables:
            for name, kind in each.kinds.items():
                if kind != "nothing" and name not in columns.categories:
                    fitting(name, kinds.setdefault(name, kind), kind, each)
            for name, unit in each.units.items():
                if units.setdefault(name, unit) != unit and name not in _degrees(columns):
                    raise ValueError(
                        f"Column {name!r} must have one unit in all data, got {units[name]!r} and {unit!r}."
                    )
        kinds = {name: "number" for each in tables for name in each.kinds} | kinds
        named = [name for name in columns.values if kinds[name] == "text"]
        numbered = isinstance(columns.head, CategoricalHead)
        for name in named:
            labels_fit = len(columns.values) == 1 and isinstance(columns.head, GaussianHead) and not columns.log
            if not numbered and (not labels_fit or _some_number(tables, name)):
                hint = ": labels need `head=CategoricalHead(2)`" if labels_fit else ""
                raise ValueError(f"Column {name!r} must hold numbers, got {_stranger(tables, name)}{hint}.")
        for role in columns.roles:
            for name in role.columns:
                if kinds[name] == "text" or ("date" in kinds[name] and not role.dates):
                    what = "dates" if "date" in kinds[name] else _stranger(tables, name)
                    raise ValueError(f"Column {name!r} must hold numbers for {type(role).__name__}, got {what}.")
                if getattr(role, "dated", False) and any(each.kinds[name] in _NUMBERS for each in tables):
                    hint = "give `horizon` and `history` as numbers in their unit"
                    if isinstance(role, Phase):
                        hint = f"for numbers use `Phase({name!r}, period)` with the period in their unit, such as 24 "
                        hint += "for hours or 365.2425 for days"
                    raise ValueError(f"Column {name!r} must hold dates, got numbers: {hint}.")
                if role.dates and kinds[name] == "number" and (how := _written_dates(tables, name)):
                    raise ValueError(
                        f"Column {name!r} must hold dates or a time that runs evenly, got {_first(tables, name):.0f}: "
                        f"read it with `pandas.to_datetime({how})`."
                    )
        for name in columns.values:
            if "date" in kinds[name]:
                raise ValueError(f"Column {name!r} must hold numbers or text to be predicted, got dates.")
        for name in columns.covariates:
            if kinds[name] not in _NUMBERS:
                what = "dates" if "date" in kinds[name] else _stranger(tables, name)
                hint = "" if "date" in kinds[name] or _some_number(tables, name) else ": name it in `categories`"
                raise ValueError(f"Covariate {name!r} must hold numbers, got {what}{hint}.")
        labelled = columns.values[:1] if named or numbered else ()
        labels = {name: _labels(name, tables) for name in (*columns.categories, *labelled)}
        if short := [name for name, found in labels.items() if len(found) < (2 if name in columns.values else 1)]:
            raise ValueError(f"Column {short[0]!r} must hold labels, got {len(labels[short[0]])}.")
        if labelled:
            head: AbstractHead = CategoricalHead(len(labels[labelled[0]]))
        else:
            head = dataclasses.replace(columns.head, out=len(columns.values))
        return cls(columns, head, kinds, labels, units | dict(columns.units))

    def read(self, data: Table) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Coordinates by component, `(row, dim)`, and which rows have all of them.

        Raises:
            ValueError: a column of another kind than when this was made, or a category that was not there.
        """
        for name in self.columns.coordinates:
            if name not in self.labels:
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
        unit, name = next((one for one in ((86400, "days"), (3600, "hours")) if length >= one[0]), (1, "s"))
        return f"{length / unit:.4g} {name}"

    def check_units(self, data: Table) -> None:
        """Compare the units that the data name with those that the training data named, but those of degrees.

        Raises:
            ValueError: they differ.
        """
        for name, unit in data.units.items():
            if name in self.columns.units or name in _degrees(self.columns):
                continue
            if (before := self.units.get(name, unit)) != unit:
                raise ValueError(
                    f"Column {name!r} must be in {before!r} as in training, got {unit!r}: convert it, or correct the "
                    "unit in its `attrs`."
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
        found = tidy(name, column)
        unseen = sorted({label for label in found if label is not None and str(label) not in known}, key=_rank)
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


@dataclass(frozen=True)
class Encoding:
    """Scaling of coordinates and values, fitted on the training part alone."""

    meaning: Meaning
    index: dict[str, Standard]
    f: dict[str, AbstractScaler]

    @classmethod
    def fit(cls, meaning: Meaning, index: Mapping[str, np.ndarray], f: np.ndarray) -> "Encoding":
        """Fit on training rows."""
        columns = meaning.columns
        for role in columns.roles:
            dated = "date" in meaning.kinds[role.columns[0]]
            if isinstance(role, Phase) and dated and not role.dated and not np.ptp(index[role.component]):
                raise ValueError(
                    f"Column {role.columns[0]!r} must have several phases in a period of {role.period:g} s, got one: "
                    "the period of dates is in seconds."
                )
        scalers = {role.component: role.scaler(index[role.component]) for role in columns.roles}
        if "x" in index:
            numbers = Standard.fit(index["x"])
            hot = np.arange(len(numbers.mean)) >= len(columns.covariates)
            scalers["x"] = Standard(np.where(hot, 0.0, numbers.mean), np.where(hot, 1.0, numbers.std))
        values = {}
        if isinstance(meaning.head, GaussianHead):
            for name, column in zip(columns.values, f.T, strict=True):
                seen = column[~np.isnan(column)][:, None]
                if not len(seen):
                    raise ValueError(f"Column {name!r} must hold a value in the training part, got none.")
                values[name] = (Log if name in columns.log else Standard).fit(seen)
        return cls(meaning, scalers, values)

    def points(self, index: Mapping[str, np.ndarray], f: np.ndarray | None = None) -> Points:
        """Points with scaled coordinates and values, in float64 on the host."""
        scaled = {name: self.index[name].transform(values) for name, values in index.items()}
        if f is not None and self.f:
            f = np.concatenate([self.f[name].transform(f[:, i : i + 1]) for i, name in enumerate(self.f)], -1)
        return Points(scaled, f)

    def marginals(self, pred: AbstractLikelihood) -> dict[str, AbstractLikelihood]:
        """The prediction of each value in its own units, with one output each."""
        names = self.meaning.columns.values
        parts = [jax.tree.map(lambda leaf, i=i: leaf[:, i : i + 1], pred) for i in range(len(names))]
        if not self.f:
            return dict(zip(names, parts, strict=True))
        each = zip(names, parts, strict=True)
        return {name: Scaled(GaussianHead(), self.f[name]).inverse(part) for name, part in each}

    def results(self, pred: AbstractLikelihood, quantiles: Iterable[float]) -> dict[str, np.ndarray]:
        """Mean, standard deviation and quantiles of each value, in its units; probabilities of labels."""
        results = {}
        for i, (name, one) in enumerate(self.marginals(pred).items()):
            if isinstance(one, Categorical):
                labels = self.meaning.labels[name]
                results[name] = np.array(labels, object)[np.asarray(one.mode)[:, 0]]
                probs = np.asarray(one.probs, np.float64)[:, 0]
                results |= {f"{name}_is_{label}": probs[:, j] for j, label in enumerate(labels)}
                continue
            results[f"{name}_mean"] = np.asarray(one.mean, np.float64)[:, 0]
            results[f"{name}_std"] = np.asarray(one.std, np.float64)[:, 0]
            for p in quantiles:
                level = np.asarray(pred.quantile(p), np.float64)[:, i : i + 1]
                results[f"{name}_{percent(p)}"] = (self.f[name].inverse(level) if self.f else level)[:, 0]
        return results

    def drawn(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Draws `(sample, point, out)` of each value in its units, or of its labels, `(sample, point)`."""
        found = {}
        for i, name in enumerate(self.meaning.columns.values):
            values = np.asarray(draws[..., i], np.float64)
            if name in self.meaning.labels:
                values = np.array(self.meaning.labels[name], object)[values.astype(int)]
            elif self.f:
                values = self.f[name].inverse(values.reshape(-1, 1)).reshape(values.shape)
            found[name] = values
        return found

    def attrs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Units and a description of each result."""
        found = {}
        for result in names:
            known = self.meaning.columns.values
            name = max((one for one in known if one in self.meaning.labels or result.startswith(f"{one}_")), key=len)
            what = {"mean": "predictive mean", "std": "predictive standard deviation"}.get(result[len(name) + 1 :])
            kind = result[len(name) + 1 :]
            if name in self.meaning.labels:
                found[result] = {"long_name": f"probability of {kind[3:]}" if kind else f"most probable {name}"}
                continue
            what = what or f"predictive quantile {kind[1:]} %"
            found[result] = {"long_name": f"{what} of {name}"}
            if name in self.meaning.units:
                found[result]["units"] = self.meaning.units[name]
        return found


def _labels(name: str, tables: Sequence[Table]) -> tuple[Any, ...]:
    """The labels of a column in order; those that are written alike in several data sets are one.

    Raises:
        ValueError: labels of one data set that are written alike.
    """
    known: dict[str, Any] = {}
    for each in tables:
        found = sorted(set(tidy(name, each.columns[name])) - {None}, key=_rank)
        if len(set(map(str, found))) < len(found):
            raise ValueError(f"Column {name!r} must hold labels that differ in writing, got {found}.")
        for label in found:
            known.setdefault(str(label), label)
    return tuple(sorted(known.values(), key=_rank))


def _degrees(columns: Columns) -> tuple[str, ...]:
    """Columns whose unit is known, however the data call it."""
    return columns.space.columns if isinstance(columns.space, Sphere) else ()


def percent(p: float) -> str:
    """The name of a quantile: q05 for 0.05, q2.5 for 0.025."""
    return f"q{100 * p:02.0f}" if round(100 * p, 6) == round(100 * p) else f"q{100 * p:.6g}"


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


def tidy(name: str, column: np.ndarray) -> list[Any]:
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


def _check_size(what: str, values: np.ndarray) -> None:
    """Raise ValueError for numbers whose squares overflow."""
    if (size := np.abs(values[~np.isnan(values)]).max(initial=0)) > 1e150:
        raise ValueError(f"{what} must be at most 1e150 in size, got {size:.3g}.")


def _short(one: Any) -> str:
    return repr(one) if len(repr(one)) < 80 else f"{repr(one)[:80]}…"


def _rank(label: Any) -> tuple[str, Any]:
    return (type(label).__name__, label)


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
