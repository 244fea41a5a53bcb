"""Every group of the registry is one: axioms, action, invariants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from bsatnp import groups
from bsatnp.groups import Group
from bsatnp.testing import LawError, check_group, elements, points
from tests.registry import COMBINED, GROUPS, LIGHT


@pytest.mark.parametrize("name", GROUPS)
def test_group_on_a_component(name):
    entry = GROUPS[name]
    group = entry.make()
    assert isinstance(group, Group)
    check_group(group, examples=LIGHT)
    p = jnp.zeros(entry.width) if name != "SO3 unit vectors" else jnp.eye(3)[0]
    assert group.invariants(p, p).shape == (entry.invariants,)
    assert getattr(group, "dim", None) == entry.width


@pytest.mark.parametrize("name", COMBINED)
def test_group_on_an_index_set(name):
    check_group(COMBINED[name](), examples=LIGHT)


@pytest.mark.parametrize("name", GROUPS)
def test_invariants_are_zero_where_points_coincide(name):
    group = GROUPS[name].make()

    @given(points(group, 3))
    def check(p):
        assert not np.any(np.asarray(jax.vmap(group.invariants)(p, p)))

    check()


@pytest.mark.parametrize("name", ["Translation", "Euclidean", "SO3", "Cyclic", "Scaling"])
def test_samples_are_not_the_identity(name):
    group = GROUPS[name].make()
    key = jax.random.key(3)
    moved = [
        np.abs(np.asarray(a - b)).max()
        for a, b in zip(jax.tree.leaves(group.sample(key=key)), jax.tree.leaves(group.identity()), strict=True)
    ]
    assert max(moved) > 0.1


def test_factors_of_a_product_move_apart():
    space, time = groups.Product(*(groups.On(name, groups.Translation()) for name in "st")).sample(
        key=jax.random.key(3)
    )
    assert abs(space - time) > 1e-3


@pytest.mark.parametrize("group", [groups.Translation(), groups.Euclidean(), groups.TimeShift()], ids=str)
def test_sampled_shifts_are_ten_units_long(group):
    keys = jax.random.split(jax.random.key(0), 2000)
    shifts = jax.tree.leaves(jax.vmap(lambda key: group.sample(key=key))(keys))[-1]
    assert np.std(shifts) == pytest.approx(10, rel=0.1)


def test_sampled_rotations_are_proper_and_uniform():
    group = groups.SO3()
    rotations = np.asarray(jax.vmap(lambda k: group.sample(key=k))(jax.random.split(jax.random.key(0), 2000)))
    np.testing.assert_allclose(np.linalg.det(rotations), 1, atol=1e-5)
    np.testing.assert_allclose(
        rotations @ np.swapaxes(rotations, 1, 2), np.broadcast_to(np.eye(3), (2000, 3, 3)), atol=1e-5
    )
    # the trace of a uniform rotation has mean 0, and each entry variance 1/3
    assert abs(np.trace(rotations, axis1=1, axis2=2).mean()) < 0.1
    np.testing.assert_allclose(rotations.var(0), np.full((3, 3), 1 / 3), atol=0.05)


@given(elements(groups.Euclidean(2)), points(groups.Euclidean(2), 5))
def test_strategies_are_for_tests_of_ones_own(g, x):
    group = groups.Euclidean(2)
    moved = np.asarray(group.act(g, x), np.float64)
    before = np.asarray(x, np.float64)
    gaps = [np.linalg.norm(p[:, None] - p[None], axis=-1) for p in (moved, before)]
    np.testing.assert_allclose(*gaps, atol=1e-4)


def test_a_translation_does_not_keep_angles_on_the_sphere():
    class Shifted:
        """Translations with the invariants of the sphere."""

        dim = 2

        def __init__(self):
            self.moves, self.sphere = groups.Translation(2, scale=40.0), groups.SO3()

        def sample(self, *, key):
            return self.moves.sample(key=key)

        def identity(self):
            return self.moves.identity()

        def compose(self, g, h):
            return g + h

        def inverse(self, g):
            return -g

        def act(self, g, points):
            return self.moves.act(g, points)

        def invariants(self, p, q):
            return self.sphere.invariants(p, q)

    with pytest.raises(LawError, match="act does not change invariants"):
        check_group(Shifted(), points=lambda n, *, key: 30 * jax.random.normal(key, (n, 2)))
