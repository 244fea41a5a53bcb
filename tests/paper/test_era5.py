"""ERA5 as the paper has it, on a made-up Europe; and the real five days from end to end."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
import xarray

from bsatnp.bias import RBFNetwork, Sum
from bsatnp.datasets import era5 as data
from bsatnp.groups import On, TimeShift, Translation
from bsatnp.layers import Identity
from bsatnp.models import BSATNP
from paper import runner
from paper.experiments import era5, experiment
from paper.runner import Job, run


@pytest.fixture(scope="module")
def europe(tmp_path_factory):
    """A file of six frames on all of the paper's boxes."""
    file = tmp_path_factory.mktemp("era5") / "europe.nc"
    latitude, longitude = np.arange(62, 41.9, -0.25), np.arange(-4, 28.1, 0.25)
    time = np.datetime64("2019-01-01T00", "ns") + np.arange(6) * np.timedelta64(6, "h")
    noise = np.random.default_rng(0).normal(280, 5, (6, len(latitude), len(longitude)))
    height = np.random.default_rng(1).uniform(0, 900, (len(latitude), len(longitude)))
    axes = ("time", "latitude", "longitude")
    fields = {"t2m": (axes, noise.astype(np.float32), {"units": "K"}), "elevation": (axes[1:], height)}
    coordinates = {"time": time, "latitude": latitude, "longitude": longitude}
    xarray.Dataset(fields, coords=coordinates).to_netcdf(file)
    return file


@pytest.mark.parametrize(("name", "valid", "test"), [("era5-cnw", 37, "western"), ("era5-cwn", 45, "northern")])
def test_full_budget_is_the_papers(europe, name, valid, test):
    preset: Any = experiment(name).preset("full", europe)
    train, validation = preset.train, preset.validation
    assert (preset.steps, preset.validate_every, preset.validation_batches, preset.test_batches) == (
        *(100_000, 5_000, 5_000, 5_000),
    )
    assert (preset.peak, preset.end, preset.warmup) == (5e-4, 5e-4, 0)
    assert (train.batch, train.window, train.n_ctx, train.frames, train.hours) == (8, 30, (45, 225), 5, 6)
    assert train.data.temperature.shape == (6, 45, 81)
    assert len(validation.data.latitude) == valid and list(preset.tests) == [test]
    assert preset.published == {test: test}
    task = preset.tests[test](0, key=jax.random.key(0))
    assert task.tgt.f.shape == (8, 900, 1) and task.ctx.f.shape[1] in (768, 896)


def test_full_budget_says_where_data_come_from():
    with pytest.raises(ValueError, match=r"`--data` must name ERA5 data of a year, see .*download.*got none"):
        experiment("era5-cnw").preset("full", None)


def test_bases_of_time_start_at_hours_whatever_the_scaling(europe):
    there = experiment("era5-cnw")
    preset: Any = there.preset("full", europe)
    model: Any = there.make("bsa-tnp", key=jax.random.key(0), preset=preset)
    rate = np.exp(np.asarray(model.bias.terms[1].log_rate))
    hours = 1 / np.sqrt(2 * rate) * preset.train.scaling.t.width[0]
    np.testing.assert_allclose([hours.min(), hours.max()], era5.HOURS, rtol=1e-3)
    assert dict(model.embedded) == {"x": 2}
    assert set(there.models) == set(era5.models_for(preset))


def test_the_five_real_days_run_from_end_to_end(tmp_path, monkeypatch):
    if not era5.SAMPLE.exists():
        pytest.skip("the ERA5 sample is not in ../shared/data/era5")

    def model(*, key):
        bias = Sum(RBFNetwork(On("s", Translation(2)), heads=2), RBFNetwork(On("t", TimeShift()), heads=2))
        sizes = {"depth": 1, "dim": 16, "heads": 2, "width": 16, "embed_sizes": (16,), "hidden": 16}
        return BSATNP(embed={"x": Identity(2)}, bias=bias, **sizes, key=key)

    def lite(folder=None):
        few = {"steps": 4, "validate_every": 2, "validation_batches": 1, "test_batches": 2, "warmup": 1}
        whole = era5.CNW.presets["lite"](folder)
        return dataclasses.replace(whole, tests={"western": whole.tests["western"]}, **few)

    small = dataclasses.replace(era5.CNW, models_for=lambda preset: {"bsa-tnp": model}, presets={"lite": lite})
    monkeypatch.setattr(runner, "find", lambda name: small)
    result = run(Job("era5-cnw", "bsa-tnp", "lite", 0, results=tmp_path, runs=tmp_path / "runs"), progress=False)
    assert result is not None and list(result["tests"]) == ["western"]
    assert 0 < result["tests"]["western"]["nll"] < 5
    assert "-4 to 8 E" in result["streams"]["western"]
    assert result["published"] == {} and result["tests"]["western"]["values"] == 2 * 8 * 225
    northern: Any = era5.CWN.presets["lite"](None).tests["northern"]
    assert "53 to 60 N" in northern.place
    tests: Any = era5.CNW.presets["lite"](None).tests
    quarter, whole = tests["western"], tests["western doubled"]
    assert quarter.window * 2 == whole.window
    assert quarter.n_ctx == tuple(round(n / 4) for n in whole.n_ctx)
    assert data.NORTHERN.north == 62
