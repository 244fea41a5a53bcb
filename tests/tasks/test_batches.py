"""Buckets, batches and splits: nothing lost, nothing twice, few shapes."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.tasks import Points, Task, batch, bucket, split


def numbered(n):
    """Points that are their own numbers."""
    return Points({"s": np.arange(n, dtype=float)[:, None]}, np.arange(n, dtype=float)[:, None])


def rows(points):
    return np.asarray(points.index["s"])[np.asarray(points.mask), 0].astype(int).tolist()


@hypothesis.given(n=st.integers(0, 20), sizes=st.lists(st.integers(0, 20), min_size=1))
def test_bucket_is_the_smallest_that_holds_the_points(n, sizes):
    if max(sizes) < n:
        with pytest.raises(ValueError, match=f"`sizes` must hold {n} points, the largest is {max(sizes)}"):
            bucket(n, sizes)
    else:
        size = bucket(n, sizes)
        assert size in sizes and size >= n and not any(n <= other < size for other in sizes)


@hypothesis.given(lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4))
def test_a_batch_holds_every_row_of_every_task(lengths):
    tasks = [Task(numbered(n), numbered(m)) for n, m in lengths]
    both = batch(tasks, ctx_sizes=(4, 9), tgt_sizes=(9,))
    assert len(both.ctx) == (4 if max(n for n, _ in lengths) <= 4 else 9) and len(both.tgt) == 9
    for i, (n, m) in enumerate(lengths):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], both)
        assert rows(one.ctx) == list(range(n)) and rows(one.tgt) == list(range(m))
        assert one.ctx.observed.sum() == n
    tight = batch(tasks)
    assert len(tight.ctx) == max(n for n, _ in lengths) and len(tight.tgt) == max(m for _, m in lengths)


def test_d5_twenty_tasks_of_twenty_sizes_have_as_many_shapes_as_buckets():
    shapes = {
        jax.tree.map(jnp.shape, batch([Task(numbered(n), numbered(3))], ctx_sizes=(8, 16, 24))).ctx.mask
        for n in range(1, 21)
    }
    assert shapes == {(1, 8), (1, 16), (1, 24)}


def test_host_tasks_make_host_batches_and_device_tasks_device_batches():
    task = Task(numbered(2), numbered(3))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(batch([task, task])))
    device = jax.tree.map(jnp.asarray, task)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch([device, device])))


def test_a_host_task_and_a_device_task_make_a_host_batch_that_keeps_the_digits():
    far, near = (
        Task(Points({"s": s}, s), Points({"s": s})) for s in (5e6 + np.array([[0.0], [0.1]]), np.zeros((2, 1)))
    )
    both = batch([far, jax.tree.map(jnp.asarray, near)])
    np.testing.assert_allclose(both.ctx.index["s"][0] - 5e6, [[0.0], [0.1]], atol=1e-6)


def test_dates_of_several_units_make_one_batch_where_one_unit_holds_them():
    def task(date, unit):
        days = np.array([[date]], f"M8[{unit}]")
        return Task(Points({"t": days}, np.ones((1, 1))), Points({"t": days}))

    both = batch([task("2020-01-01", "D"), task("2020-01-02", "ns")])
    assert both.ctx.index["t"].astype("M8[D]").ravel().astype(str).tolist() == ["2020-01-01", "2020-01-02"]
    with pytest.raises(ValueError, match=r"`tasks` must hold dates that datetime64\[ns\] can hold, got 1500-01-01"):
        batch([task("1500-01-01", "D"), task("2020-01-02", "ns")])


def test_whole_numbers_that_the_floats_of_another_task_do_not_hold_are_refused():
    def task(value):
        t = np.array([[value]])
        return Task(Points({"t": t}, np.ones((1, 1))), Points({"t": t}))

    assert batch([task(3), task(0.5)]).ctx.index["t"].ravel().tolist() == [3, 0.5]
    with pytest.raises(
        ValueError, match="`tasks` must hold whole numbers that float64 can hold, got 1152921504606846977"
    ):
        batch([task(2**60 + 1), task(0.5)])


def test_host_points_are_not_split_where_rows_are_traced():
    with pytest.raises(ValueError, match="`points` must be on the device where `split` is traced"):
        jax.vmap(lambda key: split(numbered(5), 2, key=key))(jax.random.split(jax.random.key(0), 2))


@pytest.mark.parametrize("seed", range(3))
def test_a_split_inside_jit_takes_padding_last(seed):
    points = jax.tree.map(jnp.asarray, Points({"s": np.arange(6.0)[:, None]}, np.ones((6, 1)), mask=np.arange(6) < 3))
    task = jax.jit(lambda p, key: split(p, 2, 1, key=key))(points, jax.random.key(seed))
    assert sorted(rows(task.ctx) + rows(task.tgt)) == [0, 1, 2]


def test_tasks_that_do_not_stack_are_refused():
    with pytest.raises(ValueError, match="`tasks` must hold at least one task"):
        batch([])
    values, none = Task(numbered(2), numbered(2)), Task(numbered(2), Points({"s": np.zeros((2, 1))}))
    wide = Task(Points({"s": np.zeros((2, 2))}, np.zeros((2, 1))), Points({"s": np.zeros((2, 2))}, np.zeros((2, 1))))
    for other in (none, wide):
        with pytest.raises(ValueError, match="`tasks` must share components, widths and outputs"):
            batch([values, other])
    with pytest.raises(ValueError, match="`sizes` must hold 2 points, the largest is 1"):
        batch([values], ctx_sizes=(1,))
    with pytest.raises(
        ValueError, match=r"`tasks` must be single tasks with axes \(point,\), got a mask of shape \(1, 2\)"
    ):
        batch([batch([values])])


def test_arguments_are_checked(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match="`sizes` must be a list of numbers of points, got 8"):
        batch([Task(numbered(2), numbered(2))], ctx_sizes=8)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`key` must be one typed key"):
        split(numbered(3), 1, key=jax.random.PRNGKey(0))
    with pytest.raises(ValueError, match="`points` must have values `f` to be split"):
        split(Points({"s": np.zeros((2, 1))}), 1, key=jax.random.key(0))


@hypothesis.given(n_ctx=st.integers(0, 12), seed=st.integers(0, 2**31 - 1))
def test_a_split_is_a_partition(n_ctx, seed):
    task = split(numbered(12), n_ctx, key=jax.random.key(seed))
    ctx, tgt = rows(task.ctx), rows(task.tgt)
    assert len(ctx) == n_ctx
    assert sorted(ctx + tgt) == list(range(12))
    np.testing.assert_array_equal(task.ctx.f, task.ctx.index["s"])


def test_padding_on_the_host_becomes_neither_context_nor_target():
    task = split(numbered(6).pad(9), 3, key=jax.random.key(0))
    assert len(task.ctx) == len(task.tgt) == 3 and task.ctx.mask.all() and task.tgt.mask.all()
    assert sorted(rows(task.ctx) + rows(task.tgt)) == list(range(6))


def test_c7_all_points_as_context_are_all_distinct():
    task = split(numbered(500), 500, key=jax.random.key(0))
    assert sorted(rows(task.ctx)) == list(range(500)) and len(task.tgt) == 0
    assert rows(task.ctx) != list(range(500))


def test_every_point_is_context_equally_often():
    n, keys = 6, jax.random.split(jax.random.key(0), 1200)
    draw = jax.jit(jax.vmap(lambda key: split(jax.tree.map(jnp.asarray, numbered(n)), 2, 3, key=key)))
    task = draw(keys)
    ctx, tgt = (np.asarray(p.index["s"])[..., 0].astype(int) for p in (task.ctx, task.tgt))
    assert ctx.shape == (1200, 2) and tgt.shape == (1200, 3)
    assert np.abs(np.bincount(ctx.ravel(), minlength=n) / 1200 - 2 / n).max() < 5 * np.sqrt(2 / 9 / 1200)
    assert all(len({*a, *b}) == 5 for a, b in zip(ctx, tgt, strict=True))


@pytest.mark.parametrize(
    ("n_ctx", "n_tgt", "says"),
    [
        (7, None, r"`n_ctx` \+ `n_tgt` must be at most the 6 points, got 7 \+ 0"),
        (4, 3, r"`n_ctx` \+ `n_tgt` must be at most the 6 points, got 4 \+ 3"),
        (-1, None, "`n_ctx` must be at least 0, got -1"),
        (-1, 3, "`n_ctx` must be at least 0, got -1"),
        (3, -1, "`n_tgt` must be at least 0, got -1"),
    ],
)
def test_more_points_than_there_are_is_refused(n_ctx, n_tgt, says):
    with pytest.raises(ValueError, match=says):
        split(numbered(6), n_ctx, n_tgt, key=jax.random.key(0))
