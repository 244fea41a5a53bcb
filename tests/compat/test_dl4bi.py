"""Models here give the numbers of the authors' package, given its parameters."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.bias import ExponentialNetwork
from bsatnp.compat import from_dl4bi
from bsatnp.groups import Euclidean, Translation
from bsatnp.layers import Identity
from bsatnp.models import BSATNP, PTTETNP, TETNP, TNPD
from bsatnp.models.base import count_parameters
from bsatnp.tasks import Points

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference"

PLANE = {"groups": {"s": Translation(2)}}
#: The class, its number of parameters, the options, and an array to move.
CASES = {
    "bsatnp_s2": (BSATNP, 475_770, PLANE, "KRBlock_3/attn/attn/s_bias_b"),
    "tnpd_s2": (TNPD, 474_754, {"embed": {"s": Identity(2)}}, "enc/TransformerEncoderBlock_4/LayerNorm_0/bias"),
    "tetnp_s2": (TETNP, 642_858, PLANE, "encoder/TEBlock_2/attn/kernel/Dense_1/bias"),
    "pttetnp_s2": (PTTETNP, 1_832_378, PLANE, "encoder/pseudo_locs"),
}


def load(name: str):
    """Arrays of a reference file, and its parameters as nested dictionaries."""
    path = REFERENCE / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the reference vectors are not here: {path.name} is distributed apart from the package")
    arrays = dict(np.load(path))
    params: dict = {}
    for key, value in arrays.items():
        if key.startswith("param/"):
            parent, leaf = node(params, key.removeprefix("param/"))
            parent[leaf] = value
    return arrays, params


def node(params: dict, path: str):
    """The dictionary that an array is in, and its name there."""
    *parents, leaf = path.split("/")
    for parent in parents:
        params = params.setdefault(parent, {})
    return params, leaf


_run = eqx.filter_jit(lambda model, ctx, tgt: jax.vmap(model)(ctx, tgt))


def deviations(model, arrays):
    """How far mean and standard deviation are from the reference, relative to its norm."""
    mask = jnp.asarray(arrays["in/mask_ctx"])
    ctx = Points({"s": jnp.asarray(arrays["in/s_ctx"])}, jnp.asarray(arrays["in/f_ctx"]), mask=mask)
    got = _run(model, ctx, Points({"s": jnp.asarray(arrays["in/s_test"])}))
    pairs = (got.mean, arrays["mu"]), (got.std, arrays["std"])
    return [float(np.linalg.norm(np.asarray(ours) - theirs) / np.linalg.norm(theirs)) for ours, theirs in pairs]


@pytest.mark.parametrize("name", CASES)
def test_the_reference_and_that_one_moved_parameter_is_noticed(name):
    cls, count, options, moved = CASES[name]
    arrays, params = load(name)
    model = from_dl4bi(params, **options)
    assert type(model) is cls and count_parameters(model) == count
    assert max(deviations(model, arrays)) < 1e-5
    parent, leaf = node(params, moved)
    parent[leaf] = parent[leaf] * 1.5
    assert max(deviations(from_dl4bi(params, **options), arrays)) > 1e-4


@pytest.mark.parametrize("name", CASES)
def test_missing_and_unknown_names_are_listed(name):
    _, _, options, some = CASES[name]
    _, params = load(name)
    from_dl4bi({"params": params}, **options)  # with the collections of a checkpoint
    parent, leaf = node(params, some)
    array = parent.pop(leaf)
    if leaf == "bias":  # pseudo-tokens and biases tell which model it is
        with pytest.raises(ValueError, match=f"`params` must hold {some}, got"):
            from_dl4bi(params, **options)
    parent[leaf] = array
    parent["spare"] = np.zeros(3)
    with pytest.raises(
        ValueError, match=rf"nothing that the model does not use, got \['{some.rpartition('/')[0]}/spare'"
    ):
        from_dl4bi(params, **options)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("bsatnp_s2", {"groups": {"t": Translation(1)}}, r"`groups` must name the components with a bias \['s'\], got"),
        ("bsatnp_s2", {"groups": {"place": Translation(1)}}, r"`groups` must be of components among \['x', 's', 't'\]"),
        ("bsatnp_s2", {**PLANE, "heads": 3}, r"`heads` must be those of every bias \[4\], got 3"),
        ("bsatnp_s2", {**PLANE, "forms": {"t": ExponentialNetwork}}, r"`forms` must be of components with a bias"),
        ("bsatnp_s2", {**PLANE, "embed": {"x": Identity(3)}}, r"expected shape \(256, 8\), got \(256, 5\)"),
        (
            "bsatnp_s2",
            {**PLANE, "pre_norm": True},
            r"`options` of this architecture must be among .*, got \['pre_norm'\]",
        ),
        ("tnpd_s2", {"embed": {"s": Identity(2)}, "heads": 3}, "`heads` must divide the width of attention 128, got 3"),
        ("tetnp_s2", {"groups": {}}, "`groups` must name at least one component, got none"),
        ("tetnp_s2", {"groups": {"s": Euclidean(2)}}, r"expected shape \(5, 128, 9\), got \(5, 128, 10\)"),
        ("pttetnp_s2", {"groups": {"s": Euclidean(2)}}, "`group` must be made of translations"),
        ("tetnp_s2", {}, r"`options` of this architecture must have \['groups'\], got \[\]"),
        ("tnpd_s2", {"heads": 4}, r"`options` of this architecture must have \['embed'\], got \['heads'\]"),
    ],
)
def test_options_that_do_not_fit(name, options, says):
    _, params = load(name)
    with pytest.raises(ValueError, match=says):
        from_dl4bi(params, **options)


def test_another_architecture_is_refused():
    with pytest.raises(ValueError, match=r"`params` must be those of a model with `KRBlock_0` or .*, got \['other'\]"):
        from_dl4bi({"other": {"kernel": np.zeros(3)}})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p.update(embed_f=[np.zeros(3)]), r"nested dictionaries of arrays of floats, got another at embed_f"),
        (lambda p: p.update(embed_f={"Dense_0": {"bias": np.zeros(3, int)}}), "got another at embed_f/Dense_0/bias"),
        (lambda p: p.update(embed_f={"Dense_0": {"bias": np.full(3, np.nan)}}), "must be finite, got embed_f/Dense_0"),
        (lambda p: p.update(encoder={"norm": {"bias": np.zeros(3)}}), "must hold at least one block, got"),
    ],
)
def test_parameters_that_are_none(change, says):
    params: dict = {name: {"Dense_0": {"bias": np.zeros(3)}} for name in ("embed_f", "encoder", "decoder")}
    change(params)
    with pytest.raises(ValueError, match=says):
        from_dl4bi(params, **PLANE)


def test_a_second_set_of_pseudo_tokens_is_refused():
    _, params = load("pttetnp_s2")
    for name in ("pseudo_tokens", "pseudo_locs"):
        params["encoder"][name] = np.concatenate([params["encoder"][name]] * 2)
    with pytest.raises(ValueError, match="`params` must hold one set of pseudo-tokens"):
        from_dl4bi(params, **PLANE)


def test_rates_below_zero_are_refused():
    _, params = load("bsatnp_s2")
    bias = params["KRBlock_0"]["attn"]["attn"]
    bias["s_bias_b"] = -bias["s_bias_b"]
    with pytest.raises(ValueError, match="`params` must give the bias of 's' rates above zero, got -"):
        from_dl4bi(params, **PLANE)
