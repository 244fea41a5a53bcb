"""Products of matrices ask for full precision, which not every device gives by itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bias_cases import CASES, points
from dense_oracle import ENTRIES, draw

from bsatnp.groups import SO3, Euclidean
from bsatnp.layers import AdditiveScore, SetConvolution
from tests.largest import equations

FULL = (jax.lax.Precision.HIGHEST,) * 2


def precisions(function, *args):
    """Of all products of matrices in a function."""
    steps = equations(jax.make_jaxpr(function)(*args))
    return [step.params["precision"] for step in steps if step.primitive.name == "dot_general"]


@pytest.mark.parametrize("entry", ENTRIES)
def test_attention_and_its_gradient(entry):
    *three, _ = draw(0, 5, 7)
    arrays, static = eqx.partition(AdditiveScore(CASES["rbf"].bias()), eqx.is_array)

    def loss(learned, three, p, x):
        score = eqx.combine(learned, static)
        return jnp.sum(ENTRIES[entry](*three, score=score, q_index=p, k_index=x) ** 2)

    forward = precisions(loss, arrays, three, *points(0, 5, 7))
    both = precisions(jax.grad(loss, range(4)), arrays, three, *points(0, 5, 7))
    assert len(forward) >= 2 and len(both) >= len(forward) + 5, "by q, k, v, rates, and scores"
    assert {*forward, *both} == {FULL}


@pytest.mark.parametrize("group", [Euclidean(3), SO3(), SO3(3)], ids=str)
def test_motions(group):
    g, places = group.sample(key=jax.random.key(0)), jnp.ones((4, group.dim))
    both = lambda g, places: (group.act(g, places), group.compose(g, group.inverse(g)))  # noqa: E731
    found = precisions(both, g, places)
    assert found and {*found} == {FULL}


@pytest.mark.parametrize("dim", [2, 3])
def test_set_convolutions(dim):
    """All but the learned layer that mixes the channels, which is as precise as other linear layers are."""
    layer = SetConvolution(2, 5, length=1.0, key=jax.random.key(0))
    axes, points = [np.arange(4.0)] * dim, jnp.ones((7, dim))
    onto = precisions(lambda values: layer.to_grid(axes, points, values, jnp.ones(7)), jnp.ones((7, 2)))
    back = precisions(lambda values: layer.from_grid(axes, values, points), jnp.ones((4,) * dim + (2,)))
    for found in (onto, back):
        assert found.count(FULL) == len(found) - 1 >= 1
