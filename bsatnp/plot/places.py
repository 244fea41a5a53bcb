"""Maps of values at places, on a grid or scattered."""

import functools
from typing import Any

import numpy as np

from bsatnp._types import Array, Index
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.plot.canvas import column, component_of, index_of, kept, labelled, new_axes, several
from bsatnp.tasks import Points

#: Colour maps that rise evenly in lightness, for values and for their uncertainty.
VALUES, SPREAD = "viridis", "cividis"


def field(
    tgt: Points | Index,
    values: Array,
    *,
    ctx: Points | None = None,
    component: str | None = None,
    out: int = 0,
    degrees: bool = False,
    label: str = "f",
    unit: str = "",
    xlabel: str | None = None,
    ylabel: str | None = None,
    cmap: str = VALUES,
    limits: tuple[float, float] | None = None,
    ax: Any = None,
) -> Any:
    """One map of values at places, such as a mean, a standard deviation or the probability of exceeding a threshold.

    Places of a grid, with or without gaps, are drawn as its cells, others as dots. With `degrees`, a new figure has
    coastlines where cartopy is installed and has the data for them.

    **Units.** `unit` is written beside the colour bar; nothing is converted.

    Args:
        tgt: the places, unbatched.
        values: `(tgt, out)`.
        ctx: places of observations, drawn as dots: in their colours where they have values, else black.
        component: which component holds the places, of width 2; not needed where there is only one.
        out: which output.
        degrees: whether places are (longitude, latitude) in degrees.
        label: name of the values.
        unit: unit of the values.
        xlabel: name of the first coordinate.
        ylabel: name of the second coordinate.
        cmap: a colour map of matplotlib.
        limits: values at the ends of the colour bar; those of the data when None.
        ax: where to draw.

    Raises:
        ValueError: what does not fit.
    """
    index = index_of(tgt, "tgt")
    name = component_of(index, 2, component)
    s = index[name].astype(float)
    colour = column(kept(tgt, values), out, len(s), "values")
    if not len(s):
        raise ValueError("`tgt` must have at least one place, got none.")
    dots, known = _observations(ctx, name, out)
    ax = _map_axes(degrees=degrees) if ax is None else ax
    both = colour if known is None or not len(known) else np.concatenate([colour, known])
    finite = both[np.isfinite(both)]
    if not len(finite):
        raise ValueError("`values` must have at least one finite number to draw, got none.")
    low, high = (finite.min(), finite.max()) if limits is None else limits
    scale = {"cmap": cmap, "vmin": low, "vmax": high}
    cells = _cells(s, colour)
    if cells is None:
        drawn = ax.scatter(s[:, 0], s[:, 1], c=colour, s=_dot_size(len(s)), linewidths=0, **scale)
    else:
        drawn = ax.pcolormesh(*cells, shading="nearest", rasterized=True, **scale)
    if dots is not None and known is None:
        ax.scatter(*dots.T, s=9, edgecolors="white", linewidths=0.6, c="black")
    elif dots is not None:
        ax.scatter(*dots.T, s=18, edgecolors="white", linewidths=1.6, c="none")
        ax.scatter(*dots.T, s=18, edgecolors="black", linewidths=0.7, c=known, **scale)
    ax.figure.colorbar(drawn, ax=ax, label=labelled(label, unit), shrink=0.85)
    names = (
        ("longitude (°)", "latitude (°)") if degrees else (f"{name}, first coordinate", f"{name}, second coordinate")
    )
    ax.set_xlabel(names[0] if xlabel is None else xlabel)
    ax.set_ylabel(names[1] if ylabel is None else ylabel)
    if not hasattr(ax, "projection"):
        middle = np.deg2rad(s[:, 1].mean()) if degrees else 0.0
        ax.set_aspect(1 / max(np.cos(middle), 0.1))
        if ax.get_xscale() == "linear":
            ax.locator_params(axis="x", nbins=4)  # metres have six digits
    return ax


def maps(
    tgt: Points | Index,
    pred: AbstractLikelihood,
    *,
    ctx: Points | None = None,
    component: str | None = None,
    out: int = 0,
    degrees: bool = False,
    label: str = "f",
    unit: str = "",
    xlabel: str | None = None,
    ylabel: str | None = None,
    ax: Any = None,
) -> list[Any]:
    """Two maps side by side: the mean with the observations in their colours, and the standard deviation.

    Labels have neither: draw one class with `field(tgt, pred.probs[:, 0, number])`.

    **Units.** `unit` is written beside the colour bars; nothing is converted.

    Args:
        tgt: the places, unbatched.
        pred: the prediction there.
        ctx: what it was conditioned on.
        component: which component holds the places, of width 2; not needed where there is only one.
        out: which output.
        degrees: whether places are (longitude, latitude) in degrees.
        label: name of the output.
        unit: unit of the output.
        xlabel: name of the first coordinate.
        ylabel: name of the second coordinate.
        ax: two axes to draw on.

    Raises:
        ValueError: what does not fit.
        NotImplementedError: a likelihood of labels.
    """
    axes = _map_axes(2, degrees=degrees) if ax is None else several(ax, 2)
    same: dict[str, Any] = {"component": component, "out": out, "degrees": degrees, "unit": unit, "xlabel": xlabel}
    field(tgt, np.asarray(pred.mean), ctx=ctx, label=f"{label}, mean", ylabel=ylabel, ax=axes[0], **same)
    places = None if ctx is None else Points(ctx.index, mask=ctx.usable)
    field(
        tgt,
        np.asarray(pred.std),
        ctx=places,
        label=f"{label}, standard deviation",
        ylabel=ylabel,
        cmap=SPREAD,
        ax=axes[1],
        **same,
    )
    return axes


def _observations(ctx: Points | None, name: str, out: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Places and values of what was observed; no values where there are none, no places where there is no context."""
    if ctx is None:
        return None, None
    s = index_of(ctx, "ctx")
    if name not in s:
        raise ValueError(f"`ctx` must have the component {name!r}, got {sorted(s)}.")
    if ctx.f is None:
        return s[name].astype(float), None
    f, known = (column(kept(ctx, values), out, len(s[name]), "ctx") for values in (ctx.f, ctx.observed))
    return s[name].astype(float)[known > 0], f[known > 0]


def _cells(s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Coordinates and values of the cells of a grid, NaN in its gaps; None for places that are no grid."""
    x, y = (_levels(s[:, i]) for i in (0, 1))
    if min(len(x), len(y)) < 2 or len(s) < 0.25 * len(x) * len(y):
        return None
    column_, row = (np.searchsorted(axis, s[:, i], side="right") - 1 for i, axis in ((0, x), (1, y)))
    if len(np.unique(row * len(x) + column_)) != len(s):  # two places in one cell
        return None
    cells = np.full((len(y), len(x)), np.nan)
    cells[row, column_] = values
    return x, y, cells


def _levels(x: np.ndarray) -> np.ndarray:
    """The coordinates of a grid's lines: what differs by rounding alone is one line."""
    x = np.unique(x)
    return x[np.append(True, np.diff(x) > 1e-5 * (x[-1] - x[0]))] if len(x) > 1 else x


def _dot_size(n: int) -> float:
    return float(np.clip(12_000 / n, 4, 60))


def _map_axes(columns: int = 1, *, degrees: bool) -> Any:
    """New axes, with coastlines where that can be; one of them, or a list of several."""
    options: dict[str, Any] = {"width": 5.2 * columns, "height": 4.2}
    coast = _coast() if degrees else None
    if coast is not None:
        options["subplot_kw"] = {"projection": coast[0]}
    axes = new_axes(columns, **options)
    if coast is None:
        return axes[0] if columns == 1 else axes
    for axis in axes:
        axis.add_geometries(coast[1], crs=coast[0], facecolor="none", edgecolor="0.2", linewidth=0.6, zorder=2)
        axis.gridlines(draw_labels={"left": "y", "bottom": "x"}, linewidth=0.3, alpha=0.4)
    return axes[0] if columns == 1 else axes


@functools.cache
def _coast() -> tuple[Any, list[Any]] | None:
    """A projection and the coastlines, or None without cartopy or its data; tried once."""
    try:
        import cartopy.crs  # pyright: ignore[reportMissingImports]
        from cartopy.io import shapereader  # pyright: ignore[reportMissingImports]

        shapes = list(shapereader.Reader(shapereader.natural_earth("50m", "physical", "coastline")).geometries())
    except (ImportError, OSError):  # not installed, or without a network to fetch the lines
        return None
    return cartopy.crs.PlateCarree(), shapes
