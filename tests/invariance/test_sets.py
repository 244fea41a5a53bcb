"""Context and targets are sets: lengths, padding, rows that do not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.tasks import Points
from bsatnp.testing import perturbed
from tests.registry import arrays, close, invariant_model, predict

RNG = np.random.default_rng(5)
S, F = RNG.normal(size=(9, 2)), RNG.normal(size=(9, 1))
X = RNG.normal(size=(9, 2))
CTX, TGT = slice(0, 5), slice(5, 8)


def points(rows, *, f=True, **options):
    return Points({"s": S[rows], "x": X[rows]}, F[rows] if f else None, **options)


@pytest.fixture(scope="module")
def model():
    return perturbed(invariant_model("Translation"), key=jax.random.key(0))


@pytest.fixture(scope="module")
def expected(model):
    return predict(model, points(CTX), points(TGT, f=False))


def test_more_targets_change_no_other_prediction(model, expected):
    more = predict(model, points(CTX), points(slice(5, 9), f=False))
    assert close(jax.tree.map(lambda leaf: leaf[:3], more), expected)


def test_the_context_matters_and_so_do_its_values(model, expected):
    """The controls of all tests of this file: a model that looks at nothing would pass them."""
    fewer = predict(model, points(slice(0, 4)).pad(5), points(TGT, f=False))
    assert not close(fewer, expected, atol=1e-3)
    other = Points({"s": S[CTX], "x": X[CTX]}, F[CTX] + np.eye(5)[:, :1])
    assert not close(predict(model, other, points(TGT, f=False)), expected, atol=1e-3)


def test_values_of_targets_are_not_looked_at(model, expected):
    assert close(predict(model, points(CTX), points(TGT)), expected, atol=1e-6)


@pytest.mark.parametrize("rubbish", [0.0, 1e30, np.nan, np.inf, -np.inf])
def test_a4_padding_changes_nothing(model, expected, rubbish):
    """A4, of context and targets."""
    dtype = jnp.result_type(float)
    wide = {}
    for name, rows in (("ctx", CTX), ("tgt", TGT)):
        n = rows.stop - rows.start
        parts = [
            jnp.concatenate([jnp.asarray(a[rows], dtype), jnp.full((3, a.shape[1]), rubbish, dtype)]) for a in (S, X, F)
        ]
        mask = jnp.arange(n + 3) < n
        wide[name] = Points({"s": parts[0], "x": parts[1]}, parts[2], mask=mask)
    got = predict(model, wide["ctx"], wide["tgt"])
    assert close(jax.tree.map(lambda leaf: leaf[:3], got), expected)
    assert all(np.isfinite(leaf).all() for leaf in arrays(got))


def test_a_mask_in_the_middle_is_a_row_less(model):
    keep = np.array([True, False, True, True, False])
    masked = predict(model, points(CTX, mask=keep), points(TGT, f=False))
    index = {"s": S[CTX][keep], "x": X[CTX][keep]}
    dropped = predict(model, Points(index, F[CTX][keep]).pad(5), points(TGT, f=False))
    assert close(masked, dropped)


def test_c1_a_value_that_is_nan_is_a_row_less(model):
    """C1: also when only one of two outputs is missing, see the models' tests."""
    f = F[CTX].copy()
    f[2] = np.nan
    keep = np.arange(5) != 2
    hidden = predict(model, Points({"s": S[CTX], "x": X[CTX]}, f), points(TGT, f=False))
    dropped = predict(model, Points({"s": S[CTX][keep], "x": X[CTX][keep]}, f[keep]).pad(5), points(TGT, f=False))
    assert close(hidden, dropped)


def test_a21_no_context_at_all(model):
    """A21: no rows, rows that are all masked, values that are all missing."""
    none = predict(model, points(slice(0, 0)), points(TGT, f=False))
    masked = predict(model, points(CTX, mask=np.zeros(5, bool)), points(TGT, f=False))
    missing = predict(model, Points({"s": S[CTX], "x": X[CTX]}, np.full((5, 1), np.nan)), points(TGT, f=False))
    assert all(np.isfinite(leaf).all() for leaf in arrays(none))
    assert close(masked, none)
    assert close(missing, none)


def test_a21_no_targets(model):
    empty = predict(model, points(CTX), points(slice(0, 0), f=False))
    assert [leaf.shape for leaf in arrays(empty)] == [(0, 1), (0, 1)]


def test_b9_predictions_come_in_the_callers_order_and_leave_the_callers_arrays_alone(model, expected):
    """B9."""
    order = np.array([2, 0, 1])
    tgt = points(TGT, f=False)
    shuffled = Points({name: value[order] for name, value in tgt.index.items()})
    before = {name: value.copy() for name, value in shuffled.index.items()}
    got = predict(model, points(CTX), shuffled)
    assert close(got, jax.tree.map(lambda leaf: leaf[order], expected), atol=1e-6)
    for name, value in shuffled.index.items():
        np.testing.assert_array_equal(value, before[name])
        assert value.dtype == np.float64


def test_duplicates_count_as_often_as_they_come(model):
    """Two observations at one place are two observations; their order is none."""
    twice = {name: np.repeat(value[:2], 2, 0)[:3] for name, value in points(CTX).index.items()}
    f = np.array([[0.5], [-0.5], [1.0]])
    flipped = {name: value[[1, 0, 2]] for name, value in twice.items()}
    got = predict(model, Points(twice, f).pad(5), points(TGT, f=False))
    assert close(predict(model, Points(flipped, f[[1, 0, 2]]).pad(5), points(TGT, f=False)), got)
    assert not close(predict(model, Points(twice, f[[0, 0, 2]]).pad(5), points(TGT, f=False)), got, atol=1e-4)
