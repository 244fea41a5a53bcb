"""Train a model of an experiment, test it, and write one JSON; go on where an earlier call was stopped."""

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from bsatnp import checkpoint
from bsatnp._types import whole
from bsatnp.models.base import count_parameters
from bsatnp.train import fit
from paper import machine, record
from paper.evaluation import against_exact, digest, exact_file, exact_scores, scores, summary, write_whole
from paper.experiments import experiment as find
from paper.files import read, read_lines
from paper.folders import RESULTS, RUNS
from paper.protocol import SMOKE, Experiment, Preset


@dataclasses.dataclass(frozen=True)
class Job:
    """One row of a table: a model of an experiment, a budget and a seed, and where its files are.

    Args:
        experiment: its name.
        model: its name.
        preset: "full" is the paper's budget.
        seed: chooses weights and training tasks; the test tasks are the same for all.
        data: folder of real data, where there is some to read.
        results: folder of the JSON files.
        runs: folder of training states, models and half-finished tests.

    Raises:
        ValueError: no such experiment, model or preset; a negative seed.
    """

    experiment: str
    model: str
    preset: str
    seed: int
    data: Path | None = None
    results: Path = RESULTS
    runs: Path = RUNS

    def __post_init__(self):
        find(self.experiment).check(self.model, self.preset)
        whole("seed", self.seed, 0)

    @property
    def command(self) -> str:
        """What runs it."""
        words = f"{self.experiment} --model {self.model} --preset {self.preset} --seed {self.seed}"
        return f"python -m paper run {words}"

    @property
    def name(self) -> str:
        """The stem of its files."""
        return f"{self.model}-{self.preset}-seed{self.seed}" + ("-smoke" if SMOKE else "")

    @property
    def folder(self) -> Path:
        """Where the training state is."""
        return self.runs / self.experiment / self.name

    @property
    def result(self) -> Path:
        """The JSON of its result. A smoke run leaves its result with its state."""
        return (self.folder if SMOKE else self.results / self.experiment) / f"{self.name}.json"

    @property
    def trained(self) -> Path:
        """The model with the best validation score of the finished training."""
        return self.folder / "model.npz"


def run(
    job: Job,
    *,
    devices: int = 1,
    minutes: float | None = None,
    stop: Callable[[int], bool] | None = None,
    progress: bool = True,
) -> dict[str, Any] | None:
    """Train, test and write; None where it was stopped on the way, so that the same call goes on from there.

    Args:
        job: what to run.
        devices: how many share every batch.
        minutes: stop training after this long.
        stop: called with the number of updates made; training stops when it gives True.
        progress: whether to show bars and lines.

    Raises:
        ValueError: other data than when the job began; a file that is damaged; negative minutes; more devices
            than there are, or that do not divide a batch.
        OSError: data that are not there; a folder that cannot be written.
    """
    if minutes is not None and not minutes >= 0:
        raise ValueError(f"`minutes` must be at least 0, got {minutes}.")
    if job.result.exists():
        there = read(job.result)
        _same_data(job, there)
        _say(f"{job.result} is there already.", progress)
        return there
    experiment = find(job.experiment)
    preset, made, mesh = experiment.preset(job.preset, job.data), record.made(devices), machine.mesh(devices)
    _check_shared(preset, devices)
    if not _train(job, experiment, preset, made, minutes, stop, mesh=mesh, progress=progress):
        _say(f"{job.name} was stopped before its end; the same command goes on.", progress)
        return None
    found = facts(job, preset) | _test(job, experiment, preset, mesh=mesh, progress=progress)
    result = record.record(experiment, job.model, job.preset, job.seed, preset, tested=made, **found)
    write(job.result, result)
    _say(f"{job.result} written.", progress)
    return result


def _check_shared(preset: Preset, devices: int) -> None:
    """Refuse devices that do not divide some batch, before anything is computed or kept."""
    streams = {"training": preset.train, "validation": preset.validation}
    streams |= {f"the test '{domain}'": stream for domain, stream in preset.tests.items()}
    for name, stream in streams.items() if devices > 1 else ():
        count = len(stream(0, key=jax.random.key(0)).ctx.mask)
        if count % devices:
            raise ValueError(f"`devices` must divide the {count} tasks of a batch of {name}, got {devices}.")


def _train(job, experiment, preset, made, minutes, stop, *, mesh, progress) -> bool:
    """Whether the training is finished; its history, wall time and best model are then in the folder of the job."""
    begun = job.trained.exists() or (job.folder / "state.npz").exists()
    if begun and (job.folder / "parts.jsonl").exists():
        _same_data(job, _parts(job)[-1])
    if job.trained.exists():
        return True
    key_model, key_fit = jax.random.split(jax.random.key(job.seed))
    model = experiment.adapt(experiment.make(job.model, key=key_model, preset=preset), preset.train)
    part = made | {"data": _contents(job)}
    prepare(job.result, job.trained)
    start = time.monotonic()

    def tasks(step, *, key):
        """Those of a step; with the first that is asked for, all is checked and the part begins."""
        nonlocal part
        drawn = preset.train(step, key=key)
        if part is not None:
            with (job.folder / "parts.jsonl").open("a") as file:
                file.write(json.dumps(part) + "\n")
            part = None
        return drawn

    def enough(step, row, model):
        late = minutes is not None and time.monotonic() - start > 60 * minutes
        return late or (stop is not None and stop(step))

    done = fit(
        model,
        tasks,
        steps=preset.steps,
        key=key_fit,
        optimizer=preset.optimizer(),
        validation=preset.validation,
        validate_every=preset.validate_every,
        validation_batches=preset.validation_batches,
        log_every=1 if SMOKE else 50,
        callbacks=(enough,),
        checkpoint=job.folder / "state.npz",
        checkpoint_every=preset.checkpoint_every,
        mesh=mesh,
        progress=progress,
    )
    if done.steps < preset.steps:
        return False
    write(job.folder / "history.json", done.history)
    best = _best(done.history)
    origin = {name: getattr(job, name) for name in ("experiment", "model", "preset", "seed")}
    origin |= {name: best[name] for name in ("step", "validation_nll")} | {"commit": _parts(job)[-1]["commit"]}
    checkpoint.save(job.trained, done.best, extra=origin)
    return True


def _same_data(job: Job, earlier: Mapping[str, Any]) -> None:
    """Refuse to go on from, or to answer with, what was obtained from other data."""
    # older records say nothing, or None of data that were read by default
    silent = earlier.get("data") is None and ("data" not in earlier or find(job.experiment).default_data is not None)
    if not silent and earlier["data"] != _contents(job):
        raise ValueError(
            f"`data` must be as when {job.name} of '{job.experiment}' began, got other files: name other folders for "
            "`--runs` and `--results`."
        )


def _contents(job: Job) -> str | None:
    """A short name for the data that a job reads."""
    return find(job.experiment).contents(job.data)


def facts(job: Job, preset: Preset) -> dict[str, Any]:
    """What the training left behind."""
    history = read(_left(job, "history.json"))
    validated = [row for row in history if "validation_nll" in row]
    kept = ("step", "loss", "learning_rate", "seconds", "validation_nll")
    return {
        "steps": history[-1]["step"],
        "budget": record.budget(preset),
        "parameters": count_parameters(checkpoint.load(job.trained)),
        "train_seconds": history[-1]["seconds"],
        "best_step": _best(history)["step"],
        "weights": digest(job.trained),
        "parts": _parts(job),
        "history": [{name: row[name] for name in kept if name in row} for row in validated],
    }


def _parts(job: Job) -> list[dict[str, Any]]:
    return read_lines(_left(job, "parts.jsonl"))


def _left(job: Job, name: str) -> Path:
    """A file of a training, without which nothing can be said of it."""
    path = job.folder / name
    if not path.exists():
        raise ValueError(f"'{path}' is missing: restore it, or remove its folder to train anew.")
    return path


def _best(history: list[dict[str, float]]) -> dict[str, float]:
    return min((row for row in history if "validation_nll" in row), key=lambda row: row["validation_nll"])


def _test(job: Job, experiment: Experiment, preset: Preset, *, mesh: Mesh | None, progress: bool) -> dict[str, Any]:
    """Scores on every domain, and the gap to the exact posterior on the same batches."""
    model, name = checkpoint.load(job.trained), digest(job.trained)
    tests, bounds, seconds = {}, {}, {}
    for domain, stream in preset.tests.items():
        say = _counter(f"{job.name}: {domain}", progress)
        file = job.folder / f"test-{domain}.jsonl"
        fitting = experiment.adapt(model, stream)
        found = scores(fitting, stream, preset.test_batches, file=file, model_digest=name, mesh=mesh, progress=say)
        times = [row.pop("seconds") for row in found if "seconds" in row]  # older rows lack it
        seconds[domain] = sum(times) if len(times) == len(found) else None
        tests[domain] = summary(found)
        if experiment.exact is not None:
            exact = exact_scores(
                experiment.exact,
                stream,
                min(preset.exact_batches, preset.test_batches),
                file=exact_file(job.runs, job.experiment, job.preset, domain),
                progress=_counter(f"exact posterior: {domain}", progress),
            )
            bounds[domain] = against_exact(found, exact)
    return {"tests": tests, "exact": bounds, "test_seconds": seconds}


def prepare(*files: Path) -> None:
    """Make the folders of files and see that these can be written, before long work.

    Raises:
        OSError: one that cannot.
    """
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.check_writable(path)


def write(path: Path, value: Any) -> None:
    """Write JSON whole or not at all; numbers that are not finite become null."""
    write_whole(path, json.dumps(_finite(value), indent=1, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _counter(what: str, progress: bool) -> Callable[[int, int], None]:  # noqa: FBT001
    return lambda done, count: _say(f"{what}: {done} of {count} batches", progress)


def _say(text: str, progress: bool) -> None:  # noqa: FBT001
    if progress:
        print(text, file=sys.stderr, flush=True)
