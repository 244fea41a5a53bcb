"""Grids to predict on."""

import math
from typing import Any

import numpy as np

from bsatnp._types import whole
from bsatnp.frames.columns import Columns
from bsatnp.frames.roles import Sphere
from bsatnp.frames.table import is_frame, need, table


def grid(data: Any, columns: Columns, *, cells: int = 100) -> Any:
    """A regular grid over the places of a data set, to predict on.

    Args:
        data: a DataFrame, whose grid is a DataFrame of its cells, or an xarray object, whose grid is a Dataset.
        columns: what the columns mean; the grid has those of `space` alone. Over places on both sides of the date line
            its longitudes go on, as from 178 to 182.
        cells: number of cells along the longer side. Cells are square, in the units of the columns.

    Raises:
        ValueError: no `space`, no places, or fewer than 2 cells.
    """
    if columns.space is None:
        raise ValueError("`columns` must have a `space` to make a grid of, got none.")
    whole("cells", cells, 2)
    names = columns.space.columns
    found = table(data, names)
    if wrong := [name for name in names if found.kinds[name] not in ("number", "nothing")]:
        raise ValueError(f"Column {wrong[0]!r} must hold numbers to make a grid of, got {found.kinds[wrong[0]]}.")
    places = np.stack([found.columns[name] for name in names], -1)
    places = places[~np.isnan(places).any(-1)]
    if np.isinf(places).any():
        raise ValueError(f"`data` must have finite places in {list(names)}, got an infinite one.")
    if not len(places):
        raise ValueError(f"`data` must have places in {list(names)}, got none.")
    if isinstance(columns.space, Sphere):
        places[:, 0] = _unbroken(places[:, 0])
    low, high = places.min(0), places.max(0)
    side = max(float((high - low).max()) / (cells - 1), 1e-12)
    axes = {
        n: a + side * np.arange(math.floor((b - a) / side + 1e-9) + 1) for n, a, b in zip(names, low, high, strict=True)
    }
    if is_frame(data):
        mesh = np.meshgrid(*axes.values(), indexing="ij")
        return need("pandas", "A table").DataFrame(dict(zip(axes, map(np.ravel, mesh), strict=True)))
    return need("xarray", "A grid").Dataset(coords=axes)


def _unbroken(lon: np.ndarray) -> np.ndarray:
    """Longitudes that go on over the cut of the map, where this shortens their range by more than a tenth.

    They then start behind the widest gap, and stay as they are where that range would leave −180 … 360 degrees.
    """
    turned = np.sort(lon % 360)
    start = turned[np.diff(turned, prepend=turned[-1] - 360).argmax()]
    moved = lon % 360 + np.where(lon % 360 < start, 360, 0)
    moved -= 360 if moved.max() > 360 else 0
    return moved if moved.min() >= -180 and np.ptp(moved) < 0.9 * np.ptp(lon) else lon
