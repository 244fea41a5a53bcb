"""Models here give the numbers of the authors' package, given its parameters."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.compat import from_dl4bi
from bsatnp.groups import Translation
from bsatnp.models.base import count_parameters
from bsatnp.tasks import Points

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference"


def load(name: str):
    path = REFERENCE / name
    if not path.exists():
        pytest.skip(f"the reference vectors are not here: {path.name} is distributed apart from the package")
    arrays = dict(np.load(path))
    params: dict = {}
    for key, value in arrays.items():
        if key.startswith("param/"):
            *parents, leaf = key.split("/")[1:]
            node = params
            for parent in parents:
                node = node.setdefault(parent, {})
            node[leaf] = value
    return arrays, params


def predict(model, arrays):
    ctx = Points(
        {"s": jnp.asarray(arrays["in/s_ctx"])},
        jnp.asarray(arrays["in/f_ctx"]),
        mask=jnp.asarray(arrays["in/mask_ctx"]),
    )
    return eqx.filter_jit(jax.vmap(model))(ctx, Points({"s": jnp.asarray(arrays["in/s_test"])}))


def deviation(ours, theirs) -> float:
    return float(np.linalg.norm(np.asarray(ours) - theirs) / np.linalg.norm(theirs))


def test_bsatnp_matches_the_reference():
    arrays, params = load("bsatnp_s2.npz")
    model = from_dl4bi(params, groups={"s": Translation(2)})
    assert count_parameters(model) == 475_770
    prediction = predict(model, arrays)
    assert deviation(prediction.mean, arrays["mu"]) < 1e-5
    assert deviation(prediction.std, arrays["std"]) < 1e-5


def test_one_moved_parameter_is_noticed():
    arrays, params = load("bsatnp_s2.npz")
    params["KRBlock_3"]["attn"]["attn"]["s_bias_b"] = params["KRBlock_3"]["attn"]["attn"]["s_bias_b"] * 1.5
    prediction = predict(from_dl4bi(params, groups={"s": Translation(2)}), arrays)
    assert deviation(prediction.mean, arrays["mu"]) > 1e-4


def test_missing_and_unknown_names_are_listed():
    _, params = load("bsatnp_s2.npz")
    del params["KRBlock_2"]["ffn"]["Dense_1"]["bias"]
    with pytest.raises(ValueError, match="KRBlock_2/ffn/Dense_1/bias"):
        from_dl4bi(params, groups={"s": Translation(2)})
    _, params = load("bsatnp_s2.npz")
    params["embed_all"]["spare"] = np.zeros(3)
    with pytest.raises(ValueError, match="embed_all/spare"):
        from_dl4bi(params, groups={"s": Translation(2)})
    _, params = load("bsatnp_s2.npz")
    with pytest.raises(ValueError, match="groups"):
        from_dl4bi(params, groups={"t": Translation(1)})
