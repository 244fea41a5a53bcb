"""The training loop."""

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

from bsatnp import devices
from bsatnp._types import Array, Key, typed, whole
from bsatnp.models.base import AbstractModel, statistics, trainable
from bsatnp.tasks import Task
from bsatnp.train.evaluation import batches_of, evaluate, learned_nll, prepare, replicated, shared
from bsatnp.train.optimisers import optimizer as _default_optimizer
from bsatnp.train.resume import Progress, Run, copy, relaxed

_Model = TypeVar("_Model", bound=AbstractModel)

#: Batches from the start on that may all be without observed targets.
_UNSEEN = 50


@dataclasses.dataclass(frozen=True)
class Fit(Generic[_Model]):
    """What a run gave: the last model, the one with the lowest validation NLL, and what happened on the way.

    `best` is `model` where nothing was validated. A row of `history` has `step` (updates made), `loss` (mean since the
    row before), `gradient_norm` (likewise), `learning_rate` where the optimiser tells it, `seconds` (of training,
    before and after a restart), and `validation_…` for every metric where the model was validated.
    """

    model: _Model
    best: _Model
    history: list[dict[str, float]]
    steps: int


def fit(
    model: _Model,
    stream: Callable[..., Task],
    *,
    steps: int,
    key: Key,
    optimizer: optax.GradientTransformation | None = None,
    validation: Callable[..., Task] | None = None,
    validate_every: int | None = None,
    validation_batches: int | None = None,
    log_every: int = 50,
    callbacks: Sequence[Callable[[int, dict[str, float], Any], bool | None]] = (),
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: int | None = None,
    progress: bool = True,
    loss: Callable[[Any, Task], Array | tuple[Array, Any]] | None = None,
    mesh: Mesh | None = None,
) -> Fit[_Model]:
    """Train a model on a stream of batches; continue from `checkpoint` where that file exists.

    A run that is cut and continued gives, bit for bit on a CPU, what the uncut run gives. Step n draws its batch with
    `stream(n, key=jax.random.fold_in(key, n))`. One compilation is made for each shape of batch. A run that goes on
    takes `stream`, `validation` and `loss` as they are given: they must be what they were before.

    Args:
        model: where to start; it stays usable.
        stream: gives the batch of a step, see `bsatnp.train.EpochStream`. Host batches are checked and centred; what
            the model does not look at reaches nothing but a `loss`.
        steps: number of updates of the whole run.
        key: a typed key.
        optimizer: `bsatnp.train.optimizer(steps)` when None.
        validation: the stream of validation batches; the same batches every time.
        validate_every: updates between validations, one in ten of the run when None. The last update always counts.
        validation_batches: batches of one validation; an epoch of an `EpochStream`, else 100, when None.
        log_every: updates between rows of the history. Only then does the loop wait for the device.
        callbacks: called with (step, row, model) for every row; the run stops when one gives True. It goes on at the
            next call with the same `checkpoint`, which does not hold what callbacks remember.
        checkpoint: file of the training state.
        checkpoint_every: updates between its writings, as `validate_every` when None. It is also written at the end.
        progress: whether to show a bar.
        loss: gives the scalar to minimise from (model, batch), or the scalar and a model as `model.learn` gives it,
            whose running statistics are then kept; `learned_nll` when None.
        mesh: devices that share every batch, `jax.make_mesh((8,), ("batch",))`; one device when None. On several hosts
            every process makes the same call with the same arguments, and the first of them writes `checkpoint`.

    Raises:
        ValueError: a count below 1, a legacy key, streams, callbacks or an optimiser that are none; training or
            validation batches without observed targets; numbers of the model that a device would cut; a loss that is
            no scalar; see `prepare` and `bsatnp.train.evaluation.shared`.
        OSError: `checkpoint` cannot be written where it is to be.
        CheckpointError: `checkpoint` is of another model, optimiser, key or number of steps; a part of the model that
            no file can describe; a file that the first of several processes sees and another does not.
        FloatingPointError: a loss, gradient or validation score that is not finite. The checkpoint stays as it was.
    """
    steps = whole("steps", steps)
    each = max(1, steps // 10)
    validate_every = each if validate_every is None else validate_every
    checkpoint_every = validate_every if checkpoint_every is None else checkpoint_every
    batches = batches_of(validation) if validation_batches is None else validation_batches
    counts = {"validate_every": validate_every, "validation_batches": batches}
    for name, count in (counts | {"log_every": log_every, "checkpoint_every": checkpoint_every}).items():
        whole(name, count)
    typed(key)
    _check_calls(stream=stream, validation=validation, callbacks=callbacks, optimizer=optimizer)
    optimizer = _default_optimizer(steps) if optimizer is None else optimizer
    validation_key = jax.random.fold_in(key, np.uint32(2**32 - 1))  # no step has this number

    run = Run(model, optimizer, steps=steps, key=key, path=checkpoint, validated=validation is not None)
    now = run.resume()
    (now.model, now.optimizer), mesh = replicated((now.model, now.optimizer), mesh)
    seen, loss = loss is None, learned_nll if loss is None else loss
    if validation is not None and now.step < steps:
        first = prepare(now.model, validation(0, key=jax.random.fold_in(validation_key, 0)))
        shared(first, mesh)  # refused now, not after hours
    waiting: list[Array] = []
    start = time.perf_counter() - now.seconds
    stop = False
    with tqdm(total=steps, initial=now.step, disable=not progress, unit="step") as bar:
        while now.step < steps and not stop:
            batch = prepare(model, stream(now.step, key=jax.random.fold_in(key, now.step)), seen=seen)
            batch = shared(batch, mesh)
            with devices.sharing(mesh):
                now.model, now.optimizer, scores = _update((batch, optimizer, loss, mesh), now.model, now.optimizer)
            waiting.append(scores)
            now.step += 1
            bar.update(1)
            last = now.step == steps
            validates = validation is not None and (last or now.step % validate_every == 0)
            logs = last or validates or now.step % log_every == 0
            saves = checkpoint is not None and (last or now.step % checkpoint_every == 0)
            if not (logs or saves):
                continue
            _collect(now, waiting, checkpoint)
            if seen and not now.learns and (last or now.step >= _UNSEEN):
                raise ValueError(f"`stream` must give observed targets, got none in {now.step} batches.")
            now.seconds = time.perf_counter() - start
            if logs:
                row = now.row()
                if validates and validation is not None:
                    scored = evaluate(now.model, validation, batches=batches, key=validation_key, mesh=mesh)
                    _keep_best(now, scored)
                    row |= {f"validation_{name}": value for name, value in scored.items()}
                row["seconds"] = now.seconds = time.perf_counter() - start
                bar.set_postfix({name: f"{row[name]:.4g}" for name in ("loss", "validation_nll") if name in row})
                now.history.append(row)
            if saves:
                run.save(now)
            if logs and callbacks:
                current = copy(now.model)
                stop = any([bool(callback(now.step, dict(now.history[-1]), current)) for callback in callbacks])
                if stop and checkpoint is not None and not saves:
                    run.save(now)
    if mesh is not None:
        now.model, now.best = devices.over_arrays(jnp.asarray, devices.fetched((now.model, now.best)))
    best = now.model if now.best_nll is None else now.best
    return Fit(now.model, best, now.history, now.step)


@partial(devices.jit, donate="all-except-first")
def _update(fixed, model, state):
    """One update; the buffers of the model and the state before it are reused."""
    batch, optimizer, loss, mesh = fixed
    parameters = trainable(model)

    def objective(parameters):
        given = loss(eqx.combine(parameters, model), batch)
        value, after = given if isinstance(given, tuple) and len(given) == 2 else (given, model)
        if not isinstance(value, jax.Array) or value.shape or not isinstance(after, AbstractModel):
            raise ValueError(f"`loss` must give a scalar array, or that and a model, got {given}.")
        return value, statistics(after)

    (value, remembered), gradient = eqx.filter_value_and_grad(objective, has_aux=True)(parameters)
    with relaxed():
        update = optax.with_extra_args_support(optimizer).update  # the loss is for those that look at it
        change, state = update(gradient, state, parameters, value=value)
        parameters = optax.apply_updates(parameters, change)  # in the types of the parameters
    squares = [jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(gradient)]
    norm = jnp.sqrt(sum(squares, jnp.zeros((), jnp.float32)))
    scores = jnp.stack([value.astype(jnp.float32), norm, batch.tgt.observed.any().astype(jnp.float32)])
    after = eqx.combine(remembered, parameters, model), state, scores
    return after if mesh is None else eqx.filter_shard(after, NamedSharding(mesh, PartitionSpec()))


def _collect(now: Progress, waiting: list[Array], checkpoint: str | os.PathLike | None) -> None:
    """Fetch the scores of the updates since the last time, and see that they are finite."""
    first = now.step - len(waiting)
    for step, scores in enumerate(jax.device_get(waiting), first):
        value, norm, observed = scores.tolist()
        if not np.isfinite(scores).all():
            kept = "" if checkpoint is None else f" The checkpoint {os.fspath(checkpoint)!r} is from before."
            raise FloatingPointError(
                f"The loss of step {step} is {value} and the norm of its gradient {norm}: look at the batch "
                f"`stream({step}, key=jax.random.fold_in(key, {step}))`, at the learning rate and at the scale of the "
                f"data.{kept}"
            )
        now.pending.append([value, norm])
        now.learns |= bool(observed)
    waiting.clear()


def _check_calls(*, stream: Any, validation: Any, callbacks: Any, optimizer: Any) -> None:
    for name, one in (("stream", stream), ("validation", validation)):
        if not callable(one) and not (one is None and name == "validation"):
            raise ValueError(
                f"`{name}` must be a function of a step and a key that gives its batch, such as an `EpochStream`, got "
                f"{type(one).__name__}."
            )
    if not isinstance(callbacks, Collection) or not all(map(callable, callbacks)):
        raise ValueError(f"`callbacks` must be a list of functions, got {callbacks!r}.")
    if not (optimizer is None or hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise ValueError(
            f"`optimizer` must be one of Optax, such as `bsatnp.train.optimizer(steps)`, got {optimizer!r}."
        )


def _keep_best(now: Progress, scored: dict[str, float]) -> None:
    nll = scored["nll"]
    if not np.isfinite(nll):
        raise FloatingPointError(
            f"The validation NLL after {now.step} updates is {nll}: look at the batches of `validation` and at their "
            "scale."
        )
    if now.best_nll is None or nll < now.best_nll:
        now.best_nll, now.best = nll, copy(now.model)
