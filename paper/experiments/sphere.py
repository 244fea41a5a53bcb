"""Spherical Gaussian processes: trained on one patch, tested where it is rotated to."""

import dataclasses
from functools import partial
from pathlib import Path

from bsatnp.simulate import SphereTasks
from paper.experiments.gp import exact
from paper.models import DEGREES, bsa_tnp
from paper.protocol import Experiment, Preset

WIDTHS = {"s": 2}

#: The paper's density on a quarter of its area.
LITE = SphereTasks(half_width=5.0, n_ctx=(32, 128), n_tgt=256, ctx_sizes=(128,))


def domains(tasks: SphereTasks) -> dict[str, SphereTasks]:
    """The training patch, and where the paper rotates it to: north, east and tilt in degrees."""
    return {"0-0-0": tasks, "60-30-0": tasks.rotated(60.0, 30.0), "60-30-20": tasks.rotated(60.0, 30.0, 20.0)}


def full(data: Path | None = None) -> Preset:
    """The budget of the GPs in the plane: the paper names no other."""
    del data
    tasks = SphereTasks()
    return Preset(
        train=tasks,
        validation=tasks,
        tests=domains(tasks),
        steps=100_000,
        validate_every=10_000,
        validation_batches=5_000,
        test_batches=5_000,
        peak=1e-4,
        end=2e-5,
        published={name: name for name in domains(tasks)},
    )


def lite(data: Path | None = None) -> Preset:
    """3,000 steps of 8 tasks on a quarter of the patch, tested there and on the paper's own patch as well."""
    del data
    doubled = dataclasses.replace(SphereTasks(), n_ctx=(128, 509))
    wide = {f"{name} doubled": stream for name, stream in domains(doubled).items()}
    return Preset(
        train=LITE,
        validation=LITE,
        tests=domains(LITE) | wide,
        steps=3_000,
        validate_every=500,
        validation_batches=50,
        test_batches=200,
        peak=1e-3,
        end=1e-5,
        published={f"{name} doubled": name for name in domains(LITE)},
        warmup=150,
        exact_batches=50,
        checkpoint_every=100,
    )


EXPERIMENT = Experiment(
    name="sphere",
    title="Spherical GP",
    models={
        "sa-tnp": partial(bsa_tnp, WIDTHS, embed=("s",), bias=False),
        "bsa-tnp-rbf": partial(bsa_tnp, WIDTHS, lengths={"s": DEGREES}),
        "bsa-tnp-geodesic": partial(bsa_tnp, WIDTHS, geodesic=True),
    },
    presets={"full": full, "lite": lite},
    exact=exact,
)
