"""Maps of Gaussian processes: in the plane, on two resolutions, and on the sphere before and after a rotation."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bsatnp.predict import predict
from bsatnp.simulate import posterior
from bsatnp.tasks import Task
from paper.drawing import style
from paper.drawing.trained import Trained, need, origins
from paper.evaluation import test_key

#: Cells of a map along each axis.
CELLS = 48

#: Tasks in the picture of the multiscale batch.
TASKS = 4

#: What a row of a figure is called.
NAMES = {
    "bsa-tnp": "BSA-TNP",
    "convcnp": "ConvCNP",
    "tnp-d": "TNP-D",
    "te-tnp": "TE-TNP",
    "pt-te-tnp-32": "PT-TE-TNP",
    "pt-te-tnp-128": "PT-TE-TNP, 128",
    "sa-tnp": "no bias",
    "bsa-tnp-rbf": "RBF bias",
    "bsa-tnp-geodesic": "geodesic bias",
}


class Maps(NamedTuple):
    """One task with targets on a lattice, and the exact posterior there, `(x, y)` each."""

    task: Task
    places: np.ndarray
    truth: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def maps(stream: Any, number: int = 0) -> Maps:
    """The task of one test batch."""
    alone = dataclasses.replace(stream, batch=1)
    still = dataclasses.replace(alone, rotation=(0.0, 0.0, 0.0)) if hasattr(alone, "rotation") else alone
    key = jax.random.fold_in(test_key(), number)
    task, kernels = alone.draw(number, key=key, targets=alone.grid(CELLS))
    places = np.asarray(still.draw(number, key=key, targets=still.grid(CELLS))[0].ctx.index["s"])[0]
    exact = posterior(kernels, task.ctx, task.tgt, noise=alone.noise, tgt_noise=alone.tgt_noise)
    square = (CELLS, CELLS)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[0], task)
    rows = np.flatnonzero(one.ctx.mask)
    return Maps(
        Task(one.ctx.take(rows), one.tgt),
        places[rows],
        one.tgt.f.reshape(square),
        exact.mean.reshape(square),
        np.sqrt(exact.variance).reshape(square),
    )


def predicted(one: Trained, stream: Any, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation on the lattice."""
    found = predict(one.experiment.adapt(one.load(), stream), task.ctx, task.tgt.index)
    return tuple(np.asarray(part).reshape(CELLS, CELLS) for part in (found.mean, found.std))  # pyright: ignore


def gp(runs: Path, out: Path) -> list[Path]:
    """Task, mean and standard deviation in the plane for each domain, the exact posterior first."""
    models = need(runs, "gp", ("bsa-tnp", "tnp-d", "convcnp", "te-tnp", "pt-te-tnp-32", "pt-te-tnp-128"))
    tests = models[0].budget().tests
    return [_gp(models, domain, stream, out / f"gp-{domain}.png") for domain, stream in tests.items()]


def _gp(models: list[Trained], domain: str, stream: Any, path: Path) -> Path:
    found = maps(stream)
    rows = {"exact posterior": (found, found.mean, found.std)}
    rows |= {NAMES[one.model]: (found, *predicted(one, stream, found.task)) for one in models}
    return _plane(rows, stream, f"2-D GP, {domain} domain", origins(models), path)


def multiscale(runs: Path, out: Path) -> list[Path]:
    """A batch of tasks on two resolutions: context, truth, mean, standard deviation."""
    (one,) = need(runs, "gp-multiscale", ("bsa-tnp",))
    stream: Any = one.budget().tests["multiscale"]
    batch = [maps(stream, number) for number in range(TASKS)]
    rows = {f"task {i}": (found, *predicted(one, stream, found.task)) for i, found in enumerate(batch, 1)}
    title = "Multiscale GP, BSA-TNP; half of the context in the dashed square"
    return [_plane(rows, stream, title, one.origin, out / "gp-multiscale.png")]


def _plane(rows: dict[str, tuple[Maps, Any, Any]], stream: Any, title: str, origin: str, path: Path) -> Path:
    """Context, truth, mean and standard deviation side by side, a row for each name."""
    figure, axes = style.axes(len(rows), 4)
    low, high = (edge + stream.shift for edge in stream.domain)
    extent = (low, high, low, high)
    scale = _limits(np.stack([found.truth for found, _, _ in rows.values()]))
    top = max(std.max() for _, _, std in rows.values())
    values: dict[str, Any] = {"cmap": style.VALUES, "vmin": scale[0], "vmax": scale[1]}
    left = right = None
    for row, (name, (found, mean, std)) in enumerate(rows.items()):
        style.scattered(axes[row, 0], found.places, found.task.ctx.f[:, 0], extent, **values)
        style.field(axes[row, 1], found.truth, extent, **values)
        left = style.field(axes[row, 2], mean, extent, **values)
        right = style.field(axes[row, 3], std, extent, cmap=style.SPREAD, vmin=0, vmax=top)
        style.side(axes[row, 0], name)
    if stream.inner is not None:
        low, high = stream.inner
        for (_, column), axis in np.ndenumerate(axes):
            colour = "white" if column else "black"
            axis.plot([low, high, high, low, low], [low, low, high, high, low], "--", color=colour, lw=0.9)
    for axis, name in zip(axes[0], ("context", "truth", "mean", "standard deviation"), strict=True):
        axis.set_title(name, fontsize=9)
    style.label(axes, "s₁ (units of the domain)", "s₂ (units of the domain)")
    style.bar(figure, left, axes[:, :3], "f (prior standard deviations)")
    style.bar(figure, right, axes[:, 3:], "std. dev. of f (prior ones)")
    figure.suptitle(f"{title}\n{origin}", fontsize=8)
    return style.save(figure, path, origin)


def sphere(runs: Path, out: Path) -> list[Path]:
    """One spherical task before and after the paper's rotations, all drawn where it was before."""
    models = need(runs, "sphere", ("bsa-tnp-geodesic", "bsa-tnp-rbf", "sa-tnp"))
    streams: dict[str, Any] = {
        name: stream for name, stream in models[0].budget().tests.items() if "doubled" not in name
    }
    found = {name: maps(stream) for name, stream in streams.items()}
    first = next(iter(found.values()))
    rows: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"exact posterior": [(first.mean, first.std)] * len(found)}
    for one in models:
        rows[NAMES[one.model]] = [predicted(one, streams[name], found[name].task) for name in streams]
    figure, axes = style.axes(len(rows), 2 + 2 * len(streams))
    half = next(iter(streams.values())).half_width
    extent = (-half, half, -half, half)
    scale = _limits(first.truth)
    top = max(std.max() for name, pairs in rows.items() for _, std in pairs)
    values: dict[str, Any] = {"cmap": style.VALUES, "vmin": scale[0], "vmax": scale[1]}
    left = right = None
    n = len(streams)
    for row, (name, pairs) in enumerate(rows.items()):
        style.scattered(axes[row, 0], first.places, first.task.ctx.f[:, 0], extent, **values)
        style.field(axes[row, 1], first.truth, extent, **values)
        for column, (mean, std) in enumerate(pairs):
            left = style.field(axes[row, 2 + column], mean, extent, **values)
            right = style.field(axes[row, 2 + n + column], std, extent, cmap=style.SPREAD, vmin=0, vmax=top)
        style.side(axes[row, 0], name)
    turns = ["unrotated" if name == "0-0-0" else "turned " + "°, ".join(name.split("-")) + "°" for name in streams]
    titles = ["context", "truth", *(f"mean\n{turn}" for turn in turns), *(f"std. dev.\n{turn}" for turn in turns)]
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
    style.label(axes, "longitude (°)", "latitude (°)")
    style.bar(figure, left, axes[:, : 2 + n], "f (prior standard deviations)")
    style.bar(figure, right, axes[:, 2 + n :], "standard deviation of f (prior standard deviations)")
    title = "Spherical GP, turned by north, east, tilt and drawn where it was before"
    figure.suptitle(f"{title}\n{origins(models)}", fontsize=8)
    return [style.save(figure, out / "sphere.png", origins(models))]


def _limits(values: np.ndarray) -> tuple[float, float]:
    most = float(np.abs(values).max())
    return -most, most
