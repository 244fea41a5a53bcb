"""The exact posterior of a Gaussian process, in float64 on the host: the bound on what any model can reach."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from bsatnp._types import Array, Key, real, typed, whole
from bsatnp.simulate.kernels import gram
from bsatnp.tasks import Points, check_pair
from bsatnp.tasks.centring import seconds


class Posterior(eqx.Module):
    """The exact predictive distribution of a Gaussian process at the targets, in float64 on the host.

    `bsatnp.likelihoods.Gaussian(p.mean[..., None], np.sqrt(p.variance)[..., None])` is a likelihood of its marginals,
    which `bsatnp.metrics` scores.

    **Shapes.** `mean` and `variance` are `(tgt,)`, `covariance` is `(tgt, tgt)` or None; a batch adds leading axes.
    """

    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray | None

    def log_prob(self, f: Array) -> np.ndarray:
        """The marginal log density of values at each target: `(tgt,)` or `(tgt, 1)` to `(tgt,)`.

        Raises:
            ValueError: values of another shape.
        """
        given, f = np.shape(f), np.asarray(f, np.float64)
        f = f[..., 0] if given == (*self.mean.shape, 1) else f
        if f.shape != self.mean.shape:
            raise ValueError(f"`f` must have the shape {self.mean.shape} of the targets, got {given}.")
        return -((f - self.mean) ** 2 / self.variance + np.log(2 * np.pi * self.variance)) / 2

    def sample(self, *, key: Key, samples: int = 100) -> np.ndarray:
        """Draws of the values at all targets together, `(sample, …, tgt)`, in float64.

        Raises:
            ValueError: a posterior without `covariance`, a count below 1, a key that is no typed key.
        """
        if self.covariance is None:
            raise ValueError("`sample` needs the covariance of the targets, as `posterior(…, full=True)` gives.")
        white = np.asarray(jax.random.normal(typed(key), (whole("samples", samples), *self.mean.shape)), np.float64)
        values, vectors = np.linalg.eigh(self.covariance)  # which, unlike a Cholesky factor, a singular matrix has
        return self.mean + ((vectors * np.sqrt(np.maximum(values, 0))[..., None, :]) @ white[..., None])[..., 0]


def posterior(
    kernel: Any,
    ctx: Points,
    tgt: Points,
    *,
    noise: Any = 0.0,
    tgt_noise: Any = 0.0,
    mean: Any = None,
    full: bool = False,
) -> Posterior:
    """The exact posterior predictive of a Gaussian process: the bound on what any model can reach.

    Points are the components of their index set, in the order of their names, joined into one vector. Rows that may
    not serve as context (padding, values not observed) are left out.

    **Shapes.** One task, or a batch of them; then `kernel`, `mean`, `noise` and `tgt_noise` (unless None, one number or
    a plain function) carry the batch axis on every leaf, as a simulator's `draw` returns them.

    **Units.** Dates count in seconds, whatever their unit.

    Args:
        kernel: the covariance of a pair of points, able to take NumPy arrays with leading axes. A sum of kernels is a
            function, `lambda p, q: one(p, q) + other(p, q)`.
        ctx: points with one output.
        tgt: where to predict; the values of `tgt.f` are not looked at.
        noise: standard deviation of the noise on the values in `ctx`; one number, or one for each of its points.
        tgt_noise: one number for the values to be predicted.
        mean: mean function, `(point, dim)` to `(point,)`; zero when None.
        full: compute the covariance between targets as well.

    Raises:
        ValueError: more than one output, components or batch axes that do not fit, a leaf without the batch axis, a
            noise that is negative, a matrix that is no covariance, a mean of another shape.
    """
    check_pair(ctx, tgt)
    if ctx.mask.ndim > 1:
        n = ctx.mask.shape[0]
        if not n:
            raise ValueError("`ctx` must hold at least one task, got a batch of none.")
        rows = [_rows(tree, n, name) for name, tree in (("kernel", kernel), ("mean", mean))]
        noises = [_rows(tree, n, name) for name, tree in (("noise", noise), ("tgt_noise", tgt_noise))]

        def one(i):
            options = {"noise": noises[0](i), "tgt_noise": noises[1](i), "mean": rows[1](i), "full": full}
            return posterior(rows[0](i), _row(ctx, i), _row(tgt, i), **options)

        each = [one(i) for i in range(n)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    with jax.enable_x64(True):  # noqa: FBT003, for kernels and means that are written with `jax.numpy`
        return _posterior(_host(kernel), ctx, tgt, noise, tgt_noise, mean, full=full)


def _posterior(
    kernel: Any, ctx: Points, tgt: Points, noise: Any, tgt_noise: Any, mean: Any, *, full: bool
) -> Posterior:
    """The posterior of one task."""
    p, f = _observed(ctx)
    q = coordinates(tgt)
    prior = np.asarray(gram(kernel, q, q), np.float64) if full else None
    variance = np.asarray(kernel(q, q), np.float64)
    shift = _mean(mean, q)
    noise, extra = _noise(noise, ctx), _level("tgt_noise", tgt_noise) ** 2
    if not len(p):
        at_tgt, reduction, spread = shift, np.zeros((0, len(q))), variance
    else:
        residual = f - _mean(mean, p)
        factor = _factor(kernel, p, noise)
        reduction = np.linalg.solve(factor, np.asarray(gram(kernel, p, q), np.float64))
        at_tgt = shift + reduction.T @ np.linalg.solve(factor, residual)
        spread = np.maximum(variance - (reduction**2).sum(0), np.finfo(np.float64).eps * variance)
    covariance = None
    if prior is not None:
        covariance = prior - reduction.T @ reduction
        np.fill_diagonal(covariance, spread + extra)
    return Posterior(at_tgt, spread + extra, covariance)


def log_marginal(
    kernel: Any, points: Points, *, noise: Any = 0.0, mean: Callable[[np.ndarray], np.ndarray] | None = None
) -> float:
    """The log density of the values of one set of points under a Gaussian process, in float64 on the host.

    Args:
        kernel: as in `posterior`.
        points: unbatched, with one output; rows that are padding or not observed do not count.
        noise: standard deviation of the noise on the values; one number, or one for each of the points.
        mean: mean function, `(point, dim)` to `(point,)`.

    Raises:
        ValueError: a batch, more than one output, a negative noise, a matrix that is no covariance, a mean of another
            shape.
    """
    if points.mask.ndim != 1:
        raise ValueError(f"`points` must be one set with axes (point, dim), got batch axes {points.mask.shape[:-1]}.")
    p, f = _observed(points)
    if not len(p):
        return 0.0
    with jax.enable_x64(True):  # noqa: FBT003
        residual = f - _mean(mean, p)
        factor = _factor(_host(kernel), p, _noise(noise, points))
    white = np.linalg.solve(factor, residual)
    return float(-(white @ white) / 2 - np.log(np.diagonal(factor)).sum() - len(p) * np.log(2 * np.pi) / 2)


def coordinates(points: Points) -> np.ndarray:
    """The components of unbatched points, in the order of their names, joined in float64; zero where masked.

    **Units.** Dates in seconds since the start of 1970.
    """
    mask = np.asarray(points.mask)
    columns = [seconds(np.asarray(points.index[name])) for name in sorted(points.index)]
    return np.where(mask[:, None], np.concatenate(columns, -1), 0)


def _observed(points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and values of the rows that may serve as context."""
    if points.f is None or points.f.shape[-1] != 1:
        raise ValueError(f"`ctx.f` must have one output, got {None if points.f is None else points.f.shape[-1]}.")
    rows = np.asarray(points.usable)
    return coordinates(points)[rows], np.asarray(points.f, np.float64)[rows, 0]


def _mean(mean: Any, points: np.ndarray) -> np.ndarray:
    """The mean function at points, one number for each."""
    if mean is None:
        return np.zeros(len(points))
    found = np.asarray(mean(points), np.float64)
    if found.shape not in ((), (len(points),)):
        raise ValueError(f"`mean` must give shape ({len(points)},) for as many points, got {found.shape}.")
    return np.broadcast_to(found, (len(points),))


def _level(name: str, noise: Any) -> float:
    if np.ndim(noise):
        raise ValueError(f"`{name}` must be one number for a task, got shape {np.shape(noise)}.")
    return real(name, np.asarray(noise).item(), ends=True)


def _noise(noise: Any, points: Points) -> np.ndarray:
    """The noise on the value of each row that may serve as context."""
    rows, given = np.asarray(points.usable), np.asarray(noise, np.float64)
    if given.shape not in ((), rows.shape):
        raise ValueError(
            f"`noise` must be one number for a task, or one for each of its {len(rows)} points, got shape "
            f"{given.shape}."
        )
    levels = np.broadcast_to(given, rows.shape)[rows]
    for level in (given,) if given.ndim == 0 else (levels.min(initial=0), levels.max(initial=0)):
        real("noise", float(level), ends=True)
    return levels


def _factor(kernel: Any, p: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The Cholesky factor of the covariance of noisy values; duplicates without noise need a little more."""
    matrix = np.asarray(gram(kernel, p, p), np.float64)
    size = np.trace(matrix) / len(p)
    matrix = matrix + np.diag(noise**2)
    for jitter in (0.0, *10.0 ** np.arange(-13, -5)):
        try:
            return np.linalg.cholesky(matrix + jitter * size * np.eye(len(p)))
        except np.linalg.LinAlgError:
            continue
    raise ValueError("`kernel` must give a positive semi-definite covariance, got one with negative eigenvalues.")


def _host(tree: Any) -> Any:
    """Every number of a kernel as a NumPy array in float64; a plain function stays as it is."""
    return jax.tree.map(lambda leaf: leaf if callable(leaf) else np.asarray(leaf, np.float64), tree)


def _row(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[i], tree)


def _rows(tree: Any, n: int, name: str) -> Callable[[int], Any]:
    """A function from the number of a task to its part of `tree`; one number, or a plain function, is shared by all."""
    leaves = jax.tree.leaves(tree)
    if all(callable(leaf) for leaf in leaves) or (leaves[0] is tree and np.ndim(tree) == 0):
        return lambda i: tree
    if any(np.shape(leaf)[:1] != (n,) for leaf in leaves):
        raise ValueError(f"`{name}` must carry the batch axis {n} on every leaf, as `draw` returns it.")
    host = jax.tree.map(np.asarray, tree)
    return lambda i: _row(host, i)
