"""The runner end to end: stop, go on, test, write; and the command line and the report on what it wrote."""

import dataclasses
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import checkpoint, pretrained
from bsatnp.metrics import Sums
from paper import evaluation, machine, runner
from paper.__main__ import main
from paper.drawing.curves import convergence
from paper.publish import publish
from paper.report import _tested, load, render
from paper.runner import run

#: What every result says.
FIELDS = {
    *("experiment", "title", "model", "preset", "smoke", "seed", "steps", "budget", "published", "streams"),
    *("parameters", "train_seconds", "best_step", "hardware", "versions", "commits", "parts", "history"),
    *("tests", "exact", "test_seconds", "weights", "data", "tested"),
}


@pytest.fixture
def finished(job):
    result = run(job, progress=False)
    assert result is not None
    return job, result


def test_a_stopped_run_goes_on_to_the_same_result(job, tmp_path, monkeypatch):
    other = dataclasses.replace(job, results=tmp_path / "uncut", runs=tmp_path / "uncut runs")
    uncut = run(other, progress=False)
    assert uncut is not None
    (here,) = uncut["hardware"]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("paper.machine.hardware", lambda devices: here | {"cpu": "another"})
        assert run(job, stop=lambda step: step >= 2, progress=False) is None
    assert not job.result.exists() and (job.folder / "state.npz").exists()
    cut = run(job, progress=False)
    assert cut is not None
    assert cut["tests"] == uncut["tests"] and cut["exact"] == uncut["exact"]
    assert [row["validation_nll"] for row in cut["history"]] == [row["validation_nll"] for row in uncut["history"]]
    assert (cut["parts"], uncut["parts"]) == (2, 1) and cut["hardware"] == [here | {"cpu": "another"}, here]


def test_devices_share_training_and_tests_or_nothing_begins(job, monkeypatch):
    among, given = jax.make_mesh((1,), ("batch",)), []
    monkeypatch.setattr(machine, "mesh", lambda devices: among)
    with pytest.raises(ValueError, match="`devices` must divide the 2 tasks of a batch of training, got 3"):
        run(job, devices=3, progress=False)
    assert not job.runs.exists()

    def noting(function):
        return lambda *args, mesh, **options: given.append(mesh) or function(*args, mesh=mesh, **options)

    monkeypatch.setattr(runner, "fit", noting(runner.fit))
    monkeypatch.setattr(evaluation, "batch_sums", noting(evaluation.batch_sums))
    result = run(job, devices=2, progress=False)
    assert result is not None and result["hardware"][0]["devices"] == result["tested"]["hardware"]["devices"] == 2
    assert [mesh.axis_names for mesh in given] == [("batch",)] * (1 + 3 * 3)


def test_the_result_is_complete_and_whole(finished, tmp_path):
    job, result = finished
    assert json.loads(job.result.read_text()) == result
    assert set(result) == FIELDS
    assert result["hardware"][0]["cores"] >= 1 and result["versions"]["jax"] and result["commits"]
    assert list(result["tests"]) == ["original", "shifted", "scaled"]
    for scores in result["tests"].values():
        assert {"nll", "nll_standard_error", "mae", "rmse", "coverage", "crps", "batches", "values"} <= set(scores)
    assert result["tests"]["original"]["nll"] == pytest.approx(result["tests"]["shifted"]["nll"], abs=1e-4)
    gap = result["exact"]["original"]
    assert gap["gap"] == pytest.approx(gap["model_nll"] - gap["nll"]) and gap["gap"] > 0
    assert len(result["history"]) == 3
    assert checkpoint.load(job.trained).shift_invariant and result["weights"] == evaluation.digest(job.trained)
    origin = checkpoint.header(job.trained)["extra"]
    assert (origin["model"], origin["seed"], origin["step"]) == ("bsa-tnp", 3, result["best_step"])
    again = run(job, progress=False)  # from the file, without training
    assert again == result
    other = dataclasses.replace(job, data=job.folder)
    with pytest.raises(ValueError, match="`--data` must be left out for 'gp', which reads none"):
        run(other, progress=False)

    # an evaluation that was cut goes on: the rows that are there are not made anew
    file = job.folder / "test-original.jsonl"
    lines = file.read_text().splitlines()
    first = json.loads(lines[1])
    lines[1] = json.dumps(first | {"nll": first["nll"] + 1.0})
    file.write_text("\n".join(lines[:2]) + "\n")
    job.result.unlink()
    resumed = run(job, progress=False)
    assert resumed is not None
    moved = (resumed["tests"]["original"]["nll"] - result["tests"]["original"]["nll"]) * first["count"] * 3
    assert moved == pytest.approx(1.0, rel=1e-3)
    for domain in ("shifted", "scaled"):  # of rows that are there the time is kept
        assert resumed["test_seconds"][domain] == result["test_seconds"][domain] > 0
    (job.folder / "test-shifted.jsonl").write_text("\n".join(_without_seconds(job.folder / "test-shifted.jsonl")))
    job.result.unlink()
    older = run(job, progress=False)
    assert older is not None and older["tests"] == resumed["tests"]
    assert older["test_seconds"] == resumed["test_seconds"] | {"shifted": None}

    # the report renders it beside the paper's numbers
    results = load(job.results)
    text = render(results)
    assert "## 2-D GP" in text and "−0.32±0.00" in text and "tnp-d −0.27±0.01" in text
    assert f"{result['tests']['original']['nll']:.3f}".replace("-", "−") in text
    (picture,) = convergence(results, tmp_path / "figures")
    assert picture.stat().st_size > 1000
    assert main(["report", "--results", str(job.results), "--out", str(tmp_path / "out")]) == 0
    report = (tmp_path / "out" / "REPORT.md").read_text()
    assert report.startswith(text.rstrip("\n")) and "## 2-D GP" not in report[len(text) :]  # the benchmarks follow


def test_a_start_that_fails_leaves_nothing(job):
    with pytest.raises(ValueError, match="`model` must be"):
        run(dataclasses.replace(job, model="nobody"), progress=False)
    assert not job.runs.exists() and not job.results.exists()
    assert run(job, stop=lambda step: True, progress=False) is None
    (job.folder / "state.npz").write_bytes(b"no state")
    with pytest.raises(checkpoint.CheckpointError):
        run(job, progress=False)
    assert len((job.folder / "parts.jsonl").read_text().splitlines()) == 1


def test_a_place_that_takes_no_file_is_refused_before_training(job, tmp_path, capsys):
    (tmp_path / "file").touch()
    words = ["run", "gp", "--model", "bsa-tnp", "--quiet", "--runs", str(job.runs)]
    assert main([*words, "--results", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"'{tmp_path / 'file' / 'gp'}': Not a directory.\n" and not job.runs.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "-1"], "`minutes` must be at least 0, got -1.0.\n"),
        (["--devices", "99"], f"`devices` must be at most {jax.device_count()}, as many as JAX sees, got 99.\n"),
        (["--seed", "-1"], "`seed` must be at least 0, got -1.\n"),
        (["--data", "here"], "`--data` must be left out for 'gp', which reads none, got 'here'.\n"),
    ],
)
def test_what_cannot_be_run_is_refused(words, message, job, capsys):
    folders = ["--results", str(job.results), "--runs", str(job.runs)]
    assert main(["run", "gp", "--model", "bsa-tnp", *folders, *words]) == 2
    assert capsys.readouterr().err == message and not job.runs.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scaling", "--model", "nobody"], "`model` must be one of ['bsa-tnp',"),
        (["scaling", "--model", "bsa-tnp", "--preset", "hour"], "`preset` must be one of ['full', 'lite'] for 'sir'"),
        (["publish", "gp", "--model", "nobody"], "`model` must be one of ['bsa-tnp',"),
        (
            ["publish", "gp", "--model", "bsa-tnp", "--seed", "9"],
            "finish `python -m paper run gp --model bsa-tnp --preset full --seed 9` first",
        ),
    ],
)
def test_only_what_can_be_trained_is_advised(words, message, tmp_path, capsys):
    assert main([*words, "--results", str(tmp_path), "--runs", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_the_commit_is_that_of_the_start(job, monkeypatch):
    commits = iter("abcdefgh")
    monkeypatch.setattr(machine, "commit", lambda: next(commits))
    result = run(job, progress=False)
    assert result is not None and (result["commits"], result["tested"]["commit"]) == (["a"], "a")


def _without_seconds(file):
    """The lines of a test as they were once written."""
    rows = map(json.loads, file.read_text().splitlines())
    return [json.dumps({name: value for name, value in row.items() if name != "seconds"}) for row in rows]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [({"a": 5.4, "b": 7.0}, "12 s"), ({"a": 5400.0}, "1.5 h"), ({"a": 5.0, "b": 0.001}, ""), ({"a": None}, "")],
)
def test_times_of_tests_are_summed_where_all_are_known(seconds, text):
    assert _tested(seconds) == text


def test_the_command_line_runs_and_refuses(job, capsys):
    folders = ["--results", str(job.results), "--runs", str(job.runs), "--quiet", "--seed", "3"]
    assert main(["run", "gp", "--model", "bsa-tnp", "--minutes", "0", *folders]) == 3
    assert not job.result.exists()
    assert main(["run", "gp", "--model", "bsa-tnp", *folders]) == 0
    assert job.result.exists() and "original: NLL" in capsys.readouterr().out
    card = publish(job, folder=job.runs / "shelf")
    assert "gp-bsa-tnp-v1\n" in str(card) and "gap" in str(card) and card.index == {"s": 2}
    assert card.scores["original"]["nll"] == json.loads(job.result.read_text())["tests"]["original"]["nll"]
    assert eqx.tree_equal(pretrained.load("gp-bsa-tnp", job.runs / "shelf"), checkpoint.load(job.trained))
    job.trained.write_bytes(b"")
    assert main(["publish", "gp", "--model", "bsa-tnp", *folders[:4], "--seed", "3"]) == 2
    assert "must hold the weights of" in capsys.readouterr().err
    assert main(["run", "gp", "--model", "nobody", *folders]) == 2
    assert "`model`" in capsys.readouterr().err
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert (
        "gneiting (full, lite): bsa-tnp-embed" in said
        and "gp (full, lite, lite-paper-rate, lite-no-warmup, hour): " in said
    )


def test_a_run_goes_on_with_the_data_that_it_began_with_alone(job, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.csv").write_text("x,y\n")
    experiment = dataclasses.replace(runner.find("gp"), default_data=tmp_path / "one")
    monkeypatch.setattr(runner, "find", lambda name: experiment)
    other = dataclasses.replace(job, data=tmp_path / "two")
    assert run(job, stop=lambda step: step >= 2, progress=False) is None
    refused = pytest.raises(ValueError, match="`data` must be as when .* began")
    with refused:
        run(other, progress=False)
    result = run(dataclasses.replace(job, data=tmp_path / "one"), progress=False)  # the default, by name
    assert result is not None and result["data"] is not None
    with refused:
        run(other, progress=False)
    job.result.unlink()
    with refused:  # trained, but not tested
        run(other, progress=False)
    again = run(job, progress=False)
    assert again is not None and again["tests"] == result["tests"]


def test_data_that_are_gone_are_not_called_others(job, tmp_path, monkeypatch):
    experiment = dataclasses.replace(runner.find("gp"), default_data=tmp_path / "gone")
    monkeypatch.setattr(runner, "find", lambda name: experiment)
    job.result.parent.mkdir(parents=True)
    job.result.write_text('{"data": "0123"}')
    with pytest.raises(FileNotFoundError, match="There are no data at '.*gone': name .* with `--data`"):
        run(job, progress=False)


@pytest.mark.parametrize("name", ["history.json", "parts.jsonl"])
def test_a_file_that_a_training_left_is_asked_for(name, job):
    job.folder.mkdir(parents=True)
    if name == "parts.jsonl":
        (job.folder / "history.json").write_text('[{"step": 6, "seconds": 1.0, "validation_nll": 1.0}]')
    checkpoint.save(job.trained, runner.find("gp").make("bsa-tnp", key=jax.random.key(0)))
    with pytest.raises(ValueError, match=f"{name}' is missing: restore it, or remove its folder to train anew"):
        run(job, progress=False)


def test_a_smoke_run_leaves_nothing_among_the_results(job, monkeypatch):
    monkeypatch.setattr(runner, "SMOKE", True)
    assert job.result.parent == job.folder and job.name.endswith("-smoke")


def test_summary_is_one_mean_over_all_values():
    found = [{"nll": 2.0, "rmse": 8.0, "count": 2}, {"nll": 6.0, "rmse": 10.0, "count": 4}]
    scores = evaluation.summary(found)
    assert scores["nll"] == 8 / 6 and scores["rmse"] == 3**0.5
    assert scores["rmse_of_batches"] == pytest.approx((2 + 2.5**0.5) / 2)
    assert scores["nll_standard_error"] == pytest.approx(np.std([1.0, 1.5], ddof=1) / 2**0.5)
    bound = evaluation.against_exact(found, [{"nll": 0.5}, {"nll": 1.5}])
    assert bound["gap"] == pytest.approx(0.25) and bound["nll"] == 1.0


def test_a_file_that_is_not_written_whole_is_not_written(tmp_path):
    file = tmp_path / "a.json"
    evaluation.write_whole(file, "before")
    with pytest.raises(UnicodeEncodeError):
        evaluation.write_whole(file, "after \udce9")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"] and file.read_text() == "before"


def test_models_and_exact_posteriors_are_scored_on_the_same_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "prepare", lambda model, task: task)
    monkeypatch.setattr(evaluation, "batch_sums", lambda model, task, mesh: Sums({"nll": task}, jnp.int32(1)))

    def stream(number: int, *, key: Any) -> Any:
        return jax.random.uniform(jax.random.fold_in(key, number))

    silent: Any = lambda done, count: None  # noqa: E731
    found = evaluation.scores(None, stream, 3, file=tmp_path / "a", model_digest="", progress=silent)
    exact = evaluation.exact_scores(lambda stream, n, key: stream(n, key=key), stream, 3, file=tmp_path / "b")
    assert [row["nll"] for row in found] == [row["nll"] for row in exact] and len({row["nll"] for row in exact}) == 3


def test_rows_for_other_facts_are_made_anew(tmp_path):
    made = []

    def row(numbers):
        made.extend(numbers)
        return [{"n": n} for n in numbers]

    file, silent = tmp_path / "rows.jsonl", lambda done, count: None
    assert evaluation.rows(file, {"a": 1}, 3, row, progress=silent) == [{"n": n} for n in range(3)]
    evaluation.rows(file, {"a": 1}, 4, row, progress=silent)
    assert made == [0, 1, 2, 3]
    evaluation.rows(file, {"a": 2}, 2, row, progress=silent)
    assert made == [0, 1, 2, 3, 0, 1]
    assert evaluation.rows(file, {"a": 2}, 1, row, progress=silent) == [{"n": 0}]
