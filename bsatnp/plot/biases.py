"""What attention has learnt: biases against distance or lag."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp.bias import AbstractBias, Sum, Weighted
from bsatnp.groups import SO3, Scaling, components, factors
from bsatnp.plot.canvas import COLOURS, labelled, several, tidy

#: Distances on either side of zero.
_HALF = 200


def bias(
    model: Any,
    component: str,
    reach: float,
    *,
    block: int | None = None,
    xlabel: str | None = None,
    unit: str = "",
    ax: Any = None,
) -> list[Any]:
    """The learnt bias against the distance of a pair, or against its signed lag: one panel for each block.

    The query stays at the origin and the key moves along the first coordinate, for longitude and latitude along the
    equator. Where the two directions differ, the picture shows both: a lag is query minus key, so that the past is on
    the right. Terms of a sum that do not look at the component are left out. Hard masks end a line where they let
    nothing through.

    **Units.** `reach` and `unit` are those of the component.

    Args:
        model: a model with a `bias`, such as `BSATNP`, or one bias.
        component: the component to move along.
        reach: the largest distance.
        block: the one block to draw; all when None.
        xlabel: name of the distance.
        unit: its unit.
        ax: as many axes as panels.

    Raises:
        ValueError: a model without a bias on the component, no such block, a `reach` that is not positive.
    """
    if not reach > 0:
        raise ValueError(f"`reach` must be positive, got {reach}.")
    blocks = _blocks(model)
    if block is not None:
        if not 0 <= block < len(blocks):
            raise ValueError(f"`block` must be between 0 and {len(blocks) - 1}, got {block}.")
        blocks = {block: blocks[block]}
    else:
        blocks = dict(enumerate(blocks))
    curves = {number: _curves(one, component, reach) for number, one in blocks.items()}
    axes = several(ax, len(curves), width=1.2 + 2.6 * len(curves), height=3.2, sharey=True)
    for axis, (number, (x, scores, signed)) in zip(axes, curves.items(), strict=True):
        tidy(axis)
        for head, line in enumerate(scores):
            style = ("-", "--", ":", "-.")[head // len(COLOURS) % 4]
            axis.plot(x, line, style, color=COLOURS[head % len(COLOURS)], label=f"head {head + 1}")
        axis.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        name = ("lag" if signed else "distance") + f" in {component}" if xlabel is None else xlabel
        axis.set_xlabel(labelled(name, unit))
        if len(curves) > 1 or block is not None:
            axis.set_title(f"block {number + 1}", fontsize="medium")
    axes[0].set_ylabel("bias of the attention score")
    axes[-1].legend(frameon=False, fontsize="small")
    return axes


def _blocks(model: Any) -> list[AbstractBias]:
    """The bias of every block."""
    if isinstance(model, AbstractBias):
        return [model]
    stacked = getattr(model, "bias", None)
    if not isinstance(stacked, AbstractBias):
        raise ValueError(f"`model` must be a bias or have one, got {type(model).__name__} without.")
    arrays, rest = eqx.partition(stacked, eqx.is_array)
    depth = {len(leaf) for leaf in jax.tree.leaves(arrays)} or {1}
    return [eqx.combine(jax.tree.map(lambda leaf, i=i: leaf[i], arrays), rest) for i in range(min(depth))]


def _curves(bias: AbstractBias, component: str, reach: float) -> tuple[np.ndarray, np.ndarray, bool]:
    """Distances or lags, scores `(head, distance)`, and whether lags have a sign."""
    terms = [term for term in _terms(bias) if {name for g in term.groups for name in components(g)} == {component}]
    if not terms:
        seen = sorted({name for group in bias.groups for name in components(group)})
        raise ValueError(
            f"`component` must be one that a term of the bias looks at alone, got {component!r} of {seen}."
        )
    group = factors(terms[0].groups[0])[0].group
    x = np.linspace(-reach, reach, 2 * _HALF + 1)
    points = {component: jnp.asarray(_along(group, -x))}
    origin = {component: points[component][_HALF : _HALF + 1]}
    tiles = [np.asarray(_tile(term, origin, points)[:, 0], float) for term in terms]
    scores = sum(np.broadcast_to(tile, (max(map(len, tiles)), len(x))) for tile in tiles)
    scores = np.where(np.isfinite(scores), scores, np.nan)
    if np.allclose(scores, scores[:, ::-1], rtol=1e-4, atol=1e-6, equal_nan=True):
        return x[_HALF:], scores[:, _HALF:], False
    return x, scores, True


@eqx.filter_jit
def _tile(term: AbstractBias, origin: dict[str, jax.Array], points: dict[str, jax.Array]) -> jax.Array:
    return term.tile(origin, points)


def _terms(bias: AbstractBias) -> list[AbstractBias]:
    """The terms of a sum, and of a weighted sum."""
    if isinstance(bias, Sum):
        return [term for part in bias.terms for term in _terms(part)]
    if isinstance(bias, Weighted) and isinstance(bias.bias, Sum):
        return [eqx.tree_at(lambda b: b.bias, bias, term) for term in _terms(bias.bias)]
    return [bias]


def _along(group: Any, x: np.ndarray) -> np.ndarray:
    """Points at signed distances along the first coordinate; on the unit sphere along its equator."""
    x = x.astype(np.float32)
    points = np.zeros((len(x), getattr(group, "dim", 1)), np.float32)
    points[:, 0] = x
    if isinstance(group, SO3) and group.dim == 3:
        points[:, 0], points[:, 1] = np.cos(np.deg2rad(x)), np.sin(np.deg2rad(x))
    elif isinstance(group, Scaling):
        points = np.ones_like(points)
        points[:, 0] = np.exp(x)
    return points
