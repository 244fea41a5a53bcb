"""The cases of users, over every bias and both entry points, against a float64 softmax."""

import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bias_cases import CASES, points
from dense_oracle import ENTRIES, answer, close, draw, oracle

from bsatnp.attention import dense_attention, scan_attention
from bsatnp.layers import AdditiveScore
from tests.largest import largest

N_Q, N_K, TILE = 5, 7, (2, 3)
BOTH = [(name, entry) for name in CASES for entry in ENTRIES]
every_bias = pytest.mark.parametrize(("name", "entry"), BOTH)


class Shifted(eqx.Module):
    """Scores of a bias and a number added to all of them."""

    score: Any
    offset: Any

    def __call__(self, dots, p, x):
        return self.score(dots, p, x) + self.offset.astype(dots.dtype)

    @property
    def bias(self):
        return self.score.bias


@every_bias
def test_a1_a_number_added_to_every_score(name, entry):
    """One compilation: the number is traced. Far from zero the scores themselves are rounded, by so much."""
    case, four, (p, x) = CASES[name], draw(60, N_Q, N_K), points(60, N_Q, N_K)
    score, mask = AdditiveScore(case.bias()), jnp.ones((N_Q, N_K), bool)
    expected = oracle(*four, formula=case.scores, score=score, q_index=p, k_index=x, mask=mask)
    for offset in (0.0, -10.0, -20.0, -30.0, -100.0, -1e4, 1e4):
        moved = Shifted(score, jnp.asarray(offset, float))
        got = answer(ENTRIES[entry], *four, score=moved, q_index=p, k_index=x, mask=mask, tile=TILE)
        got = got._replace(score=got.score.score)
        close(got, expected, times=10 + abs(offset) / 20)


#: Lengths of queries and keys around a tile of four; every bias meets one pair at each entry.
LENGTHS = [(9, 5), (1, 4), (4, 3), (3, 9), (5, 1), (5, 5), (1, 9), (9, 4), (4, 9), (3, 3), (9, 9), (4, 5), (5, 3)]


@every_bias
def test_a5_lengths_around_a_tile(name, entry):
    n_q, n_k = LENGTHS[BOTH.index((name, entry)) % len(LENGTHS)]
    case, four, (p, x) = CASES[name], draw(61, n_q, n_k), points(61, n_q, n_k)
    inputs = {"score": AdditiveScore(case.bias()), "q_index": p, "k_index": x}
    close(answer(ENTRIES[entry], *four, **inputs, tile=(4, 4)), oracle(*four, formula=case.scores, **inputs), times=10)


@pytest.mark.parametrize("name", CASES)
def test_a10_the_gradient_holds_no_matrix_of_all_pairs(name):
    """The largest array of the traced gradient grows with the length once the tile is full; the dense one does not."""
    arrays, static = eqx.partition(AdditiveScore(CASES[name].bias()), eqx.is_array)

    def held(n, attention=scan_attention):
        def loss(arrays, q, k, v, p, x):
            return jnp.sum(attention(q, k, v, score=eqx.combine(arrays, static), q_index=p, k_index=x) ** 2)

        kind = jnp.zeros(()).dtype
        spec = lambda *shape: jax.ShapeDtypeStruct(shape, kind)  # noqa: E731
        index = {"s": spec(n, 2), "t": spec(n, 1), "g": spec(n, 2)}
        return largest(jax.make_jaxpr(jax.grad(loss, range(6)))(arrays, *[spec(2, n, 8)] * 3, index, index))

    sizes = {n: held(n) for n in (2048, 4096, 8192, 16384)}
    assert sizes[16384] <= 8 * sizes[2048] and sizes[16384] < 2 * 16384**2 / 8, sizes
    assert held(2048, dense_attention) >= 2 * 2048**2


@every_bias
def test_a3_a12_a16_a21_a_batch_with_a_task_that_sees_nothing(name, entry):
    """`vmap(grad)` of a checkpointed loss with a mask `(1, k)` of each task; the second task has no key."""
    case, fours, (p, x) = CASES[name], [draw(seed, N_Q, N_K) for seed in (62, 63)], points(62, N_Q, N_K)
    q, k, v, slope = (jnp.stack(leaves) for leaves in zip(*fours, strict=True))
    score, keep = AdditiveScore(case.bias()), np.array([[[True, False, True, True, False, True, True]], [[False] * 7]])
    inexact, rest = eqx.partition((score, p, x), eqx.is_inexact_array)

    @jax.jit
    def gradient(q, k, v, slope, mask):
        def loss(floats, q, k, v, slope, mask):
            score, p, x = eqx.combine(floats, rest)
            out = ENTRIES[entry](q, k, v, score=score, q_index=p, k_index=x, mask=mask, tile=TILE)
            return jnp.sum(out * slope)

        slopes = jax.grad(jax.checkpoint(loss), (0, 1, 2, 3))
        return jax.vmap(slopes, (None, 0, 0, 0, 0, 0))(inexact, q, k, v, slope, mask)

    grads = gradient(q, k, v, slope, jnp.asarray(keep))
    right = oracle(*fours[0], formula=case.scores, score=score, q_index=p, k_index=x, mask=keep[0])
    first = jax.tree.map(lambda g: g[0], grads)
    close(first[1:], (right.q, right.k, right.v), times=10)
    close(first[0], (right.score, right.q_index, right.k_index), times=10)
    for leaf in jax.tree.leaves(grads):
        np.testing.assert_array_equal(leaf[1], 0.0)


@every_bias
def test_a14_thousands_of_equal_scores_in_bfloat16(name, entry):
    ones = jnp.ones((2, 4096, 2), jnp.bfloat16)
    index = {"s": jnp.ones((4096, 2)), "t": jnp.ones((4096, 1)), "g": jnp.ones((4096, 2))}
    few = jax.tree.map(lambda a: a[:3], index)
    score = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, CASES[name].bias())
    attend = jax.jit(lambda q, k, v, p, x: ENTRIES[entry](q, k, v, score=AdditiveScore(score), q_index=p, k_index=x))
    out = attend(ones[:, :3], ones, ones, few, index)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(out, np.float64), 1, atol=0.01)


@pytest.mark.parametrize("name", CASES)
def test_a17_forward_mode_names_the_dense_attention(name):
    (q, k, v, _), (p, x), score = draw(64, N_Q, N_K), points(64, N_Q, N_K), AdditiveScore(CASES[name].bias())
    with pytest.raises(TypeError, match="forward-mode.*`dense_attention`"):
        jax.jvp(lambda q: scan_attention(q, k, v, score=score, q_index=p, k_index=x, tile=TILE), (q,), (q,))


@every_bias
def test_a19_integer_components_and_no_mask_through_grad(name, entry):
    case, four = CASES[name], draw(65, N_Q, N_K)
    rng = np.random.default_rng([65, zlib.crc32(name.encode())])
    p, x = ({"s": rng.integers(-3, 4, (n, 2)), "t": rng.integers(0, 4, (n, 1)), "g": rng.integers(-80, 81, (n, 2))}
            for n in (N_Q, N_K))  # fmt: skip
    whole = {"q_index": jax.tree.map(jnp.asarray, p), "k_index": jax.tree.map(jnp.asarray, x)}
    floats = {"q_index": jax.tree.map(np.float64, p), "k_index": jax.tree.map(np.float64, x)}
    score = AdditiveScore(case.bias())
    got = answer(ENTRIES[entry], *four, score=score, **whole, tile=TILE)
    assert not jax.tree.leaves((got.q_index, got.k_index))
    close(got[:5], oracle(*four, formula=case.scores, score=score, **floats)[:5], times=10)
