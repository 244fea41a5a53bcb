"""Compiled memory grows with the lengths, not with their product, and a short problem takes one tile."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from bias_cases import CASES

from bsatnp.attention import dense_attention, scan_attention
from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.layers import AdditiveScore

HEADS, DIM = 2, 8


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Memory is that of optimised code."""


def problem(n, batch=None):
    lead = () if batch is None else (batch,)
    spec = lambda *shape: jax.ShapeDtypeStruct(lead + shape, jnp.zeros(()).dtype)  # noqa: E731
    return spec(HEADS, n, DIM), spec(HEADS, n, DIM), spec(HEADS, n, DIM), {"s": spec(n, 2)}, {"s": spec(n, 2)}


def gradient(attention, batch=None):
    arrays, static = eqx.partition(AdditiveScore(CASES["rbf"].bias()), eqx.is_array)

    def loss(arrays, q, k, v, p, x):
        return jnp.sum(attention(q, k, v, score=eqx.combine(arrays, static), q_index=p, k_index=x) ** 2)

    def total(*a):
        return loss(*a) if batch is None else jnp.sum(jax.vmap(loss, (None, 0, 0, 0, 0, 0))(*a))

    return jax.jit(jax.grad(total, range(6))), arrays


def temporary(n, batch=None, attention=scan_attention):
    function, arrays = gradient(attention, batch)
    analysis = function.lower(arrays, *problem(n, batch)).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


@pytest.mark.parametrize("batch", [None, 4])
def test_a10_memory_of_the_gradient_grows_linearly(batch):
    sizes = [1024, 2048, 4096, 8192] if batch is None else [1024, 8192]
    taken = [temporary(n, batch) for n in sizes]
    each = jnp.zeros(()).dtype.itemsize
    for (n, a), (m, b) in zip(zip(sizes, taken, strict=True), list(zip(sizes, taken, strict=True))[1:], strict=False):
        assert b / a < 2.3 ** jnp.log2(m / n), (sizes, taken)
    assert taken[-1] < 0.1 * (batch or 1) * HEADS * each * sizes[-1] ** 2, (sizes, taken)


def test_a10_the_gradient_at_the_lengths_of_the_benchmark():
    """4 heads of 32 and 8192 points in float32: the inputs and their gradients alone are 24 MiB."""
    spec = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    score = jax.tree.map(lambda x: x.astype(jnp.float32), AdditiveScore(RBFNetwork(On("s", Translation(2)))))

    def loss(score, q, k, v, p):
        return jnp.sum(scan_attention(q, k, v, score=score, q_index={"s": p}, k_index={"s": p}))

    rows = spec(4, 8192, 32)
    analysis = (
        jax.jit(jax.grad(loss, range(4))).lower(score, rows, rows, rows, spec(8192, 2)).compile().memory_analysis()
    )
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 30 * 2**20


def test_a10_the_measure_sees_a_whole_matrix():
    """The negative control: dense attention holds it."""
    each = jnp.zeros(()).dtype.itemsize
    assert temporary(2048, attention=dense_attention) > HEADS * each * 2048**2


def loops(jaxpr) -> int:
    """How many loops a program holds, at any depth."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name in ("scan", "while")
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda z: hasattr(z, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                count += loops(inner)
    return count


@pytest.mark.parametrize("n", [128, 4096])
def test_a23_a_short_problem_takes_one_tile(n):
    function, arrays = gradient(scan_attention)
    found = loops(jax.make_jaxpr(function)(arrays, *problem(n)).jaxpr)
    of_the_bias = 1  # over its bases, in its derivative
    assert found == of_the_bias if n == 128 else found > of_the_bias
