"""Approximate predictions from large contexts: every tile of targets sees its nearest context points alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import KDTree
from tqdm import tqdm

from bsatnp._types import Index, Key, typed, whole
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.models.base import AbstractModel
from bsatnp.predict import predict
from bsatnp.tasks import Points
from bsatnp.tasks.centring import seconds
from bsatnp.tasks.targets import check_kinds, index_of

#: What distance is measured in: names of components, or a function of the index set that gives `(point, dim)`.
Places = str | Sequence[str] | Callable[[Mapping[str, Any]], Any]


def predict_nearest(
    model: AbstractModel,
    ctx: Points,
    tgt: Points | Index,
    *,
    k: int,
    by: Places,
    tile: int = 1024,
    progress: bool = False,
) -> AbstractLikelihood:
    """What `predict` would say if each tile of targets had the `k` context points nearest to its middle and no others.

    An approximation, unlike `predict`: `nearest_error` tells how far off it is. Targets are divided into compact tiles,
    and the model is conditioned anew for each, at a cost of O(k² + k·tile) a tile instead of O(ctx² + ctx·tgt) for all.
    Exact where `k` is at least the number of context points.

    **Shapes.** As `predict`.

    **Invariant under.** Whatever the model is, as long as it keeps the distances of `by`.

    Args:
        model: a model.
        ctx: what is known, unbatched.
        tgt: where to predict.
        k: context points for each tile. Many tiles are wider than the distances between points: take several times as
            many as a target needs.
        by: components whose Euclidean distance says what is near, all in one unit, dates in seconds; or a function from
            the index set to coordinates `(point, dim)`, such as unit vectors for longitude and latitude.
        tile: targets of a tile.
        progress: whether to show a bar.

    Raises:
        ValueError: what `predict` refuses; `k` or `tile` below 1; components in `by` that are missing or no numbers.
    """
    n, tgt = check_kinds(model, ctx, tgt), _arrays(tgt)
    rows, local = _tiled(model, ctx, tgt, n, k, by, tile)
    if not rows:
        return predict(model, ctx, tgt)
    together: Any = None
    for row in tqdm(rows, disable=not progress, unit="tile"):
        part = local(row)
        if together is None:
            together = jax.tree.map(lambda leaf: np.empty((n, *leaf.shape[1:]), leaf.dtype), part)
        for into, leaf in zip(jax.tree.leaves(together), jax.tree.leaves(part), strict=True):
            into[row] = leaf
    return together


def nearest_error(
    model: AbstractModel,
    ctx: Points,
    tgt: Points | Index,
    *,
    k: int,
    by: Places,
    tile: int = 1024,
    tiles: int = 4,
    key: Key,
) -> dict[str, float]:
    """How far `predict_nearest` is from `predict` on some tiles, drawn at random: differences of means and deviations.

    Conditions once on the whole context, at a cost of O(ctx²).

    Args:
        model: a model.
        ctx: as in `predict_nearest`, and so are `tgt`, `k`, `by`, `tile`.
        tgt: where to predict.
        k: context points for each tile.
        by: what distance is measured in.
        tile: targets of a tile.
        tiles: how many to compare.
        key: chooses them.

    Returns:
        `mean rms`, `mean max`, `std rms` and `std max` of the absolute differences, in units of the outputs, and the
        number of `targets` compared.

    Raises:
        ValueError: as `predict_nearest`; no targets.
        NotImplementedError: labels, which have no mean.
    """
    whole("tiles", tiles)
    typed(key)
    if isinstance(tgt, Points):
        tgt = tgt.take(np.flatnonzero(np.asarray(tgt.mask)))
    n, tgt = check_kinds(model, ctx, tgt), _arrays(tgt)
    if not n:
        raise ValueError("`tgt` must have at least one point.")
    rows, local = _tiled(model, ctx, tgt, n, k, by, tile)
    chosen = [rows[i] for i in np.asarray(jax.random.permutation(key, len(rows)))[:tiles]]
    near = [_moments(local(row)) for row in chosen]  # first: labels have none, and the whole context costs more
    exact = _moments(predict(model, ctx, _taken(tgt, np.concatenate(chosen))))
    found: dict[str, float] = {}
    for name, there in exact.items():
        apart = np.abs(np.concatenate([one[name] for one in near]) - there)
        found |= {f"{name} rms": float((apart**2).mean() ** 0.5), f"{name} max": float(apart.max())}
    return found | {"targets": sum(map(len, chosen))}


def _moments(pred: AbstractLikelihood) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(pred, name), np.float64) for name in ("mean", "std")}


def _tiled(
    model: AbstractModel, ctx: Points, tgt: Points | Index, n: int, k: int, by: Places, tile: int
) -> tuple[list[np.ndarray], Callable[[np.ndarray], AbstractLikelihood]]:
    """Rows of the targets of every tile, and what predicts those of a tile from the context nearest to them."""
    whole("k", k)
    whole("tile", tile)
    usable = np.flatnonzero(np.asarray(ctx.usable))
    there = _places("ctx", ctx.index, by, len(ctx))[usable]
    here = _places("tgt", index_of(tgt), by, n)
    if isinstance(tgt, Points):  # masked targets may lie anywhere
        mask = np.asarray(tgt.mask)
        here[~mask] = here[mask][0] if mask.any() else 0.0
    for name, places in (("ctx", there), ("tgt", here)):
        if not np.isfinite(places).all():
            raise ValueError(f"`by` must give finite places of `{name}`, got NaN or infinite ones.")
    tree = KDTree(there) if k < len(usable) else None

    def local(row: np.ndarray) -> AbstractLikelihood:
        near = usable
        if tree is not None:
            middle = (here[row].min(0) + here[row].max(0)) / 2
            near = usable[np.sort(np.atleast_1d(tree.query(middle, k)[1]))]
        return predict(model, ctx.take(near), _taken(tgt, row), chunk=tile)

    return list(_tiles(here, np.arange(len(here)), tile)), local


def _tiles(places: np.ndarray, rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Compact groups of rows, all full but one: halves along the axis in which they reach furthest, until they fit."""
    if len(rows) <= size:
        if len(rows):
            yield rows
        return
    mine = places[rows]
    axis = np.argmax(np.ptp(mine, axis=0))
    half = size * (-(-len(rows) // size) // 2)
    order = np.argpartition(mine[:, axis], half - 1)
    yield from _tiles(places, rows[np.sort(order[:half])], size)
    yield from _tiles(places, rows[np.sort(order[half:])], size)


def _places(name: str, index: Mapping[str, Any], by: Places, n: int) -> np.ndarray:
    if callable(by):
        found = _undated(by(index))
    else:
        names = (by,) if isinstance(by, str) else tuple(by)
        if not names or not set(names) <= set(index):
            raise ValueError(f"`by` must name components of `{name}`, which has {sorted(index)}, got {list(names)}.")
        found = np.concatenate([_undated(index[part]) for part in names], -1)
    if found.ndim != 2 or len(found) != n or not (found.dtype == bool or jnp.issubdtype(found.dtype, jnp.number)):
        raise ValueError(
            f"`by` must give numbers (point, dim) for the {n} points of `{name}`, got {found.dtype} of shape "
            f"{found.shape}."
        )
    return found.astype(np.float64)


def _undated(values: Any) -> np.ndarray:
    """Dates as seconds, all else as it is."""
    values = np.asarray(values)
    return seconds(values) if values.dtype.kind == "M" else values


def _taken(tgt: Points | Index, row: np.ndarray) -> Points | Index:
    if isinstance(tgt, Points):
        return tgt.take(row)
    return {name: value[row] for name, value in tgt.items()}


def _arrays(tgt: Points | Index) -> Points | Index:
    """Targets whose components are arrays: memory maps stay where they are, what is read in parts is read whole."""
    if isinstance(tgt, Points):
        return tgt
    return {name: value if isinstance(value, jax.Array) else np.asarray(value) for name, value in tgt.items()}
