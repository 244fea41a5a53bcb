"""Theorem 2: a model whose biases and embeddings are invariant is invariant, with any parameters.

Every parameter is moved at random before a model is looked at.
"""

import jax
import jax.numpy as jnp
import pytest

from bsatnp import bias
from bsatnp.groups import SO3, Euclidean, On, Product, Scaling, TimeShift, Translation
from bsatnp.layers import Identity
from bsatnp.testing import LawError, check_model
from tests.registry import GROUPS, HEAVY, MODELS, bsatnp, every_group, space_and_time


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_on_its_component(name):
    """The components of the other groups stay where they are, and so does one that is embedded."""
    check_model(every_group(), On(name, GROUPS[name].make()), sets=False, examples=HEAVY)


def test_all_groups_at_once():
    product = Product(*(On(name, entry.make()) for name, entry in GROUPS.items()))
    check_model(every_group(), product, sets=False, examples=HEAVY)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_registry(name):
    make, group = MODELS[name]
    check_model(make(), group(), examples=HEAVY)


def test_a_bias_of_a_product():
    """One network of both invariants, and a hard mask."""
    both = Product(On("s", Euclidean(2)), On("t", TimeShift()))
    joint = bias.MLPBias(both, dim=2, heads=2, width=8, key=jax.random.key(0))
    causal = bias.Causal(On("t", TimeShift()))
    check_model(bsatnp(bias.Sum(joint, causal)), both, sets=False, examples=HEAVY)


class OnPosition(bias.AbstractBias):
    """A bias of where the pair is; it starts at zero."""

    weight: jax.Array

    @property
    def groups(self):
        return (On("s", Translation(2)),)

    def __call__(self, p, q):
        return self.weight * jnp.sum(p["s"] * q["s"]) / 100


def rbf(group):
    return bias.RBFNetwork(On("s", group), heads=2, basis=3, lengths=(5.0, 60.0))


def far(n, *, key):
    """Points of the sphere, most of them in its middle latitudes."""
    return 25 * jax.random.normal(key, (n, 2))


CONTROLS = {
    "bias on absolute position": (lambda: bsatnp(OnPosition(jnp.zeros(2))), On("s", Translation(2))),
    "embedded location": (lambda: bsatnp(rbf(Translation(2)), embed={"s": Identity(2)}), On("s", Translation(2))),
    "plane bias on the sphere": (every_group, On("Translation", SO3())),
    "geodesic bias under shifts": (every_group, On("SO3", Translation(2, scale=40.0))),
    "signed bias under reflections": (every_group, On("TimeShift", Euclidean(1))),
    "phases under changes of unit": (every_group, On("Cyclic", Scaling(1))),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_that_must_fail(name, monkeypatch):
    monkeypatch.setattr("bsatnp.testing.search._TRIES", 0)  # the simplest case is not what is looked for here
    make, group = CONTROLS[name]
    # points of the sphere, most of them in its middle latitudes, where there are two coordinates
    points = {group.component: far} if group.group.dim == 2 else None
    with pytest.raises(LawError, match=r"breaks the law 'model\(g·ctx, g·tgt\) = model\(ctx, tgt\)'") as found:
        check_model(make(), group, sets=False, points=points)
    assert found.value.deviation > 2 * found.value.allowed


def test_what_may_be_centred_is_what_is_invariant_under_shifts():
    assert every_group().shift_invariant == {"Translation", "TimeShift", "Euclidean", "Euclidean 3", "Cyclic"}
    assert space_and_time().shift_invariant == {"t"}
    make, _ = CONTROLS["embedded location"]
    assert make().shift_invariant == frozenset()
