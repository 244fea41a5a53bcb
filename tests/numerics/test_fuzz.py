"""Whatever attention is asked: what a float64 softmax gives, or the package's own error."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bias_cases import CASES, points
from dense_oracle import ENTRIES, Score, answer, close, draw, oracle, own
from hypothesis import given
from hypothesis import strategies as st

from bsatnp.layers import AdditiveScore
from tests import fuzzing
from tests.fuzzing import MANY

N_Q, N_K = 5, 7


def exact(xp, learned, dots, p, x):
    """Scores without rounding: powers of two of exact products, whole numbers, and −inf beyond a reach."""
    apart = (p[:, None, 0] - x[None, :, 0]) ** 2
    return xp.where(apart[None] <= learned["reach"], learned["slope"] * dots + learned["offset"], -np.inf)


@MANY
@given(
    where=st.sampled_from([("scan", (2, 3)), ("scan", None), ("dense", None)]),
    kind=st.sampled_from([jnp.float32, jnp.bfloat16]),
    seed=st.integers(0, 10**6),
    power=st.integers(-30, 12),
    offset=st.sampled_from([0.0, -1.0, 64.0, -4096.0, 4096.0]),
    reach=st.sampled_from([-1.0, 0.0, 4.0, 400.0]),
    keys=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    rubbish=st.sampled_from([0.0, np.nan, np.inf, -np.inf, 3e38]),
)
def test_scores_of_any_size_and_rubbish_under_the_mask(where, kind, seed, power, offset, reach, keys, rubbish):
    """Values and every gradient; all that varies is traced, so that few programs are compiled."""
    entry, tile = where
    rng, four = np.random.default_rng(seed), draw(seed, N_Q, N_K, dtype=kind)
    p, x = (jnp.asarray(rng.integers(-8, 9, (n, 1)) / 4, jnp.float32) for n in (N_Q, N_K))
    offset = offset if 2.0**power <= 1 else 0.0  # so that the sum of both is exact in float32
    slope = 2.0 ** max(power, -4) if offset else 2.0**power
    learned = {"slope": slope, "offset": offset, "reach": reach}
    score = Score(jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), learned), exact)
    mask = rng.uniform(size=(N_Q, N_K)) < keys
    hidden = jnp.asarray(~mask.any(0))
    q, k, v, weight = four
    k, v = (jnp.where(hidden[None, :, None], jnp.asarray(rubbish, kind), a) for a in (k, v))
    inputs = {"score": score, "q_index": p, "k_index": jnp.where(hidden[:, None], rubbish, x), "mask": mask}
    got = answer(ENTRIES[entry], q, k, v, weight, **inputs | {"mask": jnp.asarray(mask)}, tile=tile)
    right = oracle(q, k, v, weight, formula=own, **inputs)
    close(got[:4], right[:4], times=10)
    close(got.score, right.score, times=10)  # sums of float32, whatever the type of the values


SETTINGS = [("causal", "scan", 5, 7), ("mlp", "scan", 1, 7), ("sum", "scan", 5, 3), ("sum", "dense", 5, 7)]


@MANY
@given(
    setting=st.sampled_from(SETTINGS), seed=st.integers(0, 10**6), keys=st.sampled_from([0.0, 0.3, 1.0]),
    size=st.sampled_from([0.0, 1e-3, 1.0, 30.0]), together=st.booleans(),
)  # fmt: skip
def test_biases_at_any_points(setting, seed, keys, size, together):
    """Points near and far, all at one place, hidden ones anywhere."""
    name, entry, n_q, n_k = setting
    case, four, (p, x) = CASES[name], draw(seed, n_q, n_k), points(seed, n_q, n_k)
    scaled = lambda tree: {n: a * (0.0 if together else 1.0 if n == "g" else size) for n, a in tree.items()}  # noqa: E731
    mask = np.random.default_rng(seed).uniform(size=(n_q, n_k)) < keys
    inputs = {"score": AdditiveScore(case.bias()), "q_index": scaled(p), "k_index": scaled(x), "mask": mask}
    got = answer(ENTRIES[entry], *four, **inputs | {"mask": jnp.asarray(mask)}, tile=(2, 3))
    close(got, oracle(*four, formula=case.scores, **inputs), times=100)


SHAPES = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple)
TYPES = st.sampled_from([jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, bool])


@MANY
@given(data=st.data())
def test_arguments_that_may_not_fit(data):
    """Traced only: both entry points take and refuse the same, and what they give has the shape of the queries."""
    right = {"q": (2, 3, 2), "k": (2, 1, 2), "v": (2, 1, 3), "q_index": (3, 1), "k_index": (1, 1), "mask": (3, 1)}
    kinds = dict.fromkeys(right, jnp.float32) | {"mask": bool}
    for name in data.draw(st.lists(st.sampled_from(sorted(right)), max_size=2)):
        right[name] = data.draw(SHAPES)
    if data.draw(st.integers(0, 2)) == 0:
        name = data.draw(st.sampled_from(sorted(kinds)))
        kinds[name] = data.draw(TYPES)
    scores = data.draw(st.sampled_from([None, "whole", "shared", "flat", "wrong"]))
    given_ = {name: jax.ShapeDtypeStruct(shape, kinds[name]) for name, shape in right.items()}
    for name in data.draw(st.lists(st.sampled_from(["mask", "q_index", "k_index"]), max_size=2)):
        given_.pop(name, None)
    tile = data.draw(st.sampled_from([None, None, (1, 1), (64, 2)]))

    def score(dots, p, x):
        return {"whole": dots, "shared": dots[:1], "flat": dots.sum(0), "wrong": dots[..., None]}[scores]

    outcomes = []
    for entry in ENTRIES.values():
        call = lambda given_, entry=entry: inspect.unwrap(entry)(  # noqa: E731
            **given_, score=None if scores is None else score, tile=tile
        )
        try:
            out = jax.eval_shape(call, given_)
        except Exception as error:
            assert fuzzing.own(error), repr(error)
            outcomes.append(re.sub(r"\(.*?\)", "()", str(error)))  # one of them names the shape of a tile
            continue
        q, v = given_["q"], given_["v"]
        assert (out.shape, out.dtype) == ((*q.shape[:2], v.shape[-1]), v.dtype)
        outcomes.append(None)
    assert outcomes[0] == outcomes[1] or 0 in (right["q"][1:2] + right["k"][1:2]), outcomes


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_errors_of_the_fuzz_are_told_from_those_of_libraries(entry):
    """The control: an error of JAX inside the score is not the package's own."""
    with pytest.raises(Exception) as caught:
        inspect.unwrap(ENTRIES[entry])(*draw(0, N_Q, N_K)[:3], score=lambda dots, p, x: jnp.concatenate([dots, 1]))
    assert not fuzzing.own(caught.value)
