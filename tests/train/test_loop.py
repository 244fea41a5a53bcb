"""The loop: what it minimises, what it records, what it leaves alone."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bsatnp import checkpoint
from bsatnp.likelihoods import AbstractHead
from bsatnp.models import AbstractModel
from bsatnp.tasks import Points, Task
from bsatnp.train import EpochStream, evaluate, fit, mean_nll, optimizer
from tests.train.conftest import Holder, one_step

SGD = optax.sgd(0.01)


def test_learns_a_plane(line, stream):
    plane = optimizer(400, peak=0.05, end=1e-3, weight_decay=0.0)
    run = fit(line(), stream, steps=400, key=jax.random.key(1), optimizer=plane, progress=False)
    slope = np.asarray(run.model.weight[:, 0])
    np.testing.assert_allclose(slope, [1.0, -2.0], atol=0.15)
    assert run.history[-1]["loss"] < run.history[0]["loss"] - 0.3
    assert run.best is run.model and run.steps == 400
    assert [row["step"] for row in run.history] == list(range(50, 401, 50))


def test_optimisers_that_look_at_the_loss(line, stream):
    """A rate that falls when the loss does not."""
    rate = optax.contrib.reduce_on_plateau(factor=0.5, patience=1, rtol=0.5)
    run = fit(line(), stream, steps=6, key=jax.random.key(0), optimizer=optax.chain(SGD, rate), progress=False)
    assert np.isfinite(run.history[-1]["loss"])


def test_a_part_that_the_optimiser_freezes_stays(line, stream, same_bits):
    """As the page on models says."""

    def labels(params):
        learnt = jax.tree.map(lambda _: "learnt", params)
        return eqx.tree_at(lambda m: m.weight, learnt, jax.tree.map(lambda _: "frozen", params.weight))

    optimizer = optax.multi_transform({"learnt": optax.adamw(1e-3), "frozen": optax.set_to_zero()}, labels)
    model = line()
    got = fit(model, stream, steps=2, optimizer=optimizer, key=jax.random.key(0), progress=False).model
    assert same_bits(got.weight, model.weight)
    assert (got.bias != model.bias).all()


def test_losses_and_targets_that_cannot_be(line, stream):
    given = {"steps": 2, "key": jax.random.key(0), "optimizer": SGD, "progress": False}
    losses: Any = (lambda model, task: 1.0, lambda model, task: (mean_nll(model, task), {"kl": 0.0}))
    for loss in losses:
        with pytest.raises(ValueError, match="`loss` must give a scalar array, or that and a model, got"):
            fit(line(), stream, loss=loss, **given)

    def bare(step, *, key):
        task = stream(step, key=key)
        return Task(task.ctx, Points(task.tgt.index, mask=task.tgt.mask))

    with pytest.raises(ValueError, match="`task.tgt` must hold values to learn from"):
        fit(line(), bare, **given)


def test_mean_nll_counts_observed_targets_only(line, stream):
    task = stream(0, key=jax.random.key(0))
    observed = np.asarray(jax.random.bernoulli(jax.random.key(1), 0.5, task.tgt.f.shape))
    f = jnp.where(observed, task.tgt.f, jnp.inf)
    hidden = eqx.tree_at(lambda t: (t.tgt.f, t.tgt.observed), task, (f, jnp.asarray(observed)))
    predicted = jax.vmap(line())(task.ctx, task.tgt)
    mean, std, values = (np.asarray(x, np.float64) for x in (predicted.mean, predicted.std, task.tgt.f))
    nll = 0.5 * ((values - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)
    loss, gradient = eqx.filter_value_and_grad(mean_nll)(line(), hidden)
    np.testing.assert_allclose(loss, nll[observed].mean(), rtol=1e-5)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_a_batch_without_targets_trains_nothing(line, stream):
    def blank(step, *, key):
        task = stream(step, key=key)
        none = (jnp.zeros_like(task.tgt.mask), jnp.zeros_like(task.tgt.observed))
        return eqx.tree_at(lambda t: (t.tgt.mask, t.tgt.observed), task, none)

    def first(step, *, key):
        return (blank if step else stream)(step, key=key)

    known = {"optimizer": optax.sgd(0.1)}
    run = fit(line(), first, **one_step(known | {"steps": 3, "log_every": 1}))
    np.testing.assert_array_equal(run.model.weight, fit(line(), stream, **one_step(known)).model.weight)
    assert run.history[-1]["loss"] == 0.0 and run.history[-1]["gradient_norm"] == 0.0
    with pytest.raises(ValueError, match="`stream` must give observed targets, got none in 3 batches"):
        fit(line(), blank, **one_step(known | {"steps": 3}))
    late = lambda step, *, key: (stream if step else blank)(step, key=key)  # noqa: E731
    fit(line(), late, **one_step(known | {"steps": 2, "log_every": 1}))
    fit(line(), blank, **one_step(known | {"loss": lambda model, task: jnp.mean(jnp.square(model.weight))}))


def test_the_model_and_the_batches_of_the_caller_stay_usable(line, stream, same_bits):
    model, batch = line(), stream(0, key=jax.random.key(0))
    kept = []
    run = fit(
        model,
        lambda step, *, key: batch,
        steps=4,
        key=jax.random.key(0),
        validation=stream,
        validation_batches=1,
        validate_every=1,
        callbacks=[lambda step, row, model: kept.append(model)],
        progress=False,
    )
    for tree in (model, batch, *kept, run.model, run.best):
        assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array)))
    assert same_bits(model, line()) and same_bits(kept[-1], run.model) and not same_bits(kept[0], kept[1])


def test_weak_numbers_host_arrays_and_keys_in_a_model(line, stream, tmp_path):
    """They compile once, leave the caller's model alone, and resume."""

    class Odd(AbstractModel):
        head: AbstractHead
        inner: AbstractModel
        weak: jax.Array
        host: np.ndarray
        key: jax.Array

        @property
        def embedded(self):
            return self.inner.embedded

        @property
        def groups(self):
            return self.inner.groups

        def condition(self, ctx):
            return self.inner.condition(ctx)

    model = Odd(line().head, line(), jnp.asarray(1.0), np.ones(2, np.float32), jax.random.key(3))
    traces = []

    def loss(model, task):
        traces.append(model)
        return mean_nll(model.inner, task) + (model.weak - model.host.sum()) ** 2

    def go(**arguments: Any):
        arguments["progress"] = False
        return fit(model, stream, steps=4, key=jax.random.key(0), optimizer=SGD, loss=loss, **arguments)

    whole = go()
    go(checkpoint=tmp_path / "run.npz", log_every=2, callbacks=[lambda step, row, model: True])
    again = go(checkpoint=tmp_path / "run.npz")
    assert len(traces) == 1 and float(model.weak) == 1.0 and jax.random.uniform(model.key).shape == ()
    assert float(again.model.weak) == float(whole.model.weak) != 1.0
    np.testing.assert_array_equal(again.model.host, whole.model.host)


def test_each_step_has_its_own_key(line, stream):
    seen = {}

    def spy(step, *, key):
        seen[step] = jax.random.key_data(key).tolist()
        return stream(step, key=key)

    key = jax.random.key(7)
    fit(line(), spy, steps=5, key=key, progress=False)
    assert seen == {n: jax.random.key_data(jax.random.fold_in(key, n)).tolist() for n in range(5)}


def test_no_step_could_make_the_keys_of_the_validation(line, stream):
    key, found = jax.random.key(7), []

    def spy(step, *, key):
        found.append(jax.random.key_data(key).tolist())
        return stream(step, key=key)

    fit(line(), stream, steps=3, key=key, validation=spy, validation_batches=2, progress=False)
    first, *validations = found
    assert validations == 3 * validations[:2] and first == validations[0] != validations[1]
    steps = [jax.random.fold_in(key, n) for n in range(3)]
    drawn = steps + [jax.random.fold_in(step, n) for step in steps for n in range(2)]
    assert not any(jax.random.key_data(one).tolist() in validations for one in drawn)


def test_a_validation_has_a_hundred_batches_and_a_checkpoint_is_written_with_each(line, stream, tmp_path):
    validations, written = [], []

    def spy(step, *, key):
        validations.append(step)
        return stream(step, key=key)

    def look(step, row, model):
        written.append((tmp_path / "run.npz").exists())

    arguments: dict[str, Any] = {"key": jax.random.key(0), "optimizer": SGD, "progress": False}
    fit(line(), stream, steps=1, validation=spy, **arguments)
    assert validations == [0, *range(100)]
    fit(line(), stream, steps=20, log_every=1, callbacks=[look], checkpoint=tmp_path / "run.npz", **arguments)
    assert written == [False] + 19 * [True]


def test_the_last_update_is_validated_and_written(line, stream, tmp_path):
    run = fit(
        line(),
        stream,
        steps=5,
        key=jax.random.key(0),
        optimizer=SGD,
        validation=stream,
        validate_every=2,
        validation_batches=2,
        checkpoint=tmp_path / "run.npz",
        checkpoint_every=2,
        progress=False,
    )
    assert [row["step"] for row in run.history if "validation_nll" in row] == [2, 4, 5]
    assert checkpoint.header(tmp_path / "run.npz")["tree"]["dict"]["step"] == 5


def test_d5_compilations_are_as_many_as_shapes(line, host_stream):
    traces = []

    def loss(model, task):
        traces.append((task.ctx.mask.shape, task.tgt.mask.shape))
        return jnp.mean(jnp.square(jax.vmap(model)(task.ctx, task.tgt).mean - task.tgt.f))

    fit(line(), host_stream, steps=20, key=jax.random.key(0), loss=loss, progress=False)
    assert len(traces) == 4 == len(set(traces))


def test_the_loop_does_not_wait_for_the_device(line, stream, monkeypatch):
    fetched = []
    fetch = jax.device_get
    monkeypatch.setattr(jax, "device_get", lambda x: fetched.append(len(x)) or fetch(x))
    fit(line(), stream, steps=25, key=jax.random.key(0), log_every=10, progress=False)
    assert fetched == [10, 10, 5]


def test_history_holds_means_rates_and_validation(line, stream, same_bits):
    def loss(model, task):
        return mean_nll(model, task)

    key = jax.random.key(3)
    arguments: dict[str, Any] = dict(
        steps=9, key=key, loss=loss, validation=stream, validation_batches=2, progress=False
    )
    every = fit(line(), stream, log_every=1, validate_every=1, **arguments)
    run = fit(line(), stream, log_every=4, validate_every=3, **arguments)
    assert same_bits(every.model, run.model)
    assert [row["step"] for row in run.history] == [3, 4, 6, 8, 9]
    parts = ([0, 1, 2], [3], [4, 5], [6, 7], [8])
    for name in ("loss", "gradient_norm"):
        single = [row[name] for row in every.history]
        np.testing.assert_allclose([row[name] for row in run.history], [np.mean([single[i] for i in p]) for p in parts])
    assert ["validation_nll" in row for row in run.history] == [True, False, True, False, True]
    assert run.history[-1]["learning_rate"] == pytest.approx(1e-5) and run.history[0]["gradient_norm"] > 0
    assert run.history[-1]["seconds"] > run.history[0]["seconds"] > 0
    scores = {row["step"]: row["validation_nll"] for row in every.history}
    assert [row["validation_nll"] for row in run.history if "validation_nll" in row] == [
        scores[3],
        scores[6],
        scores[9],
    ]


def test_the_norm_of_the_gradient_is_as_long_as_a_step_of_rate_one(line, stream):
    run = fit(line(), stream, steps=1, key=jax.random.key(0), optimizer=optax.sgd(1.0), progress=False)
    moved = [np.ravel(after - before) for after, before in zip(parameters(run.model), parameters(line()), strict=True)]
    assert run.history[0]["gradient_norm"] == pytest.approx(np.linalg.norm(np.concatenate(moved)), rel=1e-5)


def parameters(model):
    return [np.asarray(leaf) for leaf in (model.weight, model.bias)]


def test_best_is_the_model_of_the_lowest_validation_score(line, stream, same_bits):
    """Ascent makes every model worse than the one before, so that the first validated one is the best."""
    models = []
    run = fit(
        line(),
        stream,
        steps=6,
        key=jax.random.key(0),
        optimizer=optax.sgd(-0.05),
        validation=stream,
        validate_every=2,
        validation_batches=2,
        callbacks=[lambda step, row, model: models.append(model)],
        progress=False,
    )
    scores = [row["validation_nll"] for row in run.history]
    assert scores == sorted(scores) and len(set(scores)) == 3
    assert same_bits(run.best, models[0]) and same_bits(run.model, models[-1])


def test_validation_goes_once_through_an_epoch_stream(line, stream):
    whole = stream(0, key=jax.random.key(5))
    tasks = [jax.tree.map(lambda leaf, i=i: leaf[i], whole) for i in range(3)]
    seen = []

    class Spy(EpochStream):
        def __call__(self, step, *, key=None):
            seen.append(step)
            return super().__call__(step, key=key)

    run = fit(
        line(), stream, steps=2, key=jax.random.key(0), validation=Spy(tasks, 2), validate_every=1, progress=False
    )
    assert seen == [0, 0, 1, 0, 1]  # the first is looked at before the first step
    expected = evaluate(run.model, lambda step, *, key: whole, batches=1, key=jax.random.key(0))
    assert run.history[-1]["validation_nll"] == pytest.approx(expected["nll"], rel=1e-5)


def test_callbacks_stop_the_run(line, stream):
    rows, after = [], []

    def stop(step, row, model):
        rows.append((step, row["loss"]))
        return step >= 4

    callbacks = [stop, lambda step, row, model: after.append(step)]
    run = fit(line(), stream, steps=100, key=jax.random.key(0), log_every=2, callbacks=callbacks, progress=False)
    assert [step for step, _ in rows] == after == [2, 4] and run.steps == 4
    assert [(row["step"], row["loss"]) for row in run.history] == rows


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_stays_and_goes_on(line, stream, kind, tmp_path, same_bits):
    def halved(tree):
        return jax.tree.map(lambda leaf: leaf.astype(kind) if eqx.is_inexact_array(leaf) else leaf, tree)

    half, whole_stream = halved(line()), stream
    stream = lambda step, *, key: halved(whole_stream(step, key=key))  # noqa: E731
    arguments: dict[str, Any] = dict(steps=4, key=jax.random.key(0), optimizer=optimizer(4), log_every=2)
    arguments |= {"progress": False}
    whole = fit(half, stream, **arguments)
    assert whole.model.weight.dtype == kind and not same_bits(whole.model, half)
    path = tmp_path / "run.npz"
    fit(half, stream, checkpoint=path, callbacks=[lambda *_: True], **arguments)
    assert same_bits(fit(half, stream, checkpoint=path, **arguments).model, whole.model)


class Extras(eqx.Module):
    """What a model may hold beside its numbers."""

    function: Any = jax.nn.relu
    text: str = "s"
    number: int = 3
    key: Any = None


def test_a_mesh_gives_back_what_is_no_array(stream):
    model = Holder(Extras(key=jax.random.key(7)))
    arguments: dict[str, Any] = dict(steps=2, key=jax.random.key(0), optimizer=SGD, progress=False)
    alone = fit(model, stream, **arguments).model
    over = fit(model, stream, mesh=jax.make_mesh((1,), ("batch",)), **arguments).model
    for found in (alone, over):
        assert found.part.function is jax.nn.relu and (found.part.text, found.part.number) == ("s", 3)
        assert found.part.key == jax.random.key(7)
    np.testing.assert_allclose(over.weight, alone.weight, rtol=1e-6)


def test_equal_optimisers_are_one_and_a_second_run_compiles_nothing(line, stream):
    assert optimizer(7) is optimizer(7, peak=1e-3) and optimizer(7) is not optimizer(7, clip=1.0)
    traced = []

    def loss(model, task):
        traced.append(1)
        return mean_nll(model, task)

    for seed in range(2):
        fit(line(), stream, steps=2, key=jax.random.key(seed), loss=loss, progress=False)
    assert len(traced) == 1


def test_six_steps_of_the_paper_model_without_warnings(tiny, six, stream, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = fit(tiny, stream, steps=6, key=jax.random.key(1), optimizer=six)
    assert len(run.history) == 1 and np.isfinite(run.history[0]["loss"])
    assert "6/6" in capsys.readouterr().err
