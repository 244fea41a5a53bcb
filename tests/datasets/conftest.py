"""The full data, read once."""

from pathlib import Path

import pytest

from bsatnp.datasets import beijing


@pytest.fixture(scope="session")
def real():
    folder = Path(__file__).parents[3] / "shared" / "data" / "beijing"
    if not folder.is_dir():
        pytest.skip("the full Beijing data are not in ../shared/data/beijing")
    return beijing.load(folder)
