"""Streams over a finite list of tasks."""

import dataclasses
from collections.abc import Iterable, Sequence

import equinox as eqx
import jax
import numpy as np

from bsatnp import tasks as _tasks
from bsatnp._types import Key, typed, whole
from bsatnp.tasks import Points, Task


@dataclasses.dataclass(frozen=True)
class EpochStream:
    """Batches that go through a list of tasks again and again, each task once an epoch.

    The last batch of an epoch is filled up with wholly masked tasks, so that its shape stays and nothing counts twice.
    The stream keeps no state: the batch of a step depends on the step alone.

    Args:
        tasks: unbatched tasks with the same components and outputs.
        batch_size: tasks in a batch.
        ctx_sizes: bucket sizes of the context; one that holds the longest when empty.
        tgt_sizes: the same for targets.
        key: shuffles each epoch anew; the given order is kept when None, as for validation.

    Raises:
        ValueError: no list of tasks, a batch size below 1, a legacy key, or a task that no bucket holds.
    """

    tasks: Sequence[Task]
    batch_size: int
    _: dataclasses.KW_ONLY
    ctx_sizes: Sequence[int] = ()
    tgt_sizes: Sequence[int] = ()
    key: Key | None = None

    def __post_init__(self):
        if not isinstance(self.tasks, Sequence):
            raise ValueError(f"`tasks` must be a list of tasks, got {type(self.tasks).__name__}.")
        if self.key is not None:
            typed(self.key)
        if not self.tasks:
            raise ValueError("`tasks` must hold at least one task, got none.")
        whole("batch_size", self.batch_size)
        for name, longest in (
            ("ctx_sizes", max(len(task.ctx) for task in self.tasks)),
            ("tgt_sizes", max(len(task.tgt) for task in self.tasks)),
        ):
            if not isinstance(sizes := getattr(self, name), Iterable):
                raise ValueError(f"`{name}` must be a list of numbers of points, got {sizes!r}.")
            sizes = tuple(sizes) or (longest,)
            if max(sizes) < longest:
                raise ValueError(f"`{name}` must hold the longest task with {longest} points, got {max(sizes)}.")
            object.__setattr__(self, name, sizes)

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        return -(-len(self.tasks) // self.batch_size)

    def __call__(self, step: int, *, key: Key | None = None) -> Task:
        """The batch of a step; `key` is that of the loop, and is not used.

        **Shapes.** `(batch, point, dim)` and alike.
        """
        del key
        epoch, number = divmod(step, self.batches)
        order = np.arange(len(self.tasks))
        if self.key is not None:
            words = np.asarray(jax.random.key_data(self.key)).ravel().tolist()
            order = np.random.default_rng([*words, epoch]).permutation(order)
        rows = order[number * self.batch_size : (number + 1) * self.batch_size]
        chosen = [self.tasks[row] for row in rows]
        chosen += [_masked(chosen[0])] * (self.batch_size - len(chosen))
        return _tasks.batch(chosen, ctx_sizes=self.ctx_sizes, tgt_sizes=self.tgt_sizes)


def _masked(task: Task) -> Task:
    """The same task without any valid point."""

    def hide(points: Points) -> Points:
        none = (points.mask & False, None if points.observed is None else points.observed & False)
        return eqx.tree_at(lambda p: (p.mask, p.observed), points, none, is_leaf=lambda x: x is None)

    return Task(hide(task.ctx), hide(task.tgt))
