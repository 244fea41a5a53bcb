"""Parameters of any size are brought over: against a float64 NumPy model of each architecture."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp.bias import ExponentialNetwork
from bsatnp.compat import from_dl4bi
from bsatnp.groups import SO3, TimeShift, Translation
from bsatnp.layers import Identity
from bsatnp.tasks import Points
from tests.compat import oracle
from tests.compat.test_dl4bi import load

RNG = np.random.default_rng(9)
N, WIDTHS = 12, {"x": 3, "s": 2, "t": 1}
INDEX = {name: RNG.normal(size=(N, width)) for name, width in WIDTHS.items()}
DEGREES = {**INDEX, "s": np.stack([RNG.uniform(-180, 180, N), RNG.uniform(-90, 90, N)], -1)}
F, MASK = RNG.normal(size=(7, 2)), np.array([True, True, False, True, True, False, True])


def task(names, index):
    ctx, tgt = ({name: index[name][rows] for name in names} for rows in (slice(0, 7), slice(7, N)))
    return ctx, tgt


def difference(p, q):
    return np.linalg.norm(p[:, None] - q[None], axis=-1)


def great_circle(p, q):
    """In degrees, by the angle between unit vectors."""

    def vectors(x):
        lon, lat = np.radians(x).T
        return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)

    return np.degrees(np.arccos(np.clip(vectors(p) @ vectors(q).T, -1, 1)))


def bsa(seed, widths, *, heads, bases, rate):
    """A BSA-TNP of two blocks with two outputs."""
    draw = oracle.Random(seed)
    blocks = {}
    for i in range(2):
        biases = {k: v for name, n in bases.items() for k, v in draw.bias(heads, n, name, rate[name]).items()}
        blocks[f"KRBlock_{i}"] = draw.block(10, 12, (9,), **({"attn": biases} if biases else {}))
    return {
        "embed_obs": {"embedding": draw.rng.normal(size=(2, 3))},
        "embed_all": draw.mlp(3 + widths + 2, 7, 10),
        "head": draw.mlp(10, 11, 4),
        **{f"LayerNorm_{i}": draw.norm(10) for i in range(2)},
        **blocks,
    }


def tnpd(seed, widths, *, pre):
    draw = oracle.Random(seed)
    blocks = {f"TransformerEncoderBlock_{i}": draw.block(8, 12, (7,)) for i in range(3)}
    last = {"norm": draw.norm(8)} if pre else {}
    return {"embed_s_f": draw.mlp(widths + 2, 6, 5, 8), "enc": {**blocks, **last}, "head": draw.mlp(8, 4)}


def te(seed, widths, *, heads, blocks, pseudo=0):
    draw = oracle.Random(seed)
    encoder: dict = {
        f"TEBlock_{i}": draw.block(8, 12, (7, 6), kernel=draw.mlp(heads + widths, 5, 6, heads)) for i in range(blocks)
    }
    if pseudo:
        encoder["pseudo_tokens"], encoder["pseudo_locs"] = (draw.rng.normal(size=(1, pseudo, n)) for n in (8, widths))
    return {"embed_f": draw.mlp(3, 9, 8), "encoder": encoder, "decoder": draw.mlp(8, 9, 5, 4)}


PLANE = {"s": Translation(2), "t": TimeShift()}
ALL = {"x": Translation(3), **PLANE}

#: Parameters, components and their values, the oracle, and the options of `from_dl4bi`.
CASES = {
    "BSA-TNP, two biases, covariates": (
        bsa(0, 3, heads=3, bases={"s": 4, "t": 2}, rate={"s": 1.0, "t": 2.0}),
        INDEX,
        lambda *a: oracle.bsa_tnp(*a, heads=3, distances={"s": difference, "t": difference}, embed=["x"]),
        {"groups": dict(reversed(PLANE.items())), "embed": {"x": Identity(3)}},
    ),
    "BSA-TNP, exponential bias of the great circle": (
        bsa(1, 0, heads=2, bases={"s": 3}, rate={"s": 0.03}),
        DEGREES,
        lambda *a: oracle.bsa_tnp(*a, heads=2, distances={"s": great_circle}, embed=[], exponent=1),
        {"groups": {"s": SO3()}, "forms": {"s": ExponentialNetwork}},
    ),
    "SA-TNP": (
        bsa(3, 6, heads=6, bases={}, rate={}),
        INDEX,
        lambda *a: oracle.bsa_tnp(*a, heads=6, distances={}, embed=["x", "s", "t"]),
        {"embed": {name: Identity(WIDTHS[name]) for name in "tsx"}, "heads": 6},
    ),
    "TNP-D": (
        tnpd(4, 6, pre=False),
        INDEX,
        lambda *a: oracle.tnp_d(*a, heads=3),
        {"embed": {name: Identity(WIDTHS[name]) for name in "tsx"}, "heads": 3},
    ),
    "TNP-D, pre-norm": (
        tnpd(5, 6, pre=True),
        INDEX,
        lambda *a: oracle.tnp_d(*a, heads=2),
        {"embed": {name: Identity(WIDTHS[name]) for name in "xst"}, "heads": 2},
    ),
    "TE-TNP": (
        te(6, 6, heads=4, blocks=3),
        INDEX,
        lambda *a: oracle.te_tnp(*a, heads=4),
        {"groups": dict(reversed(ALL.items()))},
    ),
    "PT-TE-TNP": (
        te(7, 6, heads=2, blocks=6, pseudo=5),
        INDEX,
        lambda *a: oracle.te_tnp(*a, heads=2),
        {"groups": dict(reversed(ALL.items()))},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_numpy(name):
    params, index, run, options = CASES[name]
    params = oracle.narrow(params)
    ctx, tgt = task(index, index)
    mean, std = run(params, ctx, tgt, F, MASK)
    model = from_dl4bi(params, **options)
    kind = jnp.result_type(float)
    device = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, kind), tree)  # noqa: E731
    points = Points(device(ctx), device(F), mask=jnp.asarray(MASK)), Points(device(tgt))
    got = eqx.filter_jit(lambda model, points: model(*points))(model, points)
    assert np.abs(np.asarray(mean)).max() > 0.1
    for ours, theirs in ((got.mean, mean), (got.std, std)):
        assert np.linalg.norm(np.asarray(ours) - theirs) / np.linalg.norm(theirs) < 2e-5


PLANAR = {"heads": 4, "distances": {"s": difference}, "embed": []}
REFERENCES = {
    "bsatnp_s2": lambda *a: oracle.bsa_tnp(*a, **PLANAR),
    "tnpd_s2": lambda *a: oracle.tnp_d(*a, heads=4),
    "tetnp_s2": lambda *a: oracle.te_tnp(*a, heads=8),
    "pttetnp_s2": lambda *a: oracle.te_tnp(*a, heads=8),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_numpy_gives_the_reference(name):
    arrays, params = load(name)
    for i in range(len(arrays["mu"])):
        s_ctx, s_tgt, f = (arrays[f"in/{part}"][i].astype(float) for part in ("s_ctx", "s_test", "f_ctx"))
        got = REFERENCES[name](params, {"s": s_ctx}, {"s": s_tgt}, f, arrays["in/mask_ctx"][i])
        for ours, theirs in zip(got, (arrays["mu"][i], arrays["std"][i]), strict=True):
            assert np.linalg.norm(ours - theirs) / np.linalg.norm(theirs) < 1e-5
