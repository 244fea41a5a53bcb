"""The paper's forecasting tasks on ERA5: the temperature six hours on, from four frames seen here and there.

`standard(train)` learns the scaling from the training box, `Era5Tasks(data, scaling)` is a stream of batches from any.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from bsatnp._types import Key, whole, whole_range
from bsatnp.datasets.era5 import Era5
from bsatnp.datasets.scaling import Standard
from bsatnp.tasks import Points, Task, bucket

_HOUR = np.timedelta64(3600, "s")


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and standard deviation of every input and of the temperature, from the training box alone.

    **Units.** Of the data: `x` metres and hours of the day, `s` degrees north and east, `t` hours since `start`,
    `f` kelvin.
    """

    start: np.datetime64
    x: Standard
    s: Standard
    t: Standard
    f: Standard

    def hours(self, time: np.ndarray) -> np.ndarray:
        """Hours since the first frame of the training box."""
        return (time - self.start) / _HOUR


def standard(data: Era5) -> Scaling:
    """The scaling of the training box.

    **Reference.** The paper's experimental setup, ERA5: "all input data are standardized based on the training set".
    """
    start = data.time[0]
    hours = ((data.time - start) / _HOUR).astype(np.float64)
    columns = {
        "x": (data.elevation, data.hour),
        "s": (data.latitude, data.longitude),
        "t": (hours,),
        "f": (data.temperature,),
    }
    fits = {
        name: Standard(*(np.array([statistic(c, dtype=np.float64) for c in cs]) for statistic in (np.mean, np.std)))
        for name, cs in columns.items()
    }
    return Scaling(start, **fits)


@dataclass(frozen=True, eq=False)
class Era5Tasks:
    """A stream of forecasting tasks: windows of `frames` frames at random places and times of one box.

    `tasks(step, key=key)` is a batch; the same step and key give the same batch. Each frame but the last shows a random
    number of its cells; the targets are all cells of the last.

    **Shapes.** `index` has x (elevation, hour of the day) `(point, 2)`, s (latitude, longitude) `(point, 2)` and
    t `(point, 1)`; `f` is `(point, 1)`. A batch puts `batch` before the points.

    **Units.** Scaled by the training box.

    Args:
        data: of one box.
        scaling: of the training box.
        batch: tasks in a batch.
        window: cells of a task along each axis.
        n_ctx: the number of context cells is drawn uniformly from [low, high), for each frame.
        frames: of a task, the target frame included.
        hours: between frames; the data may have more frames between them.
        ctx_sizes: bucket sizes; the context is padded to the smallest that holds the batch.
        resolution: between cells, degrees.

    Raises:
        ValueError: a box smaller than a window, cells of another size, no frames that many hours apart, or numbers
            that do not fit each other.

    **Reference.** The paper's experimental setup, ERA5.
    """

    data: Era5
    scaling: Scaling
    batch: int = 8
    window: int = 30
    n_ctx: tuple[int, int] = (45, 225)
    frames: int = 5
    hours: int = 6
    ctx_sizes: tuple[int, ...] = (768, 896)
    resolution: float = 0.25
    place: str = field(init=False)
    starts: np.ndarray = field(init=False, repr=False)

    def __post_init__(self):
        for name, least in (("batch", 1), ("window", 1), ("frames", 2), ("hours", 1)):
            whole(name, getattr(self, name), least)
        whole_range("n_ctx", self.n_ctx, self.window**2 + 1)
        most = (self.frames - 1) * (self.n_ctx[1] - 1)
        if max(self.ctx_sizes, default=0) < most:
            raise ValueError(f"`ctx_sizes` must hold {most} context points, got {tuple(self.ctx_sizes)}.")
        for name in ("latitude", "longitude"):
            cells = np.diff(getattr(self.data, name))
            if len(cells) + 1 < self.window:
                raise ValueError(
                    f"`data` must be at least `window` = {self.window} cells along {name}, got {len(cells) + 1}."
                )
            if not np.allclose(cells, self.resolution, atol=1e-4):
                raise ValueError(
                    f"`data` must have cells of {self.resolution}° along {name}, "
                    f"got {cells.min():g}° to {cells.max():g}°."
                )
        starts = self._starts()
        if not len(starts):
            raise ValueError(
                f"`data` must hold {self.frames} frames {self.hours} hours apart, got {len(self.data.time)} frames "
                f"from {self.data.time.min()} to {self.data.time.max()}."
            )
        latitude, longitude, time = self.data.latitude, self.data.longitude, self.data.time
        where = f"{latitude[0]:g} to {latitude[-1]:g} N, {longitude[0]:g} to {longitude[-1]:g} E"
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "place", f"{where}, {time[0]} to {time[-1]}, {len(time)} frames")

    def _starts(self) -> np.ndarray:
        """Which frames make up a task, `(task, frame)`, for all frames where one can begin."""
        time = self.data.time
        wanted = time[:, None] + np.arange(self.frames) * self.hours * _HOUR
        found = np.minimum(np.searchsorted(time, wanted), len(time) - 1)
        return found[(time[found] == wanted).all(1)]

    def __call__(self, step: int, *, key: Key) -> Task:
        """Batch number `step` of the stream that `key` chooses."""
        words = np.asarray(jax.random.key_data(jax.random.fold_in(key, step))).ravel().tolist()
        random = np.random.default_rng(words)
        chosen = self.starts[random.integers(len(self.starts), size=self.batch)]
        corners = [
            random.integers(len(axis) - self.window + 1, size=self.batch)
            for axis in (self.data.latitude, self.data.longitude)
        ]
        shown = self.frames - 1
        counts = random.integers(*self.n_ctx, size=(self.batch, shown))
        size = bucket(int(counts.sum(1).max()), self.ctx_sizes)
        frame, cell = (np.zeros((self.batch, size), int) for _ in range(2))
        for task in range(self.batch):
            n = counts[task].sum()
            frame[task, :n] = np.repeat(chosen[task, :shown], counts[task])
            cell[task, :n] = np.concatenate([random.permutation(self.window**2)[:count] for count in counts[task]])
        every = np.broadcast_to(np.arange(self.window**2), (self.batch, self.window**2))
        mask = np.arange(size) < counts.sum(1)[:, None]
        return Task(self._points(frame, corners, cell, mask), self._points(chosen[:, shown:], corners, every, None))

    def _points(self, frame: np.ndarray, corners: list[np.ndarray], cell: np.ndarray, mask: Any) -> Points:
        """Cells of windows `(batch, cell)`, counted row by row from their south-west corners `(batch,)`."""
        row, column = (c[:, None] + part for c, part in zip(corners, divmod(cell, self.window), strict=True))
        frame = np.broadcast_to(frame, cell.shape)
        data, scaling = self.data, self.scaling
        since = scaling.hours(data.time)[frame][..., None]
        index = {
            "x": scaling.x.transform(np.stack((data.elevation[row, column], data.hour[frame]), -1)),
            "s": scaling.s.transform(np.stack((data.latitude[row], data.longitude[column]), -1)),
            "t": scaling.t.transform(since),
        }
        return Points(index, scaling.f.transform(data.temperature[frame, row, column][..., None]), mask=mask)
