"""Maps put each value at its place, on whole grids, grids with gaps, and scattered places."""

import csv
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.transforms import Affine2D

from bsatnp import plot
from bsatnp.likelihoods import Gaussian
from bsatnp.plot import earth, grids
from bsatnp.tasks import Points

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def no_coast(request, monkeypatch):
    """Pictures do not depend on what is installed beside the package, nor on a network."""
    if "without_cartopy" not in request.node.name:
        monkeypatch.setattr(earth, "_coast", lambda: None)


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


def columns(axis):
    """Left and right ends of a map's columns of cells that are drawn."""
    found = mesh(axis)
    x = found.get_coordinates()[0, :, 0]
    drawn = np.isfinite(np.ma.filled(found.get_array().astype(float), np.nan)).any(0)
    return np.stack([x[:-1], x[1:]], -1)[drawn]


@pytest.mark.parametrize(
    "x",
    [[0, 1, 2, 7, 8, 9], [0, 1, 2, 4, 5], [0, 1, 2, 4, 6, 7, 8], [0, 2, 3, 4], [0, 1, 2, 9], [0, 1, 5, 12, 13, 20]],
    ids=str,
)
@pytest.mark.parametrize("scale", [0.25, 40.0])
def test_missing_columns_and_rows_of_a_grid_stay_empty(x, scale):
    x = scale * np.array(x, float)
    s = np.stack(np.meshgrid(x, np.arange(3.0)), -1).reshape(-1, 2)
    drawn = columns(plot.field({"s": s}, s[:, :1]))
    np.testing.assert_allclose(drawn, np.stack([x - scale / 2, x + scale / 2], -1))
    turned = grids.cells(s[:, ::-1], s[:, 0])
    assert turned is not None
    rows = np.isfinite(turned[2]).any(1)
    np.testing.assert_allclose(np.stack([turned[1][:-1], turned[1][1:]], -1)[rows], drawn)
    np.testing.assert_array_equal(turned[2][rows], np.broadcast_to(x[:, None], (len(x), 3)))


@pytest.mark.parametrize(
    "x",
    [
        2.0 ** np.arange(6),
        np.logspace(0, 2, 5),
        1.2 ** np.arange(20),
        np.arange(9.0) ** 2,
        np.cumsum(2.0 ** np.abs(np.arange(-4, 5))),
    ],
    ids=["doubling", "decades", "growing", "squares", "both ways"],
)
def test_steps_that_grow_are_no_gaps(x):
    middle = (x[:-1] + x[1:]) / 2
    s = np.stack(np.meshgrid(x, np.arange(3.0)), -1).reshape(-1, 2)
    drawn = columns(plot.field({"s": s}, s[:, :1]))
    np.testing.assert_allclose(drawn[1:, 0], middle)
    np.testing.assert_allclose(drawn[:-1, 1], middle)


def test_few_scattered_places_are_dots():
    for n in (2, 3, 4, 5):
        s = np.stack([np.arange(n) ** 2.0, np.arange(n) ** 3.0], -1)
        (dots,) = plot.field({"s": s}, s[:, :1]).collections
        np.testing.assert_array_equal(dots.get_offsets(), s)
    s = np.stack(np.meshgrid(np.arange(2.0), np.arange(2.0)), -1).reshape(-1, 2)
    np.testing.assert_array_equal(columns(plot.field({"s": s}, s[:, :1])), [[-0.5, 0.5], [0.5, 1.5]])


@pytest.mark.parametrize(
    ("targets", "context", "x", "dots"),
    [
        ([*range(5), *range(354, 360)], [-1.5, 357.5, 1, 361], range(-6, 5), [-1.5, -2.5, 1, 1]),
        ([*range(174, 180), *range(-180, -175)], [179.5, -179.5, -170], range(174, 185), [179.5, 180.5, 190]),
        ([*range(356, 360)], [-1.5, 1], range(356, 360), [358.5, 361]),
        ([*range(-10, 5)], [357.5, 3], range(-10, 5), [-2.5, 3]),
        ([*range(-180, 181, 10)], [-180, 180, 350], range(-180, 181, 10), [-180, 180, -10]),
        ([*range(0, 360, 10)], [-1.5, 355, 359], range(0, 360, 10), [-1.5, 355, -1]),
        ([*range(-180, -40, 10), *range(-20, 180, 10)], [175], [*range(-180, -40, 10), *range(-20, 180, 10)], [175]),
    ],
    ids=["crosses 0", "crosses 180", "beside 0", "usual", "globe, closed", "globe to 360", "globe with a gap"],
)
def test_longitudes_that_jump_run_on_with_their_context(targets, context, x, dots):
    s = np.stack(np.meshgrid(np.array(targets, float), np.arange(3.0)), -1).reshape(-1, 2)
    kept = s.copy()
    c = np.stack([np.array(context, float), np.zeros(len(context))], -1)
    ctx = Points({"s": c}, np.ones((len(c), 1)))
    for axis in plot.maps({"s": s}, Gaussian(s[:, :1] % 360, np.ones((len(s), 1))), ctx=ctx, degrees=True):
        np.testing.assert_allclose(columns(axis).mean(-1), list(x))
        np.testing.assert_allclose(axis.collections[1].get_offsets()[:, 0], dots)
        low, high = axis.get_xlim()
        assert high - low < max(np.ptp([*x, *dots]) + 11, 13)
    np.testing.assert_array_equal(s, kept)
    alone = plot.field({"s": s[:1]}, np.ones((1, 1)), ctx=ctx, degrees=True)
    np.testing.assert_array_equal(alone.collections[0].get_offsets(), s[:1], "one place has nowhere to turn")


def test_a_missing_longitude_leaves_the_others():
    found = earth.unbroken(np.array([359.0, np.nan, 0.0, 1.0]))
    np.testing.assert_array_equal(found, [-1, np.nan, 0, 1])
    assert np.isnan(earth.unbroken(np.array([np.nan]))).all()


def test_other_coordinates_are_never_turned():
    s = np.stack(np.meshgrid([0.0, 1.0, 2.0, 357.0, 358.0, 359.0], np.arange(3.0)), -1).reshape(-1, 2)
    assert columns(plot.field({"s": s}, s[:, :1])).max() == 359.5


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


class Plate:
    """Stands in for cartopy's projection: its maps are cut opposite `central_longitude`, its degrees are not moved."""

    def __init__(self, central_longitude=0):
        self.middle = central_longitude

    def _as_mpl_transform(self, axes):
        return Affine2D().translate(-axes.projection.middle, 0) + axes.transData


@pytest.mark.parametrize("longitude", [[0.0, 1.0, 5.0], [179.0, -179.0, 175.0], [200.0, 201.0, 205.0]])
def test_coastlines_where_there_are_any(monkeypatch, longitude):
    """A projection and lines stand in for cartopy: they are asked for on the axes that are made."""
    asked = []
    original = plt.subplots

    def subplots(*args, subplot_kw=None, **options):
        figure, axes = original(*args, **options)
        for axis in np.ravel(axes):
            axis.projection = (subplot_kw or {})["projection"]
            axis.add_geometries = lambda shapes, crs, **style: asked.append((shapes, type(crs), crs.middle))
            axis.gridlines = lambda **style: None
        return figure, axes

    monkeypatch.setattr(plt, "subplots", subplots)
    monkeypatch.setattr(earth, "_coast", lambda: (Plate, ["line"]))
    monkeypatch.setitem(sys.modules, "cartopy", SimpleNamespace(crs=SimpleNamespace(PlateCarree=Plate)))
    monkeypatch.setitem(sys.modules, "cartopy.crs", SimpleNamespace(PlateCarree=Plate))
    s = np.array([longitude, [50.0, 51.0, 40.0]]).T
    ctx = Points({"s": s}, s[:, :1])
    axes = plot.maps({"s": s}, Gaussian(s[:, :1], s[:, 1:]), ctx=ctx, degrees=True)
    assert asked == [(["line"], Plate, 0)] * 2
    for axis in axes:
        assert axis.projection.middle == (0 if longitude[0] == 0 else 180)
        low, high = axis.get_xlim()
        assert high - low < 10 and -180 < low < high < 180, "the axes hold all places, and lie within the map"


def test_without_cartopy_there_are_no_coastlines(monkeypatch):
    monkeypatch.setitem(sys.modules, "cartopy", None)
    earth._coast.cache_clear()
    assert earth._coast() is None
    earth._coast.cache_clear()


def test_what_does_not_fit_is_refused():
    s = np.zeros((3, 2))
    with pytest.raises(ValueError, match="`values` must have axes"):
        plot.field({"s": s}, np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"`values` must have axes \(point, out\) with 3 points, got \(2, 1\)"):
        plot.field(Points({"s": s}), np.zeros((2, 1)))
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
    assert grids.cells(np.concatenate([s, s]), np.r_[value, np.ones(23)]) is None


def test_cells_of_large_grids_take_little_memory_and_allow_for_rounding():
    x, y = np.arange(1000.0), np.arange(900.0)
    s = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    noise = np.random.default_rng(0).uniform(0, 1e-4, s.shape)
    tracemalloc.start()
    found = grids.cells(s + noise, np.arange(900_000.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None and peak < 300e6
    np.testing.assert_array_equal(found[2], np.arange(900_000.0).reshape(900, 1000))
