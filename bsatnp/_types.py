"""Array aliases and the vocabulary of dimension names.

Shapes are written in words: `ctx` and `tgt` are numbers of context and target points, `q` and `k` of queries and keys,
`point` either of them; `dim` is the width of a component, `out` of the observed values; `head`, `basis`, `batch` say
what they say.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.core import Tracer

#: A device array, or a host array that becomes one.
Array: TypeAlias = jax.Array | np.ndarray

#: A set of points: each named component is `(point, dim)`. The paper writes d = (x, s, t).
Index: TypeAlias = Mapping[str, Any]

#: A typed or legacy PRNG key.
Key: TypeAlias = jax.Array


def is_traced(tree: Any) -> bool:
    """Say whether any leaf of `tree` is an abstract value, whose content cannot be looked at."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))
