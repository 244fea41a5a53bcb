"""Spherical Gaussian processes: trained on one patch, tested where it is rotated to."""

import dataclasses
from functools import partial
from pathlib import Path

from bsatnp.simulate import SphereTasks
from paper.experiments.gp import exact
from paper.models import DEGREES, bsa_tnp
from paper.protocol import Experiment, Preset, full_budget, lite_budget

WIDTHS = {"s": 2}

#: The paper's density on a quarter of its area.
LITE = SphereTasks(half_width=5.0, n_ctx=(32, 128), n_tgt=256, ctx_sizes=(128,))


def domains(tasks: SphereTasks) -> dict[str, SphereTasks]:
    """The training patch, and where the paper rotates it to: north, east and tilt in degrees."""
    return {"0-0-0": tasks, "60-30-0": tasks.rotated(60.0, 30.0), "60-30-20": tasks.rotated(60.0, 30.0, 20.0)}


def full(data: Path | None = None) -> Preset:
    """The budget of the GPs in the plane: the paper names no other."""
    del data
    return full_budget(SphereTasks(), domains(SphereTasks()))


def lite(data: Path | None = None) -> Preset:
    """3,000 steps of 8 tasks on a quarter of the patch, tested there and on the paper's own patch as well."""
    del data
    doubled = dataclasses.replace(SphereTasks(), n_ctx=(128, 509))
    wide = {f"{name} doubled": stream for name, stream in domains(doubled).items()}
    published = {f"{name} doubled": name for name in domains(LITE)}
    return lite_budget(LITE, domains(LITE) | wide, published, exact_batches=50)


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
