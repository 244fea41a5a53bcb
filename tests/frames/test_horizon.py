"""How far ahead forecasts go."""

import jax
import numpy as np
import pandas as pd
import pytest

from bsatnp import frames
from bsatnp.cli import main
from bsatnp.frames.default import default_splits
from bsatnp.frames.fitting import _check_spans, _read
from tests.frames.conftest import RIVER, TINY_FIT, river_data, untrained


def test_the_horizon_holds_a_year_that_is_a_day_longer(tmp_path, capsys):
    """As many days as between most years, and months of 28 to 31."""
    for freq, count, more in (("YS", 9, "2024-01-01"), ("QS", 24, "2026-01-01"), ("MS", 40, "2023-05-01")):
        when = pd.date_range("2015-01-01" if freq == "YS" else "2020-01-01", periods=count, freq=freq)
        data = pd.DataFrame({"when": np.repeat(when, 40), "x": np.tile(np.arange(40.0), count)}).assign(v=1.0)
        data["v"] += np.random.default_rng(0).normal(size=len(data))
        fitted = untrained(data, frames.Columns("v", space=frames.Plane("x"), time=frames.Forward("when")))
        new = pd.DataFrame({"when": pd.Timestamp(more), "x": [0.5]})
        assert np.isfinite(fitted.predict(new)["v_mean"]).all()
        days = {"YS": 366, "QS": 92, "MS": 31}[freq]
        assert fitted.horizon is not None and fitted.horizon >= days * 86400
        fitted.save(tmp_path / "river")
        assert main(["check", f"{tmp_path}/river", "--examples", "0"]) == 0
        assert f"forecasts up to {fitted.horizon / 86400:.4g} days ahead\n" in capsys.readouterr().out
        with pytest.raises(ValueError, match=r"within the horizon, \d+ days, of .*, got one [\d.e+]+ days after it"):
            fitted.predict(new.assign(when=pd.Timestamp("2050-01-01")))


def test_forecasts_have_one_horizon():
    splits = frames.Forecasts(16, 8, history=3 * 86400, horizon=3600)
    with pytest.raises(ValueError, match="`horizon` must be the same in `Forward` and `splits`, got 86400"):
        frames.fit(river_data(), RIVER, splits=splits, key=jax.random.key(0), **TINY_FIT)


@pytest.mark.parametrize(("freq", "step"), [("D", "1 day"), ("6h", "6 hours"), (None, "1")])
def test_spans_of_less_than_a_step_are_refused(freq, step):
    """No context, or no target, would ever lie in them."""
    when = np.arange(60.0) if freq is None else pd.date_range("2024-01-01", periods=60, freq=freq)
    data = pd.DataFrame({"when": when, "v": np.random.default_rng(0).normal(size=60)})
    short, long = (0.5, 3.0) if freq is None else (30.0, 3 * 86400.0)
    hint = "" if freq is None else ": numbers are seconds for dates"
    got = "0.5" if freq is None else "30 s"
    for name, other in (("history", "horizon"), ("horizon", "history")):
        spans: dict = {name: short, other: long}
        forward = frames.Columns("v", time=frames.Forward("when", **spans))
        says = f"`{name}` must be at least one step of the times, {step}, got {got}{hint}.$"
        with pytest.raises(ValueError, match=says):
            frames.fit(data, forward, key=jax.random.key(0), **TINY_FIT)
        with pytest.raises(ValueError, match=says):
            splits, free = frames.Forecasts(16, 8, **spans), frames.Columns("v", time=frames.Forward("when"))
            frames.fit(data, free, splits=splits, key=jax.random.key(0), **TINY_FIT)


def test_spans_that_some_steps_fit_into_are_taken():
    """Months of 28 to 31 days, and bursts of readings between long gaps."""
    months = pd.date_range("2020-01-01", periods=60, freq="MS")
    bursts = pd.date_range("2024-01-01", periods=40, freq="D").repeat(2) + pd.to_timedelta([0, 20] * 40, unit="min")
    for when, horizon, history in ((months, "30D", "90D"), (bursts, "1h", "2h")):
        data = pd.DataFrame({"when": when, "v": np.random.default_rng(0).normal(size=len(when))})
        forward = frames.Columns("v", time=frames.Forward("when", horizon=horizon, history=history))
        meaning, index, _, _ = _read(data, forward)
        splits = default_splits(forward, index)
        assert isinstance(splits, frames.Forecasts)
        _check_spans(splits, meaning, index["t"])
