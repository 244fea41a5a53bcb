"""Attention in float64 NumPy, written from its definition, and the package's answer in the same form.

Masked rows are dropped, so that nothing they hold can count. The gradient of the softmax is in closed form; a
`formula(xp, score, dots, p, x)` of the scores, the same text for NumPy and JAX, is pulled back by JAX in float64.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.attention import dense_attention, scan_attention

ENTRIES = {"scan": scan_attention, "dense": dense_attention}


class Answer(NamedTuple):
    """The output, and the gradient of Σ slope · output in everything that has one."""

    out: Any
    q: Any
    k: Any
    v: Any
    score: Any = None
    q_index: Any = None
    k_index: Any = None


class Score(eqx.Module):
    """A score made of a formula and what it learns."""

    learned: Any
    formula: Any = eqx.field(static=True)

    def __call__(self, dots, p, x):
        return self.formula(jnp, self.learned, dots, p, x)


def own(xp, score: Score, dots, p, x):
    """The formula of a `Score`, for the oracle."""
    return score.formula(xp, score.learned, dots, p, x)


def oracle(q, k, v, slope, *, formula=None, score=None, q_index=None, k_index=None, mask=None, scale=None) -> Answer:
    """The right answer. `slope` is the gradient of a loss with respect to the output."""
    q, k, v, slope = (np.asarray(x, np.float64) for x in (q, k, v, slope))
    score, q_index, k_index = (_double(x) for x in (score, q_index, k_index))
    n_q, n_k = q.shape[1], k.shape[1]
    allowed = np.ones((n_q, n_k), bool) if mask is None else np.broadcast_to(np.atleast_2d(mask), (n_q, n_k))
    rows, columns = np.any(allowed, axis=1), np.any(allowed, axis=0)
    pairs = np.ix_(np.ones(len(q), bool), rows, columns)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    dots, scores = np.zeros((len(q), n_q, n_k)), np.full((len(q), n_q, n_k), -np.inf)
    dots[pairs] = scale * np.einsum("hqd,hkd->hqk", q[:, rows], k[:, columns])
    if formula is None:
        scores[pairs] = dots[pairs]
    else:
        p, x = jax.tree.map(lambda a: a[rows], q_index), jax.tree.map(lambda a: a[columns], k_index)
        scores[pairs] = formula(np, score, dots[pairs], p, x)
    weights = softmax(np.where(allowed[None], scores, -np.inf))
    q, q_index = (jax.tree.map(lambda a: _blank(a, rows), tree) for tree in (q, q_index))
    k, v, k_index = (jax.tree.map(lambda a: _blank(a, columns), tree) for tree in (k, v, k_index))
    d_weights = np.einsum("hqd,hkd->hqk", slope, v)
    d_scores = weights * (d_weights - np.sum(weights * d_weights, -1, keepdims=True))
    d_score, d_dots, d_p, d_x = None, d_scores, None, None
    if formula is not None:
        with jax.enable_x64(True):
            pulled = _pull(formula, score, dots, q_index, k_index, d_scores)
        d_score, d_dots, d_p, d_x = jax.tree.map(np.asarray, pulled)
    return Answer(
        np.einsum("hqk,hkd->hqd", weights, v),
        scale * np.einsum("hqk,hkd->hqd", d_dots, k),
        scale * np.einsum("hqk,hqd->hkd", d_dots, q),
        np.einsum("hqk,hqd->hkd", weights, slope),
        d_score,
        d_p,
        d_x,
    )


@eqx.filter_jit
def answer(attention, q, k, v, slope, *, score=None, q_index=None, k_index=None, mask=None, scale=None, tile=None):
    """What the package says, in the oracle's form: None where nothing is differentiable."""
    inexact, rest = eqx.partition((q, k, v, score, q_index, k_index), eqx.is_inexact_array)

    def call(inexact):
        q, k, v, score, q_index, k_index = eqx.combine(inexact, rest)
        return attention(q, k, v, score=score, q_index=q_index, k_index=k_index, mask=mask, scale=scale, tile=tile)

    out, pull = jax.vjp(call, inexact)
    return Answer(out, *pull(slope)[0])


def softmax(scores: np.ndarray) -> np.ndarray:
    """Along the last axis; zero where every score is −inf."""
    top = np.max(scores, -1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


def close(actual: Any, expected: Any, *, times: float = 1.0) -> None:
    """Compare leaf by leaf, to a few roundings of the actual type at the size of the expected array."""
    actual, expected = (jax.tree.leaves(eqx.filter(x, _is_inexact)) for x in (actual, expected))
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        tolerance = {"bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}[str(a.dtype)] * times
        e = np.asarray(e, np.float64)
        size = np.max(np.abs(e), initial=1.0)
        np.testing.assert_allclose(np.asarray(a, np.float64), e, rtol=0, atol=tolerance * size)


def draw(seed: int, n_q: int, n_k: int, *, heads: int = 2, dim: int = 4, value: int = 3, dtype: Any = float) -> Any:
    """q, k, v and slope. q and k are multiples of ¼: their scores stay exact in float32 when 1e4 is added."""
    rng = np.random.default_rng(seed)
    q, k = (rng.integers(-8, 9, size=(heads, n, dim)) / 4 for n in (n_q, n_k))
    v, slope = rng.normal(size=(heads, n_k, value)), rng.normal(size=(heads, n_q, value))
    return tuple(jnp.asarray(x, dtype) for x in (q, k, v, slope))


@eqx.filter_jit
def _pull(formula, score, dots, p, x, d_scores):
    inexact, rest = eqx.partition((score, dots, p, x), _is_inexact)

    def call(inexact):
        return jnp.broadcast_to(formula(jnp, *eqx.combine(inexact, rest)), dots.shape)

    return jax.vjp(call, inexact)[1](d_scores)[0]


def _double(tree: Any) -> Any:
    return jax.tree.map(lambda a: np.asarray(a, np.float64 if _is_inexact(a) else None) if _is_array(a) else a, tree)


def _blank(a: np.ndarray, keep: Any) -> np.ndarray:
    """Zeros in the rows, along the last axis but one, that are not kept."""
    return np.where(keep[:, None], a, np.zeros((), a.dtype))


def _is_array(a: Any) -> bool:
    return isinstance(a, jax.Array | np.ndarray | np.generic)


def _is_inexact(a: Any) -> bool:
    return _is_array(a) and jnp.issubdtype(a.dtype, jnp.inexact)
