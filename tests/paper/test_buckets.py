"""The benchmark of contexts in buckets."""

import json

import pytest

from bsatnp.simulate import GPTasks
from paper import record
from paper.benchmarks import buckets


def test_batches_are_timed_padded_and_bucketed(tmp_path):
    tasks = GPTasks(batch=2, n_ctx=(4, 32), n_tgt=8, ctx_sizes=(16, 32))
    found = buckets.measure("tnp-d", 2, tasks=tasks)
    assert [row["one_number"] for row in found["rows"]] == [False, True]
    assert all(row["padded"] > 0 and row["bucketed"] > 0 for row in found["rows"])
    (tmp_path / "tnp-d.json").write_text(json.dumps(found | record.made()))
    text = "\n".join(buckets.table(tmp_path))
    own = found["rows"][0]
    assert f"| {own['padded']:.2f} | {own['bucketed']:.2f} | {own['bucketed'] / own['padded']:.2f} | 2 |" in text
    with pytest.raises(ValueError, match="`tasks` must have several `ctx_sizes`"):
        buckets.measure("tnp-d", tasks=GPTasks())
    with pytest.raises(ValueError, match="`model` must be one of"):
        buckets.measure("tnp", 1, tasks=tasks)


def test_no_measurement_no_table(tmp_path):
    assert buckets.table(tmp_path) == []
