"""ERA5: forecasts of the next six hours from four sparse frames, learnt in central Europe, tested north and west.

`--data` is a folder or file that `bsatnp.datasets.era5.load` reads: for the full budget hourly data of 2019 on
`era5.EUROPE`, which `era5.download` fetches with a key of the Climate Data Store. The lite budget also takes the five
days that lie beside this repository, whose north ends at 60° N: a check of the pipeline, no more.
"""

import dataclasses
import functools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bsatnp.datasets import era5
from bsatnp.datasets.era5_tasks import Era5Tasks, standard
from paper.folders import ROOT
from paper.models import SPACE, bases, bsa_tnp, others
from paper.protocol import Experiment, Make, Preset, lite_budget

#: Elevation and hour of the day; latitude and longitude; time.
WIDTHS = {"x": 2, "s": 2, "t": 1}

#: Length scales at which the bases of time start, in hours.
HOURS = (3.0, 48.0)

#: The real sample of five days.
SAMPLE = ROOT.parent / "shared" / "data" / "era5" / "era5_europe_t2m_elev_20220701-05_6h.nc"

#: Windows of a quarter of the area at the paper's density.
LITE = {"window": 15, "n_ctx": (11, 56), "ctx_sizes": (224,)}


@functools.cache
def regions(data: Path) -> dict[str, era5.Era5]:
    """The paper's three boxes; the north only as far as the data go."""
    whole = era5.load(data)
    north = dataclasses.replace(era5.NORTHERN, north=min(era5.NORTHERN.north, float(whole.latitude[-1])))
    boxes = {"central": era5.CENTRAL, "northern": north, "western": era5.WESTERN}
    return {name: whole.within(box) for name, box in boxes.items()}


def stream(data: Path, name: str, **options: Any) -> Era5Tasks:
    """Tasks from one box, scaled by the central one."""
    parts = regions(data)
    return Era5Tasks(parts[name], standard(parts["central"]), **options)


def full(validation: str, test: str, data: Path | None = None) -> Preset:
    """The paper's budget: 100,000 batches of 8 at a constant learning rate."""
    if data is None:
        raise ValueError("`--data` must name ERA5 data of a year, see `bsatnp.datasets.era5.download`, got none.")
    return Preset(
        train=stream(data, "central"),
        validation=stream(data, validation),
        tests={test: stream(data, test)},
        steps=100_000,
        validate_every=5_000,
        validation_batches=5_000,
        test_batches=5_000,
        peak=5e-4,
        end=5e-4,
        published={test: test},
    )


def lite(validation: str, test: str, data: Path | None = None) -> Preset:
    """3,000 batches of 8 windows of a quarter of the area; the west also in the paper's own windows."""
    data = data or SAMPLE
    domains = {test: stream(data, test, **LITE)}
    if test == "western":
        domains["western doubled"] = stream(data, "western")
    train, valid = (stream(data, name, **LITE) for name in ("central", validation))
    return lite_budget(train, domains, {}, test_batches=100, validation=valid)


def models(hour: float) -> dict[str, Make]:
    """The models of the paper's tables, where an hour is `hour` units of scaled time."""
    lengths: Mapping[str, tuple[float, float]] = {"s": SPACE, "t": (HOURS[0] * hour, HOURS[1] * hour)}
    ours = partial(bsa_tnp, WIDTHS, lengths=lengths)
    return {"bsa-tnp": ours, **others(WIDTHS), **bases(WIDTHS, lengths=lengths)}


def models_for(preset: Preset) -> dict[str, Make]:
    """The models, with bases of time that start at hours in the scaling of these data."""
    train: Any = preset.train
    return models(1 / float(train.scaling.t.width[0]))


def _experiment(name: str, validation: str, test: str) -> Experiment:
    title = f"ERA5 {name[-3:].upper()}: trained on central, validated on {validation}, tested on {test} Europe"
    presets = {"full": partial(full, validation, test), "lite": partial(lite, validation, test)}
    return Experiment(name, title, models(1.0), presets, default_data=SAMPLE, models_for=models_for)


CNW = _experiment("era5-cnw", "northern", "western")
CWN = _experiment("era5-cwn", "western", "northern")
