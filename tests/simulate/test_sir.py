"""Outbreaks on a lattice: infection against NumPy loops, the laws of the process, and the stream of tasks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bsatnp.simulate import SIRTasks
from bsatnp.simulate.sir import advance, exposure, infection_probability, rollout

S, I, R = 0, 1, 2
STREAM = SIRTasks(batch=16, n_ctx=(4, 9), n_tgt=20, ctx_sizes=(8,), cells=16)
MANY = dataclasses.replace(STREAM, batch=64, width=3)


def loops(infected, width=9):
    """Inverse squared distances to the infected in the window, cell by cell."""
    n, m = infected.shape
    out = np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            for k in range(n):
                for h in range(m):
                    inside = max(abs(i - k), abs(j - h)) <= width // 2
                    if infected[k, h] and inside and (i, j) != (k, h):
                        out[i, j] += 1 / ((i - k) ** 2 + (j - h) ** 2)
    return out


@pytest.mark.parametrize("width", [9, 3])
@pytest.mark.parametrize("shape", [(12, 12), (5, 11)])
def test_exposure_equals_loops(width, shape):
    infected = np.random.default_rng(0).random(shape) < 0.2
    infected[0, 0] = infected[-1, 2] = True  # at the edge
    np.testing.assert_allclose(exposure(jnp.asarray(infected), width=width), loops(infected, width), rtol=1e-5)


def test_infection_probability_on_a_lattice_made_by_hand():
    infected = np.zeros((12, 12), bool)
    infected[0, 0] = True
    p = np.asarray(infection_probability(jnp.asarray(infected), 0.4))
    assert p[0, 0] == 0  # the centre does not count
    np.testing.assert_allclose([p[0, 1], p[1, 1], p[4, 4], p[0, 4]], [0.4, 0.2, 0.4 / 32, 0.4 / 16], rtol=1e-6)
    assert (p[5:] == 0).all() and (p[:, 5:] == 0).all()  # exactly none beyond the window, none wrapped around
    crowd = np.ones((12, 12), bool)
    np.testing.assert_array_equal(infection_probability(jnp.asarray(crowd), 0.9), 1)


def test_frequencies_of_one_step_equal_the_probabilities():
    state = np.full((6, 6), S, np.int32)
    state[1, 1] = state[4, 2] = I
    state[0, 5] = R
    keys = jax.random.split(jax.random.key(0), 4000)
    after = np.asarray(jax.vmap(lambda key: advance(jnp.asarray(state), 0.3, 0.25, key=key))(keys))
    p = np.minimum(0.3 * loops(state == I), 1)
    error = np.sqrt(np.maximum(p * (1 - p), 1e-4) / 4000)
    caught = (after == I).mean(0)
    susceptible = state == S
    assert np.abs((caught - p) / error)[susceptible].max() < 5
    assert abs((after[:, state == I] == R).mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 8000)
    assert (after[:, 0, 5] == R).all()


@pytest.mark.parametrize(("infection", "recovery"), [(0.2, 0.1), (0.9, 0.02), (0.5, 0.8)])
def test_laws_of_an_outbreak(infection, recovery):
    start = np.zeros((16, 16), np.int32)
    start[7, 8] = start[0, 0] = I
    path = np.asarray(rollout(jnp.asarray(start), infection, recovery, 25, key=jax.random.key(3)))
    path = np.concatenate([start[None], path])
    assert set(np.unique(path)) <= {S, I, R}  # everybody is in one state
    for before, after in zip(path[:-1], path[1:], strict=True):
        assert (after >= before).all()  # susceptible, infected, recovered, and never back
        assert not ((before == S) & (after == R)).any()  # nobody skips the infection
        exposed = loops(before == I) > 0
        assert not ((before == S) & (after == I) & ~exposed).any()
    assert (path[-1] != S).sum() > 2


def test_certain_rates_leave_nothing_to_chance():
    start = jnp.zeros((9, 9), jnp.int32).at[4, 4].set(I)
    state = np.asarray(rollout(start, 100.0, 1.0, 2, key=jax.random.key(0)))
    expected = np.full((9, 9), I)
    expected[4, 4] = R
    np.testing.assert_array_equal(state[0], expected)
    np.testing.assert_array_equal(state[1], R)
    still = np.asarray(rollout(start, 0.0, 0.0, 2, key=jax.random.key(0)))
    np.testing.assert_array_equal(still, np.stack([start, start]))


def test_every_step_is_left_to_chance_anew():
    """Half of those who are ill recover at each step: one draw for all steps would leave the others ill for ever."""
    path = rollout(jnp.full((64, 64), I), 0.0, 0.5, 5, key=jax.random.key(0))
    share = 0.5 ** np.arange(1, 6)
    assert np.abs(np.asarray(path == I).mean((1, 2)) - share).max() < 5 * np.sqrt(0.25 / 64**2)


def test_outbreaks_of_a_batch_differ_and_say_after_how_many_steps_they_are_seen():
    """All are ill at first, and half of those who still are recover at each step."""
    stream = dataclasses.replace(MANY, steps=4, first_cases=(256, 257), recovery=(1e8, 5e7))
    outbreak = stream.draw(0, key=jax.random.key(0))[1]
    state, step = np.asarray(outbreak.state).reshape(64, -1), np.asarray(outbreak.step)
    assert set(step) == {1, 2, 3, 4} and (outbreak.first_cases == 256).all()
    assert np.abs((state == I).mean(1) - 0.5**step).max() < 5 * np.sqrt(0.25 / 256)
    assert len(np.unique(state, axis=0)) == 64


def test_first_cases_are_as_many_as_the_outbreak_says():
    still = dataclasses.replace(MANY, steps=1, infection=(1.0, 1e9), recovery=(5.0, 1e-9))
    outbreak = still.draw(0, key=jax.random.key(0))[1]
    ill = np.asarray(outbreak.state == I).sum((1, 2))
    np.testing.assert_array_equal(ill, outbreak.first_cases)
    assert set(ill) == {1, 2, 3, 4} and (outbreak.step == 1).all()


def test_the_cells_of_a_task_owe_nothing_to_the_first_cases():
    """One cell in a hundred is ill, wherever a task looks."""
    still = dataclasses.replace(MANY, steps=1, infection=(1.0, 1e9), recovery=(5.0, 1e-9))
    task = still(0, key=jax.random.key(0))
    assert np.asarray(task.tgt.f == I).sum() < 40


def test_tasks_show_the_state_at_distinct_cells_with_the_context_first_among_the_targets():
    task, outbreak = STREAM.draw(0, key=jax.random.key(0))
    grid = np.asarray(STREAM.grid(), np.float32)
    places = {tuple(place): i for i, place in enumerate(grid)}
    for i in range(16):
        labels = np.asarray(outbreak.state)[i].ravel()
        for points in (task.ctx, task.tgt):
            mask = np.asarray(points.mask)[i]
            rows = [places[tuple(s)] for s in np.asarray(points.index["s"], np.float32)[i][mask]]
            assert len(set(rows)) == len(rows)
            np.testing.assert_array_equal(labels[rows], np.asarray(points.f)[i][mask][:, 0])
        n = int(np.asarray(task.ctx.mask)[i].sum())
        assert 4 <= n < 9
        np.testing.assert_array_equal(task.tgt.index["s"][i, :n], task.ctx.index["s"][i, :n])
    assert jnp.issubdtype(task.tgt.f.dtype, jnp.integer)
    assert set(np.unique(np.asarray(outbreak.step))) <= set(range(1, 26))
    assert set(np.unique(np.asarray(outbreak.first_cases))) <= {1, 2, 3, 4}


def test_targets_can_be_kept_apart_from_the_context():
    task = SIRTasks(batch=16, n_ctx=(4, 9), n_tgt=20, ctx_in_tgt=False, ctx_sizes=(8,), cells=16)(
        0, key=jax.random.key(0)
    )
    for i in range(16):
        ctx = {tuple(s) for s in np.asarray(task.ctx.index["s"])[i][np.asarray(task.ctx.mask)[i]]}
        assert not ctx & {tuple(s) for s in np.asarray(task.tgt.index["s"])[i]}


def test_rates_have_the_distributions_of_the_paper():
    outbreaks = [STREAM.draw(i, key=jax.random.key(1))[1] for i in range(30)]
    outbreak = jax.tree.map(lambda *leaves: np.concatenate(leaves), *outbreaks)
    assert stats.kstest(np.asarray(outbreak.infection), stats.beta(2, 8).cdf).pvalue > 1e-3
    assert stats.kstest(np.asarray(outbreak.recovery), stats.invgamma(5, scale=0.4).cdf).pvalue > 1e-3
    assert stats.chisquare(np.bincount(np.asarray(outbreak.first_cases), minlength=5)[1:]).pvalue > 1e-3


def test_a_shifted_stream_has_the_same_values_elsewhere():
    here, there = STREAM(2, key=jax.random.key(0)), STREAM.shifted(10.0)(2, key=jax.random.key(0))
    np.testing.assert_array_equal(here.tgt.f, there.tgt.f)
    np.testing.assert_allclose(here.tgt.index["s"] + 10, there.tgt.index["s"], atol=2e-6)


def test_lattice_of_the_paper_and_its_double():
    once, twice = SIRTasks(), SIRTasks().scaled(2)
    assert (twice.cells, twice.domain, twice.n_ctx, twice.n_tgt) == (128, (-4.0, 4.0), (512, 2045), 4096)
    a, b = once.grid(), twice.grid()
    assert a.shape == (64 * 64, 2) and b.shape == (128 * 128, 2)
    np.testing.assert_allclose(a[[0, 1, 64]], [[-1.96875, -1.96875], [-1.96875, -1.90625], [-1.90625, -1.96875]])
    np.testing.assert_allclose(b.reshape(128, 128, 2)[32:96, 32:96].reshape(-1, 2), a)  # the same cells in the middle


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"width": 8}, "`width`"),
        ({"steps": 0}, "`steps`"),
        ({"first_cases": (3, 3)}, "`first_cases`"),
        ({"n_tgt": 100}, "`n_tgt`"),
        ({"cells": 16}, "`cells`"),
        ({"n_tgt": 4096, "ctx_in_tgt": False}, "`cells`"),
        ({"domain": (2.0, -2.0)}, "`domain`"),
        ({"infection": (-1.0, 8.0)}, "`infection` must be positive"),
        ({"recovery": (5.0, -0.4)}, "`recovery` must be positive"),
    ],
)
def test_bad_options_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        SIRTasks(**options)


def test_a_shift_that_merges_cells_is_refused():
    with pytest.raises(ValueError, match="where float32 merges places" if not jax.config.jax_enable_x64 else "merges"):  # pyright: ignore
        SIRTasks().shifted(1e7 if not jax.config.jax_enable_x64 else 1e16)  # pyright: ignore


def test_an_even_window_is_refused():
    with pytest.raises(ValueError, match="`width` must be odd, got 8"):
        exposure(jnp.zeros((12, 12), bool), width=8)
