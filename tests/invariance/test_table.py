"""The table of models and what they are invariant to: every entry is a test, those that say "changes" too."""

import re
from pathlib import Path

import jax
import pytest

from bsatnp.testing import LawError, check_model
from tests.registry import HEAVY, MOVES, TABLE

README = Path(__file__).parents[2] / "README.md"


def far(n, *, key):
    """Points of the sphere, most of them in its middle latitudes."""
    return 25 * jax.random.normal(key, (n, 2))


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("name", TABLE)
def test_every_entry(name, move, monkeypatch):
    row, group = TABLE[name], MOVES[move]
    if move in row.unchanged:
        check_model(row.model, group, sets=False, examples=HEAVY)
        return
    monkeypatch.setattr("bsatnp.testing.search._TRIES", 0)  # the simplest case is not what is looked for here
    points = {"s": far} if group.component == "s" else None
    with pytest.raises(LawError, match=r"breaks the law 'model\(g·ctx, g·tgt\) = model\(ctx, tgt\)'") as found:
        check_model(row.model, group, sets=False, points=points)
    assert found.value.deviation > 2 * found.value.allowed


def entries(text):
    """The README's table: model to column to entry."""
    lines = text[text.index("## Models and their invariances") :].split("\n## ")[0].splitlines()
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines if line.startswith("|")
    ]
    header, _, *rows = cells
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def test_the_readme_agrees():
    table = entries(README.read_text())
    assert len(table) >= 3
    for name, row in table.items():
        for move in set(MOVES) & set(row):
            expected = "unchanged" if move in TABLE[name].unchanged else "changes"
            assert row[move] in (expected, "–"), f"{name}, {move}: the README says {row[move]}, the tests {expected}"
