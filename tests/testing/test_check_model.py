"""The law checker of models finds models that do not treat points as sets."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from bsatnp.groups import On, Translation
from bsatnp.likelihoods import AbstractHead, CategoricalHead, GaussianHead, PoissonHead
from bsatnp.models import AbstractModel
from bsatnp.tasks import Points
from bsatnp.testing import LawError, check_model, keys, perturbed
from tests.models.convcnp_oracle import small


class Nearby(AbstractModel):
    """A kernel smoother, invariant under shifts; `fault` names what is wrong with it."""

    weight: jax.Array
    fault: str = eqx.field(static=True, default="")
    head: AbstractHead = eqx.field(default_factory=GaussianHead)

    @property
    def embedded(self):
        return {}

    @property
    def groups(self):
        return (On("s", Translation(2)),)

    def condition(self, ctx) -> Any:
        return Smoother(self, ctx)


class Smoother(eqx.Module):
    model: Nearby
    ctx: Points

    def __call__(self, tgt):
        ctx, fault = self.ctx, self.model.fault
        keep = {"padding": jnp.ones_like(ctx.usable), "missing": ctx.mask}.get(fault, ctx.usable)
        keep = keep[:, None]
        s, f = (jnp.where(keep, x, jnp.zeros_like(x)) for x in (ctx.index["s"], self.model.head.encode(ctx.f)))
        square = ((tgt.index["s"][:, None] - s[None]) ** 2).sum(-1)
        f = f.astype(s.dtype)
        weight = jnp.exp(-(jnp.sqrt(square) if fault == "gradient" else square)) * keep.T.astype(f.dtype)
        if fault == "order":
            weight = weight * jnp.arange(1.0, 1 + len(s))[None]
        if fault == "targets":
            weight = weight + square.sum()
        if fault == "count":
            weight = weight / len(tgt)
        if fault == "wanted":
            weight = weight * tgt.mask.mean()
        if fault == "missing":
            weight = weight / (1 + weight.sum(1, keepdims=True))
        if fault == "place":
            weight = weight * (1 + tgt.index["s"][:, :1] ** 2)
        level = weight @ f[:, :1] + self.model.weight
        if fault == "prior":
            level = level + f.sum() / keep.sum().astype(f.dtype)
        raw = jnp.tile(level, (1, self.model.head.raw))
        return self.model.head(raw[::-1] if fault == "reversed" else raw)


GROUP = On("s", Translation(2))


@pytest.mark.parametrize("head", [GaussianHead(), CategoricalHead(3), PoissonHead()])
def test_a_right_model_passes(head):
    check_model(Nearby(weight=jnp.zeros(()), head=head), GROUP)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("place", r"model\(g·ctx, g·tgt\) = model\(ctx, tgt\)"),
        ("order", "the order of the context does not matter"),
        ("reversed", "targets come in the caller's order"),
        ("targets", "targets do not see one another"),
        ("count", "targets do not see one another"),
        ("padding", "padding does not matter"),
        ("wanted", "padding does not matter"),
        ("missing", "a row without an observed value is no context"),
        ("prior", "without context predictions and gradients are finite"),
        ("gradient", "gradients are finite"),
    ],
)
def test_every_law_has_a_model_that_breaks_it(fault, law):
    with pytest.raises(LawError, match=law) as found:
        check_model(Nearby(weight=jnp.zeros(()), fault=fault), GROUP if fault == "place" else None)
    assert {"seed", "ctx", "f", "tgt"} <= set(found.value.case)


def test_shifts_that_a_model_claims_are_tried_without_a_group():
    """`predict` moves the coordinates of components that a model calls shift invariant."""
    with pytest.raises(LawError, match="a common shift of 's' does not matter"):
        check_model(Nearby(weight=jnp.zeros(()), fault="place"))


class Closure(Nearby):
    """A kernel smoother whose condition gives a function instead of a pytree."""

    def condition(self, ctx) -> Any:
        smoother = Smoother(self, ctx)
        return lambda tgt: smoother(tgt)


def test_what_condition_gives_must_be_a_pytree():
    with pytest.raises(LawError, match="what `condition` gives goes through jit"):
        check_model(Closure(weight=jnp.zeros(())))


def test_the_case_is_simple_and_the_fault_clear():
    with pytest.raises(LawError) as found:
        check_model(Nearby(weight=jnp.zeros(()), fault="place"), GROUP, sets=False)
    case = found.value.case
    assert found.value.deviation > 100 * found.value.allowed
    numbers = np.concatenate(
        [np.asarray(leaf).ravel() for leaf in jax.tree.leaves((case["ctx"], case["tgt"], case["f"]))]
    )
    assert (numbers == 0).mean() > 0.6


def test_parameters_that_start_at_zero_hide_nothing():
    class Hidden(eqx.Module):
        inner: Nearby
        weight: jax.Array

    hidden = Hidden(Nearby(weight=jnp.zeros(())), jnp.zeros(3))
    moved = perturbed(hidden, key=jax.random.key(0))
    assert float(jnp.abs(moved.weight).min()) > 0
    assert moved.inner.head == hidden.inner.head


@settings(max_examples=3)
@given(keys())
def test_perturbed_moves_every_number_once(key):
    tree = {"a": jnp.zeros((20, 30)), "b": jnp.ones(400), "whole": jnp.arange(3), "rest": "text"}
    moved = perturbed(tree, scale=0.5, key=key)
    noise = np.concatenate([np.ravel(moved["a"]), np.asarray(moved["b"]) - 1])
    assert len(np.unique(noise)) > 990
    assert noise.std() == pytest.approx(0.5, rel=0.15)
    np.testing.assert_array_equal(moved["whole"], [0, 1, 2])
    assert moved["rest"] == "text" and moved["a"].dtype == tree["a"].dtype


def test_perturbed_leaves_running_statistics_alone():
    """A variance that is moved below zero has no square root, in a model that is right."""
    model = small()
    tiny = eqx.tree_at(lambda m: m.blocks.norms[0].running.variance, model, replace_fn=lambda v: 1e-4 * v)
    moved = perturbed(tiny, key=jax.random.key(0))
    assert eqx.tree_equal(moved.blocks.norms[0].running, tiny.blocks.norms[0].running)
    assert not eqx.tree_equal(moved, tiny)


def test_groups_on_bare_points_are_refused():
    with pytest.raises(ValueError, match=r'`group` must act on components of an index set, as `On\("s", group\)` does'):
        check_model(Nearby(weight=jnp.zeros(())), Translation(2))


@pytest.mark.parametrize("scale", [1e5, 1e6])
def test_shifts_in_metres_are_no_fault(scale):
    class Far(Nearby):
        """Nearby, of places in 1,000 km."""

    check_model(Far(weight=jnp.zeros(())), On("s", Translation(2, scale)), sets=False)
