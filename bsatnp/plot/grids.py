"""Grids among places: the lines they lie on, and the cells around those."""

import numpy as np


def cells(s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Edges and values of the cells of a grid, NaN in its gaps; None for places that are no grid.

    A grid fills at least a quarter of its cells, and some line of it holds two places.
    """
    x, y = (_levels(s[:, i]) for i in (0, 1))
    if min(len(x), len(y)) < 2 or len(s) < 0.25 * len(x) * len(y) or len(s) <= max(len(x), len(y)):
        return None
    column, row = (np.searchsorted(axis, s[:, i], side="right") - 1 for i, axis in ((0, x), (1, y)))
    if len(np.unique(row * len(x) + column)) != len(s):  # two places in one cell
        return None
    (x, columns), (y, rows) = _edges(x), _edges(y)
    found = np.full((len(y) - 1, len(x) - 1), np.nan)
    found[rows[row], columns[column]] = values
    return x, y, found


def _levels(x: np.ndarray) -> np.ndarray:
    """The coordinates of a grid's lines: what differs by rounding alone is one line."""
    x = np.unique(x)
    return x[np.append(True, np.diff(x) > 1e-5 * (x[-1] - x[0]))] if len(x) > 1 else x


def _edges(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges of cells around the lines of a grid, one of them empty in each gap, and each line's number of cell."""
    steps = np.diff(x)
    gap = _gaps(steps)
    usual, here = np.flatnonzero(~gap), np.arange(len(steps))
    before = usual[np.maximum(np.searchsorted(usual, here, side="right") - 1, 0)]
    after = usual[np.minimum(np.searchsorted(usual, here), len(usual) - 1)]
    right, left = (np.minimum(steps, steps[near]) / 2 for near in (before, after))  # of the lines at a step's two ends
    inner = np.sort(np.concatenate([x[:-1] + right, (x[1:] - left)[gap]]))
    return np.r_[x[0] - right[0], inner, x[-1] + left[-1]], np.arange(len(x)) + np.r_[0, np.cumsum(gap)]


def _gaps(steps: np.ndarray) -> np.ndarray:
    """Which steps are gaps: above 1.4 times what the steps beside them, growing as they do, make one expect."""
    log = np.log(steps)
    if len(log) < 2:
        return np.zeros(len(log), bool)
    growth = np.diff(log)
    first, last = log[1] + (-growth[1:2]).max(initial=0), log[-2] + growth[-2:-1].max(initial=0)
    return log - np.r_[first, (log[:-2] + log[2:]) / 2, last] > np.log(1.4)
