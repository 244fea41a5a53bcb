"""Gaussian processes at the places of the data: what a model learns from before, and beside, a small data set."""

from dataclasses import dataclass

import numpy as np

from bsatnp.frames.roles import AbstractRole
from bsatnp.tasks import Points, Task


@dataclass(frozen=True, eq=False)
class Simulated:
    """Replaces the values of a task by draws of a Gaussian process with unit variance and random hyperparameters.

    The process is stationary in every component's own distance, rough or smooth, with noise; its covariates act as
    further coordinates and by a straight line. The length scales go from a few neighbours' distance to beyond the
    extent of the data.

    Args:
        roles: components with a group.
        lengths: for each component, the range of its length scales; that of "x" is for its columns.
        out: number of values of a point; they are correlated.
    """

    roles: tuple[AbstractRole, ...]
    lengths: dict[str, tuple[float, float]]
    out: int

    def __call__(self, task: Task, rng: np.random.Generator) -> Task:
        """The same points with other values; what was missing stays missing."""
        n = len(task.ctx)
        index = {name: np.concatenate([value, task.tgt.index[name]]) for name, value in task.ctx.index.items()}
        values = self.draw(index, rng)

        def filled(points: Points, f: np.ndarray) -> Points:
            return Points(points.index, np.where(np.asarray(points.observed), f, np.nan))

        return Task(filled(task.ctx, values[:n]), filled(task.tgt, values[n:]))

    def draw(self, index: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Values at the points, `(point, out)`."""
        parts = [
            square(role.positions(index[role.component])) / self._length(role.component, rng) ** 2
            for role in self.roles
        ]
        n = len(next(iter(index.values())))
        slope = np.zeros((n, self.out))
        if "x" in index:
            x = index["x"]
            used = rng.random(x.shape[1]) < 0.7
            scales = np.array([self._length("x", rng) for _ in range(x.shape[1])])
            parts.append(square(x[:, used] / scales[used]))
            slope = (x * used) @ rng.normal(0, 0.7, (x.shape[1], self.out)) * (rng.random() < 0.7)
        away = np.sqrt(np.sum(parts, axis=0)) if parts else np.zeros((n, n))
        noise = np.exp(rng.uniform(np.log(1e-3), np.log(0.8)))
        smooth = _shape(away, int(rng.integers(3)))
        factor = np.linalg.cholesky((1 - noise) * smooth + (noise + 1e-9) * np.eye(n))
        mixed = rng.normal(size=(n, self.out)) @ _mixing(self.out, rng)
        f = factor @ mixed + slope
        return (f * np.exp(rng.normal(0, 0.2))) / np.sqrt(1 + np.var(slope)) + rng.normal(0, 0.3, self.out)

    def _length(self, name: str, rng: np.random.Generator) -> float:
        low, high = self.lengths[name]
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def square(points: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs, `(point, dim)` to `(point, point)`."""
    return np.square(points[:, None] - points[None]).sum(-1)


def _shape(r: np.ndarray, kind: int) -> np.ndarray:
    """A correlation of distance: exponential, Matérn 3/2 or squared exponential."""
    if kind == 0:
        return np.exp(-r)
    return (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r) if kind == 1 else np.exp(-np.square(r) / 2)


def _mixing(out: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of unit length: how `out` values share their causes."""
    if out == 1:
        return np.ones((1, 1))
    mix = rng.normal(size=(out, out)) + np.eye(out)
    return mix / np.linalg.norm(mix, axis=0)
