"""Outbreaks on a lattice: a stochastic Susceptible–Infected–Recovered process, seen at some of its cells."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import Array, Key, real, whole, whole_range
from bsatnp.simulate.draws import (
    cells,
    check_counts,
    check_parameters,
    check_span,
    context_counts,
    denser,
    inverse_gamma,
    shuffles,
    stretched,
)
from bsatnp.tasks import Points, Task

#: States of a cell, which are the labels of the tasks.
SUSCEPTIBLE, INFECTED, RECOVERED = 0, 1, 2


def exposure(infected: Array, *, width: int = 9) -> Array:
    """Sum over infected neighbours of 1 / d², d in cells, in a window around every cell.

    A cell does not count as its own neighbour; nobody is infected beyond the edge; the weights are not normalised.

    **Shapes.** Boolean `(row, column)` to `(row, column)`.

    Args:
        infected: where the infected are.
        width: of the window, odd.

    Raises:
        ValueError: an even width.
    """
    _check_width(width)
    reach = width // 2
    rows, columns = infected.shape
    padded = jnp.pad(jnp.asarray(infected, jnp.result_type(float)), reach)
    total = jnp.zeros(infected.shape, padded.dtype)
    # a sum of slices and not a convolution: exactly zero where no neighbour is infected, on any device
    for i in range(-reach, reach + 1):
        for j in range(-reach, reach + 1):
            if i or j:
                part = padded[reach + i : reach + i + rows, reach + j : reach + j + columns]
                total = total + part / (i * i + j * j)
    return total


def _check_width(width: int) -> None:
    if whole("width", width) % 2 == 0:
        raise ValueError(f"`width` must be odd, got {width}.")


def infection_probability(infected: Array, rate: Any, *, width: int = 9) -> Array:
    """The probability that a susceptible cell is infected in one step: `rate` times its exposure, at most 1.

    **Shapes.** Boolean `(row, column)` and `()` to `(row, column)`.
    """
    return jnp.minimum(rate * exposure(infected, width=width), 1)


def advance(state: Array, infection: Any, recovery: Any, *, width: int = 9, key: Key) -> Array:
    """One step. Infection and recovery depend on the state at its start, so nobody recovers in the step of infection.

    **Shapes.** Integers `(row, column)` to the same; `infection` and `recovery` are `()`.
    """
    key_infect, key_recover = jax.random.split(key)
    at_risk = infection_probability(state == INFECTED, infection, width=width)
    caught = (state == SUSCEPTIBLE) & (jax.random.uniform(key_infect, state.shape, at_risk.dtype) < at_risk)
    healed = (state == INFECTED) & (jax.random.uniform(key_recover, state.shape) < recovery)
    return jnp.where(caught, INFECTED, jnp.where(healed, RECOVERED, state)).astype(state.dtype)


def rollout(state: Array, infection: Any, recovery: Any, steps: int, *, width: int = 9, key: Key) -> Array:
    """The states after each of `steps` steps.

    **Shapes.** Integers `(row, column)` to `(steps, row, column)`; the first state is not among them.
    """

    def step(now, k):
        after = advance(now, infection, recovery, width=width, key=k)
        return after, after

    return jax.lax.scan(step, jnp.asarray(state), jax.random.split(key, steps))[1]


class Outbreak(eqx.Module):
    """What stands behind a task.

    **Shapes.** `infection`, `recovery` (probabilities per step), `first_cases` and `step` are `()`, `state` is
    `(row, column)`; a batch adds a leading axis.
    """

    infection: Any
    recovery: Any
    first_cases: Any
    step: Any
    state: Any


@dataclasses.dataclass(frozen=True)
class SIRTasks:
    """A stream of classification tasks: the state of an outbreak at some cells of a lattice, asked at others.

    `tasks(step, key=key)` is a batch; `draw` gives the outbreaks behind it as well. The component is `"s"`, the middles
    of cells; values are integer labels 0 (susceptible), 1 (infected), 2 (recovered).

    **Units.** Those of `domain`; time in steps.

    **Invariant under.** Shifts by whole cells, turns by 90 degrees and reflections, but for the edge of the lattice.

    Args:
        batch: tasks in a batch.
        n_ctx: the number of context cells is drawn uniformly from [low, high), for each task.
        same_n_ctx: draw one number for the whole batch instead.
        n_tgt: target cells.
        ctx_in_tgt: whether the context cells are the first of the targets, as in the paper, or none of them.
        ctx_sizes: bucket sizes; the context is padded to the smallest that holds the batch.
        cells: of the lattice along each axis.
        steps: of an outbreak; a task is the state after one of them, chosen at random.
        domain: (low, high) of both axes.
        shift: added to all locations; the same step and key give the same values.
        infection: parameters of the Beta distribution of the infection rate.
        recovery: parameters of the InverseGamma distribution of the recovery probability (which ends at 1).
        first_cases: their number is drawn uniformly from [low, high).
        width: of the window in which the infected infect.

    Raises:
        ValueError: numbers that do not fit each other.

    **Reference.** The paper's experimental setup, Susceptible-Infected-Recovered.
    """

    batch: int = 8
    n_ctx: tuple[int, int] = (128, 512)
    same_n_ctx: bool = False
    n_tgt: int = 1024
    ctx_in_tgt: bool = True
    ctx_sizes: tuple[int, ...] = (512,)
    cells: int = 64
    steps: int = 25
    domain: tuple[float, float] = (-2.0, 2.0)
    shift: float = 0.0
    infection: tuple[float, float] = (2.0, 8.0)
    recovery: tuple[float, float] = (5.0, 0.4)
    first_cases: tuple[int, int] = (1, 5)
    width: int = 9

    def __post_init__(self):
        check_counts(self.batch, self.n_ctx, self.n_tgt, self.ctx_sizes)
        _check_width(self.width)
        whole("steps", self.steps)
        whole("cells", self.cells)
        check_span("domain", self.domain, real("shift", self.shift, -np.inf))
        for name, values in (("infection", self.infection), ("recovery", self.recovery)):
            check_parameters(name, values)
        whole_range("first_cases", self.first_cases, self.cells**2 + 1)
        most = self.n_tgt if self.ctx_in_tgt else self.n_tgt + self.n_ctx[1] - 1
        if most > self.cells**2:
            raise ValueError(f"`cells` must give enough points for a task of {most}, got {self.cells} squared.")
        if self.ctx_in_tgt and self.n_tgt < self.n_ctx[1] - 1:
            raise ValueError(
                f"`n_tgt` must be at least the {self.n_ctx[1] - 1} context cells that are among the targets, "
                f"got {self.n_tgt}."
            )

    def shifted(self, by: float) -> "SIRTasks":
        """The same tasks `by` units away along both axes."""
        return dataclasses.replace(self, shift=self.shift + by)

    def scaled(self, factor: int) -> "SIRTasks":
        """Tasks on a lattice `factor` times as wide: cells of the same size, as many points per unit of area.

        Raises:
            ValueError: no whole number from 1 up.
        """
        whole("factor", factor)
        n_ctx, ctx_sizes = denser(self.n_ctx, self.ctx_sizes, factor**2)
        return dataclasses.replace(
            self,
            cells=self.cells * factor,
            domain=stretched(self.domain, factor, self.domain),
            n_ctx=n_ctx,
            n_tgt=self.n_tgt * factor**2,
            ctx_sizes=ctx_sizes,
        )

    def grid(self) -> np.ndarray:
        """The middles of all cells, `(cells * cells, 2)`, in the order of a raveled state."""
        return cells(self.cells, self.domain, 2) + self.shift

    def __call__(self, step: int, *, key: Key) -> Task:
        """Batch number `step` of the stream that `key` chooses."""
        return self.draw(step, key=key)[0]

    def draw(self, step: int, *, key: Key) -> tuple[Task, Outbreak]:
        """A batch, and the outbreaks behind it with a batch axis."""
        key_count, key_infect, key_recover, key_task = jax.random.split(jax.random.fold_in(key, step), 4)
        counts, size = context_counts(self.batch, self.n_ctx, self.ctx_sizes, same=self.same_n_ctx, key=key_count)
        infection = jax.random.beta(key_infect, *self.infection, (self.batch,))
        recovery = jnp.minimum(inverse_gamma(*self.recovery, self.batch, key=key_recover), 1)
        first = 0 if self.ctx_in_tgt else self.n_ctx[1] - 1
        shape = (self.batch, size, self.n_tgt, self.cells, self.steps, self.width, self.first_cases)
        places = jnp.asarray(self.grid(), infection.dtype)
        return _draw(shape, counts, infection, recovery, places, first, key=key_task)


@partial(jax.jit, static_argnums=0)
def _draw(shape, counts, infection, recovery, places, first, *, key):
    batch, size, n_tgt, side, steps, width, (low, high) = shape
    key_number, key_first, key_step, key_run, key_cells = jax.random.split(key, 5)
    number = jax.random.randint(key_number, (batch,), low, high)
    cases = shuffles(side**2, (batch,), key=key_first)[:, : high - 1]
    labels = jnp.where(jnp.arange(high - 1)[None] < number[:, None], INFECTED, SUSCEPTIBLE)
    start = jnp.zeros((batch, side**2), jnp.int32).at[jnp.arange(batch)[:, None], cases].set(labels)
    run = jax.vmap(lambda s, b, g, key: rollout(s, b, g, steps, width=width, key=key))
    states = run(start.reshape(batch, side, side), infection, recovery, jax.random.split(key_run, batch))
    step = jax.random.randint(key_step, (batch,), 0, steps)
    state = states[jnp.arange(batch), step]

    order = shuffles(side**2, (batch,), key=key_cells)
    ctx = jnp.pad(order, ((0, 0), (0, max(size - side**2, 0))))[:, :size]  # a bucket may be larger than the lattice
    tgt = jax.lax.dynamic_slice_in_dim(order, first, n_tgt, axis=1)
    labels = state.reshape(batch, -1)
    mask = jnp.arange(size)[None] < counts[:, None]
    f_ctx = jnp.where(mask, jnp.take_along_axis(labels, ctx, 1), SUSCEPTIBLE)
    f_tgt = jnp.take_along_axis(labels, tgt, 1)
    ctx = Points({"s": places[ctx]}, f_ctx[..., None], mask=mask)
    task = Task(ctx, Points({"s": places[tgt]}, f_tgt[..., None]))
    return task, Outbreak(infection, recovery, number, step + 1, state)
