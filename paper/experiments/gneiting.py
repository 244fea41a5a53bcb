"""Gneiting Gaussian process: forecasts of a space–time process that is only partly stationary."""

import dataclasses
from pathlib import Path

from bsatnp.simulate import GneitingTasks, posterior
from paper.models import others, variants
from paper.protocol import Experiment, Preset

WIDTHS = {"s": 2, "t": 1}


def full(data: Path | None = None) -> Preset:
    """The paper's budget: 50,000 batches of 4, some hours of one core."""
    del data
    tasks = GneitingTasks()
    return Preset(
        train=tasks,
        validation=tasks,
        tests={"original": tasks},
        steps=50_000,
        validate_every=5_000,
        validation_batches=500,
        test_batches=500,
        exact_batches=500,
        peak=1e-3,
        end=1e-5,
        published={"original": "original"},
    )


def lite(data: Path | None = None) -> Preset:
    """A tenth of it."""
    return dataclasses.replace(full(data), steps=5_000, validate_every=1_000, validation_batches=100, warmup=250)


def exact(stream, number, key):
    """The exact posterior, given the kernel, the mean and the noise of each task."""
    task, process = stream.draw(number, key=key)
    noise = process.noise
    bound = posterior(
        process.kernel, task.ctx, task.tgt, noise=noise, tgt_noise=noise if stream.noisy_tgt else 0.0, mean=process.mean
    )
    return -bound.log_prob(task.tgt.f)


EXPERIMENT = Experiment(
    name="gneiting",
    title="Gneiting GP",
    models=variants(WIDTHS) | others(WIDTHS, pre_norm=True),
    presets={"full": full, "lite": lite},
    exact=exact,
)
