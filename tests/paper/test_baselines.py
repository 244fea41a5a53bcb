"""Gaussian processes of each task: the exact one against our own posterior, fitted ones on what they can learn."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from bsatnp import Points
from bsatnp.simulate import SquaredExponential, posterior
from paper import baselines
from paper.tasks_apart import run, tune

tinygp = pytest.importorskip("tinygp", reason="tinygp, which comes with the extra `paper`, is not installed")
pytest.importorskip("gpjax", reason="GPJax, which comes with the extra `paper`, is not installed")

RNG = np.random.default_rng(0)
KERNEL = SquaredExponential(lengthscale=0.5)


@pytest.fixture(autouse=True)
def lenient():
    """The libraries mix types and ranks."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def smooth(n: int, *, hour: bool = False) -> Points:
    """A wave in the plane with little noise; with an elevation that means nothing and an hour, which adds to it."""
    s = RNG.uniform(-1, 1, (n, 2))
    f = np.sin(3 * s[:, 0]) + s[:, 1]
    index = {"s": s}
    if hour:
        index["x"] = np.stack([RNG.normal(size=n), RNG.choice([-1.0, 0.0, 1.0], n)], 1)
        f = f + index["x"][:, 1]
    return Points(index, (f + 0.05 * RNG.normal(size=n))[:, None])


def test_the_known_process_is_the_exact_posterior():
    ctx, tgt = smooth(30), smooth(20)
    found = baselines.known(KERNEL, ctx, tgt, noise=0.1, tgt_noise=0.1)
    exact = posterior(KERNEL, ctx, tgt, noise=0.1, tgt_noise=0.1)
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-6)
    np.testing.assert_allclose(found.std**2, exact.variance, atol=1e-6)


@pytest.mark.parametrize(("method", "hour"), [("fitted", False), ("sparse", True)])
def test_fitted_processes_learn_a_wave_in_any_unit(method, hour):
    if method == "sparse":
        fit = partial(baselines.sparse, key=jax.random.key(0), settings=baselines.Sparse(32, 300, 0.02))
    else:
        fit = partial(baselines.fitted, steps=100)
    ctx, tgt = smooth(80, hour=hour), smooth(40, hour=hour)
    found = fit(ctx, tgt, noisy=True)
    truth = tgt.f[:, 0]
    assert np.sqrt(np.mean((found.mean - truth) ** 2)) < 0.35 * truth.std()
    assert np.mean(np.abs(found.mean - truth) < 1.96 * found.std) > 0.8
    assert (found.std < truth.std()).mean() > 0.9
    other = fit(dataclasses.replace(ctx, f=280 + 10 * ctx.f), tgt, noisy=True)
    np.testing.assert_allclose((other.mean - 280) / 10, found.mean, atol=0.05 * truth.std())
    np.testing.assert_allclose(other.std / 10, found.std, rtol=0.1)


def test_the_known_process_of_an_experiment_has_no_gap(tmp_path):
    result = run("gneiting", "gp-known", "lite", batches=1, results=tmp_path / "results", runs=tmp_path / "runs")
    assert abs(result["exact"]["original"]["gap"]) < 1e-4
    test = result["tests"]["original"]
    assert test["values"] == 4 * 256 and test["seconds"] > 0
    assert result["train_seconds"] == 0 and 4 * test["seconds"] == pytest.approx(sum(result["test_seconds"].values()))
    assert list((tmp_path / "results" / "gneiting").iterdir())[0].name == "gp-known-lite-seed0.json"


def test_the_settings_of_the_sparse_process_are_among_those_that_are_tuned(monkeypatch):
    monkeypatch.setattr(baselines, "sparse", lambda ctx, tgt, **how: baselines.known(KERNEL, ctx, tgt, noise=0.1))
    found = dict(tune("gneiting", "svgp", "lite", tasks=1))
    assert baselines.Sparse() in found and len(found) == 9
    assert all(np.isfinite(scores["nll"]) for scores in found.values())
