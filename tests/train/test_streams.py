"""Every task is seen once an epoch, in shapes that stay."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsatnp.tasks import Points, Task
from bsatnp.train import EpochStream


def numbered(count, sizes=(3, 5)):
    """Tasks of different lengths, whose values are their number."""

    def points(n, number):
        return Points({"s": np.zeros((n, 1))}, np.full((n, 1), float(number)))

    return [Task(points(sizes[i % len(sizes)], i), points(1 + i % 2, i)) for i in range(count)]


def seen(batch):
    """The numbers of the tasks in a batch that are not masked."""
    return [int(f[0, 0]) for f, mask in zip(batch.ctx.f, batch.ctx.mask, strict=True) if mask.any()]


@given(count=st.integers(1, 9), size=st.integers(1, 4), epoch=st.integers(0, 3), seed=st.sampled_from([None, 0, 1]))
def test_every_task_once_an_epoch(count, size, epoch, seed):
    stream = EpochStream(numbered(count), size, key=None if seed is None else jax.random.key(seed))
    batches = [stream(epoch * stream.batches + n, key=jax.random.key(9)) for n in range(stream.batches)]
    assert sorted(number for batch in batches for number in seen(batch)) == list(range(count))
    shapes = {tuple(leaf.shape for leaf in jax.tree.leaves(batch)) for batch in batches}
    assert len(shapes) == 1 and batches[0].ctx.mask.shape[0] == size


def test_c6_five_tasks_in_batches_of_two():
    stream = EpochStream(numbered(5), 2)
    batches = [stream(n) for n in range(3)]
    assert [seen(batch) for batch in batches] == [[0, 1], [2, 3], [4]]
    last = batches[2]
    assert not (last.ctx.mask[1].any() or last.tgt.mask[1].any() or last.ctx.observed[1].any())
    assert last.tgt.observed[0].any() and not last.tgt.observed[1].any()


def test_epochs_are_shuffled_anew_and_steps_are_stateless():
    stream = EpochStream(numbered(8), 8, key=jax.random.key(0))
    orders = [seen(stream(epoch)) for epoch in range(4)]
    assert len({tuple(order) for order in orders}) == 4
    assert [seen(stream(epoch)) for epoch in (3, 1, 0, 2)] == [orders[i] for i in (3, 1, 0, 2)]
    assert seen(EpochStream(numbered(8), 8, key=jax.random.key(1))(0)) != orders[0]


def test_buckets():
    tasks = numbered(6, sizes=(2, 3, 4, 7, 8, 1))
    stream = EpochStream(tasks, 1, ctx_sizes=(4, 8), tgt_sizes=(2,))
    assert [stream(n).ctx.mask.shape for n in range(6)] == [(1, 4), (1, 4), (1, 4), (1, 8), (1, 8), (1, 4)]
    assert {stream(n).tgt.mask.shape for n in range(6)} == {(1, 2)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 1), "`tasks` must hold at least one task, got none"),
        ((numbered(1)[0], 2), "`tasks` must be a list of tasks, got Task"),
        ((numbered(2), 0), "`batch_size` must be at least 1, got 0"),
    ],
)
def test_arguments_are_checked(arguments, message, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        EpochStream(*arguments)
    with pytest.raises(ValueError, match="`ctx_sizes` must be a list of numbers of points, got 8"):
        EpochStream(numbered(2), 1, ctx_sizes=8)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`key` must be one typed key"):
        EpochStream(numbered(2), 1, key=jax.random.PRNGKey(0))
    with pytest.raises(ValueError, match="`ctx_sizes` must hold the longest task with 5 points, got 4"):
        EpochStream(numbered(2), 1, ctx_sizes=(2, 4))
