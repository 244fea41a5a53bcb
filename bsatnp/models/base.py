"""The interface that every model shares: the posterior predictive map of the paper."""

import abc
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp import devices
from bsatnp._types import is_traced
from bsatnp.groups import components, factors, has_width
from bsatnp.likelihoods import AbstractHead, AbstractLikelihood
from bsatnp.tasks import Points, Task, centre, check_pair
from bsatnp.tasks.centring import narrow

#: What `condition` gives: a pytree that maps targets to their distribution.
Conditioned = Callable[[Points], AbstractLikelihood]

_Model = TypeVar("_Model", bound="AbstractModel")


class AbstractModel(eqx.Module):
    """A posterior predictive map π: (context, targets) to a distribution at the targets.

    A model is written for one task; `jax.vmap(model)(ctx, tgt)` takes a batch. What is compiled or batched sees device
    arrays: `bsatnp.tasks.centre` moves host coordinates near zero before, as `fit` and `predict` do.
    """

    head: eqx.AbstractVar[AbstractHead]

    @property
    @abc.abstractmethod
    def embedded(self) -> Mapping[str, int]:
        """Components whose values the model sees as they are, with their widths."""

    @property
    @abc.abstractmethod
    def groups(self) -> tuple[Any, ...]:
        """Groups through whose invariants the model sees pairs of points."""

    @abc.abstractmethod
    def condition(self, ctx: Points) -> Conditioned:
        """Do all that depends on the context alone; the result, a pytree, maps targets to their distribution.

        Host arrays are taken as they are: see `bsatnp.tasks.centre` for coordinates far from zero. Calls of a model,
        `fit` and `predict` compile this: they give it arrays that are traced.

        Raises:
            ValueError: places that differ on the host would coincide in device precision.
        """

    def condition_over(self, ctx: Points, mesh: jax.sharding.Mesh, axis: str) -> Conditioned:
        """`condition` with what it keeps spread over the devices along an axis of a mesh.

        Raises:
            ValueError: the model does not keep its context point by point, so that there is nothing to spread; context
                points that the devices cannot share evenly.
        """
        raise ValueError(
            f"`mesh` must have no axis {axis!r} for {type(self).__name__}, which keeps nothing that grows with the "
            f"context, got axes {mesh.axis_names}."
        )

    def __call__(self, ctx: Points, tgt: Points) -> AbstractLikelihood:
        """Predict the targets of one task.

        Host arrays are centred in full precision first, where that changes no prediction. The call is compiled, once
        for all tasks of one size.

        Raises:
            ValueError: a batch instead of one task, components that are missing, or points a group does not take.
        """
        self.check_task(ctx, tgt)
        if not is_traced((ctx.mask, tgt.mask)):
            task, _ = centre(Task(self.seen(ctx), self.seen(tgt)), sorted(self.shift_invariant))
            ctx, tgt = task.ctx, task.tgt
        return _predicted(self, ctx, tgt)

    def learn(self: _Model, ctx: Points, tgt: Points) -> tuple[AbstractLikelihood, _Model]:
        """Predict a batch during training: the predictions, and the model with what it remembers of the batch.

        A model without memory predicts as ever and comes back as it is. One that normalises by statistics of the batch
        uses them here, and comes back with its running statistics moved towards them (see `trainable`).

        **Shapes.** Every leaf is `(batch, …)`.
        """
        return jax.vmap(self)(ctx, tgt), self

    @property
    def shift_invariant(self) -> frozenset[str]:
        """Components whose common shift changes no prediction, so that they may be centred."""
        parts = [factors(group) for group in self.groups]
        if not all(parts):
            return frozenset()
        movable, fixed = set(), set(self.embedded)
        for factor in (factor for group in parts for factor in group):
            (movable if factor.shift_invariant else fixed).add(factor.component)
        return frozenset(movable - fixed)

    def seen(self, points: Points) -> Points:
        """The points with the components that the model looks at; all of them where a group does not say."""
        acting = [components(group) for group in self.groups]
        wanted = set(self.embedded).union(*acting)
        if not wanted or not all(acting):
            return points
        return eqx.tree_at(lambda p: p.index, points, {k: v for k, v in points.index.items() if k in wanted})

    def check(self, points: Points) -> None:
        """Say what is wrong with points, as far as it can be seen without running the model.

        Raises:
            ValueError: a batch, missing components, widths that differ, values outside a group's space, whole
                numbers that an embedding would merge, numbers whose squares overflow.
        """
        if points.mask.ndim != 1:
            raise ValueError(
                f"A model takes one task with axes (point, dim), got batch axes {points.mask.shape[:-1]}; "
                "use jax.vmap(model)(ctx, tgt), for host arrays after `bsatnp.tasks.centre`."
            )
        widths = dict(self.embedded)
        acting = [factor for group in self.groups for factor in factors(group)]
        widths |= {factor.component: factor.group.dim for factor in acting if has_width(factor.group)}
        needed = set(widths) | {factor.component for factor in acting}
        missing = sorted(needed - set(points.index))
        if missing:
            raise ValueError(f"`index` must have components {sorted(needed)}, got {sorted(points.index)}.")
        for name, width in widths.items():
            if points.index[name].shape[-1] != width:
                raise ValueError(
                    f"Component '{name}' must have shape (point, {width}), got {tuple(points.index[name].shape)}."
                )
        if points.f is not None and points.f.shape[-1] != self.head.out:
            raise ValueError(f"`f` must have {self.head.out} outputs, got {points.f.shape[-1]}.")
        if is_traced(points):
            return
        keep = np.asarray(points.mask)
        for name in self.embedded:  # which makes floats of whole numbers
            if points.index[name].dtype.kind in "iu":
                narrow(name, np.asarray(points.index[name], np.float64), keep)
        for name in sorted(needed):
            _check_squares(f"Component '{name}'", np.asarray(points.index[name])[keep])
        if points.f is not None:
            _check_squares("`f`", np.asarray(points.f)[np.asarray(points.observed)])
        for factor in acting:
            if hasattr(factor.group, "check"):
                factor.group.check(np.asarray(points.index[factor.component])[keep])
        if points.f is not None:
            self.head.check(np.where(np.asarray(points.observed), np.asarray(points.f), np.nan))

    def check_task(self, ctx: Points, tgt: Points) -> None:
        """`check` both sides of a task, and that they fit each other.

        Raises:
            ValueError: what `check` refuses; components or outputs that differ; a context without values.
        """
        self.check(ctx)
        self.check(tgt)
        check_pair(ctx, tgt)


@devices.jit
def _predicted(model: AbstractModel, ctx: Points, tgt: Points) -> AbstractLikelihood:
    return model.condition(ctx)(tgt)


def _check_squares(name: str, values: np.ndarray) -> None:
    """Raise ValueError for floats whose squares, a few hundred of them, the device cannot add up."""
    kind = jnp.result_type(float)
    limit = float(jnp.finfo(kind).max) ** 0.5 / 20
    if jnp.issubdtype(values.dtype, jnp.floating) and (most := float(np.abs(values).max(initial=0))) > limit:
        raise ValueError(f"{name} must be at most {limit:.2g} in size for its squares to fit {kind}, got {most:.3g}.")


def clean(points: Points, mask: Any) -> dict[str, Any]:
    """The index set with zeros in the rows that `mask` hides, where anything may stand.

    Raises:
        ValueError: places that differ on the host would coincide in device precision.
    """
    found = {}
    for name, value in points.index.items():
        value = value if isinstance(value, jax.Array) or is_traced(mask) else narrow(name, np.asarray(value), mask)
        found[name] = jnp.where(mask[:, None], value, jnp.zeros((), jnp.asarray(value).dtype))
    return found


def trainable(tree: Any) -> Any:
    """The tree with those arrays alone that an optimiser may move, and None in all other places.

    A module whose class says `trained = False`, such as the running statistics of a normalisation, has none of them:
    no gradient, no weight decay, and no part in `count_parameters`.
    """
    return eqx.filter(tree, jax.tree.map(lambda x: not _kept(x) and eqx.is_inexact_array(x), tree, is_leaf=_kept))


def statistics(tree: Any) -> Any:
    """The tree with the arrays of all modules that say `trained = False` alone, and None in all other places."""
    return eqx.filter(eqx.filter(tree, jax.tree.map(_kept, tree, is_leaf=_kept)), eqx.is_array)


def count_parameters(model: Any) -> int:
    """How many trainable numbers a model has."""
    return sum(leaf.size for leaf in jax.tree.leaves(trainable(model)))


def _kept(node: Any) -> bool:
    return isinstance(node, eqx.Module) and not getattr(node, "trained", True)
