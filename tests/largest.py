"""How large the arrays of a traced program are."""

import math
from typing import Any

import jax


def largest(jaxpr: Any) -> int:
    """Numbers in the largest array that a traced program makes, at any depth."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    found = 0
    for equation in jaxpr.eqns:
        found = max([found, *(math.prod(getattr(v.aval, "shape", ())) for v in equation.outvars)])
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_program):
            if _program(value):
                found = max(found, largest(value))
    return found


def _program(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")
