"""Attention that holds every pair: the oracle, and the way to forward mode and second derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bsatnp.attention.operands import Operands, prepare, product


def dense_attention(
    q: Float[Array, "head q dim"],
    k: Float[Array, "head k dim"],
    v: Float[Array, "head k value"],
    *,
    score: Any = None,
    q_index: Any = None,
    k_index: Any = None,
    mask: Bool[Array, "..."] | None = None,
    scale: float | None = None,
    tile: tuple[int, int] | None = None,
) -> Float[Array, "head q value"]:
    """Softmax attention with the whole `(head, q, k)` matrix in memory.

    The same function as `scan_attention`, argument by argument; `tile` is accepted and has nothing to do. Every kind of
    differentiation works.

    **Shapes.** As `scan_attention`.

    Raises:
        ValueError: shapes that do not fit.
    """
    del tile
    return attend(*prepare(q, k, v, score, q_index, k_index, mask, scale))[0].astype(v.dtype)


def attend(operands: Operands, mask: Array | None) -> tuple[Array, Array]:
    """Output `(head, q, value)` and log-sum-exp `(head, q, 2)` of prepared operands, in float32 or wider.

    The log-sum-exp is kept as two terms, the maximum and the rest: far from zero their float32 sum would lose the rest.
    Without any key they are −inf and 0.
    """
    scores = operands.scores()
    if mask is not None:
        scores = jnp.where(mask[None], scores, -jnp.inf)
    top = jax.lax.stop_gradient(jnp.max(scores, -1, keepdims=True, initial=-jnp.inf))
    weights = jnp.exp(scores - jnp.where(jnp.isneginf(top), 0, top))
    total = jnp.sum(weights, -1, keepdims=True)
    safe = jnp.where(total > 0, total, 1)
    out = product("hqk,hkd->hqd", weights / safe, operands.v.astype(weights.dtype))
    return out, jnp.concatenate([top, jnp.log(safe)], -1)
