"""The benchmark of one call with very many targets."""

import json

import numpy as np
import pytest

from paper import record
from paper.benchmarks import scale


def test_a_part_of_the_targets_gives_the_time_of_all(tmp_path):
    n = 3 * scale.CHUNK
    part = scale.measure(5 * scale.CHUNK, 24, n, progress=False)
    assert (part["targets"], part["predicted"], part["ctx"]) == (5 * scale.CHUNK, n, 24)
    assert part["seconds"] > part["measured_seconds"] > 0 and part["attention_seconds"] > 0
    (tmp_path / "1.json").write_text(json.dumps(part | record.made()))
    text = "\n".join(scale.table(tmp_path))
    assert f"| 40,960 | 24 | {n:,} | " in text and f"| {part['seconds'] / part['attention_seconds']:.2f} | " in text
    with pytest.raises(ValueError, match=f"`first` must be at least {n}, three chunks, got 9"):
        scale.measure(5 * scale.CHUNK, 24, 9)
    with pytest.raises(ValueError, match="`ctx` must be"):
        scale.measure(5 * scale.CHUNK, 0)


def test_no_measurement_no_table(tmp_path):
    assert scale.table(tmp_path) == []


def test_an_array_remembers_when_it_was_written():
    timed = scale.Timed(array := np.zeros((4, 1)))
    timed[:2], timed[2:] = np.ones((2, 1)), np.ones((2, 1))
    assert array.all() and len(timed.times) == 2 and timed.times[0] <= timed.times[1] and timed.shape == (4, 1)
