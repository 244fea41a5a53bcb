"""Bands and forecasts hold the numbers they are given, in order, with their labels."""

import datetime

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bsatnp import plot
from bsatnp.likelihoods import Gaussian, Poisson
from bsatnp.plot.canvas import COLOURS
from bsatnp.tasks import Points

X = np.array([[3.0], [1.0], [2.0], [0.0]])
PRED = Gaussian(np.array([[9.0, 0], [1, 0], [4, 0], [0, 0]]), np.array([[1.0, 1], [2, 1], [3, 1], [4, 1]]))


def line(axis, label):
    (found,) = [drawn for drawn in axis.lines if drawn.get_label() == label]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata(), float)


def test_a_band_is_mean_and_quantiles_in_order_of_place():
    axis = plot.band({"x": X}, PRED, levels=(0.5, 0.95), xlabel="place", xunit="km", ylabel="height", unit="m")
    x, mean = line(axis, "mean")
    np.testing.assert_array_equal(x, [0, 1, 2, 3])
    np.testing.assert_array_equal(mean, [0, 1, 4, 9])
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("place (km)", "height (m)")
    outer = axis.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(outer[:, 1].max(), 9 + 1.959964, rtol=1e-5)
    np.testing.assert_allclose(outer[:, 1].min(), -1.959964 * 4, rtol=1e-5)
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == ["95 % interval", "50 % interval", "mean"]


def test_truth_context_samples_and_padding():
    tgt = Points({"x": X}, np.array([[8.0, 0], [np.nan, 0], [5, 0], [7, 0]]), mask=np.array([True, True, True, False]))
    ctx = Points({"x": X + 0.5}, X @ np.ones((1, 2)), mask=np.array([False, True, True, True]))
    draws = np.stack([np.asarray(PRED.mean), np.asarray(PRED.mean) + 1])
    axis = plot.band(tgt, PRED, ctx=ctx, samples=draws)
    x, truth = line(axis, "truth")
    np.testing.assert_array_equal(x, [1, 2, 3])
    np.testing.assert_array_equal(truth, [np.nan, 5, 8])
    np.testing.assert_array_equal(line(axis, "context")[0], [0.5, 1.5, 2.5])
    np.testing.assert_array_equal(line(axis, "samples")[1], [1, 4, 9])


def test_an_axis_of_the_caller_is_used_and_counts_are_drawn():
    axis = plot.band({"x": X}, PRED)
    again = plot.band({"x": X}, Poisson(np.abs(np.asarray(PRED.mean)) + 1), out=0, ax=axis)
    assert again is axis and len([one for one in axis.lines if one.get_label() == "mean"]) == 2


def test_a_forecast_on_real_data(air, drawn):
    ctx, tgt, pred, data = air
    place = data.location[3][::-1]
    axis = plot.forecast(tgt, pred, ctx=ctx, component="t", at={"s": place}, ylabel="PM2.5", unit="µg/m³")
    here = (tgt.index["s"] == place).all(-1)
    x, mean = line(axis, "mean")
    assert len(x) == here.sum() > 8
    np.testing.assert_allclose(mean, np.asarray(pred.mean)[here, 0])
    low, high = axis.get_xlim()
    times = mdates.date2num(tgt.index["t"][here, 0])
    assert low < times.min() - 1 and times.max() < high < times.max() + 0.2
    seen = axis.get_ylim()
    assert seen[0] < np.nanmin(tgt.f[here, 0]) and seen[1] > np.nanmax(tgt.f[here, 0])
    assert drawn(axis) > 50
    wide = plot.forecast(tgt, pred, ctx=ctx, component="t", at={"s": place}, past=np.timedelta64(40, "h"))
    same = plot.forecast(tgt, pred, ctx=ctx, component="t", at={"s": place}, past=40 * 3600)
    assert same.get_xlim() == wide.get_xlim()
    assert np.ptp(wide.get_xlim()) > 1.6


@pytest.mark.filterwarnings("error::UserWarning")
def test_the_last_of_whole_days_is_not_on_the_edge():
    day = np.arange("2020-01-01", "2020-01-06", dtype="datetime64[D]")[:, None]
    axis = plot.forecast({"t": day[4:]}, Gaussian(X[:1], X[:1]), ctx=Points({"t": day[:4]}, 0 * X))
    low, high = axis.get_xlim()
    last = mdates.date2num(day[4, 0])
    assert low == last - 4 and last + 0.05 < high < last + 0.2
    assert 3 <= len(axis.get_xticks()) <= 7


def test_forecasts_on_axes_that_share_their_height_are_all_in_sight():
    figure, axes = plt.subplots(1, 2, sharey=True)
    for axis, level in zip(axes, (0.0, 50.0), strict=True):
        ctx = Points({"t": X - 4}, X + level)
        plot.forecast({"t": X}, Gaussian(PRED.mean + level, PRED.std), ctx=ctx, ax=axis)
    low, high = axes[0].get_ylim()
    assert low < -1.96 * 4 and 50 + 9 + 1.96 < high < 70
    plt.close(figure)


def test_a_forecast_among_its_context_is_drawn_forwards():
    time = np.arange(20.0)[:, None]
    ctx, tgt = Points({"t": time}, time), {"t": time[5:10]}
    pred = Gaussian(np.zeros((5, 1)), np.ones((5, 1)))
    low, high = plot.forecast(tgt, pred, ctx=ctx).get_xlim()
    assert low < 5 and 9 < high < 12
    one = Gaussian(np.zeros((1, 1)), np.ones((1, 1)))
    low, high = plot.forecast({"t": time[:1]}, one, ctx=ctx.take(np.arange(1))).get_xlim()  # one time alone
    assert low < 0 < high
    with pytest.raises(ValueError, match="`ctx` must have a value before the first target"):
        plot.forecast(tgt, pred, ctx=ctx.take(np.arange(12, 20)))


def test_one_target_has_bars_and_marks(drawn):
    """A band and a line of one place have no width: without bars and marks, the legend lists what is not there."""
    one = Gaussian(np.array([[2.0]]), np.array([[1.0]]))
    draws = np.array([[[1.5]], [[9.0]]])
    axis = plot.band({"x": X[:1]}, one, samples=draws)
    for bar, z in zip(axis.collections, (1.959964, 0.674490), strict=True):
        np.testing.assert_allclose(bar.get_segments()[0], [[3, 2 - z], [3, 2 + z]], rtol=1e-5)
        assert bar.get_linewidth()[0] > 1 and 0 < bar.get_alpha() < 1
    marks = [found for found in axis.lines if "samples" in str(found.get_label())]
    assert [found.get_ydata() for found in marks] == [1.5, 9.0] and all(found.get_marker() == "_" for found in marks)
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [
        *("95 % interval", "50 % interval"),
        *("samples", "mean"),
    ]
    assert drawn(axis) > 50
    axis = plot.forecast({"t": X[:1]}, one, ctx=Points({"t": X[1:]}, 2 + 0 * X[1:]), samples=draws[:1])
    low, high = axis.get_ylim()
    assert low < 2 - 1.95 and high > 2 + 1.95
    twice = plot.band({"x": X[[0, 0]]}, Gaussian(np.array([[2.0], [5.0]]), np.ones((2, 1))), levels=(0.5,))
    assert len(twice.collections[0].get_segments()) == 2


@pytest.mark.parametrize("n", [1, 4])
def test_a_forecast_holds_all_samples(n):
    pred = Gaussian(np.zeros((n, 1)), np.ones((n, 1)))
    draws = np.zeros((3, n, 1))
    draws[0, 0], draws[2, -1] = -30, 40
    axis = plot.forecast({"t": X[:n]}, pred, ctx=Points({"t": X - 4}, 0 * X), samples=draws)
    low, high = axis.get_ylim()
    assert -40 < low < -30 and 40 < high < 50
    assert [text.get_text() for text in axis.get_legend().get_texts()].count("samples") == 1


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
@pytest.mark.parametrize(
    "when",
    [
        "2020-01-02",
        np.datetime64("2020-01-02"),
        datetime.datetime(2020, 1, 2),
        pd.Timestamp("2020-01-02"),
        ["2020-01-02"],
    ],
    ids=lambda when: type(when).__name__,
)
def test_a_date_may_be_written_in_many_ways(unit, when):
    t = np.array(["2020-01-01", "2020-01-02", "2020-01-02", "2020-01-03"], f"datetime64[{unit}]")[:, None]
    axis = plot.band({"x": X, "t": t}, PRED, component="x", at={"t": when})
    np.testing.assert_array_equal(line(axis, "mean"), [[1, 2], [1, 4]])


def test_a_time_of_day_is_no_date():
    t = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")[:, None]
    with pytest.raises(ValueError, match="`at` must leave some target"):
        plot.band({"x": X[:2], "t": t}, PRED, component="x", at={"t": "2020-01-02T12:00"})
    for wrong in (5, "soon", 1.5):
        with pytest.raises(ValueError, match="`at` must give 't' a date, got"):
            plot.band({"x": X[:2], "t": t}, PRED, component="x", at={"t": wrong})


def test_what_does_not_fit_is_refused(air):
    ctx, tgt, pred, _ = air
    with pytest.raises(ValueError, match="`component` must say which"):
        plot.band({"x": X, "y": X}, PRED)
    with pytest.raises(ValueError, match="`component` must name a component of width 1, got 's'"):
        plot.forecast(tgt, pred, ctx=ctx, component="s")
    with pytest.raises(ValueError, match="`at` must leave some target"):
        plot.band(tgt, pred, component="t", at={"s": [0.0, 0.0]})
    with pytest.raises(ValueError, match="`at` must name components"):
        plot.band(tgt, pred, component="t", at={"station": 1})
    for wrong in ([1, 2, 3], 1.0):
        with pytest.raises(ValueError, match="`at` must give 's' a value of width 2, got"):
            plot.band(tgt, pred, component="t", at={"s": wrong})
    five = Points({"x": np.arange(5.0)[:, None]})
    with pytest.raises(ValueError, match=r"`pred` must have axes \(point, out\) with 5 points, got \(4, 2\)"):
        plot.band(five, PRED)
    with pytest.raises(ValueError, match=r"`samples` must have axes \(point, out\) with 4 points, got \(3, 2\)"):
        plot.band(Points({"x": X}), PRED, samples=np.zeros((7, 3, 2)))
    with pytest.raises(ValueError, match="`levels` must lie strictly between 0 and 1, got 95"):
        plot.band({"x": X}, PRED, levels=(95,))
    with pytest.raises(ValueError, match="`out` must be between 0 and 1, got 2"):
        plot.band({"x": X}, PRED, out=2)
    with pytest.raises(ValueError, match="must have axes"):
        plot.band({"x": X[:3]}, PRED)
    with pytest.raises(ValueError, match="`tgt` must be one task"):
        plot.band(Points({"x": X[None]}), PRED)


def test_colours_can_be_told_apart_without_red_and_green():
    """The colours as a reader without M cones sees them (Machado et al. 2009, severity 1) keep their distances."""
    deutan = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]])
    rgb = np.array([[int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)] for code in COLOURS])
    seen = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ deutan.T
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(len(COLOURS))
    assert apart.min() > 0.1
