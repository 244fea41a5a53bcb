"""Points: what they accept, what they refuse by name, and what missing values and padding leave behind."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from bsatnp.tasks import Points, Task

S = np.arange(6.0).reshape(3, 2)
F = np.array([[1.0], [2.0], [3.0]])


def test_defaults_say_that_every_row_counts():
    points = Points({"s": S, "t": np.arange(3)[:, None]}, F)
    assert len(points) == 3 and points.n_missing == 0
    np.testing.assert_array_equal(points.mask, [True] * 3)
    np.testing.assert_array_equal(points.observed, [[True]] * 3)
    np.testing.assert_array_equal(points.usable, [True] * 3)


def test_host_arrays_stay_on_the_host_in_full_precision_and_device_arrays_on_the_device():
    host = Points({"s": S}, F)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(host))
    assert host.index["s"].dtype == np.float64
    device = Points({"s": jnp.asarray(S)}, jnp.asarray(F))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(device))


@pytest.mark.parametrize("xp", [np, jnp])
def test_a_missing_value_is_masked_and_counted_and_leaves_no_nan(xp):
    f = xp.asarray([[1.0, xp.nan], [2.0, 3.0], [xp.nan, xp.nan]])
    points = Points({"s": xp.asarray(S)}, f, mask=xp.asarray([True, True, False]))
    np.testing.assert_array_equal(points.observed, [[True, False], [True, True], [False, False]])
    np.testing.assert_array_equal(points.f, [[1, 0], [2, 3], [0, 0]])
    np.testing.assert_array_equal(points.usable, [False, True, False])
    assert points.n_missing == 1  # padding is not missing


@pytest.mark.parametrize("xp", [np, jnp])
def test_what_is_padding_or_said_not_to_be_observed_may_hold_anything(xp):
    f = xp.asarray([[1.0], [xp.inf], [xp.nan]])
    s = xp.asarray([[0.0, 0.0], [1.0, 1.0], [xp.nan, xp.inf]])
    observed = xp.asarray([[True], [False], [True]])
    points = Points({"s": s}, f, mask=xp.asarray([True, True, False]), observed=observed)
    np.testing.assert_array_equal(points.f, [[1], [0], [0]])
    np.testing.assert_array_equal(points.usable, [True, False, False])


@pytest.mark.parametrize("xp", [np, jnp])
def test_an_infinite_value_that_counts_is_refused(xp):
    with pytest.raises(ValueError, match="`f` must be finite or NaN"):
        Points({"s": xp.asarray(S)}, xp.asarray([[1.0], [xp.inf], [3.0]]))


def test_an_infinite_value_under_a_trace_is_not_taken_for_a_missing_one():
    points = jax.jit(lambda f: Points({"s": jnp.asarray(S)}, f))(jnp.array([[1.0], [jnp.inf], [jnp.nan]]))
    np.testing.assert_array_equal(points.observed, [[True], [True], [False]])
    np.testing.assert_array_equal(points.f, [[1], [np.inf], [0]])


def test_integers_and_booleans_are_values_too():
    counts = Points({"s": S}, np.array([[0], [2], [1]]), observed=np.array([[True], [False], [True]]))
    assert counts.f.dtype.kind == "i"
    np.testing.assert_array_equal(counts.usable, [True, False, True])


def test_new_targets_carry_no_values():
    points = Points({"s": S})
    assert points.f is None and points.observed is None and points.n_missing == 0
    np.testing.assert_array_equal(points.usable, [True] * 3)


@pytest.mark.parametrize("xp", [np, jnp])
def test_padding_adds_masked_rows_and_take_drops_them(xp):
    points = Points({"s": xp.asarray(S)}, xp.asarray(F))
    padded = points.pad(5)
    np.testing.assert_array_equal(padded.mask, [True] * 3 + [False] * 2)
    np.testing.assert_array_equal(padded.observed[:, 0], padded.mask)
    jax.tree.map(np.testing.assert_array_equal, padded.take(slice(3)), points)
    for known in (padded, jax.tree.map(jnp.asarray, padded)):
        with pytest.raises(IndexError, match="9"):
            known.take(np.array([9]))
    with pytest.raises(ValueError, match=r"`rows` must be a list of rows, or a slice, got shape \(\)"):
        points.take(np.asarray(1))
    assert len(points.take(np.asarray([]))) == 0
    assert points.pad(3) is points
    with pytest.raises(ValueError, match="`size` must be at least the number of points 3, got 2"):
        points.pad(2)


def test_dates_and_batches_are_padded_along_the_point_axis():
    days = np.array([["2020-01-01"], ["2020-01-02"]], "datetime64[D]")
    batch = Points({"t": np.stack([days, days])}, np.ones((2, 2, 1))).pad(3)
    assert batch.index["t"].shape == (2, 3, 1) and batch.index["t"].dtype == "datetime64[D]"
    np.testing.assert_array_equal(batch.mask, [[True, True, False]] * 2)
    np.testing.assert_array_equal(batch.index["t"][:, :2], np.stack([days, days]))


NAT = np.array([["2020-01-01"], ["NaT"], ["2020-01-02"]], "datetime64[ns]")


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Points({}, F), "`index` must be a non-empty mapping"),
        (lambda: Points({"s": S[:, 0]}, F), r"Component 's' must have axes \(point, dim\), got shape \(3,\)"),
        (lambda: Points({"s": S, "t": np.zeros((4, 1))}, F), "'s' has \\(3,\\), 't' has \\(4,\\)"),
        (lambda: Points({"s": np.array([["a"], ["b"]])}), "Component 's' must hold numbers or dates"),
        (lambda: Points({"s": S}, F[:, 0]), r"`f` must have axes \(point, out\)"),
        (lambda: Points({"s": S}, F.T), r"`f` must have axes \(point, out\)"),
        (lambda: Points({"s": S}, F[None]), r"`f` must have axes \(point, out\)"),
        (lambda: Points({"s": S}, np.array([["a"], ["b"], ["c"]])), "`f` must hold numbers"),
        (lambda: Points({"s": S}, F, mask=np.ones(3)), "`mask` must be boolean"),
        (lambda: Points({"s": S}, F, mask=np.ones(4, bool)), "`mask` must be boolean"),
        (lambda: Points({"s": S}, F, observed=np.ones(3, bool)), "`observed` must be boolean"),
        (lambda: Points({"s": S}, observed=np.ones((3, 1), bool)), "`f` is None"),
        (lambda: Points({"s": S * [1, np.nan]}, F), "Component 's' must be finite.* got 3 NaN"),
        (lambda: Points({"s": jnp.asarray(S) / 0}, F), "Component 's' must be finite"),
        (lambda: Points({"t": NAT}, F), "Component 't' must be finite.* got 1 NaN"),
    ],
)
def test_what_does_not_fit_is_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.parametrize(
    ("ctx", "tgt", "named"),
    [
        (Points({"s": S}), Points({"s": S}), "`ctx` must carry observed values"),
        (Points({"s": S}, F), Points({"t": S}), r"must have the components of `ctx` \['s'\], got \['t'\]"),
        (Points({"s": S}, F), Points({"s": S[:, :1]}), "Component 's' of `tgt` must have width 2 as in `ctx`, got 1"),
        (Points({"s": S}, F), Points({"s": S[None]}), "batch axes"),
        (Points({"s": S}, F), Points({"s": S}, np.ones((3, 2))), "must have 1 outputs as `ctx.f`, got 2"),
    ],
)
def test_context_and_targets_that_do_not_fit_are_named(ctx, tgt, named):
    with pytest.raises(ValueError, match=named):
        Task(ctx, tgt)


@pytest.mark.parametrize(("index", "named"), [(S, "mapping .* got ndarray"), ({3: S}, "names must be strings, got 3")])
def test_without_type_checking_a_wrong_index_is_named_too(index, named):
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=named):
            Points(index, F)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
