"""What a traced program does, and how large its arrays are."""

import math
from collections.abc import Iterator
from typing import Any

import jax


def equations(jaxpr: Any) -> Iterator[Any]:
    """The steps of a traced program, at any depth."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_program):
            if _program(value):
                yield from equations(value)


def largest(jaxpr: Any) -> int:
    """Numbers in the largest array that a traced program makes, at any depth."""
    made = (variable.aval for equation in equations(jaxpr) for variable in equation.outvars)
    return max((math.prod(getattr(aval, "shape", ())) for aval in made), default=0)


def _program(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")
