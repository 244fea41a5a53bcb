"""SIR on larger lattices: which tasks, and what is written."""

import json

import jax
import numpy as np
import pytest

from bsatnp import checkpoint
from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.likelihoods import CategoricalHead
from bsatnp.models import BSATNP
from bsatnp.simulate import SIRTasks
from paper import evaluation, record, scaling
from paper.__main__ import main
from paper.report import load, render
from paper.runner import Job

SMALL = SIRTasks(batch=1, cells=8, n_ctx=(8, 16), n_tgt=40, ctx_sizes=(16,), steps=6)


def test_larger_lattices_keep_the_cells_and_the_density():
    for cells in scaling.CELLS:
        tasks = scaling.tasks(cells)
        assert tasks.cells == cells and (tasks.domain[1] - tasks.domain[0]) * 16 == cells
        assert tasks.n_tgt == cells**2 // 4 and tasks.n_ctx[0] == cells**2 // 32
    for cells in (32, 100):
        with pytest.raises(ValueError, match=f"`cells` must be a multiple of 64, got {cells}"):
            scaling.tasks(cells)


def test_scores_times_and_memory_are_written(tmp_path, monkeypatch, capsys):
    job = Job("sir", "bsa-tnp", "lite", 5, results=tmp_path / "results", runs=tmp_path / "runs")
    folders = ["--results", str(job.results), "--runs", str(job.runs), "--preset", "lite", "--seed", "5"]
    assert main(["scaling", "--model", "bsa-tnp", *folders]) == 2
    assert "train it with `python -m paper run sir --model bsa-tnp" in capsys.readouterr().err
    sizes = {"depth": 1, "dim": 16, "heads": 2, "width": 16, "embed_sizes": (16,), "hidden": 16}
    bias = RBFNetwork(On("s", Translation(2)), heads=2, basis=2)
    model = BSATNP(bias=bias, head=CategoricalHead(3), **sizes, key=jax.random.key(0))
    job.folder.mkdir(parents=True)
    checkpoint.save(job.trained, model)
    (job.folder / "history.json").write_text(json.dumps([{"step": 7, "validation_nll": 1.0, "seconds": 60.0}]))
    (job.folder / "parts.jsonl").write_text(json.dumps(record.made()) + "\n")
    monkeypatch.setattr(scaling, "tasks", lambda cells: SMALL)
    monkeypatch.setattr(scaling, "CHUNK", 24)
    (tmp_path / "file").touch()
    words = ["scaling", "--model", "bsa-tnp", "--cells", "8", "--preset", "lite", "--seed", "5", *folders[2:4]]
    assert main([*words, "--results", str(tmp_path / "file")]) == 2
    assert "Not a directory" in capsys.readouterr().err and not scaling._file(job, "8x8").exists()
    for samples in ("1", "2"):
        assert main(["scaling", "--model", "bsa-tnp", "--cells", "8", "--samples", samples, *folders]) == 0
    said = capsys.readouterr().out
    assert said.count("8x8, sample 1") == 1 and "8x8, sample 2" in said  # what is there is kept
    lines = scaling._file(job, "8x8").read_text().splitlines()
    scaling._file(job, "16x16").write_text("\n".join(lines[:2]) + "\n")
    assert main(["scaling", "--model", "bsa-tnp", "--cells", "8", "--samples", "2", *folders]) == 0
    assert load(job.results)[0]["tests"]["16x16"]["batches"] == 1  # kept, though nobody asked
    elsewhere = json.loads(lines[0]) | {"hardware": {"cpu": "another"}}
    scaling._file(job, "16x16").write_text("\n".join([json.dumps(elsewhere), lines[1]]) + "\n")
    assert main(["scaling", "--model", "bsa-tnp", "--cells", "8", "--samples", "2", *folders]) == 2
    assert "`cells` must include 16, which was done with other weights or hardware" in capsys.readouterr().err
    scaling._file(job, "16x16").unlink()
    assert main(["scaling", "--model", "bsa-tnp", "--cells", "8", "--samples", "2", *folders]) == 0
    (result,) = load(job.results)
    found = result["tests"]["8x8"]
    assert result["history"] == []
    assert result["experiment"] == "sir-scaling" and list(result["tests"]) == ["8x8"] and result["steps"] == 7
    assert (found["batches"], found["values"]) == (2, 80)
    assert found["seconds"] > 0 and found["peak_mib"] > 0 and 8 <= found["ctx"] < 16
    expected = []
    for number in range(2):
        task = SMALL(number, key=jax.random.fold_in(evaluation.test_key(), number))
        direct = model(*jax.tree.map(lambda leaf: leaf[0], (task.ctx, task.tgt)))
        expected.append(-np.asarray(direct.log_prob(task.tgt.f[0])).mean())
    assert found["nll"] == pytest.approx(np.mean(expected), abs=1e-4)
    assert "s a sample" in render([result])
