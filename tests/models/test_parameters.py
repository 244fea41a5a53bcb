"""Sizes of the paper's models, and parameters that learn to differ."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bsatnp import bias
from bsatnp.groups import On, TimeShift, Translation
from bsatnp.layers import MLP, Identity, LayerNorm, TokenEmbedding
from bsatnp.layers.convolution import DepthwiseConvolution
from bsatnp.models import BSATNP
from bsatnp.models.base import count_parameters
from bsatnp.tasks import Points
from tests.registry import bsatnp, convcnp, tetnp, tnpd


def test_the_papers_model_of_the_plane():
    model = BSATNP(bias=bias.RBFNetwork(On("s", Translation(2))), key=jax.random.key(0))
    assert count_parameters(model) == 475_770
    # six blocks, four heads, five bases of two numbers
    assert count_parameters(model.bias) == 6 * 4 * 5 * 2


def test_the_papers_model_of_covariates_space_and_time():
    both = bias.Sum(bias.RBFNetwork(On("s", Translation(2)), basis=5), bias.RBFNetwork(On("t", TimeShift()), basis=3))
    embed = {"x": Identity(2), "s": Identity(2), "t": Identity(1)}
    model = BSATNP(embed={**embed, "x": Identity(3)}, bias=both, key=jax.random.key(0))
    assert count_parameters(model) == 477_450
    # the paper's "384 additional learnable parameters"
    assert count_parameters(model.bias) == 384
    assert dict(model.embedded) == {"x": 3, "s": 2, "t": 1}
    assert model.shift_invariant == frozenset()


class Wave(eqx.Module):
    """An embedding of a user's own."""

    n_in: int
    n_out: int
    make: Callable

    def __call__(self, x):
        return self.make(x)


@pytest.mark.parametrize("make", [bsatnp, tnpd, tetnp, convcnp])
def test_what_is_no_embedding_is_refused(make):
    must = r"`embed\['x'\]` must be a module \(point, n_in\) → \(point, n_out\) with attributes n_in and n_out, .* got "
    for part, got in (
        (jnp.sin, "sin without these"),
        (eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), "MLP without these"),
        (Wave(2, 3, jnp.sin), r"Wave, which makes \(2, 2\) of \(2, 2\) where n_out is 3"),
        (Wave(2, 2, lambda x: x @ jnp.ones((3, 2))), r"Wave, which does not take \(2, 2\)"),
    ):
        with pytest.raises(ValueError, match=must + got):
            eqx.filter_eval_shape(lambda part=part: make(embed={"x": part}))
    wave = Wave(2, 4, lambda x: jnp.concatenate([x, jnp.sin(x)], -1))
    made = eqx.filter_eval_shape(lambda: make(embed={"x": wave}))
    assert made.embedded["x"] == 2


def test_what_layers_give_has_the_size_of_what_they_take_at_the_start():
    """Wide or narrow; biases are zero. The embedding of the flag has length one whatever its width."""
    key = jax.random.key(0)
    for n_in, n_out in ((8, 900), (900, 8), (90, 90)):
        (layer,) = MLP(n_in, (n_out,), key=key).layers
        assert float(layer.weight.std()) == pytest.approx(n_in**-0.5, rel=0.05)
        np.testing.assert_array_equal(layer.bias, 0)
    flag = TokenEmbedding({}, 1, flag=900, sizes=(1,), key=key).flag
    assert flag is not None
    np.testing.assert_allclose(np.linalg.norm(flag, axis=1), 1, rtol=0.1)
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(30, 40, 20)), float)
    assert float(DepthwiseConvolution(20, (5, 3), key=key)(noise).std()) == pytest.approx(1, rel=0.15)


def test_a_norm_of_small_numbers_in_float64(x64):
    """As small as the root of its epsilon, which is that of the reference models."""
    x = np.random.default_rng(0).normal(0, 1e-3, size=(4, 8))
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(LayerNorm(8)(jnp.asarray(x, float)), expected, atol=1e-12 if x64 else 1e-5)


def test_blocks_start_different_and_biases_equal():
    model = bsatnp(bias.RBFNetwork(On("s", Translation(2)), heads=2))
    query = np.asarray(model.blocks.attention.query.weight)
    assert query.shape[0] == 2 and np.abs(query[0] - query[1]).max() > 0.1
    assert isinstance(model.bias, bias.RBFNetwork)
    np.testing.assert_array_equal(model.bias.weight[0], model.bias.weight[1])


RNG = np.random.default_rng(3)
S, F = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 1))


@eqx.filter_jit
def train(model, steps):
    """A few steps on one task, in one compiled function."""
    optimizer = optax.adam(1e-2)
    s, f = jnp.asarray(S, float), jnp.asarray(F, float)
    ctx, tgt = Points({"s": s[:8]}, f[:8]), Points({"s": s[8:]})
    arrays, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(arrays):
        return -eqx.combine(arrays, static)(ctx, tgt).log_prob(f[8:]).sum()

    def step(state, _):
        arrays, optimizer_state = state
        value, grads = jax.value_and_grad(loss)(arrays)
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes types
            updates, optimizer_state = optimizer.update(grads, optimizer_state, arrays)
        return (optax.apply_updates(arrays, updates), optimizer_state), value

    (arrays, _), values = jax.lax.scan(step, (arrays, optimizer.init(arrays)), None, length=steps)
    return eqx.combine(arrays, static), values


@pytest.fixture(scope="module")
def trained():
    """A model after a few steps, and the same model when its bases start equal."""
    model = bsatnp(bias.RBFNetwork(On("s", Translation(2)), heads=2, basis=3))
    where = lambda m: m.blocks.attention.score.bias.log_rate  # noqa: E731
    equal = eqx.tree_at(where, model, jnp.ones_like(where(model)))
    return [train(one, 8) for one in (model, equal)]


def gaps(array):
    """The smallest difference between two bases of one head."""
    values = np.asarray(array)
    return min(np.abs(values[..., i] - values[..., j]).min() for i in range(3) for j in range(i))


def test_bases_that_start_apart_stay_apart_and_learn(trained):
    (model, losses), _ = trained
    assert losses[-1] < losses[0]
    assert gaps(model.bias.weight) > 1e-6  # all of them started at 1
    assert gaps(model.bias.log_rate) > 0.1
    assert np.abs(np.asarray(model.bias.weight) - 1).min() > 1e-3


def test_bases_that_start_equal_stay_equal(trained):
    _, (model, losses) = trained
    assert losses[-1] < losses[0]
    assert gaps(model.bias.weight) == 0 and gaps(model.bias.log_rate) == 0
    assert np.abs(np.asarray(model.bias.weight) - 1).min() > 1e-3


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            lambda: bias.RBFNetwork(Translation(2)),
            r'`bias` must act on a component .* as with `On\("s", group\)`, got Translation',
        ),
        (
            lambda: bias.RBFNetwork(On("s", Translation(2)), heads=2),
            "`bias` must give 4 heads, or one score for all of them, got 2",
        ),
        (
            lambda: bias.MLPBias(On("s", Translation(2)), dim=1, key=jax.random.key(0)),
            "`dim` must be 2, the number of invariants",
        ),
    ],
)
def test_a_bias_that_does_not_fit_is_refused_when_the_model_is_made(made, says):
    with pytest.raises(ValueError, match=says):
        BSATNP(bias=made(), key=jax.random.key(0))
