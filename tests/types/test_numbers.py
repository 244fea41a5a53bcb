"""Numbers that are checked in one way everywhere: counts, and integers on their way to a device."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import _types, bias, groups, layers, likelihoods, models, simulate
from bsatnp._types import device_integers
from bsatnp.tasks import Points, split
from tests.registry import SMALL

#: Takes what people hand in; its annotations name integers alone.
whole: Any = _types.whole


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """The package's own checks alone: annotations would refuse floats before they are asked."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


SPACE = groups.On("s", groups.Translation(1))
KEY = jax.random.key(0)
COUNTS = {
    "Translation": ("dim", lambda n: groups.Translation(n)),
    "Euclidean": ("dim", lambda n: groups.Euclidean(n)),
    "Scaling": ("dim", lambda n: groups.Scaling(n)),
    "Permutation": ("size", lambda n: groups.Permutation(n)),
    "RBFNetwork heads": ("heads", lambda n: bias.RBFNetwork(SPACE, heads=n)),
    "RBFNetwork basis": ("basis", lambda n: bias.RBFNetwork(SPACE, basis=n)),
    "Linear": ("heads", lambda n: bias.Linear(SPACE, heads=n)),
    "TISA": ("dim", lambda n: bias.TISA(SPACE, dim=n, key=KEY)),
    "MLPBias": ("width", lambda n: bias.MLPBias(SPACE, dim=1, width=n, key=KEY)),
    "Weighted": ("heads", lambda n: bias.Weighted(bias.Linear(SPACE), heads=n)),
    "GaussianHead": ("out", lambda n: likelihoods.GaussianHead(n)),
    "PoissonHead": ("out", lambda n: likelihoods.PoissonHead(n)),
    "NegativeBinomialHead": ("out", lambda n: likelihoods.NegativeBinomialHead(n)),
    "Grid": ("size", lambda n: layers.Grid((0.0,), (1.0,), (n,))),
    "BSATNP": ("depth", lambda n: models.BSATNP(bias=None, embed={}, **{**SMALL, "depth": n}, key=KEY)),
    "PTTETNP": ("pseudo", lambda n: models.PTTETNP(group=SPACE, pseudo=n, key=KEY)),
    "ConvCNP": ("dim", lambda n: models.ConvCNP(dim=n, key=KEY)),
    "GPTasks": ("batch", lambda n: simulate.GPTasks(batch=n)),
    "GPTasks dim": ("dim", lambda n: simulate.GPTasks(dim=n)),
    "SIRTasks": ("steps", lambda n: simulate.SIRTasks(steps=n)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_is_a_whole_number_from_1_up(name):
    argument, make = COUNTS[name]
    for value, says in ((0, "at least 1, got 0"), (2.0, "a whole number, got 2.0"), (True, "a whole number, got True")):
        with pytest.raises(ValueError, match=f"`{argument}` must be {says}"):
            make(value)


def test_counts_of_other_bounds_and_types():
    assert whole("n", np.int64(3)) == 3 and type(whole("n", np.uint8(3))) is int
    assert whole("n", 0, 0) == 0
    with pytest.raises(ValueError, match="`n` must be at least 2, got 1"):
        whole("n", 1, 2)
    for value in (np.bool_(True), "3", None, np.float64(3), jnp.asarray(3), np.array([3])):
        with pytest.raises(ValueError, match="`n` must be a whole number"):
            whole("n", value)
    points = Points({"s": np.zeros((3, 1))}, np.zeros((3, 1)))
    for options, says in (
        ({"n_ctx": True}, "`n_ctx` must be a whole"),
        ({"n_ctx": 1, "n_tgt": 1.0}, "`n_tgt` must be"),
    ):
        with pytest.raises(ValueError, match=says):
            split(points, **options, key=KEY)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_on_their_way_to_a_device_do_not_wrap(kind, x64):
    info = np.iinfo(kind)
    for values in ([0, 3], [info.min, 0], [0, info.max]):
        host = np.array(values, kind)
        got = device_integers(host)
        np.testing.assert_allclose(np.asarray(jnp.asarray(got), np.float64), host.astype(np.float64), rtol=1e-7)
        assert (got.dtype == (np.int64 if x64 else np.int32)) == (-(2**31) < min(values) and max(values) < 2**31) or x64


def test_the_first_integer_that_a_device_cannot_count_becomes_a_float(x64):
    most = 2**63 if x64 else 2**31
    assert device_integers(np.array([most - 1025], np.uint64)).dtype == (np.int64 if x64 else np.int32)
    assert device_integers(np.array([most], np.uint64)).dtype == np.float64
    assert device_integers(np.array([2**31 - 1])).dtype == (np.int64 if x64 else np.int32)


def test_every_count_is_a_parameter_of_what_it_is_made_with():
    """The names in the errors are those of arguments."""
    for name, (argument, _) in COUNTS.items():
        cls = name.split()[0]
        (made,) = [
            getattr(room, cls) for room in (groups, bias, layers, likelihoods, models, simulate) if hasattr(room, cls)
        ]
        assert argument in inspect.signature(made).parameters, name
