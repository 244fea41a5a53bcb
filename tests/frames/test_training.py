"""What `fit` trains on and what it keeps, how much its tasks vary, and what is simulated."""

from types import SimpleNamespace

import equinox as eqx
import jax
import numpy as np
import pytest

from bsatnp import frames
from bsatnp.frames import fitting, simulated
from bsatnp.frames.default import default_splits
from bsatnp.frames.drawing import Rows, Stream
from bsatnp.frames.roles import lengths
from bsatnp.frames.simulated import Simulated
from bsatnp.simulate import Matern, SquaredExponential
from bsatnp.tasks import Points
from bsatnp.train import Fit
from tests.frames.conftest import SOIL, soil_data, tiny

HISTORY = [{"step": step, "validation_nll": nll} for step, nll in ((2, 3.0), (4, 1.0), (6, 2.0))]


@pytest.fixture(scope="module")
def run():
    """A `fit` of rows some of which are there twice, whose training moves every weight and is best on its way."""
    seen = SimpleNamespace()

    def build(columns, index, head, *, key):
        seen.index = index
        return tiny(columns, index, head, key=key)

    def train(model, stream, **options):
        seen.stream, seen.options = stream, options
        last, best = (jax.tree.map(lambda w, by=by: w + by if eqx.is_inexact_array(w) else w, model) for by in (1, 0.1))
        seen.last, seen.best = last, best
        return Fit(last, best, HISTORY, 6)

    data = soil_data()
    data.iloc[50:54] = data.iloc[20:24]
    seen.data = data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "train", train)
        seen.fitted = frames.fit(data, SOIL, key=jax.random.key(0), steps=50, batch=2, model=build, progress=False)
    return seen


def places(points):
    return {tuple(row) for row in np.asarray(points.index["s"])[np.asarray(points.mask)]}


def test_training_sees_no_held_out_row_and_validation_asks_for_nothing_else(run):
    allowed, rows, report = run.stream.allowed, run.stream.rows, run.fitted.report
    assert len(allowed) == report.used == 58
    assert (~allowed).sum() == report.held_out and 8 <= report.held_out <= 12
    assert report.repeated == 4
    known, asked = (places(rows.points.take(np.flatnonzero(part))) for part in (allowed, ~allowed))
    tasks = run.options["validation"].tasks
    assert not known & asked and len(tasks) == 16
    for task in tasks:
        assert places(task.tgt) <= asked and places(task.ctx) <= known


def test_scales_and_lengths_are_those_of_the_training_rows(run):
    points = run.stream.rows.points.take(np.flatnonzero(run.stream.allowed))
    f, x = np.where(points.observed, points.f, np.nan), points.index["x"][:, :1]
    for values in (f, x):
        np.testing.assert_allclose(np.nanmean(values, 0), 0, atol=1e-9)
        np.testing.assert_allclose(np.nanstd(values, 0), 1, rtol=1e-9)
    for name, values in run.index.items():
        np.testing.assert_array_equal(values, points.index[name])
    short, long = lengths(points.index["s"])
    assert run.stream.share == 1 and run.stream.simulated.lengths["s"] == (2 * short, 4 * long)
    elev = run.fitted.encoding.index["x"].inverse(run.stream.rows.points.index["x"])[:, 0]
    np.testing.assert_allclose(elev, run.data.elev[run.data.elev.notna() & run.data.zinc.notna()])


def test_the_best_model_is_kept_and_scored(run):
    fitted, tasks = run.fitted, run.options["validation"].tasks
    jax.tree.map(np.testing.assert_array_equal, *(eqx.filter(m, eqx.is_array) for m in (fitted.model, run.best)))
    scored = [fitting._scores(model, fitted.encoding, tasks)["acid"]["nll"] for model in (run.best, run.last)]
    assert fitted.report.scores["acid"]["nll"] == scored[0] != scored[1]
    assert (fitted.report.best_step, fitted.report.steps, fitted.report.history) == (4, 6, HISTORY)


def test_training_stops_after_half_of_its_validations_without_a_better_score(run):
    every = run.options["validate_every"]
    assert (run.options["steps"], every, run.options["log_every"]) == (50, 2, 2)
    (stop,) = run.options["callbacks"]
    stopped = [stop(step, {"validation_nll": 1.0}, None) for step in range(2, 52, 2)]
    assert stopped.index(True) == 13  # 26 steps after the first


def test_patience_counts_from_the_lowest_score():
    stop = fitting._patience(3)
    given = [5.0, 6.0, 4.0, 4.5, 4.0, None]
    rows = [{} if nll is None else {"validation_nll": nll} for nll in given]
    assert [stop(step, row, None) for step, row in enumerate(rows, 1)] == [False] * 5 + [True]


def test_minutes_pay_for_compilation_twice_and_for_steps(run, monkeypatch):
    clock = [100.0]

    def train(model, stream, *, steps, **options):
        clock[0] += 10
        return SimpleNamespace(history=[{"seconds": seconds} for seconds in (5, 8, 8.5, 9, 9.5, 10)[:steps]])

    monkeypatch.setattr(fitting, "train", train)
    monkeypatch.setattr(fitting, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    assert fitting._affordable(run.last, run.stream, 100.0, key=jax.random.key(0)) == round(0.85 * 80 / 0.5)
    with pytest.warns(UserWarning, match="`minutes` must leave time for 10 updates beside compiling, got 0.25"):
        assert fitting._affordable(run.last, run.stream, 15.0, key=jax.random.key(0)) == 10


def test_minutes_are_seconds_by_sixty(monkeypatch):
    asked = []

    def affordable(model, stream, limit, *, key):
        asked.append((limit, stream.allowed.sum()))
        return 75

    def train(model, stream, *, steps, **options):
        asked.append((steps, stream.allowed.sum()))
        return Fit(model, model, HISTORY, steps)

    monkeypatch.setattr(fitting, "_affordable", affordable)
    monkeypatch.setattr(fitting, "train", train)
    options = {"batch": 2, "model": tiny, "progress": False}
    report = frames.fit(soil_data(), SOIL, key=jax.random.key(0), minutes=1.5, **options).report
    assert asked == [(90, 49), (75, 49)] and report.steps == 75


def scattered(n, *, time=None):
    s = np.random.default_rng(1).normal(size=(n, 2))
    index = {"s": s} if time is None else {"s": s, "t": time[:, None]}
    return Rows(Points(index, np.zeros((n, 1))), s, time)


@pytest.mark.parametrize(("splits", "least"), [(frames.Random(90, 16), 30), (frames.Windows(80, 20), 20)])
def test_tasks_have_few_points_and_many(splits, least):
    data, rng = scattered(400), np.random.default_rng(0)
    drawn = [splits.draw(data, np.ones(400, bool), rng) for _ in range(100)]
    counts = np.array([len(ctx) for ctx, _ in drawn])
    assert counts.min() >= least and counts.max() <= splits.n_ctx
    assert counts.min() < 1.3 * least and counts.max() > 0.95 * splits.n_ctx and len(set(counts)) > 30
    assert {len(tgt) for _, tgt in drawn} == {splits.n_tgt}


def test_random_splits_are_validated_from_all_of_the_context_to_a_third():
    data, splits = scattered(200), frames.Random(90, 16)
    held = splits.hold_out(data, 0.2, np.random.default_rng(0))
    counts = [len(task.ctx) for task in splits.validation(data, held, np.random.default_rng(0), 30)]
    assert counts == list(range(90, 30, -2))


@pytest.mark.parametrize("step", [1.0, 0.3])
def test_every_forecast_has_the_whole_horizon(step):
    """Also where differences of times are rounded."""
    number, rng = np.repeat(np.arange(50), 4), np.random.default_rng(0)
    data, splits = scattered(200, time=step * number), frames.Forecasts(100, 100, history=8 * step, horizon=5 * step)
    drawn = [splits.draw(data, number < 40, rng) for _ in range(300)]
    assert {len(tgt) for _, tgt in drawn} == {20}
    assert {number[tgt].min() for _, tgt in drawn} == set(range(1, 35))
    assert all(len(ctx) == 4 * min(number[tgt].min(), 8) for ctx, tgt in drawn)


def test_a_share_of_the_tasks_is_simulated():
    made = []

    def note(task, rng):
        made.append(task)
        return task

    stream = Stream(frames.Random(9, 4), scattered(40), np.ones(40, bool), 400, note, 0.3)
    stream(0, key=jax.random.key(0))
    assert 80 < len(made) < 160


def test_default_splits_go_by_the_number_of_rows():
    columns = frames.Columns("v", space=frames.Plane("x", "y"))
    for n, splits in (
        (100, frames.Random(75, 25)),
        (1500, frames.Random(256, 64)),
        (1501, frames.Windows(256, 64)),
        (2000, frames.Windows(256, 64)),
    ):
        assert default_splits(columns, {"s": np.zeros((n, 2))}) == splits


@pytest.mark.parametrize("kernel", [Matern(nu=0.5), Matern(nu=1.5), SquaredExponential()])
def test_simulated_values_are_rough_or_smooth(kernel, monkeypatch):
    r, shape, drawn = np.linspace(0, 4, 30), simulated._shape, []
    kinds = [np.allclose(shape(r, kind), kernel(r[:, None], np.zeros(1)), rtol=1e-6) for kind in range(3)]
    assert sum(kinds) == 1

    def note(r, kind):
        drawn.append(kind)
        return shape(r, kind)

    monkeypatch.setattr(simulated, "_shape", note)
    made, rng = Simulated((frames.Plane("x"),), {"s": (0.5, 0.5)}, 1), np.random.default_rng(0)
    for _ in range(200):
        made.draw({"s": r[:, None]}, rng)
    assert 40 < drawn.count(kinds.index(True)) < 95


def test_simulated_values_follow_a_line_in_the_covariates_every_other_time():
    made, rng = Simulated((), {"x": (1e9, 1e9)}, 1), np.random.default_rng(0)
    x = np.linspace(-1000, 1000, 20)[:, None]
    straight = [abs(np.corrcoef(made.draw({"x": x}, rng)[:, 0], x[:, 0])[0, 1]) > 0.98 for _ in range(300)]
    assert 0.4 < np.mean(straight) < 0.6


def test_simulated_values_depend_on_distance_in_the_covariates():
    """Means of three bundles of points, which noise hardly moves, do not lie on a line."""
    made, rng = Simulated((), {"x": (1e-3, 1e-3)}, 1), np.random.default_rng(0)
    x = np.repeat([-0.05, 0.0, 0.05], 30)[:, None]
    bends = [made.draw({"x": x}, rng)[:, 0].reshape(3, 30).mean(1) @ [1, -2, 1] for _ in range(300)]
    assert 0.4 < np.mean(np.abs(bends) > 0.8) < 0.8


def test_simulated_noise_goes_from_little_to_most_of_the_variance():
    made, rng = Simulated((frames.Plane("x"),), {"s": (1.0, 1.0)}, 1), np.random.default_rng(0)
    noise = [made.draw({"s": np.zeros((80, 1))}, rng).var() for _ in range(400)]
    low, middle, high = np.quantile(noise, [0.02, 0.5, 0.98])
    assert 5e-4 < low < 2e-3 and 0.015 < middle < 0.045 and 0.4 < high < 1.5


def test_simulated_outputs_have_unit_variance_and_share_their_causes():
    rng = np.random.default_rng(0)
    mix = simulated._mixing(3, rng)
    np.testing.assert_allclose(np.linalg.norm(mix, axis=0), 1)
    made, s = Simulated((frames.Plane("x"),), {"s": (1e-3, 1e-3)}, 2), np.arange(100.0)[:, None]
    alike = [abs(np.corrcoef(made.draw({"s": s}, rng).T)[0, 1]) for _ in range(100)]
    assert np.median(alike) > 0.3
