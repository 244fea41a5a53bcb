"""Columns, their meaning and scaling: hand-made oracles, and what is refused by name."""

import dataclasses
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from bsatnp import frames
from bsatnp.checkpoint.trees import describe, known_names, rebuild
from bsatnp.frames.encoding import Encoding
from bsatnp.frames.fitted import scores
from bsatnp.frames.meaning import Meaning
from bsatnp.frames.results import described, percent, results
from bsatnp.frames.roles import lengths
from bsatnp.frames.table import table
from bsatnp.groups import Translation
from bsatnp.likelihoods import CategoricalHead, Gaussian, NegativeBinomialHead, Poisson, PoissonHead
from tests.frames.conftest import SOIL, soil_data

PLACE = frames.Plane("x", "y")


def of(columns, data):
    return table(data, (*columns.coordinates, *columns.values), whole=columns.values, dates=columns.dates)


def meaning_of(columns, *data):
    return Meaning.of(columns, [of(columns, one) for one in data])


def read(meaning, data) -> tuple[dict[str, np.ndarray], np.ndarray]:
    columns = meaning.columns
    return meaning.read(table(data, columns.coordinates, dates=columns.dates))


def values(meaning, data) -> np.ndarray:
    return meaning.values(table(data, meaning.columns.values))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: frames.Columns("v"), "must name a column, got none"),
        (lambda: frames.Columns([], space=PLACE), "`values` must name at least one column"),
        (lambda: frames.Columns(["x"], space=PLACE), "Column 'x' must be a value or a coordinate, not both"),
        (lambda: frames.Columns("v", covariates="v"), "Column 'v' must be a value or a coordinate"),
        (lambda: frames.Columns(["v", "v"], space=PLACE), "No column may be named twice, got 'v'"),
        (lambda: frames.Columns("v", covariates="a", categories="a"), "No column may be named twice, got 'a'"),
        (lambda: frames.Columns("v", time=frames.Time("a"), others=[frames.Forward("b")]), "No component .* 't'"),
        (lambda: frames.Columns("v", space=frames.Plane("Lon", "Lat")), r"must be `Sphere\(longitude, latitude\)`"),
        (lambda: frames.Columns("v", space=PLACE, log="w"), "`log` must name some of `values`, got 'w'"),
        (lambda: frames.Columns("v", space=PLACE, log="v", head=PoissonHead()), "`log` must be empty for values that"),
        (lambda: frames.Columns("v", space=PLACE, units={"w": "m"}), "`units` must be of some of `values`, got 'w'"),
        (lambda: frames.Columns(["v", "w"], space=PLACE, head=CategoricalHead(2)), "must be one column for a Cat"),
        (lambda: frames.Columns("v", others=[frames.Phase("x", 360)]), "No component may be called 'x'.*`component`"),
        (lambda: frames.Columns("v", others=[frames.Component("x", ("a",), Translation(1))]), "may be called 'x'"),
        (lambda: frames.Plane(), "`Plane` takes names of 1 to 3 columns"),
        (lambda: frames.Phase("a", 0.0), "`period` must be positive, got 0"),
        (lambda: frames.Forward("a", horizon=-1.0), "`horizon` must be positive, got -1"),
        (lambda: frames.Forward("a", history=timedelta(0)), "`history` must be positive, got 0"),
    ],
)
def test_declarations_that_make_no_sense(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_longitudes_of_either_habit_are_the_same_places():
    role = frames.Sphere("lon", "lat")
    a = role.read({"lon": np.array([350.0, 10, 180]), "lat": np.array([1.0, 2, 3])})
    b = role.read({"lon": np.array([-10.0, 10, -180]), "lat": np.array([1.0, 2, 3])})
    np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="Column 'lat' must lie between -90 and 90 degrees, got 91"):
        role.read({"lon": np.array([0.0]), "lat": np.array([91.0])})
    chord = np.linalg.norm(np.diff(role.positions(np.array([[0.0, 0], [1, 0]])), axis=0))
    np.testing.assert_allclose(chord, 1, rtol=1e-4)


def test_dates_become_seconds_and_phases_of_the_day_and_the_year():
    times = pd.date_range("2023-12-30T22:15", periods=400, freq="37h")
    raw = {"t": times.to_numpy().astype("datetime64[us]")}
    since = (times.to_series() - pd.Timestamp(0)).dt.total_seconds()
    np.testing.assert_allclose(frames.Time("t").read(raw)[:, 0], since)
    hour = frames.HourOfDay("t").read(raw)[:, 0] / 3600
    np.testing.assert_allclose(hour, times.hour + times.minute / 60, atol=1e-6)
    turn = frames.DayOfYear("t").read(raw)[:, 0] / (365.2425 * 86400)
    away = np.abs(turn - (times.day_of_year - 1) / 365.25)
    assert np.minimum(away, 1 - away).max() < 0.01


def test_categories_that_are_coordinates_as_well_stay_numbers():
    columns = frames.Columns("v", space=frames.Plane("hour"), categories="hour")
    data = pd.DataFrame({"v": 1.0, "hour": [0.0, 1.0, 2.0]})
    index, _ = read(meaning_of(columns, data), data)
    np.testing.assert_array_equal(index["x"], np.eye(3))
    with pytest.raises(ValueError, match="Column 'hour' must hold numbers as in training, got text"):
        read(meaning_of(columns, data), data.assign(hour="noon"))


@pytest.mark.filterwarnings("error")
def test_infinite_phases_are_refused():
    columns = frames.Columns("v", others=[frames.Phase("wind", 360)])
    data = pd.DataFrame({"v": 1.0, "wind": [350.0, 370.0, np.nan]})
    np.testing.assert_array_equal(read(meaning_of(columns, data), data)[0]["wind"], [[350], [10], [np.nan]])
    with pytest.raises(ValueError, match="Component 'wind' must be finite or missing, got an infinite coordinate"):
        read(meaning_of(columns, data), data.assign(wind=[1.0, 2.0, np.inf]))


def test_phases_of_files_that_did_not_ask_for_dates_still_load():
    node, arrays = describe(frames.HourOfDay("t"), opaque=False)
    assert rebuild(node, arrays, known_names(())) == frames.HourOfDay("t")
    assert node["fields"].pop("dated") is True
    assert rebuild(node, arrays, known_names(())) == frames.Phase("t", 86400.0, component="hour")


def test_length_scales_go_from_the_spacing_to_the_extent():
    line = np.arange(0, 101.0)[:, None]
    np.testing.assert_allclose(lengths(line), (0.5, 25))
    np.testing.assert_allclose(lengths(np.repeat(line, 5, 0)), (0.5, 25))
    assert lengths(np.zeros((4, 2))) == (0.1, 2.0)


def test_scaling_is_by_one_width_in_the_plane_and_forgets_what_it_was_not_fitted_on():
    data = soil_data()
    meaning = meaning_of(SOIL, data)
    index, known = read(meaning, data)
    assert known.sum() == len(data) - 1
    f = values(meaning, data)
    half = {name: values[known][:30] for name, values in index.items()}
    encoding = Encoding.fit(meaning, half, f[known][:30])
    s = half["s"]
    assert len(set(encoding.index["s"].width)) == 1
    np.testing.assert_allclose(encoding.index["s"].width[0] ** 2, (s.var(0)).mean())
    logs = np.log(f[known][:30, 0])
    np.testing.assert_allclose(encoding.f["zinc"].width, np.nanstd(logs))
    np.testing.assert_allclose(encoding.f["acid"].origin, np.nanmean(f[known][:30, 1]))
    x = half["x"]
    np.testing.assert_array_equal(encoding.index["x"].transform(x)[:, 1:], x[:, 1:])  # categories stay 0 and 1
    np.testing.assert_array_equal(x[:, 1:].sum(-1), 1)
    points = encoding.points({n: v[known] for n, v in index.items()}, f[known])
    assert points.n_missing == 3
    np.testing.assert_allclose(np.asarray(points.f)[0, 0], (np.log(f[0, 0]) - np.nanmean(logs)) / np.nanstd(logs))


def read_off(told, pred):
    """All results of all values, and what is said of each."""
    found = {name: values for one in told for name, values in one(pred).items()}
    return found, described(told)


def test_results_are_the_distributions_of_scipy_in_the_units_of_the_data():
    data = soil_data()
    meaning = meaning_of(SOIL, data)
    index, known = read(meaning, data)
    f = values(meaning, data)
    encoding = Encoding.fit(meaning, {n: v[known] for n, v in index.items()}, f[known])
    mean, std = np.array([[0.2, -1.0], [1.5, 0.5]]), np.array([[0.3, 0.9], [1.0, 0.2]])
    told = results(encoding, (0.025, 0.5, 0.95), {"zinc": [0.0, 420.5], "acid": 5.0})
    found, attrs = read_off(told, Gaussian(mean, std))
    logs, acid = np.log(f[known][:, 0]), f[known][:, 1]
    theirs: dict[str, Any] = {
        "zinc": scipy.stats.lognorm(
            std[:, 0] * np.nanstd(logs), scale=np.exp(np.nanmean(logs) + mean[:, 0] * np.nanstd(logs))
        ),
        "acid": scipy.stats.norm(np.nanmean(acid) + mean[:, 1] * np.nanstd(acid), std[:, 1] * np.nanstd(acid)),
    }
    for name, one in theirs.items():
        np.testing.assert_allclose(found[f"{name}_mean"], one.mean(), rtol=1e-5)
        np.testing.assert_allclose(found[f"{name}_std"], one.std(), rtol=1e-5)
        for p, label in ((0.025, "q2.5"), (0.5, "q50"), (0.95, "q95")):
            np.testing.assert_allclose(found[f"{name}_{label}"], one.ppf(p), rtol=1e-5)
        for result in (key for key in found if key.startswith(f"{name}_above_")):
            np.testing.assert_allclose(found[result], one.sf(float(result.split("_")[-1])), rtol=1e-4)
        at = one.ppf(0.3)[:, None]
        density = encoding.marginals(Gaussian(mean, std))[name].log_prob(at)
        np.testing.assert_allclose(density[:, 0], one.logpdf(at[:, 0]), rtol=1e-4, atol=1e-4)
    assert attrs["zinc_std"] == {"long_name": "predictive standard deviation of zinc", "units": "mg/kg"}
    assert attrs["zinc_q2.5"]["long_name"] == "predictive quantile 2.5 % of zinc"
    assert "units" not in attrs["acid_mean"]
    assert attrs["zinc_above_420.5"] == {"long_name": "probability of zinc above 420.5"}
    assert found["zinc_above_0"].min() == 1 and "acid_above_5" in found
    assert percent(0.05) == "q05" and percent(0.999) == "q99.9"


def test_scores_do_not_depend_on_an_offset_of_the_values():
    data, columns = soil_data(), frames.Columns("acid", space=PLACE)
    pred, found = Gaussian(*np.random.default_rng(0).uniform(0.5, 1, (2, 60, 1))), []
    for offset in (0.0, 1e8):
        moved = data.assign(acid=data["acid"] + offset)
        meaning = meaning_of(columns, moved)
        f = values(meaning, moved)
        found.append(scores(Encoding.fit(meaning, read(meaning, moved)[0], f), pred, f)["acid"])
    assert found[0]["rmse"] > 0.1 and found[0]["n"] == 58
    for name, score in found[0].items():
        np.testing.assert_allclose(found[1][name], score, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"soil": ["clay"] * 3 + ["rock"] * 2},
            r"Column 'soil' must hold one of \['clay', 'peat', 'sand'\], got \['rock'\] in 2 of 5",
        ),
        ({"x": ["a"] * 5}, "Column 'x' must hold numbers as in training, got text"),
        ({"elev": np.full(5, np.inf)}, "Component 'x' must be finite or missing"),
        ({"x": pd.date_range("2024", periods=5)}, "Column 'x' must hold numbers as in training, got dates"),
    ],
)
def test_new_data_that_do_not_fit_the_old(change, says):
    meaning = meaning_of(SOIL, soil_data())
    with pytest.raises(ValueError, match=says):
        read(meaning, soil_data().iloc[:5].assign(**change))


def test_labels_are_told_apart_by_how_they_are_written():
    """Files of the same codes hold text where some have a letter, and numbers where none has."""
    columns = frames.Columns("v", space=frames.Plane("a"), categories="soil")
    text = pd.DataFrame({"v": 1.0, "a": [0.0, 1.0, 2.0], "soil": ["1", "2", "3a"]})
    numbers = text[:2].assign(soil=[1.0, 2.0])
    for meaning in (meaning_of(columns, text), Meaning.of(columns, [of(columns, one) for one in (numbers, text)])):
        assert list(map(str, meaning.labels["soil"])) == ["1", "2", "3a"]
        np.testing.assert_array_equal(read(meaning, numbers)[0]["x"], np.eye(3)[:2])
        np.testing.assert_array_equal(read(meaning, text)[0]["x"], np.eye(3))
    labelled = frames.Columns("soil", space=frames.Plane("a"), head=CategoricalHead(2))
    np.testing.assert_array_equal(values(meaning_of(labelled, text), numbers), [[0], [1]])
    with pytest.raises(ValueError, match=r"must hold one of \['1', '2', '3a'\], got \[4\] in 1 of 1 rows"):
        read(meaning_of(columns, text), numbers[:1].assign(soil=4))


def test_degrees_are_degrees_however_they_are_called():
    columns = frames.Columns("v", space=frames.Sphere("lon", "lat"))
    data = pd.DataFrame({"lon": [1.0, 2.0], "lat": 50.0, "v": 1.0})
    named = [data.copy(), data.copy()]
    for one, unit in zip(named, ("degrees_north", "degrees_N"), strict=True):
        one.attrs["units"] = {"lat": unit}
    meaning = Meaning.of(columns, [of(columns, one) for one in named])
    meaning.check_units(of(columns, named[1]))
    named[1].attrs["units"] = {"v": "m"}
    Meaning.of(columns, [of(columns, named[0])]).check_units(of(columns, named[1]))
    named[0].attrs["units"] = {"v": "km"}
    with pytest.raises(ValueError, match="'v' must be in 'm' as in training, got 'km': convert it, or correct"):
        Meaning.of(columns, [of(columns, named[1])]).check_units(of(columns, named[0]))


def test_units_that_are_declared_and_those_that_the_data_name_are_both_known():
    columns = frames.Columns("v", space=frames.Plane("x"), units={"v": "mg"})
    data = [pd.DataFrame({"x": [1.0, 2.0], "v": 1.0}) for _ in range(3)]
    for one, unit in zip(data, ("milligram", "mg", "g"), strict=True):
        one.attrs["units"] = {"v": unit}
    meaning = meaning_of(columns, data[0])
    assert meaning.units == {"v": "mg"}
    for one in data[:2]:
        meaning.check_units(of(columns, one))
    with pytest.raises(ValueError, match="Column 'v' must be in 'milligram' as in training, got 'g'"):
        meaning.check_units(of(columns, data[2]))
    node, arrays = describe(meaning, opaque=False)
    assert rebuild(node, arrays, known_names(())) == meaning
    node["fields"].pop("named")  # as in older files
    rebuild(node, arrays, known_names(())).check_units(of(columns, data[1]))
    dataclasses.replace(meaning, named=None).check_units(of(columns, data[2]))  # an older file does not tell


def test_spans_of_time_are_no_numbers():
    columns = frames.Columns("v", covariates="lead")
    spans = pd.DataFrame({"v": 1.0, "lead": pd.to_timedelta([1, 2], unit="h")})
    index, _ = read(meaning_of(columns, spans), spans)
    np.testing.assert_array_equal(index["x"], [[3600], [7200]])
    with pytest.raises(ValueError, match="'lead' must hold spans of time as in training, got numbers"):
        read(meaning_of(columns, spans), spans.assign(lead=[1.0, 2.0]))


def test_spans_of_any_kind_are_seconds():
    spans: Any = (21600, timedelta(hours=6), np.timedelta64(6, "h"), pd.Timedelta("6h"), "6h", "0.25d")
    for span in spans:
        forward = frames.Forward("t", horizon=span, history=span)
        assert forward.horizon == forward.history == frames.Phase("t", span).period == 21600
    numbers = pd.DataFrame({"v": np.arange(5.0), "t": np.arange(5.0)})
    forward, phase = frames.Forward("t", horizon=timedelta(hours=6)), frames.Phase("t", timedelta(hours=6))
    columns = frames.Columns("v", time=forward), frames.Columns("v", others=[phase])
    for each, hint in zip(columns, ("give `horizon`", "for numbers use"), strict=True):
        with pytest.raises(ValueError, match=f"Column 't' must hold dates, got numbers: {hint}"):
            meaning_of(each, numbers)


def test_phases_of_dates_have_a_period_in_seconds():
    columns = frames.Columns("v", others=[frames.Phase("day", 30)])
    data = pd.DataFrame({"v": np.arange(5.0), "day": pd.date_range("2024", periods=5)})
    meaning = meaning_of(columns, data)
    with pytest.raises(ValueError, match="'day' must have several phases in a period of 30 s, got one"):
        Encoding.fit(meaning, read(meaning, data)[0], values(meaning, data))


def test_time_zones_must_be_there_or_not_as_in_training():
    naive = pd.DataFrame({"t": pd.date_range("2024", periods=5), "v": 1.0})
    zoned = naive.assign(t=naive.t.dt.tz_localize("Asia/Shanghai"))
    columns = frames.Columns("v", time=frames.Time("t"))
    with pytest.raises(
        ValueError, match="must hold dates without a time zone as in training, got dates with a time zone"
    ):
        read(meaning_of(columns, naive), zoned)
    meaning = meaning_of(columns, zoned)
    with pytest.raises(ValueError, match="must hold dates with a time zone as in training, got dates without"):
        read(meaning, naive)
    index, _ = read(meaning, naive.set_index("t").to_xarray())  # xarray has no zones: UTC
    np.testing.assert_allclose(index["t"] - read(meaning, zoned)[0]["t"], 8 * 3600)


@pytest.mark.parametrize(
    ("columns", "change", "says"),
    [
        (SOIL, {"zinc": 0.0}, "Column 'zinc' must be positive to take logarithms, got 60 values that are not"),
        (SOIL, {"acid": np.inf}, "Column 'acid' must hold finite numbers or NaN"),
        (SOIL, {"acid": "low"}, "Column 'acid' must hold numbers, got text such as 'low'"),
        (SOIL, {"elev": "low"}, "Covariate 'elev' must hold numbers, got text such as 'low': name it in `categories`"),
        (
            SOIL,
            {"elev": ["83.0", "-"] * 30},
            "Covariate 'elev' must hold numbers, got text such as '-' in 30 of 60 rows.$",
        ),
        (
            frames.Columns("acid", space=PLACE),
            {"acid": ["n/d", *["5.5"] * 59]},
            r"Column 'acid' must hold numbers, got text such as 'n/d' in 1 of 60 rows: labels need `head=Categ",
        ),
        (
            frames.Columns("acid", space=PLACE),
            {"acid": "5.5"},
            "Column 'acid' must hold numbers, got numbers written as",
        ),
        (frames.Columns("soil", space=PLACE, log="soil"), {}, "Column 'soil' must hold numbers, got text such as"),
        (
            frames.Columns("acid", time=frames.Time("day")),
            {"day": 20240301 + np.arange(60) % 28},
            "Column 'day' must hold dates or a time that runs evenly, got 20240301: read it with `pandas.to_datetime",
        ),
        (
            frames.Columns("acid", time=frames.Time("month")),
            {"month": 202401 + 100 * (np.arange(60) // 12) + np.arange(60) % 12},
            r'got 202401: read it with `pandas.to_datetime\(column.astype\(str\), format="%Y%m"\)`',
        ),
        (
            frames.Columns("acid", time=frames.Forward("week")),
            {"week": [202351, 202352, *range(202401, 202453), *range(202501, 202507)]},
            r'got 202351: read it with `pandas.to_datetime\(column.astype\(str\) \+ "1", format="%G%V%u"\)`',
        ),
        (frames.Columns("zinc", space=PLACE, head=PoissonHead()), {}, "do not suit the likelihood: .* whole numbers"),
        (frames.Columns("zinc", time=frames.Time("soil")), {}, "must hold numbers or dates"),
        (
            frames.Columns("zinc", space=frames.Plane("soil")),
            {},
            "'soil' must hold numbers for Plane, got text such as",
        ),
        (
            frames.Columns("zinc", space=PLACE, categories="x"),
            {"x": "north"},
            "'x' must hold numbers for Plane, got text such as 'north'",
        ),
        (frames.Columns("soil", space=PLACE), {"soil": "clay"}, "Column 'soil' must hold labels, got 1"),
        (
            frames.Columns("acid", others=[frames.HourOfDay("x")]),
            {},
            r"Column 'x' must hold dates, got numbers: for numbers use `Phase\('x', period\)` with",
        ),
        (frames.Columns("acid", others=[frames.DayOfYear("elev")]), {}, "Column 'elev' must hold dates, got numbers"),
    ],
)
def test_training_data_that_do_not_hold_what_is_declared(columns, change, says):
    data = soil_data().assign(**change)
    with pytest.raises(ValueError, match=says):
        meaning = meaning_of(columns, data)
        values(meaning, data)


def test_counts_and_labels():
    data = soil_data().assign(cases=np.arange(60) % 7, deaths=np.arange(60) % 3, lime=np.arange(60) % 2 > 0)
    counts = meaning_of(frames.Columns(["cases", "deaths"], space=PLACE, head=NegativeBinomialHead()), data)
    assert isinstance(counts.head, NegativeBinomialHead) and counts.head.out == 2
    f = values(counts, data)
    encoding = Encoding.fit(counts, read(counts, data)[0], f)
    np.testing.assert_array_equal(encoding.points(read(counts, data)[0], f).f, f)
    found, _ = read_off(results(encoding, (0.5, 0.5), {"deaths": [1.0]}), Poisson(np.array([[2.0, 5.0]])))
    np.testing.assert_allclose([found["cases_mean"][0], found["deaths_std"][0]], [2, 5**0.5], rtol=1e-6)
    assert found["deaths_q50"][0] == scipy.stats.poisson(5).median()
    np.testing.assert_allclose(found["deaths_above_1"], scipy.stats.poisson(5).sf(1), rtol=1e-5)

    soil = meaning_of(frames.Columns("soil", space=PLACE), data)
    assert soil.head == CategoricalHead(3) and soil.labels["soil"] == ("clay", "peat", "sand")
    encoding = Encoding.fit(soil, read(soil, data)[0], values(soil, data))
    pred = soil.head(np.log([[0.2, 0.7, 0.1]]))
    found, attrs = read_off(results(encoding, (0.5,)), pred)
    assert list(found) == ["soil_mode", "soil_is_clay", "soil_is_peat", "soil_is_sand"]
    assert found["soil_mode"][0] == "peat" and attrs["soil_mode"] == {"long_name": "most probable soil"}
    np.testing.assert_allclose(found["soil_is_peat"], 0.7, rtol=1e-6)
    assert attrs["soil_is_peat"] == {"long_name": "probability of peat"}
    lime = meaning_of(frames.Columns("lime", space=PLACE, head=CategoricalHead(2)), data)
    assert lime.labels["lime"] == (0, 1)
