"""Masked rows may hold anything, rows without a key give zero, and masks that do not fit are refused."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bias_cases import CASES, points
from dense_oracle import ENTRIES, Score, answer, close, draw, oracle, own

from bsatnp.attention import dense_attention, scan_attention
from bsatnp.attention.tiles import BUDGET
from bsatnp.layers import AdditiveScore

N_Q, N_K, TILE = 5, 7, (2, 3)


def masks():
    """Masks `(q, k)`, by what they hide."""
    whole = np.ones((N_Q, N_K), bool)
    first_tile, row, column, late = (whole.copy() for _ in range(4))
    first_tile[:, :3] = False
    row[2] = False
    column[:, [0, 5]] = False
    late[:, 3:] = False
    late[3, :3], late[3, 6] = False, True  # one query sees the last key alone
    return {"first tile": first_tile, "row": row, "columns": column, "late": late, "all": ~whole}


class Falling(eqx.Module):
    """A score with a field whose name means nothing to attention."""

    width: Any

    def __call__(self, dots, q_index, k_index):
        return dots - jnp.abs(q_index - k_index.T)[None] / self.width


@pytest.mark.parametrize("width", [7.5, 2, "array"])
def test_a_score_may_call_its_fields_what_it_likes(width):
    q, x = jnp.ones((2, 5, 4)), jnp.arange(5.0)[:, None]
    score = Falling(jnp.ones(()) if width == "array" else width)
    got, expected = (f(q, q, q, score=score, q_index=x, k_index=x) for f in (scan_attention, dense_attention))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", CASES)
def test_a2_a4_nan_and_inf_in_masked_rows(entry, name):
    case, four, (p, x) = CASES[name], draw(11, N_Q, N_K), points(11, N_Q, N_K)
    for hidden in masks().values():
        rows, columns = jnp.asarray(~hidden.any(1)), jnp.asarray(~hidden.any(0))

        def poison(tree, where):
            bad = jnp.where(jnp.arange(len(where)) % 2 == 0, jnp.nan, jnp.inf)[:, None]
            return jax.tree.map(lambda a: jnp.where(where[:, None], bad.astype(a.dtype), a), tree)  # noqa: B023

        q, k, v, slope = four
        q, k, v = (jax.vmap(poison, (0, None))(z, where) for z, where in ((q, rows), (k, columns), (v, columns)))
        inputs = {"score": AdditiveScore(case.bias()), "mask": jnp.asarray(hidden)}
        index = {"q_index": poison(p, rows), "k_index": poison(x, columns)}
        actual = answer(ENTRIES[entry], q, k, v, slope, **inputs, **index, tile=TILE)
        expected = oracle(q, k, v, slope, formula=case.scores, **inputs, **index)
        close(actual, expected, times=10)
        np.testing.assert_array_equal(actual.out[:, rows], 0.0)
        np.testing.assert_array_equal(actual.q[:, rows], 0.0)
        np.testing.assert_array_equal(actual.k[:, columns], 0.0)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a2_causal_query_before_every_key(entry):
    case, four, (p, x) = CASES["causal"], draw(12, N_Q, N_K), points(12, N_Q, N_K)
    actual = answer(
        ENTRIES[entry],
        *four,
        score=AdditiveScore(case.bias()),
        q_index=p,
        k_index=x,
        mask=jnp.ones((N_Q, N_K), bool),
        tile=TILE,
    )
    assert float(p["t"][-1, 0]) < float(x["t"].min())
    np.testing.assert_array_equal(actual.out[:, -1], 0.0)
    np.testing.assert_array_equal(actual.q[:, -1], 0.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(actual))


def sloped(xp, learned, dots, p, x):
    return learned * dots * (p[:, None, 0] - x[None, :, 0])[None]


def sloped_inputs(n_q=N_Q, n_k=N_K):
    rng = np.random.default_rng(13)
    p, x = (jnp.asarray(rng.normal(size=(n, 1)), float) for n in (n_q, n_k))
    return {"score": Score(jnp.asarray(0.7, float), sloped), "q_index": p, "k_index": x}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a4_the_only_query_is_masked(entry):
    """The mask `(1, k)` is also a mask `(q, k)` here; NaN in the query must not reach the score's parameters."""
    four, rest = draw(13, 1, N_K), sloped_inputs(1)
    q, rest["q_index"] = four[0] * jnp.nan, rest["q_index"] * jnp.inf
    actual = answer(ENTRIES[entry], q, *four[1:], **rest, mask=jnp.zeros((1, N_K), bool), tile=TILE)
    for leaf in jax.tree.leaves(actual):
        np.testing.assert_array_equal(leaf, 0.0)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a4_equals_dropping_the_rows(entry):
    q, k, v, slope = draw(14, N_Q, N_K)
    rest = sloped_inputs()
    keep = jnp.asarray([True, True, False, True, False, True, False])
    whole = answer(ENTRIES[entry], q, k, v, slope, **rest, mask=keep, tile=TILE)
    rest["k_index"] = rest["k_index"][keep]
    part = answer(ENTRIES[entry], q, k[:, keep], v[:, keep], slope, **rest, tile=TILE)
    close((whole.out, whole.q, whole.score, whole.q_index), (part.out, part.q, part.score, part.q_index))
    close((whole.k[:, keep], whole.v[:, keep], whole.k_index[keep]), (part.k, part.v, part.k_index))
    np.testing.assert_array_equal(whole.k_index[~keep], 0.0)


def shared(xp, learned, dots, p, x):
    """One bias for all heads, without a head axis."""
    return dots[0] * 0 + learned * (p[:, None, 0] - x[None, :, 0]) ** 2


@pytest.mark.parametrize(
    ("entry", "shape"), [("scan", (N_K,)), ("scan", (1, N_K)), ("scan", (N_Q, N_K)), ("dense", (1, N_K))]
)
def test_a12_mask_shapes_and_a_shared_bias_under_vmap_grad(entry, shape):
    batch, slope = [draw(seed, N_Q, N_K)[:3] for seed in (15, 16)], draw(17, N_Q, N_K)[3]
    rest = sloped_inputs() | {"score": Score(jnp.asarray(-0.7, float), shared)}
    mask = np.random.default_rng(15).uniform(size=(2, *shape)) > 0.4
    stacked = jax.tree.map(lambda *z: jnp.stack(z), *batch)

    def loss(parts, mask):
        out = ENTRIES[entry](*parts[0], **rest | {"score": parts[1]}, mask=mask, tile=TILE)
        return jnp.sum(out * slope)

    grads = jax.jit(jax.vmap(jax.grad(loss), in_axes=((0, None), 0)))((stacked, rest["score"]), jnp.asarray(mask))
    for i, (q, k, v) in enumerate(batch):
        expected = oracle(q, k, v, slope, formula=own, **rest, mask=mask[i])
        close(jax.tree.map(lambda g: g[i], grads), (*expected[1:4], expected.score), times=3)  # noqa: B023


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    "mask", [np.ones(N_Q, bool), np.ones((N_Q, 1), bool), np.ones((2, N_Q, N_K), bool), np.ones(N_K)]
)
def test_a12_masks_that_do_not_fit(entry, mask):
    with pytest.raises(ValueError, match=r"`mask` must be boolean with shape .*\(q, k\) = \(5, 7\), got") as caught:
        inspect.unwrap(ENTRIES[entry])(*draw(18, N_Q, N_K)[:3], mask=jnp.asarray(mask))
    assert str(mask.shape) in str(caught.value)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("shape", [(3, 5, 7), (7, 5), (5,), (1, 2, 5, 7)])
def test_a12_scores_that_do_not_fit(entry, shape):
    with pytest.raises(ValueError, match=r"`score` must return shape .*= \(2, 5, 7\), got") as caught:
        ENTRIES[entry](*draw(18, N_Q, N_K)[:3], score=lambda dots, p, x: jnp.zeros(shape))
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": (5, 4)}, "`q` must have axes"),
        ({"k": (2, 7, 3)}, "`k` must have shape"),
        ({"k": (1, 7, 4)}, "`k` must have shape"),
        ({"v": (2, 6, 3)}, "`v` must have shape"),
        ({"q_index": (5,)}, "`q_index` must have shape .* got"),
        ({"k_index": (5, 1)}, "`k_index` must have shape .*= .7, dim."),
        ({"tile": (0, 3)}, "`tile` must be"),
        ({"tile": (3,)}, "`tile` must be two numbers, of queries and of keys"),
        ({"tile": 64}, "`tile` must be two numbers, of queries and of keys, got 64"),
    ],
)
def test_shapes_that_do_not_fit(entry, change, words):
    inputs: dict = dict(zip("qkv", draw(18, N_Q, N_K)[:3], strict=True))
    inputs |= {name: value if name == "tile" else jnp.ones(value) for name, value in change.items()}
    if entry == "dense" and "tile" in change:
        pytest.skip("dense_attention has no use for a tile")
    with pytest.raises(ValueError, match=words):
        inspect.unwrap(ENTRIES[entry])(**inputs)  # the package's own words, not those of the hook in conftest.py


@pytest.mark.parametrize("entry", ENTRIES)
def test_a21_no_key_is_like_all_keys_masked(entry):
    q, k, v, slope = draw(19, N_Q, N_K)
    rest = sloped_inputs()
    masked = answer(ENTRIES[entry], q, k, v, slope, **rest, mask=jnp.zeros(N_K, bool), tile=TILE)
    rest["k_index"] = rest["k_index"][:0]
    empty = answer(ENTRIES[entry], q, k[:, :0], v[:, :0], slope, **rest, tile=TILE)
    for leaf in jax.tree.leaves((masked, empty)):
        np.testing.assert_array_equal(leaf, 0.0)
    assert masked.out.shape == empty.out.shape == (2, N_Q, 3)


def table(xp, learned, dots, p, x):
    """Integer categories look up a learned score."""
    return dots + learned[p["c"][:, 0]][:, x["c"][:, 0]][None] + 0.0 * p["s"][:, None, 0][None]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("masked", [True, False])
def test_a19_integer_components_and_boolean_masks_through_grad(entry, masked):
    rng, four = np.random.default_rng(20), draw(20, N_Q, N_K)
    p, x = ({"c": jnp.asarray(rng.integers(0, 4, size=(n, 1))), "s": jnp.ones((n, 1))} for n in (N_Q, N_K))
    mask = jnp.asarray(rng.uniform(size=(N_Q, N_K)) > 0.3) if masked else None
    inputs = {"score": Score(jnp.asarray(rng.normal(size=(4, 4)), float), table), "q_index": p, "k_index": x}
    actual = answer(ENTRIES[entry], *four, **inputs, mask=mask, tile=TILE)
    assert actual.q_index["c"] is None
    close(actual, oracle(*four, formula=own, **inputs, mask=mask), times=3)


@pytest.mark.parametrize("entry", ENTRIES)
def test_numpy_integers_in_the_index(entry):
    rng, four = np.random.default_rng(21), draw(21, N_Q, N_K)
    p, x = (rng.integers(0, 9, size=(n, 1)) for n in (N_Q, N_K))

    def lag(dots, p, x):
        return dots - jnp.abs(p[:, None, 0] - x[None, :, 0])[None].astype(dots.dtype)

    actual = ENTRIES[entry](*four[:3], score=lag, q_index=p, k_index=x, tile=TILE)
    formula = lambda xp, score, dots, p, x: dots - xp.abs(p[:, None, 0] - x[None, :, 0])[None]  # noqa: E731
    close(actual, oracle(*four, formula=formula, q_index=p.astype(float), k_index=x.astype(float)).out)


@pytest.mark.parametrize("shape", [(0, 2, 5, 4), (3, 0, 5, 4)])
def test_no_tasks_or_no_heads(shape):
    assert jax.vmap(scan_attention)(*(jnp.zeros(shape),) * 3).shape == shape


class Counted(eqx.Module):
    """A score that appends to a list on the host each time a tile is computed."""

    calls: list = eqx.field(static=True)

    def __call__(self, dots, q_index, k_index):
        jax.debug.callback(lambda: self.calls.append(1))
        return dots


@pytest.mark.parametrize(("shown", "tiles"), [(0, 0), (1, 1), (256, 1), (257, 2), (1000, 4)])
def test_tiles_behind_the_last_key_are_not_computed(shown, tiles):
    q, k, v, _ = draw(17, 8, 1024)
    score = Counted([])
    mask = jnp.arange(1024) < shown

    def loss(q):
        return jnp.sum(scan_attention(q, k, v, score=score, mask=mask, tile=(8, 256)))

    jax.block_until_ready(jax.jit(loss)(q))
    jax.effects_barrier()
    assert len(score.calls) == tiles
    gradient = jax.block_until_ready(jax.jit(jax.grad(loss))(q))
    jax.effects_barrier()
    assert len(score.calls) == 3 * tiles, "the gradient computes each tile once more in either direction"
    dense = lambda q: jnp.sum(dense_attention(q, k, v, mask=mask))  # noqa: E731
    np.testing.assert_allclose(gradient, jax.grad(dense)(q), atol=1e-5)


def test_tiles_are_left_out_for_each_task_of_a_batch_taken_by_itself(monkeypatch):
    monkeypatch.setitem(BUDGET, "cpu", 2**14)
    q, k, v = (jnp.stack([x] * 3) for x in draw(19, 8, 1024)[:3])
    score, mask = Counted([]), jnp.asarray(np.arange(1024) < np.array([[1], [257], [1000]]))
    attend = jax.vmap(lambda q, k, v, mask: scan_attention(q, k, v, score=score, mask=mask))
    jax.block_until_ready(jax.jit(attend)(q, k, v, mask))
    jax.effects_barrier()
    assert len(score.calls) == 1 + 2 + 4


@pytest.mark.parametrize(("n_k", "most"), [(512, 512), (1100, 1100), (1100, 300)])
def test_a_batch_of_contexts_that_fill_few_tiles_and_all(n_k, most):
    four = jax.tree.map(lambda *x: jnp.stack(x), *(draw(seed, 6, n_k) for seed in range(4)))
    mask = jnp.asarray(np.arange(n_k) < np.array([[0], [3], [most // 2], [most]]))

    def results(attention):
        def loss(q, k, v, slope):
            out = jax.vmap(lambda q, k, v, mask: attention(q, k, v, mask=mask))(q, k, v, mask)
            return jnp.sum(out * slope), out

        return jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(*four)

    rtol = 1e-10 if four[0].dtype == jnp.float64 else 1e-5
    for a, b in zip(*(jax.tree.leaves(results(f)) for f in (scan_attention, dense_attention)), strict=True):
        np.testing.assert_allclose(a, b, rtol, atol=rtol)
