"""Maps of values at places, on a grid or scattered."""

from typing import Any

import numpy as np

from bsatnp._types import Array, Index
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.plot.canvas import column, component_of, index_of, kept, labelled, several
from bsatnp.plot.earth import in_degrees, map_axes, turned, unbroken
from bsatnp.plot.grids import cells
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

    Places of a grid are drawn as its cells, with gaps left empty, others as dots. With `degrees`, longitudes of regions
    that cross 0° or ±180° run on, and a new figure has coastlines where cartopy is installed and has the data for them.

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
    name, s = _places(tgt, component, degrees=degrees)
    colour = column(kept(tgt, values, "values"), out, len(s), "values")
    dots, known = _observations(ctx, name, out)
    if degrees and dots is not None:
        dots[:, 0] = turned(dots[:, 0], (s[:, 0].min() + s[:, 0].max()) / 2)
    both = colour if known is None or not len(known) else np.concatenate([colour, known])
    finite = both[np.isfinite(both)]
    if not len(finite):
        raise ValueError("`values` must have at least one finite number to draw, got none.")
    low, high = (finite.min(), finite.max()) if limits is None else limits
    ax = map_axes(longitude=s[:, 0] if degrees else None)[0] if ax is None else ax
    where = in_degrees(ax) if degrees else {}
    scale = {"cmap": cmap, "vmin": low, "vmax": high, **where}
    grid = cells(s, colour)
    if grid is None:
        drawn = ax.scatter(s[:, 0], s[:, 1], c=colour, s=_dot_size(len(s)), linewidths=0, **scale)
    else:
        drawn = ax.pcolormesh(*grid, shading="flat", rasterized=True, **scale)
    if dots is not None and known is None:
        ax.scatter(*dots.T, s=9, edgecolors="white", linewidths=0.6, c="black", **where)
    elif dots is not None:
        ax.scatter(*dots.T, s=18, edgecolors="white", linewidths=1.6, c="none", **where)
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
    if ax is None:
        ax = map_axes(2, _places(tgt, component, degrees=degrees)[1][:, 0] if degrees else None)
    axes = several(ax, 2)
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


def _places(tgt: Points | Index, component: str | None, *, degrees: bool) -> tuple[str, np.ndarray]:
    """The component that is drawn and its places, longitudes in one piece."""
    index = index_of(tgt, "tgt")
    name = component_of(index, 2, component)
    s = index[name].astype(float)
    if not len(s):
        raise ValueError("`tgt` must have at least one place, got none.")
    if degrees:
        s[:, 0] = unbroken(s[:, 0])
    return name, s


def _observations(ctx: Points | None, name: str, out: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Places and values of what was observed; no values where there are none, no places where there is no context."""
    if ctx is None:
        return None, None
    s = index_of(ctx, "ctx")
    if name not in s:
        raise ValueError(f"`ctx` must have the component {name!r}, got {sorted(s)}.")
    if ctx.f is None:
        return s[name].astype(float), None
    f, known = (column(kept(ctx, values, "ctx"), out, len(s[name]), "ctx") for values in (ctx.f, ctx.observed))
    return s[name].astype(float)[known > 0], f[known > 0]


def _dot_size(n: int) -> float:
    return float(np.clip(12_000 / n, 4, 60))
