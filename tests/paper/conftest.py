"""A small experiment in the place of the paper's, so that the runner is tested in seconds."""

import dataclasses

import pytest

from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.models import BSATNP
from bsatnp.simulate import GPTasks
from paper import experiments, runner
from paper.experiments import gp
from paper.protocol import Preset
from paper.runner import Job

TASKS = GPTasks(batch=2, n_ctx=(4, 8), n_tgt=8, ctx_sizes=(8,))


def small(data=None):
    del data
    return Preset(
        train=TASKS,
        validation=TASKS,
        tests=gp.domains(TASKS),
        steps=6,
        validate_every=2,
        validation_batches=2,
        test_batches=3,
        exact_batches=2,
        peak=1e-3,
        end=1e-5,
        published={"original": "original"},
        checkpoint_every=1,
    )


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job of the small experiment, under the name of the paper's."""

    def model(*, key):
        bias = RBFNetwork(On("s", Translation(2)), heads=2, basis=3)
        return BSATNP(bias=bias, depth=2, dim=16, heads=2, width=16, embed_sizes=(16,), hidden=16, key=key)

    there = dataclasses.replace(gp.EXPERIMENT, models={"bsa-tnp": model}, presets={"full": small})
    monkeypatch.setattr(runner, "find", lambda name: there if name == "gp" else experiments.experiment(name))
    return Job("gp", "bsa-tnp", "full", 3, results=tmp_path / "results", runs=tmp_path / "runs")
