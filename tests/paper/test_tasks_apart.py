"""What cannot be asked of Gaussian processes of each task; their scores are in `test_baselines.py`."""

from types import SimpleNamespace
from typing import Any

import pytest

from bsatnp.simulate import GneitingTasks, GPTasks
from paper import __main__ as command
from paper import baselines, tasks_apart
from paper.tasks_apart import _forecast, run, tune

REFUSED = [
    ("gneiting", "gp", r"`method` must be one of \('gp-known', 'gp-fitted', 'svgp'\), got 'gp'"),
    ("sir", "svgp", "`experiment` must have one continuous output .* got 'sir'"),
    ("era5-cnw", "gp-known", "`method` must be fitted where no process is known, as in 'era5-cnw'"),
]


@pytest.mark.parametrize(("experiment", "method", "message"), REFUSED)
def test_what_has_no_process_is_refused(experiment, method, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(experiment, method, "lite", batches=1, results=tmp_path, runs=tmp_path)
    with pytest.raises(ValueError, match=message):
        next(tune(experiment, method, "lite"))
    assert not list(tmp_path.iterdir())


def test_only_the_sparse_process_is_tuned(capsys):
    assert command.main(["baseline", "gneiting", "--method", "gp-fitted", "--tune"]) == 2
    assert capsys.readouterr().err == "`method` must be 'svgp' to be tuned, got 'gp-fitted'.\n"


def test_a_place_that_takes_no_file_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tasks_apart, "rows", lambda *args, **options: pytest.fail("worked first"))
    (tmp_path / "file").touch()
    words = ["baseline", "gneiting", "--method", "gp-known", "--runs", str(tmp_path / "runs")]
    assert command.main([*words, "--results", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"'{tmp_path / 'file' / 'gneiting'}': Not a directory.\n"


def test_no_batches_are_refused(capsys):
    assert command.main(["baseline", "gneiting", "--method", "svgp", "--batches", "0"]) == 2
    assert capsys.readouterr().err == "`batches` must be at least 1, got 0.\n"


@pytest.mark.parametrize(
    ("stream", "noisy"),
    [
        (GPTasks(noise=0.2), False),
        (GPTasks(noise=0.2, tgt_noise=0.3), True),
        (GneitingTasks(noisy_tgt=False), False),
        (GneitingTasks(), True),
        (None, True),  # real data
    ],
)
def test_methods_are_told_of_the_noise_of_context_and_targets(stream, noisy, monkeypatch):
    for name in ("known", "fitted", "sparse"):
        monkeypatch.setattr(baselines, name, lambda *points, **options: options)
    task: Any = SimpleNamespace(ctx=None, tgt=None)
    for method in ("gp-fitted", "svgp"):
        told: Any = _forecast(method, stream, baselines.Sparse(), task, None, None)
        assert told["noisy"] == noisy
    if isinstance(stream, GPTasks):
        found: Any = _forecast("gp-known", stream, None, task, None, None)
        assert found == {"noise": 0.2, "tgt_noise": 0.3 if noisy else 0.0}
