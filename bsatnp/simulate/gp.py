"""The paper's tasks from Gaussian processes on a line or in a plane."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import Array, Key, is_traced, real, whole
from bsatnp.simulate.draws import (
    asked,
    cells,
    check_counts,
    check_process,
    check_span,
    context_counts,
    denser,
    process_tasks,
    stretched,
)
from bsatnp.simulate.kernels import Matern, SquaredExponential
from bsatnp.tasks import Task


@dataclasses.dataclass(frozen=True)
class GPTasks:
    """A stream of regression tasks from Gaussian processes on a line or in a plane.

    `tasks(step, key=key)` is a batch; `draw` gives the kernels behind it as well. The same step and key give the same
    batch. The component is `"s"`, values have one output.

    **Units.** Those of `domain`; values have unit variance.

    **Invariant under.** Translations, and rotations too: the posterior predictive of every task is.

    Args:
        dim: of the space, 1 or 2 in the paper's experiments.
        batch: tasks in a batch.
        n_ctx: the number of context points is drawn uniformly from [low, high), for each task.
        same_n_ctx: draw one number for the whole batch instead.
        n_tgt: targets, apart from the context.
        ctx_sizes: bucket sizes; the context is padded to the smallest that holds the batch.
        noise: standard deviation of the noise on context values.
        tgt_noise: the same for target values; the paper's are noise-free.
        kernel: makes a kernel from a lengthscale.
        lengthscale: parameters of the Beta distribution it is drawn from, for each task.
        domain: (low, high) of every axis.
        inner: (low, high) of an inner region from which half of all points come, for tasks of two resolutions.
        shift: added to all locations after the values were drawn, so that a shifted stream has the same values.

    Raises:
        ValueError: numbers that do not fit each other.

    **Reference.** The paper's experimental setup, 2D GPs, and its tables on shifted, scaled and multiscale tasks.
    """

    dim: int = 2
    batch: int = 8
    n_ctx: tuple[int, int] = (128, 512)
    same_n_ctx: bool = False
    n_tgt: int = 1024
    ctx_sizes: tuple[int, ...] = (512,)
    noise: float = 0.1
    tgt_noise: float = 0.0
    kernel: Callable[..., Any] = SquaredExponential
    lengthscale: tuple[float, float] = (3.0, 7.0)
    domain: tuple[float, float] = (-2.0, 2.0)
    inner: tuple[float, float] | None = None
    shift: float = 0.0

    def __post_init__(self):
        check_counts(self.batch, self.n_ctx, self.n_tgt, self.ctx_sizes)
        check_process(self.noise, self.tgt_noise, self.lengthscale)
        whole("dim", self.dim)
        check_span("domain", self.domain, real("shift", self.shift, -np.inf))
        if self.inner is not None:
            check_span("inner", self.inner, self.shift)
            if not self.domain[0] <= self.inner[0] < self.inner[1] <= self.domain[1]:
                raise ValueError(f"`inner` must lie within `domain` {self.domain}, got {self.inner}.")

    def shifted(self, by: float) -> "GPTasks":
        """The same tasks `by` units away along every axis; the same step and key give the same values."""
        return dataclasses.replace(self, shift=self.shift + by)

    def scaled(self, factor: float) -> "GPTasks":
        """Tasks on a domain `factor` times as wide, with as many points per unit of volume.

        Raises:
            ValueError: no positive number, or one that leaves no points.
        """
        more = real("factor", factor) ** self.dim
        n_ctx, ctx_sizes = denser(self.n_ctx, self.ctx_sizes, more)
        domain = stretched(self.domain, factor, self.domain)
        inner = None if self.inner is None else stretched(self.inner, factor, self.domain)
        n_tgt = round(self.n_tgt * more)
        return dataclasses.replace(self, domain=domain, inner=inner, n_ctx=n_ctx, n_tgt=n_tgt, ctx_sizes=ctx_sizes)

    @classmethod
    def multiscale(cls, **options: Any) -> "GPTasks":
        """The paper's tasks of two resolutions: half of all points from [−0.5, 0.5]², half from [−1.5, 1.5]².

        The paper gives no numbers of points. With 78% fewer pixels than the 48² of a fine grid, 512 remain; a quarter
        to an eighth of them as context gives an exact posterior that scores a little better than the paper's model.
        """
        paper = {"domain": (-1.5, 1.5), "inner": (-0.5, 0.5), "n_ctx": (64, 128), "n_tgt": 512, "ctx_sizes": (128,)}
        return cls(**{**paper, **options})

    def grid(self, n: int = 64) -> np.ndarray:
        """The middles of n cells along each axis of the domain, `(n ** dim, dim)`; the last axis runs fastest."""
        return cells(n, self.domain, self.dim) + self.shift

    def __call__(self, step: int, *, key: Key) -> Task:
        """Batch number `step` of the stream that `key` chooses."""
        return self.draw(step, key=key)[0]

    def draw(self, step: int, *, key: Key, targets: Array | None = None) -> tuple[Task, Any]:
        """A batch, and its kernels with a batch axis, as `posterior` takes them.

        Args:
            step: number of the batch.
            key: of the whole stream.
            targets: locations `(tgt, dim)` to use as targets of every task, such as a `grid` for a picture.
        """
        key_count, key_scale, key_task = jax.random.split(jax.random.fold_in(key, step), 3)
        counts, size = context_counts(self.batch, self.n_ctx, self.ctx_sizes, same=self.same_n_ctx, key=key_count)
        # drawn apart from the rest: its compilation is the slowest and shared by all streams
        lengthscale = jax.random.beta(key_scale, *self.lengthscale, (self.batch,))
        kernels = jax.vmap(self._kernel)(lengthscale)
        where = None if targets is None else asked(targets, self.dim) - self.shift
        shape = (self.batch, size, self.n_tgt, self.dim)
        spans = _span(self.domain), _span(self.inner or self.domain)
        noise = (self.noise, self.tgt_noise)
        task = _draw(shape, counts, kernels, where, spans, noise, self.shift, key=key_task)
        if not isinstance(kernels, SquaredExponential | Matern) and not is_traced(task):
            if not task.tgt.observed.all():  # NaN, where there was no factor
                raise ValueError("`kernel` must give a positive semi-definite covariance, got one that has no factor.")
        return task, kernels

    def _kernel(self, lengthscale: Array) -> Any:
        kernel = self.kernel(lengthscale)
        if any(callable(leaf) for leaf in jax.tree.leaves(kernel)):
            raise ValueError(
                "`kernel` must give an `AbstractKernel`, or another module whose parameters are its leaves, got "
                f"{type(kernel).__name__}."
            )
        return jax.tree.map(jnp.asarray, kernel)


@partial(jax.jit, static_argnums=0)
def _draw(shape, counts, kernels, targets, spans, noise, shift, *, key):
    """Only sizes are static, so that streams that differ in domain, shift or noise share one compilation."""
    batch, size, n_tgt, dim = shape
    key_place, key_values = jax.random.split(key)
    n = size + (n_tgt if targets is None else 0)
    s = jax.random.uniform(key_place, (batch, n, dim), minval=-1, maxval=1)
    row = jnp.arange(n)
    # every other row of the context and of the targets, so that it is half of any number of context points
    inside = (jnp.where(row < size, row, row - size) % 2 == 0)[None, :, None]
    outer, inner = spans
    s = jnp.where(inside, inner[0] + inner[1] * s, outer[0] + outer[1] * s)
    if targets is not None:
        s = jnp.concatenate([s, jnp.broadcast_to(targets[None], (batch, *targets.shape))], 1)
    return process_tasks(kernels, s, counts, size, noise=noise, move=lambda s: s + shift, key=key_values)


def _span(domain: tuple[float, float]) -> tuple[float, float]:
    """Middle and half-width."""
    return (domain[0] + domain[1]) / 2, (domain[1] - domain[0]) / 2
