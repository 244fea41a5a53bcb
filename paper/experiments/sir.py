"""Outbreaks on a lattice: the state of a Susceptible–Infected–Recovered process at cells that were not seen."""

from functools import partial
from pathlib import Path

from bsatnp.likelihoods import CategoricalHead
from bsatnp.simulate import SIRTasks
from paper.experiments.gp import adapt
from paper.models import bases, bsa_tnp, conv_cnp, others
from paper.protocol import Experiment, Preset

WIDTHS = {"s": 2}
STATES = CategoricalHead(3)

#: The paper's density on a quarter of its area, on a lattice of 32 × 32.
LITE = SIRTasks(cells=32, domain=(-1.0, 1.0), n_ctx=(32, 128), n_tgt=256, ctx_sizes=(128,))


def domains(tasks: SIRTasks) -> dict[str, SIRTasks]:
    """The training domain, the same 10 units away, and a lattice twice as wide there and 10 units away."""
    wide = tasks.scaled(2)
    return {
        "original": tasks,
        "shifted": tasks.shifted(10.0),
        "scaled": wide,
        "shifted and scaled": wide.shifted(10.0),
    }


def full(data: Path | None = None) -> Preset:
    """The paper's budget."""
    del data
    tasks = SIRTasks()
    return Preset(
        train=tasks,
        validation=tasks,
        tests=domains(tasks),
        steps=100_000,
        validate_every=10_000,
        validation_batches=5_000,
        test_batches=5_000,
        peak=1e-4,
        end=1e-5,
        published={name: name for name in ("original", "shifted", "scaled")},
    )


def lite(data: Path | None = None) -> Preset:
    """3,000 steps of 8 tasks on a quarter of the area; the doubled domain is the paper's own."""
    del data
    return Preset(
        train=LITE,
        validation=LITE,
        tests=domains(LITE),
        steps=3_000,
        validate_every=250,
        validation_batches=50,
        test_batches=200,
        peak=1e-3,
        end=1e-5,
        published={"scaled": "original", "shifted and scaled": "shifted"},
        warmup=150,
        checkpoint_every=100,
    )


EXPERIMENT = Experiment(
    name="sir",
    title="SIR",
    models={
        "bsa-tnp": partial(bsa_tnp, WIDTHS, head=STATES),
        "sa-tnp": partial(bsa_tnp, WIDTHS, embed=("s",), bias=False, head=STATES),
        "convcnp": partial(conv_cnp, 2.0, head=STATES),
        **others(WIDTHS, head=STATES),
        **bases(WIDTHS, head=STATES),
    },
    presets={"full": full, "lite": lite},
    adapt=adapt,
)
