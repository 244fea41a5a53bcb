"""Scaling fitted on one part of the data and applied to every part."""

import abc
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

#: The largest numbers that are scaled: their squares do not overflow.
_LARGEST = 1e150


class AbstractScaler(abc.ABC):
    """Moves and stretches each column by numbers of its own.

    **Shapes.** `origin` and `width` are `(dim,)`; `transform` and `inverse` take `(…, dim)`. What a masked array hides
    becomes NaN, and so does None or the NA of pandas among objects.

    **Units.** `origin` and `width` are in the units of the data; everything is float64 on the host.
    """

    @property
    @abc.abstractmethod
    def origin(self) -> np.ndarray:
        """The value that becomes 0, `(dim,)`."""

    @property
    @abc.abstractmethod
    def width(self) -> np.ndarray:
        """Data units per scaled unit, `(dim,)`: what a standard deviation is multiplied by on the way back."""

    def transform(self, values: np.ndarray) -> np.ndarray:
        """Scaled values, `(…, dim)`."""
        return (_columns(values, len(self.origin)) - self.origin) / self.width

    def inverse(self, values: np.ndarray) -> np.ndarray:
        """Values in the units of the data, `(…, dim)`."""
        return _columns(values, len(self.origin)) * self.width + self.origin


@dataclass(frozen=True, eq=False)
class MinMax(AbstractScaler):
    """Maps each column so that the rows it was fitted on span 0 to 1; other rows may fall outside.

    A column that was constant, rounding aside, is moved to 0 and keeps its unit, so that nothing is divided by zero.

    **Shapes.** `low` and `high` are `(dim,)`.

    **Units.** `low`, `high` and `width` are in the units of the data; everything is float64 on the host.

    Raises:
        ValueError: `low` and `high` of different shapes, not finite, or in the wrong order.
    """

    low: np.ndarray
    high: np.ndarray

    def __post_init__(self):
        low, high = _pair(self, "low", "high")
        if (high < low).any():
            raise ValueError(f"`high` must be no smaller than `low`, got {high} and {low}.")

    @classmethod
    def fit(cls, values: np.ndarray) -> "MinMax":
        """The range of each column of `values`, `(row, dim)`.

        Raises:
            ValueError: no rows, other axes than (row, dim), or values that are not finite.
        """
        rows = _rows(values)
        return cls(rows.min(0), rows.max(0))

    @property
    def width(self) -> np.ndarray:
        """Data units per scaled unit, `(dim,)`: what a standard deviation is multiplied by on the way back."""
        return _safe(self.high - self.low, np.maximum(np.abs(self.low), np.abs(self.high)))

    @property
    def origin(self) -> np.ndarray:
        """The value that becomes 0, `(dim,)`."""
        return np.asarray(self.low, np.float64)


@dataclass(frozen=True, eq=False)
class Standard(AbstractScaler):
    """Maps each column so that the rows it was fitted on have mean 0 and standard deviation 1.

    A column that was constant, rounding aside, is moved to 0 and keeps its unit.

    **Shapes.** `mean` and `std` are `(dim,)`.

    **Units.** `mean`, `std` and `width` are in the units of the data; everything is float64 on the host.

    Raises:
        ValueError: `mean` and `std` of different shapes, not finite, or a negative `std`.
    """

    mean: np.ndarray
    std: np.ndarray

    def __post_init__(self):
        _, std = _pair(self, "mean", "std")
        if (std < 0).any():
            raise ValueError(f"`std` must not be negative, got {std}.")

    @classmethod
    def fit(cls, values: np.ndarray) -> "Standard":
        """Mean and standard deviation of each column of `values`, `(row, dim)`.

        Raises:
            ValueError: no rows, other axes than (row, dim), or values that are not finite.
        """
        rows = _rows(values)
        return cls(rows.mean(0), rows.std(0))

    @property
    def width(self) -> np.ndarray:
        """Data units per scaled unit, `(dim,)`: what a standard deviation is multiplied by on the way back."""
        return _safe(self.std, np.abs(self.mean))

    @property
    def origin(self) -> np.ndarray:
        """The value that becomes 0, `(dim,)`."""
        return np.asarray(self.mean, np.float64)


@dataclass(frozen=True, eq=False)
class Log(AbstractScaler):
    """Takes natural logarithms of positive values, then scales these by `inner`.

    **Units.** `origin` and `width` are those of the logarithms.

    Raises:
        ValueError: from `transform`, values that are not positive.
    """

    inner: AbstractScaler

    #: Says that `inverse` is no straight line: a Gaussian of scaled values becomes a log-normal distribution.
    logarithmic: ClassVar[bool] = True

    @classmethod
    def fit(cls, values: np.ndarray) -> "Log":
        """Mean and standard deviation of the logarithm of each column of `values`, `(row, dim)`.

        Raises:
            ValueError: values that are not positive; see `Standard.fit`.
        """
        return cls(Standard.fit(_log(_rows(values))))

    @property
    def width(self) -> np.ndarray:
        """Logarithms per scaled unit, `(dim,)`."""
        return self.inner.width

    @property
    def origin(self) -> np.ndarray:
        """The logarithm that becomes 0, `(dim,)`."""
        return self.inner.origin

    def transform(self, values: np.ndarray) -> np.ndarray:
        """Scaled logarithms, `(…, dim)`."""
        return self.inner.transform(_log(values))

    def inverse(self, values: np.ndarray) -> np.ndarray:
        """Values in the units of the data, `(…, dim)`: quantiles go to quantiles, means go to medians."""
        return np.exp(self.inner.inverse(values))


def _log(values: np.ndarray) -> np.ndarray:
    values = _plain(values)
    if (bad := int((values <= 0).sum())) > 0:
        raise ValueError(f"`values` must be positive for a logarithm, got {bad} that are not.")
    return np.log(values)


def _safe(width: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Widths, and 1 for those that are nothing but the rounding of numbers of that size."""
    return np.where(width > np.maximum(64 * np.finfo(np.float64).eps * size, np.finfo(np.float64).tiny), width, 1.0)


def _pair(scaler: AbstractScaler, *names: str) -> tuple[np.ndarray, np.ndarray]:
    first, second = (_plain(getattr(scaler, name)) for name in names)
    if first.ndim != 1 or first.shape != second.shape or not np.isfinite([first, second]).all():
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must be finite with axes (dim,), got {first.shape} and {second.shape}."
        )
    for name, column in zip(names, (first, second), strict=True):
        object.__setattr__(scaler, name, column)  # whole numbers of few bits would overflow in differences
    return first, second


def _rows(values: np.ndarray) -> np.ndarray:
    """Values as `(row, dim)` in float64, finite and not hidden by a masked array."""
    whole = _plain(values)
    if whole.ndim != 2 or not len(whole):
        raise ValueError(f"`values` must have axes (row, dim) and at least one row, got shape {whole.shape}.")
    if not np.isfinite(whole).all():
        raise ValueError(
            f"`values` must be finite, got {int((~np.isfinite(whole)).sum())} NaN, infinite or masked values."
        )
    if (most := np.abs(whole).max(initial=0)) > _LARGEST:
        raise ValueError(f"`values` must be at most {_LARGEST:g} in size, got {most:.3g}.")
    return whole


def _columns(values: np.ndarray, n: int) -> np.ndarray:
    array = _plain(values)
    if array.ndim < 1 or array.shape[-1] != n:
        raise ValueError(f"`values` must have {n} columns, got shape {array.shape}.")
    return array


def _plain(values: np.ndarray) -> np.ndarray:
    """Values in float64, NaN where a masked array hides them or an object says that there is none."""
    given = np.ma.asarray(values)
    if given.dtype.kind in "mMcSUTV":
        advice = "; count dates from an origin first" if given.dtype.kind in "mM" else ""
        raise ValueError(f"`values` must be real numbers, got {given.dtype}{advice}.")
    if given.dtype.kind == "O":
        given = np.frompyfunc(_number, 1, 1)(np.where(np.ma.getmaskarray(given), np.nan, given.data))
    return np.ma.asarray(given, np.float64).filled(np.nan)


def _number(one: Any) -> float:
    """An object as a number; NaN for None and for the NA of pandas, which is there only where pandas is."""
    if one is None or one is getattr(sys.modules.get("pandas"), "NA", None):
        return np.nan
    if not isinstance(one, str | bytes | np.datetime64 | np.timedelta64):  # `float` would take them
        with suppress(TypeError, ValueError, OverflowError):
            return float(one)
    raise ValueError(f"`values` must be real numbers, got {one!r}.")
