"""Pictures of small models, and what is said where there is none."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from PIL import Image

from bsatnp import checkpoint
from bsatnp.bias import RBFNetwork
from bsatnp.groups import SO3, On, Translation
from bsatnp.layers import Identity
from bsatnp.likelihoods import CategoricalHead
from bsatnp.models import BSATNP
from paper import benchmarks
from paper.__main__ import main
from paper.drawing import curves, everything, fields
from paper.drawing.trained import Trained, trained
from paper.evaluation import digest
from paper.experiments import era5
from paper.record import made

SIZES = {"depth": 1, "dim": 16, "heads": 2, "width": 16, "embed_sizes": (16,), "hidden": 16}


def leave(runs, name, model, *, preset="lite", seed=0, **options):
    """A small untrained model where a trained one would be."""
    folder = runs / name / f"{model}-{preset}-seed{seed}"
    folder.mkdir(parents=True)
    group = On("s", SO3() if "geodesic" in model else Translation(2))
    bias = RBFNetwork(group, heads=2, basis=2)
    model = BSATNP(bias=bias, **SIZES, **options, key=jax.random.key(0))
    checkpoint.save(folder / "model.npz", model, extra={"step": 567})
    (folder / "history.json").write_text(json.dumps([{"step": 1234}]))
    (folder / "parts.jsonl").write_text(json.dumps(made() | {"commit": "0123456789ab+"}) + "\n")


def few_domains(one, data=None):
    """The budget, with those tests alone that share their compilations."""
    preset = one.experiment.preset(one.preset, data)
    names = {"original", "multiscale", "0-0-0", "60-30-20", "northern"}
    return dataclasses.replace(preset, tests={name: preset.tests[name] for name in preset.tests if name in names})


def looks_drawn(path):
    with Image.open(path) as image:
        pixels, text = np.asarray(image.convert("RGB")), image.info["Description"]
    assert min(pixels.shape[:2]) > 300 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 100
    return text


def test_every_map_is_drawn_from_the_models_that_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(fields, "CELLS", 6)
    monkeypatch.setattr(fields, "TASKS", 1)
    monkeypatch.setattr(Trained, "budget", few_domains)
    runs, out = tmp_path / "runs", tmp_path / "figures"
    leave(runs, "gp", "bsa-tnp")
    leave(runs, "gp-multiscale", "bsa-tnp")
    leave(runs, "sphere", "bsa-tnp-geodesic")
    leave(runs, "sir", "bsa-tnp", head=CategoricalHead(3))
    names = ["gp", "gp-multiscale", "sphere", "sir"]
    expected = ["gp-original", "gp-multiscale", "sphere", "sir-bsa-tnp"]
    if era5.SAMPLE.exists():
        leave(runs, "era5-cwn", "bsa-tnp", embed={"x": Identity(2)})
        names, expected = [*names, "era5"], [*expected, "era5-bsa-tnp"]
    found = everything.draw(runs, [], out, only=names)
    paths = [path for made in found.values() if not isinstance(made, str) for path in made]
    assert [path.stem for path in paths] == expected
    for path in paths:
        origin, _, weights = looks_drawn(path).rpartition(", weights ")
        assert origin.partition(", ")[2] == "lite budget, update 567 of 1,234, seed 0, commit 012345678+"
        assert weights in {digest(file) for file in runs.glob("*/*/model.npz")}


def test_what_is_missing_is_said(tmp_path, capsys):
    assert main(["figures", "--runs", str(tmp_path), "--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "gp: no trained model among bsa-tnp, tnp-d" in said and "run era5-cwn --model bsa-tnp" in said
    assert main(["figures", "--only", "clouds"]) == 2
    assert "`only` must name some of" in capsys.readouterr().err


def test_models_with_the_larger_budget_are_taken_and_compared_alike(tmp_path):
    leave(tmp_path, "gp", "bsa-tnp", seed=2)
    leave(tmp_path, "gp", "bsa-tnp", seed=10)
    leave(tmp_path, "gp", "tnp-d")
    names = ("bsa-tnp", "tnp-d", "convcnp")
    assert [(one.model, one.preset, one.seed) for one in trained(tmp_path, "gp", names)] == [
        ("bsa-tnp", "lite", 2),
        ("tnp-d", "lite", 0),
    ]
    leave(tmp_path, "gp", "tnp-d", preset="full")
    assert [(one.model, one.preset) for one in trained(tmp_path, "gp", names)] == [("tnp-d", "full")]


def test_curves_are_of_results_that_have_some(tmp_path):
    rows = [{"step": step, "validation_nll": 1 / step} for step in (1, 2, 3)]
    common = {"preset": "lite", "model": "bsa-tnp", "seed": 0}
    results = [
        common | {"experiment": "gp", "history": rows},
        common | {"experiment": "sir-scaling", "history": []},
        common | {"experiment": "sir", "model": "bsa-tnp-basis-3", "history": rows},
    ]
    assert [path.name for path in curves.convergence(results, tmp_path)] == ["convergence-gp-lite.png"]
    looks_drawn(tmp_path / "convergence-gp-lite.png")


ROWS = [
    {"work": f"L={n}", "what": what, "peer": peer, "ms": None if (n, peer) == (512, "dense") else n * factor}
    for n in (256, 512)
    for what in ("forward", "backward")
    for peer, factor in (("scan", 1.0), ("flex", 3.0), ("dense", 0.5))
]


def test_times_are_read_divided_and_drawn(tmp_path):
    (tmp_path / "plain.json").write_text(json.dumps(ROWS))
    (tmp_path / "whole.json").write_text(json.dumps({"rows": ROWS, **made()}))
    plain, whole = benchmarks.load(tmp_path)
    assert plain.ratios("forward", "flex") == {"L=256": 3.0, "L=512": 3.0}
    assert plain.ratios("backward", "dense") == {"L=256": 0.5}
    assert benchmarks.length("B=32 L=1024") == 1024 and benchmarks.length("LL=3") is None
    text = "\n".join(benchmarks.tables([plain, whole]))
    assert "| L=512 | forward | 512 | 1,536 |  | 3.00 |  |" in text and whole.made["commit"][:9] in text
    assert [path.name for path in curves.ratios([plain], tmp_path)] == ["ratios-plain.png"]
    looks_drawn(tmp_path / "ratios-plain.png")
    (tmp_path / "other.json").write_text('[{"work": 1}]')
    with pytest.raises(ValueError, match="`other.json` must hold rows with `work`, `what`, `peer` and `ms`"):
        benchmarks.load(tmp_path)
