"""Scaling fitted on one part of the data and applied to every part."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class MinMax:
    """Maps each column so that the rows it was fitted on span 0 to 1; other rows may fall outside.

    A column that was constant is moved to 0 and keeps its unit, so that nothing is divided by zero.

    **Shapes.** `low` and `high` are `(dim,)`; `transform` and `inverse` take `(…, dim)`.

    **Units.** `low`, `high` and `width` are in the units of the data; everything is float64 on the host.
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def fit(cls, values: np.ndarray) -> "MinMax":
        """The range of each column of `values`, `(row, dim)`.

        Raises:
            ValueError: no rows, other axes than (row, dim), or values that are not finite.
        """
        rows = np.asarray(values, np.float64)
        if rows.ndim != 2 or not len(rows):
            raise ValueError(f"`values` must have axes (row, dim) and at least one row, got shape {rows.shape}.")
        if not np.isfinite(rows).all():
            raise ValueError(f"`values` must be finite, got {int((~np.isfinite(rows)).sum())} NaN or infinite values.")
        return cls(rows.min(0), rows.max(0))

    @property
    def width(self) -> np.ndarray:
        """Data units per scaled unit, `(dim,)`: what a standard deviation is multiplied by on the way back."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)

    def transform(self, values: np.ndarray) -> np.ndarray:
        """Scaled values, `(…, dim)`."""
        return (self._columns(values) - self.low) / self.width

    def inverse(self, values: np.ndarray) -> np.ndarray:
        """Values in the units of the data, `(…, dim)`."""
        return self._columns(values) * self.width + self.low

    def _columns(self, values: np.ndarray) -> np.ndarray:
        array = np.asarray(values, np.float64)
        if array.ndim < 1 or array.shape[-1] != len(self.low):
            raise ValueError(f"`values` must have {len(self.low)} columns, got shape {array.shape}.")
        return array
