"""How all figures look: colours that everyone can tell apart, axes with units, one place where files are written."""

from pathlib import Path
from typing import Any

import numpy as np

#: Okabe and Ito's colours, which those who see fewer can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

#: Colour maps of values, of standard deviations and of signed errors.
VALUES, SPREAD, SIGNED = "viridis", "magma", "RdBu_r"

#: Susceptible, infected, recovered: they differ in lightness too.
STATES = ("#C9DCEB", "#D55E00", "#123A5E")


def axes(rows: int, columns: int, *, size: float = 2.3) -> tuple[Any, Any]:
    """A figure of square panels and its axes, `(rows, columns)`."""
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(wspace=0.06)  # the numbers of neighbouring axes stay apart
    figure, found = plt.subplots(
        rows, columns, figsize=(size * columns + 0.6, size * rows + 1.0), layout=layout, squeeze=False
    )
    return figure, found


def field(axis: Any, values: np.ndarray, extent: tuple[float, float, float, float], **options: Any) -> Any:
    """Values `(x, y)` on a lattice as a picture; what is NaN stays white.

    Args:
        axis: where.
        values: first axis to the right, second up.
        extent: left, right, bottom, top.
        options: of `imshow`.
    """
    return axis.imshow(np.asarray(values).T, extent=extent, origin="lower", interpolation="nearest", **options)


def scattered(axis: Any, points: np.ndarray, values: np.ndarray, extent: Any, **options: Any) -> Any:
    """Values at points `(point, 2)`."""
    dots = axis.scatter(points[:, 0], points[:, 1], c=values, s=7, linewidths=0, **options)
    axis.set(xlim=extent[:2], ylim=extent[2:], aspect="equal")
    axis.set_facecolor("0.93")
    return dots


def label(found: Any, x: str, y: str) -> None:
    """Names on the outer axes of a grid of panels alone."""
    for (row, column), axis in np.ndenumerate(found):
        axis.tick_params(labelsize=7)
        axis.locator_params(nbins=5)
        axis.xaxis.label.set_size(8)
        axis.yaxis.label.set_size(8)
        last = row == found.shape[0] - 1
        axis.set(xlabel=x if last else "", ylabel=y if column == 0 else axis.get_ylabel())
        if not last:
            axis.tick_params(labelbottom=False)
        if column:
            axis.tick_params(labelleft=False)


def bar(figure: Any, shown: Any, where: Any, text: str, **options: Any) -> None:
    """A colour bar below some panels, with its units."""
    common = {"location": "bottom", "shrink": 0.8, "aspect": 35, "pad": 0.02}
    drawn = figure.colorbar(shown, ax=where, **{**common, **options})
    drawn.set_label(text, fontsize=8)
    drawn.ax.tick_params(labelsize=7)


def side(axis: Any, text: str) -> None:
    """The name of a row, left of its first panel."""
    axis.annotate(
        text, (-0.42, 0.5), xycoords="axes fraction", rotation=90, va="center", ha="center", fontsize=9, weight="bold"
    )


def save(figure: Any, path: Path, origin: str = "") -> Path:
    """Write a figure, with where it comes from in its header, and forget it."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Description": origin})
    plt.close(figure)
    return path
