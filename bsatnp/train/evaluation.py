"""Batches on their way to a model, and how well it predicts them."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from bsatnp import devices, metrics, tasks
from bsatnp._types import Array, Key, typed, whole
from bsatnp.models.base import AbstractModel
from bsatnp.tasks import Task

Model = TypeVar("Model", bound=AbstractModel)
_Tree = TypeVar("_Tree")

#: Batches whose scores may wait on the device.
_WAITING = 32


def prepare(model: AbstractModel, task: Task, *, seen: bool = True) -> Task:
    """A batch as the device takes it: host arrays are checked by the model, centred and narrowed.

    Device arrays pass through untouched.

    Args:
        model: a model.
        task: a batch.
        seen: whether components that the model does not look at are left out; they may hold anything then.

    Raises:
        ValueError: no batch axis; targets without values; points that the model does not take.
    """
    if not isinstance(task, Task):
        raise ValueError(f"A stream must give a batch of tasks, a `Task`, got {type(task).__name__}.")
    if task.tgt.f is None:
        raise ValueError("`task.tgt` must hold values to learn from, or to be scored by, got targets without `f`.")
    if task.ctx.mask.ndim != 2:
        raise ValueError(
            f"`task` must be a batch with axes (batch, point), got a mask of shape {task.ctx.mask.shape}; see "
            "`bsatnp.tasks.batch`."
        )
    if not any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(task)):
        return task
    for row in range(len(task.ctx.mask)):
        one = jax.tree.map(lambda leaf, row=row: leaf[row], task)
        model.check_task(one.ctx, one.tgt)
    if seen:
        task = Task(model.seen(task.ctx), model.seen(task.tgt))
    return tasks.centre(task, sorted(model.shift_invariant))[0]


def shared(task: Task, mesh: Mesh | None) -> Task:
    """A batch with its tasks spread over the devices of a mesh; as it is where that is None.

    Raises:
        ValueError: a number of tasks that the devices do not divide.
    """
    if mesh is None:
        return task
    count, among = len(task.ctx.mask), mesh.devices.size
    if count % among:
        raise ValueError(f"A batch must have a multiple of {among} tasks, as many as `mesh` has devices, got {count}.")
    return devices.placed(task, mesh, "batch")


def replicated(tree: _Tree, mesh: Mesh | None) -> tuple[_Tree, Mesh | None]:
    """The tree whole on every device of a mesh that shares batches, and that mesh; as they are where there is none.

    Raises:
        ValueError: another object, or an axis that is not called "batch".
    """
    if mesh is None:
        return tree, None
    mesh = devices.checked(mesh, ("batch",))
    return devices.placed(tree, mesh), mesh


def learned_nll(model: Model, task: Task) -> tuple[Float[Array, ""], Model]:
    """What `fit` minimises: `mean_nll` of the predictions of `model.learn`, and the model that it gives."""
    likelihood, model = model.learn(task.ctx, task.tgt)
    return metrics.nll(likelihood, task.tgt.f, task.tgt.observed), model


def mean_nll(model: AbstractModel, task: Task) -> Float[Array, ""]:
    """Mean negative log-likelihood over the observed targets of a batch; 0 where there are none.

    **Shapes.** Every leaf of `task` is `(batch, …)`.
    """
    return metrics.nll(jax.vmap(model)(task.ctx, task.tgt), task.tgt.f, task.tgt.observed)


def batches_of(stream: Any) -> int:
    """Batches of one evaluation where nobody says how many."""
    return int(getattr(stream, "batches", 100))


def evaluate(
    model: AbstractModel, stream: Callable[..., Task], *, batches: int | None = None, key: Key, mesh: Mesh | None = None
) -> dict[str, float]:
    """All scores of `bsatnp.metrics` that the likelihood defines, over many batches as if they were one.

    Args:
        model: a model.
        stream: gives the batch number n, called with `(n, key=jax.random.fold_in(key, n))`.
        batches: how many batches; an epoch of an `EpochStream`, else 100, when None.
        key: a typed key.
        mesh: devices that share every batch, as in `fit`.

    Raises:
        ValueError: `batches` below 1, a legacy key, no observed target in any batch; see `prepare` and `shared`.
    """
    batches = whole("batches", batches_of(stream) if batches is None else batches)
    typed(key)
    total, waiting = metrics.Accumulator(), []
    model, mesh = replicated(model, mesh)
    for number in range(batches):
        batch = prepare(model, stream(number, key=jax.random.fold_in(key, number)))
        with devices.sharing(mesh):
            waiting.append(_sums(model, shared(batch, mesh)))
        if len(waiting) == _WAITING or number == batches - 1:
            for scored in jax.device_get(waiting):
                total.add_sums(scored)
            waiting = []
    if not total.count:
        raise ValueError(f"`stream` must give observed targets, got none in {batches} batches.")
    return total.result()


def batch_sums(model: AbstractModel, task: Task, *, mesh: Mesh | None = None) -> metrics.Sums:
    """Sums of all scores over the observed targets of a prepared batch, see `bsatnp.metrics.sums`.

    Args:
        model: a model.
        task: what `prepare` gives.
        mesh: devices that share the batch, as in `fit`; not under `jit` or `grad`, see `bsatnp.devices.sharing`.

    Raises:
        ValueError: another kind of mesh, or a number of tasks that its devices do not divide.
    """
    model, mesh = replicated(model, mesh)
    with devices.sharing(mesh):
        return _sums(model, shared(task, mesh))


@devices.jit
def _sums(model: AbstractModel, task: Task) -> metrics.Sums:
    return metrics.sums(jax.vmap(model)(task.ctx, task.tgt), task.tgt.f, task.tgt.observed)
