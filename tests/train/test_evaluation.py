"""Scores over many batches against NumPy in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.tasks import Points, Task
from bsatnp.train import EpochStream, evaluate, prepare


def test_scores_pool_over_batches(line, stream):
    """Batches with different numbers of observed targets count by target, not by batch."""
    key, model = jax.random.key(2), line()

    def uneven(step, *, key):
        task = stream(step, key=key)
        observed = jnp.arange(7)[None, :, None] < jnp.asarray([1, 7, 0])[step]
        return eqx.tree_at(lambda t: t.tgt.observed, task, jnp.broadcast_to(observed, task.tgt.f.shape))

    got = evaluate(model, uneven, batches=3, key=key)
    batches = [uneven(n, key=jax.random.fold_in(key, n)) for n in range(3)]
    predicted = [jax.vmap(model)(task.ctx, task.tgt) for task in batches]
    keep = np.concatenate([np.asarray(task.tgt.observed).ravel() for task in batches])

    def pool(arrays):
        return np.concatenate([np.asarray(x, np.float64).ravel() for x in arrays])[keep]

    f, mean, std = pool([t.tgt.f for t in batches]), pool([p.mean for p in predicted]), pool([p.std for p in predicted])
    z = (f - mean) / std
    np.testing.assert_allclose(got["nll"], (0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi)).mean(), rtol=1e-5)
    np.testing.assert_allclose(got["mae"], np.abs(f - mean).mean(), rtol=1e-5)
    np.testing.assert_allclose(got["rmse"], np.sqrt(((f - mean) ** 2).mean()), rtol=1e-5)
    np.testing.assert_allclose(got["coverage"], (np.abs(z) <= 1.959964).mean(), rtol=1e-6)


def test_many_batches_are_all_counted_once(line, stream):
    model, key, numbers = line(), jax.random.key(0), []
    found = evaluate(model, lambda n, *, key: numbers.append(n) or stream(n, key=key), batches=70, key=key)
    assert numbers == list(range(70))
    batches = [stream(n, key=jax.random.fold_in(key, n)) for n in range(70)]
    each = [evaluate(model, lambda _, *, key, batch=batch: batch, batches=1, key=key)["nll"] for batch in batches]
    np.testing.assert_allclose(found["nll"], np.mean(each), rtol=1e-5)


def test_arguments_are_checked(line, stream):
    with pytest.raises(ValueError, match="`batches` must be at least 1, got 0"):
        evaluate(line(), stream, batches=0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="`key` must be one typed key"):
        evaluate(line(), stream, batches=1, key=jax.random.PRNGKey(0))
    one = jax.tree.map(lambda leaf: leaf[0], stream(0, key=jax.random.key(0)))
    epoch = EpochStream([one] * 3, 2)
    assert evaluate(line(), epoch, key=jax.random.key(0)) == evaluate(line(), epoch, batches=2, key=jax.random.key(0))
    with pytest.raises(
        ValueError, match=r"`task` must be a batch with axes \(batch, point\), got a mask of shape \(5,\)"
    ):
        prepare(line(), one)


def test_host_batches_are_narrowed_and_device_batches_pass(line, stream, host_stream):
    device = stream(0, key=jax.random.key(0))
    assert prepare(line(), device) is device
    host = host_stream(0, key=jax.random.key(0))
    ready = prepare(line(), host)
    expected = np.float64 if jax.config.jax_enable_x64 else np.float32  # pyright: ignore
    assert {leaf.dtype for leaf in (ready.ctx.f, ready.ctx.index["s"], ready.tgt.index["s"])} == {np.dtype(expected)}
    np.testing.assert_allclose(ready.ctx.index["s"], host.ctx.index["s"], rtol=1e-6)


def test_components_that_nobody_looks_at_may_hold_anything(line, host_stream):
    def dated(step, *, key):
        task = host_stream(step, key=key)
        add = lambda p: Points(  # noqa: E731
            p.index | {"when": np.full((*p.mask.shape, 1), np.datetime64("2024-05-31"))}, p.f, mask=p.mask
        )
        return Task(add(task.ctx), add(task.tgt))

    known = {"batches": 2, "key": jax.random.key(0)}
    assert evaluate(line(), dated, **known) == evaluate(line(), host_stream, **known)
    whole = prepare(line(), dated(0, key=jax.random.key(0)), seen=False)
    assert set(whole.ctx.index) == {"s", "when"} and whole.ctx.index["when"].dtype.kind == "f"
