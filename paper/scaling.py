"""SIR on lattices of up to 1,024 × 1,024 cells by a model that was trained on a small one, one sample at a time."""

import dataclasses
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bsatnp import checkpoint, metrics
from bsatnp._types import whole
from bsatnp.predict import predict
from bsatnp.simulate import SIRTasks
from bsatnp.tasks import Points
from paper import record
from paper.evaluation import digest, rows, summary, test_key
from paper.experiments import experiment as find
from paper.files import read_lines
from paper.protocol import SMOKE, describe
from paper.runner import Job, prepare, write
from paper.runner import facts as facts_of

#: Cells along each axis, as in the paper.
CELLS = (128, 256, 512, 1024)

#: Targets at once: memory does not grow beyond them.
CHUNK = 8192


def tasks(cells: int) -> SIRTasks:
    """The paper's tasks on a larger lattice of the same cells: 3 to 12.5 % of them seen, a quarter asked.

    Raises:
        ValueError: not a multiple of the paper's 64.
    """
    paper = SIRTasks(batch=1)
    if cells < paper.cells or cells % paper.cells:
        raise ValueError(f"`cells` must be a multiple of {paper.cells}, got {cells}.")
    return paper.scaled(cells // paper.cells)


def run(
    job: Job, *, cells: Sequence[int] = CELLS, samples: int = 8, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Score and time a trained model on each lattice, and write one JSON beside those of the experiments.

    Lattices that earlier calls did with the same model on the same hardware are kept.

    Args:
        job: of the experiment "sir", trained.
        cells: along each axis.
        samples: of each lattice.
        progress: called with a line for each sample.

    Raises:
        FileNotFoundError: the job is not trained.
        OSError: a folder of results that cannot be written.
        ValueError: no samples; an earlier lattice that is not asked for was done with other weights or hardware.
    """
    whole("samples", samples)
    if not job.trained.exists():
        raise FileNotFoundError(f"`{job.trained}` must be there; train it with `{job.command}`.")
    experiment, model, name = find("sir"), checkpoint.load(job.trained), digest(job.trained)
    made = record.made()
    facts = {"model": name, "hardware": made["hardware"]}
    sides = dict(sorted((_earlier(job, facts, cells) | dict.fromkeys(cells, samples)).items()))
    streams = {f"{side}x{side}": tasks(side) for side in sides}
    written = (job.folder if SMOKE else job.results / "sir-scaling") / f"{job.name}.json"
    prepare(written)
    tests, seconds = {}, {}
    for (domain, stream), count in zip(streams.items(), sides.values(), strict=True):
        fitting = experiment.adapt(model, stream)
        file = _file(job, domain)

        def each(numbers, fitting=fitting, stream=stream, domain=domain):
            for number in numbers:
                row = sample(fitting, stream, number)
                progress(f"{domain}, sample {number + 1}: {row['seconds']:.2f} s")
                yield row

        all_facts = facts | {"stream": describe(stream)}
        found = rows(file, all_facts, count, each, progress=lambda done, count: None, chunk=1)
        extra = {"seconds": [], "peak_mib": [], "ctx": []}
        for row in (found := [dict(row) for row in found]):
            for field in extra:
                extra[field].append(row.pop(field))
        tests[domain] = summary(found) | {
            "seconds": float(np.median(extra["seconds"])),
            "peak_mib": max(extra["peak_mib"]),
            "ctx": float(np.mean(extra["ctx"])),
        }
        seconds[domain] = float(sum(extra["seconds"]))
    preset = dataclasses.replace(experiment.preset(job.preset), tests=streams, published={d: d for d in streams})
    experiment = dataclasses.replace(experiment, name="sir-scaling", title="SIR on larger lattices")
    told: dict[str, Any] = facts_of(job, preset) | {"history": ()}  # that is in the training's own result
    told |= {"tests": tests, "test_seconds": seconds, "tested": made}
    result = record.record(experiment, job.model, job.preset, job.seed, preset, **told)
    write(written, result)
    return result


def _file(job: Job, domain: str) -> Path:
    return job.folder / f"scaling-{domain}.jsonl"


def _earlier(job: Job, facts: dict[str, Any], cells: Sequence[int]) -> dict[int, int]:
    """Cells along each axis of the lattices that are there and not among `cells`, and how many samples each has."""
    found = {}
    for file in sorted(job.folder.glob(_file(job, "*").name)):
        side = int(file.stem.rpartition("x")[2])
        first, *samples = read_lines(file)
        if side in cells:
            continue
        if any(first[name] != fact for name, fact in facts.items()):
            raise ValueError(
                f"`cells` must include {side}, which was done with other weights or hardware; or remove {file}."
            )
        found[side] = len(samples)
    return found


def sample(model: Any, stream: SIRTasks, number: int) -> dict[str, float]:
    """Sums of scores over one sample, seconds of its prediction once compiled, and the peak of memory so far."""
    task = stream(number, key=jax.random.fold_in(test_key(), number))
    task = jax.tree.map(lambda leaf: np.asarray(leaf)[0], task)
    ctx = task.ctx.take(np.flatnonzero(task.ctx.mask))
    index = task.tgt.index
    first = {name: value[:CHUNK] for name, value in index.items()}
    predict(model, ctx, first, chunk=CHUNK)  # compiles
    start = time.perf_counter()
    found = predict(model, ctx, index, chunk=CHUNK)
    seconds = time.perf_counter() - start
    total: dict[str, float] = {"count": 0}
    for begin in range(0, len(task.tgt), CHUNK):
        part = slice(begin, begin + CHUNK)
        answer = jax.tree.map(lambda leaf, part=part: leaf[part], found)
        tgt: Points = task.tgt.take(part)
        scored = jax.device_get(metrics.sums(answer, tgt.f, tgt.observed))
        for name, term in scored.terms.items():
            total[name] = total.get(name, 0.0) + float(term)
        total["count"] += int(scored.count)
    return total | {"seconds": seconds, "peak_mib": peak_mib(), "ctx": len(ctx)}


def peak_mib() -> float:
    """The largest memory so far, of the device where it tells, else of the process."""
    stats = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 2**20
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)
