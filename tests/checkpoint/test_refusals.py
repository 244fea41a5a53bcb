"""Files that must not load, and say why."""

import json
import os
import pathlib
import tracemalloc
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bsatnp import checkpoint
from bsatnp.checkpoint import CheckpointError

FIXTURE = pathlib.Path(__file__).parent / "format_1.npz"


@pytest.fixture
def saved(tmp_path, everything):
    checkpoint.save(tmp_path / "m.npz", everything())
    return tmp_path / "m.npz"


def rewrite(path, change):
    """Write the file anew, checksums and all, with another header."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    head = json.loads(np.load(path)["__header__"].tobytes())
    change(head)
    np.savez(path, __header__=np.frombuffer(json.dumps(head).encode(), np.uint8))
    with zipfile.ZipFile(path, "a") as file:
        for name, data in members.items():
            if name != "__header__.npy":
                file.writestr(name, data)


def test_rewriting_alone_changes_nothing(saved, classes, everything, same_bits):
    rewrite(saved, lambda head: None)
    assert same_bits(checkpoint.load(saved, classes=classes).weight, everything().weight)


def test_d1_format_1_always_loads(classes, everything, same_bits):
    loaded, fresh = checkpoint.load(FIXTURE, classes=classes), everything()
    assert checkpoint.header(FIXTURE)["version"] == 1
    assert checkpoint.header(FIXTURE)["extra"] == {"scale": {"mean": 1.5}, "units": {"s": "km"}}
    for field in ("weight", "half", "count", "flags", "key", "layers", "table"):
        assert same_bits(getattr(loaded, field), getattr(fresh, field)), field
    assert repr(loaded.plain) == repr(fresh.plain) and loaded.names == fresh.names


def test_d1_another_width_names_the_first_difference(saved, everything):
    with pytest.raises(CheckpointError, match=r"`weight` is float32 \(2, 3\) in the file, but float32 \(2, 5\) here"):
        checkpoint.load(saved, like=everything(width=5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: eqx.tree_at(lambda t: t.count, m, jnp.asarray(7, jnp.int8)), r"`count` is int32 \(\) in the file"),
        (lambda m: eqx.tree_at(lambda t: t.table["é"], m, 2.0), "`table/é` is 2.5 in the file, but 2.0 here"),
        (lambda m: eqx.tree_at(lambda t: t.layers, m, m.layers[:1]), "`layers` holds 2 parts in the file, but 1 parts"),
        (lambda m: eqx.tree_at(lambda t: t.layers[0], m, eqx.nn.Identity()), "`layers/0` is equinox.nn.Linear in"),
        (lambda m: eqx.tree_at(lambda t: t.flags, m, jnp.asarray(m.flags)), r"`flags` is bool .* of NumPy in the"),
        (lambda m: m.layers[0], "the tree is .*Everything in the file, but equinox.nn.Linear here"),
    ],
)
def test_differences_from_like(saved, everything, change, message):
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(saved, like=change(everything()))


def test_a_key_of_another_kind_differs_from_like(tmp_path):
    one, other = ({"key": jax.random.key(0, impl=impl)} for impl in ("rbg", "unsafe_rbg"))
    checkpoint.save_state(tmp_path / "s", one)
    with pytest.raises(CheckpointError, match=r"`key` is rbg key \(4,\) in the file, but unsafe_rbg key \(4,\) here"):
        checkpoint.load_state(tmp_path / "s", other)


def test_double_precision_is_not_cut(tmp_path, x64):
    if x64:
        pytest.skip("with x64 the numbers are kept")
    with jax.enable_x64(True):
        checkpoint.save(tmp_path / "m", eqx.nn.PReLU(jnp.asarray(1 / 3, jnp.float64)))
    with pytest.raises(CheckpointError, match="holds float64, which needs x64 enabled"):
        checkpoint.load(tmp_path / "m")


def test_unknown_classes_are_named_and_nothing_is_imported(saved, classes):
    with pytest.raises(CheckpointError, match="class .*Setting, which must be passed in `classes`"):
        checkpoint.load(saved, classes=classes[:1])

    def evil(head):
        head["tree"] = {"class": "antigravity.Popen", "fields": {}}

    rewrite(saved, evil)
    with pytest.raises(CheckpointError):
        checkpoint.load(saved)
    import sys

    assert "antigravity" not in sys.modules


def test_a_file_calls_no_constructor_or_function(saved, classes):
    called = []

    class Loud(eqx.Module):
        def __init__(self):
            called.append(1)

    def loud():
        called.append(2)

    name = f"{Loud.__module__}.{Loud.__qualname__}"

    def change(head):
        head["tree"]["fields"]["missing"] = {"class": name, "fields": {}}
        head["tree"]["fields"]["activation"] = {"function": f"{loud.__module__}.{loud.__qualname__}"}

    rewrite(saved, change)
    loaded = checkpoint.load(saved, classes=(*classes, Loud, loud))
    assert type(loaded.missing) is Loud and loaded.activation is loud and not called


def _claim(shape, name="weight"):
    def change(head):
        head["tree"]["fields"][name]["shape"] = shape

    return change


@pytest.mark.parametrize(
    "change",
    [
        _claim([2**40, 2**20]),
        _claim([1 << 200]),
        _claim([-1, -6]),
        _claim([2.0, 3.0]),
        _claim([2, 3, 1]),
        _claim([3, 2]),
        _claim([5]),
        lambda head: head["tree"]["fields"]["weight"].update(dtype="object"),
        lambda head: head["tree"]["fields"]["weight"].update(dtype="float64"),
        lambda head: head["tree"]["fields"]["weight"].update(array="count"),
        lambda head: head["tree"]["fields"]["key"].update(impl="nonsense"),
        lambda head: head["tree"]["fields"].pop("weight"),
        lambda head: head["tree"]["fields"].update(more=1),
        lambda head: head["tree"]["fields"].update(activation={"function": "os.system"}),
        lambda head: head["tree"].update({"class": "builtins.object"}),
        lambda head: head.pop("tree"),
        lambda head: head.pop("kind"),
        lambda head: head.update(format="other"),
        lambda head: head.update(version="1"),
    ],
)
def test_d1_headers_that_lie(saved, classes, change):
    rewrite(saved, change)
    tracemalloc.start()
    with pytest.raises(CheckpointError):
        checkpoint.load(saved, classes=classes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6, "no memory is taken for what a file merely claims"


def test_deep_headers(saved):
    def change(head):
        tree = None
        for _ in range(300):
            tree = {"list": [tree]}
        head["tree"] = tree

    rewrite(saved, change)
    text = json.dumps(checkpoint.header(saved)).replace('{"list": [null]}', '{"list": [' * 100_000 + "]}" * 100_000)
    np.savez(saved, __header__=np.frombuffer(text.encode(), np.uint8))
    with pytest.raises(CheckpointError, match="damaged or not a file of bsatnp"):
        checkpoint.header(saved)


def test_d1_newer_foreign_and_wrong_kind(tmp_path, saved, everything):
    rewrite(saved, lambda head: head.update(version=2))
    with pytest.raises(CheckpointError, match="format version must be at most 1, got 2: install a newer bsatnp"):
        checkpoint.load(saved)
    np.savez(tmp_path / "foreign.npz", a=np.ones(3))
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("foreign.npz", "text", "empty"):
        with pytest.raises(CheckpointError, match=name):
            checkpoint.load(tmp_path / name)
    np.savez_compressed(tmp_path / "bomb.npz", __header__=np.zeros(10**7, np.uint8))
    with pytest.raises(CheckpointError, match="uncompressed"):
        checkpoint.load(tmp_path / "bomb.npz")
    checkpoint.save_state(tmp_path / "state", {"a": 1})
    with pytest.raises(CheckpointError, match="must hold a model, got a state"):
        checkpoint.load(tmp_path / "state")
    checkpoint.save(tmp_path / "model", everything())
    with pytest.raises(CheckpointError, match="must hold a state, got a model"):
        checkpoint.load_state(tmp_path / "model", everything())
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "nowhere")


def test_d1_pickles_never_load(tmp_path):
    np.savez(tmp_path / "p.npz", __header__=np.array([{"format": "bsatnp"}], object), allow_pickle=True)
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / "p.npz")


def _nested(levels):
    tree = 1
    for _ in range(levels):
        tree = [tree]
    return tree


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"a" * 70_000: jnp.ones(1)}, "No array may have a name of more than 65,531 bytes"),
        ({"\ud800": jnp.ones(1)}, "No array may have half a character in its name"),
        (_nested(100), "must be nested no deeper than 64 levels to be saved"),
        (np.ma.array([1.0, 2.0], mask=[False, True]), "`table/x` must be a plain array to be saved, got a masked one"),
        (10**5000, "`table/x` must be a number of at most 4096 bits"),
    ],
    ids=["long name", "half a character", "deep", "masked array", "long number"],
)
def test_parts_that_no_file_gives_back(tmp_path, everything, part, message):
    """Said when they are saved, in the package's own words; the file that was there stays."""
    checkpoint.save(tmp_path / "m", everything())
    before = (tmp_path / "m").read_bytes()
    bad = eqx.tree_at(lambda m: m.table, everything(), {"x": part}, is_leaf=lambda x: isinstance(x, dict))
    for write in (checkpoint.save, checkpoint.save_state):
        with pytest.raises(CheckpointError, match=message):
            write(tmp_path / "m", bad)
    assert (tmp_path / "m").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_the_deepest_tree_that_is_saved_comes_back(tmp_path, everything, classes):
    deep = eqx.tree_at(lambda m: m.table, everything(), {"x": _nested(60)}, is_leaf=lambda x: isinstance(x, dict))
    checkpoint.save(tmp_path / "m", deep)
    assert checkpoint.load(tmp_path / "m", classes=classes, like=deep).table == {"x": _nested(60)}


def test_a_failed_write_leaves_the_old_file(tmp_path, saved, everything, classes, monkeypatch):
    before = saved.read_bytes()

    def full(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(saved, everything(width=9))
    assert saved.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["m.npz"]


def test_leftovers_of_killed_processes_go_after_an_hour(tmp_path, everything):
    names = f".m.npz.{16 * 'a'}.tmp", f".m.npz.{16 * 'b'}.tmp", f".n.npz.{16 * 'a'}.tmp", ".m.npz.notes.tmp"
    for name in names:
        (tmp_path / name).write_bytes(b"part")
        if name != names[1]:
            os.utime(tmp_path / name, (1, 1))
    checkpoint.save(tmp_path / "m.npz", everything())
    assert {path.name for path in tmp_path.iterdir()} == {*names[1:], "m.npz"}
