"""A small data set with a bit of everything, and models on it that train for a moment."""

import jax
import numpy as np
import pandas as pd
import pytest

from bsatnp import frames
from bsatnp.bias import Sum
from bsatnp.frames.default import default_splits
from bsatnp.frames.encoding import Encoding
from bsatnp.frames.fitting import _read, _scaled
from bsatnp.layers import Identity
from bsatnp.models import BSATNP

SMALL = {"depth": 1, "dim": 8, "heads": 2, "width": 8, "embed_sizes": (8,), "hidden": 8}


def tiny(columns, index, head, *, key):
    """The default model in the smallest size."""
    biases = [role.bias(index[role.component], heads=2) for role in columns.roles]
    embed = {"x": Identity(index["x"].shape[-1])} if "x" in index else None
    return BSATNP(embed=embed, bias=Sum(*biases) if biases else None, head=head, **SMALL, key=key)


def soil_data(n: int = 60) -> pd.DataFrame:
    """Metres far from zero, two values with holes, a covariate, a category, an index of names."""
    rng = np.random.default_rng(1)
    x, y = 180_000 + rng.uniform(0, 2000, n), 330_000 + rng.uniform(0, 3000, n)
    zinc = np.exp(6 + np.sin(x / 400) + 0.1 * rng.normal(size=n))
    acid = 5 + np.cos(y / 500) + 0.1 * rng.normal(size=n)
    acid[[3, 7]] = np.nan
    zinc[7] = np.nan
    elev = rng.normal(8, 1, n)
    elev[11] = np.nan
    soil = np.array(["clay", "sand", "peat"])[rng.integers(3, size=n)]
    frame = {"x": x, "y": y, "zinc": zinc, "acid": acid, "elev": elev, "soil": soil}
    return pd.DataFrame(frame, index=pd.Index([f"site {i}" for i in range(n)], name="site"))


SOIL = frames.Columns(
    ["zinc", "acid"],
    space=frames.Plane("x", "y"),
    covariates="elev",
    categories="soil",
    log="zinc",
    units={"zinc": "mg/kg"},
)

TINY_FIT = {"steps": 2, "batch": 2, "model": tiny, "progress": False}


@pytest.fixture(scope="session")
def soil():
    """A fitted model of two values in the plane."""
    return frames.fit(soil_data(), SOIL, key=jax.random.key(0), **TINY_FIT)


def untrained(data, columns):
    """What `frames.fit` gives, without the training."""
    meaning, index, f, report = _read(data, columns)
    encoding = Encoding.fit(meaning, index, f)
    points = encoding.points(index, f)
    splits = _scaled(default_splits(columns, index), encoding)
    model = tiny(columns, points.index, meaning.head, key=jax.random.key(0))
    context = points.take(np.flatnonzero(points.usable))
    return frames.Fitted(model, encoding, splits, context, report)


def river_data(n: int = 60) -> pd.DataFrame:
    """Levels at two gauges, every six hours."""
    rng = np.random.default_rng(2)
    times = pd.date_range("2024-03-29", periods=n, freq="6h", tz="Europe/Berlin")
    level = [np.sin(np.arange(n) / 5 + i) + 0.05 * rng.normal(size=n) for i in range(2)]
    parts = [pd.DataFrame({"when": times, "lon": 350.0 + i, "lat": 50.0, "level": level[i]}) for i in range(2)]
    return pd.concat(parts, ignore_index=True)


RIVER = frames.Columns(
    "level",
    space=frames.Sphere("lon", "lat"),
    time=frames.Forward("when", horizon=86400, history=3 * 86400),
    others=[frames.HourOfDay("when")],
    units={"level": "m"},
)


@pytest.fixture(scope="session")
def river():
    """A forecast on the sphere."""
    return untrained(river_data(), RIVER)
