"""Zinc in the soil of a flood plain of the Meuse: five-fold cross-validation against a Gaussian process, and a map.

    python examples/meuse_zinc.py --data FOLDER

FOLDER holds `meuse.csv` and `meuse_grid.csv`, the tables `meuse` and `meuse.grid` of the R package sp. They are under
the GPL and not part of this repository; R writes them: `library(sp); data(meuse); data(meuse.grid)`, then
`write.csv(meuse, "meuse.csv", row.names=FALSE)` and likewise the grid. Needs `pip install "bsatnp[gallery]"`.
With SMOKE=1 it makes a few steps on an invented field instead.
"""

# %% Options
import argparse
import os
import time
import warnings
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from bsatnp import Points, frames, plot
from bsatnp.likelihoods import LogNormal
from bsatnp.metrics import Accumulator

SMOKE = os.environ.get("SMOKE") == "1"
NEAR = Path(__file__).resolve().parent.parent / ".." / "shared" / "data" / "points"
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, default=NEAR, help="folder with meuse.csv and meuse_grid.csv")
parser.add_argument("--steps", type=int, default=2 if SMOKE else 600, help="updates of each fit")
parser.add_argument("--out", type=Path, default=Path("runs") / "meuse", help="folder for the pictures")
options, _ = parser.parse_known_args()
options.out.mkdir(parents=True, exist_ok=True)


def invented(n, rng):
    """Places in a flood plain and zinc that falls with the distance from the river."""
    x, y = 178_500 + 3000 * rng.random(n), 329_600 + 4000 * rng.random(n)
    far = np.abs(x - y + 150_600) / 5000
    zinc = np.exp(6.8 - 3 * np.sqrt(far) + 0.3 * np.sin(x / 400) + 0.2 * rng.normal(size=n))
    return pd.DataFrame({"x": x.round(), "y": y.round(), "dist": far, "zinc": zinc.round()})


# %% The data: 155 samples with their distance from the river, and a grid of places with the same
if SMOKE:
    soil, grid = (invented(n, np.random.default_rng(n)) for n in (40, 100))
elif (options.data / "meuse.csv").is_file():
    soil, grid = (pd.read_csv(options.data / name) for name in ("meuse.csv", "meuse_grid.csv"))
else:
    raise SystemExit(f"There is no {options.data / 'meuse.csv'}: see `--help` for where to get it, and give `--data`.")
soil["river"], grid["river"] = np.sqrt(soil["dist"]), np.sqrt(grid["dist"])  # log zinc is about linear in it
columns = frames.Columns("zinc", space=frames.Plane("x", "y"), covariates="river", log="zinc", units={"zinc": "mg/kg"})


# %% The ordinary method: a Gaussian process of log zinc, its kernel fitted by marginal likelihood
warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound: the coordinate does not matter


def gaussian_process(train, test):
    def inputs(table):
        return np.stack([table["x"] / 1000, table["y"] / 1000, table["river"]], -1)

    log = np.log(train["zinc"])
    kernel = ConstantKernel(1.0) * Matern([0.5, 0.5, 0.5], (0.02, 1000), nu=1.5) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=4, random_state=0)
    mean, std = process.fit(inputs(train), log).predict(inputs(test), return_std=True)
    return LogNormal(mean[:, None], std[:, None])


# %% Five folds: every sample is predicted once, from the samples of the four others
names = ("BSA-TNP", "Gaussian process", "one distribution for all")
totals, seconds = {name: Accumulator() for name in names}, dict.fromkeys(names, 0.0)
fold = np.random.default_rng(0).permutation(len(soil)) % 5
for k in range(1 if SMOKE else 5):
    train, test = soil[fold != k], soil[fold == k]
    truth = test[["zinc"]].to_numpy(float)
    log = np.log(train["zinc"])
    constant = LogNormal(np.full(truth.shape, log.mean()), np.full(truth.shape, log.std()))

    def ours(train, test, k=k):
        fitted = frames.fit(train, columns, key=jax.random.key(k), steps=options.steps, progress=not SMOKE)
        return fitted.distribution(test)["zinc"]

    for name, method in zip(names, (ours, gaussian_process, lambda *_, c=constant: c), strict=True):
        start = time.perf_counter()
        totals[name].add(method(train, test), truth, np.ones(truth.shape, bool))
        seconds[name] += time.perf_counter() - start

print(f"\n{'zinc, mg/kg':26}{'NLL':>7}{'CRPS':>7}{'RMSE':>7}{'95 % coverage':>15}{'seconds':>9}")
for name, total in totals.items():
    row = total.result()
    print(f"{name:26}{row['nll']:7.3f}{row['crps']:7.1f}{row['rmse']:7.1f}", end="")
    print(f"{100 * row['coverage']:13.1f} %{seconds[name]:9.0f}")

# %% The map, from all samples, by both
fitted = frames.fit(
    soil[fold != 0] if SMOKE else soil, columns, key=jax.random.key(9), steps=options.steps, progress=not SMOKE
)
print(f"\n{fitted.report}")
fitted.save(options.out / "zinc.npz")
zinc = frames.load(options.out / "zinc.npz").distribution(grid)["zinc"]
known = Points({"s": soil[["x", "y"]].to_numpy() / 1000}, soil[["zinc"]].to_numpy())
cells = {"s": grid[["x", "y"]].to_numpy() / 1000}
maps = {"BSA-TNP": zinc, "Gaussian process": gaussian_process(soil, grid)}
figure, axes = plt.subplots(2, 2, figsize=(9.2, 8.2), layout="constrained", sharex=True, sharey=True)
for column, part, label, colours in (
    (axes[:, 0], "mean", "mean", "viridis"),
    (axes[:, 1], "std", "std. deviation", "cividis"),
):
    values = {name: np.asarray(getattr(pred, part)) for name, pred in maps.items()}
    limits = 0, max(value.max() for value in values.values())  # the same colours for both methods
    for axis, (name, value) in zip(column, values.items(), strict=True):
        names = {"label": f"zinc, {label}", "unit": "mg/kg", "xlabel": "", "ylabel": ""}
        ctx = known if part == "mean" else None
        plot.field(cells, value, ctx=ctx, limits=limits, cmap=colours, ax=axis, **names)
        axis.set_title(name, fontsize="medium")
for axis in axes[1]:
    axis.set_xlabel("x (km)")
for axis in axes[:, 0]:
    axis.set_ylabel("y (km)")
figure.savefig(options.out / "map.png", dpi=110)
print(f"The model is in {options.out / 'zinc.npz'}, the picture in {options.out / 'map.png'}.")
