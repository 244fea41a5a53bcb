"""Every case that users of like software met has a test with its name."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ROOT.parent / "shared" / "cases.md"

#: Cases of attention (a), of geometry and inputs (b), of data, likelihoods and training (c), of files and scale (d).
IDS = (
    "a1 a2 a3 a4 a5 a7 a8 a9 a10 a12 a14 a15 a16 a17 a19 a20 a21 a23 a24 b1 b3 b4 b6 b7 b8 b9 "
    "c1 c2 c4 c6 c7 c8 c10 c11 c12 c13 d1 d2 d3 d5 d7 d9 d10"
).split()


def named(source: str) -> set[str]:
    """The ids in the names of the tests of a file."""
    names = re.findall(r"^def test_((?:[a-d]\d+_)+)", source, re.MULTILINE)
    return {part for name in names for part in name.strip("_").split("_")}


def test_the_names_are_read():
    assert named("def test_a5_lengths():\n    pass\ndef test_c1_d10_both(x):\ndef test_plain():") == {"a5", "c1", "d10"}


def test_every_case_has_a_test():
    found = set().union(*(named(path.read_text()) for path in (ROOT / "tests").rglob("test_*.py")))
    assert set(IDS) - found == set()
    assert found - set(IDS) == set(), "ids that stand for no case"


@pytest.mark.skipif(not CASES.exists(), reason="the list of cases is not beside the repository")
def test_no_case_of_the_list_is_left_out():
    assert re.findall(r"^\| ([A-D]\d+) \|", CASES.read_text(), re.MULTILINE) == [name.upper() for name in IDS]
