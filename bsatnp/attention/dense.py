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
    axis: str | None = None,
) -> Float[Array, "head q value"]:
    """Softmax attention with the whole `(head, q, k)` matrix in memory.

    The same function as `scan_attention`, argument by argument; `tile` is accepted and has nothing to do. Every kind of
    differentiation works.

    **Shapes.** As `scan_attention`.

    Raises:
        ValueError: shapes that do not fit.
    """
    del tile
    return merged(*attend(*prepare(q, k, v, score, q_index, k_index, mask, scale)), axis).astype(v.dtype)


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


def merged(out: Array, lse: Array, axis: str | None) -> Array:
    """Attention to all keys from what each device along a mapped axis found with its own; `out` where it is None."""
    if axis is None:
        return out
    top, log_total = jax.lax.stop_gradient(lse[..., 0]), lse[..., 1]
    highest = jax.lax.pmax(top, axis)
    total = jnp.exp(top - jnp.where(jnp.isneginf(highest), 0, highest) + log_total)
    whole = jax.lax.psum(total, axis)
    return jax.lax.psum(total[..., None] * out, axis) / jnp.where(whole > 0, whole, 1)[..., None]
