"""What a model keeps, other types, other likelihoods; what every model has to do is in `test_every_model`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, TimeShift
from bsatnp.joint import joint_samples
from bsatnp.layers import Identity
from bsatnp.likelihoods import AbstractHead, CategoricalHead, GaussianHead, NegativeBinomialHead, PoissonHead
from bsatnp.models import AbstractModel
from bsatnp.predict import predict
from bsatnp.tasks import Points
from bsatnp.testing import perturbed
from tests.registry import arrays, bsatnp, close, invariant_model

RNG = np.random.default_rng(4)
CALL = eqx.filter_jit(lambda model, ctx, tgt: model(ctx, tgt))


def task(seed=0, *, n_ctx=5, n_tgt=3, f=None):
    rng = np.random.default_rng(seed)
    s, x, values = (jnp.asarray(rng.normal(size=(n_ctx + n_tgt, dim)), float) for dim in (2, 2, 1))
    values = values if f is None else jnp.asarray(f, float)
    return Points({"s": s[:n_ctx], "x": x[:n_ctx]}, values[:n_ctx]), Points({"s": s[n_ctx:], "x": x[n_ctx:]})


@pytest.fixture(scope="module")
def model():
    return perturbed(invariant_model("Translation"), key=jax.random.key(0))


def test_keys_and_values_of_the_context_are_all_that_is_kept(model):
    """Conditioning does the work of the context: what it holds grows with the context alone, not with its square."""
    sizes = []
    for n in (8, 16):
        ctx, _ = task(n_ctx=n)
        kept = jax.eval_shape(lambda ctx: model.condition(ctx), ctx)
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(kept, lambda x: hasattr(x, "size")))))
    extra = sizes[1] - sizes[0]
    assert extra == 8 * (2 * 2 * 16 + 2 + 1)  # keys and values of two blocks, two coordinates, one mask


def test_calls_of_one_size_are_compiled_once(monkeypatch):
    """Called as it is, outside `jax.jit`."""
    model, calls = bsatnp(embed={"s": Identity(2)}), []
    condition = type(model).condition
    monkeypatch.setattr(type(model), "condition", lambda self, ctx: calls.append(len(ctx)) or condition(self, ctx))
    first, second = (model(*task(seed)) for seed in (0, 1))
    assert calls == [5] and not close(first, second, atol=1e-6)


def test_host_coordinates_are_centred_where_values_are_traced():
    """A gradient with respect to the context's values alone, at Unix seconds, dates and near zero."""
    model = bsatnp(RBFNetwork(On("t", TimeShift()), heads=2))
    steps, f = 30 * np.arange(6)[:, None], jnp.asarray(RNG.normal(size=(4, 1)), float)

    def slope(t):
        ask = Points({"t": t[4:]})
        return jax.grad(lambda f: model(Points({"t": t[:4]}, f), ask).mean.sum())(f)

    expected = slope(steps.astype(float))
    for t in (1.7e9 + steps, 1_700_000_000 + steps, np.datetime64("2023-11-14", "s") + steps):
        np.testing.assert_allclose(slope(t), expected, rtol=1e-4, atol=1e-6)


def test_what_a_model_does_not_look_at_may_hold_anything(model):
    """Conditioned by hand, without `predict`: times that float32 cannot tell apart, dates."""
    ctx, tgt = task()
    expected = CALL(model, ctx, tgt)
    for times in (1.7e9 + np.arange(8.0)[:, None], np.datetime64("2024-01-01") + np.arange(8)[:, None]):
        full = Points({**ctx.index, "t": times[:5]}, ctx.f), Points({**tgt.index, "t": times[5:]})
        assert close(model.condition(full[0])(full[1]), expected)


def test_groups_come_out_of_the_stack_of_blocks():
    class Ball(eqx.Module):
        radius: jax.Array
        dim = 2

        def invariants(self, p, q):
            return (p - q) / self.radius

        def check(self, points):
            if (np.abs(points) > self.radius).any():
                raise ValueError("`points` must lie within the radius.")

    model = bsatnp(RBFNetwork(On("s", Ball(jnp.asarray(9.0))), heads=2))
    assert model.groups[0].group.radius.shape == ()
    ctx, tgt = task()
    model.check_task(ctx, tgt)
    with pytest.raises(ValueError, match="within the radius"):
        model.check(Points({"s": 10 * np.ones((1, 2))}))


def test_half_precision(model):
    """bfloat16 parameters: finite, a likelihood in float32, near the full one."""
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf, model)
    ctx, tgt = task()
    got, expected = CALL(half, ctx, tgt), CALL(model, ctx, tgt)
    assert got.mean.dtype == jnp.float32
    assert all(np.isfinite(leaf).all() for leaf in arrays(got))
    assert not close(got, expected, atol=1e-6)
    assert close(got, expected, atol=0.15)


def test_types_follow_the_parameters(model, x64):
    likelihood = CALL(model, *task())
    assert likelihood.mean.dtype == (jnp.float64 if x64 else jnp.float32)
    if x64:
        single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, model)
        got = CALL(single, *task())
        assert got.mean.dtype == jnp.float32 and close(got, likelihood)


@pytest.mark.parametrize(
    ("head", "f", "shape"),
    [
        (GaussianHead(2), None, (3, 2)),
        (CategoricalHead(3), [[0], [2], [1], [2], [1], [0], [0], [0]], (3, 1, 3)),
        (PoissonHead(), [[0], [20], [1], [3], [2], [0], [0], [0]], (3, 1)),
        (NegativeBinomialHead(), [[0], [20], [1], [3], [2], [0], [0], [0]], (3, 1)),
    ],
)
def test_other_likelihoods(head, f, shape):
    f = np.random.default_rng(0).normal(size=(8, 2)) if f is None else f
    model = perturbed(bsatnp(embed={"s": Identity(2)}, head=head), key=jax.random.key(1))
    ctx, tgt = task(f=f)
    likelihood = CALL(model, ctx, tgt)
    leaves = jax.tree.leaves(likelihood)
    assert all(leaf.shape == shape for leaf in leaves)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in leaves)
    score = likelihood.log_prob(jnp.asarray(f, float)[5:])
    assert score.shape == (3, head.out) and np.isfinite(np.asarray(score)).all()
    # the values of the context are seen
    other = eqx.tree_at(lambda ctx: ctx.f, ctx, ctx.f[::-1])
    assert not close(CALL(model, other, tgt), likelihood, atol=1e-5)
    if isinstance(head, CategoricalHead):
        np.testing.assert_allclose(np.asarray(likelihood.probs).sum(-1), 1, rtol=1e-5)
    else:
        assert (np.asarray(likelihood.variance) > 0).all()


def test_a_component_that_is_not_looked_at_may_hold_anything(model):
    """Dates and numbers that float32 does not tell apart, which would be refused in a component that counts."""
    ctx, tgt = task()
    expected = CALL(model, ctx, tgt)
    for many in (1.7e9 + np.arange(8.0), np.datetime64("2026-01-01") + np.arange(8) * np.timedelta64(30, "s")):
        both = [Points(p.index | {"id": many[rows, None]}, p.f) for p, rows in ((ctx, slice(0, 5)), (tgt, slice(5, 8)))]
        assert close(model(*both), expected) and close(predict(model, *both), expected)
    assert joint_samples(model, *both, samples=2, key=jax.random.key(0), chunk=2).shape == (2, 3, 1)


def test_conditioning_on_host_arrays_refuses_what_would_coincide(model):
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        pytest.skip("with x64 a device keeps what the host has")
    ctx, _ = task()
    far = Points({name: np.asarray(value, np.float64) + 5e8 for name, value in ctx.index.items()}, np.asarray(ctx.f))
    with pytest.raises(ValueError, match="loses differences"):
        model.condition(far)


def test_values_are_checked_where_another_output_is_missing():
    model = bsatnp(embed={"s": Identity(2)}, head=PoissonHead(2))
    ctx = Points({"s": np.zeros((2, 2))}, np.array([[1.0, 2.0], [0.0, np.nan]]))
    model.check(ctx)
    with pytest.raises(ValueError, match="`f` must hold whole numbers from 0 up"):
        model.check(Points(ctx.index, np.array([[1.0, 2.0], [-1.0, np.nan]])))


def test_one_of_two_outputs_missing_drops_the_row():
    """C1."""
    model = perturbed(bsatnp(embed={"s": Identity(2)}, head=GaussianHead(2)), key=jax.random.key(1))
    rng = np.random.default_rng(2)
    s, f = rng.normal(size=(8, 2)), rng.normal(size=(5, 2))
    f[1, 0] = np.nan
    keep = np.arange(5) != 1
    tgt = Points({"s": jnp.asarray(s[5:], float)})
    hidden = Points({"s": s[:5]}, f)
    assert hidden.n_missing == 1
    hidden, dropped = (jax.tree.map(device, one) for one in (hidden, Points({"s": s[:5][keep]}, f[keep]).pad(5)))
    assert close(CALL(model, hidden, tgt), CALL(model, dropped, tgt))


def device(leaf):
    return jnp.asarray(leaf, float) if leaf.dtype.kind == "f" else jnp.asarray(leaf)


def test_a_model_of_ones_own_needs_three_members():
    class Prior(AbstractModel):
        head: AbstractHead = eqx.field(default_factory=GaussianHead)

        @property
        def embedded(self):
            return {}

        @property
        def groups(self):
            return ()

        def condition(self, ctx):
            return lambda tgt: self.head(jnp.zeros((len(tgt), self.head.raw)))

    likelihood = Prior()(*task())
    assert likelihood.mean.shape == (3, 1)
    with pytest.raises(TypeError, match="abstract"):
        AbstractModel()  # pyright: ignore
