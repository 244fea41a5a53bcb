"""What a run refuses, and when."""

import collections
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bsatnp.checkpoint import CheckpointError
from bsatnp.tasks import Task
from bsatnp.train import fit, mean_nll
from tests.train.conftest import Holder, one_step


@pytest.mark.parametrize("field", ["loss", "gradient"])
def test_what_is_not_finite_stops_the_run_and_names_the_step(line, stream, field, tmp_path):
    def loss(model, task):
        bad = (task.ctx.f > 500).any()
        zero = jnp.abs(model.bias[0] - jax.lax.stop_gradient(model.bias[0]))
        hole = jnp.sqrt(jnp.where(bad, zero, jnp.ones_like(zero)))
        return mean_nll(model, task) + (jnp.where(bad, jnp.nan, 0.0) if field == "loss" else hole)

    def broken(step, *, key):
        task = stream(step, key=key)
        return task if step != 7 else eqx.tree_at(lambda t: t.ctx.f, task, task.ctx.f + 1e3)

    path = tmp_path / "run.npz"
    what = "loss of step 7 is nan" if field == "loss" else r"loss of step 7 is \d.*norm of its gradient (nan|inf)"
    with pytest.raises(FloatingPointError, match=rf"{what}.*stream\(7, key=jax.random.fold_in\(key, 7\)\)"):
        fit(
            line(), broken, steps=20, key=jax.random.key(0), loss=loss, checkpoint=path, checkpoint_every=5,
            log_every=10, progress=False,
        )  # fmt: skip
    run = fit(line(), stream, steps=20, key=jax.random.key(0), checkpoint=path, progress=False, log_every=1)
    assert run.history[0]["step"] == 6, "the checkpoint of step 5 was kept"


def test_a_validation_without_observed_targets_is_an_error(line, stream):
    def blank(step, *, key):
        task = stream(step, key=key)
        return eqx.tree_at(lambda t: t.tgt.observed, task, jnp.zeros_like(task.tgt.observed))

    with pytest.raises(ValueError, match="`stream` must give observed targets, got none in 1 batches"):
        fit(line(), stream, steps=10, key=jax.random.key(0), validation=blank, validation_batches=1, progress=False)


def test_a_validation_that_is_not_finite_is_an_error(line, stream):
    def huge(step, *, key):
        task = stream(step, key=key)
        return eqx.tree_at(lambda t: t.tgt.f, task, task.tgt.f + jnp.finfo(task.tgt.f.dtype).max / 4)

    with pytest.raises(FloatingPointError, match="validation NLL after 1 updates is inf"):
        fit(line(), stream, steps=10, key=jax.random.key(0), validation=huge, validation_batches=1, progress=False)


def test_host_batches_are_checked(line, host_stream):
    def swapped(step, *, key):
        task = host_stream(step, key=key)
        rename = lambda p: eqx.tree_at(lambda q: q.index, p, {"x": p.index["s"]})  # noqa: E731
        return Task(rename(task.ctx), rename(task.tgt))

    with pytest.raises(ValueError, match="must have components"):
        fit(line(), swapped, steps=1, key=jax.random.key(0), progress=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "`steps` must be at least 1, got 0"),
        ({"log_every": 0}, "`log_every` must be at least 1, got 0"),
        ({"validate_every": -1}, "`validate_every` must be at least 1, got -1"),
        ({"steps": True}, "`steps` must be a whole number, got True"),
        ({"stream": 3}, "`stream` must be a function of a step and a key that gives its batch.*got int"),
        ({"stream": lambda step, key: None}, "A stream must give a batch of tasks, a `Task`, got NoneType"),
        ({"validation": [3]}, "`validation` must be a function of a step and a key"),
        ({"validation": lambda step, key: None}, "A stream must give a batch of tasks, a `Task`, got NoneType"),
        ({"callbacks": print}, "`callbacks` must be a list of functions"),
        ({"optimizer": 1e-3}, "`optimizer` must be one of Optax, such as `bsatnp.train.optimizer.steps.`, got 0.001"),
        ({"optimizer": optax.lbfgs()}, "`optimizer` must make updates from gradients and the loss alone.*value_fn"),
        ({"key": jax.random.PRNGKey(0)}, "`key` must be one typed key.*got an array of uint32"),
        ({"key": jax.random.split(jax.random.key(0))}, r"`key` must be one typed key.*\(2,\)"),
    ],
)
def test_arguments_are_checked(line, stream, arguments, message, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        fit(line(), **{"stream": stream} | one_step(arguments))


def test_a_validation_that_cannot_be_is_refused_before_the_first_step(line, stream):
    def one(step, *, key):
        return jax.tree.map(lambda leaf: leaf[0], stream(step, key=key))

    def never(step, *, key):
        raise AssertionError("a step was made")

    with pytest.raises(ValueError, match="`task` must be a batch with axes"):
        fit(line(), never, steps=10, key=jax.random.key(0), validation=one, progress=False)


@pytest.mark.parametrize(
    ("path", "error"), [("nowhere/run.npz", FileNotFoundError), (".", IsADirectoryError), ("run.npz", PermissionError)]
)
def test_a_checkpoint_that_cannot_be_written_stops_the_run_before_its_first_step(
    line, path, error, tmp_path, monkeypatch
):
    if error is PermissionError:  # also for a user who may write everywhere
        monkeypatch.setattr(pathlib.Path, "touch", _refuse)
    never = lambda step, *, key: pytest.fail("no step is made")  # noqa: E731
    with pytest.raises(error, match=path.strip(".") or "folder"):
        fit(line(), never, steps=1, key=jax.random.key(0), checkpoint=tmp_path / path, progress=False)


def _refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_a_model_that_no_file_can_hold_stops_the_run_before_its_first_step(tmp_path):
    model = Holder(collections.Counter("a"))
    never = lambda step, *, key: pytest.fail("no step is made")  # noqa: E731
    with pytest.raises(CheckpointError, match="`model/part` must be"):
        fit(model, never, steps=1, key=jax.random.key(0), checkpoint=tmp_path / "run.npz", progress=False)


@pytest.mark.parametrize(
    ("leaf", "says"),
    [(np.array([2**40 + 1]), "int64 on the host that needs x64"), (np.array(["2024"], "M8[D]"), r"datetime64\[D\]")],
)
def test_host_arrays_that_a_device_would_cut_are_refused(stream, leaf, says):
    if leaf.dtype.kind == "i" and jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        pytest.skip("with x64 the number is kept")

    with pytest.raises(ValueError, match=f"`model` must hold arrays that a device takes as they are, got {says}"):
        fit(Holder(leaf), stream, steps=1, key=jax.random.key(0), progress=False)
