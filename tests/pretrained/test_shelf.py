"""Weights by name: what a card says is so, and what is not so is refused."""

import dataclasses
import hashlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import BSATNP, Points, pretrained
from bsatnp.bias import RBFNetwork
from bsatnp.checkpoint import CheckpointError
from bsatnp.groups import On, Translation
from bsatnp.models.base import count_parameters

FACTS = {
    "title": "Lines",
    "task": "Lines(n_ctx=3)",
    "index": {"s": 1},
    "out": 1,
    "units": "No units.",
    "budget": {"steps": 3},
    "scores": {"near": {"nll": 0.5}, "far": {"nll": 1.25, "exact nll": -0.25}},
    "source": {"seed": 0},
}


def model(seed=0):
    bias = RBFNetwork(On("s", Translation(1)), heads=2)
    return BSATNP(bias=bias, depth=1, dim=8, width=8, heads=2, key=jax.random.key(seed))


@pytest.fixture
def shelf(tmp_path):
    pretrained.add(model(0), "lines-v2", tmp_path, **FACTS)
    pretrained.add(model(1), "lines-v10", tmp_path, **FACTS)
    return tmp_path


def test_the_newest_version_is_meant_and_an_older_one_can_be_had(shelf):
    assert pretrained.names(shelf) == ("lines-v2", "lines-v10")
    assert pretrained.card("lines", shelf).name == "lines-v10"
    assert eqx.tree_equal(pretrained.load("lines", shelf), model(1))
    assert eqx.tree_equal(pretrained.load("lines-v2", shelf), model(0))


def test_a_card_comes_back_as_it_was_and_reads_well(shelf):
    card = pretrained.card("lines-v2", shelf)
    assert {name: value for name, value in dataclasses.asdict(card).items() if name in FACTS} == FACTS
    text = str(card)
    assert "| near | 0.5 | – |" in text
    assert "| far | 1.25 | -0.25 |" in text
    assert "Points have s 1; `f` has 1 column. No units." in text


def test_unknown_names_and_other_files_are_refused(shelf):
    with pytest.raises(ValueError, match=r"one of \['lines-v2', 'lines-v10'\], got 'circles'"):
        pretrained.load("circles", shelf)
    with pytest.raises(ValueError, match="never change"):
        pretrained.add(model(), "lines-v2", shelf, **FACTS)
    for name in ("lines", "Lines-v1", "lines-v0", "../lines-v1"):
        with pytest.raises(ValueError, match="and a version"):
            pretrained.add(model(), name, shelf, **FACTS)
    (shelf / "lines-v2.npz").write_bytes((shelf / "lines-v10.npz").read_bytes())
    with pytest.raises(CheckpointError, match="not the file of its card"):
        pretrained.load("lines-v2", shelf)
    (shelf / "lines-v10.npz").unlink()
    with pytest.raises(CheckpointError, match="missing"):
        pretrained.load("lines", shelf)


def test_facts_that_make_no_card_leave_nothing_and_other_files_are_no_names(shelf):
    before = sorted(shelf.iterdir())
    for facts in (FACTS | {"hue": "red"}, FACTS | {"budget": {"steps": float("nan")}}):
        with pytest.raises((TypeError, ValueError)):
            pretrained.add(model(), "lines-v11", shelf, **facts)
    assert sorted(shelf.iterdir()) == before
    (shelf / "notes.json").write_text("{}")
    assert pretrained.names(shelf) == ("lines-v2", "lines-v10")


def test_there_are_weights_and_each_file_has_its_card():
    assert pretrained.names()
    assert {path.stem for path in pretrained.WEIGHTS.glob("*.npz")} == set(pretrained.names())


@pytest.mark.parametrize("name", pretrained.names())
def test_weights_of_the_package(name):
    """They are those of the card, and predict what the card says they take."""
    card, trained = pretrained.card(name), pretrained.load(name)
    assert hashlib.sha256((pretrained.WEIGHTS / f"{name}.npz").read_bytes()).hexdigest() == card.sha256
    assert count_parameters(trained) == card.budget["parameters"]
    assert all(np.isfinite(row["nll"]) for row in card.scores.values())
    rng = np.random.default_rng(0)
    ctx, tgt = (
        Points({part: jnp.asarray(rng.uniform(0, 0.5, (n, width)), float) for part, width in card.index.items()}, f)
        for n, f in ((8, jnp.asarray(rng.normal(size=(8, card.out)), float)), (4, None))
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained(ctx, tgt)))
