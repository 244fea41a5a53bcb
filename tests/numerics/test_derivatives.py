"""Gradients inside other transformations, second derivatives, and what forward mode and closures are told."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bias_cases import CASES, TIME, points
from dense_oracle import ENTRIES, Score, answer, close, draw, oracle, own
from jax.flatten_util import ravel_pytree

from bsatnp.attention import dense_attention, scan_attention
from bsatnp.bias import RBFNetwork
from bsatnp.layers import AdditiveScore

N_Q, N_K, TILE = 5, 7, (2, 3)


def sloped(xp, learned, dots, p, x):
    return learned[:, None, None] * dots - ((p[:, None, 0] - x[None, :, 0]) ** 2)[None]


def sloped_inputs(seed):
    rng = np.random.default_rng(seed)
    p, x = (jnp.asarray(rng.normal(size=(n, 1)), float) for n in (N_Q, N_K))
    return {"score": Score(jnp.asarray([0.5, -1.5], float), sloped), "q_index": p, "k_index": x}


# A16: what a score learns is inside it


def partial_slope(learned, dots, p, x):
    return learned[:, None, None] * dots - ((p[:, None, 0] - x[None, :, 0]) ** 2)[None]


@pytest.mark.parametrize("around", ["jit", "scan", "vmap", "checkpoint"])
def test_a16_an_array_inside_the_score_gets_its_gradient(around):
    (q, k, v, slope), rest = draw(31, N_Q, N_K), sloped_inputs(31)
    learned = rest.pop("score").learned

    def loss(learned):
        score = jax.tree_util.Partial(partial_slope, learned)
        return jnp.sum(slope * scan_attention(q, k, v, score=score, **rest, tile=TILE))

    def scanned(learned):
        return jax.lax.scan(lambda total, _: (total + loss(learned), None), jnp.zeros(()), None, length=3)[0]

    gradient = {
        "jit": lambda a: jax.grad(loss)(a),
        "scan": lambda a: jax.grad(scanned)(a) / 3,
        "vmap": lambda a: jax.vmap(jax.grad(loss))(jnp.stack([2 * a, a]))[1],
        "checkpoint": lambda a: jax.grad(jax.checkpoint(loss))(a),
    }[around]
    expected = oracle(q, k, v, slope, formula=own, score=Score(learned, sloped), **rest).score.learned
    close(jax.jit(gradient)(learned), expected, times=3)


@pytest.mark.parametrize("kind", [float, int])
@pytest.mark.parametrize("around", ["grad", "jit", "scan", "vmap"])
def test_a16_a_traced_array_in_a_closure_is_refused(around, kind):
    (q, k, v, _), rest = draw(32, N_Q, N_K), sloped_inputs(32)
    del rest["score"]
    if around == "grad" and kind is int:
        pytest.skip("integers have no gradient")

    def loss(a):
        return jnp.sum(scan_attention(q, k, v, score=lambda dots, p, x: dots * a.astype(dots.dtype), **rest, tile=TILE))

    transform = {
        "grad": jax.grad(loss),
        "jit": jax.jit(loss),
        "scan": lambda a: jax.lax.scan(lambda c, b: (c, loss(b)), 0, a[None]),
        "vmap": lambda a: jax.vmap(loss)(a[None]),
    }[around]
    with pytest.raises(ValueError, match="`score` closes over a traced array .* pytree"):
        transform(jnp.asarray(2, kind))


@pytest.mark.parametrize("entry", ENTRIES)
def test_a16_a_constant_in_a_closure_is_fine(entry):
    four, constant = draw(33, N_Q, N_K), jnp.asarray([0.5, -1.5])
    closed = lambda dots, p, x: constant[:, None, None] * dots  # noqa: E731
    expected = oracle(*four, formula=lambda xp, score, dots, p, x: xp.asarray([0.5, -1.5])[:, None, None] * dots)
    close(answer(ENTRIES[entry], *four, score=closed, tile=TILE)[:4], expected[:4], times=3)


def three_numbers(a, b, table, dots, p, x):
    return a * dots + b * ((p[:, None, 0] - x[None, :, 0]) ** 2)[None] + table["c"]


@pytest.mark.parametrize("entry", ENTRIES)
def test_python_numbers_in_the_score_get_their_gradient(entry):
    (q, k, v, slope), rest = draw(34, N_Q, N_K), sloped_inputs(34)
    del rest["score"]

    def loss(score):
        return jnp.sum(slope * ENTRIES[entry](q, k, v, score=score, **rest, tile=TILE))

    numbers = (0.5, -0.25, {"c": 3.0})
    score = Score(jax.tree.map(np.asarray, numbers), lambda xp, a, *z: three_numbers(*a, *z))
    expected = oracle(q, k, v, slope, formula=own, score=score, **rest).score.learned
    grad = jax.grad(loss)(jax.tree_util.Partial(three_numbers, *numbers))
    close([jnp.asarray(g, float) for g in jax.tree.leaves(grad)], jax.tree.leaves(expected), times=3)
    fixed = jax.tree_util.Partial(three_numbers, *numbers)
    plain = ENTRIES[entry](q, k, v, score=fixed, **rest, tile=TILE)
    close(plain, oracle(q, k, v, slope, formula=own, score=score, **rest).out)


# A17: forward mode and second derivatives


def forward_modes(f, z):
    return {
        "jvp": lambda: jax.jvp(f, (z,), (z,)),
        "jit(jvp)": lambda: jax.jit(lambda z: jax.jvp(f, (z,), (z,)))(z),
        "jvp(jit)": lambda: jax.jvp(jax.jit(f), (z,), (z,)),
        "jvp(vmap)": lambda: jax.jvp(jax.vmap(f), (z[None],), (z[None],)),
        "jvp(checkpoint)": lambda: jax.jvp(jax.checkpoint(f), (z,), (z,)),
        "jacfwd": lambda: jax.jacfwd(f)(z),
        "jit(jacfwd)": lambda: jax.jit(jax.jacfwd(f))(z),
        "hessian": lambda: jax.hessian(f)(z),
        "jit(hessian)": lambda: jax.jit(jax.hessian(f))(z),
        "jvp(grad)": lambda: jax.jvp(jax.grad(f), (z,), (z,)),
        "grad(jvp)": lambda: jax.grad(lambda z: jax.jvp(f, (z,), (z,))[1])(z),
    }


@pytest.mark.parametrize("way", forward_modes(None, None))
@pytest.mark.parametrize("argument", ["q", "v", "score", "k_index"])
def test_a17_forward_mode_of_the_scan_names_the_dense_attention(way, argument):
    (q, k, v, _), rest = draw(35, N_Q, N_K), sloped_inputs(35)
    inputs = {"q": q, "k": k, "v": v, **rest, "score": rest["score"].learned}

    def f(z):
        changed = inputs | {argument: z}
        changed["score"] = Score(changed["score"], sloped)
        return jnp.sum(scan_attention(**changed, tile=TILE) ** 2)

    with pytest.raises(TypeError, match=r"forward-mode.*`jax.jacrev\(jax.grad\(f\)\)`, or `dense_attention`"):
        forward_modes(f, inputs[argument])[way]()


@pytest.mark.parametrize("name", CASES)
def test_a17_forward_mode_of_the_dense_attention(name):
    case, (q, k, v, slope), (p, x) = CASES[name], draw(36, N_Q, N_K), points(36, N_Q, N_K)
    arrays, static = eqx.partition((q, k, v, AdditiveScore(case.bias()), p, x), eqx.is_inexact_array)
    rng = np.random.default_rng(36)
    tangents = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), a.dtype), arrays)

    def loss(arrays):
        q, k, v, score, p, x = eqx.combine(arrays, static)
        return jnp.sum(slope * dense_attention(q, k, v, score=score, q_index=p, k_index=x))

    _, forward = jax.jit(lambda a, t: jax.jvp(loss, (a,), (t,)))(arrays, tangents)
    score = AdditiveScore(case.bias())
    expected = oracle(q, k, v, slope, formula=case.scores, score=score, q_index=p, k_index=x)
    pairs = zip(jax.tree.leaves(expected[1:]), jax.tree.leaves(tangents), strict=True)
    close(forward, sum(np.sum(g * np.asarray(t, np.float64)) for g, t in pairs), times=10)


def quadratic(xp, z, dots, p, x):
    """An RBF bias, written out."""
    apart = (p[:, None, 0] - x[None, :, 0]) ** 2
    bumps = z["weight"][:, :, None, None] * xp.exp(-xp.exp(z["rate"])[:, :, None, None] * apart[None, None])
    return dots + xp.sum(bumps, 1)


def second(attention, score):
    """A loss of one vector that holds every input, and the vector."""
    rng = np.random.default_rng(37)
    shapes = {"q": (1, 2, 2), "k": (1, 3, 2), "v": (1, 3, 1), "p": (2, 1), "x": (3, 1)}
    shapes |= {"weight": (1, 2), "rate": (1, 2)}
    parts = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    start, unravel = ravel_pytree(jax.tree.map(lambda a: jnp.asarray(a, float), parts))
    mask = jnp.asarray([[True, True, False], [True, True, True]])

    def loss(z):
        a = unravel(z)
        out = attention(a["q"], a["k"], a["v"], score(a), a["p"], a["x"], mask)
        return jnp.sum(jnp.sin(out))

    return loss, start


def dense_formula(q, k, v, score, p, x, mask):
    dots = jnp.einsum("hqd,hkd->hqk", q, k) / jnp.sqrt(float(q.shape[-1]))
    weights = jax.nn.softmax(jnp.where(mask[None], quadratic(jnp, score, dots, p, x), -jnp.inf), -1)
    return jnp.einsum("hqk,hkd->hqd", weights, v)


def rbf(a):
    bias = RBFNetwork(TIME, heads=1, basis=2)
    return AdditiveScore(eqx.tree_at(lambda b: (b.weight, b.log_rate), bias, (a["weight"], a["rate"])))


def twice_reverse(f):
    return jax.jacrev(jax.jacrev(f))


@pytest.mark.parametrize(("entry", "way"), [("scan", twice_reverse), ("dense", jax.hessian), ("dense", twice_reverse)])
def test_a17_second_derivatives(entry, way):
    """By every pair of inputs, the bias's parameters and both index sets among them."""

    def attention(q, k, v, score, p, x, mask):
        return ENTRIES[entry](q, k, v, score=score, q_index={"t": p}, k_index={"t": x}, mask=mask, tile=(1, 2))

    loss, start = second(attention, rbf)
    with jax.enable_x64(True):
        formula, same = second(dense_formula, lambda a: {"weight": a["weight"], "rate": a["rate"]})
        exact = np.asarray(jax.jit(jax.hessian(formula))(jnp.asarray(np.asarray(start, np.float64))))
        assert same.shape == start.shape
    close(jax.jit(way(loss))(start), exact, times=5)


def test_second_derivative_with_some_inputs_fixed():
    """A gradient penalty: only coordinates are differentiated first, then only the score."""
    (q, k, v, slope), rest = draw(38, N_Q, N_K), sloped_inputs(38)

    def penalty(attention):
        def of(learned):
            def inner(p):
                index = {"q_index": p, "k_index": rest["k_index"]}
                return jnp.sum(slope * attention(q, k, v, score=Score(learned, sloped), **index, tile=TILE))

            return jnp.sum(jax.grad(inner)(rest["q_index"]) ** 2)

        return jax.jit(jax.grad(of))(rest["score"].learned)

    step, at = 1e-5, np.asarray(rest["score"].learned, np.float64)

    def exact(learned):
        score = Score(learned, sloped)
        return np.sum(oracle(q, k, v, slope, formula=own, **rest | {"score": score}).q_index ** 2)

    expected = [(exact(at + step * e) - exact(at - step * e)) / (2 * step) for e in np.eye(2)]
    for attention in ENTRIES.values():
        np.testing.assert_allclose(penalty(attention), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", ["rbf", "exponential", "linear", "geodesic", "sum"])
def test_b1_gradients_are_finite_where_everything_coincides(entry, name):
    case, four = CASES[name], draw(39, N_Q, N_K)
    p, x = jax.tree.map(lambda a: jnp.zeros_like(a) + 1.5, points(39, N_Q, N_K))
    inputs = {"score": AdditiveScore(case.bias()), "q_index": p, "k_index": x, "mask": jnp.ones((N_Q, N_K), bool)}
    actual = answer(ENTRIES[entry], *four, **inputs, tile=TILE)
    close(actual, oracle(*four, formula=case.scores, **inputs), times=10)
    for leaf in jax.tree.leaves((actual.q_index, actual.k_index)):
        np.testing.assert_array_equal(leaf, 0.0)


@pytest.mark.parametrize("argument", [0, 2])
def test_a17_second_derivatives_without_a_score(argument):
    """Of plain attention, which has no bias and no index sets to differentiate."""
    four = draw(39, 2, 3, heads=1, dim=2, value=1)[:3]

    def loss(attention):
        def of(x):
            return jnp.sum(jnp.sin(attention(*four[:argument], x, *four[argument + 1 :])))

        return jax.jit(twice_reverse(of))(four[argument])

    close(loss(lambda *a: ENTRIES["scan"](*a, tile=(1, 2))), loss(ENTRIES["dense"]), times=5)
