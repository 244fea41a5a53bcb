"""What a model refuses, in one sentence each."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import bias
from bsatnp.groups import On, Permutation, Translation
from bsatnp.layers import MLP, Identity, MultiHeadAttention
from bsatnp.likelihoods import CategoricalHead, GaussianHead, NegativeBinomialHead, PoissonHead
from bsatnp.tasks import Points
from tests.registry import GROUPS, bsatnp, every_group

S, F = np.zeros((4, 2)), np.zeros((4, 1))


def rbf(group):
    return bias.RBFNetwork(group, heads=2)


class Elsewhere(bias.AbstractGroupBias):
    """A bias that looks at a component which its group says nothing of."""

    group: Any

    def __call__(self, p, q):
        return self.invariants(p, q)[:1] * p["x"][:1]


@pytest.fixture(scope="module")
def model():
    return bsatnp(rbf(On("s", Translation(2))), embed={"x": Identity(3)})


X = np.zeros((4, 3))


@pytest.mark.parametrize("head", [GaussianHead(2), CategoricalHead(2), PoissonHead()])
def test_a_head_of_other_widths_than_the_networks_is_refused(model, head):
    other = eqx.tree_at(lambda m: m.head, model, head)
    says = rf"`head` must have \(features, raw\) = \(1, 2\), .* got {type(head).__name__} with "
    with pytest.raises(ValueError, match=says):
        other(Points({"s": S, "x": X}, F), Points({"s": S, "x": X}))
    eqx.tree_at(lambda m: m.head, model, NegativeBinomialHead()).check(Points({"s": S, "x": X}, F))


@pytest.mark.parametrize(
    ("points", "says"),
    [
        (
            lambda: Points({"s": S[None], "x": X[None]}, F[None]),
            r"one task with axes \(point, dim\), got batch axes \(1,\); use jax.vmap\(model\)\(ctx, tgt\)",
        ),
        (lambda: Points({"s": S}, F), r"`index` must have components \['s', 'x'\], got \['s'\]"),
        (lambda: Points({"x": X}, F), r"`index` must have components \['s', 'x'\], got \['x'\]"),
        (lambda: Points({"s": S, "x": S}, F), r"Component 'x' must have shape \(point, 3\), got \(4, 2\)"),
        (lambda: Points({"s": X, "x": X}, F), r"Component 's' must have shape \(point, 2\), got \(4, 3\)"),
        (lambda: Points({"s": S, "x": X}, np.zeros((4, 2))), r"`f` must have 1 outputs, got 2"),
    ],
)
def test_points_that_do_not_fit(model, points, says):
    with pytest.raises(ValueError, match=says):
        model.check(points())
    good = Points({"s": S, "x": X}, F)
    with pytest.raises(ValueError, match=says):
        model(good, points()) if "f` must" not in says else model(points(), good)
    # shapes are seen under jit as well
    with pytest.raises(ValueError, match=says):
        jax.eval_shape(lambda points: model.check(points), points())


def test_a_context_without_values(model):
    with pytest.raises(ValueError, match="`ctx` must carry observed values `f`, got None"):
        model(Points({"s": S, "x": X}), Points({"s": S, "x": X}))


def test_components_of_targets_that_the_context_lacks(model):
    with pytest.raises(
        ValueError, match=r"`tgt` must have the components of `ctx` \['s', 'x'\], got \['s', 'x', 'y'\]"
    ):
        model(Points({"s": S, "x": X}, F), Points({"s": S, "x": X, "y": S}))


@pytest.mark.parametrize(
    ("name", "good", "bad", "says"),
    [
        ("SO3", [[200.0, -90.0]], [[0.0, 91.0]], "the second column goes up to 91, beyond 90"),
        ("SO3 unit vectors", [[0.0, 0.6, 0.8]], [[0.0, 0.0, 2.0]], "must be unit vectors"),
        ("Scaling", [[0.1, 2.0]], [[1.0, -1.0]], "must be positive, got -1"),
        ("Permutation", [[4.0]], [[5.0]], "must be codes 0 … 4"),
    ],
)
def test_points_that_a_group_does_not_take(name, good, bad, says):
    model = every_group()
    rest = {other: np.zeros((2, entry.width)) + (entry.width, 1)[other == "Scaling"] for other, entry in GROUPS.items()}
    rest |= {"x": np.zeros((2, 2)), "SO3": np.zeros((2, 2)), "SO3 unit vectors": np.eye(3)[:2]}
    fine = Points({**rest, name: np.concatenate([np.asarray(good)] * 2)})
    model.check(fine)
    both = {**rest, name: np.concatenate([np.asarray(good), np.asarray(bad)])}
    with pytest.raises(ValueError, match=says):
        model.check(Points(both))
    # not where they are masked
    model.check(Points(both, mask=np.array([True, False])))


@pytest.mark.parametrize(
    ("head", "f", "says"),
    [
        (CategoricalHead(3), [[3.0], [0.0]], "must hold labels from 0 to 2, got 3"),
        (PoissonHead(), [[-1.0], [0.0]], "got -1"),
    ],
)
def test_values_that_the_likelihood_does_not_take(head, f, says):
    model = bsatnp(embed={"s": Identity(2)}, head=head)
    with pytest.raises(ValueError, match=says):
        model.check(Points({"s": S[:2]}, np.asarray(f)))
    # a value that was not observed is no value
    model.check(Points({"s": S[:2]}, np.asarray(f), observed=np.array([[False], [True]])))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: bsatnp(depth=0), "`depth` must be at least 1, got 0"),
        (lambda: bsatnp(heads=3), "`heads` must divide the width of attention 16, got 3"),
        (lambda: bsatnp(heads=0), "`heads` must be at least 1, got 0"),
        (lambda: bsatnp(heads=2.0), "`heads` must be a whole number, got 2.0"),
        (lambda: bsatnp(width=0), "`width` must be at least 1, got 0"),
        (lambda: MultiHeadAttention(0, heads=2, width=8, key=jax.random.key(0)), "`dim` must be at least 1, got 0"),
        (lambda: bsatnp(flag=-1), "`flag` must be at least 0, got -1"),
        (lambda: bsatnp(dim=0), "`sizes` must be at least 1, got 0"),
        (lambda: bsatnp(hidden=0), "`sizes` must be at least 1, got 0"),
        (lambda: bsatnp(Elsewhere(On("s", Translation(2)))), r"groups alone, \['s'\], got one that needs 'x'"),
        (lambda: MLP(2, (), key=jax.random.key(0)), "`sizes` must be the widths of one layer or more"),
        (lambda: MLP(2, 8, key=jax.random.key(0)), "`sizes` must be the widths of one layer or more, got 8"),  # pyright: ignore
    ],
)
def test_sizes_that_do_not_fit(make, says, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=says):
        make()


def test_device_points_are_checked_too(model):
    with pytest.raises(ValueError, match=r"Component 'x' must have shape \(point, 3\)"):
        model(
            Points({"s": jnp.zeros((4, 2)), "x": jnp.zeros((4, 1))}, jnp.zeros((4, 1))), Points({"s": S, "x": X[:, :1]})
        )


def test_whole_numbers_that_an_embedding_would_merge_are_refused(model):
    """What a group alone looks at stays whole."""
    far = Points({"s": S, "x": 1_700_000_000 + np.arange(4)[:, None] * np.ones((1, 3), int)}, F)
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        model.check(far)
        return
    with pytest.raises(ValueError, match="Component 'x' loses differences of 1 in float32"):
        model.check(far)
    model.check(Points(far.index | {"x": far.index["x"] // 1_000_000}, F))
    model.check(Points(far.index, F, mask=np.arange(4) == 2))  # the others are hidden
    codes = bsatnp(rbf(On("id", Permutation(2**25))))
    codes.check(Points({"id": 2**25 - 4 + np.arange(4)[:, None]}, F))
