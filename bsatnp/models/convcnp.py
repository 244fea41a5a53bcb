"""The Convolutional Conditional Neural Process."""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bsatnp._types import Key, is_traced, whole, wide
from bsatnp.groups import On, Translation
from bsatnp.layers import MLP, Grid, ResidualBlock, SetConvolution, grid_between, over_blocks
from bsatnp.layers.basic import check_embeddings
from bsatnp.likelihoods import AbstractHead, AbstractLikelihood, GaussianHead
from bsatnp.models.base import AbstractModel, clean
from bsatnp.tasks import Points
from bsatnp.tasks.centring import seconds

#: Name of the axis of the batch while the model learns.
_BATCH = "task"


class ConvCNP(AbstractModel):
    """A set convolution of the context onto a grid, a convolutional network there, a set convolution to the targets.

    Defaults are the paper's sizes, on 16 points a unit from −2.5 to 2.5: its domain with the margin of the authors'
    code. Points must lie inside the grid: a larger domain needs a larger one (`with_grid`), which changes no parameter.
    Inside `jax.jit`, where nothing can be checked, points beyond the grid merely fade away.

    Batches in training go through `learn`, which normalises them by their own statistics; everything else uses the
    running statistics, which no optimiser moves. Tasks that are all padding do not count in the statistics.

    **Invariant under.** Shifts of `component`, if the grid follows the context (`grid.following()`) and `embed` leaves
    `component` out. On a fixed grid, only under shifts by whole cells that the grid takes part in; under any other
    shift up to what falls between its points and to its edges.

    **Shapes.** The context is `(ctx, …)`, targets `(tgt, …)`; conditioning costs O(ctx · grid), a target O(grid).

    Args:
        grid: where the network works, see `bsatnp.layers.grid_between`; the paper's when None.
        component: the component of the index set that the grid lies in.
        embed: other components whose values enter as channels of the context and at the targets, each with its
            embedding; empty for none. They must be known at the targets.
        head: the likelihood.
        depth: number of residual blocks.
        dim: number of channels.
        kernel: odd width of the convolutions along each axis, in cells.
        hidden: widths of the hidden layers of the prediction network.
        length: where the lengths of the set convolutions start, in the units of `component`.
        momentum: what the running statistics keep of themselves at each step.
        key: draws the weights.

    Raises:
        ValueError: sizes below 1, an even kernel, a momentum below 0 or not below 1, a length that is not positive.

    **Reference.** Gordon et al. (2020), Convolutional conditional neural processes; the paper's appendix on model
    parameterisations.
    """

    encoder: SetConvolution
    blocks: ResidualBlock  # arrays carry a leading axis, one entry for each block
    decoder: SetConvolution
    predict: MLP
    head: AbstractHead
    parts: dict[str, Any]
    grid: Grid
    component: str = eqx.field(static=True)

    def __init__(
        self,
        *,
        grid: Grid | None = None,
        component: str = "s",
        embed: Mapping[str, Any] | None = None,
        head: AbstractHead | None = None,
        depth: int = 8,
        dim: int = 128,
        kernel: int = 9,
        hidden: tuple[int, ...] = (128, 128, 128),
        length: float = math.exp(-1),
        momentum: float = 0.99,
        key: Key,
    ):
        for name, size in {"depth": depth, "dim": dim}.items():
            whole(name, size)
        self.head = GaussianHead() if head is None else head
        check_embeddings(embed or {})
        self.parts = dict(sorted((embed or {}).items()))  # as JAX sorts them: their order is that of the channels
        self.grid = grid_between((-2.5, -2.5), (2.5, 2.5), points_per_unit=16) if grid is None else grid
        self.component = component
        extra = sum(part.n_out for part in self.parts.values())
        self.encoder, self.blocks, self.decoder, self.predict = _build(
            key,
            n_in=self.head.features + extra,
            depth=depth,
            dim=dim,
            kernel=(kernel,) * self.grid.dim,
            length=length,
            density=self.grid.density(length),
            momentum=momentum,
            extra=extra,
            predict_sizes=(*hidden, self.head.raw),
        )

    @property
    def embedded(self) -> Mapping[str, int]:
        """Components whose values the model sees as they are, with their widths; the grid's, where it is fixed."""
        fixed = {} if self.grid.follows else {self.component: self.grid.dim}
        return fixed | {name: part.n_in for name, part in self.parts.items()}

    @property
    def groups(self) -> tuple[Any, ...]:
        """Shifts of the component of the grid, where the grid follows the context."""
        return (On(self.component, Translation(self.grid.dim)),) if self.grid.follows else ()

    def with_grid(self, grid: Grid) -> "ConvCNP":
        """The same model on another grid with the same spacing, such as `model.grid.covering(lower, upper)`.

        Raises:
            ValueError: another spacing, on which the convolutions would mean something else.
        """
        ours, theirs = self.grid.spacing, grid.spacing
        if len(ours) != len(theirs) or not np.allclose(theirs, ours, rtol=1e-6, atol=0):
            raise ValueError(f"`grid` must have the spacing {ours} that the model was made with, got {theirs}.")
        return eqx.tree_at(lambda model: model.grid, self, grid, is_leaf=lambda node: isinstance(node, Grid))

    def check(self, points: Points) -> None:
        """As every model does, and that points lie inside the grid, or in a box that a grid which follows can cover."""
        super().check(points)
        if not is_traced(points):
            rows = self._rows(points, points.mask)
            self._check_inside(rows, _middle(rows) if self.grid.follows else self.grid.centre)

    def check_task(self, ctx: Points, tgt: Points) -> None:
        """As every model does, and that targets lie inside a grid that follows the context."""
        super().check_task(ctx, tgt)
        if self.grid.follows and not is_traced((ctx, tgt)) and np.asarray(ctx.usable).any():
            self._check_inside(self._rows(tgt, tgt.mask), _middle(self._rows(ctx, ctx.usable)))

    def _rows(self, points: Points, mask: Any) -> np.ndarray:
        values = np.asarray(points.index[self.component])[np.asarray(mask)]
        return seconds(values)

    def _check_inside(self, rows: np.ndarray, middle: np.ndarray) -> None:
        away = np.abs(rows - middle).max(0, initial=0.0)
        reach = np.asarray(self.grid.extent) / 2
        if (away > reach + 1e-3 * np.asarray(self.grid.spacing)).any():
            raise ValueError(
                f"Component '{self.component}' must lie within {reach.tolist()} of the middle {middle.tolist()} of the "
                f"grid, got points {away.tolist()} away; see `with_grid`."
            )

    def condition(self, ctx: Points) -> "ConditionedConvCNP":
        """Bring the context onto the grid and through the network there."""
        x, middle, empty = self._onto_grid(ctx)
        x, _ = over_blocks(lambda x, block: (block(x), None), x, self.blocks, recompute=False)
        return ConditionedConvCNP(self, x, middle, empty)

    def learn(self, ctx: Points, tgt: Points) -> tuple[AbstractLikelihood, "ConvCNP"]:
        """Predict a batch, normalised by its own statistics; also the model with its running statistics moved.

        **Shapes.** Every leaf is `(batch, …)`.
        """

        def one(ctx, tgt):
            self.check_task(ctx, tgt)
            weight = (jnp.any(ctx.mask) | jnp.any(tgt.mask)).astype(float)
            x, middle, empty = self._onto_grid(ctx)

            def step(x, block):
                return block.learn(x, weight=weight, axis=_BATCH)

            x, running = over_blocks(step, x, self.blocks, recompute=False)
            return ConditionedConvCNP(self, x, middle, empty)(tgt), running

        likelihood, running = jax.vmap(one, axis_name=_BATCH, out_axes=(0, None))(ctx, tgt)
        return likelihood, eqx.tree_at(lambda m: tuple(norm.running for norm in m.blocks.norms), self, running)

    def _onto_grid(self, ctx: Points) -> tuple[Array, Array, Array]:
        """The context on the grid, where the middle of the grid is, and whether there is no context."""
        mask = jnp.asarray(ctx.usable)
        index = clean(self.seen(ctx), mask)
        points = self._points(index)
        middle, empty = jnp.asarray(self.grid.centre, points.dtype), jnp.zeros((), bool)
        if self.grid.follows:
            empty = ~mask.any()
            low = jnp.where(mask[:, None], points, jnp.inf).min(0, initial=jnp.inf)
            high = jnp.where(mask[:, None], points, -jnp.inf).max(0, initial=-jnp.inf)
            middle = jnp.where(empty, 0, low) / 2 + jnp.where(empty, 0, high) / 2
        values = jnp.where(mask[:, None], self.head.encode(ctx.f), 0)
        values = jnp.concatenate([values.astype(points.dtype), *self._embed(index, points.dtype)], 1)
        weight = mask.astype(points.dtype)
        return self.encoder.to_grid(self.grid.axes(), points - middle[None], values, weight), middle, empty

    def _points(self, index: Mapping[str, Any]) -> Array:
        return wide(jnp.asarray(index[self.component]))

    def _embed(self, index: Mapping[str, Any], dtype: Any) -> list[Array]:
        kind = self.predict.layers[0].weight.dtype
        return [part(index[name].astype(kind)).astype(dtype) for name, part in self.parts.items()]


class ConditionedConvCNP(eqx.Module):
    """A ConvCNP that has seen its context: the grid after the network, read at targets at a cost of O(grid) each."""

    model: ConvCNP
    values: Float[Array, "*grid dim"]
    middle: Float[Array, " axis"]
    empty: Bool[Array, ""]

    def __call__(self, tgt: Points) -> AbstractLikelihood:
        """Predict targets. Without a context, a grid that follows lies around every target for itself."""
        model = self.model
        index = clean(model.seen(tgt), jnp.asarray(tgt.mask))
        points = model._points(index)
        away = jnp.where(self.empty, 0, points - self.middle[None].astype(points.dtype))
        features = model.decoder.from_grid(model.grid.axes(), self.values, away)
        features = jnp.concatenate([features, *model._embed(index, features.dtype)], 1)
        return model.head(model.predict(features))


def _middle(rows: np.ndarray) -> np.ndarray:
    """The middle of the bounding box of rows; the origin where there are none."""
    return rows.min(0) / 2 + rows.max(0) / 2 if len(rows) else np.zeros(rows.shape[1])


@eqx.filter_jit
def _build(key, *, n_in, depth, dim, kernel, length, density, momentum, extra, predict_sizes):
    """Draw all weights in one compilation."""
    encoder, blocks, decoder, predict = jax.random.split(key, 4)
    make = eqx.filter_vmap(lambda key: ResidualBlock(dim, kernel, momentum=momentum, key=key))
    return (
        SetConvolution(n_in, dim, length=length, key=encoder),
        make(jax.random.split(blocks, depth)),
        SetConvolution(dim, dim, length=length, density=density, key=decoder),
        MLP(dim + extra, predict_sizes, activation=jax.nn.relu, key=predict),
    )
