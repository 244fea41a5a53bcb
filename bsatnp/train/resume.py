"""The state of a run, and its file."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bsatnp import devices
from bsatnp._types import Key
from bsatnp.checkpoint import CheckpointError, check_state, check_writable, header, load_state, save_state
from bsatnp.models.base import trainable

_Tree = TypeVar("_Tree")


def copy(tree: _Tree) -> _Tree:
    """The same tree with arrays of its own, so that donating the buffers of one leaves the other alone."""

    def one(leaf):
        if isinstance(leaf, np.ndarray | np.generic):
            _check_host(leaf)
        leaf = jnp.array(leaf, copy=True)
        return jax.lax.convert_element_type(leaf, leaf.dtype)  # no weak type, which one update would lose

    return devices.over_arrays(one, tree)


def _check_host(leaf: Any) -> None:
    """Raise ValueError for an array of a model on the host that a device does not take, or would cut."""
    kept = leaf.dtype.kind not in "iu" or np.array_equal(leaf, leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype)))
    if leaf.dtype.kind not in "biufcV" or not kept:
        raise ValueError(
            f"`model` must hold arrays that a device takes as they are, got {leaf.dtype} on the host"
            f"{'' if kept else ' that needs x64'}; keep it in a static field or as a device array."
        )


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """Where Optax runs: it mixes types, also for callers who forbid that."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@dataclasses.dataclass
class Progress:
    """How far a run has come; the only thing in the loop that changes."""

    step: int
    model: Any
    optimizer: Any
    best: Any
    best_nll: float | None = None
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)
    pending: list[list[float]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    #: Whether a target was observed in any batch.
    learns: bool = False

    def row(self) -> dict[str, float]:
        """A row of the history over the updates since the last one."""
        count = len(self.pending)
        row: dict[str, float] = {"step": self.step}
        row["loss"] = sum(value for value, _ in self.pending) / count
        row["gradient_norm"] = sum(norm for _, norm in self.pending) / count
        for _, injected in optax.tree_utils.tree_get_all_with_path(self.optimizer, "hyperparams"):
            if "learning_rate" in injected:
                row["learning_rate"] = float(injected["learning_rate"])
        self.pending = []
        return row


class Run:
    """What stays the same over a run: where it starts, its structure, and the file of its state."""

    def __init__(
        self,
        model: Any,
        optimizer: optax.GradientTransformation,
        *,
        steps: int,
        key: Key,
        path: str | os.PathLike | None,
        validated: bool,
    ):
        parameters = trainable(model)
        with relaxed():
            state = optimizer.init(parameters)
            program = _program(optimizer, parameters, state)
        self._first = Progress(0, copy(model), copy(state), copy(model) if validated else None)
        self._path = path
        self._facts = {}
        if path is not None:
            check_writable(path)
            self._facts = {
                "steps": steps,
                "key": [str(jax.random.key_impl(key)), jax.random.key_data(key).tolist()],
                "optimizer": [jax.__version__, _fingerprint(program, state)],
                "validated": validated,
            }

    def _state(self, now: Progress) -> dict[str, Any]:
        record = {"best_nll": now.best_nll, "history": now.history, "pending": now.pending, "seconds": now.seconds}
        trees = {"model": now.model, "optimizer": now.optimizer, "best": now.best}
        return trees | {"step": now.step, "record": json.dumps(record)}

    def save(self, now: Progress) -> None:
        """Write the state of this moment to the file of the run."""
        if self._path is None:
            return
        if jax.process_index() == 0:
            save_state(self._path, self._state(now), extra=self._facts)
        devices.in_turn("saved")

    def resume(self) -> Progress:
        """The state in the file of the run, or the first state where there is no file.

        Raises:
            CheckpointError: the file is of a run with another model, optimiser, key or number of steps, or not every
                process finds it.
        """
        now = self._found()
        if not devices.is_shared(now.step):
            raise CheckpointError("`checkpoint` must be on a disk that every process sees, got files that differ.")
        return now

    def _found(self) -> Progress:
        if self._path is None:
            return self._first
        if not Path(self._path).exists():
            check_state(self._state(self._first))
            return self._first
        facts = {"validated": self._facts["validated"]} | header(self._path)["extra"]  # files of before do not say
        if facts["validated"] != self._facts["validated"]:
            raise CheckpointError(
                f"`validation` must be {'given' if facts['validated'] else 'left out'}, as when the checkpoint "
                f"{os.fspath(self._path)!r} was written."
            )
        state = load_state(self._path, self._state(self._first))
        if set(facts) != set(self._facts):
            raise CheckpointError(f"{os.fspath(self._path)!r} must be a checkpoint of `fit`, got another state.")
        if facts["steps"] != self._facts["steps"]:
            raise CheckpointError(
                f"`steps` must be {facts['steps']}, as in the checkpoint {os.fspath(self._path)!r}, "
                f"got {self._facts['steps']}."
            )
        for name in ("key", "optimizer"):
            other_version = name == "optimizer" and facts[name][0] != self._facts[name][0]
            if facts[name] != self._facts[name] and not other_version:
                raise CheckpointError(
                    f"`{name}` must be the one that the checkpoint {os.fspath(self._path)!r} was written with, "
                    "got another."
                )
        record = json.loads(state["record"])
        return Progress(state["step"], state["model"], state["optimizer"], state["best"], **record, learns=True)


def _program(optimizer: optax.GradientTransformation, parameters: Any, state: Any) -> Any:
    """What one update computes.

    Raises:
        ValueError: an optimiser whose updates ask for more than gradients, parameters and the loss.
    """
    update = partial(optax.with_extra_args_support(optimizer).update, value=jnp.zeros(()))
    try:
        return jax.make_jaxpr(update)(parameters, state, parameters)
    except TypeError as error:
        raise ValueError(f"`optimizer` must make updates from gradients and the loss alone: {error}.") from None


def _fingerprint(program: Any, state: Any) -> str:
    """A digest of what one update computes, so that a run is not continued under other rates or decays."""
    digest = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr)).encode())
    injected = [value for _, value in optax.tree_utils.tree_get_all_with_path(state, "hyperparams")]
    for constant in [*_constants(program), *jax.tree.leaves(injected)]:
        digest.update(np.asarray(jax.device_get(constant)).tobytes())
    return digest.hexdigest()


def _constants(program: Any) -> Iterator[Any]:
    """Arrays that a program holds, those of the functions that it calls included."""
    yield from program.consts
    for equation in program.jaxpr.eqns:
        for part in jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, type(program))):
            if isinstance(part, type(program)):
                yield from _constants(part)
