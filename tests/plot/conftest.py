"""Real data for the pictures: a forecast and a map of fine particles in Beijing."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bsatnp.datasets import beijing
from bsatnp.likelihoods import Gaussian
from bsatnp.tasks import Points

SAMPLE = Path(__file__).parents[2] / "examples" / "data" / "beijing_sample"


@pytest.fixture(autouse=True)
def closed():
    """No figure outlives its test."""
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def air():
    """Two days of context, twelve hours of targets, and each station's last value as a prediction."""
    data = beijing.load(SAMPLE)
    now = data.time[0] + np.timedelta64(22, "D")

    def points(first, last):
        rows = (data.time >= first) & (data.time < last)
        return Points({"s": data.s[rows][:, ::-1], "t": data.time[rows][:, None]}, data.f[rows])

    ctx, tgt = points(now - np.timedelta64(48, "h"), now), points(now, now + np.timedelta64(12, "h"))
    same = (ctx.index["s"][None] == tgt.index["s"][:, None]).all(-1)
    last = np.stack([ctx.f[np.flatnonzero(row)[-1]] for row in same])
    hours = (tgt.index["t"][:, 0] - now) / np.timedelta64(1, "h")
    return ctx, tgt, Gaussian(last, np.sqrt(1 + hours)[:, None] * np.array([[12.0, 15.0]])), data


@pytest.fixture
def drawn(tmp_path):
    """Draws a figure to a file, and says how many colours are on it."""

    def draw(axis):
        file = tmp_path / "picture.png"
        axis.figure.savefig(file, dpi=50)
        return len(np.unique(plt.imread(file).reshape(-1, 4), axis=0))

    return draw
