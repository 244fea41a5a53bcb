"""From a data set to predictions in the same form: order, index, coordinates, units, holes, files."""

import os
import pathlib
import subprocess
import sys
import zipfile

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bsatnp
from bsatnp import checkpoint, frames
from bsatnp.frames.fitting import _read
from bsatnp.likelihoods import PoissonHead
from tests.frames.conftest import RIVER, SOIL, TINY_FIT, river_data, soil_data

GRID = xr.Dataset(
    {
        "elev": (("y", "x"), np.arange(12.0).reshape(3, 4)),
        "soil": (("y", "x"), np.array([["clay"] * 2 + ["peat"] * 2] * 3)),
    },
    {
        "x": 180_000 + np.arange(4.0) * 400,
        "y": 332_000 - np.arange(3.0) * 500,
        "cell": (("y", "x"), np.arange(12).reshape(3, 4)),
    },
)


def test_the_report_counts_what_was_missing(soil):
    report = soil.report
    assert (report.rows, report.used, report.partial) == (60, 58, 1)  # one row without values, one without elevation
    assert report.missing == {"zinc": 1, "acid": 2} and report.unplaced == {"elev": 1}
    assert report.held_out == round(0.15 * 58) and len(soil.context) == 57
    assert report.history and "history" not in repr(report)  # which a shown model would be buried under
    assert set(report.scores["zinc"]) == {"nll", "mae", "rmse", "coverage", "crps", "n"}
    for words in (
        "60 rows, 58 used",
        "2 without a value of acid",
        "1 left out without elev",
        "1 with some values missing",
    ):
        assert words in str(report)


def test_a_frame_comes_back_with_its_index_in_its_order(soil):
    asked = soil_data().drop(columns=["zinc", "acid"]).sample(frac=1, random_state=3)
    found = soil.predict(asked, quantiles=(0.1, 0.9))
    pd.testing.assert_index_equal(found.index, asked.index)
    pd.testing.assert_frame_equal(found.iloc[:, :4], pd.DataFrame(asked[["x", "y", "elev", "soil"]]))
    assert list(found.columns)[4:] == [
        f"{v}_{what}" for v in ("zinc", "acid") for what in ("mean", "std", "q10", "q90")
    ]
    assert found.loc["site 11"].isna().sum() == 1 + 8 and found.isna().sum().sum() == 9  # no elevation, no prediction
    straight = soil.predict(soil_data(), quantiles=(0.1, 0.9)).loc[asked.index]
    pd.testing.assert_frame_equal(found, pd.DataFrame(straight), rtol=1e-4)
    assert (found.zinc_q10 < found.zinc_q90).sum() == 59 and found.attrs["units"]["zinc_q10"] == "mg/kg"


def test_a_grid_comes_back_as_a_grid_and_says_the_same(soil):
    found = soil.predict(GRID)
    assert found["zinc_mean"].dims == ("y", "x") and found["zinc_mean"].attrs["units"] == "mg/kg"
    for name in GRID.coords:
        xr.testing.assert_identical(found[name], GRID[name])
    frame = soil.predict(GRID.to_dataframe())
    np.testing.assert_allclose(found["acid_std"].to_series(), frame["acid_std"], rtol=1e-4)
    holes = soil.predict(GRID.assign(elev=GRID.elev.where(GRID.elev > 2)))
    assert holes["zinc_mean"].isnull().sum() == 3 and bool(holes["zinc_mean"].isnull()[0, 0])


def test_only_distances_matter_and_only_the_scale_of_values_is_learned(soil):
    """A shift of all places by hundreds of kilometres changes nothing."""

    def moved(frame):
        return frame.assign(x=frame.x + 3e5, y=frame.y - 3e5)

    frame = GRID.to_dataframe().reset_index()
    here = soil.predict(frame, context=soil_data())
    there = soil.predict(moved(frame), context=[moved(soil_data()[:20]), moved(soil_data()[20:])])
    np.testing.assert_allclose(there["zinc_std"], here["zinc_std"], rtol=2e-4)
    fewer = soil.predict(frame, context=soil_data()[:5])
    assert np.abs(fewer["zinc_mean"] / here["zinc_mean"] - 1).max() > 1e-4


def test_distributions_and_scores_are_in_the_units_of_the_data(soil):
    data = soil_data()[20:40]
    whole, each = soil.predict(data), soil.distribution(data)
    np.testing.assert_allclose(each["zinc"].mean[:, 0], whole["zinc_mean"], rtol=1e-5)
    with pytest.raises(ValueError, match="`data` must be new to be scored, got 20 rows that the context holds as well"):
        soil.score(data)
    scores = soil.score(data, context=soil_data()[:20])
    whole, each = (ask(data, context=soil_data()[:20]) for ask in (soil.predict, soil.distribution))
    assert scores["zinc"]["n"] == 20
    np.testing.assert_allclose(
        scores["zinc"]["nll"], -np.mean(each["zinc"].log_prob(np.asarray(data[["zinc"]]))), rtol=1e-5
    )
    errors = data["acid"] - whole["acid_mean"]
    np.testing.assert_allclose(scores["acid"]["rmse"], np.sqrt((errors**2).mean()), rtol=1e-4)
    with pytest.raises(ValueError, match="got 1 rows without"):
        soil.distribution(soil_data())
    with pytest.raises(ValueError, match="Column 'zinc' must hold a value to be scored, got none"):
        soil.score(data.assign(zinc=np.nan), context=data)


def test_a_file_carries_everything_to_another_process(soil, tmp_path):
    soil.save(tmp_path / "soil.bsatnp")
    names = [entry.filename for entry in zipfile.ZipFile(tmp_path / "soil.bsatnp").infolist()]
    assert all(name.endswith(".npy") for name in names)
    for name in names:
        np.load(zipfile.ZipFile(tmp_path / "soil.bsatnp").open(name), allow_pickle=False)
    assert checkpoint.header(tmp_path / "soil.bsatnp")["extra"]["units"] == {"zinc": "mg/kg"}
    GRID.to_dataframe().to_csv(tmp_path / "grid.csv")
    program = (
        "import sys\nfrom bsatnp import frames\nfitted = frames.load(sys.argv[1] + '/soil.bsatnp')\n"
        "maps = fitted.predict(frames.read(sys.argv[1] + '/grid.csv'))\nframes.write(maps, sys.argv[1] + '/maps.csv')\n"
    )
    here = {**os.environ, "PYTHONPATH": str(pathlib.Path(bsatnp.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, env=here)
    other = pd.read_csv(tmp_path / "maps.csv")
    np.testing.assert_allclose(other["zinc_q95"], soil.predict(GRID.to_dataframe())["zinc_q95"], rtol=1e-4)
    loaded = frames.load(tmp_path / "soil.bsatnp")
    assert loaded.columns == SOIL and loaded.report == soil.report

    soil.save(tmp_path / "bare.bsatnp", context=False)
    bare = frames.load(tmp_path / "bare.bsatnp")
    with pytest.raises(ValueError, match="`context` must be given, since the file was saved without one"):
        bare.predict(GRID)
    pd.testing.assert_frame_equal(
        bare.predict(soil_data(), context=soil_data()), soil.predict(soil_data(), context=soil_data())
    )
    checkpoint.save(tmp_path / "model.npz", soil.model)
    with pytest.raises(checkpoint.CheckpointError, match="must be a file of `Fitted.save`, got a BSATNP"):
        frames.load(tmp_path / "model.npz")


def test_forecasts_depend_on_the_past_alone(river):
    data = river_data()
    late = data[data.when >= data.when[40]]
    found = river.predict(late, context=data)
    pd.testing.assert_index_equal(found.index, late.index)
    changed = data.assign(level=np.where(data.when >= data.when[55], 1e3, data.level))
    again = river.predict(late, context=changed)
    before = late.when <= data.when[55]
    np.testing.assert_array_equal(again["level_mean"][before], found["level_mean"][before])
    assert (again["level_mean"][~before] != found["level_mean"][~before]).any()
    with pytest.raises(ValueError, match="must lie within the horizon"):
        river.predict(late.assign(when=late.when + pd.Timedelta(days=9)))
    following = late.iloc[[-1]].assign(when=late.when.iloc[-1] + pd.Timedelta("6h"))
    assert np.isfinite(river.predict(following)["level_std"]).all()
    with pytest.raises(ValueError, match=f"`data` must be new to be scored, got {len(late)} rows that the context"):
        river.score(late)
    assert river.score(late, context=data[data.when < data.when[40]])["level"]["n"] == len(late)
    shifted = late.assign(lon=late.lon - 360)
    np.testing.assert_array_equal(river.predict(shifted, context=data)["level_mean"], found["level_mean"])


def test_stations_and_grids_are_read_together():
    """A Dataset of one campaign and a DataFrame of another, with the same columns."""
    axes = {"x": 180_000 + np.arange(5.0) * 400, "y": 330_000 + np.arange(4.0) * 600}
    gridded = xr.Dataset({"acid": (("x", "y"), np.arange(20.0).reshape(5, 4))}, axes)
    gridded["acid"].attrs["units"] = "pH"
    columns = frames.Columns("acid", space=frames.Plane("x", "y"))
    meaning, index, f, report = _read([soil_data(), gridded], columns)
    assert (report.rows, report.used) == (80, 78) and meaning.units == {"acid": "pH"}
    np.testing.assert_array_equal(f[58:, 0], np.arange(20.0))
    np.testing.assert_array_equal(index["s"][58:62], [[180_000, 330_000 + 600 * i] for i in range(4)])
    mixed = soil_data()
    mixed.attrs["units"] = {"acid": "mmol"}
    with pytest.raises(ValueError, match="Column 'acid' must have one unit in all data, got 'mmol' and 'pH'"):
        _read([mixed, gridded], columns)


@pytest.mark.parametrize(
    ("data", "columns", "options", "says"),
    [
        (soil_data()[:8], SOIL, {}, "`data` must have at least 12 rows with coordinates and a value, got 7"),
        (soil_data(), SOIL, {"held_out": 1.0}, "`held_out` must lie strictly between 0 and 1"),
        (soil_data(), SOIL, {"simulate": 2.0}, "`simulate` must lie between 0 and 1, got 2"),
        (soil_data(), SOIL, {"steps": 0}, "`steps` must be at least 1, got 0"),
        (soil_data(), SOIL, {"minutes": -1.0}, "`minutes` must be positive"),
        (soil_data(), SOIL, {"minutes": 5.0}, "`steps` or `minutes` must be given, not both, got 2 and 5"),
        ([], SOIL, {}, "`data` must be at least one data set"),
        (
            river_data()[:40],
            frames.Columns("level", time=frames.Forward("when", horizon=1e6)),
            {},
            "`horizon` must be below",
        ),
        (
            river_data()[:20].assign(when=1.0),
            frames.Columns("level", time=frames.Forward("when")),
            {},
            "6 different times",
        ),
        (
            soil_data().assign(
                zinc=lambda d: d.zinc.where(np.arange(60) % 2 > 0), acid=lambda d: d.acid.mask(d.zinc > 0)
            ),
            SOIL,
            {},
            r"`values` must be known together in some rows, .* fit each of \['zinc', 'acid'\] apart",
        ),
        (
            soil_data().assign(n=1),
            frames.Columns("n", space=frames.Plane("x", "y"), head=PoissonHead()),
            {"simulate": 0.5},
            "`simulate` must be 0 for the likelihood of PoissonHead",
        ),
        (
            river_data(),
            RIVER,
            {"splits": frames.Random(30, 10)},
            "`splits` must be Forecasts where time is `Forward`, got Random",
        ),
    ],
)
def test_what_fit_refuses(data, columns, options, says):
    with pytest.raises(ValueError, match=says):
        frames.fit(data, columns, key=jax.random.key(0), **{**TINY_FIT, **options})


def test_columns_of_the_river_say_what_they_mean():
    assert [role.component for role in RIVER.roles] == ["s", "t", "hour"]
    assert RIVER.coordinates == ("lon", "lat", "when") and RIVER.forward is RIVER.time
