"""Maps put each value at its place, on whole grids, grids with gaps, and scattered places."""

import csv
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bsatnp import plot
from bsatnp.likelihoods import Gaussian
from bsatnp.plot import places as room
from bsatnp.tasks import Points

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def no_coast(request, monkeypatch):
    """Pictures do not depend on what is installed beside the package, nor on a network."""
    if "without_cartopy" not in request.node.name:
        monkeypatch.setattr(room, "_coast", lambda: None)


def mesh(axis):
    (found,) = [drawn for drawn in axis.collections if type(drawn).__name__ == "QuadMesh"]
    return found


def test_a_grid_in_any_order_is_drawn_as_cells():
    x, y = np.arange(4.0), np.array([10.0, 20.0, 30.0])
    s = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    order = np.random.default_rng(0).permutation(12)
    axis = plot.field({"s": s[order]}, (s @ [1.0, 100.0])[order, None], label="height", unit="m")
    np.testing.assert_array_equal(mesh(axis).get_array().reshape(3, 4), x[None] + 100 * y[:, None])
    assert axis.figure.axes[1].get_ylabel() == "height (m)"


def test_gaps_of_a_grid_stay_empty():
    s = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0)), -1).reshape(-1, 2)[:-2]
    axis = plot.field({"s": s}, np.ones((10, 1)))
    cells = np.ma.filled(mesh(axis).get_array().astype(float), np.nan).reshape(3, 4)
    assert np.isnan(cells[2, 2:]).all() and np.isnan(cells).sum() == 2


def test_two_maps_of_real_stations(air, drawn):
    ctx, tgt, pred, _ = air
    first = tgt.index["t"][:, 0] == tgt.index["t"].min()
    places = Points({"s": tgt.index["s"][first]}, tgt.f[first])
    here = Gaussian(np.asarray(pred.mean)[first], np.asarray(pred.std)[first])
    mean, spread = plot.maps(places, here, ctx=places, out=1, degrees=True, label="PM10", unit="µg/m³")
    np.testing.assert_allclose(mean.collections[0].get_offsets(), tgt.index["s"][first])
    np.testing.assert_allclose(mean.collections[0].get_array(), np.asarray(here.mean)[:, 1])
    np.testing.assert_allclose(spread.collections[0].get_array(), np.asarray(here.std)[:, 1])
    limits = mean.collections[0].get_clim()
    assert limits == mean.collections[2].get_clim(), "observations have the colours of the map"
    both = np.concatenate([np.asarray(here.mean)[:, 1], places.f[:, 1]])
    assert limits == (both.min(), both.max())
    assert mean.get_xlabel() == "longitude (°)"
    np.testing.assert_allclose(mean.get_aspect(), 1 / np.cos(np.deg2rad(40.0)), rtol=0.01)
    bars = [axis.get_ylabel() for axis in mean.figure.axes[2:]]
    assert bars == ["PM10, mean (µg/m³)", "PM10, standard deviation (µg/m³)"]
    assert drawn(mean) > 50


def test_a_real_grid_with_gaps_in_metres(drawn):
    file = SHARED / "points" / "meuse_grid.csv"
    if not file.exists():
        pytest.skip(f"{file} is not there: the grid of the Meuse data is not part of the repository")
    with file.open() as handle:
        rows = list(csv.DictReader(handle))
    s = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    axis = plot.field({"s": s}, s[:, :1], xlabel="easting (m)", ylabel="northing (m)")
    cells = np.ma.filled(mesh(axis).get_array().astype(float), np.nan)
    assert np.isfinite(cells).sum() == len(s) == 3103
    assert axis.get_aspect() == 1 and drawn(axis) > 50


def test_coastlines_where_there_are_any(monkeypatch):
    """A projection and lines stand in for cartopy: they are asked for on the axes that are made."""
    asked = []

    class Coast:
        projection = "polar"

    original = plt.subplots

    def subplots(*args, subplot_kw=None, **options):
        figure, axes = original(*args, **options)
        for axis in np.ravel(axes):
            axis.projection = (subplot_kw or {})["projection"]
            axis.add_geometries = lambda shapes, crs, **style: asked.append((shapes, crs))
            axis.gridlines = lambda **style: None
        return figure, axes

    monkeypatch.setattr(plt, "subplots", subplots)
    monkeypatch.setattr(room, "_coast", lambda: (Coast, ["line"]))
    s = np.array([[0.0, 50.0], [1.0, 51.0], [5.0, 40.0]])
    plot.maps({"s": s}, Gaussian(s[:, :1], s[:, 1:]), degrees=True)
    assert asked == [(["line"], Coast)] * 2


def test_without_cartopy_there_are_no_coastlines(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "cartopy", None)
    room._coast.cache_clear()
    assert room._coast() is None
    room._coast.cache_clear()


def test_what_does_not_fit_is_refused():
    s = np.zeros((3, 2))
    with pytest.raises(ValueError, match="`values` must have axes"):
        plot.field({"s": s}, np.zeros((2, 1)))
    with pytest.raises(ValueError, match="`ax` must hold 2 axes, got 1"):
        plot.maps({"s": s}, Gaussian(s, s + 1), ax=plt.figure().add_subplot())
    with pytest.raises(ValueError, match="`ctx` must have the component 's'"):
        plot.field({"s": s}, s, ctx=Points({"x": s}))
    with pytest.raises(ValueError, match="`tgt` must have at least one place"):
        plot.field({"s": s[:0]}, s[:0])
    with pytest.raises(ValueError, match="`values` must have at least one finite number"):
        plot.field({"s": s}, np.array([[np.nan], [np.inf], [np.nan]]))


def test_one_infinite_value_leaves_the_colours_of_the_others():
    s = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0)), -1).reshape(-1, 2)
    ax = plot.field({"s": s}, np.r_[np.inf, np.arange(11.0)][:, None])
    assert ax.collections[0].get_clim() == (0.0, 10.0)


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_two_values_in_one_cell_are_no_grid(value):
    s = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0)), -1).reshape(-1, 2)
    assert room._cells(np.concatenate([s, s]), np.r_[value, np.ones(23)]) is None


def test_cells_of_large_grids_take_little_memory_and_allow_for_rounding():
    x, y = np.arange(1000.0), np.arange(900.0)
    s = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    noise = np.random.default_rng(0).uniform(0, 1e-4, s.shape)
    tracemalloc.start()
    found = room._cells(s + noise, np.arange(900_000.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None and peak < 300e6
    np.testing.assert_array_equal(found[2], np.arange(900_000.0).reshape(900, 1000))
