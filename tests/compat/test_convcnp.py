"""The ConvCNP gives the numbers of the authors' package, given its parameters and running statistics."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.compat import from_dl4bi
from bsatnp.likelihoods import GaussianHead
from bsatnp.models import ConvCNP
from bsatnp.models.base import count_parameters
from bsatnp.tasks import Points

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference" / "convcnp_s2.npz"
COLLECTIONS = {"param": "params", "batch_stats": "batch_stats"}
CALL = eqx.filter_jit(lambda model, ctx, tgt: jax.vmap(model)(ctx, tgt))


@pytest.fixture(scope="module")
def arrays():
    if not REFERENCE.exists():
        pytest.skip(f"the reference vectors are not here: {REFERENCE.name} is distributed apart from the package")
    return dict(np.load(REFERENCE))


def nested(arrays):
    """All collections as nested dictionaries."""
    found: dict = {}
    for name, value in arrays.items():
        first, *parents = name.split("/")
        if first in COLLECTIONS:
            *parents, leaf = parents
            node = found.setdefault(COLLECTIONS[first], {})
            for parent in parents:
                node = node.setdefault(parent, {})
            node[leaf] = value
    return found


def build(arrays) -> ConvCNP:
    """A model with a floor that adds nothing to the standard deviation."""
    model = from_dl4bi(nested(arrays), head=GaussianHead(floor=1e-9))
    assert isinstance(model, ConvCNP)
    return model


@pytest.fixture(scope="module")
def model(arrays):
    return build(arrays)


def deviations(model, arrays):
    ctx = Points(
        {"s": jnp.asarray(arrays["in/s_ctx"])},
        jnp.asarray(arrays["in/f_ctx"]),
        mask=jnp.asarray(arrays["in/mask_ctx"]),
    )
    got = CALL(model, ctx, Points({"s": jnp.asarray(arrays["in/s_test"])}))
    pairs = ((got.mean, arrays["mu"]), (got.std, arrays["std"]))
    return [float(np.linalg.norm(np.asarray(a) - b) / np.linalg.norm(b)) for a, b in pairs]


def test_the_reference(model, arrays):
    assert count_parameters(model) == 503_173
    assert max(deviations(model, arrays)) < 1e-5


@pytest.mark.parametrize(
    "name",
    [
        "param/conv_net/ConvCNPBlock_3/Conv_2/kernel",
        "param/dec/log_lengthscale",
        "batch_stats/conv_net/ConvCNPBlock_5/BatchNorm_1/mean",
    ],
)
def test_one_moved_array_is_noticed(arrays, name):
    moved = build(arrays | {name: 1.5 * arrays[name] + 0.1})
    assert max(deviations(moved, arrays)) > 1e-4


def test_missing_and_unknown_names_are_listed(arrays):
    missing = "conv_net/ConvCNPBlock_2/Conv_1/bias"
    with pytest.raises(ValueError, match=missing):
        build({name: value for name, value in arrays.items() if name != f"param/{missing}"})
    with pytest.raises(ValueError, match=r"got \['dec/spare'\]"):
        build(arrays | {"param/dec/spare": np.zeros(3)})
    with pytest.raises(ValueError, match="batch_stats/conv_net/ConvCNPBlock_7/BatchNorm_0/mean"):
        from_dl4bi(nested(arrays)["params"])
    with pytest.raises(ValueError, match="must be among"):
        from_dl4bi(nested(arrays), groups={})
