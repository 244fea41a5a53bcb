"""Beijing air quality: real forecasts of PM2.5 and PM10 at twelve sites from two days of history."""

import functools
from pathlib import Path

from bsatnp.datasets import beijing
from bsatnp.datasets.beijing_tasks import Forecasting, forecasting
from bsatnp.likelihoods import GaussianHead
from bsatnp.train import EpochStream
from paper.folders import ROOT
from paper.models import others, variants
from paper.protocol import Experiment, Preset

#: Eleven numeric covariates and sixteen wind directions; latitude and longitude; time.
WIDTHS = {"x": 27, "s": 2, "t": 1}
HEAD = GaussianHead(out=2)

#: One hour and two days in units of the training part, 80 % of four years.
HOUR = 1 / (0.8 * 4 * 365.25 * 24)
TIMES = (HOUR, 48 * HOUR)

#: Where the data are looked for when the command line names no folder.
DEFAULT = ROOT.parent / "shared" / "data" / "beijing"


@functools.cache
def parts(folder: Path, batch: int) -> Forecasting:
    """The three parts of the data in `folder`."""
    return forecasting(beijing.load(folder), batch=batch)


def full(data: Path | None = None) -> Preset:
    """The paper's budget: 10,000 batches of 32."""
    three = parts(data or DEFAULT, 32)
    return Preset(
        train=three.train,
        validation=three.valid,
        tests={"original": three.test},
        steps=10_000,
        validate_every=500,
        validation_batches=500,
        test_batches=5_000,
        peak=1e-3,
        end=1e-5,
        published={"original": "original"},
        checkpoint_every=50,
    )


def lite(data: Path | None = None) -> Preset:
    """3,000 batches of 4; the test is of tasks in the order of time, whose targets do not overlap."""
    three = parts(data or DEFAULT, 4)
    test = EpochStream(three.test.evaluation(), 4)
    return Preset(
        train=three.train,
        validation=three.valid,
        tests={"original": test},
        steps=3_000,
        validate_every=250,
        validation_batches=50,
        test_batches=test.batches,
        peak=1e-3,
        end=1e-5,
        published={"original": "original"},
        warmup=150,
        checkpoint_every=100,
    )


EXPERIMENT = Experiment(
    name="beijing",
    title="Beijing air quality",
    models=variants(WIDTHS, lengths={"t": TIMES}, head=HEAD) | others(WIDTHS, head=HEAD, pre_norm=True),
    presets={"full": full, "lite": lite},
    default_data=DEFAULT,
)
