"""What is held out, and what the tasks of a data set may see."""

import jax
import numpy as np
import pytest

from bsatnp import frames
from bsatnp.frames.drawing import Rows, Stream, blocks, same
from bsatnp.frames.fitted import positions
from bsatnp.frames.plans import ahead, everywhere
from bsatnp.frames.simulated import Simulated
from bsatnp.groups import Euclidean
from bsatnp.tasks import Points

RNG = np.random.default_rng(0)


def rows(n=400, *, time=None, holes=0):
    """Points that carry their own number, so that tasks can be traced back."""
    s = np.random.default_rng(1).normal(size=(n, 2))
    f = np.arange(float(n))[:, None].repeat(2, 1)
    f[:holes, 1] = np.nan
    index = {"s": s} if time is None else {"s": s, "t": time[:, None]}
    return Rows(Points(index, f), s, time)


def numbers(points):
    return np.asarray(points.f)[np.asarray(points.mask), 0].astype(int)


def test_random_splits_are_disjoint_and_validation_asks_for_what_was_held_out():
    data, splits = rows(100, holes=20), frames.Random(60, 16)
    held = splits.hold_out(data, 0.2, np.random.default_rng(0))
    assert held.sum() == 20
    stream = Stream(splits, data, ~held, 4)
    batch = stream(3, key=jax.random.key(0))
    assert batch.ctx.mask.shape == (4, 60) and batch.tgt.mask.shape == (4, 16)
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in range(4)]
    for task in each:
        ctx, tgt = numbers(task.ctx), numbers(task.tgt)
        assert not set(ctx) & set(tgt) and not held[ctx].any() and not held[tgt].any()
        assert (ctx >= 20).all() and len(set(ctx)) == len(ctx)  # rows with a missing value are no context
    again = stream(3, key=jax.random.key(0))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), batch, again))
    assert (numbers(jax.tree.map(lambda x: x[0], stream(3, key=jax.random.key(1))).tgt) != numbers(each[0].tgt)).any()
    for task in splits.validation(data, held, np.random.default_rng(0), 5):
        assert held[numbers(task.tgt)].all() and not held[numbers(task.ctx)].any()


def test_windows_hold_out_blocks_and_stay_inside_them():
    data, splits = rows(3000), frames.Windows(20, 10, spread=4.0)
    held = splits.hold_out(data, 0.2, np.random.default_rng(0))
    assert 0.1 < held.mean() < 0.3
    number = blocks(data.positions, max(60, 3000 // 64))
    assert all(len(set(held[number == b])) == 1 for b in range(number.max() + 1))
    wide = []
    for _ in range(30):
        ctx, tgt = splits.draw(data, held, RNG)
        assert held[ctx].all() and held[tgt].all() and not set(ctx) & set(tgt)
        ctx, tgt = splits.draw(data, ~held, RNG)
        wide.append(np.ptp(data.positions[np.concatenate([ctx, tgt])], axis=0).max())
    assert max(wide) < 0.5 * np.ptp(data.positions, axis=0).max() and max(wide) > 1.3 * min(wide)


def test_blocks_are_boxes_of_limited_size():
    points = RNG.normal(size=(1000, 3))
    number = blocks(points, 40)
    counts = np.bincount(number)
    assert counts.max() <= 40 and counts.min() > 15
    assert blocks(np.zeros((50, 2)), 10).max() == 0  # points that coincide cannot be told apart


def test_forecasts_never_see_their_own_time():
    time = np.repeat(np.arange(50.0), 8)
    data, splits = rows(400, time=time), frames.Forecasts(30, 12, history=5.0, horizon=2.0)
    held = splits.hold_out(data, 0.2, RNG)
    assert (held == (time >= 40)).all()
    for allowed in (held, ~held):
        for _ in range(40):
            ctx, tgt = splits.draw(data, allowed, RNG)
            assert time[ctx].max() < time[tgt].min() and len(tgt) and allowed[tgt].all()
            assert np.ptp(time[tgt]) <= 1 and time[tgt].max() - time[ctx].max() <= 2 and np.ptp(time[ctx]) <= 4
            assert len(ctx) <= 30 and len(tgt) <= 12
    with pytest.raises(ValueError, match="`time` must be `Forward`"):
        splits.draw(rows(), held, RNG)
    with pytest.raises(ValueError, match="`n_ctx` must be at least 1, got 0"):
        frames.Random(0, 1)


def test_a_large_context_is_taken_where_the_targets_are():
    ctx, tgt = RNG.uniform(size=(5000, 2)), RNG.uniform(size=(900, 2))
    ((all_tgt, all_ctx),) = everywhere(ctx[:100], tgt, 50)
    assert len(all_tgt) == 900 and len(all_ctx) == 100
    seen = []
    for asked, known in everywhere(ctx, tgt, 50):
        assert len(known) == 100 and len(asked) <= 256
        low, high = tgt[asked].min(0), tgt[asked].max(0)
        outside = np.linalg.norm(np.maximum(np.maximum(low - ctx, ctx - high), 0), axis=-1)
        assert outside[known].max() <= np.sort(outside)[len(known) - 1] + 1e-3
        seen.append(asked)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(900))


def test_context_among_the_targets_is_taken_about_their_middle_other_by_its_way_to_them():
    rng = np.random.default_rng(5)
    ctx, tgt = rng.uniform(size=(5000, 2)), rng.uniform(size=(200, 2))
    ((_, known),) = everywhere(ctx, tgt, 50)
    middle = (tgt.min(0) + tgt.max(0)) / 2
    np.testing.assert_array_equal(known, np.sort(np.linalg.norm(ctx - middle, axis=-1).argsort()[:100]))
    road, along = np.linspace(0, 1, 100), np.zeros(100)
    beside = np.concatenate([np.stack([road, along + y], 1) for y in (0.3, 0.1, 0.2)])
    ((_, known),) = everywhere(beside, np.stack([road, along], 1), 50)
    np.testing.assert_array_equal(known, np.arange(100, 200))


def test_forecasts_roll_over_targets_without_their_own_time():
    ctx, tgt = np.repeat(np.arange(20.0), 3), RNG.permutation(np.repeat(np.arange(5.0, 20), 2))
    seen = []
    for asked, known in ahead(ctx, tgt, n_ctx=50, history=4.0, horizon=2.0):
        assert ctx[known].max() < tgt[asked].min() and tgt[asked].max() <= ctx[known].max() + 2
        assert np.ptp(ctx[known]) < 4
        seen.append(asked)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(len(tgt)))
    with pytest.raises(ValueError, match="Targets must lie within the horizon, 2, .*, got one 3 after it"):
        list(ahead(ctx, np.array([22.0]), n_ctx=50, history=4.0, horizon=2.0))
    with pytest.raises(ValueError, match="`context` must hold values from before every target"):
        list(ahead(ctx, np.array([0.0]), n_ctx=50, history=4.0, horizon=2.0))
    assert not list(ahead(ctx, np.zeros(0), n_ctx=50, history=4.0, horizon=2.0))


def test_times_that_differ_by_rounding_are_the_same():
    rng = np.random.default_rng(6)
    exact = np.repeat(np.arange(20.0), 3), np.repeat(np.arange(5.0, 20), 2)
    rounded = [times + rng.uniform(-1e-9, 1e-9, times.shape) for times in exact]
    plans = [ahead(*times, n_ctx=50, history=4.0, horizon=2.0) for times in (exact, rounded)]
    one, other = ([(set(asked), set(known)) for asked, known in plan] for plan in plans)
    assert one == other


def test_a_long_history_is_thinned_over_all_places_and_alike_for_all_targets():
    time, place = np.repeat(np.arange(8.0), 1000), np.tile(np.arange(1000), 8)
    options = {"n_ctx": 50, "history": 4.0, "horizon": 1.0}
    (_, earlier), (_, later) = ahead(time, np.array([8.0, 7.0]), **options)
    for known, times in ((earlier, {3, 4, 5, 6}), (later, {4, 5, 6, 7})):
        assert len(set(known)) == 200 and set(time[known]) == times
        assert (np.bincount(place[known] // 100, minlength=10) > 5).all()
    ((_, again),) = ahead(time, np.full(3, 8.0), **options)
    np.testing.assert_array_equal(again, later)


def test_every_component_has_its_say_in_which_points_are_near():
    """Degrees, metres and days: a station's own history is no nearer than other stations on the day."""
    columns = frames.Columns(
        "v",
        space=frames.Sphere("lon", "lat"),
        time=frames.Time("t"),
        others=[frames.Component("c", ("e", "n"), Euclidean(2))],
    )
    lon, lat = RNG.uniform(-180, 180, 100), RNG.uniform(-90, 90, 100)
    days = np.repeat(np.linspace(-1.7, 1.7, 40), 100)[:, None]
    index = {"t": days, "s": np.tile(np.stack([lon, lat], 1), (40, 1)), "c": RNG.normal(5e6, 1e5, (4000, 2))}
    where = positions(columns, index, {name: rows[:1] for name, rows in index.items()})
    ctx, tgt = where
    for part in (ctx[:, :3], ctx[:, 3:4], ctx[:, 4:]):
        np.testing.assert_allclose(part.var(0).mean(), 1)
    np.testing.assert_array_equal(tgt, ctx[:1])
    ((_, known),) = everywhere(*where, n_ctx=50)
    assert len(set(known % 100)) > 20 and len(set(known // 100)) > 10
    still, later = positions(columns, index | {"t": 0 * days}, index)
    assert np.ptp(still[:, 3]) == 0 and np.abs(later[:, 3]).max() < 2  # one moment tells nothing apart


def test_simulated_values_have_unit_spread_and_depend_on_distance():
    made = Simulated((frames.Plane("x", "y"),), {"s": (0.5, 0.5)}, 2)
    s = np.concatenate([np.zeros((1, 2)), np.full((1, 2), 0.01), np.full((1, 2), 50.0)])
    draws = np.stack([made.draw({"s": s}, np.random.default_rng(i)) for i in range(1500)])[..., 0]
    assert 0.9 < draws.std() < 1.3
    near, far = (np.corrcoef(draws[:, 0], draws[:, i])[0, 1] for i in (1, 2))
    assert near > 0.8 and abs(far) < 0.25
    data = rows(50, holes=5)
    task = frames.Random(20, 10).task(data, np.arange(20), np.arange(20, 30))
    new = made(task, RNG)
    np.testing.assert_array_equal(new.ctx.observed, task.ctx.observed)
    assert (np.asarray(new.tgt.f) != np.asarray(task.tgt.f)).all()


def test_rows_that_are_the_same_are_held_out_together():
    data = rows(60, holes=3)
    twice = data.take(np.concatenate([np.arange(60), np.arange(0, 60, 2)]))
    alike = same(twice.points)
    np.testing.assert_array_equal(alike, np.concatenate([np.arange(60), np.arange(0, 60, 2)]))
    held = frames.Random(20, 8).hold_out(twice, 0.2, np.random.default_rng(0))
    np.testing.assert_array_equal(held[60:], held[:60:2])
    assert 18 <= held.sum() <= 19 and (held[60:]).any()


def test_places_that_were_measured_again_are_held_out_together():
    """Else the held-out score would be of places that the model has seen."""
    data = rows(60)
    again = np.concatenate([np.arange(60), np.arange(0, 60, 2)])
    points = data.points.take(again)
    moved = Rows(Points(points.index, points.f + (np.arange(90) >= 60)[:, None]), data.positions[again], None)
    held = frames.Random(20, 8).hold_out(moved, 0.2, np.random.default_rng(0))
    np.testing.assert_array_equal(held[60:], held[:60:2])
    assert held[60:].any() and not held[60:].all()


def test_rows_that_know_nothing_but_covariates_are_held_out_one_by_one():
    """Many are of one category, and no task would be left to train on."""
    data = Rows(Points({"x": np.zeros((60, 1))}, np.arange(60.0)[:, None]), np.zeros((60, 1)), None)
    assert frames.Random(20, 8).hold_out(data, 0.2, np.random.default_rng(0)).sum() == 12


def test_windows_keep_what_is_at_one_place_together():
    """Else the held-out score would be of places that the model has seen, in training or in the context."""
    data = rows(3000)
    again = np.concatenate([np.arange(3000)] * 3)
    points = data.points.take(again)
    thrice = Rows(Points(points.index, points.f + np.arange(9000.0)[:, None]), data.positions[again], None)
    splits = frames.Windows(40, 20, spread=4.0)
    held = splits.hold_out(thrice, 0.2, np.random.default_rng(0))
    np.testing.assert_array_equal(held, np.tile(held[:3000], 3))
    assert 0.15 < held.mean() < 0.25
    for allowed in (held, ~held):
        for _ in range(20):
            ctx, tgt = splits.draw(thrice, allowed, RNG)
            assert len(ctx) and len(tgt) == 20 and not set(ctx % 3000) & set(tgt % 3000)


@pytest.mark.parametrize("n", [1501, 2000, 2560, 6000])
@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
def test_windows_hold_out_about_what_was_asked_for(n, share):
    held = frames.Windows(256, 64).hold_out(rows(n), share, np.random.default_rng(0))
    assert 0.7 < held.mean() / share < 1.4
