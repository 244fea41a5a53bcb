"""What attention works on: checked, and clean under the mask."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from bsatnp._types import is_traced, widened


class Operands(eqx.Module):
    """Everything that a gradient can reach. `score` is None for plain dot products."""

    q: Array
    k: Array
    v: Array
    score: Any
    q_index: Any
    k_index: Any
    scale: float = eqx.field(static=True)

    @property
    def held(self) -> int:
        """Numbers held for each pair at once: one for each head, or more where the score declares it."""
        return max(self.q.shape[-3], getattr(self.score, "numbers_per_pair", 0))

    def dots(self) -> Array:
        """Scaled dot products of all pairs `(head, q, k)`, in float32 or wider."""
        return product("hqd,hkd->hqk", self.q, self.k) * self.scale

    def scores(self, dots: Array | None = None) -> Array:
        """Scores of all pairs `(head, q, k)`, in float32 or wider, from their dot products where they are known."""
        wide = widened(self.q.dtype)
        dots = self.dots() if dots is None else dots
        if self.score is None:
            return dots
        scores = jnp.asarray(self.score(dots, self.q_index, self.k_index))
        padded = (1,) * (3 - len(scores.shape)) + scores.shape
        if len(padded) > 3 or any(n not in (1, m) for n, m in zip(padded, dots.shape, strict=True)):
            raise ValueError(f"`score` must return shape (head, q, k) = {dots.shape}, got {scores.shape}.")
        return jnp.broadcast_to(scores.astype(wide), dots.shape)


def product(subscripts: str, a: Array, b: Array) -> Array:
    """Sum of products in full precision, held in float32 or wider."""
    return jnp.einsum(subscripts, a, b, preferred_element_type=widened(a.dtype), precision=jax.lax.Precision.HIGHEST)


def prepare(q, k, v, score, q_index, k_index, mask, scale) -> tuple[Operands, Array | None]:
    """Check shapes and zero whatever the mask hides, so that NaN cannot pass through it.

    Returns:
        The operands and the mask as `(1, k)`, `(q, k)` or None.

    Raises:
        ValueError: shapes that do not fit.
    """
    for name, value in {"q": q, "k": k, "v": v}.items():
        if value.ndim != 3:
            raise ValueError(f"`{name}` must have axes (head, {name[0]}, dim), got shape {value.shape}.")
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise ValueError(f"`{name}` must be floating, got {value.dtype}.")
    head, n_q, dim = q.shape
    n_k = k.shape[1]
    if k.shape != (head, n_k, dim):
        raise ValueError(f"`k` must have shape (head, k, dim) = ({head}, k, {dim}) as `q` has, got {k.shape}.")
    if v.shape[:2] != (head, n_k):
        raise ValueError(f"`v` must have shape (head, k, dim) = ({head}, {n_k}, dim) as `k` has, got {v.shape}.")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"`q`, `k` and `v` must share a type, got {q.dtype}, {k.dtype} and {v.dtype}.")
    _check_index("q_index", q_index, n_q)
    _check_index("k_index", k_index, n_k)
    if mask is not None:
        mask = jnp.asarray(mask)
        if mask.dtype != bool or mask.shape not in ((n_k,), (1, n_k), (n_q, n_k)):
            raise ValueError(
                f"`mask` must be boolean with shape (k,) = ({n_k},), (1, {n_k}) or (q, k) = ({n_q}, {n_k}), "
                f"got {mask.dtype} {mask.shape}."
            )
        mask = jnp.atleast_2d(mask)
        keys = mask.any(0)
        k, v, k_index = (_zero_rows(tree, keys) for tree in (k, v, k_index))
        if mask.shape[0] == n_q:
            queries = mask.any(1)
            q, q_index = (_zero_rows(tree, queries) for tree in (q, q_index))
    if is_traced(scale):
        raise ValueError("`scale` must be a number that is known; multiply `q` by one that is learned or computed.")
    scale = 1 / math.sqrt(max(dim, 1)) if scale is None else float(scale)
    return Operands(q, k, v, score, q_index, k_index, scale), mask


def _check_index(name: str, index: Any, n: int) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(index):
        shape = jnp.shape(leaf)
        if len(shape) != 2 or shape[0] != n:
            where = jax.tree_util.keystr(path)
            raise ValueError(f"`{name}{where}` must have shape ({name[0]}, dim) = ({n}, dim), got {shape}.")


def _zero_rows(tree: Any, keep: Array) -> Any:
    """Zero the rows, along the last axis but one, where `keep` is False."""

    def zero(leaf):
        rows = jnp.expand_dims(keep, tuple(range(leaf.ndim - 2)) + (leaf.ndim - 1,))
        return jnp.where(rows, leaf, jnp.zeros((), leaf.dtype))

    return jax.tree.map(zero, tree)
