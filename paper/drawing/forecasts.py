"""A forecast of ERA5: the four frames as they were seen, the next as it was, and as it was predicted."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bsatnp.predict import predict
from paper.drawing import style
from paper.drawing.fields import NAMES
from paper.drawing.trained import Missing, Trained, trained
from paper.evaluation import test_key

_MODELS = ("bsa-tnp", "tnp-d", "pt-te-tnp-32")
_ZERO = 273.15


def era5(runs: Path, out: Path, data: Path | None = None) -> list[Path]:
    """A picture for each model of the first experiment of ERA5 that has any, on the box of its test."""
    for name in ("era5-cwn", "era5-cnw"):
        if models := trained(runs, name, _MODELS):
            return [_forecast(one, data, out / f"era5-{one.model}.png") for one in models]
    raise Missing("era5-cwn", _MODELS)


def _forecast(one: Trained, data: Path | None, path: Path) -> Path:
    tests: Any = one.budget(data).tests
    domain, stream = next(iter(tests.items()))
    alone = dataclasses.replace(stream, batch=1)
    task = jax.tree.map(lambda leaf: np.asarray(leaf)[0], alone(4, key=test_key()))
    ctx = task.ctx.take(np.flatnonzero(task.ctx.mask))
    found: Any = predict(one.load(), ctx, task.tgt.index)
    scaling, n = alone.scaling, alone.window
    width = float(scaling.f.width[0])
    truth, mean = (scaling.f.inverse(np.asarray(f)).reshape(n, n) - _ZERO for f in (task.tgt.f, found.mean))
    std = np.asarray(found.std).reshape(n, n) * width
    places = scaling.s.inverse(task.tgt.index["s"]).reshape(n, n, 2)
    latitude, longitude = places[:, 0, 0], places[0, :, 1]
    half = alone.resolution / 2
    extent = (longitude[0] - half, longitude[-1] + half, latitude[0] - half, latitude[-1] + half)
    seen_at = scaling.s.inverse(ctx.index["s"])
    hours = np.rint(scaling.t.inverse(ctx.index["t"])[:, 0]).astype(int)
    last = int(np.rint(scaling.t.inverse(task.tgt.index["t"])[0, 0]))
    seen = scaling.f.inverse(ctx.f)[:, 0] - _ZERO

    figure, axes = style.axes(2, 4, size=2.6)
    every = np.concatenate([truth.ravel(), mean.ravel(), seen])
    values: dict[str, Any] = {"cmap": style.VALUES, "vmin": every.min(), "vmax": every.max()}
    for axis, hour in zip(axes[0], sorted(set(hours.tolist())), strict=True):
        frame = np.full((n, n), np.nan)
        at = hours == hour
        row = np.rint((seen_at[at, 0] - latitude[0]) / alone.resolution).astype(int)
        column = np.rint((seen_at[at, 1] - longitude[0]) / alone.resolution).astype(int)
        frame[row, column] = seen[at]
        style.field(axis, frame.T, extent, **values)
        axis.set_facecolor("0.93")
        axis.set_title(f"seen {last - hour} h before", fontsize=9)
    shown = style.field(axes[1, 0], truth.T, extent, **values)
    style.field(axes[1, 1], mean.T, extent, **values)
    spread = style.field(axes[1, 2], std.T, extent, cmap=style.SPREAD, vmin=0)
    wrong = float(np.abs(mean - truth).max())
    error = style.field(axes[1, 3], (mean - truth).T, extent, cmap=style.SIGNED, vmin=-wrong, vmax=wrong)
    when = scaling.start + np.timedelta64(last, "h")
    for axis, title in zip(axes[1], ("truth", "mean", "standard deviation", "mean − truth"), strict=True):
        axis.set_title(title, fontsize=9)
    style.label(axes, "longitude (°E)", "latitude (°N)")
    style.bar(figure, shown, axes[1, :2], "2 m temperature (°C)")
    style.bar(figure, spread, axes[1, 2:3], "std. dev. (K)")
    style.bar(figure, error, axes[1, 3:], "error (K)")
    stamp = str(when.astype("datetime64[h]")).replace("T", " ") + ":00 UTC"
    figure.suptitle(f"ERA5, {domain} box, {stamp}, {NAMES[one.model]}\n{one.origin}", fontsize=9)
    return style.save(figure, path, one.origin)
