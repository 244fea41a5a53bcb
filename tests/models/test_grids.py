"""Grids of a ConvCNP: which points they have, what lies inside, and how networks on finer ones start."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.layers import Grid, SetConvolution, grid_between
from bsatnp.models import ConvCNP
from bsatnp.tasks import Points
from tests.largest import largest
from tests.models.convcnp_oracle import PLANE, draw, small
from tests.registry import arrays, close

ONE = eqx.filter_jit(lambda model, ctx, tgt: model(ctx, tgt))


def test_bounds_on_the_lattice_are_the_ends():
    """However the places are rounded: not a cell more, not one less."""
    for width in (0.1, 0.3, 1 / 7):
        grid = Grid((-0.7,), (width,), (25,))
        for i, j in itertools.combinations(range(25), 2):
            lower, upper = (-0.7 + width * k for k in (i, j))
            found = grid.covering((lower,), (upper,))
            assert found.size == (j - i + 1,), (width, i, j)
            assert found.lower[0] == pytest.approx(lower)


def test_a_larger_grid_follows_where_the_smaller_does():
    for grid in (PLANE, PLANE.following()):
        assert grid.covering((-9.0, -9.0), (9.0, 9.0)).follows == grid.follows


def test_points_per_unit_are_counted_whatever_the_rounding():
    """Lengths such as 0.29, of which a hundredth is not a whole number of times in floats."""
    for n in range(2, 200):
        assert grid_between((0.0,), (n / 100,), points_per_unit=100).size == (n,)


@pytest.mark.parametrize("spacing", [(0.25,), (0.5, 0.3)])
def test_density_is_the_sum_of_the_weights(spacing):
    weights = [np.exp(-((width * np.arange(-200, 201)) ** 2) / (2 * 0.7**2)).sum() for width in spacing]
    grid = Grid((0.0,) * len(spacing), spacing, (3,) * len(spacing))
    assert grid.density(0.7) == pytest.approx(math.prod(weights), rel=1e-6)
    assert Grid((0.0,), (5.0,), (3,)).density(0.7) == 1  # the point itself, and no other near


def test_the_density_of_a_fine_grid_does_not_drown_the_network_at_the_start():
    """It is a hundred where all other channels are near one; what is read of it alone has the size of one of them."""
    grid = grid_between((-4.0, -4.0), (4.0, 4.0), points_per_unit=4)
    assert grid.density(1.0) > 90
    model = ConvCNP(grid=grid, depth=1, dim=64, kernel=3, hidden=(2,), length=1.0, key=jax.random.key(0))
    found = model.decoder.from_grid(grid.axes(), jnp.zeros((*grid.size, 64)), jnp.zeros((1, 2)))
    size = float(jnp.sqrt(jnp.square(found).mean())) * math.sqrt(64 + 1)
    assert 0.6 < size < 1.5


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_the_edge_of_a_grid_is_inside(kind):
    """Its corners in float32 lie beyond it by a rounding."""
    grid = grid_between((-0.1, 0.3), (0.3, 0.7), points_per_unit=20)
    corners, f = np.array([[-0.1, 0.3], [0.3, 0.7]]), np.zeros((2, 1))
    beyond = corners + np.array([[0, 0], [0, grid.spacing[1] / 5]])
    for model in (small(grid), small(grid.following())):
        model.check_task(Points({"s": corners.astype(kind)}, f), Points({"s": corners.astype(kind)}))
        with pytest.raises(ValueError, match="Component 's' must lie within"):
            model.check_task(Points({"s": corners.astype(kind)}, f), Points({"s": beyond.astype(kind)}))


def eighths(leaf):
    return jnp.round(leaf * 8) / 8 if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def first(points):
    return jax.tree.map(lambda leaf: eighths(leaf[0]), points)


def test_a_grid_that_follows_lies_about_the_middle_of_the_box():
    """As a fixed one that was put there. Hidden points do not count, and the mean is elsewhere."""
    model, (ctx, tgt) = small(), (first(points) for points in draw())
    s = np.asarray(ctx.index["s"], np.float64)[np.asarray(ctx.mask)]
    middle = (s.min(0) + s.max(0)) / 2
    there = Grid(tuple(map(float, middle - np.asarray(PLANE.extent) / 2)), PLANE.spacing, PLANE.size)
    expected = ONE(model.with_grid(there), ctx, tgt)
    assert close(ONE(model.with_grid(PLANE.following()), ctx, tgt), expected, atol=2e-5)
    assert not close(ONE(model, ctx, tgt), expected, atol=1e-3)


def test_parameters_of_half_precision_do_not_round_the_places():
    """On the device near 1024, where bfloat16 has steps of 8: the points are those near zero to the last bit."""
    model = small(PLANE.following())
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf, model)
    near = [first(points) for points in draw()]
    far = [eqx.tree_at(lambda p: p.index["s"], points, points.index["s"] + 1024) for points in near]
    assert close(ONE(half, *far), ONE(half, *near), atol=0)
    assert min(np.ptp(leaf) for leaf in arrays(ONE(half, *near))) > 0


def test_memory_of_reading_a_grid_does_not_grow_with_its_channels():
    """Beside what goes in and comes out; in the gradient too."""
    axes = [np.linspace(-2, 2, 20)] * 2

    def held(channels):
        layer = SetConvolution(channels, 1, length=1.0, key=jax.random.key(0))
        slope = jax.grad(lambda values, points: layer.from_grid(axes, values, points).sum(), (0, 1))
        return largest(jax.make_jaxpr(slope)(jnp.ones((20, 20, channels)), jnp.ones((200, 2))))

    assert held(64) == held(32) >= 200 * 20
