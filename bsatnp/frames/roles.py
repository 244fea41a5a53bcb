"""What columns mean: places on the plane or the sphere, times, phases, or points of a group of your own."""

import abc
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np

from bsatnp._types import real
from bsatnp.bias import AbstractBias, Causal, RBFNetwork, Sum
from bsatnp.datasets.scaling import Standard
from bsatnp.frames.table import need
from bsatnp.groups import SO3, Cyclic, Euclidean, On, TimeShift
from bsatnp.tasks.centring import seconds

_DAY = 86400.0

#: A number in the unit of a column, seconds for dates; or a span of time, of pandas too, or text such as "12h".
Span = float | str | timedelta | np.timedelta64


@dataclass(frozen=True)
class AbstractRole(abc.ABC):
    """One component of the index set: the columns it is read from, the group that acts on it, and its default bias."""

    #: Name of the component in `Points.index`, in error messages and in a model of your own.
    component: str
    #: Columns (or coordinates, or levels of the index) that it is read from.
    columns: tuple[str, ...]
    #: Whether the columns may hold dates.
    dates: ClassVar[bool] = False

    def read(self, raw: Mapping[str, np.ndarray]) -> np.ndarray:
        """Coordinates `(row, dim)` in float64, NaN where a row has none. **Units.** Degrees, or those of the data."""
        return np.stack([seconds(raw[name]) for name in self.columns], -1)

    @property
    @abc.abstractmethod
    def group(self) -> Any:
        """The symmetry of the component."""

    def scaler(self, values: np.ndarray) -> Standard:
        """What brings coordinates near 1 without a change of shape: one width for all axes, where they have units."""
        return same_width(values)

    def positions(self, values: np.ndarray) -> np.ndarray:
        """Scaled coordinates as points whose distances are those of the group, in any one unit."""
        return values

    def bias(self, values: np.ndarray, *, heads: int) -> AbstractBias:
        """The default bias, with length scales from the spacing of the scaled `values` to their extent."""
        return RBFNetwork(On(self.component, self.group), heads=heads, lengths=lengths(self.positions(values)))


@dataclass(frozen=True, init=False)
class Plane(AbstractRole):
    """Places on a line, a plane or in space, in projected units such as metres: only distances matter.

    Args:
        columns: one column for each axis, all in the same unit.
    """

    def __init__(self, *columns: str):
        _set(self, "s", columns, 1, 3)

    @property
    def group(self) -> Euclidean:
        """Rotations, reflections and shifts."""
        return Euclidean(len(self.columns))


@dataclass(frozen=True, init=False)
class Sphere(AbstractRole):
    """Places on the globe, in degrees: only great-circle distances matter. Longitudes may run from 0 to 360 or ±180.

    Args:
        longitude: column of the longitude.
        latitude: column of the latitude.
    """

    def __init__(self, longitude: str, latitude: str):
        _set(self, "s", (longitude, latitude), 2, 2)

    def read(self, raw: Mapping[str, np.ndarray]) -> np.ndarray:
        """Longitude from −180 to 180 and latitude.

        Raises:
            ValueError: latitudes beyond ±90, longitudes beyond −180 … 360.
        """
        places = super().read(raw)
        for name, column, low, high in zip(self.columns, places.T, (-180, -90), (360, 90), strict=True):
            wrong = column[(column < low) | (column > high)]
            if len(wrong):
                raise ValueError(f"Column {name!r} must lie between {low} and {high} degrees, got {wrong[0]:g}.")
        return np.stack([(places[:, 0] + 180) % 360 - 180, places[:, 1]], -1)

    @property
    def group(self) -> SO3:
        """Rotations of the sphere."""
        return SO3()

    def scaler(self, values: np.ndarray) -> Standard:
        """Degrees stay degrees."""
        return Standard(np.zeros(2), np.ones(2))

    def positions(self, values: np.ndarray) -> np.ndarray:
        """Points in space, one unit for a degree."""
        lon, lat = np.radians(values).T
        unit = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)
        return np.degrees(unit)


@dataclass(frozen=True, init=False)
class Time(AbstractRole):
    """Times of which only differences matter: dates, or numbers in any unit. Values before and after may help.

    Dates with a time zone are converted to UTC, those without one are read as they stand: training and prediction must
    agree in that.

    Args:
        column: the column.
    """

    dates: ClassVar[bool] = True

    def __init__(self, column: str):
        _set(self, "t", (column,), 1, 1)

    @property
    def group(self) -> Any:
        """Shifts in time."""
        return TimeShift()


@dataclass(frozen=True, init=False)
class Forward(AbstractRole):
    """Time that runs forward: only the past predicts, and the task is to forecast.

    A target never sees a value from after its own time.

    Args:
        column: the column, as for `Time`.
        horizon: how far ahead forecasts go; chosen from the data when None.
        history: how far back a forecast looks; chosen from the data when None. Both are numbers in the unit of the
            column, seconds for dates, or for dates a `timedelta` of Python, NumPy or pandas, or text such as "3D" or
            "12h".
    """

    horizon: float | None
    history: float | None
    dated: bool = False
    dates: ClassVar[bool] = True

    def __init__(self, column: str, *, horizon: Span | None = None, history: Span | None = None):
        _set(self, "t", (column,), 1, 1)
        for name, value in (("horizon", horizon), ("history", history)):
            object.__setattr__(self, name, None if value is None else span(name, value))
        object.__setattr__(self, "dated", _is_span(horizon) or _is_span(history))

    @property
    def group(self) -> Any:
        """Shifts in time."""
        return TimeShift()

    def bias(self, values: np.ndarray, *, heads: int) -> AbstractBias:
        """A bias of the lag, and −inf for what comes later."""
        lag = On(self.component, self.group)
        return Sum(super().bias(values, heads=heads), Causal(lag))


@dataclass(frozen=True, init=False)
class Phase(AbstractRole):
    """A phase that comes back after a period, such as a direction in degrees: only differences matter.

    Args:
        column: a column of numbers, or of dates where the period is in seconds.
        period: after which the phase comes back, in the unit of the column, or for dates a `timedelta` or text such as
            "12h".
        component: its name in the index set; that of the column when None.
        dated: whether the column must hold dates.
    """

    period: float
    dated: bool = False
    dates: ClassVar[bool] = True

    def __init__(self, column: str, period: Span, *, component: str | None = None, dated: bool = False):
        _set(self, column if component is None else component, (column,), 1, 1)
        object.__setattr__(self, "period", span("period", period))
        object.__setattr__(self, "dated", dated or _is_span(period))

    def read(self, raw: Mapping[str, np.ndarray]) -> np.ndarray:
        """The phase from 0 to the period."""
        phase = super().read(raw)
        return np.mod(phase, self.period, out=phase, where=~np.isinf(phase))  # infinite ones are left to be refused

    @property
    def group(self) -> Cyclic:
        """Shifts of the phase, in radians."""
        return Cyclic(2 * np.pi)

    def scaler(self, values: np.ndarray) -> Standard:
        """Phases become radians."""
        return Standard(np.zeros(1), np.full(1, self.period / (2 * np.pi)))

    def positions(self, values: np.ndarray) -> np.ndarray:
        """Points on a circle."""
        return np.concatenate([np.cos(values), np.sin(values)], -1)

    def bias(self, values: np.ndarray, *, heads: int) -> AbstractBias:
        """Length scales from a fortieth of the period to a third of it."""
        return RBFNetwork(On(self.component, self.group), heads=heads, basis=3, lengths=(0.15, 2.0))


def HourOfDay(column: str) -> Phase:
    """The hour of the day of a column of dates, as a phase; hours that are numbers are `Phase(column, 24)`.

    Like hours are alike, but none has a level of its own: where nights are low though the context holds none, give the
    sine and the cosine of the hour as covariates.

    Dates with a time zone are converted to UTC: for hours of a place with summer time take their zone off before, with
    `column.dt.tz_localize(None)`.
    """
    return Phase(column, _DAY, component="hour", dated=True)


def DayOfYear(column: str) -> Phase:
    """The season of a column of dates, as a phase; days that are numbers are `Phase(column, 365.2425)`.

    Like seasons are alike, but none has a level of its own: where winters are high though the context holds none, as in
    forecasts that look back some weeks, give the sine and the cosine of the season as covariates.
    """
    return Phase(column, 365.2425 * _DAY, component="season", dated=True)


@dataclass(frozen=True)
class Component(AbstractRole):
    """Columns that a group of your own acts on.

    Args:
        component: name in the index set.
        columns: columns of numbers, one for each dimension.
        group: any `bsatnp.groups.Group`; its invariants are scaled by one number alone.
    """

    group: Any = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self):
        _set(self, self.component, (self.columns,) if isinstance(self.columns, str) else self.columns, 1, 99)
        On(self.component, self.group)

    def scaler(self, values: np.ndarray) -> Standard:
        """Coordinates are left as they are: the group knows their unit."""
        width = values.shape[-1]
        return Standard(np.zeros(width), np.ones(width))


def span(name: str, value: Span) -> float:
    """A positive span of time as a number; seconds for a `timedelta` and for text.

    Raises:
        ValueError: neither a positive number nor a positive `timedelta`, text that is no span.
    """
    if isinstance(value, str):
        value = _of_text(name, value)
    if isinstance(value, np.timedelta64):
        value = float(value / np.timedelta64(1, "s"))
    elif isinstance(value, timedelta):  # of pandas as well
        value = value.total_seconds()
    return real(name, value)


def _of_text(name: str, text: str) -> timedelta:
    pandas = need("pandas", "A span of time as text")
    try:
        units = re.sub(r"(?<=[\d ])[dhDH](?![a-z])", lambda unit: {"d": "D", "H": "h"}.get(unit[0], unit[0]), text)
        read = pandas.Timedelta(units) if any(map(str.isalpha, text)) else None  # it takes a number for nanoseconds
    except ValueError:
        read = None
    if read is None or pandas.isna(read):
        raise ValueError(f'`{name}` must be a number, or a span of time such as "3D" or "12h", got {text!r}.')
    return read


def _is_span(value: Any) -> bool:
    return isinstance(value, str | timedelta | np.timedelta64)


def same_width(values: np.ndarray) -> Standard:
    """The mean of each column, and one width for all of them."""
    each = Standard.fit(values)
    return Standard(each.mean, np.full(values.shape[-1], np.sqrt(np.mean(each.std**2))))


def lengths(positions: np.ndarray, *, most: int = 400) -> tuple[float, float]:
    """Half the median distance between neighbours, and a quarter of the extent.

    Neighbours closer than a millionth of the extent would be at one place in float32: the first is no shorter.
    """
    distinct = np.unique(positions, axis=0)
    if len(distinct) < 2:
        return 0.1, 2.0
    extent = float(np.linalg.norm(distinct.max(0) - distinct.min(0)))
    some = distinct[np.random.default_rng(0).permutation(len(distinct))[:most]]
    nearest = []
    for point in some:
        away = np.square(distinct - point).sum(-1)
        nearest.append(np.sqrt(away[away > 0].min()))
    shortest = float(np.clip(np.median(nearest) / 2, 1e-6 * extent, extent / 8))
    return shortest, extent / 4


def _set(role: Any, component: str, columns: Any, least: int, most: int) -> None:
    if not isinstance(columns, tuple | list):
        raise ValueError(f"`{type(role).__name__}` takes names of columns, got {columns!r}.")
    columns = tuple(columns)
    if not isinstance(component, str):
        raise ValueError(f"`component` must be a name, got {component!r}.")
    if not least <= len(columns) <= most or not all(isinstance(name, str) for name in columns):
        raise ValueError(f"`{type(role).__name__}` takes names of {least} to {most} columns, got {columns!r}.")
    if len(set(columns)) < len(columns):
        raise ValueError(f"`{type(role).__name__}` takes a column for each axis, got {columns!r}.")
    object.__setattr__(role, "component", component)
    object.__setattr__(role, "columns", columns)
