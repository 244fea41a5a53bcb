"""The command line: from files to files, and errors of one sentence."""

import os
import pathlib
import subprocess
import sys
from datetime import timedelta
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bsatnp
from bsatnp import frames
from bsatnp.cli import main
from bsatnp.cli.options import columns, parser
from bsatnp.layers import Identity
from bsatnp.likelihoods import NegativeBinomialHead
from bsatnp.models import BSATNP
from tests.frames.conftest import SMALL, soil_data, untrained

FIT = "--values zinc acid --log zinc --space x y --covariates elev --categories soil --quiet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, and a model of it that was not trained."""
    where = tmp_path_factory.mktemp("cli")
    soil_data().to_csv(where / "soil.csv")
    given = []

    def fit(data, columns, **options):
        given.append(options)
        return untrained(data, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "fit", fit)
        command = f"fit {where}/soil.csv --out {where}/soil.bsatnp --seed 3 --minutes 2 {FIT}"
        assert main(command.split()) == 0
    assert given[0].pop("key") == jax.random.key(3)
    assert given == [{"steps": None, "minutes": 2, "progress": False}]
    return where


@pytest.mark.slow
def test_a_model_is_trained_and_saved(folder, capsys):
    assert main(f"fit {folder}/soil.csv --out {folder}/trained.bsatnp --steps 20 {FIT}".split()) == 0
    said = capsys.readouterr().out
    assert "20 steps in" in said and "held-out zinc: nll" in said and "saved as" in said
    assert main(["check", f"{folder}/trained.bsatnp"]) == 0


def test_options_say_what_columns_mean():
    command = (
        "fit a.nc b.csv --out m --values pm --log pm --units pm=a=b --sphere lon lat --forward when "
        "--horizon 3600 --history 3d --hour when --season when --phase wind 360 --covariates temp --categories kind"
    )
    expected = frames.Columns(
        "pm",
        space=frames.Sphere("lon", "lat"),
        time=frames.Forward("when", horizon=3600, history=timedelta(days=3)),
        others=[
            frames.HourOfDay("when"),
            frames.DayOfYear("when"),
            frames.Phase("wind", 360, component="phase of wind"),
        ],
        covariates="temp",
        categories="kind",
        log="pm",
        units={"pm": "a=b"},
    )
    assert columns(parser().parse_args(command.split())) == expected
    counts = columns(parser().parse_args("fit a --out m --values n --time t --likelihood negative-binomial".split()))
    assert counts == frames.Columns("n", time=frames.Time("t"), head=NegativeBinomialHead())


def test_predictions_go_to_any_format(folder, capsys):
    axes = {"x": 180_000 + np.arange(3.0) * 400, "y": 330_000 + np.arange(2.0) * 500}
    grid = xr.Dataset({"elev": (("x", "y"), np.full((3, 2), 8.0))}, axes).assign(
        soil=(("x", "y"), [["clay", "peat"]] * 3)
    )
    grid.to_netcdf(folder / "grid.nc")
    grid.to_dataframe().to_csv(folder / "grid.csv")
    for given, out in (("grid.nc", "maps.nc"), ("grid.csv", "maps.csv"), ("grid.nc", "maps2.csv")):
        assert main(["predict", f"{folder}/soil.bsatnp", f"{folder}/{given}", "--out", f"{folder}/{out}"]) == 0
        assert "zinc, acid predicted, saved as" in capsys.readouterr().out
    fitted = frames.load(folder / "soil.bsatnp")
    expected = fitted.predict(grid)
    xr.testing.assert_allclose(frames.read(folder / "maps.nc"), expected.drop_attrs(), rtol=1e-5)
    for name in ("maps.csv", "maps2.csv"):
        found = pd.read_csv(folder / name)
        np.testing.assert_allclose(found["acid_q95"], expected["acid_q95"].values.ravel(), rtol=1e-5)
    np.testing.assert_array_equal(pd.read_csv(folder / "maps.csv")[["x", "y"]], found[["x", "y"]])
    command = [
        "predict",
        f"{folder}/soil.bsatnp",
        f"{folder}/grid.csv",
        "--out",
        f"{folder}/m.csv",
        "--quantiles",
        "0.25",
    ]
    assert main([*command, "--context", f"{folder}/soil.csv", "--above", "zinc=500", "zinc=2e2"]) == 0
    written: Any = pd.read_csv(folder / "m.csv")
    assert [name for name in written.columns if "_q" in name] == ["zinc_q25", "acid_q25"]
    risks = written.filter(like="_above_")
    assert list(risks) == ["zinc_above_500", "zinc_above_200"] and risks.isin([0, 1]).sum().sum() == 0
    assert (risks["zinc_above_500"] < risks["zinc_above_200"]).all()
    capsys.readouterr()
    assert main(["predict", f"{folder}/soil.bsatnp", f"{folder}/soil.csv", "--out", f"{folder}/m.csv"]) == 0
    assert "predicted, 1 left blank without all coordinates, saved as" in capsys.readouterr().out
    given: Any = pd.read_csv(folder / "soil.csv")
    found: Any = pd.read_csv(folder / "m.csv")
    pd.testing.assert_frame_equal(found[given.columns], given)  # what the model does not look at goes along


def test_columns_that_are_passed_on_stay_as_they_are(folder, capsys, monkeypatch):
    """What the model does not look at goes along as it is written, in its order, and so does what it looks at."""
    given = soil_data().rename_axis(None)
    given.insert(0, "code", [f"{i:03d}" for i in range(60)])
    given["note"], given["big"] = ["NA", "None", "", "1.50", "a, b"] * 12, [str(2**60 + 1), ""] * 30
    given["x"] = given["x"].map("{:.3f}".format)
    given.to_csv(folder / "noted.csv", index=False)
    command = ["predict", f"{folder}/soil.bsatnp", f"{folder}/noted.csv", "--out"]
    assert main([*command, f"{folder}/m.csv"]) == 0
    before, after = (pd.read_csv(folder / name, dtype=str, keep_default_na=False) for name in ("noted.csv", "m.csv"))
    assert list(after.columns)[: before.shape[1]] == list(before.columns) and "zinc_mean" in after
    pd.testing.assert_frame_equal(after.iloc[:, : before.shape[1]], before)
    assert main([*command, f"{folder}/m.nc"]) == 0
    assert frames.read(folder / "m.nc")["x"].dtype == float and "zinc_q95" in frames.read(folder / "m.nc")
    given.assign(zinc_mean=1.0).to_csv(folder / "noted.csv")
    capsys.readouterr()
    monkeypatch.setattr("bsatnp.frames.fitted.predict", None)  # refused before the work
    assert main([*command, f"{folder}/m.csv"]) == 2
    assert "Column 'zinc_mean' must have another name in `data`, which is that of a result" in capsys.readouterr().err


def test_labels_are_predicted_beside_the_true_ones(folder):
    data = soil_data().assign(soil=["NA", "clay"] * 30)
    data.to_csv(folder / "labelled.csv")
    columns = frames.Columns("soil", space=frames.Plane("x", "y"))
    untrained(data, columns).save(folder / "labels.bsatnp")
    command = ["predict", f"{folder}/labels.bsatnp", f"{folder}/labelled.csv", "--out", f"{folder}/m.csv"]
    assert main(command) == 0
    found = pd.read_csv(folder / "m.csv", keep_default_na=False)
    assert found["soil"].tolist() == list(data["soil"]) and set(found["soil_mode"]) <= {"NA", "clay"}
    zinc = frames.Columns("zinc", space=frames.Plane("x", "y"), categories="soil")
    untrained(data.assign(soil="clay"), zinc).save(folder / "clay.bsatnp")
    assert main(["predict", f"{folder}/clay.bsatnp", f"{folder}/labelled.csv", "--out", f"{folder}/m.csv"]) == 0
    assert pd.read_csv(folder / "m.csv")["zinc_mean"].isna().tolist() == [True, False] * 30  # missing, where no label
    data = soil_data().assign(soil="None")
    data.to_csv(folder / "none_at_all.csv")
    known = soil_data().assign(soil=["None", "clay"] * 30)
    untrained(known, frames.Columns("acid", space=frames.Plane("x"), categories="soil")).save(folder / "c.bsatnp")
    assert main(["predict", f"{folder}/c.bsatnp", f"{folder}/none_at_all.csv", "--out", f"{folder}/m.csv"]) == 0
    assert np.isfinite(pd.read_csv(folder / "m.csv")["acid_mean"]).all()


def test_check_tells_what_a_file_holds(folder, capsys):
    soil_data().assign(zinc=300.0).to_csv(folder / "new.csv")
    assert main(["check", f"{folder}/soil.bsatnp", f"{folder}/new.csv", "--examples", "2"]) == 0
    said = capsys.readouterr().out
    for words in (
        "predicts zinc, acid by GaussianHead, with",
        "s: x, y as Plane",
        "x: soil, one of ['clay', 'peat', 'sand']",
        "predicts from 57 points",
        "60 rows, 58 used",
        "unchanged under the groups of s",
        "new.csv zinc: nll",
        "coverage",
    ):
        assert words in said, words


def test_check_names_what_has_no_invariance(folder, capsys):
    """A model of one's own that embeds the places is not said to be unchanged under their shifts."""
    fitted = frames.load(folder / "soil.bsatnp")
    assert fitted.context is not None
    embed = {name: Identity(fitted.context.index[name].shape[1]) for name in ("s", "x")}
    model = BSATNP(embed=embed, head=fitted.model.head, **SMALL, key=jax.random.key(0))
    eqx.tree_at(lambda f: f.model, fitted, model).save(folder / "embeds.bsatnp")
    assert main(["check", f"{folder}/embeds.bsatnp"]) == 0
    said = capsys.readouterr().out
    assert "no invariance to check of s" in said and "unchanged" not in said


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("fit none.csv --values a --space x y --out m", "There is no file 'none.csv'."),
        ("fit soil.csv --values zink --space x y --out m", "Column 'zink' is not in the data: did you mean 'zinc'."),
        ("fit soil.csv --values zinc --space x y --out none/m", "There is no folder"),
        ("fit soil.csv --values zinc --out m", "must name a column, got none."),
        ("fit soil.csv --values soil acid --space x y --out m", "Column 'soil' must hold numbers, got text such as"),
        ("fit soil.csv --values zinc --sphere x y --out m", "Column 'x' must lie between -180 and 360 degrees"),
        (
            "fit soil.csv --values zinc --space x y --units mg/kg --out m",
            "`--units` must be a column, `=` and its unit",
        ),
        ("fit soil.csv --values zinc --space x y --horizon 3 --out m", "`--horizon` and `--history` need `--forward`"),
        (
            "fit soil.csv --values zinc --forward x --horizon far --out m",
            "`horizon` must be a number, or a span of time",
        ),
        ("fit soil.csv --values zinc --phase x half --out m", "`--phase` must end in a number, got 'half'."),
        ("fit soil.csv --values zinc --space x y --likelihood poisson --out m", "whole numbers from 0 up"),
        (
            "fit soil.csv --values zinc --space x y --out soil.csv",
            "`--out` must not be a file that is read, got 'soil.csv'",
        ),
        ("fit soil.csv --values zinc --space x y --out .", "'.' must be the name of a file, got a folder."),
        ("fit soil.csv --values zinc --space x y --horizon 0 --out m", "`--horizon` and `--history` need `--forward`"),
        (
            "fit soil.csv --values zinc --space x y --seed -1 --out m",
            "`--seed` must lie between 0 and 4294967295, got -1",
        ),
        ("fit soil.csv --values zinc --space x y --out soil.csv", "`--out` must not be a file that is read, got 'soil"),
        ("fit soil.csv --values zinc --space x y --out .", "'.' must be the name of a file, got a folder."),
        ("fit soil.csv --values zinc --space x y --horizon 0 --out m", "`--horizon` and `--history` need `--forward`"),
        ("fit soil.csv --values zinc --space x y --seed -1 --out m", "`--seed` must lie between 0 and 4294967295, got"),
        ("predict soil.bsatnp soil.csv --out ./soil.csv", "`--out` must not be a file that is read"),
        ("predict soil.bsatnp soil.csv --out none/m.csv", "There is no folder"),
        ("check soil.bsatnp --context none.csv", "`--context` needs data to score the model on, got none."),
        ("check soil.bsatnp --examples -3", "`--examples` must be at least 0, got -3."),
        ("check soil.bsatnp soil.csv --examples 0", "`data` must be new to be scored, got 57 rows"),
        ("check soil.bsatnp none.csv", "There is no file 'none.csv'."),
        ("check soil.bsatnp soil.csv --context none.csv", "There is no file 'none.csv'."),
        ("fit soil.csv --values zinc --space x y --steps 9 --minutes 1 --out m", "not allowed with argument --steps"),
        ("fit soil.csv --values zinc --space x y --units zinc=mg zinc=g --out m", "`--units` must name each column"),
        ("fit soil.csv --values zinc", "The following arguments are required: --out; see `bsatnp fit --help`."),
        ("fit bad.csv --values zinc --space x y --out m", "'bad.csv' cannot be read as csv: "),
        ("fit image.csv --values zinc --space x y --out m", "'image.csv' cannot be read as csv: "),
        ("fit soil.xlsx --values zinc --space x y --out m", "'soil.xlsx' must end in one of .csv"),
        ("predict none.bsatnp grid.csv --out m.csv", "There is no file 'none.bsatnp'."),
        ("predict soil.csv soil.csv --out m.csv", "'soil.csv' is damaged or not a file of bsatnp"),
        ("predict soil.bsatnp unseen.csv --out m.csv", "Column 'soil' must hold one of ['clay', 'peat', 'sand'], got"),
        (
            "predict soil.bsatnp soil.csv --out m.csv --quantiles 2",
            "`quantiles` must lie strictly between 0 and 1, got 2.0.",
        ),
        (
            "predict soil.bsatnp soil.csv --out m.csv --above zinc",
            "`--above` must be a column, `=` and a limit, such as",
        ),
        ("predict soil.bsatnp soil.csv --out m.csv --above zinc=high", "`--above` must end in a number, got 'high'."),
        ("predict soil.bsatnp soil.csv --out m.csv --above lead=5", "`above` must name values that are numbers, here"),
        ("predict soil.bsatnp soil.csv --out m.txt", "'m.txt' must end in one of .csv"),
        ("", "The following arguments are required: fit | predict | check"),
        ("draw", "invalid choice: 'draw'"),
    ],
)
def test_errors_are_one_sentence(command, says, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "bad.csv").write_text('a,b\n1,2\n1,2,3\n"')
    (folder / "image.csv").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\xff\xfe")
    soil_data().assign(soil="rock").to_csv(folder / "unseen.csv")
    assert main(command.split()) == 2
    said = capsys.readouterr()
    assert says in said.err and said.err.startswith("bsatnp: ")
    assert said.err.count("\n") == 1 and ("--examples" in command or said.out == "")


def test_the_module_runs_and_shows_no_traceback(tmp_path):
    command = [sys.executable, "-m", "bsatnp", "predict", "none.bsatnp", "none.csv", "--out", "maps.csv"]
    here = {**os.environ, "PYTHONPATH": str(pathlib.Path(bsatnp.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=here)
    assert done.returncode == 2 and done.stderr == "bsatnp: There is no file 'none.bsatnp'.\n"


def test_without_pandas_the_error_says_what_to_install(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert main(["predict", f"{folder}/soil.bsatnp", f"{folder}/soil.csv", "--out", "m.csv"]) == 2
    assert capsys.readouterr().err == 'bsatnp: A table needs pandas: pip install "bsatnp[pandas]".\n'
