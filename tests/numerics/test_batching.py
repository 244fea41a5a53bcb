"""Under vmap, in every mix of batched and unbatched arguments, each task is as if alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dense_oracle import ENTRIES, Score, answer, close, draw, oracle, own

from bsatnp.attention import scan_attention

N_Q, N_K, TILE, BATCH, OUTER = 4, 5, (2, 3), 3, 2
NAMES = ("q", "k", "v", "p", "x", "mask", "slope")
WANTED = ("q", "k", "v", "p", "x", "slope")

#: Every pair of arguments occurs in all four mixes.
MIXES = [dict(zip(NAMES, row, strict=True)) for row in ("0000000", "0001111", "0110011", "0111100")]
MIXES += [dict(zip(NAMES, row, strict=True)) for row in ("1010101", "1011010", "1100110", "1101001")]
MIXES = [*MIXES[1:], dict.fromkeys(NAMES, "1")]

#: 0: unbatched, 1: in the inner vmap, 2: in the outer, 3: in both.
NESTED = [dict(zip(NAMES, row, strict=True)) for row in ("0123012", "2301230", "1230321", "3333333")]


def sloped(xp, learned, dots, p, x):
    apart = (p[:, None, 0] - x[None, :, 0]) ** 2
    return learned[:, None, None] * dots - xp.where(apart > 2.0, np.inf, apart)[None]


def leaf(name, lead, seed):
    """An argument with batch axes `lead`."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    if name == "mask":
        mask = rng.uniform(size=(*lead, N_Q, N_K)) > 0.3
        mask[..., 0, :] = False
        return jnp.asarray(mask)
    shape = {"q": (2, N_Q, 4), "k": (2, N_K, 4), "v": (2, N_K, 3), "p": (N_Q, 1), "x": (N_K, 1), "slope": (2,)}[name]
    return jnp.asarray(rng.normal(size=(*lead, *shape)), float)


WEIGHT = draw(0, N_Q, N_K)[3]


def loss(parts, attention=scan_attention, tile=TILE):
    score = Score(parts["slope"], sloped)
    index = {"q_index": parts["p"], "k_index": parts["x"], "mask": parts["mask"]}
    out = attention(parts["q"], parts["k"], parts["v"], score=score, **index, tile=tile)
    return jnp.sum(out * WEIGHT)


def gradient(parts, function=loss):
    floats = {name: parts[name] for name in WANTED}
    return jax.grad(lambda floats: function(parts | floats))(floats)


def right(parts):
    """The oracle's gradient for one task."""
    index = {"q_index": parts["p"], "k_index": parts["x"], "mask": np.asarray(parts["mask"])}
    score = Score(parts["slope"], sloped)
    a = oracle(parts["q"], parts["k"], parts["v"], WEIGHT, formula=own, score=score, **index)
    return {"q": a.q, "k": a.k, "v": a.v, "p": a.q_index, "x": a.k_index, "slope": a.score.learned}


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: "".join(mix.values()))
def test_vmap_of_grad(mix):
    parts = {name: leaf(name, (BATCH,) if on == "1" else (), 1) for name, on in mix.items()}
    axes = {name: 0 if on == "1" else None for name, on in mix.items()}
    grads = jax.jit(jax.vmap(gradient, in_axes=(axes,)))(parts)
    for i in range(BATCH):
        alone = {name: z[i] if mix[name] == "1" else z for name, z in parts.items()}
        close(jax.tree.map(lambda g: g[i], grads), right(alone), times=3)  # noqa: B023


@pytest.mark.parametrize("mix", MIXES[1::3], ids=lambda mix: "".join(mix.values()))
def test_grad_of_vmap_adds_up_what_tasks_share(mix):
    parts = {name: leaf(name, (BATCH,) if on == "1" else (), 2) for name, on in mix.items()}
    axes = {name: 0 if on == "1" else None for name, on in mix.items()}
    total = lambda parts: jnp.sum(jax.vmap(loss, in_axes=(axes,))(parts))  # noqa: E731
    grads = jax.jit(lambda parts: gradient(parts, total))(parts)
    tasks = [right({n: z[i] if mix[n] == "1" else z for n, z in parts.items()}) for i in range(BATCH)]
    combine = {n: np.stack if mix[n] == "1" else sum for n in WANTED}
    close(grads, {n: combine[n]([task[n] for task in tasks]) for n in WANTED}, times=3)


@pytest.mark.parametrize("mix", NESTED, ids=lambda mix: "".join(mix.values()))
def test_nested_vmap(mix):
    lead = {"0": (), "1": (BATCH,), "2": (OUTER,), "3": (OUTER, BATCH)}
    parts = {name: leaf(name, lead[on], 3) for name, on in mix.items()}
    inner = {name: 0 if on in "13" else None for name, on in mix.items()}
    outer = {name: 0 if on in "23" else None for name, on in mix.items()}
    grads = jax.jit(jax.vmap(jax.vmap(gradient, in_axes=(inner,)), in_axes=(outer,)))(parts)
    where = {"0": lambda z, i, j: z, "1": lambda z, i, j: z[j], "2": lambda z, i, j: z[i], "3": lambda z, i, j: z[i, j]}
    for i, j in np.ndindex(OUTER, BATCH):
        alone = {name: where[mix[name]](z, i, j) for name, z in parts.items()}
        close(jax.tree.map(lambda g: g[i, j], grads), right(alone), times=3)  # noqa: B023


def test_batch_axes_anywhere():
    parts = {name: leaf(name, (BATCH,), 4) for name in NAMES}
    moved = parts | {"q": jnp.moveaxis(parts["q"], 0, 2), "x": jnp.moveaxis(parts["x"], 0, -1)}
    axes = dict.fromkeys(NAMES, 0) | {"q": 2, "x": -1}

    def out(parts):
        index = {"q_index": parts["p"], "k_index": parts["x"], "mask": parts["mask"]}
        return scan_attention(*(parts[n] for n in "qkv"), score=Score(parts["slope"], sloped), **index, tile=TILE)

    got = jax.jit(jax.vmap(out, in_axes=(axes,), out_axes=1))(moved)
    for i in range(BATCH):
        a = {name: z[i] for name, z in parts.items()}
        index = {"q_index": a["p"], "k_index": a["x"], "mask": np.asarray(a["mask"])}
        score = Score(a["slope"], sloped)
        close(got[:, i], oracle(a["q"], a["k"], a["v"], WEIGHT, formula=own, score=score, **index).out, times=3)


def test_default_tile_under_vmap():
    parts = {name: leaf(name, (BATCH,), 5) for name in NAMES}
    grads = jax.jit(jax.vmap(lambda parts: gradient(parts, lambda z: loss(z, tile=None))))(parts)
    for i in range(BATCH):
        alone = {name: z[i] for name, z in parts.items()}
        close(jax.tree.map(lambda g: g[i], grads), right(alone), times=3)  # noqa: B023


@pytest.mark.parametrize("entry", ENTRIES)
def test_a3_a_task_without_context_beside_one_with_it(entry):
    parts = {name: leaf(name, (2,), 6) for name in NAMES} | {"slope": leaf("slope", (), 6)}
    parts["mask"] = parts["mask"].at[1].set(False)
    axes = dict.fromkeys(NAMES, 0) | {"slope": None}

    def total(parts):
        return jnp.sum(jax.vmap(lambda z: loss(z, ENTRIES[entry]), in_axes=(axes,))(parts))

    value, grads = jax.jit(lambda parts: (total(parts), gradient(parts, total)))(parts)
    alone = right({name: z if name == "slope" else z[0] for name, z in parts.items()})
    assert np.isfinite(value)
    close(grads.pop("slope"), alone.pop("slope"), times=3)
    close(jax.tree.map(lambda g: g[0], grads), alone, times=3)
    for leaves in jax.tree.leaves(grads):
        np.testing.assert_array_equal(leaves[1], 0.0)


def test_vmap_of_a_whole_answer_with_an_unbatched_score():
    """The score's gradient comes back once for each task."""
    four = [draw(seed, N_Q, N_K) for seed in (7, 8)]
    stacked = jax.tree.map(lambda *z: jnp.stack(z), *four)
    score, p, x = Score(leaf("slope", (), 7), sloped), leaf("p", (), 7), leaf("x", (), 7)

    def one(q, k, v, slope):
        return answer(scan_attention, q, k, v, slope, score=score, q_index=p, k_index=x, tile=TILE)

    both = jax.vmap(one)(*stacked)
    for i, each in enumerate(four):
        expected = oracle(*each, formula=own, score=score, q_index=p, k_index=x)
        close(jax.tree.map(lambda g: g[i], both), expected, times=3)  # noqa: B023
