"""Renamings of categories."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bsatnp._types import Key, whole


class Permutation(eqx.Module):
    """Renamings of categories.

    **Shapes.** Points are category codes 0 … size − 1, `(point, 1)`, as integers or whole floats.

    **Units.** The invariant is 0 where the categories agree and 1 where they differ.

    Args:
        size: the number of categories.

    Raises:
        ValueError: from `check`, values that are not codes.
    """

    size: int = eqx.field(static=True)

    shift_invariant = False
    dim = 1

    def __check_init__(self):
        whole("size", self.size)

    def sample(self, *, key: Key) -> Int[Array, " category"]:
        """Draw a permutation, uniformly."""
        return jax.random.permutation(key, self.size)

    def identity(self) -> Int[Array, " category"]:
        """Every category keeps its name."""
        return jnp.arange(self.size)

    def compose(self, g: Int[Array, " category"], h: Int[Array, " category"]) -> Int[Array, " category"]:
        """Rename by `h`, then by `g`."""
        return g[h]

    def inverse(self, g: Int[Array, " category"]) -> Int[Array, " category"]:
        """The renaming back."""
        return jnp.argsort(g)

    def act(self, g: Int[Array, " category"], points: Any) -> Any:
        """Rename every point."""
        return g[points.astype(int)].astype(points.dtype)

    def invariants(self, p: Any, q: Any) -> Float[Array, " 1"]:
        """0 where the categories agree, 1 where they differ."""
        return (jax.lax.stop_gradient(p) != jax.lax.stop_gradient(q)).astype(jnp.result_type(float))

    def check(self, points: Any) -> None:
        """Raise ValueError for values that are not category codes."""
        values = np.asarray(points).astype(np.float64)
        bad = (values < 0) | (values >= self.size) | (values != np.round(values))
        if bad.any():
            raise ValueError(f"Points of `Permutation({self.size})` must be codes 0 … {self.size - 1}.")
