"""Nearest context points: exact where they are all, right neighbours where they are not, order kept, error told."""

import jax
import numpy as np
import pytest

from bsatnp import BSATNP, Points, nearest
from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.likelihoods import CategoricalHead
from bsatnp.nearest import _tiles, nearest_error, predict_nearest
from bsatnp.predict import predict

RNG = np.random.default_rng(0)
MODEL = BSATNP(
    bias=RBFNetwork(On("s", Translation(2))),
    depth=1,
    dim=8,
    width=8,
    key=jax.random.key(0),
)
CTX = Points({"s": RNG.uniform(0, 4, (40, 2))}, RNG.normal(size=(40, 1)))
TGT = {"s": RNG.uniform(0, 4, (100, 2))}


def close(a, b):
    np.testing.assert_allclose(a.mean, b.mean, atol=2e-5)
    np.testing.assert_allclose(a.std, b.std, atol=2e-5)


@pytest.mark.parametrize("tgt", [TGT, Points(TGT)])
def test_with_all_context_points_it_is_exact_and_in_order(tgt):
    close(predict_nearest(MODEL, CTX, tgt, k=40, by="s", tile=16), predict(MODEL, CTX, TGT))
    assert nearest_error(MODEL, CTX, tgt, k=99, by="s", tile=16, tiles=3, key=jax.random.key(0))["mean max"] < 2e-5


def test_a_tile_of_one_target_sees_its_nearest_points():
    """The oracle sorts all distances."""
    found = predict_nearest(MODEL, CTX, {"s": TGT["s"][:6]}, k=5, by="s", tile=1)
    for i, place in enumerate(TGT["s"][:6]):
        nearest = np.argsort(((CTX.index["s"] - place) ** 2).sum(-1))[:5]
        alone = predict(MODEL, CTX.take(np.sort(nearest)), {"s": place[None]}, chunk=1)
        np.testing.assert_allclose(found.mean[i], alone.mean[0], atol=2e-5)


def test_the_middle_of_a_tile_is_that_of_its_box():
    """Nine targets close together and one far away: the oracle sorts distances from the middle of their box."""
    places = np.concatenate([TGT["s"][:9] / 8, [[4.0, 4.0]]])
    nearest = np.argsort(((CTX.index["s"] - (places.min(0) + places.max(0)) / 2) ** 2).sum(-1))[:5]
    found = predict_nearest(MODEL, CTX, {"s": places}, k=5, by="s", tile=10)
    close(found, predict(MODEL, CTX.take(np.sort(nearest)), {"s": places}, chunk=10))


def test_places_and_dates_together_say_what_is_near():
    """Dates count as seconds, whole ones in the context, milliseconds in the targets; the oracle sorts distances."""
    start, seconds, thousandths = (
        np.datetime64("2024-03-01T00"),
        np.arange(40)[:, None] % 7,
        700 * np.arange(6)[:, None],
    )
    ctx = Points(CTX.index | {"t": (start + seconds * np.timedelta64(1, "s")).astype("M8[s]")}, CTX.f)
    tgt = {"s": TGT["s"][:6], "t": start + thousandths * np.timedelta64(1, "ms")}
    found = predict_nearest(MODEL, ctx, tgt, k=5, by=("s", "t"), tile=1)
    there = np.concatenate([CTX.index["s"], seconds], 1)
    for i, place in enumerate(np.concatenate([tgt["s"], thousandths / 1000], 1)):
        nearest = np.sort(np.argsort(((there - place) ** 2).sum(-1))[:5])
        alone = predict(MODEL, CTX.take(nearest), {"s": place[None, :2]}, chunk=1)
        np.testing.assert_allclose(found.mean[i], alone.mean[0], atol=2e-5)


def test_hidden_points_are_no_neighbours_and_places_may_be_computed():
    mask = np.arange(40) % 2 == 0
    expected = predict_nearest(MODEL, CTX.take(np.flatnonzero(mask)), TGT, k=8, by=["s"], tile=16)
    missing = np.where(mask[:, None], CTX.f, np.nan)
    for hidden in (Points(CTX.index, CTX.f, mask=mask), Points(CTX.index, missing)):
        close(predict_nearest(MODEL, hidden, TGT, k=8, by=lambda index: 3 * index["s"], tile=16), expected)


def test_masked_targets_may_lie_anywhere():
    mask = np.arange(100) % 3 > 0
    far = Points({"s": np.where(mask[:, None], TGT["s"], np.nan)}, mask=mask)
    kept = np.flatnonzero(mask)
    found = predict_nearest(MODEL, CTX, far, k=8, by="s", tile=100)
    expected = predict_nearest(MODEL, CTX, {"s": TGT["s"][kept]}, k=8, by="s", tile=100)
    np.testing.assert_allclose(np.asarray(found.mean)[kept], expected.mean, atol=2e-5)
    told = nearest_error(MODEL, CTX, far, k=8, by="s", tile=100, key=jax.random.key(0))
    assert told["targets"] == len(kept) and np.isfinite(told["mean max"])
    nowhere = Points(TGT, mask=np.zeros(100, bool))
    assert predict_nearest(MODEL, CTX, nowhere, k=8, by="s", tile=100).mean.shape == (100, 1)


def test_the_error_is_that_of_the_tiles_and_falls_with_k():
    """One tile of all targets: the error is the difference of two calls."""
    near = predict_nearest(MODEL, CTX, TGT, k=4, by="s", tile=100)
    exact = predict(MODEL, CTX, TGT)
    apart = np.abs(near.mean - exact.mean)
    told = nearest_error(MODEL, CTX, TGT, k=4, by="s", tile=100, key=jax.random.key(1))
    assert told["targets"] == 100
    assert told["mean max"] == pytest.approx(apart.max(), abs=1e-5)
    assert told["mean rms"] == pytest.approx((apart**2).mean() ** 0.5, abs=1e-5)
    assert told["std max"] == pytest.approx(np.abs(near.std - exact.std).max(), abs=1e-5)
    assert abs(told["std max"] - told["mean max"]) > 1e-3
    more = nearest_error(MODEL, CTX, TGT, k=32, by="s", tile=100, key=jax.random.key(1))
    assert more["mean rms"] < told["mean rms"] and more["std rms"] < told["std rms"]


def test_the_key_chooses_the_tiles_that_are_compared():
    keys = [jax.random.key(seed) for seed in range(3)]
    told = [nearest_error(MODEL, CTX, TGT, k=4, by="s", tile=10, tiles=1, key=key) for key in keys]
    assert {one["targets"] for one in told} == {10} and len({one["mean max"] for one in told}) > 1


def test_tiles_divide_the_long_side_and_all_are_full_but_one():
    strip = np.random.default_rng(0).uniform(size=(104, 2)) * [0.1, 100]
    tiles = list(_tiles(strip, np.arange(104), 10))
    assert sorted(map(len, tiles)) == [4, *[10] * 10]
    np.testing.assert_array_equal(sorted(np.concatenate(tiles)), np.arange(104))
    first, last = np.sort([[strip[tile, 1].min(), strip[tile, 1].max()] for tile in tiles], 0).T
    assert (last[:-1] < first[1:]).all(), "no two of them overlap"


def test_nothing_to_see_and_nothing_to_predict():
    none = CTX.take(np.arange(0))
    close(predict_nearest(MODEL, none, TGT, k=3, by="s", tile=50), predict(MODEL, none, TGT))
    assert predict_nearest(MODEL, CTX, {"s": np.zeros((0, 2))}, k=3, by="s").mean.shape == (0, 1)


def test_bad_arguments_are_named():
    for changed, words in {
        "k": ({"k": 0}, "`k` must be"),
        "tile": ({"tile": 0}, "`tile` must be"),
        "by": ({"by": "x"}, r"`by` must name components of `ctx`, which has \['s'\], got \['x'\]"),
        "none": ({"by": ()}, r"got \[\]"),
        "shape": ({"by": lambda index: index["s"][:, 0]}, "`by` must give numbers"),
        "rows": ({"by": lambda index: CTX.index["s"]}, r"for the 100 points of `tgt`, got float64 of shape \(40, 2\)"),
    }.values():
        with pytest.raises(ValueError, match=words):
            predict_nearest(MODEL, CTX, TGT, **({"k": 3, "by": "s"} | changed))
    with pytest.raises(ValueError, match="`tiles` must be at least 1, got 0"):
        nearest_error(MODEL, CTX, TGT, k=3, by="s", tiles=0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="`by` must give finite places of `ctx`"):
        predict_nearest(MODEL, CTX, TGT, k=3, by=lambda p: np.where(p["s"] == CTX.index["s"][7], np.inf, p["s"]))
    uneven = TGT | {"t": np.zeros((99, 1))}
    with pytest.raises(ValueError, match="one number of points"):
        predict_nearest(MODEL, CTX, uneven, k=3, by="s")
    with pytest.raises(ValueError, match="one number of points"):
        nearest_error(MODEL, CTX, uneven, k=3, by="s", key=jax.random.key(0))
    with pytest.raises(ValueError, match="at least one point"):
        nearest_error(MODEL, CTX, {"s": np.zeros((0, 2))}, k=3, by="s", key=jax.random.key(0))


def test_places_of_any_kind_that_is_a_number():
    exact = predict_nearest(MODEL, CTX, TGT, k=3, by="s", tile=50)
    close(predict_nearest(MODEL, CTX, {"s": TGT["s"].tolist()}, k=3, by="s", tile=50), exact)
    pandas = pytest.importorskip("pandas")
    close(predict_nearest(MODEL, CTX, {"s": pandas.DataFrame(TGT["s"])}, k=3, by="s", tile=50), exact)
    close(predict_nearest(MODEL, CTX, TGT, k=3, by=lambda p: (1e9 * p["s"]).astype("M8[ns]"), tile=50), exact)
    half = {"s": jax.numpy.asarray(TGT["s"], jax.numpy.bfloat16)}
    assert np.isfinite(predict_nearest(MODEL, CTX, half, k=3, by="s", tile=50).mean).all()
    with pytest.raises(ValueError, match="`by` must give finite places of `tgt`"):
        predict_nearest(MODEL, CTX, {"s": np.full((2, 2), np.nan)}, k=3, by="s")
    with pytest.raises(ValueError, match="`key` must be one typed key"):
        nearest_error(MODEL, CTX, TGT, k=3, by="s", key=jax.random.PRNGKey(0))


def test_labels_have_no_error_and_are_refused_before_the_whole_context_is_read(monkeypatch):
    model = BSATNP(
        head=CategoricalHead(2),
        bias=RBFNetwork(On("s", Translation(2))),
        depth=1,
        dim=8,
        width=8,
        key=jax.random.key(0),
    )
    sizes = []
    monkeypatch.setattr(
        nearest, "predict", lambda m, ctx, *rest, **how: sizes.append(len(ctx)) or predict(m, ctx, *rest, **how)
    )
    labels = Points(CTX.index, np.zeros((40, 1)))
    with pytest.raises(NotImplementedError, match="labels of a Categorical have none"):
        nearest_error(model, labels, TGT, k=4, by="s", tile=50, key=jax.random.key(0))
    assert set(sizes) == {4}
