"""Test scores batch by batch, kept in files, and the exact posterior on the same batches."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bsatnp.checkpoint.writing import replacing
from bsatnp.train import batch_sums, prepare
from bsatnp.train.evaluation import replicated
from paper.files import read_lines
from paper.protocol import SMOKE, Stream, describe

#: Batches between writings.
CHUNK = 16

#: Chooses the test batches, which are the same for all models and seeds of an experiment.
TEST_SEED = 20_260_000


def test_key() -> Any:
    """The key of the test streams."""
    return jax.random.key(TEST_SEED)


def rows(
    file: Path,
    facts: dict,
    count: int,
    make: Callable[[list[int]], Iterable[dict]],
    *,
    progress: Callable,
    chunk: int = CHUNK,
) -> list[dict[str, float]]:
    """The first `count` rows of a file of JSON lines, made and written where they are missing.

    Args:
        file: its first line holds `facts`; a file with other facts is replaced.
        facts: what the rows depend on.
        count: how many rows.
        make: gives the rows of a list of numbers.
        progress: called with (rows there are, count).
        chunk: rows between writings.
    """
    have: list[dict] = []
    if file.exists():
        first, *rest = read_lines(file)
        have = rest if first == facts else []
    while len(have) < count:
        have += make(list(range(len(have), min(count, len(have) + chunk))))
        write_whole(file, "\n".join(json.dumps(line) for line in [facts, *have]) + "\n")
        progress(len(have), count)
    return have[:count]


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_text(text)


def digest(path: Path) -> str:
    """A short name for what is in a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def scores(
    model: Any,
    stream: Stream,
    batches: int,
    *,
    file: Path,
    model_digest: str,
    mesh: Mesh | None = None,
    progress: Callable,
) -> list[dict[str, float]]:
    """Sums of all scores over each test batch, with the number of values as "count" and what it took as "seconds"."""
    model, mesh = replicated(model, mesh)

    def make(numbers: list[int]) -> list[dict]:
        key, start = test_key(), time.perf_counter()
        waiting = []
        for number in numbers:
            task = prepare(model, stream(number, key=jax.random.fold_in(key, number)))
            waiting.append(batch_sums(model, task, mesh=mesh))
        found = jax.device_get(waiting)
        more = {"seconds": (time.perf_counter() - start) / len(numbers)}
        return [{n: float(term) for n, term in one.terms.items()} | {"count": int(one.count)} | more for one in found]

    return rows(file, {"model": model_digest, "stream": describe(stream)}, batches, make, progress=progress)


def exact_scores(
    exact: Callable, stream: Any, batches: int, *, file: Path, progress: Callable = lambda done, count: None
) -> list[dict[str, float]]:
    """The mean negative log density of each test batch under its exact posterior, one file for all models."""
    key = test_key()

    def make(numbers: list[int]) -> list[dict]:
        return [{"nll": float(np.mean(exact(stream, n, jax.random.fold_in(key, n))))} for n in numbers]

    return rows(file, {"stream": describe(stream)}, batches, make, progress=progress)


def exact_file(runs: Path, experiment: str, preset: str, domain: str) -> Path:
    """Where the exact posterior's scores are, which all models and methods share."""
    return runs / experiment / f"exact-{preset}-{domain}{'-smoke' if SMOKE else ''}.jsonl"


def summary(found: list[dict[str, float]]) -> dict[str, float]:
    """Scores over all batches as if they were one, the mean RMSE of a batch, and the standard error of the NLL."""
    count = sum(row["count"] for row in found)
    means = {name: sum(row[name] for row in found) / count for name in found[0] if name != "count"}
    result = {name: mean**0.5 if name == "rmse" else mean for name, mean in means.items()}
    if "rmse" in result:
        result["rmse_of_batches"] = float(np.mean([(row["rmse"] / row["count"]) ** 0.5 for row in found]))
    each = np.array([row["nll"] / row["count"] for row in found])
    result["nll_standard_error"] = float(each.std(ddof=1) / len(each) ** 0.5) if len(each) > 1 else float("nan")
    return result | {"batches": len(found), "values": count}


def against_exact(found: list[dict[str, float]], exact: list[dict[str, float]]) -> dict[str, float]:
    """The exact posterior's NLL, the model's on the same batches, and the gap in nats with its standard error."""
    ours = np.array([row["nll"] / row["count"] for row in found[: len(exact)]])
    best = np.array([row["nll"] for row in exact])
    error = float((ours - best).std(ddof=1) / len(best) ** 0.5) if len(best) > 1 else float("nan")
    return {
        "nll": float(best.mean()),
        "model_nll": float(ours.mean()),
        "gap": float((ours - best).mean()),
        "gap_standard_error": error,
        "batches": len(best),
    }
