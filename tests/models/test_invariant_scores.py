"""TE-TNP and PT-TE-TNP: scores by a network, tile by tile; pseudo-tokens about the mean of the context."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.attention import dense_attention, scan_attention
from bsatnp.groups import Euclidean, On, Product, TimeShift, Translation
from bsatnp.layers import InvariantScore
from bsatnp.models import PTTETNP, TETNP
from bsatnp.tasks import Points
from bsatnp.testing import perturbed
from tests.largest import largest
from tests.registry import SHIFTS, arrays, close, pttetnp, tetnp

RNG = np.random.default_rng(11)
HEADS, N_Q, N_K, DIM = 3, 7, 11, 4
CALL = eqx.filter_jit(lambda model, ctx, tgt: model(ctx, tgt))


def draw(*shape):
    return jnp.asarray(RNG.normal(size=shape), float)


def index(n):
    return {"s": draw(n, 2), "t": draw(n, 1)}


@pytest.fixture(scope="module")
def case():
    score = perturbed(InvariantScore(SHIFTS, heads=HEADS, sizes=(6, 5), key=jax.random.key(0)), key=jax.random.key(1))
    q, k, v = draw(HEADS, N_Q, DIM), draw(HEADS, N_K, DIM), draw(HEADS, N_K, DIM)
    return (q, k, v, score, index(N_Q), index(N_K)), jnp.asarray(RNG.random(N_K) > 0.3)


def test_scores_are_those_of_numpy(case):
    (q, k, v, score, q_index, k_index), mask = case
    wide = [np.asarray(x, np.float64) for x in (q, k, v)]
    dots = wide[0] @ wide[1].swapaxes(1, 2) / 2
    lags = [np.asarray(q_index[n], np.float64)[:, None] - np.asarray(k_index[n], np.float64)[None] for n in ("s", "t")]
    x = np.concatenate([np.moveaxis(dots, 0, -1), *lags], -1)
    for i, layer in enumerate(score.network.layers):
        x = np.maximum(x, 0) if i else x
        x = x @ np.asarray(layer.weight, np.float64).T + np.asarray(layer.bias, np.float64)
    scores = np.where(np.asarray(mask), np.moveaxis(x, -1, 0), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ wide[2]
    for attention in (scan_attention, dense_attention):
        got = attention(q, k, v, score=score, q_index=q_index, k_index=k_index, mask=mask, tile=(3, 4))
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_tiles_and_their_gradients_are_those_of_the_whole_matrix(case):
    """Of queries, keys, values, every weight of the network and both index sets."""
    inputs, mask = case

    def slope(attention):
        def loss(inputs):
            q, k, v, score, q_index, k_index = inputs
            out = attention(q, k, v, score=score, q_index=q_index, k_index=k_index, mask=mask, tile=(3, 4))
            return (out * jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)).sum()

        return jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(loss))(inputs))

    tiled, whole = slope(scan_attention), slope(dense_attention)
    assert len(tiled) == 3 + 6 + 4
    for a, b in zip(tiled, whole, strict=True):
        assert np.abs(np.asarray(b)).max() > 0
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_no_pair_of_all_points_is_held():
    """The largest array of a tiled call and of its gradient is that of a tile: 128 numbers and more for each pair."""
    score = InvariantScore(On("s", Translation(2)), heads=8, key=jax.random.key(0))
    assert score.numbers_per_pair == (8 + 2) + 128 + 128 + 8
    n, tile = 256, (16, 16)
    q = jnp.zeros((8, n, 16))
    place = {"s": jnp.zeros((n, 2))}

    def loss(q):
        return scan_attention(q, q, q, score=score, q_index=place, k_index=place, tile=tile).sum()

    held = largest(jax.make_jaxpr(jax.grad(loss))(q))
    assert tile[0] * tile[1] * 128 <= held < n * n


@pytest.mark.parametrize(("cls", "count"), [(TETNP, 642_858), (PTTETNP, 1_832_378)])
def test_the_papers_sizes(cls, count):
    """Shapes only: nothing is drawn."""
    shapes = eqx.filter_eval_shape(lambda: cls(group=On("s", Translation(2)), key=jax.random.key(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes) if isinstance(leaf, jax.ShapeDtypeStruct)) == count


def test_more_pseudo_tokens_are_a_token_and_a_place_more():
    def count(pseudo):
        shapes = eqx.filter_eval_shape(lambda: pttetnp(pseudo=pseudo))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes) if isinstance(leaf, jax.ShapeDtypeStruct))

    assert count(7) - count(3) == 4 * (16 + 3)


def test_reach_is_the_deviation_of_the_places_at_the_start():
    places = pttetnp(pseudo=400, reach=5.0).places
    assert {name: np.std(place) for name, place in places.items()} == pytest.approx({"s": 5.0, "t": 5.0}, rel=0.15)


@pytest.fixture(scope="module")
def pseudo():
    return perturbed(pttetnp(), key=jax.random.key(2))


def test_targets_see_the_pseudo_tokens_alone(pseudo):
    """What is kept does not grow with the context."""
    kept = []
    for n in (8, 16):
        found = eqx.filter_eval_shape(lambda n=n: pseudo.condition(Points(index(n), draw(n, 1))))
        kept.append(sum(leaf.size for leaf in jax.tree.leaves(found) if hasattr(leaf, "size")))
    assert kept[0] == kept[1]


def test_places_are_kept_far_from_the_origin(pseudo):
    """Device arrays, which are not centred: coordinates near 2^13 lose no more than their own rounding does.

    Whichever context point is the first that counts.
    """
    kind = jnp.float32
    s = np.round(RNG.normal(size=(8, 2)) * 256) / 256  # exact in float32, shifted or not
    t = np.zeros((8, 1))
    shift = np.array([8192.0, -4096.0])

    def predict(s, first=0):
        s, f, rest = jnp.asarray(s, kind), jnp.asarray(t + 0.5, kind), jnp.asarray(t, kind)
        ctx = Points({"s": s[:5], "t": rest[:5]}, f[:5], mask=jnp.arange(5) >= first)
        return CALL(pseudo, ctx, Points({"s": s[5:], "t": rest[5:]}))

    for first in (0, 2):
        assert close(predict(s + shift, first), predict(s, first), atol=1e-5)
    assert not close(predict(s * 1.5), predict(s), atol=1e-4)


def test_without_a_context_the_place_of_a_target_does_not_matter(pseudo):
    """There is no mean to put the pseudo-tokens at, so they are not seen."""
    ctx, tgt = Points(index(5), draw(5, 1), mask=jnp.zeros(5, bool)), Points(index(3))
    got = CALL(pseudo, ctx, tgt)
    assert all(np.isfinite(leaf).all() and np.ptp(leaf) < 1e-6 for leaf in arrays(got))
    seen = CALL(pseudo, Points(ctx.index, ctx.f, mask=jnp.ones(5, bool)), tgt)
    assert min(np.ptp(leaf) for leaf in arrays(seen)) > 1e-4


def test_a_gradient_reaches_every_parameter(pseudo):
    ctx, tgt = Points(index(5), draw(5, 1)), Points(index(3))
    grads = eqx.filter_jit(eqx.filter_grad(lambda model: model(ctx, tgt).log_prob(draw(3, 1)).sum()))(pseudo)
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in (grads.pseudo_tokens, *grads.places.values()))
    # nothing attends to the context after its last update
    for name in ("pseudo_blocks", "context_blocks", "blocks"):
        used = slice(0, 1) if name == "context_blocks" else slice(None)
        network = getattr(grads, name).attention.score.network
        assert (np.abs(np.asarray(network.layers[0].weight[used])).max((1, 2)) > 0).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tetnp(group=Translation(2)), "`group` must act on named components of known width"),
        (lambda: pttetnp(group=Translation(2)), "`group` must be made of translations with `On` or `Product`"),
        (lambda: pttetnp(group=On("s", Euclidean(2))), "`group` must be made of translations with `On` or `Product`"),
        (
            lambda: pttetnp(group=Product(On("s", Euclidean(2)), On("t", TimeShift()))),
            "`group` must be made of translations",
        ),
        (lambda: pttetnp(pseudo=0), "`pseudo` must be at least 1, got 0"),
        (lambda: tetnp(depth=0), "`depth` must be at least 1, got 0"),
        (lambda: tetnp(heads=3), "`heads` must divide the width of attention 16, got 3"),
        (lambda: tetnp(score_sizes=(0,)), "`sizes` must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
