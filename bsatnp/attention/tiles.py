"""Tiles: how large, where they start, and how a batch rides along."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

#: Scores held at once, by backend: heads × batch × queries × keys of a tile. Measured on CPU; elsewhere a guess.
BUDGET = {"cpu": 2**20, "gpu": 2**24, "tpu": 2**22}

#: Keys of a tile, and pairs of one task and head; measured on CPU as well. Two tasks with half as many pairs make for
#: slower products: a CPU spreads a long product over its cores, and works through short ones on a single core.
KEYS, PAIRS = 512, 2**18

#: Axis of the mesh in use whose devices share the tasks of a batch.
AXIS = "batch"


class Level(NamedTuple):
    """One batch axis: its size and, leaf by leaf, 0 where the leaf has it and None where it does not."""

    size: int
    axes: tuple[int | None, ...]


def _budget() -> int:
    return BUDGET.get(jax.default_backend(), BUDGET["cpu"])


def together(n_q: int, n_k: int, held: int, tile: tuple[int, int] | None) -> int:
    """How many tasks of a batch share a tile: as many as the budget holds with up to `PAIRS` pairs each; at least one.

    Args:
        n_q: number of queries.
        n_k: number of keys.
        held: numbers held for each pair of one task.
        tile: the caller's wish, or None.
    """
    pairs = min(n_q * n_k, PAIRS) if tile is None else min(n_q, tile[0]) * min(n_k, tile[1])
    return max(1, _budget() // max(1, held * pairs))


def choose(n_q: int, n_k: int, rows: int, tile: tuple[int, int] | None, *, masked: bool) -> tuple[int, int]:
    """Tile lengths for queries and keys.

    Args:
        n_q: number of queries.
        n_k: number of keys.
        rows: numbers held for each pair (its heads, or what its score needs), times batch.
        tile: the caller's wish, or None for the measured default.
        masked: whether keys may be hidden.
    """
    if tile is None:
        pairs = max(_budget() // max(rows, 1), 64 * 64)
        keys = _keys(n_k, masked=masked)
        k_tile = min(n_k, keys if keys < KEYS else max(keys, math.isqrt(pairs)))
        tile = max(1, pairs // max(k_tile, 1)), k_tile
    return tuple(_even(n, t) for n, t in zip((n_q, n_k), tile, strict=True))  # pyright: ignore[reportReturnType]


def _keys(n_k: int, *, masked: bool) -> int:
    """Keys of a tile: fewer where they may be hidden and are not many, so that tiles of hidden keys can be left out."""
    return min(KEYS, max(KEYS // 2, n_k // 4)) if masked and n_k >= KEYS else KEYS


def _even(n: int, tile: int) -> int:
    """The largest divisor of `n` that is more than half of `tile`; else the smallest that needs as few tiles as `tile`.

    A divisor leaves no part of a tile to be masked.
    """
    tile = max(1, min(n, tile))
    for divisor in range(tile, tile // 2, -1):
        if n % divisor == 0:
            return divisor
    return math.ceil(n / math.ceil(n / tile))


def starts(step: Array | int, tile: int, n: int) -> tuple[Array | int, Array | None]:
    """Where tile `step` begins, and which of its rows no earlier tile has had (None: all of them)."""
    if n % tile == 0:
        return step * tile, None
    first = step * tile
    start = jnp.minimum(first, n - tile)
    return start, start + jnp.arange(tile) >= first


class Columns(NamedTuple):
    """An array `(…, n, dim)` as its columns."""

    columns: tuple[Array, ...]

    @classmethod
    def of(cls, x: Array) -> "Columns":
        """Take an array apart."""
        return cls(tuple(x[..., i] for i in range(x.shape[-1])))


def take(tree: Any, start: Array | int, size: int, axis: int = -2) -> Any:
    """Slice every leaf along `axis`, counted from the end; columns along their rows, which makes them whole again."""

    def cut(x, axis):
        return x if x.shape[axis] == size else lax.dynamic_slice_in_dim(x, start, size, x.ndim + axis)

    def one(x):
        return jnp.stack([cut(column, -1) for column in x.columns], -1) if isinstance(x, Columns) else cut(x, axis)

    return jax.tree.map(one, tree, is_leaf=lambda x: isinstance(x, Columns))


def put(tree: Any, update: Any, start: Array | int, *, add: bool, axis: int = -2) -> Any:
    """Write `update` into every leaf along `axis`, or add it to what is there."""

    def one(x, u):
        if x.shape[axis] == u.shape[axis]:
            return x + u if add else u
        if add:
            u = u + lax.dynamic_slice_in_dim(x, start, u.shape[axis], x.ndim + axis)
        return lax.dynamic_update_slice_in_dim(x, u, start, x.ndim + axis)

    return jax.tree.map(one, tree, update)


def used(mask: Array | None) -> Array | None:
    """How many keys there are up to the last one that the mask `(…, q or 1, k)` shows to any query; None for all."""
    if mask is None:
        return None
    shown = mask.any(tuple(range(mask.ndim - 1)))
    return jnp.max(jnp.where(shown, jnp.arange(1, shown.size + 1), 0))


def loop(n: int, tile: int, body: Callable[[Any, Any], Any], carry: Any, until: Array | None = None) -> Any:
    """Run `body(step, carry)` for every tile that begins before `until` (None: the end); a single one without a loop.

    With `until` the number of steps is known only when it runs, and no reverse-mode derivative goes through the loop.
    """
    count = math.ceil(n / tile)
    if count == 1:
        return body(0, carry)
    if until is not None:
        return lax.fori_loop(0, -(-until // tile), body, carry)
    return lax.scan(lambda c, i: (body(i, c), None), carry, jnp.arange(count))[0]


def over_batches(
    algorithm: Callable[[tuple[Level, ...], list], Any], leaves: list, most: int, levels: tuple[Level, ...] = ()
):
    """Call `algorithm(levels, leaves)` so that each `vmap` around it becomes one more level.

    Where the levels have more than `most` tasks in all, the outermost is walked through in a loop, group by group; by
    each device its own part of it, where a mesh with the axis `AXIS` is in use.
    """
    call = jax.custom_batching.custom_vmap(lambda leaves: _on_devices(algorithm, leaves, most, levels))

    @call.def_vmap
    def _(size, batched, leaves):
        level = Level(size, tuple(0 if b else None for b in batched[0]))
        out = over_batches(algorithm, leaves, most, (level, *levels))
        return out, jax.tree.map(lambda _: True, out)

    return call(leaves)


def _on_devices(algorithm: Callable, leaves: list, most: int, levels: tuple[Level, ...]):
    """Left to itself, the compiler has every device walk through the tasks of all."""
    mesh = jax.sharding.get_abstract_mesh()
    automatic = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    among = next((n for name, n, kind in automatic if name == AXIS and kind == AxisType.Auto), 1)
    if among == 1 or not levels or levels[0].size % among:
        return _in_groups(algorithm, leaves, most, levels)
    (size, axes), *inner = levels
    mine = Level(size // among, axes), *inner
    spread = tuple(P() if axis is None else P(AXIS) for axis in axes)
    local = jax.shard_map(
        lambda *leaves: _in_groups(algorithm, list(leaves), most, mine),
        in_specs=spread,
        out_specs=P(AXIS),
        axis_names={AXIS},
        check_vma=False,
    )
    return local(*leaves)


def _in_groups(algorithm: Callable, leaves: list, most: int, levels: tuple[Level, ...]):
    if math.prod(level.size for level in levels) <= most:
        return algorithm(levels, leaves)
    (size, axes), *inner = levels
    rest = math.prod(level.size for level in inner)
    group = next(n for n in range(size, 0, -1) if size % n == 0 and (n * rest <= most or n == 1))
    parts = [
        x.reshape(size // group, group, *x.shape[1:]) if axis == 0 else None
        for x, axis in zip(leaves, axes, strict=True)
    ]

    def one(parts):
        mine = [leaf if part is None else part for part, leaf in zip(parts, leaves, strict=True)]
        if group == 1:
            mine = [leaf if part is None else part[0] for part, leaf in zip(parts, leaves, strict=True)]
            return jax.tree.map(lambda x: x[None], _in_groups(algorithm, mine, most, tuple(inner)))
        return algorithm((Level(group, axes), *inner), mine)

    out = lax.map(one, parts)
    return jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), out)


def mapped(function: Callable[[list, Any], Any], levels: tuple[Level, ...]) -> Callable[[list, Any], Any]:
    """Map `function(leaves, carry)` of one task over every level; the carry has them all."""
    for level in reversed(levels):
        function = jax.vmap(function, in_axes=(list(level.axes), 0))
    return function
