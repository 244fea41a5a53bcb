"""Many tasks at once, and contexts so long that no matrix of all pairs may ever be held: every model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.predict import predict
from bsatnp.tasks import Points
from tests.largest import largest
from tests.registry import MODELS


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Memory is that of optimised code."""


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param][0]()


def spec(*lead):
    """Shapes of points on "s" and "t" with values."""
    kind = jnp.zeros(()).dtype
    array = lambda dim: jax.ShapeDtypeStruct((*lead, dim), kind)  # noqa: E731
    seen = {"mask": jax.ShapeDtypeStruct(lead, bool), "observed": jax.ShapeDtypeStruct((*lead, 1), bool)}
    return {"s": array(2), "t": array(1)}, array(1), seen


def bare(index, f, seen):
    """Points of traced arrays."""
    return Points(index, f, **seen)


def test_a20_a_batch_takes_no_more_memory_than_its_tasks(model):
    """Temporary memory of `vmap` over eight tasks, compiled, within twice that of eight calls."""
    arrays, static = eqx.partition(model, eqx.is_array)

    def one(arrays, ctx, tgt):
        return jax.tree.leaves(eqx.combine(arrays, static)(bare(*ctx), bare(*tgt)))

    def temporary(call, *lead):
        shapes = spec(*lead, 96), spec(*lead, 64)
        analysis = jax.jit(call).lower(arrays, *shapes).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    alone, batch = temporary(one), temporary(jax.vmap(one, (None, 0, 0)), 8)
    assert batch < 2 * 8 * alone, (batch, alone)


@pytest.mark.parametrize(("n_ctx", "n_tgt"), [(100_000, 4096)])
def test_d10_a_long_context_and_its_targets_are_never_all_paired(model, n_ctx, n_tgt):
    """The largest array of the traced program, far below context × targets and context × context."""
    arrays, static = eqx.partition(model, eqx.is_array)

    def call(arrays, ctx, tgt):
        return jax.tree.leaves(eqx.combine(arrays, static)(bare(*ctx), bare(*tgt)))

    held = largest(jax.make_jaxpr(call)(arrays, spec(n_ctx), spec(n_tgt)))
    # a fixed number for each point (tokens; cells of a small grid), or one tile
    assert held < n_ctx * n_tgt / 20, held
    assert largest(jax.make_jaxpr(call)(arrays, spec(2 * n_ctx), spec(n_tgt))) <= 2 * held


def test_d5_twenty_sizes_share_their_compilations(model):
    """Contexts of 20 sizes up to 40 and targets of 20 sizes: four sizes of contexts, one chunk of targets."""
    traces = []

    class Counted(type(model)):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
        def condition(self, ctx):
            traces.append(len(ctx))
            return lambda tgt: self.head(jnp.zeros((len(tgt), self.head.raw)))

    counted = object.__new__(Counted)
    for name, value in vars(model).items():
        object.__setattr__(counted, name, value)
    rng = np.random.default_rng(0)
    for n in range(2, 42, 2):
        index = {"s": rng.normal(size=(n, 2)), "t": rng.normal(size=(n, 1))}
        predict(counted, Points(index, rng.normal(size=(n, 1))), Points(index), chunk=16)
    assert sorted(set(traces)) == [16, 24, 32, 48] and len(traces) == 4
