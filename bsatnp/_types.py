"""Array aliases and the vocabulary of dimension names.

Shapes are written in words: `ctx` and `tgt` are numbers of context and target points, `q` and `k` of queries and keys,
`point` either of them; `dim` is the width of a component, `out` of the observed values; `head`, `basis`, `batch` say
what they say.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

#: A device array, or a host array that becomes one.
Array: TypeAlias = jax.Array | np.ndarray

#: A set of points: each named component is `(point, dim)`. The paper writes d = (x, s, t).
Index: TypeAlias = Mapping[str, Any]

#: A typed or legacy PRNG key.
Key: TypeAlias = jax.Array


def has_x64() -> bool:
    """Whether devices hold numbers of 64 bits."""
    return bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]


def whole(name: str, value: int, least: int = 1) -> int:
    """Return `value`.

    Raises:
        ValueError: it is not a whole number (neither a boolean nor 2.0 is one), or smaller than `least`.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool | np.timedelta64):
        raise ValueError(f"`{name}` must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}.")
    return int(value)


def whole_range(name: str, ends: Sequence[int], most: int | None = None) -> None:
    """Refuse what is no range of counts.

    Raises:
        ValueError: unless `ends` are whole numbers (low, high) with 0 <= low < high, and `high` is not above `most`.
    """
    if len(ends) != 2:
        raise ValueError(f"`{name}` must be (low, high), got {ends}.")
    for number in ends:
        whole(name, number, 0)
    if not (ends[0] < ends[1] and (most is None or ends[1] <= most)):
        end = "" if most is None else f" <= {most}"
        raise ValueError(f"`{name}` must be (low, high) with 0 <= low < high{end}, got {tuple(ends)}.")


def real(name: str, value: Any, low: float = 0.0, high: float = np.inf, *, ends: bool = False) -> float:
    """Return `value` as a float.

    Raises:
        ValueError: it is not a number (a boolean or a span of time is none), or not between `low` and `high`; whether
            these may be reached is what `ends` says.
    """
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool | np.timedelta64):
        raise ValueError(f"`{name}` must be a number, got {value!r}.")
    if not np.isfinite(value) or not (low <= value <= high if ends else low < value < high):
        must = f"lie {'' if ends else 'strictly '}between {low:g} and {high:g}"
        if not np.isfinite(low):
            must = "be finite"
        elif not np.isfinite(high):
            must = (
                f"be at least {low:g} and finite" if ends else f"be above {low:g} and finite" if low else "be positive"
            )
        raise ValueError(f"`{name}` must {must}, got {value}.")
    return float(value)


def typed(key: Any) -> Key:
    """Return `key`.

    Raises:
        ValueError: it is not one typed key.
    """
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.ndim:
        got = f"an array of {key.dtype} {key.shape}" if hasattr(key, "dtype") else repr(key)
        raise ValueError(f"`key` must be one typed key, as `jax.random.key(0)` gives, got {got}.")
    return key


def namespace(array: Any) -> Any:
    """NumPy for host arrays, `jax.numpy` for all others."""
    return np if isinstance(array, np.ndarray | np.generic) else jnp


def floating(x: Any) -> Any:
    """Whole numbers and booleans as floats; floats of any width, and spans of time, as they are."""
    return x.astype(float) if x.dtype.kind in "biu" else x


def widened(kind: Any) -> Any:
    """The type that sums are held in: float64 for float64, float32 for anything narrower."""
    return jnp.dtype(jnp.float64 if kind == jnp.float64 else jnp.float32)


def wide(x: jax.Array) -> jax.Array:
    """Numbers of any kind as floats, in float32 or wider."""
    return x.astype(widened(x.dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else float)


def device_integers(x: np.ndarray) -> np.ndarray:
    """Host integers as a device counts, in 32 bits, or 64 with x64; as float64 where that would wrap around."""
    kind = np.int64 if has_x64() else np.int32
    fits = np.abs(x, dtype=np.float64).max(initial=0) < -float(np.iinfo(kind).min)
    return x.astype(kind if fits else np.float64)


def is_traced(tree: Any) -> bool:
    """Say whether any leaf of `tree` is an abstract value, whose content cannot be looked at."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))
