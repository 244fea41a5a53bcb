"""Data in other units than those of the training are refused where they say so, and doubted where they look it."""

import warnings

import numpy as np
import pandas as pd
import pytest

from bsatnp import frames
from tests.frames.conftest import SOIL, soil_data, untrained

NEW = soil_data()[:30]
REST = soil_data()[30:]


def said(call, *given, **options) -> list[str]:
    """What a call warns of, beside its result."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call(*given, **options)
    return [str(one.message) for one in found]


def test_nothing_is_said_of_data_like_those_of_the_training(soil):
    assert said(soil.predict, NEW) == []
    assert said(soil.predict, NEW, context=REST) == []
    assert said(soil.score, NEW, context=[REST]) == []
    away = {"x": NEW.x + 5e6, "y": NEW.y - 5e6}
    assert said(soil.predict, NEW.assign(**away), context=NEW.assign(**away)) == []
    assert said(soil.predict, NEW, context=REST[:1]) == []
    one = np.arange(len(NEW)) == 0
    assert said(soil.predict, NEW.assign(x=NEW.x + 5e6 * one, elev=NEW.elev + 5)) == []
    close = REST.assign(x=NEW.x.mean() + np.arange(30) % 6, y=NEW.y.mean() + np.arange(30) // 6)
    assert said(soil.predict, NEW, context=close) == said(soil.predict, NEW, context=close[:2]) == []


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (REST.assign(zinc=REST.zinc / 1e6), "from the training mean of 'zinc': are the"),
        (REST.assign(acid=REST.acid * 1000), "from the training mean of 'acid': are the"),
        (REST.assign(elev=REST.elev * 1000), "from the training mean of 'elev': are the"),
        (REST.assign(x=REST.x * 1000, y=REST.y * 1000), "The context spreads"),
    ],
)
def test_a_context_in_other_units_is_doubted(soil, changed, says):
    for call in (soil.predict, soil.score, soil.distribution):
        found = said(call, NEW.dropna(), context=changed)
        assert says in found[0] and found[0].endswith("are the units those of training?")


def test_targets_in_other_units_are_doubted(soil):
    (found,) = said(soil.predict, NEW.assign(x=NEW.x / 1000, y=NEW.y / 1000))
    assert found.startswith("All targets lie") and "away from the context in 's'" in found
    (found,) = said(soil.predict, NEW.assign(elev=NEW.elev / 1e-3))
    assert found.startswith("Half of the targets lies") and "'elev'" in found
    both = {"x": NEW.x / 1000, "y": NEW.y / 1000}
    (found,) = said(soil.predict, NEW.assign(**both), context=NEW.assign(**both))
    assert found.startswith("The context spreads 0.00")


def test_a_column_that_never_varied_is_doubted_where_it_differs():
    data = soil_data().assign(elev=0.0)
    fitted = untrained(data, SOIL)
    assert said(fitted.predict, data) == []
    (found,) = said(fitted.predict, data.assign(elev=1e4))
    assert found == "Half of the targets differs in 'elev', which never varied in training: its effect is unknown"


def test_targets_on_another_side_of_the_globe_and_times_in_another_unit_are_doubted():
    places = {"lon": 5 + np.arange(30) % 6 / 10, "lat": 50 + np.arange(30) // 6 / 10}
    data = pd.DataFrame(places).assign(v=np.arange(30.0), hour=np.arange(30.0))
    fitted = untrained(data, frames.Columns("v", space=frames.Sphere("lon", "lat"), time=frames.Time("hour")))
    assert said(fitted.predict, data) == []
    (found,) = said(fitted.predict, data, context=data.assign(hour=3600 * data.hour))
    assert found.startswith("The context spreads") and "'t'" in found
    (found,) = said(fitted.predict, data.rename(columns={"lon": "lat", "lat": "lon"}))
    assert "away from the context in 's'" in found


def test_units_that_are_named_must_be_those_of_the_training(soil):
    named = NEW.copy()
    named.attrs["units"] = {"zinc": "mg/kg", "x": "m"}
    assert said(soil.predict, named, context=named) == []
    meaning = soil.encoding.meaning
    meaning.units["x"] = "m"
    try:
        soil.predict(named)
        named.attrs["units"]["x"] = "km"
        with pytest.raises(ValueError, match="Column 'x' must be in 'm' as in training, got 'km'"):
            soil.predict(named)
        named.attrs["units"] = {"zinc": "g/kg"}
        with pytest.raises(ValueError, match="Column 'zinc' must be in 'mg/kg' as in training, got 'g/kg'"):
            soil.predict(NEW, context=named)
    finally:
        del meaning.units["x"]
