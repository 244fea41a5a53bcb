"""Who is infected? An outbreak seen through a few tests a day, after learning from outbreaks in other towns.

    python examples/epidemic.py

Simulated: `bsatnp.simulate` spreads an infection through towns of 32 × 32 households, in each town with its own rates.
On every day 4 % of the households are tested. Sixteen towns train a model; in six others it says from the tests how
probable it is that a household that nobody tested is susceptible, infected or recovered. The ordinary method is that of
the nearest tests, tuned on the towns of the training. Needs `pip install "bsatnp[gallery]"`. With SMOKE=1 it makes a
few steps.
"""

# %% Options
import argparse
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.neighbors import KNeighborsClassifier

from bsatnp import Points, frames, plot
from bsatnp.simulate import sir

SMOKE = os.environ.get("SMOKE") == "1"
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=2 if SMOKE else 600, help="updates of the model")
parser.add_argument("--out", type=Path, default=Path("runs") / "epidemic", help="folder for the model and the picture")
options, _ = parser.parse_known_args()
options.out.mkdir(parents=True, exist_ok=True)
STATES, SIDE, DAYS = ["susceptible", "infected", "recovered"], 32, 40

# %% Towns: each 100 households and 100 days from the next, which keeps them apart for a model of distances and lags
rollout = jax.jit(sir.rollout, static_argnums=3)


def town(number):
    """All households on all days, and which of them are tested."""
    rng = np.random.default_rng(number)
    state = np.full((SIDE, SIDE), sir.SUSCEPTIBLE)
    state.flat[rng.integers(SIDE * SIDE, size=rng.integers(2, 6))] = sir.INFECTED
    rates = rng.uniform(0.03, 0.08), rng.uniform(0.05, 0.15)
    states = np.asarray(rollout(jnp.asarray(state), *rates, DAYS, key=jax.random.key(number)))
    day, x, y = np.indices(states.shape).reshape(3, -1)
    table = pd.DataFrame({"x": x + 100.0 * number, "y": y, "day": day + 100.0 * number})
    table["state"] = np.array(STATES)[states.ravel()]
    return table, rng.random(len(table)) < 0.04


towns = [town(number) for number in range(3 if SMOKE else 22)]
training, testing = towns[:2] if SMOKE else towns[:16], towns[2:] if SMOKE else towns[16:]
tests = [table[tested] for table, tested in training]
print(f"{sum(map(len, tests))} tests in {len(training)} towns; of them")
print(pd.concat(tests)["state"].value_counts(normalize=True).round(2).to_string())

# %% Fit: windows are no larger than a town
columns = frames.Columns("state", space=frames.Plane("x", "y"), time=frames.Time("day"))
began = time.perf_counter()
fitted = frames.fit(
    tests,
    columns,
    key=jax.random.key(0),
    steps=options.steps,
    splits=frames.Windows(256, 64, spread=2.0),
    progress=not SMOKE,
)
print(f"{fitted.report}\n")
fitted.save(options.out / "outbreak.npz")
trained = time.perf_counter() - began


def ours(known, asked):
    """Probabilities `(row, state)`."""
    return fitted.predict(asked, context=known)[[f"state_is_{state}" for state in STATES]].to_numpy()


# %% The ordinary method: states of the nearest tests, where a day counts as some number of households
def nearest(known, asked, k, pace):
    def places(rows):
        return rows[["x", "y", "day"]].to_numpy() * [1, 1, pace]

    method = KNeighborsClassifier(min(k, len(known)), weights="distance").fit(places(known), known["state"])
    found = np.zeros((len(asked), len(STATES)))
    found[:, [STATES.index(state) for state in method.classes_]] = method.predict_proba(places(asked))
    return (k * found + shares(known, asked)) / (k + 1)  # never quite sure


def shares(known, asked):
    """How frequent each state is on that day in the towns of the training."""
    day = asked["day"] % 100
    return frequency.loc[day].to_numpy()


every = pd.concat(tests)
frequency = pd.crosstab(every["day"] % 100, every["state"])[STATES] + 0.5
frequency = frequency.div(frequency.sum(axis=1), axis=0)


def sample(table, tested, n=1000):
    """Tests of a town, and some of those who were not tested."""
    return table[tested], table[~tested].sample(n, random_state=0)


def scores(method, cases):
    """NLL, Brier score and accuracy."""
    probability = np.concatenate([method(known, asked) for known, asked in cases])
    truth = pd.get_dummies(pd.concat([asked for _, asked in cases])["state"])[STATES].to_numpy(float)
    nll = -np.log((probability * truth).sum(1)).mean()
    brier = np.square(probability - truth).sum(1).mean()
    return nll, brier, (probability.argmax(1) == truth.argmax(1)).mean()


cases = [sample(*one) for one in training[:6]]
choices = [(k, pace) for k in (4, 8, 16, 32) for pace in (0.25, 0.5, 1.0, 2.0)]
best = min(choices, key=lambda choice: scores(lambda known, asked: nearest(known, asked, *choice), cases)[0])
print(f"nearest tests: {best[0]} of them, a day counts as {best[1]:g} households\n")

# %% Score on the other towns
methods = {
    "BSA-TNP": ours,
    "nearest tests": lambda known, asked: nearest(known, asked, *best),
    "shares by day": shares,
}
cases = [sample(*one) for one in testing]
print(f"{'state of a household':22}{'NLL':>7}{'Brier':>8}{'accuracy':>10}")
for name, method in methods.items():
    nll, brier, accuracy = scores(method, cases)
    print(f"{name:22}{nll:7.3f}{brier:8.3f}{100 * accuracy:8.1f} %")
print(
    f"{sum(len(asked) for _, asked in cases)} households in {len(cases)} towns; training took {trained / 60:.1f} min."
)

# %% One town on one day
table, tested = testing[0]
day = table["day"].min() + 15
today = table[table["day"] == day]
recent = table[tested & table["day"].between(day - 2, day + 2)]
places = {"s": today[["x", "y"]].to_numpy() - [table["x"].min(), 0]}
seen = Points(
    {"s": recent[["x", "y"]].to_numpy() - [table["x"].min(), 0]}, (recent[["state"]] == "infected").to_numpy(float)
)
truth = (today["state"] == "infected").to_numpy(float)
panels = {"who is infected": truth} | {name: methods[name](table[tested], today)[:, 1] for name in list(methods)[:2]}
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained", sharex=True, sharey=True)
for axis, (name, values) in zip(axes, panels.items(), strict=True):
    names = {"label": "P(infected)", "xlabel": "x (households)", "ylabel": "y (households)"}
    plot.field(places, values[:, None], ctx=seen, limits=(0, 1), ax=axis, **names)
    axis.set_title(name)
figure.savefig(options.out / "map.png", dpi=110)
print(f"The model is in {options.out / 'outbreak.npz'}, the picture in {options.out / 'map.png'}.")
