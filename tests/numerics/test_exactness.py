"""Values and gradients equal a float64 dense softmax, for every bias, length, tile and offset."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bias_cases import CASES, points
from dense_oracle import ENTRIES, Score, answer, close, draw, oracle, own
from hypothesis import given
from hypothesis import strategies as st

from bsatnp.attention import scan_attention
from bsatnp.layers import AdditiveScore

N_Q, N_K, TILE = 5, 7, (2, 3)
TILES = [(1, 1), (1, 64), (2, 3), (5, 3), (64, 64)]


def shifted(xp, learned, dots, p, x):
    """Scores with a factor per head, a constant, and −inf for keys too far away."""
    apart = (p[:, None, 0] - x[None, :, 0]) ** 2
    slow = learned["slope"][:, None, None] * dots + learned["offset"] - learned["pull"] * apart[None]
    return xp.where(apart[None] <= learned["reach"] ** 2, slow, -np.inf)


def shifted_inputs(seed, offset, reach=100.0, n_q=N_Q, n_k=N_K):
    rng = np.random.default_rng(seed)
    p, x = (jnp.asarray(rng.integers(-8, 9, size=(n, 1)) / 4, float) for n in (n_q, n_k))
    slope = jnp.asarray(rng.choice([0.5, 1.0, 2.0], size=2), float)
    learned = {"offset": offset, "slope": slope, "pull": 0.25, "reach": reach}
    return {"score": Score(jax.tree.map(lambda a: jnp.asarray(a, float), learned), shifted), "q_index": p, "k_index": x}


def check_shifted(entry, tile, seed, offset, reach=100.0, mask=None, n_q=N_Q, n_k=N_K):
    four, rest = draw(seed, n_q, n_k), shifted_inputs(seed, offset, reach, n_q, n_k)
    mask = np.ones((n_q, n_k), bool) if mask is None else mask
    actual = answer(ENTRIES[entry], *four, **rest, mask=jnp.asarray(mask), tile=tile)
    expected = oracle(*four, formula=own, **rest, mask=mask)
    close(actual, expected, times=3)


@pytest.mark.parametrize(("entry", "tile"), [*(("scan", tile) for tile in TILES[::2]), ("scan", None), ("dense", None)])
@pytest.mark.parametrize("offset", [0.0, -10.0, -20.0, -30.0, -100.0, -1e4, 1e4])
def test_a1_constant_offset(entry, tile, offset):
    check_shifted(entry, tile, 0, offset)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("nearest", [10, 25, 60])
def test_a1_linear_bias_far_from_the_context(entry, nearest):
    case = CASES["linear"]
    bias = eqx.tree_at(lambda b: b.log_slope, case.bias(), jnp.zeros(2))
    p, x = points(1, N_Q, N_K)
    away = jnp.asarray([[nearest + i, 0.0] for i in range(N_K)], float)  # distances are exact in float32
    p, x = p | {"s": jnp.zeros_like(p["s"])}, x | {"s": away}
    four = draw(1, N_Q, N_K)
    inputs = {"score": AdditiveScore(bias), "q_index": p, "k_index": x, "mask": jnp.ones((N_Q, N_K), bool)}
    close(answer(ENTRIES[entry], *four, **inputs, tile=TILE), oracle(*four, formula=case.scores, **inputs), times=3)


@pytest.mark.parametrize("hidden", [0, 2])
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 11, 13])  # of which no query has two highest keys
def test_scores_as_large_as_1e12(seed, hidden):
    """The highest key takes all, with a finite gradient, though a fused operation may put it above itself."""
    q, k, v, slope = (1e6 * x if i < 2 else x for i, x in enumerate(draw(seed, N_Q, N_K)))
    mask = jnp.arange(N_K) >= hidden

    def attend(q, k, v):
        return scan_attention(q, k, v, mask=mask, tile=TILE)

    out, pull = jax.vjp(attend, q, k, v)
    scores = np.einsum("hqd,hkd->hqk", np.asarray(q, np.float64), np.asarray(k, np.float64))
    best = np.where(np.asarray(mask), scores, -np.inf).argmax(-1)
    np.testing.assert_array_equal(out, np.take_along_axis(np.asarray(v), best[..., None], 1))
    assert all(np.isfinite(g).all() for g in pull(slope))


@given(
    tile=st.sampled_from(TILES),
    seed=st.integers(0, 10**6),
    offset=st.sampled_from([0.0, -1.5, 40.0, -300.0, 1e4, -1e4]),
    reach=st.sampled_from([100.0, 1.5, 0.3]),
    holes=st.sampled_from([0.0, 0.4, 0.8, 1.0]),
)
def test_any_tile_offset_mask_and_infinite_scores(tile, seed, offset, reach, holes):
    mask = np.random.default_rng(seed).uniform(size=(N_Q, N_K)) >= holes
    check_shifted("scan", tile, seed, offset, reach, mask)


@pytest.mark.parametrize("n_q, n_k", [(1, 1), (1, 9), (9, 1), (3, 5), (4, 4), (5, 9), (9, 3)])
def test_a5_lengths_around_the_tile(n_q, n_k):
    check_shifted("scan", (4, 4), 2, 0.0, n_q=n_q, n_k=n_k)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("n_q", "n_k"), [(0, 3), (3, 0), (0, 0)])
def test_a5_length_zero(entry, n_q, n_k):
    four, rest = draw(3, n_q, n_k), shifted_inputs(3, 0.0, n_q=n_q, n_k=n_k)
    actual = answer(ENTRIES[entry], *four, **rest, tile=(4, 4))
    assert actual.out.shape == (2, n_q, 3)
    for leaf in jax.tree.leaves(actual):
        np.testing.assert_array_equal(leaf, 0.0)


def test_a5_one_more_than_a_large_tile():
    four = draw(4, 1025, 1024, heads=1, dim=2, value=2)
    close(answer(scan_attention, *four, tile=(1024, 1024)), oracle(*four), times=3)
    four = draw(4, 1024, 1025, heads=1, dim=2, value=2)
    close(answer(scan_attention, *four, tile=(1024, 1024)), oracle(*four), times=3)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", CASES)
def test_a7_a8_a9_every_bias_with_mask_and_odd_lengths(entry, name):
    case, four, (p, x) = CASES[name], draw(5, N_Q, N_K), points(5, N_Q, N_K)
    mask = np.random.default_rng(5).uniform(size=(N_Q, N_K)) > 0.3
    mask[1], mask[:, 3] = False, False
    inputs = {"score": AdditiveScore(case.bias()), "q_index": p, "k_index": x, "mask": jnp.asarray(mask)}
    actual = answer(ENTRIES[entry], *four, **inputs, tile=TILE)
    close(actual, oracle(*four, formula=case.scores, **inputs), times=10)
    again = answer(ENTRIES[entry], *four, **inputs, tile=TILE)  # A9: the same bits
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(again), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("entry", ENTRIES)
def test_a9_the_same_bits_twice(entry):
    four, rest = draw(6, N_Q, N_K), shifted_inputs(6, -3.0)
    rest["mask"] = jnp.ones((N_Q, N_K), bool)
    first, second = (answer(ENTRIES[entry], *four, **rest, tile=TILE) for _ in range(2))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def shapes(xp, learned, dots, p, x):
    apart = (p[:, None, 0] - x[None, :, 0]) ** 2
    bumps = learned["basis"][:, :, None, None] * xp.exp(-xp.exp(learned["rate"])[:, :, None, None] * apart[None, None])
    return learned["scalar"] * dots + learned["head"][:, None, None] * apart[None] + xp.sum(bumps, 1)


def network(xp, learned, dots, p, x):
    """TE-TNP's score: a small network of the dot products of all heads and the difference."""
    apart = (p[:, None, 0] - x[None, :, 0])[None]
    inputs = xp.concatenate([dots, apart], 0)
    hidden = xp.tanh(xp.einsum("iqk,iw->wqk", inputs, learned["first"]) + learned["shift"][:, None, None])
    return xp.einsum("wqk,wh->hqk", hidden, learned["second"])


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("formula", [shapes, network])
def test_a8_parameters_of_every_shape(entry, formula):
    sizes = {"scalar": (), "head": (2,), "basis": (2, 3), "rate": (2, 3)}
    if formula is network:
        sizes = {"first": (3, 5), "shift": (5,), "second": (5, 2)}
    rng = np.random.default_rng(7)
    learned = {name: jnp.asarray(rng.normal(size=shape), float) for name, shape in sizes.items()}
    p, x = (jnp.asarray(rng.normal(size=(n, 1)), float) for n in (N_Q, N_K))
    four, inputs = draw(7, N_Q, N_K), {"score": Score(learned, formula), "q_index": p, "k_index": x, "scale": 0.7}
    expected = oracle(*four, formula=own, **inputs)
    close(answer(ENTRIES[entry], *four, **inputs, tile=TILE), expected, times=3)


@pytest.mark.parametrize(("entry", "tile"), [("scan", None), ("scan", (2, 100)), ("dense", None)])
def test_a14_bfloat16_many_equal_scores(entry, tile):
    ones = jnp.ones((1, 4096, 2), jnp.bfloat16)
    out = ENTRIES[entry](ones[:, :3], ones, ones, tile=tile)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(out, np.float64), 1, atol=0.01)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("entry", ENTRIES)
def test_a14_types_are_kept(entry, dtype):
    four, rest = draw(8, N_Q, N_K, dtype=dtype), shifted_inputs(8, -20.0)
    rest["score"], rest["q_index"], rest["k_index"] = jax.tree.map(
        lambda a: a.astype(jnp.float32), (rest["score"], rest["q_index"], rest["k_index"])
    )
    actual = answer(ENTRIES[entry], *four, **rest, tile=TILE)
    assert {a.dtype for a in actual[:4]} == {jnp.dtype(dtype)}
    assert {a.dtype for a in jax.tree.leaves(actual[4:])} == {jnp.dtype("float32")}
    expected = oracle(*four, formula=own, **rest)
    close(actual[:4], expected[:4], times=3)
    # in bfloat16 the output is rounded before the gradient of the scores is made from it
    times = 3 if dtype == jnp.float32 else 2000
    close(actual[4:], expected[4:], times=times)


@pytest.mark.parametrize("entry", ENTRIES)
def test_one_array_in_every_place(entry):
    q, *_, slope = draw(9, N_K, N_K, value=4)
    expected = oracle(q, q, q, slope)
    grad = jax.jit(jax.grad(lambda q: jnp.sum(slope * ENTRIES[entry](q, q, q, tile=TILE))))(q)
    close(grad, expected.q + expected.k + expected.v, times=3)


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_features_is_attention_by_score_alone(entry):
    (_, _, v, slope), rest = draw(10, N_Q, N_K), shifted_inputs(10, 2.0)
    q, k = (jnp.zeros((2, n, 0)) for n in (N_Q, N_K))
    expected = oracle(q, k, v, slope, formula=own, **rest, scale=1.0)
    close(answer(ENTRIES[entry], q, k, v, slope, **rest, tile=TILE), expected, times=3)
