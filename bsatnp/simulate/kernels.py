"""Covariance kernels of Gaussian processes, written for one pair of points.

A kernel uses the array module of its points. On JAX arrays it takes one pair, `(dim,)` and `(dim,)`, and is batched by
`gram` with `vmap`; on NumPy arrays the same code takes leading axes, in float64, for the exact posterior on the host.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import numpy as np

from bsatnp._types import Array, floating, is_traced, namespace


class AbstractKernel(eqx.Module):
    """The covariance of a process at two points. Parameters are leaves, so that a batch of kernels is one pytree.

    Sums and products of kernels are functions, `lambda p, q: one(p, q) + other(p, q)`, which `posterior` takes too.
    """

    @abc.abstractmethod
    def __call__(self, p: Array, q: Array) -> Any:
        """The covariance of the values at `p` and at `q`.

        **Shapes.** `(dim,)` and `(dim,)` to `()`; on NumPy arrays any leading axes, broadcast.
        """


class SquaredExponential(AbstractKernel):
    """σ² exp(−‖p − q‖² / 2ℓ²), the paper's kernel in the plane.

    **Units.** `lengthscale` in those of the points, `variance` in squared units of the values.

    **Invariant under.** Translations; with one lengthscale for all dimensions, rotations and reflections too.

    Args:
        lengthscale: `()`, or `(dim,)` for one scale per dimension.
        variance: `()`.

    Raises:
        ValueError: a parameter that is not positive.

    **Reference.** The paper's experimental setup, 2D GPs.
    """

    lengthscale: Any = 1.0
    variance: Any = 1.0

    def __check_init__(self):
        positive(lengthscale=self.lengthscale, variance=self.variance)

    def __call__(self, p: Array, q: Array) -> Any:
        """The covariance of the values at `p` and at `q`."""
        xp, p, q = namespace(p), floating(p), floating(q)
        u = (p - q) / parameter(self.lengthscale, p)
        return parameter(self.variance, p) * xp.exp(-(u * u).sum(-1) / 2)


class Matern(AbstractKernel):
    """The Matérn family of half-integer smoothness; `nu=0.5` is the exponential kernel.

    **Units.** As `SquaredExponential`.

    **Invariant under.** As `SquaredExponential`.

    Args:
        lengthscale: `()`, or `(dim,)` for one scale per dimension.
        variance: `()`.
        nu: smoothness; 0.5, 1.5 or 2.5.

    Raises:
        ValueError: a parameter that is not positive, another `nu`.
    """

    lengthscale: Any = 1.0
    variance: Any = 1.0
    nu: float = eqx.field(static=True, default=2.5)

    def __check_init__(self):
        positive(lengthscale=self.lengthscale, variance=self.variance)
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"`nu` must be 0.5, 1.5 or 2.5, got {self.nu}.")

    def __call__(self, p: Array, q: Array) -> Any:
        """The covariance of the values at `p` and at `q`."""
        xp, p, q = namespace(p), floating(p), floating(q)
        r = norm((p - q) / parameter(self.lengthscale, p)) * (2 * self.nu) ** 0.5
        decay = parameter(self.variance, p) * xp.exp(-r)
        if self.nu == 0.5:
            return decay
        return decay * (1 + r) if self.nu == 1.5 else decay * (1 + r + r * r / 3)


def gram(kernel: Any, p: Array, q: Array) -> Array:
    """The covariance of every pair: `(a, dim)` and `(b, dim)` to `(a, b)`, on the host for NumPy arrays."""
    if isinstance(p, np.ndarray) and isinstance(q, np.ndarray):
        return np.asarray(kernel(p[:, None, :], q[None, :, :]))
    return jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(p, q)


def parameter(value: Any, like: Any) -> Any:
    """A kernel parameter in the array module and the precision of the points."""
    return namespace(like).asarray(value, like.dtype)


def norm(u: Array) -> Any:
    """Euclidean length along the last axis, with a zero gradient at zero."""
    xp = namespace(u)
    square = (u * u).sum(-1)
    apart = square > 0
    return xp.where(apart, xp.sqrt(xp.where(apart, square, 1)), 0)


def positive(**parameters: Any) -> None:
    """Raise ValueError for a concrete parameter that is not positive everywhere."""
    for name, value in parameters.items():
        if is_known(value) and not (np.asarray(value) > 0).all():
            raise ValueError(f"`{name}` must be positive, got {value}.")


def is_known(value: Any) -> bool:
    """Whether a parameter is numbers that can be looked at."""
    return isinstance(value, float | int | list | tuple | np.generic | np.ndarray | jax.Array) and not is_traced(value)
