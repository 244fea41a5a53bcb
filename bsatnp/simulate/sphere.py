"""Gaussian processes on a patch of the sphere, and rotations of the patch."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bsatnp import _sphere
from bsatnp._sphere import turn
from bsatnp._types import Array, Key, floating, is_traced, namespace, real
from bsatnp.simulate.draws import (
    asked,
    cells,
    check_counts,
    check_process,
    context_counts,
    inverse_gamma,
    process_tasks,
)
from bsatnp.simulate.kernels import AbstractKernel, parameter, positive
from bsatnp.tasks import Task


class GreatCircleExponential(AbstractKernel):
    """σ² exp(−d / ℓ) with the great-circle distance d.

    **Shapes.** A point is (longitude, latitude), `(2,)`.

    **Units.** Longitude, latitude and `lengthscale` in degrees, `variance` in squared units of the values.

    **Invariant under.** Rotations of the sphere.

    Args:
        lengthscale: `()`.
        variance: `()`.

    Raises:
        ValueError: a parameter that is not positive.

    **Reference.** The paper's experimental setup, spherical GPs.
    """

    lengthscale: Any = 10.0
    variance: Any = 1.0

    def __check_init__(self):
        positive(lengthscale=self.lengthscale, variance=self.variance)

    def __call__(self, p: Array, q: Array) -> Any:
        """The covariance of the values at `p` and at `q`."""
        xp, p = namespace(p), floating(p)
        return parameter(self.variance, p) * xp.exp(-great_circle(p, q) / parameter(self.lengthscale, p))


def great_circle(p: Array, q: Array) -> Any:
    """The angle between two points (longitude, latitude), exact for neighbours and antipodes alike.

    **Shapes.** `(2,)` and `(2,)` to `()`; on NumPy arrays any leading axes, broadcast.

    **Units.** Degrees throughout. The gradient is zero where the points coincide or are antipodes.
    """
    return _sphere.angle(*_sphere.half_chords(floating(p), floating(q)))


def rotate(points: Array, *, north: float = 0.0, east: float = 0.0, tilt: float = 0.0) -> Array:
    """Rotate points of the sphere about fixed axes.

    First about y by −`north`, which moves (0, 0) north; then about z, the poles, by `east`; then by `tilt` about x, the
    axis through (0, 0) and (180, 0).

    **Shapes.** (longitude, latitude), `(…, 2)` to `(…, 2)`.

    **Units.** Degrees; longitudes come back in ±180.

    **Reference.** The paper's experimental setup, spherical GPs: 60, 30, 0 and 60, 30, 20.
    """
    matrix, points = rotation(north=north, east=east, tilt=tilt), floating(points)
    return turn(points, namespace(points).asarray(matrix, points.dtype))


def rotation(*, north: float = 0.0, east: float = 0.0, tilt: float = 0.0) -> np.ndarray:
    """The matrix of `rotate`, `(3, 3)` in float64, which acts on unit vectors from the left. **Units.** Degrees."""
    (cn, sn), (ce, se), (ct, st) = [(np.cos(a), np.sin(a)) for a in np.radians([north, east, tilt])]
    about_y = np.array([[cn, 0, -sn], [0, 1, 0], [sn, 0, cn]])  # by −north
    about_z = np.array([[ce, -se, 0], [se, ce, 0], [0, 0, 1]])
    about_x = np.array([[1, 0, 0], [0, ct, -st], [0, st, ct]])
    return about_x @ about_z @ about_y


@dataclasses.dataclass(frozen=True)
class SphereTasks:
    """A stream of regression tasks from Gaussian processes on a patch of the sphere.

    `tasks(step, key=key)` is a batch; `draw` gives the kernels behind it as well. The component is `"s"`, (longitude,
    latitude). The values are drawn before the rotation and do not change with it.

    **Units.** Degrees; values have unit variance.

    **Invariant under.** Rotations of the sphere: the posterior predictive of every task is.

    Args:
        batch: tasks in a batch.
        n_ctx: the number of context points is drawn uniformly from [low, high), for each task.
        same_n_ctx: draw one number for the whole batch instead.
        n_tgt: targets, apart from the context.
        ctx_sizes: bucket sizes; the context is padded to the smallest that holds the batch.
        noise: standard deviation of the noise on context values.
        tgt_noise: the same for target values.
        lengthscale: parameters of the InverseGamma distribution it is drawn from, for each task.
        half_width: longitude and latitude are uniform on ± this.
        rotation: (north, east, tilt), see `rotate`.

    Raises:
        ValueError: numbers that do not fit each other.

    **Reference.** The paper's experimental setup, spherical GPs.
    """

    batch: int = 8
    n_ctx: tuple[int, int] = (128, 512)
    same_n_ctx: bool = False
    n_tgt: int = 1024
    ctx_sizes: tuple[int, ...] = (512,)
    noise: float = 0.1
    tgt_noise: float = 0.0
    lengthscale: tuple[float, float] = (3.0, 30.0)
    half_width: float = 10.0
    rotation: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self):
        check_counts(self.batch, self.n_ctx, self.n_tgt, self.ctx_sizes)
        check_process(self.noise, self.tgt_noise, self.lengthscale)
        if not 0 < self.half_width <= 90:
            raise ValueError(f"`half_width` must be in (0, 90] degrees, got {self.half_width}.")
        for angle in self.rotation:
            real("rotation", angle, -np.inf)

    def rotated(self, north: float, east: float, tilt: float = 0.0) -> "SphereTasks":
        """The same tasks with this rotation in place of theirs; the same step and key give the same values."""
        return dataclasses.replace(self, rotation=(north, east, tilt))

    def grid(self, n: int = 64) -> np.ndarray:
        """The middles of n × n cells of the patch before rotation, `(n * n, 2)`; latitude runs fastest."""
        return cells(n, (-self.half_width, self.half_width), 2)

    def __call__(self, step: int, *, key: Key) -> Task:
        """Batch number `step` of the stream that `key` chooses."""
        return self.draw(step, key=key)[0]

    def draw(self, step: int, *, key: Key, targets: Array | None = None) -> tuple[Task, GreatCircleExponential]:
        """A batch, and its kernels with a batch axis, as `posterior` takes them.

        Args:
            step: number of the batch.
            key: of the whole stream.
            targets: locations `(tgt, 2)` before rotation to use as targets of every task, such as a `grid`.
        """
        key_count, key_scale, key_task = jax.random.split(jax.random.fold_in(key, step), 3)
        counts, size = context_counts(self.batch, self.n_ctx, self.ctx_sizes, same=self.same_n_ctx, key=key_count)
        lengthscale = inverse_gamma(*self.lengthscale, self.batch, key=key_scale)
        kernels = GreatCircleExponential(lengthscale, jnp.ones_like(lengthscale))
        where = None if targets is None else asked(targets, 2)
        if where is not None and not is_traced(where) and (most := float(jnp.abs(where[:, 1]).max(initial=0))) > 90:
            raise ValueError(f"`targets` must be (longitude, latitude) in degrees, got a latitude of {most:g}.")
        north, east, tilt = self.rotation
        matrix = jnp.asarray(rotation(north=north, east=east, tilt=tilt), lengthscale.dtype)
        shape, noise = (self.batch, size, self.n_tgt), (self.noise, self.tgt_noise)
        matrix = matrix if any(self.rotation) else None
        return _draw(shape, counts, kernels, where, self.half_width, noise, matrix, key=key_task), kernels


@partial(jax.jit, static_argnums=0)
def _draw(shape, counts, kernels, targets, half_width, noise, matrix, *, key):
    batch, size, n_tgt = shape
    key_place, key_values = jax.random.split(key)
    n = size + (n_tgt if targets is None else 0)
    s = half_width * jax.random.uniform(key_place, (batch, n, 2), minval=-1, maxval=1)
    if targets is not None:
        s = jnp.concatenate([s, jnp.broadcast_to(targets[None], (batch, *targets.shape))], 1)
    move = (lambda s: s) if matrix is None else partial(turn, matrix=matrix)
    return process_tasks(kernels, s, counts, size, noise=noise, move=move, key=key_values)
