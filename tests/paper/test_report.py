"""What a report says of results, and what it refuses."""

import json
import sys

import pytest

from paper import benchmarks
from paper.__main__ import main
from paper.contents import BEGIN, END
from paper.evaluation import rows
from paper.files import read_lines
from paper.folders import RESULTS
from paper.report import load, render

RESULT = RESULTS / "gp" / "bsa-tnp-lite-seed0.json"


@pytest.fixture
def result():
    return json.loads(RESULT.read_text())


def test_a_gap_has_its_standard_error_and_the_experiment_its_own_title(result):
    result["exact"]["original"] |= {"gap": 0.263, "gap_standard_error": 0.0061}
    text = render([result | {"title": "an older one"}])
    assert "| 0.263 ± 0.006 |" in text and "## 2-D GP\n" in text and "older one" not in text
    assert "## an older one" in render([result | {"experiment": "sir-scaling", "title": "an older one"}])


def test_every_machine_of_a_training_is_told(result):
    (here,) = result["hardware"]
    gpus = here | {"platform": "gpu", "device": "A100", "devices": 2}
    text = render([result | {"hardware": [here, here | {"devices": 2}, gpus]}])
    assert f"| {here['cores']} cores of {here['cpu']}, 2 × A100 |" in text


def test_fewer_batches_are_told_and_the_bound_is_that_of_the_most(result):
    other = json.loads(RESULT.read_text()) | {"model": "tnp-d"}
    other["tests"]["original"]["batches"] = 100
    other["exact"]["original"] |= {"batches": 60, "nll": -0.3111}
    text = render([result, other])
    assert "**original**: 200 test batches. Exact posterior: −0.311 on 60 batches." in text
    assert "| bsa-tnp | 0 | −0.048 ± 0.017 |" in text and "| tnp-d | 0 | −0.048 ± 0.017 on 100 batches |" in text


@pytest.mark.parametrize("text", ['{"tests": ', "", '{"a": "\udce9"}'])
def test_a_damaged_file_is_named(text, tmp_path):
    content = text.encode("utf-8", "surrogateescape")
    for name, reader in (("gp/a.json", lambda path: load(tmp_path)), ("a.jsonl", read_lines)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"'{path}' must hold JSON"):
            reader(path)
    with pytest.raises(ValueError, match="'.*a.jsonl' must hold JSON"):
        rows(tmp_path / "a.jsonl", {}, 1, lambda numbers: [], progress=lambda done, count: None)


def test_a_report_of_nothing_is_refused(tmp_path, capsys):
    assert main(["report", "--results", str(tmp_path / "typo"), "--out", str(tmp_path)]) == 2
    assert "`--results` must be a folder with results" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_without_matplotlib_a_report_has_its_tables(result, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    (tmp_path / "gp").mkdir()
    (tmp_path / "gp" / RESULT.name).write_text(json.dumps(result))
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["REPORT.md"]
    assert '`pip install -e ".[paper]"`' in capsys.readouterr().err


def test_a_report_of_other_results_leaves_the_map(result, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarks, "load", list)
    (tmp_path / "results" / "gp").mkdir(parents=True)
    (tmp_path / "results" / "gp" / RESULT.name).write_text(json.dumps(result))
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}")
    assert main(["report", "--results", str(tmp_path / "results"), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "README.md").read_text() == f"{BEGIN}\n{END}"
    assert (tmp_path / "figures" / "convergence-gp-lite.png").exists()
