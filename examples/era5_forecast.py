"""Forecast the temperature at sixteen places in Great Britain and Ireland six hours ahead, from the day before.

    python examples/era5_forecast.py

The data are hourly values of ERA5 for March 2019, a small table beside this file; `--data` takes any other with the
same columns. The first 24 days train, the last 7 test. Needs `pip install "bsatnp[gallery]"`. With SMOKE=1 it makes a
few steps.
"""

# %% Options
import argparse
import os
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from bsatnp import Points, frames, plot
from bsatnp.likelihoods import Gaussian
from bsatnp.metrics import Accumulator

SMOKE = os.environ.get("SMOKE") == "1"
SAMPLE = Path(__file__).resolve().parent / "data" / "era5_sample" / "era5_uk_16_places_201903.csv.gz"
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, default=SAMPLE, help="table with time, place, lon, lat, elevation and t2m")
parser.add_argument("--steps", type=int, default=2 if SMOKE else 500, help="updates of the model")
parser.add_argument("--out", type=Path, default=Path("runs") / "era5", help="folder for the model and the picture")
options, _ = parser.parse_known_args()
options.out.mkdir(parents=True, exist_ok=True)
HOUR, AHEAD, BACK = pd.Timedelta("1h"), 6, 24

# %% The data. The hour of the day matters by its value: it goes in as a point on a circle.
data = pd.read_csv(options.data, parse_dates=["time"]).sort_values(["time", "place"], kind="stable")
angle = 2 * np.pi * data["time"].dt.hour / 24
data["sun"], data["dusk"] = np.cos(angle), np.sin(angle)
start = data["time"].iloc[0] + 24 * pd.Timedelta("1D")
train, test = data[data["time"] < start], data[data["time"] >= start]
if SMOKE:
    train, test = train[train["time"] >= start - 100 * HOUR], test[test["time"] < start + 12 * HOUR]

# %% Fit: space enters by distances on the sphere, time by lags, and only the past predicts
columns = frames.Columns(
    "t2m",
    space=frames.Sphere("lon", "lat"),
    time=frames.Forward("time", horizon=3600 * AHEAD, history=3600 * BACK),
    covariates=["elevation", "sun", "dusk"],
    units={"t2m": "°C"},
)
began = time.perf_counter()
fitted = frames.fit(train, columns, key=jax.random.key(0), steps=options.steps, progress=not SMOKE)
print(f"{fitted.report}\n")
fitted.save(options.out / "t2m.npz")
trained = time.perf_counter() - began

# %% Test: every six hours a forecast of the next six, from what was known by then
blocks = [rows for _, rows in test.groupby((test["time"] - start) // (AHEAD * HOUR))]
known = [data[data["time"].between(rows["time"].min() - BACK * HOUR, rows["time"].min() - HOUR)] for rows in blocks]


def ours(past, future):
    return fitted.distribution(future, context=past)["t2m"]


# %% The ordinary methods: the last value, with and without the mean daily cycle, and a Gaussian process of the rest
cycle = train.groupby(["place", train["time"].dt.hour])["t2m"].mean()


def usual(rows):
    """The mean of the training part at the same place and hour."""
    return cycle.loc[list(zip(rows["place"], rows["time"].dt.hour, strict=True))].to_numpy()


def last(past, future, values):
    """The last of `values` at the place of each row of `future`."""
    newest = dict(zip(past["place"], values, strict=True))  # in the order of time
    return future["place"].map(newest).to_numpy()


def persistence(past, future):
    return last(past, future, past["t2m"])


def with_cycle(past, future):
    return usual(future) + last(past, future, past["t2m"] - usual(past))


def spread(method):
    """A method with the standard deviation that its errors had in training, by hours ahead."""
    firsts = pd.date_range(train["time"].iloc[0] + BACK * HOUR, start - AHEAD * HOUR, freq=f"{AHEAD + 1}h")
    parts = [
        (
            train[train["time"].between(now - BACK * HOUR, now - HOUR)],
            train[train["time"].between(now, now + (AHEAD - 1) * HOUR)],
        )
        for now in firsts
    ]
    errors = pd.concat([(future["t2m"] - method(past, future)) for past, future in parts])
    hours = np.concatenate([lead(future) for _, future in parts])
    std = np.sqrt((errors**2).groupby(hours).mean())
    return lambda past, future: Gaussian(method(past, future)[:, None], std.loc[lead(future)].to_numpy()[:, None])


def lead(future):
    return ((future["time"] - future["time"].min()) // HOUR).to_numpy()


def inputs(rows):
    """Hundreds of kilometres and hours."""
    x = 111.2 * np.cos(np.radians(54)) * rows["lon"] / 100
    return np.stack([x, 1.112 * rows["lat"], (rows["time"] - start) / HOUR], -1)


some = train[train["time"].dt.hour.mod(2) == 0].iloc[-(40 if SMOKE else 900) :]
kernel = ConstantKernel(2.0) * Matern([2.0, 2.0, 6.0], (0.1, 1e3), nu=1.5) + WhiteKernel(0.05, (1e-4, 1.0))
kernel = kernel + ConstantKernel(2.0) * Matern([5.0, 5.0, 48.0], (0.1, 1e4), nu=0.5)
prior = GaussianProcessRegressor(kernel, random_state=0).fit(inputs(some), some["t2m"] - usual(some)).kernel_
print(f"kernel of the Gaussian process: {prior}\n")


def gaussian_process(past, future):
    process = GaussianProcessRegressor(prior, optimizer=None).fit(inputs(past), past["t2m"] - usual(past))
    mean, std = process.predict(inputs(future), return_std=True)
    return Gaussian((usual(future) + mean)[:, None], std[:, None])


methods = {
    "BSA-TNP": ours,
    "Gaussian process, daily cycle": gaussian_process,
    "persistence, daily cycle": spread(with_cycle),
    "persistence": spread(persistence),
}
print(f"{'t2m, °C':31}{'NLL':>7}{'CRPS':>7}{'RMSE':>7}{'95 % coverage':>15}")
for name, method in methods.items():
    total = Accumulator()
    for past, future in zip(known, blocks, strict=True):
        truth = future[["t2m"]].to_numpy()
        total.add(method(past, future), truth, np.ones(truth.shape, bool))
    row = total.result()
    print(f"{name:31}{row['nll']:7.3f}{row['crps']:7.3f}{row['rmse']:7.3f}{100 * row['coverage']:13.1f} %")
print(f"{len(blocks)} forecasts, {len(test)} values; training took {trained / 60:.1f} minutes.")

# %% One forecast at four places
number = len(blocks) // 2
past, future = known[number], blocks[number]


def points(rows):
    """Places, and times as dates, for the picture."""
    index = {"s": rows[["lon", "lat"]].to_numpy(), "t": rows[["time"]].to_numpy()}
    return Points(index, rows[["t2m"]].to_numpy())


shown = sorted(data["place"].unique())[1::4][:4]
figure, axes = plt.subplots(1, len(shown), figsize=(13, 3.3), sharey=True, layout="constrained")
for axis, place in zip(axes, shown, strict=True):
    before, after = (rows[rows["place"] == place] for rows in (past, future))
    names = {"unit": "°C", "ylabel": "temperature", "xlabel": ""}
    plot.forecast(points(after), ours(past, after), ctx=points(before), ax=axis, **names)
    lon, lat = before[["lon", "lat"]].iloc[0]
    axis.set_title(f"{abs(lon):.2f}° {'W' if lon < 0 else 'E'}, {lat:.2f}° N")
    axis.label_outer()
    axis.get_legend().set_visible(place == shown[0])
figure.savefig(options.out / "forecast.png", dpi=110)
print(f"The model is in {options.out / 't2m.npz'}, the picture in {options.out / 'forecast.png'}.")
