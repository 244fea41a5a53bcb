"""Test a method that is fitted to each task apart, on the first test batches of an experiment."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bsatnp import metrics
from bsatnp._types import whole
from bsatnp.likelihoods import Gaussian
from bsatnp.tasks import Task
from paper import baselines, record
from paper.evaluation import against_exact, exact_file, exact_scores, rows, summary, test_key
from paper.experiments import experiment as find
from paper.folders import RESULTS, RUNS
from paper.protocol import SMOKE, Experiment, describe
from paper.runner import prepare, write

#: Names of methods in the results.
METHODS = ("gp-known", "gp-fitted", "svgp")

#: What a row says beside its scores.
SPENT = ("tasks", "fit_seconds", "predict_seconds")


def run(
    name: str,
    method: str,
    preset: str,
    *,
    batches: int,
    data: Path | None = None,
    results: Path = RESULTS,
    runs: Path = RUNS,
    sparse: baselines.Sparse = baselines.Sparse(),  # noqa: B008
    progress: Callable[[int, int], None] = lambda done, count: None,
) -> dict[str, Any]:
    """Scores on every domain of a preset, written as one JSON like that of a model.

    Args:
        name: of the experiment.
        method: "gp-known" for the exact posterior with the true kernel by tinygp, "gp-fitted" with one fitted to the
            context, "svgp" for the paper's sparse process by GPJax.
        preset: whose test batches.
        batches: how many of them.
        data: folder of real data.
        results: folder of the results.
        runs: folder of half-finished ones.
        sparse: settings of "svgp".
        progress: called with (batches done, batches).

    Raises:
        ValueError: no such method; no batches; an experiment of classes or of two outputs, or one whose process is not
            known to "gp-known".
        OSError: a folder of results that cannot be written.
    """
    whole("batches", batches)
    experiment = _experiment(name, method)
    chosen = experiment.preset(preset, data)
    row, made = f"{method}-{preset}", record.made()
    written = runs / name / f"{row}-seed0-smoke.json" if SMOKE else results / name / f"{row}-seed0.json"
    prepare(written)
    tests, bounds, spent = {}, {}, {}
    for domain, stream in chosen.tests.items():
        facts = {"stream": describe(stream), "sparse": str(sparse) if method == "svgp" else "", "made": made}
        file = runs / name / f"{row}-{domain}{'-smoke' if SMOKE else ''}.jsonl"
        one = partial(_batch, method, stream, sparse)
        found = rows(file, facts, batches, partial(map, one), progress=progress, chunk=1)
        found = [dict(row) for row in found]
        spent[domain] = {part: sum(row.pop(part) for row in found) for part in SPENT}
        tasks, fitting, predicting = spent[domain].values()
        tests[domain] = summary(found) | {"seconds": (fitting + predicting) / tasks}
        if experiment.exact is not None:
            file = exact_file(runs, name, preset, domain)
            bounds[domain] = against_exact(found, exact_scores(experiment.exact, stream, batches, file=file))
    tasks, fitting, predicting = (sum(here[part] for here in spent.values()) for part in SPENT)
    result = record.record(
        experiment,
        method,
        preset,
        0,
        chosen,
        parts=[made | {"data": experiment.contents(data)}],
        tested=made,
        steps=sparse.steps if method == "svgp" else 0,
        budget={"batches": batches, "fit_seconds": fitting / tasks, "predict_seconds": predicting / tasks},
        train_seconds=fitting,
        tests=tests,
        exact=bounds,
        test_seconds={domain: here["predict_seconds"] for domain, here in spent.items()},
    )
    write(written, result)
    return result


def tune(
    name: str, method: str, preset: str, *, tasks: int = 4, data: Path | None = None
) -> Iterator[tuple[baselines.Sparse, dict[str, float]]]:
    """Scores of "svgp" under three rates and three scales of the start, on some tasks of a validation batch.

    Raises:
        ValueError: another method, or what `run` refuses.
    """
    experiment = _experiment(name, method)
    if method != "svgp":
        raise ValueError(f"`method` must be 'svgp' to be tuned, got '{method}'.")
    stream = experiment.preset(preset, data).validation
    drawn = jax.tree.map(lambda leaf: leaf[:tasks], stream(0, key=test_key()))
    for rate, length in product((1e-3, 1e-2, 3e-2), (0.5, 1.0, 2.0)):
        settings = baselines.Sparse(learning_rate=rate, length=length)
        yield settings, summary([_scores("svgp", stream, settings, drawn, None, test_key())])


def _experiment(name: str, method: str) -> Experiment:
    """The experiment of a name, if the method can be asked about it."""
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {METHODS}, got '{method}'.")
    experiment = find(name)
    if name in ("sir", "beijing"):
        raise ValueError(f"`experiment` must have one continuous output for a process of each task, got '{name}'.")
    if method == "gp-known" and experiment.exact is None:
        raise ValueError(f"`method` must be fitted where no process is known, as in '{name}', got 'gp-known'.")
    return experiment


def _batch(method: str, stream: Any, sparse: baselines.Sparse, number: int) -> dict[str, float]:
    """The sums of `_scores` over one test batch."""
    key = jax.random.fold_in(test_key(), number)
    task, process = stream.draw(number, key=key) if hasattr(stream, "draw") else (stream(number, key=key), None)
    return _scores(method, stream, sparse, task, process, key)


def _scores(method: str, stream: Any, sparse: baselines.Sparse, task: Task, process: Any, key: Any) -> dict[str, float]:
    """Sums of scores over the tasks of a batch, and how long they took."""
    total: dict[str, float] = {"count": 0, "fit_seconds": 0.0, "predict_seconds": 0.0}
    size = len(task.ctx.mask)
    for row in range(size):
        one = jax.tree.map(lambda leaf, row=row: leaf[row], task)
        forecast = _forecast(method, stream, sparse, one, jax.tree.map(lambda x, row=row: x[row], process), key)
        pred = Gaussian(forecast.mean[:, None].astype(np.float32), forecast.std[:, None].astype(np.float32))
        scored = jax.device_get(metrics.sums(pred, one.tgt.f, one.tgt.observed))
        for name, term in scored.terms.items():
            total[name] = total.get(name, 0.0) + float(term)
        total["count"] += int(scored.count)
        total["fit_seconds"] += forecast.fit_seconds
        total["predict_seconds"] += forecast.predict_seconds
    return total | {"tasks": size}


def _forecast(method: str, stream: Any, sparse: Any, task: Task, process: Any, key: Any) -> baselines.Forecast:
    noisy = getattr(stream, "noisy_tgt", getattr(stream, "tgt_noise", 1.0) > 0)  # real data are
    if method == "svgp":
        return baselines.sparse(task.ctx, task.tgt, noisy=noisy, key=key, settings=sparse)
    if method == "gp-fitted":
        return baselines.fitted(task.ctx, task.tgt, noisy=noisy)
    if hasattr(process, "kernel"):  # of the Gneiting process
        noise = float(process.noise)
        options = {"noise": noise, "mean": process.mean, "tgt_noise": noise if noisy else 0.0}
        return baselines.known(process.kernel, task.ctx, task.tgt, **options)
    return baselines.known(process, task.ctx, task.tgt, noise=stream.noise, tgt_noise=stream.tgt_noise)
