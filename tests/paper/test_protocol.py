"""Every experiment's tasks and budgets against the numbers in the paper."""

import dataclasses

import jax
import numpy as np
import pytest

from bsatnp.simulate import GPTasks
from paper import published
from paper.experiments import MODULES, experiment
from paper.experiments.gp import Windows

KEY = jax.random.key(0)
SYNTHETIC = sorted(set(MODULES) - {"beijing", "era5-cnw", "era5-cwn"})

#: steps, tasks in a batch, steps between validations, their batches, test batches, first and last learning rate.
PAPER = {
    "gp": (100_000, 8, 10_000, 5_000, 5_000, 1e-4, 2e-5),
    "gp-multiscale": (100_000, 32, 10_000, 5_000, 5_000, 1e-4, 2e-5),
    "sphere": (100_000, 8, 10_000, 5_000, 5_000, 1e-4, 2e-5),
    "sir": (100_000, 8, 10_000, 5_000, 5_000, 1e-4, 1e-5),
    "gneiting": (50_000, 4, 5_000, 500, 500, 1e-3, 1e-5),
}

#: points in the bucket of the context, targets.
POINTS = {
    "gp": (512, 1024),
    "gp-multiscale": (128, 128),
    "sphere": (512, 1024),
    "sir": (512, 1024),
    "gneiting": (60, 256),
}


@pytest.fixture(scope="module")
def presets():
    return {(name, preset): experiment(name).presets[preset](None) for name in SYNTHETIC for preset in ("full", "lite")}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_full_budget_is_the_papers(name, presets):
    preset = presets[name, "full"]
    rates = preset.steps, preset.train.batch, preset.validate_every, preset.validation_batches, preset.test_batches
    assert (*rates, preset.peak, preset.end) == PAPER[name]
    assert preset.warmup == 0


@pytest.mark.parametrize("name", SYNTHETIC)
def test_models_train_and_test_on_what_the_paper_says(name, presets):
    preset = presets[name, "full"]
    stream = preset.train if name != "gp-multiscale" else preset.validation
    shapes = jax.eval_shape(lambda: stream(0, key=KEY)) if name == "gneiting" else None
    ctx, tgt = POINTS[name]
    if shapes is None:
        assert (max(stream.ctx_sizes), stream.n_tgt) == (ctx, tgt)
    else:
        assert (shapes.ctx.mask.shape, shapes.tgt.mask.shape) == ((4, ctx), (4, tgt))


@pytest.mark.parametrize("name", sorted(set(SYNTHETIC) - {"gneiting", "gp-multiscale"}))
def test_lite_domain_has_the_papers_density_on_a_quarter_of_the_area(name, presets):
    full, lite = presets[name, "full"].train, presets[name, "lite"].train
    half = (lambda s: s.half_width) if name == "sphere" else (lambda s: (s.domain[1] - s.domain[0]) / 2)
    assert half(full) == 2 * half(lite)
    assert full.n_tgt == 4 * lite.n_tgt
    assert full.n_ctx == (4 * lite.n_ctx[0], 4 * lite.n_ctx[1])
    assert presets[name, "lite"].steps == 3_000 and lite.batch == 8


def test_ablations_of_the_learning_rate_change_nothing_else(presets):
    lite, full = presets["gp", "lite"], presets["gp", "full"]
    plain, cold = (experiment("gp").presets[name](None) for name in ("lite-paper-rate", "lite-no-warmup"))
    assert (plain.peak, plain.end, plain.warmup) == (full.peak, full.end, full.warmup) != (lite.peak, lite.end, 0)
    assert cold.warmup == 0 < lite.warmup
    for changed in (plain, cold):
        assert dataclasses.replace(changed, peak=lite.peak, end=lite.end, warmup=lite.warmup) == lite


def test_an_hour_has_the_tests_of_the_lite_budget_and_tasks_of_its_density(presets):
    hour, lite = experiment("gp").presets["hour"](None), presets["gp", "lite"]
    assert hour.validation == lite.validation
    assert {name: hour.tests[name] for name in lite.tests} == lite.tests
    assert set(hour.tests) - set(lite.tests) == {"scaled, in windows"}
    assert {name: hour.published.get(name) for name in lite.published} == lite.published
    brief, tasks = hour.train, lite.train
    assert isinstance(brief, GPTasks) and isinstance(tasks, GPTasks)
    assert (brief.domain, brief.n_ctx) == (tasks.domain, tasks.n_ctx)
    assert hour.steps * brief.batch > lite.steps * tasks.batch


def test_windows_hold_every_target_once_and_the_context_around_it():
    tasks = GPTasks(batch=2, n_ctx=(60, 64), ctx_sizes=(64,), n_tgt=100, domain=(-1.5, 2.5), shift=3.0)
    whole, cut = tasks(5, key=KEY), Windows(**dataclasses.asdict(tasks))(5, key=KEY)
    assert cut.tgt.mask.shape[0] == 2 * 16
    found = np.sort(np.asarray(cut.tgt.f)[np.asarray(cut.tgt.observed)])
    np.testing.assert_array_equal(found, np.sort(np.asarray(whole.tgt.f).ravel()))
    places, known = (np.asarray(side.index["s"]) for side in (cut.tgt, cut.ctx))
    corner = np.floor(places - 1.5) + 1.5  # squares start at 1.5
    for square, here in enumerate(np.asarray(cut.tgt.mask)):
        mine, near = corner[square][here], known[square][np.asarray(cut.ctx.mask)[square]]
        assert (mine == mine[0]).all()
        assert ((near >= mine[0] - 0.5) & (near <= mine[0] + 1.5)).all()
        every = np.asarray(whole.ctx.index["s"])[square // 16][np.asarray(whole.ctx.mask)[square // 16]]
        assert len(near) == ((every >= mine[0] - 0.5) & (every <= mine[0] + 1.5)).all(-1).sum()


@pytest.mark.parametrize("name", SYNTHETIC)
def test_lite_batches_are_alike_in_every_domain(name, presets):
    preset = presets[name, "lite"]
    task = preset.train(0, key=KEY)
    assert all(np.isfinite(np.asarray(value)).all() for value in jax.tree.leaves(task.tgt.index))
    for domain, stream in preset.tests.items():
        assert set(preset.published) <= set(preset.tests)
        other = jax.eval_shape(lambda stream=stream: stream(0, key=KEY)) if name != "sir" else task
        assert set(other.tgt.index) == set(task.tgt.index), domain


def test_published_domains_exist():
    for name in SYNTHETIC:
        for preset in ("full", "lite"):
            for theirs in experiment(name).presets[preset](None).published.values():
                assert (name, theirs) in published.numbers()


def test_published_numbers_are_those_of_the_papers_tables():
    found = published.numbers()
    assert found["gp", "original"]["bsa-tnp"]["nll"] == "-0.32±0.00"
    assert found["gp", "shifted"]["tnp-d"]["nll"].startswith("20.19±")
    assert found["gneiting", "original"]["bsa-tnp-bias"]["rmse"].startswith("0.99±")
    assert found["beijing", "original"]["bsa-tnp-bias"]["nll"].startswith("-1.82±")


def test_models_have_the_papers_sizes():
    gp, gneiting = experiment("gp"), experiment("gneiting")
    names = ("bsa-tnp", "bsa-tnp-basis-10", "tnp-d", "te-tnp", "pt-te-tnp-32")
    shapes = {name: jax.eval_shape(lambda name=name: gp.make(name, key=KEY)) for name in names}
    sizes = {name: sum(leaf.size for leaf in jax.tree.leaves(shape)) for name, shape in shapes.items()}
    expected = {"bsa-tnp": 475_770, "tnp-d": 474_754, "te-tnp": 642_858, "pt-te-tnp-32": 1_832_378}
    assert {name: sizes[name] for name in expected} == expected
    assert sizes["bsa-tnp-basis-10"] - sizes["bsa-tnp"] == 6 * 4 * 5 * 2
    both = jax.eval_shape(lambda: gneiting.make("bsa-tnp-embed-bias", key=KEY))
    assert both.bias is not None and dict(both.embedded) == {"s": 2, "t": 1}
    bases = [term.weight.shape[-1] for term in both.bias.terms]
    assert bases == [5, 3]
    assert jax.eval_shape(lambda: gneiting.make("tnp-d", key=KEY)).norm_out is not None  # pre-norm


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: experiment("no"), "`experiment`"),
        (lambda: experiment("gp").make("no", key=KEY), "`model`"),
        (lambda: experiment("gp").preset("no"), "`preset`"),
    ],
)
def test_unknown_names_are_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()
