"""Places on the Earth: longitudes that run on, and axes with coastlines."""

import functools
from typing import Any

import numpy as np

from bsatnp.plot.canvas import new_axes

#: How many degrees narrower a map must become to be turned: one of most of the globe stays as it is.
_WORTH = 36.0


def unbroken(longitude: np.ndarray) -> np.ndarray:
    """Longitudes that jump, as from 359° to 0° or from 180° to −180°, in one piece; others as they are."""
    known = longitude[np.isfinite(longitude)]
    if not len(known):
        return longitude
    around = np.unique(known % 360)
    gaps = np.diff(around, append=around[0] + 360)
    widest = gaps.argmax()
    if np.ptp(known) < 360 - gaps[widest] + _WORTH:
        return longitude
    middle = around[widest] + gaps[widest] / 2 + 180  # opposite the gap
    return turned(longitude, middle - 360 * np.ceil((middle - 180) / 360))


def turned(longitude: np.ndarray, middle: float) -> np.ndarray:
    """Longitudes on the turn that is nearest to `middle`."""
    return longitude + 360 * np.round((middle - longitude) / 360)


def map_axes(columns: int = 1, longitude: np.ndarray | None = None) -> list[Any]:
    """New axes, with coastlines where there are longitudes and that can be."""
    options: dict[str, Any] = {"width": 5.2 * columns, "height": 4.2}
    if longitude is None or (coast := _coast()) is None:
        return new_axes(columns, **options)
    plate, lines = coast
    middle = 180 if np.abs(longitude).max() > 180 else 0  # the map is cut on the other side of the Earth
    axes = new_axes(columns, **options, subplot_kw={"projection": plate(central_longitude=middle)})
    for axis in axes:
        axis.add_geometries(lines, crs=plate(), facecolor="none", edgecolor="0.2", linewidth=0.6, zorder=2)
        axis.gridlines(draw_labels={"left": "y", "bottom": "x"}, linewidth=0.3, alpha=0.4)
    return axes


def in_degrees(ax: Any) -> dict[str, Any]:
    """What tells cartopy's axes that coordinates are degrees, wherever their map is cut; nothing for other axes."""
    if not hasattr(ax, "projection"):
        return {}
    import cartopy.crs  # pyright: ignore[reportMissingImports]

    return {"transform": cartopy.crs.PlateCarree()}


@functools.cache
def _coast() -> tuple[Any, list[Any]] | None:
    """The class of projection and the coastlines, or None without cartopy or its data; tried once."""
    try:
        import cartopy.crs  # pyright: ignore[reportMissingImports]
        from cartopy.io import shapereader  # pyright: ignore[reportMissingImports]

        shapes = list(shapereader.Reader(shapereader.natural_earth("50m", "physical", "coastline")).geometries())
    except (ImportError, OSError):  # not installed, or without a network to fetch the lines
        return None
    return cartopy.crs.PlateCarree, shapes
