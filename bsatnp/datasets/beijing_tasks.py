"""The paper's forecasting tasks on the Beijing data, and baselines on the same tasks.

`forecasting(beijing.load(folder))` gives three parts: `train(step, key=key)` is a batch of 32 tasks, and
`test.evaluation()` the list of all tasks of the test part, always the same ones.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import jax
import numpy as np

from bsatnp._types import Key, whole
from bsatnp.datasets.beijing import Beijing
from bsatnp.datasets.scaling import MinMax
from bsatnp.tasks import Points, Task


@dataclass(frozen=True, eq=False)
class Scaling:
    """Everything that was learned from the training part to bring all parts to one scale."""

    x: MinMax
    s: MinMax
    t: MinMax
    f: MinMax
    wind: tuple[str, ...]

    def covariates(self, data: Beijing, rows: slice) -> np.ndarray:
        """Scaled numeric covariates and the one-hot wind direction of `rows`, `(row, 11 + categories)`.

        Raises:
            ValueError: a wind direction that the training part does not have.
        """
        wind = data.wind[rows]
        onehot = wind[:, None] == np.array(self.wind)[None]
        unseen = sorted(set(wind[~onehot.any(1)].tolist()))
        if unseen:
            raise ValueError(f"`wd` must be one of {list(self.wind)}, as in the training part, got {unseen}.")
        return np.column_stack((self.x.transform(data.x[rows]), onehot.astype(np.float64)))


@dataclass(frozen=True, eq=False)
class BeijingTasks:
    """A stream of forecasting tasks from one part: `n_ctx` consecutive rows, then the `n_tgt` rows after them.

    Calling it gives the batch of a step: tasks that start at random rows. The same step and key give the same batch.

    **Shapes.** `index` has x `(row, 27)`, s `(row, 2)` and t `(row, 1)`; `f` is `(row, 2)`; `time` and `station` are
    `(row,)`. A batch puts `batch` before the points.

    **Units.** Scaled by the training part's ranges; `time` local time.

    **Reference.** The paper's appendix, "Beijing Multi-City Air Quality".

    Raises:
        ValueError: fewer rows than one task takes, or a size below 1.
    """

    index: dict[str, np.ndarray]
    f: np.ndarray
    time: np.ndarray
    station: np.ndarray
    n_ctx: int = 624
    n_tgt: int = 84
    batch: int = 32

    def __post_init__(self):
        for name in ("n_ctx", "n_tgt", "batch"):
            whole(name, getattr(self, name))
        if len(self.f) < self.n_ctx + self.n_tgt:
            raise ValueError(
                f"A part must hold at least `n_ctx` + `n_tgt` = {self.n_ctx + self.n_tgt} rows, got {len(self.f)}."
            )

    def __len__(self) -> int:
        """How many rows a task can start at."""
        return len(self.f) - self.n_ctx - self.n_tgt + 1

    def __call__(self, step: int, *, key: Key) -> Task:
        """The batch of tasks of one training step."""
        starts = jax.random.randint(jax.random.fold_in(key, step), (self.batch,), 0, len(self))
        return self._take(np.asarray(starts)[:, None])

    def task(self, start: int) -> Task:
        """The task whose context begins at row `start`.

        Raises:
            ValueError: a row where no task can start.
        """
        if not 0 <= start < len(self):
            raise ValueError(f"`start` must be between 0 and {len(self) - 1}, got {start}.")
        return self._take(np.asarray(start))

    def starts(self, *, stride: int | None = None) -> range:
        """Where the evaluation tasks start: every `stride` rows, so that the last task ends with the part.

        By default the stride is `n_tgt`: the targets do not overlap, and together they are all rows of the part but
        the first context and fewer than `n_tgt` rows after it.

        Raises:
            ValueError: `stride` below 1.
        """
        stride = self.n_tgt if stride is None else whole("stride", stride)
        return range((len(self) - 1) % stride, len(self), stride)

    def evaluation(self, *, stride: int | None = None) -> list[Task]:
        """The tasks at `starts`, in the order of time: always the same ones."""
        return [self.task(start) for start in self.starts(stride=stride)]

    def _take(self, start: np.ndarray) -> Task:
        rows = start + np.arange(self.n_ctx + self.n_tgt)
        ctx, tgt = rows[..., : self.n_ctx], rows[..., self.n_ctx :]

        def points(rows):
            return Points({name: value[rows] for name, value in self.index.items()}, self.f[rows])

        return Task(points(ctx), points(tgt))


@dataclass(frozen=True, eq=False)
class Forecasting:
    """The three parts as streams of tasks, and the scaling that was fitted on the first."""

    train: BeijingTasks
    valid: BeijingTasks
    test: BeijingTasks
    scaling: Scaling


def forecasting(data: Beijing, *, n_ctx: int = 624, n_tgt: int = 84, batch: int = 32) -> Forecasting:
    """The paper's protocol: the first 80 % of the rows train, the next 10 % validate, the last 10 % test.

    No task crosses from one part into another, and all scaling is fitted on the training part. The context of 624 rows
    is meant as 48 hours and 4 more for gaps at 12 stations, the 84 targets as 6 hours and 1 more.

    Raises:
        ValueError: a part too short for one task; a wind direction that only a later part has.
    """
    tenth = len(data) // 10
    ends = (0, len(data) - 2 * tenth, len(data) - tenth, len(data))
    train, valid, test = (slice(start, stop) for start, stop in zip(ends, ends[1:], strict=False))
    scaling = Scaling(
        x=MinMax.fit(data.x[train]),
        s=MinMax.fit(data.s[train]),
        t=MinMax.fit(data.t[train]),
        f=MinMax.fit(data.f[train]),
        wind=tuple(np.unique(data.wind[train]).tolist()),
    )

    def stream(rows: slice) -> BeijingTasks:
        index = {
            "x": scaling.covariates(data, rows),
            "s": scaling.s.transform(data.s[rows]),
            "t": scaling.t.transform(data.t[rows]),
        }
        f = scaling.f.transform(data.f[rows])
        return BeijingTasks(index, f, data.time[rows], data.station[rows], n_ctx=n_ctx, n_tgt=n_tgt, batch=batch)

    return Forecasting(stream(train), stream(valid), stream(test), scaling)


def persistence(task: Task) -> np.ndarray:
    """The last value of the target's own station in the context, `(tgt, out)`; of any station where it has none."""
    same = _same_station(task)
    return np.asarray(task.ctx.f)[same.shape[1] - 1 - same[:, ::-1].argmax(1)]


def station_mean(task: Task) -> np.ndarray:
    """The mean of the target's own station in the context, `(tgt, out)`; of all stations where it has no value."""
    weights = _same_station(task).astype(np.float64)
    return weights @ np.asarray(task.ctx.f, np.float64) / weights.sum(1, keepdims=True)


def residual_std(predict: Callable[[Task], np.ndarray], tasks: Iterable[Task]) -> np.ndarray:
    """Root mean square error of `predict` over `tasks`, `(out,)`: with training tasks, a baseline's Gaussian width.

    Raises:
        ValueError: no tasks, or an output that no task has observed.
    """
    errors = [np.where(task.tgt.observed, task.tgt.f - predict(task), np.nan) for task in tasks]
    if not errors:
        raise ValueError("`tasks` must hold at least one task, got none.")
    whole = np.concatenate(errors)
    if (absent := np.isnan(whole).all(0)).any():
        raise ValueError(f"`tasks` must hold observed targets of every output, got none of {np.flatnonzero(absent)}.")
    return np.sqrt(np.nanmean(whole**2, axis=0))


def _same_station(task: Task) -> np.ndarray:
    """Which context rows are at the place of each target, or all rows for a place without any, `(tgt, ctx)`."""
    ctx, tgt = np.asarray(task.ctx.index["s"]), np.asarray(task.tgt.index["s"])
    usable = np.asarray(task.ctx.usable)
    if usable.ndim != 1 or not usable.any():
        raise ValueError("`task` must be one task with a known value in its context, got a batch, or none.")
    same = (ctx[None] == tgt[:, None]).all(-1) & usable
    return np.where(same.any(1, keepdims=True), same, usable)
