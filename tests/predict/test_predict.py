"""Predictions in chunks equal predictions at once, in the caller's order."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsatnp.bias import RBFNetwork
from bsatnp.groups import SO3, Euclidean, On
from bsatnp.likelihoods import CategoricalHead
from bsatnp.models import BSATNP
from bsatnp.predict import predict
from bsatnp.tasks import Points


@pytest.mark.parametrize(
    ("n_ctx", "n_tgt", "chunk"), [(9, 50, None), (40, 50, 16), (40, 48, 16), (3, 1, 16), (16, 50, 99)]
)
def test_equals_the_closed_form(kernel, points, oracle, n_ctx, n_tgt, chunk):
    ctx, tgt = points(n_ctx), points(n_tgt, 1, values=False)
    got = predict(kernel, ctx, tgt, chunk=chunk)
    mean, std = oracle(ctx, tgt.index)
    assert type(got.mean) is np.ndarray and got.mean.shape == (n_tgt, 1) and got.mean.dtype == kernel.length.dtype
    np.testing.assert_allclose(got.mean, mean, atol=2e-5)
    np.testing.assert_allclose(got.std, std, atol=2e-5)


@given(order=st.permutations(range(37)))
def test_b9_the_order_of_the_caller(kernel_at_hand, order):
    model, ctx, tgt, got = kernel_at_hand
    shuffled = predict(model, ctx, Points({"s": tgt.index["s"][order]}), chunk=16)
    np.testing.assert_array_equal(shuffled.mean, got.mean[order])
    np.testing.assert_array_equal(tgt.index["s"], np.random.default_rng(5).uniform(size=(37, 2)))


@pytest.fixture(scope="module")
def kernel_at_hand():
    from_host = np.random.default_rng(5).uniform(size=(37, 2))
    ctx = Points({"s": np.random.default_rng(6).uniform(size=(8, 2))}, np.ones((8, 1)))
    model = BSATNP(depth=1, dim=8, heads=2, width=8, embed_sizes=(8,), hidden=8, bias=_bias(), key=jax.random.key(0))
    tgt = Points({"s": from_host})
    return model, ctx, tgt, predict(model, ctx, tgt, chunk=16)


def _bias():
    return RBFNetwork(On("s", Euclidean(2)), heads=2, basis=2)


def test_the_paper_model_in_chunks_equals_one_call(kernel_at_hand):
    model, ctx, tgt, got = kernel_at_hand
    whole = eqx.filter_jit(model)(ctx, tgt)
    np.testing.assert_allclose(got.mean, whole.mean, atol=2e-5)
    np.testing.assert_allclose(got.std, whole.std, atol=2e-5)


def test_no_targets_and_no_context(kernel, points, oracle):
    empty = predict(kernel, points(5), points(0, values=False))
    assert empty.mean.shape == empty.std.shape == (0, 1) and type(empty.mean) is np.ndarray
    tgt = points(20, 1, values=False)
    none = predict(kernel, points(0), tgt)
    np.testing.assert_allclose(none.mean, 0.5, rtol=1e-6)
    hidden = Points({"s": np.full((4, 2), np.nan)}, np.ones((4, 1)), mask=np.zeros(4, bool))
    np.testing.assert_array_equal(predict(kernel, hidden, tgt).mean, none.mean)
    assert predict(kernel, points(0), points(0, values=False)).mean.shape == (0, 1)


def test_missing_values_and_masked_rows_of_the_context(kernel, points, oracle):
    ctx, tgt = points(12), points(20, 1, values=False)
    f, mask = ctx.f.copy(), np.arange(12) != 3
    f[5] = np.nan
    keep = mask & (np.arange(12) != 5)
    got = predict(kernel, Points(ctx.index, f, mask=mask), tgt)
    fewer = predict(kernel, Points({"s": ctx.index["s"][keep]}, ctx.f[keep]), tgt)
    np.testing.assert_allclose(got.mean, fewer.mean, atol=1e-5)
    assert np.abs(got.mean - predict(kernel, ctx, tgt).mean).max() > 1e-3


def test_far_coordinates_keep_their_differences(kernel, points, oracle):
    """Northings near 5e6: without one origin for both, float32 would keep no digit of the distances."""
    ctx, tgt = points(30), points(50, 1, values=False)
    shift = np.array([500_000.0, 5e6])
    far = Points({"s": ctx.index["s"] + shift}, ctx.f)
    got = predict(kernel, far, {"s": tgt.index["s"] + shift}, chunk=16)
    np.testing.assert_allclose(got.mean, oracle(ctx, tgt.index)[0], atol=5e-5)
    none = predict(kernel, Points({"s": np.zeros((0, 2))}, np.zeros((0, 1))), {"s": tgt.index["s"] + shift}, chunk=16)
    np.testing.assert_allclose(none.mean, 0.5, rtol=1e-6)


def test_device_points_are_taken_as_they_are(kernel, points, oracle):
    kind = kernel.length.dtype
    ctx, tgt = (jax.tree.map(jnp.asarray, points(n, n, values=n == 9)) for n in (9, 20))
    ctx = Points({"s": jnp.asarray(ctx.index["s"], kind)}, jnp.asarray(ctx.f, kind))
    got = predict(kernel, ctx, tgt)
    np.testing.assert_allclose(got.mean, oracle(ctx, tgt.index)[0], atol=2e-5)
    mixed = predict(kernel, ctx, {"s": np.asarray(tgt.index["s"], np.float64)})
    np.testing.assert_allclose(mixed.mean, got.mean, atol=2e-5)
    many = np.asarray(ctx.f * 1e10, np.int64)  # more than 32 bits count
    on_host = predict(kernel, Points({"s": np.asarray(ctx.index["s"])}, many), {"s": np.asarray(tgt.index["s"])})
    counted = predict(kernel, Points(ctx.index, many), tgt)
    np.testing.assert_allclose(counted.mean, on_host.mean, rtol=1e-5, atol=1e5)


def test_d5_few_compilations(kernel, points, traces):
    sizes = np.random.default_rng(0).choice(np.arange(1, 200), 20, replace=False)
    for n in sizes.tolist():
        predict(kernel, points(n), points(2 * n, 1, values=False), chunk=64)
    buckets = {16, 24, 32, 48, 64, 96, 128, 192, 256}
    conditions = [n for what, n in traces if what == "condition"]
    assert len(conditions) == len(set(conditions)) and set(conditions) <= buckets
    count = len(traces)
    predict(type(kernel)(2.0), points(150), points(170, 1, values=False), chunk=64)
    assert len(traces) == count, "another model of the same structure compiles nothing"


def test_little_of_a_large_context_is_padding(kernel, points, traces):
    before = len(traces)
    for n in (20_000, 20_300):
        predict(kernel, points(n), points(20, 1, values=False), chunk=32)
    new = [size for what, size in traces[before:] if what == "condition"]
    assert len(new) == 1 and new[0] < 1.1 * 20_000


def test_the_last_chunk_compiles_nothing(kernel, points, traces):
    got = predict(kernel, points(5), points(1000, 1, values=False), chunk=48)
    assert [what for what in traces if what[0] == "answer"] in ([("answer", 48)], []) and len(got.mean) == 1000


def test_categories_in_chunks(kernel, oracle):
    """Parameters with an axis more than the values."""
    rng = np.random.default_rng(0)
    ctx = Points({"s": rng.uniform(size=(6, 2))}, rng.integers(0, 3, (6, 1)))
    tgt = {"s": rng.uniform(size=(20, 2))}
    got: Any = predict(type(kernel)(head=CategoricalHead(3)), ctx, tgt, chunk=16)
    assert got.logits.shape == (20, 1, 3) and type(got.logits) is np.ndarray
    odds = got.logits[:, 0] - got.logits[:, 0, :1]  # whatever the head adds to all of them
    mean, _ = oracle(ctx, tgt)
    np.testing.assert_allclose(odds[:, 2] - odds[:, 1], mean[:, 0], atol=2e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ctx, tgt: (ctx, {"x": tgt["s"]}), "must have"),
        (lambda ctx, tgt: (ctx, {"s": tgt["s"][:, :1]}), "width 2 as in `ctx`, got 1"),
        (lambda ctx, tgt: (ctx, {"s": np.where(np.arange(50)[:, None] == 49, np.nan, tgt["s"])}), "must be finite"),
        (lambda ctx, tgt: (ctx, {"s": tgt["s"], "t": np.zeros((3, 1))}), "must have one number of points"),
        (lambda ctx, tgt: (jax.tree.map(lambda x: x[None], ctx), tgt), "`ctx` must be one task"),
        (lambda ctx, tgt: (ctx, jax.tree.map(lambda x: x[None], Points(tgt))), "`tgt` must be one task"),
        (lambda ctx, tgt: (Points({"s": ctx.index["s"]}), tgt), "`ctx` must carry observed values"),
    ],
)
def test_points_that_do_not_fit(kernel, points, traces, change, message):
    """Every target is looked at before anything is computed."""
    ctx, tgt = change(points(9), dict(points(50, 1, values=False).index))
    out = {"mean": np.full((50, 1), -1.0)}
    with pytest.raises(ValueError, match=message):
        predict(kernel, ctx, tgt, chunk=16, out=out)
    assert traces == [] and (out["mean"] == -1).all()


def test_places_beyond_the_poles_are_refused_on_either_side(kernel, traces):
    class Globe(type(kernel)):
        groups = (On("s", SO3()),)

    places = np.zeros((40, 2))
    beyond = places + 95 * np.eye(40, 2, -32)
    for ctx, tgt in ((places, beyond), (beyond, places)):
        with pytest.raises(ValueError, match="the second column goes up to 95, beyond 90"):
            predict(Globe(), Points({"s": ctx}, np.zeros((40, 1))), {"s": tgt}, chunk=16)
    assert traces == []


def test_chunk_is_checked(kernel, points, monkeypatch):
    with pytest.raises(ValueError, match="`chunk` must be at least 1, got 0"):
        predict(kernel, points(3), points(3), chunk=0)
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match="`chunk` must be a whole number, got 2.5"):
        predict(kernel, points(3), points(3), chunk=2.5)  # pyright: ignore


@pytest.mark.parametrize(
    ("ctx", "tgt", "message"),
    [
        ({"s": np.zeros((3, 2))}, None, "`ctx` must be Points, got dict"),
        (None, {"s": None}, "components of `tgt` must have one number of points"),
        (None, {"s": np.float64(1)}, "components of `tgt` must have one number of points"),
        (None, {}, "components of `tgt` must have one number of points"),
        (None, np.zeros((3, 2)), "`tgt` must be Points or a mapping of component names to arrays, got ndarray"),
        (
            None,
            {"s": np.ma.array(np.zeros((3, 2)), mask=np.eye(3, 2) > 0)},
            "Component 's' must be finite .* got 2 NaN",
        ),
        (None, {"s": np.array([["2024", "2025"]], "M8[D]")}, "Component 's' of `tgt` must hold dates where `ctx` does"),
    ],
)
def test_b8_what_is_no_context_or_no_targets(kernel, points, ctx, tgt, message, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        predict(kernel, points(3) if ctx is None else ctx, points(3).index if tgt is None else tgt)


def test_targets_that_only_have_a_shape_and_slices(kernel, points, monkeypatch):
    """As arrays of Zarr are."""

    class Chunked:
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __getitem__(self, rows):
            return self.array[rows]

    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    ctx, tgt = points(9), points(50, 1, values=False)
    got = predict(kernel, ctx, {name: Chunked(np.asarray(value)) for name, value in tgt.index.items()}, chunk=16)
    np.testing.assert_array_equal(got.mean, predict(kernel, ctx, tgt, chunk=16).mean)


def test_arrays_that_are_being_traced_are_refused(kernel, points):
    with pytest.raises(ValueError, match=r"inside compiled functions call `model\(ctx, tgt\)`"):
        eqx.filter_jit(lambda ctx, tgt: predict(kernel, ctx, tgt))(points(9), points(3, 1))
    with pytest.raises(ValueError, match="`model`, `ctx` and `tgt` must be known arrays"):
        eqx.filter_grad(lambda model: predict(model, points(9), points(3, 1)).mean.sum())(kernel)


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i2", np.longdouble, np.float16, jnp.bfloat16, np.int8])
def test_other_types_of_the_same_numbers(kernel, kind, x64):
    """Big-endian arrays, as NetCDF 3 and FITS files hold them, among them."""
    s, f = np.array([[0.0, 1.0], [2.0, -1.0], [-3.0, 2.0]]), np.array([[1.0], [-2.0], [3.0]])
    expected = predict(kernel, Points({"s": s}, f), {"s": s + 1})
    got = predict(kernel, Points({"s": s.astype(kind)}, f.astype(kind)), {"s": (s + 1).astype(kind)})
    np.testing.assert_allclose(got.mean, expected.mean, rtol=1e-5)
    np.testing.assert_allclose(got.std, expected.std, rtol=1e-5)


def test_progress(kernel, points, capsys):
    predict(kernel, points(3), points(40, values=False), chunk=16, progress=True)
    assert "3/3" in capsys.readouterr().err
