"""Forecast PM2.5 and PM10 at twelve sites in Beijing, six hours ahead, from two days of history.

The paper's partially stationary benchmark: weather and calendar enter the tokens, space and time enter as biases of the
attention alone, so that the forecast does not change when all places or all times are shifted together.

    python examples/beijing_air_quality.py --data PATH --minutes 10

Without the full data (UCI dataset 501, https://doi.org/10.24432/C5RK5G) it runs on the sample of eight weeks beside it.
"""

# %% Options
import argparse
import os
import time
from pathlib import Path

import jax
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np

from bsatnp import checkpoint
from bsatnp.bias import RBFNetwork, Sum
from bsatnp.datasets import beijing
from bsatnp.datasets.beijing_tasks import forecasting, persistence, residual_std, station_mean
from bsatnp.groups import On, TimeShift, Translation
from bsatnp.layers import Identity
from bsatnp.likelihoods import Gaussian, GaussianHead
from bsatnp.metrics import Accumulator
from bsatnp.models import BSATNP
from bsatnp.predict import predict
from bsatnp.train import EpochStream, evaluate, fit

SMOKE = os.environ.get("SMOKE") == "1"
HERE = Path(__file__).resolve().parent
FULL, SAMPLE = HERE.parent / ".." / "shared" / "data" / "beijing", HERE / "data" / "beijing_sample"
on_cpu = jax.default_backend() == "cpu"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, default=FULL if FULL.is_dir() and not SMOKE else SAMPLE, help="folder to read")
parser.add_argument("--minutes", type=float, default=10.0, help="training time, compilation aside")
parser.add_argument("--batch", type=int, default=4 if on_cpu else 32, help="tasks in a step; the paper's 32 on a GPU")
parser.add_argument("--depth", type=int, default=3 if on_cpu else 6, help="blocks; the paper's 6 on a GPU")
parser.add_argument("--out", type=Path, default=Path("runs") / "beijing", help="folder for the model and the picture")
options, _ = parser.parse_known_args()
options.out.mkdir(parents=True, exist_ok=True)

# %% Data: the first 80 % of the rows train, the next 10 % validate, the last 10 % test
data = beijing.load(options.data)
parts = forecasting(data, batch=2 if SMOKE else options.batch)
print(f"{len(data)} rows from {data.time[0]} to {data.time[-1]}, {data.n_dropped} incomplete rows dropped.")

# %% The model. Scaled time runs over years: its bias starts with length scales from one hour to two days.
hour = 3600 / parts.scaling.t.width[0]
space = RBFNetwork(On("s", Translation(2)), heads=4, basis=5)
lag = RBFNetwork(On("t", TimeShift()), heads=4, basis=3, lengths=(hour, 48 * hour))
model = BSATNP(
    embed={"x": Identity(parts.train.index["x"].shape[-1])},
    bias=Sum(space, lag),
    head=GaussianHead(out=2),
    depth=1 if SMOKE else options.depth,
    width=32 if SMOKE else 128,
    key=jax.random.key(0),
)

# %% How many steps fit into the time, so that the learning rate falls to its end within it
key_trial, key_fit = jax.random.split(jax.random.key(1))
seconds = [
    row["seconds"] for row in fit(model, parts.train, steps=5, key=key_trial, log_every=1, progress=False).history
]
per_step = float(np.median(np.diff(seconds)))
limit = 60 * options.minutes
steps = 3 if SMOKE else min(10_000, max(10, int(0.8 * limit / per_step)))  # the rest is for validation
print(f"{per_step:.3g} s a step: {steps} steps in {options.minutes:g} minutes.")


def out_of_time(step, row, model):
    """A safety net, should the machine be slower than it was a moment ago."""
    return row["seconds"] > 1.1 * limit + 60


run = fit(
    model,
    parts.train,
    steps=steps,
    key=key_fit,
    validation=parts.valid,
    validation_batches=max(1, steps // 40),
    callbacks=(out_of_time,),
    progress=not SMOKE,
)
print(f"{run.steps} steps in {run.history[-1]['seconds'] / 60:.1f} minutes.")

# %% Save the model with its scaling, and go on with what the file gives back
file = options.out / "model.npz"
scaling = {name: [m.low.tolist(), m.high.tolist()] for name, m in vars(parts.scaling).items() if name != "wind"}
checkpoint.save(file, run.best, extra={"scaling": scaling, "wind": list(parts.scaling.wind), "units": "µg/m³"})
model = checkpoint.load(file)

# %% The test part: each row is predicted once, from the 624 rows before its block of 84
tests = parts.test.evaluation()[: 4 if SMOKE else None]
batches = EpochStream(tests, parts.test.batch)
start = time.perf_counter()
scores = {"BSA-TNP (bias)": evaluate(model, batches, batches=batches.batches, key=jax.random.key(2))}
print(f"{len(tests)} test tasks in {time.perf_counter() - start:.1f} s.")

truth = np.stack([task.tgt.f for task in tests])
for name, baseline in (("persistence", persistence), ("station mean", station_mean)):
    std = residual_std(baseline, parts.train.evaluation(stride=20 * 84))
    mean = np.stack([baseline(task) for task in tests])
    total = Accumulator()
    total.add(Gaussian(mean, np.broadcast_to(std, mean.shape)), truth, np.ones(truth.shape, bool))
    scores[name] = total.result()

print(f"\n{'scaled values':16}{'NLL':>8}{'MAE':>8}{'RMSE':>8}{'95 % coverage':>15}")
for name, row in scores.items():
    print(f"{name:16}{row['nll']:8.2f}{row['mae']:8.3f}{row['rmse']:8.3f}{100 * row['coverage']:13.1f} %")
units = ", ".join(
    f"{width:.0f} µg/m³ of {name}" for width, name in zip(parts.scaling.f.width, beijing.TARGETS, strict=True)
)
print(f"One scaled unit is {units}.")

# %% One forecast in µg/m³, at four stations
number = len(tests) // 2
rows_of_task = parts.test.starts()[number] + np.arange(624 + 84)
clock, station = parts.test.time[rows_of_task], parts.test.station[rows_of_task]
f = parts.scaling.f.inverse(parts.test.f[rows_of_task])
predicted = predict(model, tests[number].ctx, tests[number].tgt)
middle, low, high = (
    parts.scaling.f.inverse(np.asarray(value))
    for value in (predicted.mean, predicted.quantile(0.025), predicted.quantile(0.975))
)
shown = ("Huairou", "Dingling", "Dongsi", "Gucheng")
figure, axes = plt.subplots(2, len(shown), figsize=(13, 5.6), sharex=True, sharey="row", layout="constrained")
for column, name in enumerate(shown):
    here = station == data.stations.index(name)
    past, future = here.copy(), here[624:]
    past[624:] = False
    for output, axis in enumerate(axes[:, column]):
        axis.plot(clock[past], f[past, output], ".-", color="0.35", lw=1, ms=4, label="context")
        band = low[future, output], high[future, output]
        axis.fill_between(clock[624:][future], *band, color="C0", alpha=0.25, lw=0, label="95 % band")
        axis.plot(clock[624:][future], middle[future, output], "-", color="C0", lw=2, label="mean")
        axis.plot(clock[624:][future], f[624:][future, output], "o", color="C3", ms=4, label="truth")
        axis.axvline(clock[624], color="0.7", lw=0.8, zorder=0)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, column].set_title(name)
for axis, name in zip(axes[:, 0], beijing.TARGETS, strict=True):
    axis.set_ylabel(f"{name}, µg/m³")
    axis.set_ylim(bottom=0)
    axis.set_xlim(clock[624] - np.timedelta64(24, "h"), clock[-1] + np.timedelta64(1, "h"))
locator = mdates.AutoDateLocator(maxticks=5)
axes[0, 0].xaxis.set_major_locator(locator)
axes[0, 0].xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
figure.supxlabel("local time", fontsize="medium")
figure.align_ylabels()
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
picture = options.out / "forecast.png"
figure.savefig(picture, dpi=130)
print(f"\nThe model is in {file}, the picture in {picture}.")
