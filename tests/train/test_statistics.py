"""Statistics of batches: what training normalises by, what it remembers of it, and who may move it."""

import os
import pathlib
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import checkpoint
from bsatnp.layers.convolution import BatchNorm
from bsatnp.models.base import count_parameters, statistics, trainable
from bsatnp.tasks import Task
from bsatnp.train import evaluate, fit, learned_nll, mean_nll, optimizer
from tests.models.convcnp_oracle import MOMENTUM, draw, oracle, small

TOLERANCE = {False: 2e-5, True: 1e-12}
LEARN = eqx.filter_jit(lambda model, ctx, tgt: model.learn(ctx, tgt))
ADAMW = optimizer(6, weight_decay=0.5)


@pytest.fixture(scope="module")
def model():
    return small()


def stream(step, *, key):
    return Task(*draw(step))


def numbers(tree) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(statistics(tree))]


def moved(model, found):
    """Statistics after a batch, in the order of `numbers`."""
    means, variances = ([np.stack(found[i::2]) for i in range(2)] for found in zip(*found, strict=True))
    new = [means[0], variances[0], means[1], variances[1]]
    return [MOMENTUM * old + (1 - MOMENTUM) * one for old, one in zip(numbers(model), new, strict=True)]


def test_normalisation_by_the_batch_in_float64(x64):
    """Two numbers after another: with the momentum, over tasks and cells, a task of weight 0 left out."""
    rng = np.random.default_rng(0)
    x = rng.normal(2, 3, size=(4, 6, 5, 3))
    norm = BatchNorm(3, momentum=0.9)
    norm = eqx.tree_at(lambda n: (n.scale, n.offset), norm, (jnp.asarray([1.0, 2, 3]), jnp.asarray([0.5, 0, -1])))
    weight = jnp.asarray([1.0, 1, 0, 1])

    @jax.jit
    def learn(x):
        one = jax.vmap(lambda x, w: norm.learn(x, weight=w, axis="task"), axis_name="task", out_axes=(0, None))
        return one(x, weight)

    y, after = learn(jnp.asarray(x, float))
    kept = x[[0, 1, 3]]
    mean, variance = kept.mean((0, 1, 2)), kept.var((0, 1, 2))
    expected = (x - mean) / np.sqrt(variance + 1e-5) * [1, 2, 3] + [0.5, 0, -1]
    np.testing.assert_allclose(y, expected, atol=10 * TOLERANCE[x64])
    np.testing.assert_allclose(after.mean, 0.1 * mean, atol=TOLERANCE[x64])
    np.testing.assert_allclose(after.variance, 0.9 + 0.1 * variance, rtol=TOLERANCE[x64])


def test_grids_of_half_precision_are_normalised_in_full():
    """About 100, where bfloat16 has steps of a half: the mean lies between two of them."""
    x = jnp.asarray(np.random.default_rng(0).normal(100, 2, size=(2, 40, 3)), jnp.bfloat16)
    norm = BatchNorm(3, momentum=0.0)
    one = jax.vmap(lambda x: norm.learn(x, weight=jnp.ones(()), axis="task"), axis_name="task", out_axes=(0, None))
    y, after = jax.jit(one)(x)
    wide = np.asarray(x, np.float64)
    mean, variance = wide.mean((0, 1)), wide.var((0, 1))
    np.testing.assert_allclose(after.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(after.variance, variance, rtol=1e-4)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(y, np.float64), (wide - mean) / np.sqrt(variance), atol=0.01)


def test_gradients_go_through_the_statistics_of_the_batch(x64):
    """Against differences in float64: the sum of all that comes out does not depend on what goes in."""
    x = np.random.default_rng(1).normal(size=(2, 3, 2))
    back = np.random.default_rng(2).normal(size=x.shape)
    norm = BatchNorm(2)

    def out(x):
        y, _ = jax.vmap(lambda x: norm.learn(x, weight=jnp.ones(()), axis="task"), axis_name="task")(x)
        return (y * jnp.asarray(back, float)).sum()

    def exact(x):
        return ((x - x.mean((0, 1))) / np.sqrt(x.var((0, 1)) + 1e-5) * back).sum()

    steps = 1e-6 * np.eye(x.size).reshape(x.size, *x.shape)
    differences = np.array([(exact(x + step) - exact(x - step)) / 2e-6 for step in steps]).reshape(x.shape)
    np.testing.assert_allclose(jax.jit(jax.grad(out))(jnp.asarray(x, float)), differences, atol=1e-7 if x64 else 1e-5)


def test_a_batch_of_the_model_in_float64(model, x64):
    ctx, tgt = draw()
    likelihood, after = LEARN(model, ctx, tgt)
    raw, found = oracle(model, ctx, tgt, learns=True)
    expected = model.head(jnp.asarray(raw, float))
    np.testing.assert_allclose(likelihood.mean, expected.mean, atol=4 * TOLERANCE[x64])
    np.testing.assert_allclose(likelihood.std, expected.std, atol=4 * TOLERANCE[x64])
    for got, one in zip(numbers(after), moved(model, found), strict=True):
        np.testing.assert_allclose(got, one, atol=TOLERANCE[x64], rtol=TOLERANCE[x64])
    inference = jax.jit(lambda ctx, tgt: jax.vmap(model)(ctx, tgt))(ctx, tgt)
    assert np.abs(np.asarray(inference.mean - likelihood.mean)).max() > 1e-2
    assert eqx.tree_equal(trainable(after), trainable(model))


def test_tasks_that_are_all_padding_do_not_count(model, x64):
    ctx, tgt = draw()
    _, expected = LEARN(model, ctx, tgt)
    padded = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.zeros_like(leaf[:2])]), (ctx, tgt))
    likelihood, after = LEARN(model, *padded)
    for got, one in zip(numbers(after), numbers(expected), strict=True):
        np.testing.assert_allclose(got, one, atol=TOLERANCE[x64])
    nothing = jax.tree.map(jnp.zeros_like, padded)
    likelihood, after = LEARN(model, *nothing)
    assert eqx.tree_equal(after, model) and np.isfinite(np.asarray(likelihood.mean)).all()


@pytest.mark.parametrize("side", [0, 1])
def test_a_task_without_context_or_without_targets_counts(model, x64, side):
    ctx, tgt = eqx.tree_at(lambda task: task[side].mask, draw(), replace_fn=lambda mask: mask.at[1].set(False))
    _, after = LEARN(model, ctx, tgt)
    for got, one in zip(numbers(after), moved(model, oracle(model, ctx, tgt, learns=True)[1]), strict=True):
        np.testing.assert_allclose(got, one, atol=TOLERANCE[x64], rtol=TOLERANCE[x64])


def test_the_statistics_after_some_steps(model, x64):
    """With a rate of zero the parameters stay, and the statistics follow their closed form."""
    still = optimizer(3, peak=0.0, end=0.0)
    run = fit(model, stream, steps=3, key=jax.random.key(0), optimizer=still, progress=False)
    expected = model
    for step in range(3):
        _, found = oracle(model, *draw(step), learns=True)
        leaves, structure = jax.tree.flatten(statistics(expected))
        new = [jnp.asarray(one, float) for one in moved(expected, found)]
        assert len(leaves) == len(new) == 4
        expected = jax.tree.unflatten(structure, new)
    for got, one in zip(numbers(run.model), numbers(expected), strict=True):
        np.testing.assert_allclose(got, one, atol=TOLERANCE[x64], rtol=TOLERANCE[x64])
    assert eqx.tree_equal(trainable(run.model), trainable(model))


def test_no_gradient_and_no_decay_reaches_the_statistics(model):
    task = stream(0, key=None)
    gradient = eqx.filter_jit(eqx.filter_grad(mean_nll))(model, task)
    assert all((leaf == 0).all() for leaf in numbers(gradient))
    learned = [leaf for leaf in jax.tree.leaves(trainable(gradient)) if np.asarray(leaf).any()]
    assert len(learned) > 15
    # a loss that gives a number alone predicts with the running statistics and leaves them as they are
    run = fit(model, stream, steps=2, key=jax.random.key(0), optimizer=ADAMW, loss=mean_nll, progress=False)
    assert eqx.tree_equal(statistics(run.model), statistics(model))
    before, after = (jax.tree.leaves(trainable(one)) for one in (model, run.model))
    assert all((np.asarray(a) != np.asarray(b)).any() for a, b in zip(before, after, strict=True))
    total = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
    assert total - count_parameters(model) == sum(leaf.size for leaf in numbers(model)) == 2 * 2 * 2 * 4
    moments: Any = ADAMW.init(trainable(model))[1]  # pyright: ignore[reportIndexIssue]
    assert sum(leaf.size for leaf in jax.tree.leaves(moments.mu)) == count_parameters(model)


def test_a_loss_of_ones_own_may_carry_the_statistics(model, same_bits):
    def loss(model, task):
        value, model = learned_nll(model, task)
        return value * 1.0, model

    arguments: dict[str, Any] = {"steps": 2, "key": jax.random.key(0), "optimizer": ADAMW, "progress": False}
    own = fit(model, stream, loss=loss, **arguments)
    assert same_bits(own.model, fit(model, stream, **arguments).model)
    assert not any(np.array_equal(a, b) for a, b in zip(numbers(own.model), numbers(model), strict=True))


def test_a_file_keeps_them(model, tmp_path, same_bits):
    path = tmp_path / "model.npz"
    _, model = LEARN(model, *draw())
    checkpoint.save(path, model)
    loaded = checkpoint.load(path, like=small(seed=5))
    assert same_bits(loaded, model)
    assert "blocks/norms/1/running/variance" in np.load(path).files
    assert loaded.grid == model.grid


def test_cut_and_continued(model, tmp_path, same_bits):
    """Six updates with validation, at once and in two halves."""
    arguments: dict[str, Any] = dict(
        steps=6, key=jax.random.key(4), validation=stream, validate_every=3, validation_batches=1, log_every=3,
        progress=False, optimizer=ADAMW,
    )  # fmt: skip
    whole = fit(model, stream, **arguments)
    arguments |= {"checkpoint": tmp_path / "run.npz"}
    half = fit(model, stream, callbacks=[lambda step, row, model: True], **arguments)
    again = fit(small(seed=9), stream, **arguments)
    assert half.steps == 3 and not same_bits(statistics(half.model), statistics(whole.model))
    assert same_bits(again.model, whole.model) and same_bits(again.best, whole.best)
    # validation predicts with the running statistics: a batch of one task gives what it gives among others
    scores = evaluate(
        whole.model, lambda step, *, key: _only(stream(0, key=key), step), batches=3, key=jax.random.key(0)
    )
    together = evaluate(whole.model, stream, batches=1, key=jax.random.key(0))
    assert scores["nll"] == pytest.approx(together["nll"], rel=1e-5)


def _only(task, row):
    return jax.tree.map(lambda leaf: leaf[row : row + 1], task)


SHARDED = """
import equinox as eqx
import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from bsatnp.tasks import Task
from bsatnp.train import learned_nll
from tests.models.convcnp_oracle import draw, small

model, task = small(), Task(*draw(batch=4))
update = eqx.filter_jit(eqx.filter_value_and_grad(learned_nll, has_aux=True))
mesh = jax.make_mesh((2,), ("device",), axis_types=(AxisType.Auto,))
split = jax.device_put(task, NamedSharding(mesh, PartitionSpec("device")))
assert len(split.ctx.mask.sharding.device_set) == 2
one, two = update(model, task), update(model, split)
for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
"""


def test_a_batch_over_two_devices_is_one_batch():
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
