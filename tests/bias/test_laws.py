"""Every bias of the registry, with every group: shapes, tiles, invariance, gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import bias
from bsatnp.groups import SO3, Euclidean, On, Product, TimeShift, Translation
from bsatnp.testing import LawError, check_bias
from tests.registry import BIASES, GROUPS, HEAVY

#: The radial bias of the paper with every group, the others with one, a signed one where they need that.
PAIRS = [("RBFNetwork", group) for group in GROUPS] + [("MLPBias", "SO3"), ("MLPBias", "Translation")]
PAIRS += [
    (name, "TimeShift" if entry.signed else "Euclidean") for name, entry in BIASES.items() if name != "RBFNetwork"
]


@pytest.mark.parametrize(("name", "group"), PAIRS)
def test_bias(name, group):
    entry = GROUPS[group]
    check_bias(BIASES[name].make(entry.make(), entry), examples=HEAVY)


def test_bias_of_space_and_time():
    both = bias.Sum(
        bias.Weighted(bias.RBFNetwork(On("s", SO3()), heads=2, lengths=(5.0, 60.0)), heads=2),
        bias.Causal(On("t", TimeShift())),
    )
    assert len(both.groups) == 2
    check_bias(both, Product(On("s", SO3()), On("t", TimeShift())), examples=HEAVY)
    joint = bias.MLPBias(Product(On("s", Euclidean(2)), On("t", TimeShift())), dim=2, heads=2, key=jax.random.key(0))
    check_bias(joint, examples=HEAVY)


class OnPosition(bias.AbstractBias):
    """A bias of where the pair is, which starts at zero."""

    weight: jax.Array

    @property
    def groups(self):
        return (Translation(2),)

    def __call__(self, p, q):
        return self.weight * jnp.sum(p + q)


@pytest.mark.parametrize(
    ("wrong", "group"),
    [
        (lambda: OnPosition(jnp.zeros(2)), Translation(2)),
        # the paper's plane bias on the sphere
        (lambda: bias.RBFNetwork(Translation(2), heads=2, lengths=(5.0, 60.0)), SO3()),
        # signed differences under reflections and rotations
        (lambda: bias.MLPBias(Translation(2), dim=2, heads=2, key=jax.random.key(0)), Euclidean(2)),
        (lambda: bias.TISA(Translation(2), dim=2, heads=2, key=jax.random.key(0)), Euclidean(2)),
        # great circles under shifts of longitude and latitude
        (lambda: bias.RBFNetwork(SO3(), heads=2, lengths=(5.0, 60.0)), Translation(2, scale=40.0)),
    ],
)
def test_controls_that_must_fail(wrong, group):
    with pytest.raises(LawError, match=r"breaks the law 'bias\(g·p, g·q\) = bias\(p, q\)'"):
        # points of the sphere, whatever the group
        check_bias(wrong(), group, points=lambda n, *, key: 25 * jax.random.normal(key, (n, 2)), examples=HEAVY)


def test_the_plane_bias_is_right_on_the_plane():
    check_bias(bias.RBFNetwork(Translation(2), heads=2), Euclidean(2), examples=HEAVY)


class WrongTile(bias.AbstractBias):
    @property
    def groups(self):
        return (Translation(1),)

    def __call__(self, p, q):
        return p - q

    def tile(self, p, q):
        return jnp.moveaxis(q[:, None] - p[None], -1, 0)  # transposed


class WrongShape(bias.AbstractBias):
    @property
    def groups(self):
        return (Translation(1),)

    def __call__(self, p, q):
        return (p - q)[0]


class Cusp(bias.AbstractBias):
    @property
    def groups(self):
        return (Translation(1),)

    def __call__(self, p, q):
        return jnp.sqrt((p - q) ** 2)


@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        (WrongTile(), "tile gives the scores of all pairs"),
        (WrongShape(), r"floating scores \(head,\)"),
        (Cusp(), "gradients are finite"),
    ],
)
def test_laws_without_a_group(wrong, law):
    with pytest.raises(LawError, match=law):
        check_bias(wrong)


def test_hard_masks_compare_where_they_let_through():
    """Unequal infinities are a fault, equal ones are not."""
    causal = bias.Causal(TimeShift())
    check_bias(causal, TimeShift())

    class Fixed(bias.AbstractBias):
        @property
        def groups(self):
            return (TimeShift(),)

        def __call__(self, p, q):
            return jnp.where(p > 1, -jnp.inf, jnp.zeros_like(p))

    with pytest.raises(LawError, match="off by inf"):
        check_bias(Fixed())


@pytest.mark.parametrize("group", ["SO3", "SO3 unit vectors"])
def test_gradients_where_points_meet_or_face_each_other(group):
    """B1: coincident points, and antipodes of the sphere, for several biases at once."""
    entry = GROUPS[group]
    names = ["RBFNetwork", "ExponentialNetwork", "Linear", "TISA"]
    every = [BIASES[name].make(entry.make(), entry) for name in names]
    points = {
        "SO3": [[10.0, 20.0], [-170.0, -20.0], [0.0, 90.0], [40.0, -90.0]],
        "SO3 unit vectors": [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.6, 0.8]],
    }[group]
    p = jnp.asarray(points)

    @eqx.filter_jit
    @eqx.filter_grad
    def slope(arguments):
        every, p, q = arguments
        tiles = [made.tile(p, q) for made in every]
        return sum(jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x)).sum() for x in tiles)

    leaves = jax.tree.leaves(slope((every, p, p)))
    assert len(leaves) == 10
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in leaves)
