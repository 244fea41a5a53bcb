"""Attention tile by tile, with a custom gradient that recomputes the tiles.

The forward pass keeps a running maximum, sum and weighted value for a tile of queries while it walks over tiles of
keys. The backward pass knows the output and the log-sum-exp, recomputes each tile's weights from them, and adds up
gradients of everything the scores depend on. Neither ever holds the matrix of all pairs. Where there are several tiles
of keys, those behind the last key that the mask shows are left out.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float

from bsatnp._exponential import decay
from bsatnp._types import is_traced, whole, widened
from bsatnp.attention import dense, tiles
from bsatnp.attention.forward_mode import reverse_mode_only
from bsatnp.attention.operands import Operands, prepare, product

#: What the results of attention are called for `jax.checkpoint`: they are dear to compute and small to keep.
NAME = "attention"


def scan_attention(
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
    """Exact softmax attention in memory linear in the lengths, forward and backward.

    Gradients reach `q`, `k`, `v`, every floating array inside `score` and both index sets. Under `vmap` the batch
    becomes an axis of the tiles. A second reverse-mode derivative works, with the memory of `dense_attention`.

    **Shapes.** `q` is `(head, q, dim)`, `k` `(head, k, dim)`, `v` `(head, k, value)`, each leaf of `q_index` `(q, dim)`
    and of `k_index` `(k, dim)`. The result has the type of the input; sums are held in float32 or wider.

    Args:
        q: queries.
        k: keys.
        v: values.
        score: `score(dots, q_index, k_index)` turns the scaled dot products `(head, q, k)` of a tile and the index sets
            of its rows into scores of that shape; −inf excludes a pair. Arrays inside a pytree callable get gradients.
            Its attribute `numbers_per_pair`, where it has one, says how many numbers it holds at once for each pair, so
            that tiles are chosen smaller.
        q_index: pytree of what `score` needs of the queries.
        k_index: pytree of what `score` needs of the keys.
        mask: True where a key may be attended to: `(k,)`, `(1, k)` or `(q, k)`. Whatever a masked row holds, NaN
            included, has no effect. A query without any key gets zero, and gives zero gradients.
        scale: factor of the dot products; 1/√dim when None.
        tile: numbers of queries and of keys in a tile; chosen for the machine and the batch when None.
        axis: name of a mapped axis (`jax.shard_map` with `check_vma=False`, `jax.vmap`) whose devices hold different
            keys and the same queries. What each of them finds is merged by its log-sum-exp, and all get attention to
            all keys.

    Raises:
        ValueError: shapes that do not fit, or a `score` that closes over a traced array.
        TypeError: forward-mode differentiation; `dense_attention` has it.

    **Reference.** Equations (5) to (7) of the paper.
    """
    if tile is not None:
        if not isinstance(tile, tuple | list) or len(tile) != 2:
            raise ValueError(f"`tile` must be two numbers, of queries and of keys, got {tile}.")
        tile = whole("tile", tile[0]), whole("tile", tile[1])
    operands, mask = prepare(q, k, v, score, q_index, k_index, mask, scale)
    if operands.q.shape[1] == 0 or operands.k.shape[1] == 0:
        # no device has a key where one has none, since all hold arrays of one shape
        return jnp.zeros((*operands.q.shape[:2], operands.v.shape[-1]), operands.v.dtype)
    _refuse_closures(operands)
    operands = jax.tree.map(lambda x: reverse_mode_only(x) if eqx.is_inexact_array(x) else x, operands)
    out, lse = _attend(operands, mask, tile)
    return dense.merged(out, lse, axis).astype(operands.v.dtype)


def _refuse_closures(operands: Operands) -> None:
    """A traced array inside a closure would silently get no gradient: say so instead."""
    if operands.score is None:
        return
    arrays, static = eqx.partition((operands.score, operands.q_index, operands.k_index), eqx.is_array)

    def call(dots, arrays):
        score, q_index, k_index = eqx.combine(arrays, static)
        return score(dots, q_index, k_index)

    head, n_q, _ = operands.q.shape
    wide = widened(operands.q.dtype)
    dots = jax.ShapeDtypeStruct((head, n_q, operands.k.shape[1]), wide)
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
    if is_traced(jax.make_jaxpr(call)(dots, specs).consts):
        raise ValueError(
            "`score` closes over a traced array and would lose its gradient; make `score` a pytree that holds it, "
            "such as an eqx.Module with a field or jax.tree_util.Partial."
        )


@eqx.filter_custom_vjp
def _attend(operands: Operands, mask, tile):
    """Output, in float32 or wider since the gradient is computed from it, and log-sum-exp."""
    return _forward(operands, mask, tile)


@_attend.def_fwd
def _attend_forward(perturbed, operands, mask, tile):
    del perturbed
    both = _attend(operands, mask, tile)  # not `_forward`, so that an outer derivative finds a rule
    both = checkpoint_name(both, NAME)
    return both, both


@_attend.def_bwd
def _attend_backward(residuals, cotangents, perturbed, operands, mask, tile):
    return _gradient((operands, cotangents), jax.lax.stop_gradient(residuals), mask, perturbed, tile)


@eqx.filter_custom_vjp
def _gradient(arguments, results, mask, perturbed, tile):
    operands, cotangents = arguments
    return _backward(operands, cotangents, results, mask, perturbed, tile)


@_gradient.def_fwd
def _gradient_forward(_, arguments, results, mask, perturbed, tile):
    return _gradient(arguments, results, mask, perturbed, tile), None


@_gradient.def_bwd
def _gradient_backward(_, seconds, __, arguments, results, mask, perturbed, tile):
    """Second derivatives go through the dense attention."""
    operands, cotangents = arguments
    inexact, rest = eqx.partition(operands, eqx.is_inexact_array)

    def gradient(inexact, cotangents):
        results, pull = jax.vjp(lambda part: dense.attend(eqx.combine(part, rest), mask), inexact)
        return pull(_dense_cotangents(cotangents, results))[0]

    grads, pull = jax.vjp(gradient, inexact, cotangents)
    return pull(_dense_cotangents(seconds, grads))


def _dense_cotangents(given, like):
    def one(x, c):
        return jnp.zeros_like(x) if c is None and x is not None else c

    return jax.tree.map(one, like, given, is_leaf=_is_none)


def _forward(operands: Operands, mask, tile):
    """Output `(head, q, value)` and log-sum-exp `(head, q, 2)`, as `dense.attend`."""
    arrays, static = eqx.partition((operands, mask), eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    def algorithm(levels, leaves):
        operands, mask = jax.tree.unflatten(structure, leaves)
        sizes = tuple(level.size for level in levels)
        operands = _by_column(operands)
        head, n_q = operands.q.shape[-3:-1]
        n_k, value = operands.v.shape[-2:]
        q_tile, k_tile = tiles.choose(n_q, n_k, operands.held * math.prod(sizes), tile, masked=mask is not None)
        until, wide = tiles.used(mask), widened(operands.q.dtype)

        def queries(i, carry):
            q_start, _ = tiles.starts(i, q_tile, n_q)
            mine = _query_rows(operands, mask, q_start, q_tile)

            def keys(j, state):
                k_start, fresh = tiles.starts(j, k_tile, n_k)
                part = _key_rows(*mine, k_start, k_tile)

                def one(leaves, state):
                    top, total, mixed = state
                    operands, mask = _assemble(structure, static, leaves)
                    scores, seen = operands.scores(), _seen(mask, fresh)
                    new_top = jnp.maximum(top, _where(seen, scores, -jnp.inf).max(-1))
                    base = jnp.where(jnp.isneginf(new_top), 0, new_top)
                    weights = _where(seen, decay(_below(base[..., None], scores)), 0)
                    fade = jnp.exp(top - base)
                    values = product("hqk,hkd->hqd", weights, operands.v.astype(wide))
                    return new_top, fade * total + weights.sum(-1), fade[..., None] * mixed + values

                return tiles.mapped(one, levels)(jax.tree.leaves(part), state)

            rows = (*sizes, head, q_tile)
            empty = jnp.full(rows, -jnp.inf, wide), jnp.zeros(rows, wide), jnp.zeros((*rows, value), wide)
            top, total, mixed = tiles.loop(n_k, k_tile, keys, empty, until)
            total = jnp.where(total > 0, total, 1)
            out = mixed / total[..., None]
            lse = jnp.stack([top, jnp.log(total)], -1)
            return tiles.put(carry, (out, lse), q_start, add=False)

        empty = jnp.zeros((*sizes, head, n_q, value), wide), jnp.zeros((*sizes, head, n_q, 2), wide)
        return tiles.loop(n_q, q_tile, queries, empty)

    return tiles.over_batches(algorithm, leaves, tiles.together(*_sizes(operands), tile))


def _backward(operands: Operands, cotangents, results, mask, perturbed, tile):
    """Gradient of every perturbed array of the operands, None for the rest."""
    wanted = jax.tree.map(lambda x, p: bool(p) and eqx.is_inexact_array(x), operands, perturbed)
    out, lse = results
    slope, slope_lse = _dense_cotangents(cotangents, results)
    delta = jnp.sum(slope * out, -1) - slope_lse[..., 1]
    arrays, static = eqx.partition((operands, mask, slope, delta, lse), eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    def algorithm(levels, leaves):
        operands, mask, slope, delta, lse = jax.tree.unflatten(structure, leaves)
        sizes = tuple(level.size for level in levels)
        head, n_q = operands.q.shape[-3:-1]
        n_k = operands.k.shape[-2]
        q_tile, k_tile = tiles.choose(n_q, n_k, operands.held * math.prod(sizes), tile, masked=mask is not None)
        until = tiles.used(mask)
        blank = _blank(operands, wanted, levels, leaves, structure)
        operands = _by_column(operands)

        def queries(i, carry):
            by_query, by_key, by_place, by_score = carry
            q_start, q_fresh = tiles.starts(i, q_tile, n_q)
            mine, mask_q = _query_rows(operands, mask, q_start, q_tile)
            rows = tiles.take((slope, delta[..., None], lse), q_start, q_tile)

            def keys(j, state):
                by_query, by_key, by_place, by_score = state
                k_start, k_fresh = tiles.starts(j, k_tile, n_k)
                part = (*_key_rows(mine, mask_q, k_start, k_tile), rows[0], rows[1][..., 0], rows[2])

                def one(leaves, _):
                    operands, mask, slope, delta, lse = _assemble(structure, static, leaves)
                    if q_fresh is not None:
                        slope = jnp.where(q_fresh[None, :, None], slope, 0)
                        delta = jnp.where(q_fresh[None, :], delta, 0)
                    return _tile_gradient(operands, mask, k_fresh, slope, delta, lse, wanted)

                grad_query, grad_key, grad_place, grad_score = tiles.mapped(one, levels)(jax.tree.leaves(part), None)
                return (
                    jax.tree.map(jnp.add, by_query, grad_query),
                    tiles.put(by_key, grad_key, k_start, add=True, axis=-1),
                    tiles.put(by_place, grad_place, k_start, add=True),
                    jax.tree.map(jnp.add, by_score, grad_score),
                )

            empty = jax.tree.map(lambda x: jnp.zeros((*x.shape[:-2], q_tile, x.shape[-1]), x.dtype), by_query)
            mine_grad, *rest = tiles.loop(n_k, k_tile, keys, (empty, by_key, by_place, by_score), until)
            return tiles.put(by_query, mine_grad, q_start, add=True), *rest

        return tiles.loop(n_q, q_tile, queries, blank)

    together = tiles.together(*_sizes(operands), tile)
    (grad_q, grad_q_index), columns, grad_k_index, grad_score = tiles.over_batches(algorithm, leaves, together)
    grad_k, grad_v = (None if x is None else jnp.swapaxes(x, -1, -2) for x in columns)
    parts = grad_q, grad_k, grad_v, grad_score, grad_q_index, grad_k_index
    grads = eqx.tree_at(
        lambda o: (o.q, o.k, o.v, o.score, o.q_index, o.k_index), operands, parts, is_leaf=_is_none
    )  # not the constructor: its annotations do not allow for None
    return jax.tree.map(lambda x, w, g: g.astype(x.dtype) if w else None, operands, wanted, grads, is_leaf=_is_none)


def _tile_gradient(operands: Operands, mask, fresh, slope, delta, lse, wanted: Operands):
    """Gradients that one tile of one task contributes: to query rows, keys and values, places of keys, score arrays.

    Those of keys and values are columns `(head, dim, k)`: so contracted, the product is four times as fast on a CPU.
    """
    wide = slope.dtype
    arrays, rest = eqx.partition(operands, wanted)
    dots = operands.dots()

    scores, pull = jax.vjp(lambda dots, arrays: eqx.combine(arrays, rest).scores(dots), dots, arrays)
    top, log_total = lse[..., :1], lse[..., 1:]
    # not `decay`: a compiler takes `exp` for dear and computes the weights once, not in each place they are used
    weights = jnp.exp(-_below(jnp.where(jnp.isneginf(top), 0, top), scores) - log_total)
    weights = _where(_seen(mask, fresh), weights, 0)
    gains = product("hqd,hkd->hqk", slope, operands.v.astype(wide))
    by_dots, grads = pull(weights * (gains - delta[..., None]))
    # scaled behind the product, where there are fewer numbers than pairs
    grad_q = operands.scale * product("hqk,hkd->hqd", by_dots, operands.k.astype(wide)) if wanted.q else None
    grad_k = operands.scale * product("hqk,hqd->hdk", by_dots, operands.q.astype(wide)) if wanted.k else None
    grad_v = product("hqk,hqd->hdk", weights, slope)
    grads = jax.tree.map(lambda g: g.astype(widened(g.dtype)), grads)
    return (grad_q, grads.q_index), (grad_k, grad_v), grads.k_index, grads.score


def _sizes(operands: Operands) -> tuple[int, int, int]:
    return operands.q.shape[-2], operands.k.shape[-2], operands.held


def _blank(operands: Operands, wanted: Operands, levels, leaves, structure):
    """Zero accumulators, with every batch level in front, of the arrays that want a gradient."""
    sizes = tuple(level.size for level in levels)
    lost = [sum(level.axes[i] == 0 for level in levels) for i in range(len(leaves))]
    depth = jax.tree.unflatten(structure, lost)[0]

    def zeros(x, w, d):
        if not w:
            return None
        return jnp.zeros((*sizes, *x.shape[d:]), widened(x.dtype))

    blank = jax.tree.map(zeros, operands, wanted, depth, is_leaf=_is_none)
    value = jnp.zeros((*sizes, *operands.v.shape[depth.v :]), widened(operands.v.dtype))
    columns = tuple(None if x is None else jnp.swapaxes(x, -1, -2) for x in (blank.k, value))
    return (blank.q, blank.q_index), columns, blank.k_index, blank.score


def _by_column(operands: Operands) -> Operands:
    """Index sets as columns, since reads inside a loop are vectorised where neighbours are next to each other."""
    return eqx.tree_at(
        lambda o: (o.q_index, o.k_index),
        operands,
        tuple(jax.tree.map(_columns, index) for index in (operands.q_index, operands.k_index)),
        is_leaf=_is_none,
    )


def _columns(x):
    # without the barrier the columns of a task in one tile are read pair by pair, row after row, and not vectorised
    return jax.lax.optimization_barrier(tiles.Columns.of(x)) if x.shape[-1] else x


def _query_rows(operands: Operands, mask, start, size):
    q, q_index = tiles.take((operands.q, operands.q_index), start, size)
    if mask is not None and mask.shape[-2] != 1:
        mask = tiles.take(mask, start, size)
    return eqx.tree_at(lambda o: (o.q, o.q_index), operands, (q, q_index), is_leaf=_is_none), mask


def _key_rows(operands: Operands, mask, start, size):
    k, v, k_index = tiles.take((operands.k, operands.v, operands.k_index), start, size)
    if mask is not None:
        mask = tiles.take(mask, start, size, axis=-1)
    return eqx.tree_at(lambda o: (o.k, o.v, o.k_index), operands, (k, v, k_index), is_leaf=_is_none), mask


def _assemble(structure, static, leaves):
    return eqx.combine(jax.tree.unflatten(structure, leaves), static)


def _seen(mask, fresh):
    """The pairs of a tile that count, `(q, k)` or `(1, k)`; None for all."""
    if mask is None or fresh is None:
        return mask if fresh is None else fresh[None]
    return mask & fresh[None]


def _below(top, scores):
    """How far scores lie below their maximum; 0 for those that do not count and lie above.

    Where one multiplication and this difference become one rounded operation, the highest score can seem to lie above
    itself, by more than an exponential bears when scores are as large as 1e12.
    """
    below = top - scores
    return jnp.where(below < 0, 0, below)  # not `maximum`, which takes three operations for the sake of NaN


def _where(seen, pairs, otherwise):
    """Masking comes late: scores that are masked at once would be computed again in each place they are used."""
    return pairs if seen is None else jnp.where(seen[None], pairs, otherwise)


def _is_none(x: Any) -> bool:
    return x is None
