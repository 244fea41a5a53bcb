"""What people hand in: columns without entries, objects, labels of any type, taken names, options of no sense."""

from decimal import Decimal
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import xarray as xr

from bsatnp import frames
from bsatnp._types import real
from bsatnp.frames.fitting import _read
from bsatnp.frames.roles import lengths
from bsatnp.frames.table import table
from bsatnp.groups import Euclidean
from bsatnp.likelihoods import CategoricalHead, GaussianHead
from tests.frames.conftest import RIVER, SOIL, TINY_FIT, river_data, soil_data, untrained

PLACE = frames.Plane("x", "y")
ACID = frames.Columns("acid", space=PLACE)


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """The package's own checks alone."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


@pytest.fixture(scope="module")
def soil():
    return untrained(soil_data(), SOIL)


@pytest.mark.parametrize("blank", [np.nan, None, pd.NaT, pd.NA])
@pytest.mark.parametrize("name", ["x", "elev", "soil"])
def test_c1_a_column_without_entries_has_no_type_and_gives_no_prediction(soil, name, blank):
    data = soil_data()[:3].assign(**{name: pd.Series([blank] * 3, soil_data().index[:3], dtype=object)})
    assert soil.predict(data)["zinc_mean"].isna().all()
    assert len(soil.predict(data[:0])) == 0


def test_c1_a_value_that_one_data_set_lacks_is_learned_from_the_other():
    _, _, f, report = _read([soil_data(), soil_data().assign(acid=None)], ACID)
    assert (report.rows, report.used, len(f)) == (120, 58, 58)


def test_objects_and_categories_that_are_numbers_or_dates_are_read_as_such():
    data = pd.DataFrame(
        {
            "plain": pd.Series([1, 2.5, None], dtype=object), "money": [Decimal(1), Decimal("2.5"), None],
            "levels": pd.Categorical([1.0, 2.5, None]), "flags": pd.Series([True, False, None], dtype=object),
            "stamps": pd.Series([pd.Timestamp("2024-01-01"), None, pd.NaT], dtype=object),
        }
    )  # fmt: skip
    found = table(data, list(data))
    assert found.kinds == dict.fromkeys(["plain", "money", "levels", "flags"], "number") | {"stamps": "date"}
    for name in ("plain", "money", "levels"):
        np.testing.assert_array_equal(found.columns[name], [1, 2.5, np.nan])
    np.testing.assert_array_equal(found.columns["flags"], [1, 0, np.nan])


def test_subclasses_of_a_frame_are_frames():
    class Named(pd.DataFrame):
        pass

    np.testing.assert_array_equal(table(Named(soil_data()), ["x"]).columns["x"], soil_data()["x"])


def test_arrays_without_a_name_and_coordinates_alone():
    array = xr.DataArray(np.ones((2, 3)), {"y": [0.0, 1], "x": [0.0, 1, 2]}, ("y", "x"))
    np.testing.assert_array_equal(table(array, ["x", "y", "acid"], whole=["acid"]).columns["acid"], np.ones(6))
    assert len(table(array, ["x", "y"])) == 6 and len(table(array["x"], ["x"])) == 3
    with pytest.raises(ValueError, match=r"`data` must have a name where several columns are asked for"):
        table(array, ["x", "acid", "zinc"], whole=["acid", "zinc"])


@pytest.mark.parametrize("labels", [[[1], [2]], [(1, "a"), (1, 2)], [1j, 2j], [b"a", b"b"], pd.interval_range(0, 2)])
def test_b8_labels_that_no_file_could_hold_are_refused(labels):
    data = soil_data().assign(kind=pd.Series([*labels] * 30, soil_data().index, dtype=object))
    for columns in (frames.Columns("acid", space=PLACE, categories="kind"), frames.Columns("kind", space=PLACE)):
        with pytest.raises(ValueError, match="Column 'kind' must hold text or numbers as labels, got .*\\.$"):
            _read(data, columns)


def test_b8_labels_that_look_alike_and_dates_as_values_are_refused():
    data = soil_data().assign(kind=pd.Series([1, "1"] * 30, soil_data().index), day=pd.Timestamp("2024-01-01"))
    with pytest.raises(ValueError, match="must hold labels that differ in writing, got \\[1, '1'\\]"):
        _read(data, frames.Columns("kind", space=PLACE, head=CategoricalHead(2)))
    with pytest.raises(ValueError, match="Column 'day' must hold numbers or text to be predicted, got dates"):
        _read(data, frames.Columns("day", space=PLACE))


@pytest.mark.filterwarnings("error")
def test_b6_the_date_that_cannot_be_read_is_named():
    data = river_data()[:2]
    for wrong, says in (
        ("yesterday", "got 'yesterday'"),
        (5, "got 5 among them"),
        ("99999-01-01", "got '99999-01-01'"),
    ):
        with pytest.raises(ValueError, match=f"Column 'when' must hold numbers or dates such as .*, {says}"):
            _read(data.assign(when=pd.Series(["2024-04-01T00:00Z", wrong], dtype=object)), RIVER)


def test_a21_no_targets_beside_a_context_of_which_the_nearest_are_used(soil):
    many = pd.concat([soil_data().assign(x=soil_data()["x"] + i) for i in range(5)])
    assert len(soil.predict(soil_data()[:0], context=many)) == 0
    with pytest.raises(ValueError, match="`context` must hold rows with all coordinates and values, got none"):
        soil.predict(soil_data()[:2], context=soil_data().assign(zinc=np.nan))
    assert soil.predict(soil_data()[:2].assign(elev=np.nan), context=many)["zinc_mean"].isna().all()


def test_rows_of_the_context_are_not_scored_whatever_the_order_of_the_components():
    columns = frames.Columns("zinc", space=PLACE, others=[frames.Phase("acid", 14.0)])
    with pytest.raises(ValueError, match="`data` must be new to be scored, got 5 rows that the context holds as well"):
        untrained(soil_data(), columns).score(soil_data()[10:15])


def test_names_of_results_that_are_taken_are_refused_before_the_work(soil, monkeypatch):
    monkeypatch.setattr("bsatnp.frames.fitted.predict", None)
    data = soil_data()
    known = frames.Columns("acid", space=PLACE, covariates="acid_mean")
    with pytest.raises(ValueError, match="Column 'acid_mean' must have another name in `data`"):
        untrained(data.assign(acid_mean=data["elev"]), known).predict(data.assign(acid_mean=data["elev"]))
    grid = data[:4].reset_index().set_index(["site"]).to_xarray()[["x", "y", "elev", "soil"]]
    with pytest.raises(ValueError, match="Column 'zinc_q05' must have another name in `data`"):
        soil.predict(grid.assign_coords(zinc_q05=("site", np.arange(4))))
    with pytest.raises(ValueError, match="`quantiles` must differ by more"):
        soil.predict(data, quantiles=(0.05, 0.05 + 1e-10))


def test_limits_that_cannot_be_exceeded_are_refused(soil):
    fitted = untrained(soil_data(), frames.Columns("soil", space=PLACE))
    with pytest.raises(ValueError, match=r"`above` must name values that are numbers, here \[\], got 'soil'"):
        fitted.predict(soil_data(), above={"soil": 1.0})
    for above, says in (
        (500.0, "`above` must give a limit for each value by name, got 500.0"),
        ({"elev": 8.0}, r"must name values that are numbers, here \['zinc', 'acid'\], got 'elev'"),
        ({"zinc": np.nan}, "`above` must be finite, got nan"),
        ({"zinc": "500"}, "`above` must be a number, got '5'"),
        ({"zinc": [500.0, None]}, "`above` must be a number, got None"),
    ):
        with pytest.raises(ValueError, match=says):
            soil.predict(soil_data(), above=above)


def test_limits_of_values_with_a_large_offset_keep_their_digits():
    data = soil_data().assign(level=1e8 + soil_data()["acid"])
    fitted = untrained(data, frames.Columns("level", space=PLACE))
    found = fitted.predict(data[:5], above={"level": 1e8 + 5.25})
    expected = scipy.stats.norm.sf(1e8 + 5.25, found["level_mean"], found["level_std"])
    np.testing.assert_allclose(found["level_above_100000005.25"], expected, rtol=1e-4)


def test_names_of_values_that_begin_alike_keep_their_units():
    columns = frames.Columns(["acid", "acid_mean"], space=PLACE, units={"acid": "pH", "acid_mean": "m"})
    data = soil_data().assign(acid_mean=soil_data()["elev"])
    found = untrained(data, columns).predict(data[:2].drop(columns=["acid", "acid_mean"]))
    units = found.attrs["units"]
    assert units["acid_mean"] == units["acid_std"] == "pH" and units["acid_mean_mean"] == units["acid_mean_q05"] == "m"


def test_b8_a_component_of_ones_own_and_its_group():
    role = frames.Component("c", ("x", "y"), Euclidean(2))
    columns = frames.Columns("acid", space=role)
    found = untrained(soil_data(), columns).predict(soil_data()[:3])
    assert np.isfinite(found["acid_std"]).all()
    assert frames.Component("c", "x", Euclidean(1)).columns == ("x",)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`group` must be an object with the method `invariants`, .* got None"):
        frames.Component("c", ("x",))


ANY: Any = frames.Columns
WRONG: list[tuple[Any, str]] = [
    (lambda: ANY(5, space=PLACE), "`values` must be a list of names of columns, got 5"),
    (lambda: ANY("v", space=PLACE, log=True), "`log` must be a list of names"),
    (lambda: ANY("v", others=frames.HourOfDay("t")), "`others` must be a list of components"),
    (lambda: ANY("v", space=PLACE, units="m"), "`units` must say the unit of each name"),
    (lambda: ANY("v", space=PLACE, units={"v": 5}), "`units` must be text, got 5"),
    (lambda: ANY("v", space=PLACE, head=GaussianHead), "`head` must be a likelihood"),
    (lambda: frames.Plane("x", "x"), "`Plane` takes a column for each axis"),
    (lambda: frames.Phase("a", "b"), "`period` must be a number, or a span of time such as .*, got 'b'"),
    (lambda: frames.Phase("a", 1.0, component=3), "`component` must be a name, got 3"),  # pyright: ignore
    (lambda: frames.Forward("t", horizon="30"), "`horizon` must be a number, or a span of time .*, got '30'"),
    (lambda: frames.Forward("t", horizon="1.5"), "`horizon` must be a number, or a span of time .*, got '1.5'"),
    (lambda: frames.Forward("t", horizon="NaT"), "`horizon` must be a number, or a span of time .*, got 'NaT'"),
    (lambda: frames.Forward("t", horizon="-3D"), "`horizon` must be positive"),
    (lambda: frames.Random(2.5, 3), "`n_ctx` must be a whole number, got 2.5"),  # pyright: ignore
    (lambda: frames.Windows(3, 3, spread=np.nan), "`spread` must be at least 1"),
    (lambda: frames.Forecasts(3, 3, history=-1, horizon=1.0), "`history` must be positive"),
    (lambda: frames.grid(soil_data().assign(x="a"), ACID), "must hold numbers to make a grid of, got text"),
    (lambda: frames.grid(soil_data().assign(x=np.inf), ACID), "must have finite places"),
    (lambda: frames.grid(soil_data(), ACID, cells=2.5), "`cells` must be a whole number"),  # pyright: ignore
    (lambda: real("a", 2.0, 0, 1), "`a` must lie strictly between 0 and 1, got 2"),
    (lambda: real("a", -1, 0, 1, ends=True), "`a` must lie between 0 and 1, got -1"),
    (lambda: real("a", True), "`a` must be a number, got True"),
    (lambda: real("a", np.inf), "`a` must be positive, got inf"),
]


@pytest.mark.parametrize(("make", "says"), WRONG)
def test_b8_what_makes_no_sense_is_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 2.5}, "`steps` must be a whole number"),
        ({"batch": True}, "`batch` must be a whole number"),
        ({"held_out": "a"}, "`held_out` must be a number"),
        ({"held_out": 0.999}, "`splits` and `held_out` must leave 2 rows to train on and hold out 1, got 0 and 58"),
        ({"splits": "random"}, "`splits` must be Random, Windows, Forecasts or None, got str"),
        ({"splits": frames.Forecasts(3, 3, history=1.0, horizon=1.0)}, "`time` must be `Forward`"),
        ({"key": 5}, "`key` must be one typed key"),
    ],
)
def test_b8_options_of_fit_are_checked_before_it_starts(options, says):
    with pytest.raises(ValueError, match=says):
        frames.fit(soil_data(), ACID, **{"key": jax.random.key(0), **TINY_FIT, **options})


@pytest.mark.parametrize(("change", "says"), [
    ({"acid": np.nan}, "`data` must have at least 12 rows with coordinates and a value, got 0"),
    ({"acid": 1e200}, "Column 'acid' must be at most 1e150 in size"),
    ({"x": 1e200}, "Component 's' must be at most 1e150"),
])  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_c4_c12_nothing_to_scale_and_numbers_whose_squares_overflow(change, says):
    with pytest.raises(ValueError, match=says):
        frames.fit(soil_data().assign(**change), ACID, key=jax.random.key(0), **TINY_FIT)


def test_c4_length_scales_of_points_that_float32_cannot_tell_apart():
    """Some places at 1e25, the others side by side: no length is so short that its square is zero."""
    places = np.concatenate([np.linspace(0, 1e-9, 50), [1.0]])[:, None]
    shortest, longest = lengths(places)
    assert 1e-7 < shortest < longest
