"""Whatever arrays a task is made of: a right task, or the package's own error."""

from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bsatnp import tasks
from bsatnp.tasks import Task, batch, centre
from tests.fuzzing import MANY, own

Points: Any = tasks.Points
FINE = "f8 f4 f2 >f4 >f8 i8 i4 i1 u1 u4 u8 >i4 ? M8[ns] M8[s] M8[h] M8[D] M8[M] M8[Y] g".split()
OTHERS = ["O", "U3", "c8", "m8[s]"]


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """The package's own checks alone."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


def numbers(kind):
    """Values of a kind, the ends of its range among them."""
    kind = np.dtype(kind)
    if kind.kind in "fg":
        return st.one_of(
            st.sampled_from([0.0, 1.0, -1.5, np.nan, np.inf, -np.inf, 1e-3, 5e6 + 0.5, 3e38]), st.floats(width=16)
        )
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return st.one_of(st.integers(0, 100), st.sampled_from([info.min, info.max]))
    if kind.kind == "M":
        return st.one_of(st.integers(-500, 5000), st.just(np.datetime64("NaT")))
    return st.sampled_from({"b": [True, False], "O": [1.0, None], "U": ["a"], "c": [1j], "m": [3]}[kind.kind])


@st.composite
def arrays(draw, shape):
    """An array as people have them: of any kind, sometimes a list, masked, on the device, or of another shape."""
    kind = draw(st.sampled_from(FINE if draw(st.integers(0, 4)) else OTHERS))
    shape = draw(st.sampled_from([shape] * 8 + [shape[:-1], shape[::-1], (*shape, 1), ()]))
    flat = draw(st.lists(numbers(kind), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    array = np.empty(int(np.prod(shape)), kind)
    with np.errstate(over="ignore"):
        for i, value in enumerate(flat):
            array[i] = value
    array = array.reshape(shape)
    how = draw(st.sampled_from(["plain"] * 6 + ["list", "masked", "device", "view", "frozen"]))
    if how == "list" and array.dtype.kind not in "M":
        return array.tolist()
    if how == "masked":
        return np.ma.array(array, mask=draw(hnp.arrays(bool, shape)))
    if how == "device" and array.dtype.kind in "fiub" and array.dtype.isnative and array.dtype.itemsize <= 4:
        return jnp.asarray(array)
    if how == "view":
        return np.repeat(array, 2, 0)[::2] if array.ndim else array
    if how == "frozen":
        array.flags.writeable = False
    return array


@st.composite
def points(draw, n, *, values):
    """Arguments of `Points`."""
    names = draw(st.sampled_from([["s"]] * 4 + [["s", "t"], ["t"], [], [3]]))
    index = {name: draw(arrays((n, draw(st.sampled_from([1, 1, 2]))))) for name in names}
    options = {}
    if draw(st.integers(0, 3)) == 0:
        options["mask"] = draw(st.sampled_from([np.arange(n) > 0, np.zeros(n, bool), np.ones(n, int), [True] * n]))
    if values and draw(st.integers(0, 3)) == 0:
        options["observed"] = draw(st.sampled_from([np.ones((n, 1), bool), np.zeros((n, 1), bool), np.ones(n, bool)]))
    return index, draw(arrays((n, 1))) if values else None, options


def entry(array, i, j):
    """One number of what was handed in, exactly; None for what is not known."""
    if np.ma.isMaskedArray(array) and np.ma.getmaskarray(array)[i, j]:
        return None
    value = np.asarray(array)[i, j]
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        whole = int(value.astype("M8[s]").astype(np.int64))
        unit = np.datetime_data(value.dtype)[0]
        part = int((value - value.astype("M8[s]").astype(value.dtype)).astype(np.int64)) if unit == "ns" else 0
        return whole + Fraction(part, 10**9)
    value = value.astype(np.float64).item() if value.dtype.kind == "f" else value.item()
    return None if np.isnan(value) else (Fraction(value) if np.isfinite(value) else value)


@MANY
@given(given_=points(3, values=True))
def test_points_are_right_or_refused(given_):
    index, f, options = given_
    try:
        made = Points(index, f, **options)
    except Exception as error:
        assert own(error), repr(error)
        return
    n = len(made)  # all may be of another shape alike
    if made.mask.ndim > 1:
        return  # a batch
    mask = np.asarray(options.get("mask", np.ones(n, bool)))
    observed = np.asarray(options.get("observed", np.ones(made.f.shape, bool)))
    np.testing.assert_array_equal(made.mask, mask)
    for i in range(n):
        for j in range(made.f.shape[1]):
            known = entry(f, i, j)
            assert bool(made.observed[i, j]) == bool(mask[i] and observed[i, j] and known is not None)
            if made.observed[i, j]:
                assert Fraction(np.asarray(made.f)[i, j].item()) == known
        for name, value in index.items():
            for j in range(np.shape(value)[1]):
                assert not mask[i] or entry(made.index[name], i, j) == entry(value, i, j) is not None


@MANY
@given(ctx=points(3, values=True), tgt=points(2, values=False), move=st.booleans())
def test_tasks_are_centred_right_or_refused(ctx, tgt, move):
    """Differences between any two rows are exact up to float32, wherever they are."""
    try:
        task = Task(Points(ctx[0], ctx[1], **ctx[2]), Points(tgt[0], **tgt[2]))
        moved, _ = centre(task, ["s", "t"] if move else [])
        stacked = batch([moved, moved], ctx_sizes=(4, 8), tgt_sizes=(2,))
    except Exception as error:
        assert own(error), repr(error)
        return
    assert stacked.ctx.mask.shape == (2, 4) and stacked.tgt.mask.shape == (2, 2)
    for name in task.ctx.index:
        for j in range(task.ctx.index[name].shape[1]):
            exact, got = [], []
            for part, kept in ((task.ctx, moved.ctx), (task.tgt, moved.tgt)):
                for i in np.flatnonzero(np.asarray(part.mask)):
                    exact.append(entry(part.index[name], i, j))
                    value = np.asarray(kept.index[name])[i, j]
                    assert np.isfinite(value) and value.dtype.itemsize <= 8
                    got.append(float(value))
            if exact and np.asarray(moved.ctx.index[name]).dtype != bool:
                right = [float(value - exact[0]) for value in exact]
                size = max(1e-30, *(abs(x) for x in (*right, *got)))
                np.testing.assert_allclose(np.subtract(got, got[0]), right, rtol=0, atol=3e-6 * size)
