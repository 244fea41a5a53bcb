"""What holds for every row of the table: likelihoods, ways to call a model, what is kept, types."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.likelihoods import CategoricalHead, GaussianHead, NegativeBinomialHead, PoissonHead
from bsatnp.tasks import Points
from bsatnp.testing import perturbed
from tests.models.every import CTX, TGT, F, S, answer, of, pair, points
from tests.registry import TABLE, close


@pytest.fixture(scope="module", params=TABLE)
def model(request):
    return perturbed(TABLE[request.param].model, key=jax.random.key(3))


@pytest.mark.parametrize(
    "head", [GaussianHead(), GaussianHead(2), CategoricalHead(3), PoissonHead(), NegativeBinomialHead()], ids=repr
)
@pytest.mark.parametrize("name", TABLE)
def test_every_model_takes_every_likelihood(name, head):
    """Traced only: what a likelihood makes of the numbers is the same for every model."""

    def call(f):
        return TABLE[name].make(head=head)(Points(points(CTX).index, f), points(TGT))

    wanted = head(jnp.zeros((3, head.raw)))
    likelihood = eqx.filter_eval_shape(call, jnp.zeros((5, head.out)))
    assert type(likelihood) is type(wanted)
    assert [leaf.shape for leaf in jax.tree.leaves(likelihood)] == [leaf.shape for leaf in jax.tree.leaves(wanted)]


@eqx.filter_jit
def batched(model, ctx, tgt):
    """A batch in one call, and conditioned first: what is kept is a pytree that goes through transformations."""
    kept = jax.vmap(model.condition)(ctx)
    return jax.vmap(model)(ctx, tgt), jax.vmap(lambda kept, tgt: kept(tgt))(jax.tree.map(lambda x: x, kept), tgt)


def test_at_once_conditioned_first_or_in_a_batch(model):
    tasks = {"s": (S, S[::-1]), "f": (F, F[::-1] ** 2)}
    task = pair(**tasks)
    at_once, later = batched(model, task.ctx, task.tgt)
    assert close(at_once, later)
    for i in range(2):
        assert close(of(at_once, i), answer(model, **{name: both[i] for name, both in tasks.items()}))
    assert not close(of(at_once, 0), of(at_once, 1), atol=1e-4)


def test_what_is_kept_of_the_context_does_not_grow_with_its_square(model):
    def kept(n):
        index = {"s": np.zeros((n, 2)), "t": np.zeros((n, 1))}
        found = eqx.filter_eval_shape(lambda: model.condition(Points(index, np.zeros((n, 1)))))
        return sum(leaf.size for leaf in jax.tree.leaves(found) if hasattr(leaf, "size"))

    assert kept(24) - kept(16) == kept(16) - kept(8)


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float32])
def test_the_parameters_set_the_type(model, kind):
    """Traced with strict promotion: bfloat16 and float32 parameters give a likelihood in float32, x64 or not."""
    narrow = jax.tree.map(lambda leaf: leaf.astype(kind) if eqx.is_inexact_array(leaf) else leaf, model)
    task = of(pair(), 0)
    assert eqx.filter_eval_shape(lambda ctx, tgt: narrow(ctx, tgt), task.ctx, task.tgt).mean.dtype == jnp.float32
