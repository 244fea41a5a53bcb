"""What all pictures share: axes, colours, labels, and the component that is drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bsatnp._types import Index
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.tasks import Points

#: Colours that colour-blind readers can tell apart (Okabe and Ito), black and yellow left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
BLUE, RED, GREY = COLOURS[0], COLOURS[1], "0.35"


def new_axes(columns: int = 1, *, width: float = 6.0, height: float = 3.6, **options: Any) -> list[Any]:
    """The axes of a new figure, in one row.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("`bsatnp.plot` needs matplotlib: pip install 'bsatnp[plot]'.") from error
    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False, **options)
    return list(axes[0])


def tidy(axis: Any) -> Any:
    """Fewer frames, a faint grid."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)
    return axis


def labelled(name: str, unit: str) -> str:
    """A name with its unit, such as "PM2.5 (µg/m³)"."""
    return f"{name} ({unit})" if name and unit else name or unit


def index_of(points: Points | Index, name: str) -> dict[str, np.ndarray]:
    """The components of the rows that are not padding, on the host.

    Raises:
        ValueError: no points, or a batch of tasks.
    """
    if isinstance(points, Points):
        if points.mask.ndim != 1:
            raise ValueError(f"`{name}` must be one task with axes (point,), got a mask of shape {points.mask.shape}.")
        keep = np.asarray(points.mask)
        return {component: np.asarray(value)[keep] for component, value in points.index.items()}
    if not isinstance(points, Mapping):
        raise ValueError(
            f"`{name}` must be Points or a mapping of component names to arrays, got {type(points).__name__}."
        )
    return {component: np.asarray(value) for component, value in points.items()}


def kept(points: Points | Index, values: Any, name: str) -> Any:
    """The rows of an array, or of all arrays of a likelihood, that are not padding of `points`.

    Raises:
        ValueError: another number of rows than points.
    """
    keep = np.asarray(points.mask) if isinstance(points, Points) else None

    def rows(leaf):
        leaf = np.asarray(leaf)
        if keep is None:
            return leaf
        if leaf.shape[:1] != keep.shape:
            raise ValueError(f"`{name}` must have axes (point, out) with {len(keep)} points, got {leaf.shape}.")
        return leaf[keep]

    return jax.tree.map(rows, values)


def component_of(index: Mapping[str, np.ndarray], width: int, component: str | None) -> str:
    """The component to draw: the one that is asked for, or the only one of the right width.

    Raises:
        ValueError: no such component, or several.
    """
    widths = {name: value.shape[-1] for name, value in index.items()}
    if component is not None:
        if widths.get(component) != width:
            raise ValueError(f"`component` must name a component of width {width}, got {component!r} of {widths}.")
        return component
    fitting = [name for name, wide in widths.items() if wide == width]
    if len(fitting) != 1:
        raise ValueError(f"`component` must say which of the components {widths} with width {width} to draw.")
    return fitting[0]


def column(values: Any, out: int, n: int, name: str) -> np.ndarray:
    """Output `out` of values `(point, out)`, as floats `(point,)`.

    Raises:
        ValueError: another number of points, or no such output.
    """
    values = np.asarray(values)
    if values.ndim != 2 or len(values) != n:
        raise ValueError(f"`{name}` must have axes (point, out) with {n} points, got {values.shape}.")
    if not 0 <= out < values.shape[1]:
        raise ValueError(f"`out` must be between 0 and {values.shape[1] - 1}, got {out}.")
    return values[:, out].astype(float)


def interval(pred: AbstractLikelihood, level: float, out: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the central interval of probability `level`."""
    return tuple(column(pred.quantile(p), out, n, "pred") for p in ((1 - level) / 2, (1 + level) / 2))  # pyright: ignore[reportReturnType]


def several(ax: Any, columns: int, **options: Any) -> list[Any]:
    """The axes of the caller as a list, or new ones.

    Raises:
        ValueError: another number of axes.
    """
    if ax is None:
        return new_axes(columns, **options)
    axes = list(np.ravel(ax)) if isinstance(ax, Sequence | np.ndarray) else [ax]
    if len(axes) != columns:
        raise ValueError(f"`ax` must hold {columns} axes, got {len(axes)}.")
    return axes
