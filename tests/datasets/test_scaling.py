"""Scalers: there and back, constants, and what they refuse."""

import sys
import warnings

import numpy as np
import pandas
import pytest
from sklearn.preprocessing import StandardScaler

from bsatnp.datasets import Log, MinMax, Standard

VALUES = np.random.default_rng(0).normal(3, 5, (20, 2))


def test_standard_equals_scikit_learn():
    ours, theirs = Standard.fit(VALUES), StandardScaler().fit(VALUES)
    np.testing.assert_allclose(ours.transform(VALUES), theirs.transform(VALUES), atol=1e-12)  # pyright: ignore
    np.testing.assert_allclose(ours.inverse(ours.transform(VALUES[:3])), VALUES[:3])


@pytest.mark.parametrize("make", [MinMax.fit, Standard.fit])
@pytest.mark.parametrize(
    "constant", [np.zeros(3), np.full(3, 7.0), np.array([0.3, 0.1 + 0.2, 0.3]), np.array([0, 5e-324, 0])]
)
def test_c4_a_column_that_is_constant_rounding_aside_keeps_its_unit(make, constant):
    scaler = make(np.stack([constant, np.arange(3.0)], 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = scaler.transform(np.array([[constant[0] + 2.0, 1.0]]))
    np.testing.assert_allclose(scaled[0, 0], 2.0)
    assert scaler.width[0] == 1 and scaler.width[1] != 1


@pytest.mark.parametrize("make", [MinMax.fit, Standard.fit, Log.fit])
def test_what_a_masked_array_hides_is_nan(make):
    scaler = make(np.array([[1.0], [9.0]]))
    hidden = np.ma.array([[3], [-9999]], mask=[[False], [True]])
    for there in (scaler.transform(hidden), scaler.inverse(hidden)):
        assert not np.ma.isMaskedArray(there) and np.isnan(there).ravel().tolist() == [False, True]
    np.testing.assert_array_equal(scaler.transform(hidden)[:1], scaler.transform(np.array([[3.0]])))


@pytest.mark.parametrize("make", [MinMax.fit, Standard.fit, Log.fit])
def test_what_is_missing_among_objects_is_nan(make):
    scaler = make(np.array([[1.0], [9.0]]))
    expected = scaler.transform(np.array([[3.0], [np.nan]]))
    gap = np.array([[3], [pandas.NA]], object)
    for values in (gap, np.array([[3], [None]]), np.ma.array([[3], ["?"]], object, mask=[[False], [True]])):
        np.testing.assert_array_equal(scaler.transform(values), expected)
    with pytest.raises(ValueError, match="`values` must be finite, got 1 NaN"):
        make(gap)


def test_nullable_columns_of_pandas():
    kinds = {"a": pandas.array([3, None], "Int64"), "b": pandas.array([True, None], "boolean"), "c": [0.5, 1.5]}
    scaled = MinMax(np.zeros(3), np.ones(3)).transform(pandas.DataFrame(kinds).to_numpy())
    np.testing.assert_array_equal(scaled, [[3, 1, 0.5], [np.nan, np.nan, 1.5]])


def test_objects_count_without_pandas(monkeypatch):
    monkeypatch.delitem(sys.modules, "pandas")
    np.testing.assert_array_equal(MinMax(np.zeros(1), np.ones(1)).transform(np.array([[3], [None]])), [[3], [np.nan]])
    assert "pandas" not in sys.modules


def test_bounds_of_any_type_count_in_float64():
    narrow = MinMax(np.array([-100], "int8"), np.array([100], "int8"))
    assert narrow.width == 200 and narrow.transform(np.array([[100]])) == 1
    assert MinMax(np.array([-60000], "float16"), np.array([60000], "float16")).width == 120000
    assert Standard(np.array([1], "float32"), np.array([2], "float32")).width.dtype == np.float64


@pytest.mark.parametrize("make", [MinMax.fit, Standard.fit])
@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.ma.array(VALUES, mask=VALUES > 8), "`values` must be finite, got .* NaN, infinite or masked values"),
        (np.where(VALUES > 8, np.nan, VALUES), "`values` must be finite"),
        (VALUES[:0], r"`values` must have axes \(row, dim\) and at least one row, got shape \(0, 2\)"),
        (VALUES[:, 0], r"got shape \(20,\)"),
        (VALUES * 1e200, r"`values` must be at most 1e\+150 in size"),
        (VALUES * 1j, "`values` must be real numbers, got complex128"),
        (VALUES.astype("M8[h]"), r"`values` must be real numbers, got datetime64\[h\]; count dates from an origin"),
        (VALUES.astype("m8[h]"), r"`values` must be real numbers, got timedelta64\[h\]"),
        (np.array([["1"], ["x"]]), r"`values` must be real numbers, got <U1\.$"),
        (np.array([["1"], ["x"]], np.dtypes.StringDType()), r"`values` must be real numbers, got StringDType"),
        (np.zeros((2, 1), [("a", float)]), r"`values` must be real numbers, got \[\('a', '<f8'\)\]"),
        (np.array([[1], ["x"]], object), r"`values` must be real numbers, got 'x'\.$"),
        (np.array([[1], ["1.5"]], object), r"`values` must be real numbers, got '1.5'\.$"),
        (np.array([[1], [1j]], object), r"`values` must be real numbers, got 1j"),
        (np.array([[1], [np.datetime64("2020")]], object), "`values` must be real numbers, got .*datetime64"),
        (np.array([[1], [pandas.NaT]], object), "`values` must be real numbers, got NaT"),
        (pandas.DataFrame({"a": ["x", "y"]}).to_numpy(), "`values` must be real numbers, got 'x'"),
    ],
)
def test_c1_values_that_cannot_be_fitted(make, values, says):
    with pytest.raises(ValueError, match=says):
        make(values)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MinMax(np.zeros(2), np.ones(3)), r"`low` and `high` must be finite .* got \(2,\) and \(3,\)"),
        (lambda: MinMax(np.ones(2), np.zeros(2)), "`high` must be no smaller than `low`"),
        (lambda: Standard(np.zeros(2), np.array([1, np.nan])), "`mean` and `std` must be finite"),
        (lambda: Standard(np.zeros(1), -np.ones(1)), "`std` must not be negative"),
        (lambda: Standard.fit(VALUES).transform(VALUES[:, :1]), "`values` must have 2 columns"),
    ],
)
def test_scalers_that_are_none(make, says):
    with pytest.raises(ValueError, match=says):
        make()
