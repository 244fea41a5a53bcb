"""The ConvCNP: against NumPy in float64, on any number of axes, with any likelihood, under shifts of its grid."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.layers import Grid, Identity, SetConvolution, grid_between
from bsatnp.layers.convolution import by_fourier, by_windows
from bsatnp.models import ConvCNP
from bsatnp.models.base import count_parameters
from bsatnp.tasks import Points
from tests.models.convcnp_oracle import PLANE, covariates, draw, oracle, small
from tests.registry import arrays, close, predict

BATCHED = eqx.filter_jit(lambda model, ctx, tgt: jax.vmap(model)(ctx, tgt))
ONE = eqx.filter_jit(lambda model, ctx, tgt: model(ctx, tgt))
TOLERANCE = {False: 2e-5, True: 1e-12}


@pytest.fixture(scope="module")
def model():
    return small()


def first(points):
    return jax.tree.map(lambda leaf: leaf[0], points)


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (small, {}),
        (covariates, {"out": 2, "x": 2}),
        (lambda: small(Grid((-3.0,), (0.5,), (13,))), {"dim": 1}),
        (lambda: small(Grid((-3.0, -3.0, -2.5), (1.5, 2.0, 1.0), (5, 4, 6))), {"dim": 3}),
    ],
    ids=["plane", "outputs and a covariate", "line", "space"],
)
def test_equals_the_formulas_in_float64(make, data, x64):
    model, (ctx, tgt) = make(), draw(**data)
    raw, _ = oracle(model, ctx, tgt, learns=False)
    expected = model.head(jnp.asarray(raw, float))
    assert close(BATCHED(model, ctx, tgt), expected, atol=TOLERANCE[x64])
    assert np.ptp(np.asarray(expected.mean), axis=(0, 1)).min() > 1e-2


@pytest.mark.parametrize("kind", [jnp.float16, jnp.bfloat16])
def test_coordinates_of_half_precision_compute_in_float32(model, kind):
    ctx, tgt = (first(points) for points in draw())
    half, whole = (
        [
            eqx.tree_at(lambda p: p.index["s"], points, points.index["s"].astype(kind).astype(to))
            for points in (ctx, tgt)
        ]
        for to in (kind, jnp.float32)
    )
    assert close(ONE(model, *half), ONE(model, *whole), atol=1e-6)


def test_a_set_convolution_does_not_round_the_grid_to_the_type_of_the_points():
    layer = SetConvolution(1, 2, length=0.7, key=jax.random.key(0))
    axes = [100 + np.arange(9) / 4]
    points = jnp.asarray([[100], [101], [102]], jnp.bfloat16)
    expected, found = (layer.from_grid(axes, jnp.ones((9, 1)), p) for p in (points.astype(float), points))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_embeddings_are_channels_in_an_order_of_their_own():
    """JAX sorts the keys of dictionaries whenever it takes a model apart."""
    model = small(embed={"z": Identity(1), "a": Identity(1)})
    rng = np.random.default_rng(0)
    ctx, tgt = (
        Points({"s": rng.uniform(-1, 1, (5, 2)), "z": rng.normal(size=(5, 1)), "a": rng.normal(size=(5, 1))}, f)
        for f in (rng.normal(size=(5, 1)), None)
    )
    assert close(model(ctx, tgt), predict(model, ctx, tgt), atol=1e-5)


def test_the_papers_sizes():
    model = eqx.filter_eval_shape(lambda key: ConvCNP(key=key), jax.random.key(0))
    running = sum(leaf.size for leaf in jax.tree.leaves([norm.running for norm in model.blocks.norms]))
    assert running == 8 * 2 * 2 * 128
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) - running == 503_173
    assert model.grid.size == (80, 80) and model.grid.centre.tolist() == [0, 0]
    np.testing.assert_allclose(model.grid.centre[0] + model.grid.axes()[0], np.linspace(-2.5, 2.5, 80), atol=1e-12)


@pytest.mark.parametrize(("shape", "kernel"), [((7,), (3,)), ((6, 11), (5, 3)), ((4, 3, 5), (3, 7, 1))])
def test_both_ways_to_convolve_agree(shape, kernel, x64):
    """The kernel may reach over the whole grid; gradients too."""
    rng = np.random.default_rng(0)
    x, weight, back = (jnp.asarray(rng.normal(size=(*size, 3)), float) for size in (shape, kernel, shape))

    @jax.jit
    def both(x, weight):
        results = []
        for convolve in (by_windows, by_fourier):
            y, pull = jax.vjp(convolve, x, weight)
            results.append((y, *pull(back)))
        return results

    windows, fourier = both(x, weight)
    for a, b in zip(windows, fourier, strict=True):
        np.testing.assert_allclose(a, b, atol=2 * TOLERANCE[x64])
    assert float(jnp.abs(windows[0]).max()) > 1


@pytest.mark.parametrize("follows", [False, True])
def test_no_context_gives_a_prior_and_finite_gradients(model, follows):
    model = model.with_grid(model.grid.following()) if follows else model
    ctx, tgt = (first(points) for points in draw())
    ctx = eqx.tree_at(lambda p: (p.mask, p.observed), ctx, (ctx.mask & False, ctx.observed & False))

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(arguments, f):
        model, ctx, tgt = arguments
        return model(ctx, tgt).log_prob(f).sum()

    value, gradient = loss((model, ctx, tgt), tgt.f)
    assert np.isfinite(value) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    prior = np.asarray(ONE(model, ctx, tgt).mean)
    # where the grid lies around every target, all of them are alike
    assert (np.ptp(prior) == 0) == follows


def test_the_grid_is_all_that_is_kept_of_a_context(model):
    sizes = set()
    for n in (6, 12):
        ctx, _ = (first(points) for points in draw(n_ctx=n))
        kept = jax.eval_shape(lambda ctx: model.condition(ctx), ctx)
        sizes.add((kept.values.shape, kept.middle.shape, kept.empty.shape))
    assert sizes == {((7, 7, 4), (2,), ())}


def shifted(points, by):
    s = points.index["s"]
    return eqx.tree_at(lambda p: p.index["s"], points, s + jnp.asarray(by, s.dtype)[None])


def test_whole_cells_move_with_the_grid(model):
    """Cells of 1 move without rounding: not a bit changes."""
    ctx, tgt = (jax.tree.map(lambda leaf: _eighths(leaf), first(points)) for points in draw())
    assert model.grid.spacing == (1.0, 1.0)
    moved = model.with_grid(model.grid.covering((-1.0, -8.0), (5.0, -2.0)))
    assert moved.grid.size == model.grid.size
    there = ONE(moved, shifted(ctx, (2.0, -5.0)), shifted(tgt, (2.0, -5.0)))
    assert close(there, ONE(model, ctx, tgt), atol=0)


def _eighths(leaf):
    return jnp.round(leaf * 8) / 8 if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


@pytest.fixture(scope="module")
def fine():
    """A grid with room around the points, fine beside the lengths of its set convolutions: five cells each."""
    return small(grid_between((-6.0, -6.0), (6.0, 6.0), points_per_unit=61 / 12))


def deviation(model, by):
    ctx, tgt = (first(points) for points in draw(reach=1.5))
    before, after = ONE(model, ctx, tgt), ONE(model, shifted(ctx, by), shifted(tgt, by))
    return max(np.abs(a - b).max() for a, b in zip(arrays(before), arrays(after), strict=True))


def test_a_grid_that_follows_is_exact_under_any_shift(model, fine, x64):
    """Also far away, where a fixed grid is not; a coarse grid is no worse."""
    for one in (model, fine):
        following = one.with_grid(one.grid.following())
        assert following.shift_invariant == {"s"} and one.shift_invariant == frozenset()
        for by in ((0.03, -0.07), (40.0, 300.0)):
            assert deviation(following, by) < (1e-9 if x64 else 2e-3 if by[0] > 1 else 2e-5)
    assert deviation(fine, (40.0, 300.0)) > 0.05


def test_a_fixed_grid_is_exact_to_within_its_cells(model, fine):
    """Half a cell is the worst shift. With five cells to a length nothing is left of it; with one, half of the signal.

    As long as the grid's edges stay out of reach.
    """
    spread = np.ptp(np.asarray(ONE(fine, *(first(points) for points in draw(reach=1.5))).mean))
    coarse, finer = (deviation(one, (one.grid.spacing[0] / 2,) * 2) for one in (model, fine))
    assert finer < 1e-3 * spread < 0.1 * spread < coarse
    assert deviation(fine, (fine.grid.spacing[0],) * 2) < 1e-3 * spread  # the edges have moved by a cell


def test_a_larger_grid_has_the_points_of_the_smaller(model):
    grid = grid_between((-2.5, -2.5), (2.5, 2.5), points_per_unit=16)
    larger = grid.covering((-4.9, -2.5), (4.9, 2.5))
    assert larger.spacing == grid.spacing and larger.size[1] == 80 and larger.follows == grid.follows
    inner, outer = (one.centre[0] + one.axes()[0] for one in (grid, larger))
    assert outer[0] <= -4.9 < outer[1] and outer[-2] < 4.9 <= outer[-1]
    start = np.argmin(np.abs(outer - inner[0]))
    np.testing.assert_allclose(outer[start : start + 80], inner, atol=1e-12)
    assert count_parameters(model.with_grid(PLANE.covering((-9.0, -9.0), (9.0, 9.0)))) == count_parameters(model)


HERE, FAR = np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([[0.0, 0.0], [1.0, 3.5]])
F = np.zeros((2, 1))


def test_points_beyond_the_grid_are_refused(model):
    says = r"Component 's' must lie within \[3.0, 3.0\] of the middle \[0.0, 0.0\] of the grid, got .*3.5\] away"
    for ctx, tgt in ((FAR, HERE), (HERE, FAR)):
        with pytest.raises(ValueError, match=says):
            model(Points({"s": ctx}, F), Points({"s": tgt}))
    hidden = np.array([True, False])
    model.check(Points({"s": FAR}, F, mask=hidden))
    model.with_grid(PLANE.covering((-4.0, -4.0), (4.0, 4.0))).check(Points({"s": FAR}, F))
    following = model.with_grid(PLANE.following())
    following.check_task(Points({"s": FAR + 1e3}, F), Points({"s": HERE + 1e3}))
    with pytest.raises(ValueError, match=r"within \[3.0, 3.0\] of the middle \[0.5, 1.75\] of the grid"):
        following.check_task(Points({"s": FAR}, F), Points({"s": HERE + 4}))
    with pytest.raises(ValueError, match=r"of the middle \[0.5, 5.0\]"):
        following.check(Points({"s": np.array([[0.0, 0.0], [1.0, 10.0]])}))
    following.check_task(Points({"s": FAR}, F, mask=hidden & False), Points({"s": HERE + 4}))


def test_dates_on_a_line():
    model = small(Grid((-4.0,), (86400.0 / 4,), (9,), True), component="t", length=1e4, moved=False)
    days = np.datetime64("2020-02-27", "h") + np.arange(4)[:, None] * np.timedelta64(8, "h")
    later = days + np.timedelta64(1000, "D")
    f = np.arange(4.0)[:, None]
    there, here = (predict(model, Points({"t": t}, f), Points({"t": t[1:3]})) for t in (later, days))
    assert close(there, here, atol=0)
    with pytest.raises(ValueError, match="Component 't' must lie within"):
        model.check(Points({"t": days + np.arange(4)[:, None] * np.timedelta64(30, "D")}))
    for unit in ("M8[M]", "M8[Y]"):
        model.check(Points({"t": np.array([["2020"], ["2020"]], unit)}))
        with pytest.raises(ValueError, match="Component 't' must lie within"):
            model.check(Points({"t": np.array([["2020"], ["2021"]], unit)}))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: small(depth=0), "`depth` must be at least 1, got 0"),
        (lambda: small(kernel=4), r"`kernel` must be odd widths of at least 1, got \(4, 4\)"),
        (lambda: small(length=0.0), "`length` must be positive, got 0.0"),
        (lambda: small(momentum=1.0), "`momentum` must be at least 0 and below 1, got 1.0"),
        (lambda: small().with_grid(Grid((0.0,), (1.0,), (3,))), "`grid` must have the spacing"),
        (lambda: small().with_grid(Grid((0.0, 0.0), (1.0, 1.001), (3, 3))), "`grid` must have the spacing"),
        (lambda: Grid((0.0,), (1.0, 1.0), (3,)), "must have one number for each axis, got 1, 2 and 1"),
        (lambda: Grid((0.0,), (0.0,), (3,)), r"`spacing` must be positive, got 0.0"),
        (lambda: Grid((np.nan,), (1.0,), (2,)), "`lower` must be finite, got nan"),
        (lambda: grid_between((0.0,), (1.0,), points_per_unit=np.inf), "`points_per_unit` must be positive, got inf"),
        (lambda: Identity(0), "`n_in` must be at least 1, got 0"),
        (lambda: Grid((0.0,), (1.0,), (0,)), r"`size` must be at least 1, got 0"),
        (lambda: grid_between((0.0,), (1.0,), points_per_unit=1), "must give at least 2 points"),
        (lambda: PLANE.covering((0.0,), (1.0,)), "`lower` and `upper` must have 2 numbers, got 1 and 1"),
        (lambda: PLANE.covering((0.0, 2.0), (1.0, 1.0)), "`upper` must lie above `lower`"),
        (lambda: covariates().check(Points({"s": HERE})), r"must have components \['s', 'x'\]"),
        (lambda: covariates().learn(*draw(out=2)), r"must have components \['s', 'x'\]"),
    ],
)
def test_what_does_not_fit_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
