"""Draws of Gaussian processes that do not fail, and what the simulators share: padding to buckets, cells, priors."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bsatnp._types import Array, Key, floating, real, whole, whole_range
from bsatnp.simulate.kernels import gram
from bsatnp.tasks import Points, Task, bucket
from bsatnp.tasks.centring import narrow


def sample(kernel: Any, points: Array, *, key: Key) -> Array:
    """Draw the values of a zero-mean process at `points`.

    **Shapes.** `(point, dim)` to `(point,)`. Batch with `vmap`, of kernels too.

    Args:
        kernel: the covariance of one pair of points.
        points: where; duplicates are welcome.
        key: chooses the draw.

    Raises:
        ValueError: other axes; points that are not finite; places that differ on the host would coincide in device
            precision.
    """
    if not isinstance(points, jax.Array):
        host = np.ma.asarray(points)
        if host.ndim == 2 and not (np.isfinite(floating(host)).all() and not np.ma.getmaskarray(host).any()):
            raise ValueError("`points` must be finite everywhere, got NaN, infinite or masked ones.")
        points = narrow("points", host.data, np.ones(len(host), bool)) if host.ndim == 2 else host.data
    if points.ndim != 2:
        raise ValueError(f"`points` must have shape (point, dim), got {np.shape(points)}.")
    points = floating(jnp.asarray(points))
    points = points if points.dtype.itemsize >= 4 else points.astype(jnp.float32)  # there is no factorisation in less
    return correlate(gram(kernel, points, points), jax.random.normal(key, points.shape[:1], points.dtype))


def correlate(covariance: Array, white: Array) -> Array:
    """Turn independent standard normal numbers into values of a process: `(point, point)`, `(point,)` to `(point,)`."""
    return jnp.matmul(cholesky(covariance), white, precision=jax.lax.Precision.HIGHEST)


def cholesky(matrix: Array) -> Array:
    """A lower triangular factor of a covariance matrix, of which rounding may have spoiled the small eigenvalues.

    A small multiple of the unit matrix is added first: 4 √n units of rounding of the mean variance, which is what
    smooth kernels on n crowded points need (2e-5 for 1,536 points in float32), and 4 times as much again for as long as
    the factor is not finite.

    **Shapes.** `(point, point)` to `(point, point)`. NaN only for a matrix that is no covariance at all.
    """
    matrix = jnp.asarray(matrix)
    n = matrix.shape[-1]
    if n == 0:
        return matrix
    size = jnp.diagonal(matrix).mean()  # a trace would compute the matrix once more
    unit = jnp.eye(n, dtype=matrix.dtype)

    def factorise(jitter):
        return jnp.linalg.cholesky(matrix + jitter * unit)

    def failed(state):
        factor, jitter = state
        return ~jnp.isfinite(factor).all() & (jitter < size)

    def again(state):
        jitter = state[1] * 4
        return factorise(jitter), jitter

    first = size * (4 * n**0.5 * float(jnp.finfo(matrix.dtype).eps))
    return jax.lax.while_loop(failed, again, (factorise(first), first))[0]


def process_tasks(
    kernels: Any, s: Array, counts: Array, size: int, *, noise: tuple[Any, Any], move: Any, key: Key
) -> Task:
    """A batch of tasks from processes on the component `"s"`.

    Args:
        kernels: with a batch axis on every leaf.
        s: locations `(batch, point, dim)`, first those of the context, padding included, then the targets.
        counts: how many rows of each context are real, `(batch,)`.
        size: rows of the context.
        noise: standard deviations of the noise on context and on target values.
        move: moves locations `(batch, point, dim)` once the values are drawn.
        key: chooses values and noise.
    """
    key_field, key_noise = jax.random.split(key)
    white = jax.random.normal(key_field, s.shape[:2], s.dtype)
    f = jax.vmap(lambda kernel, s, white: correlate(gram(kernel, s, s), white))(kernels, s, white)
    level = jnp.where(jnp.arange(s.shape[1]) < size, *(jnp.asarray(sd, s.dtype) for sd in noise))
    f = f + level[None] * jax.random.normal(key_noise, f.shape, f.dtype)
    s, f = move(s), f[..., None]
    mask = jnp.arange(size)[None] < counts[:, None]
    f_ctx = jnp.where(mask[..., None], f[:, :size], jnp.zeros_like(f[:, :size]))
    return Task(Points({"s": s[:, :size]}, f_ctx, mask=mask), Points({"s": s[:, size:]}, f[:, size:]))


def check_counts(batch: int, n_ctx: tuple[int, int], n_tgt: int, ctx_sizes: Sequence[int]) -> None:
    """Raise ValueError unless the numbers of tasks and points fit each other and the buckets."""
    whole("batch", batch)
    whole("n_tgt", n_tgt)
    whole_range("n_ctx", n_ctx)
    for size in ctx_sizes:
        whole("ctx_sizes", size, 0)
    if not ctx_sizes or max(ctx_sizes) < n_ctx[1] - 1:
        raise ValueError(f"`ctx_sizes` must hold {n_ctx[1] - 1} context points, got {tuple(ctx_sizes)}.")


def check_process(noise: float, tgt_noise: float, lengthscale: tuple[float, float]) -> None:
    """Raise ValueError for deviations of noise that are negative or parameters of a distribution that are not."""
    real("noise", noise, ends=True)
    real("tgt_noise", tgt_noise, ends=True)
    check_parameters("lengthscale", lengthscale)


def check_parameters(name: str, values: Sequence[float]) -> None:
    """Raise ValueError unless both parameters of a distribution are positive."""
    for value in values:
        real(name, value)


def check_span(name: str, span: tuple[float, float], shift: float = 0.0) -> None:
    """Raise ValueError for an interval that is empty, has no end, or lies so far off that places in it merge."""
    if not -np.inf < span[0] < span[1] < np.inf:
        raise ValueError(f"`{name}` must be (low, high) with low < high, both finite, got {span}.")
    farthest, kind = max(abs(end + shift) for end in span), jnp.result_type(float)
    if farthest * jnp.finfo(kind).eps > 1e-3 * (span[1] - span[0]):
        raise ValueError(
            f"`{name}` {span} must not lie as far off as {farthest:g} (its `shift` included), where {kind} merges "
            "places; shift it less, or enable x64."
        )


def asked(targets: Any, dim: int) -> Array:
    """Locations that the caller wants as targets, on the device.

    Raises:
        ValueError: another shape than `(tgt, dim)`.
    """
    if np.ndim(targets) != 2 or np.shape(targets)[1] != dim:
        raise ValueError(f"`targets` must have shape (tgt, {dim}), got {np.shape(targets)}.")
    return jnp.asarray(targets, jnp.result_type(float))


def context_counts(
    batch: int, n_ctx: tuple[int, int], ctx_sizes: Sequence[int], *, same: bool, key: Key
) -> tuple[Array, int]:
    """Numbers of context points `(batch,)`, uniform on [low, high), and the bucket that holds them all."""
    counts = jnp.broadcast_to(jax.random.randint(key, (1,) if same else (batch,), *n_ctx), (batch,))
    # with one bucket there is no need to wait for the device
    size = ctx_sizes[0] if len(ctx_sizes) == 1 else bucket(int(counts.max()), ctx_sizes)
    return counts, size


def denser(
    n_ctx: tuple[int, int], ctx_sizes: Sequence[int], more: float | int
) -> tuple[tuple[int, int], tuple[int, ...]]:
    """The range of context points and the buckets for `more` times as many points."""
    low, most = n_ctx[0], n_ctx[1] - 1
    return (round(low * more), round(most * more) + 1), tuple(round(size * more) for size in ctx_sizes)


def stretched(span: tuple[float, float], factor: float, domain: tuple[float, float]) -> tuple[float, float]:
    """Where the ends of `span` go when `domain`, in which it lies, becomes `factor` times as wide about its middle."""
    middle = (domain[0] + domain[1]) / 2
    return middle + factor * (span[0] - middle), middle + factor * (span[1] - middle)


def cells(n: int, domain: tuple[float, float], dim: int) -> np.ndarray:
    """The middles of n equal cells of (low, high) along each axis, `(n ** dim, dim)`; the last axis runs fastest.

    Raises:
        ValueError: `n` is no whole number from 1 up.
    """
    axis = domain[0] + (domain[1] - domain[0]) * (np.arange(whole("n", n)) + 0.5) / n
    return np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), -1).reshape(-1, dim)


def shuffles(n: int, shape: tuple[int, ...], *, key: Key) -> Array:
    """Independent random orders of 0 … n − 1, `(*shape, n)`."""
    return jnp.argsort(jax.random.bits(key, (*shape, n)), axis=-1)


def inverse_gamma(shape: float, scale: float, n: int, *, key: Key) -> Array:
    """Draws from InverseGamma(shape, scale), `(n,)`."""
    return scale / jax.random.gamma(key, shape, (n,))
