"""Tasks drawn from one data set: what is held out, and streams of random splits, windows and forecasts."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from bsatnp import tasks
from bsatnp._types import Key, real, whole
from bsatnp.tasks import Points, Task


@dataclass(frozen=True, eq=False)
class Rows:
    """Usable rows of a data set: points, their positions for choosing neighbours, and their times.

    **Shapes.** `positions` is `(row, dim)`, each component of about one unit; `time` is `(row,)` or None.
    """

    points: Points
    positions: np.ndarray
    time: np.ndarray | None

    def __len__(self) -> int:
        return len(self.points)

    def take(self, rows: np.ndarray) -> "Rows":
        """Some of the rows."""
        time = None if self.time is None else self.time[rows]
        return Rows(self.points.take(rows), self.positions[rows], time)


@dataclass(frozen=True)
class AbstractSplits(abc.ABC):
    """How tasks are drawn from one data set."""

    #: Most context points of a task.
    n_ctx: int
    #: Targets of a task.
    n_tgt: int

    def __post_init__(self):
        for name in ("n_ctx", "n_tgt"):
            whole(name, getattr(self, name))

    @abc.abstractmethod
    def hold_out(self, rows: Rows, share: float, rng: np.random.Generator) -> np.ndarray:
        """Which rows are kept from training, `(row,)`."""

    @abc.abstractmethod
    def draw(self, rows: Rows, allowed: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Context rows and target rows of one task, all of whose targets are `allowed`."""

    def validation(self, rows: Rows, held: np.ndarray, rng: np.random.Generator, n: int) -> list[Task]:
        """Tasks whose targets are held out."""
        return [self.task(rows, *self.draw(rows, held, rng)) for _ in range(n)]

    def task(self, rows: Rows, ctx: np.ndarray, tgt: np.ndarray) -> Task:
        """A task of the given rows."""
        return Task(rows.points.take(ctx), rows.points.take(tgt))


def same(points: Points, *, values: bool = True) -> np.ndarray:
    """A number for each row, `(row,)`, that rows with the same coordinates share, in order of the first.

    With `values` they must have the same values as well.
    """
    columns = [np.asarray(points.index[name]) for name in sorted(points.index)]
    columns += [np.asarray(points.f), np.asarray(points.observed)] if values else []
    rows = np.concatenate(columns, -1).astype(np.float64)
    _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), int)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[number.reshape(-1)]


def _places(points: Points) -> np.ndarray:
    """A number for each row that rows at one place and time share; with covariates alone, of one value as well."""
    return same(points, values=set(points.index) == {"x"})


@dataclass(frozen=True)
class Random(AbstractSplits):
    """Random context and target points from the whole data set, for a few hundred scattered points.

    Args:
        n_ctx: most context points; between a third of it and all of it are drawn.
        n_tgt: targets.
    """

    def hold_out(self, rows: Rows, share: float, rng: np.random.Generator) -> np.ndarray:
        """Points at random; rows at one place and time are held out together."""
        alike = _places(rows.points)
        order = rng.permutation(alike.max(initial=-1) + 1)
        counts = np.cumsum(np.bincount(alike)[order])
        wanted = max(1, round(share * len(rows)))
        return np.isin(alike, order[: 1 + np.searchsorted(counts, wanted)])

    def draw(self, rows: Rows, allowed: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Distinct points at random."""
        order = rng.permutation(np.flatnonzero(allowed))
        most = min(self.n_ctx, len(order) - 1)
        n_ctx = int(rng.integers(max(1, most // 3), most + 1))
        usable = np.asarray(rows.points.usable)
        return _usable(order[:n_ctx], usable), order[n_ctx : n_ctx + self.n_tgt]

    def validation(self, rows: Rows, held: np.ndarray, rng: np.random.Generator, n: int) -> list[Task]:
        """Held-out points as targets, points of the training part as context, from a third of them to all."""
        known, asked = np.flatnonzero(~held), np.flatnonzero(held)
        drawn, usable = [], np.asarray(rows.points.usable)
        for i in range(n):
            most = min(self.n_ctx, len(known))
            ctx = rng.permutation(known)[: max(1, most - (most * 2 // 3) * i // n)]
            drawn.append(self.task(rows, _usable(ctx, usable), rng.permutation(asked)[: self.n_tgt]))
        return drawn


@dataclass(frozen=True)
class Windows(AbstractSplits):
    """Context and targets from windows in space and time, for large and for gridded data.

    A window is made of the points nearest to one of them; its size is drawn anew for each task, so that dense and
    sparse contexts are both learned from.

    Args:
        n_ctx: most context points.
        n_tgt: targets.
        spread: the largest window has this many times more points than a task.
    """

    spread: float = 64.0

    def __post_init__(self):
        super().__post_init__()
        real("spread", self.spread, 1, ends=True)

    def hold_out(self, rows: Rows, share: float, rng: np.random.Generator) -> np.ndarray:
        """Whole blocks, so that no held-out point has a neighbour in the training part, but at the edges.

        Rows at one place and time are in one block.
        """
        wanted = share * len(rows)
        most = min(max(2 * (self.n_ctx + self.n_tgt), len(rows) // 64), max(1, round(wanted)))
        alike = _places(rows.points)
        block = blocks(rows.positions, most)[np.unique(alike, return_index=True)[1]][alike]
        order = rng.permutation(np.unique(block))
        counts = np.cumsum(np.bincount(block)[order])
        return np.isin(block, order[: 1 + np.abs(counts - wanted).argmin()])

    def draw(self, rows: Rows, allowed: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Points of one window, all of them allowed; no context point is at the place and time of a target."""
        within = np.flatnonzero(allowed)
        size = self.n_ctx + self.n_tgt
        most = min(len(within), int(size * np.exp(rng.uniform(0, np.log(max(1.0, self.spread))))))
        middle = rows.positions[within[rng.integers(len(within))]]
        near = within[nearest(rows.positions[within] - middle, most)]
        order = rng.permutation(near)
        n_tgt = min(self.n_tgt, max(1, len(order) // 3))
        n_ctx = min(self.n_ctx, len(order) - n_tgt)
        n_ctx = int(rng.integers(max(1, n_ctx // 4), n_ctx + 1)) if n_ctx > 0 else 0
        order = order[: n_tgt + n_ctx]
        alike = _places(rows.points.take(order))
        order, alike = order[np.argsort(alike, kind="stable")], np.sort(alike)  # unchanged where no two are alike
        return _usable(order[alike > alike[n_tgt - 1]], np.asarray(rows.points.usable)), order[:n_tgt]


@dataclass(frozen=True)
class Forecasts(AbstractSplits):
    """The rows before a moment as context, the rows after it as targets.

    Args:
        n_ctx: most context points; more are thinned at random.
        n_tgt: most targets, likewise.
        history: how far back contexts go.
        horizon: how far ahead targets go. **Units.** Both in those of the time column, seconds for dates.
    """

    history: float = dataclasses.field(kw_only=True)
    horizon: float = dataclasses.field(kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        for name in ("history", "horizon"):
            real(name, getattr(self, name))

    def hold_out(self, rows: Rows, share: float, rng: np.random.Generator) -> np.ndarray:
        """The last part of the time."""
        del rng
        times = np.unique(_times(rows))
        return _times(rows) >= times[max(1, min(len(times) - 1, round((1 - share) * len(times))))]

    def draw(self, rows: Rows, allowed: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows about a moment: an allowed row's time is the first that is forecast."""
        time = _times(rows)
        firsts = np.unique(time[allowed])
        firsts = firsts[firsts > time.min()] if len(firsts) > 1 else firsts
        last = max(int(np.searchsorted(firsts, firsts[-1] - self.horizon, "right")), 1)  # most have all of the horizon
        first = firsts[rng.integers(last)]
        slack = 1e-6 * self.horizon  # times that are one step apart may differ by rounding
        past = np.flatnonzero((time < first) & (time > first - self.history - slack))
        future = np.flatnonzero((time >= first) & (time < first + self.horizon - slack) & allowed)
        ctx = _usable(past, np.asarray(rows.points.usable))
        return thin(ctx, self.n_ctx, rng), thin(future, self.n_tgt, rng)


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches of tasks for `bsatnp.train.fit`; the batch of a step depends on its key alone.

    Args:
        splits: draws the tasks.
        rows: what they are drawn from.
        allowed: which rows, `(row,)`.
        batch: tasks in a batch.
        simulated: gives other values to the points of a task.
        share: of the tasks that it does so for.
    """

    splits: AbstractSplits
    rows: Rows
    allowed: np.ndarray
    batch: int
    simulated: Callable[[Task, np.random.Generator], Task] | None = None
    share: float = 0.0

    def __call__(self, step: int, *, key: Key) -> Task:
        """The batch of a step. **Shapes.** `(batch, point, dim)` and alike, one size for all steps."""
        del step
        rng = generator(key)
        drawn = []
        for _ in range(self.batch):
            task = self.splits.task(self.rows, *self.splits.draw(self.rows, self.allowed, rng))
            if self.simulated is not None and rng.random() < self.share:
                task = self.simulated(task, rng)
            drawn.append(task)
        return stack(drawn, self.splits)


def stack(drawn: Sequence[Task], splits: AbstractSplits) -> Task:
    """Tasks as a batch of the one size that all of them fit."""
    return tasks.batch(drawn, ctx_sizes=(splits.n_ctx,), tgt_sizes=(splits.n_tgt,))


def generator(key: Key) -> np.random.Generator:
    """Random numbers on the host that a key decides."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def nearest(offsets: np.ndarray, n: int) -> np.ndarray:
    """Rows of the `n` shortest offsets, `(row, dim)`."""
    away = np.square(offsets).sum(-1)
    return np.argpartition(away, n - 1)[:n] if n < len(away) else np.arange(len(away))


def thin(rows: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """At most `most` of the row numbers, drawn at random and in order."""
    return rows if len(rows) <= most else np.sort(rng.permutation(rows)[:most])


def blocks(positions: np.ndarray, most: int) -> np.ndarray:
    """Numbers of boxes of at most `most` points, `(row,)`: halves along the longest side, again and again."""
    number = np.zeros(len(positions), int)
    waiting, count = [np.arange(len(positions))], 0
    while waiting:
        rows = waiting.pop()
        sides = np.ptp(positions[rows], axis=0) if len(rows) else np.zeros(1)
        if len(rows) <= most or not sides.max() > 0:
            number[rows] = count
            count += 1
            continue
        order = rows[np.argsort(positions[rows, sides.argmax()], kind="stable")]
        waiting += [order[len(order) // 2 :], order[: len(order) // 2]]
    return number


def _usable(rows: np.ndarray, usable: np.ndarray) -> np.ndarray:
    return rows[usable[rows]]


def _times(rows: Rows) -> np.ndarray:
    if rows.time is None:
        raise ValueError("`time` must be `Forward` for tasks that are forecasts.")
    return rows.time
