"""Outbreaks on a lattice: the state of a Susceptible–Infected–Recovered process at cells that were not seen."""

from functools import partial
from pathlib import Path

from bsatnp.likelihoods import CategoricalHead
from bsatnp.simulate import SIRTasks
from paper.experiments.gp import adapt
from paper.models import bases, bsa_tnp, conv_cnp, others
from paper.protocol import Experiment, Preset, full_budget, lite_budget

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
    published = {name: name for name in ("original", "shifted", "scaled")}
    return full_budget(SIRTasks(), domains(SIRTasks()), published, end=1e-5)


def lite(data: Path | None = None) -> Preset:
    """3,000 steps of 8 tasks on a quarter of the area; the doubled domain is the paper's own."""
    del data
    published = {"scaled": "original", "shifted and scaled": "shifted"}
    return lite_budget(LITE, domains(LITE), published, validate_every=250)


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
