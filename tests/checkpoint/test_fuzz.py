"""Damaged files give the right model or a CheckpointError, nothing else."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bsatnp import checkpoint
from bsatnp.checkpoint import CheckpointError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture
def content(folder, everything):
    checkpoint.save(folder / "whole", everything())
    return (folder / "whole").read_bytes()


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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cuts_copies_and_noise(data, content, judge):
    n = len(content)
    i, j = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    middle = data.draw(st.one_of(st.binary(max_size=40), st.just(content[i:j] * 2), st.just(b"\0" * (j - i))))
    judge(content[:i] + middle + content[j:])
