"""Damaged files give the right model or a CheckpointError, nothing else."""

import copy
import functools
import io
import json
import re
import tracemalloc
import zipfile

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsatnp import checkpoint
from bsatnp.checkpoint import CheckpointError
from tests.fuzzing import MANY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@functools.cache
def made(cls, width=3):
    return cls(width=width)


@pytest.fixture
def everything(everything):
    """One of every width, made once."""
    return functools.partial(made, everything)


@pytest.fixture
def saved(folder, everything):
    """The file of a model of some width, saved once, since that waits for the disk."""

    def saved(width=3):
        path = folder / f"whole {width}"
        if not path.exists():
            checkpoint.save(path, everything(width=width))
        return path.read_bytes()

    return saved


@pytest.fixture
def content(saved):
    return saved()


@pytest.fixture
def judge(folder, everything, classes, same_bits):
    """Load bytes; True where the model came back, False where it was refused."""
    fresh = everything()

    def judge(data):
        (folder / "damaged").write_bytes(data)
        try:
            loaded = checkpoint.load(folder / "damaged", classes=classes)
        except CheckpointError as error:
            assert "damaged" in str(error)  # the file is named
            return False
        assert same_bits(
            (loaded.weight, loaded.half, loaded.count, loaded.flags, loaded.key, loaded.layers, loaded.table),
            (fresh.weight, fresh.half, fresh.count, fresh.flags, fresh.key, fresh.layers, fresh.table),
        )
        assert repr(loaded.plain) == repr(fresh.plain) and loaded.names == fresh.names
        return True

    return judge


def test_d1_every_truncation_is_refused(content, judge):
    assert judge(content)
    step = max(1, len(content) // 150)
    assert not any(judge(content[:length]) for length in range(0, len(content), step))


def test_flips_of_one_bit(content, judge):
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(250):
        data = bytearray(content)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        refused += not judge(bytes(data))
    assert refused > 150, "most bytes matter"


@MANY
@given(data=st.data())
def test_cuts_copies_and_noise(data, content, judge):
    n = len(content)
    i, j = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    middle = data.draw(st.one_of(st.binary(max_size=40), st.just(content[i:j] * 2), st.just(b"\0" * (j - i))))
    judge(content[:i] + middle + content[j:])


@MANY
@given(flips=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 7)), min_size=1, max_size=4))
def test_a_few_flipped_bits(flips, content, judge):
    data = bytearray(content)
    for where, bit in flips:
        data[where % len(data)] ^= 1 << bit
    judge(bytes(data))


def nodes(tree):
    """Every object and list of a header, with its parents' keys for whoever wants to change it."""
    yield tree
    for child in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(child, dict | list):
            yield from nodes(child)


STRANGE = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(), st.text(max_size=5), st.just([]), st.just({}),
    st.sampled_from(["array", "key", "float64", "object", "bsatnp.tasks.Points", "os.system", "weight", "__header__"]),
    st.sampled_from([{"class": "bsatnp.Points", "fields": {}}, {"function": "os.system"}, {"opaque": "x"}]),
    st.lists(st.integers(-1, 2**62), max_size=3),
)  # fmt: skip


@MANY
@given(data=st.data())
def test_headers_that_were_changed(data, folder, everything, classes, content):
    """With right checksums: a model of the claimed kinds, or a refusal, and no memory for what is merely claimed."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    head = json.loads(np.load(io.BytesIO(members["__header__.npy"])).tobytes())
    for _ in range(data.draw(st.integers(1, 2))):
        node = data.draw(st.sampled_from([node for node in nodes(head) if node]))
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        what = data.draw(st.sampled_from(["change", "remove", "rename", "swap"]))
        value = node[key]
        if what == "swap":
            other = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
            node[key], node[other] = node[other], value
        elif what == "change":
            node[key] = copy.deepcopy(data.draw(STRANGE))  # the next change may be inside it
        else:
            del node[key]
            if what == "rename" and isinstance(node, dict):
                node[data.draw(st.text(max_size=4))] = value
    check_rewritten(folder, everything, classes, head, members)


@MANY
@given(data=st.data())
def test_headers_and_arrays_of_two_files(data, folder, everything, classes, saved):
    """Swapped headers, and members that trade places."""
    files = (io.BytesIO(saved(width)) for width in (3, data.draw(st.sampled_from([1, 3, 5]))))
    with zipfile.ZipFile(next(files)) as mine, zipfile.ZipFile(next(files)) as other:
        members = {name: mine.read(name) for name in mine.namelist()}
        head = json.loads(np.load(io.BytesIO(other.read("__header__.npy"))).tobytes())
        names = [name for name in sorted(members) if name != "__header__.npy"]
        for name in data.draw(st.lists(st.sampled_from(names), max_size=3)):
            members[name] = other.read(name)
    a, b = data.draw(st.tuples(st.sampled_from(names), st.sampled_from(names)))
    members[a], members[b] = members[b], members[a]
    check_rewritten(folder, everything, classes, head, members)


def check_rewritten(folder, everything, classes, head, members):
    """Load a file with this header, bare and against a model: arrays of the claimed types, or a CheckpointError."""
    try:
        text = json.dumps(head).encode()
    except (TypeError, ValueError):
        return
    buffer = io.BytesIO()
    np.save(buffer, np.frombuffer(text, np.uint8))
    with zipfile.ZipFile(folder / "rewritten", "w") as file:
        for name, content in (members | {"__header__.npy": buffer.getvalue()}).items():
            file.writestr(zipfile.ZipInfo(name), content)
    absurd = any(number > 10**6 for number in map(int, re.findall(r"\d+", text.decode())))
    if absurd:  # it slows everything down
        tracemalloc.start()
    for like in (None, everything()):
        try:
            loaded = checkpoint.load(folder / "rewritten", classes=classes, like=like)
        except CheckpointError as error:
            assert "rewritten" in str(error)
            continue
        assert all(
            isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(eqx.filter(loaded, eqx.is_array))
        )
        if like is not None:
            shapes = [[leaf.shape for leaf in jax.tree.leaves(eqx.filter(x, eqx.is_array))] for x in (loaded, like)]
            assert shapes[0] == shapes[1]
    if absurd:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20e6
