"""What padding contexts to a few sizes saves: `python -m paper.benchmarks.buckets --model bsa-tnp`.

The paper pads all contexts of a 2-D GP batch to the longest that can be drawn, 512. Here they are padded to the
smallest bucket that holds the batch, with a number of context points for each task, as in the paper, and with one for
all tasks of a batch. Times loss and gradient of the same batches, in turn, and writes
`paper/benchmarks/buckets/<model>.json`, which `python -m paper report` shows. Let nothing else run meanwhile.
"""

import argparse
import dataclasses
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from bsatnp._types import whole
from bsatnp.simulate import GPTasks
from bsatnp.train import prepare
from paper.benchmarks import FOLDER
from paper.benchmarks.keeping import keep
from paper.experiments.gp import EXPERIMENT
from paper.files import read
from paper.flops import gradient
from paper.markdown import commit, hardware, markdown

BUCKETS = FOLDER / "buckets"

#: Bucket sizes.
SIZES = (128, 192, 256, 320, 384, 448, 512)


def measure(model: str, batches: int = 20, *, tasks: GPTasks | None = None) -> dict[str, Any]:
    """Mean seconds of loss and gradient, with contexts padded to the longest that can be drawn and to buckets.

    Args:
        model: of the experiment "gp".
        batches: how many.
        tasks: a stream with several buckets, the last of which holds all; the paper's 2-D GP when None.

    Raises:
        ValueError: no such model, no batch, one bucket.
    """
    whole("batches", batches)
    tasks = GPTasks(ctx_sizes=SIZES) if tasks is None else tasks
    if len(tasks.ctx_sizes) < 2:
        raise ValueError(f"`tasks` must have several `ctx_sizes`, got {tasks.ctx_sizes}.")
    made = EXPERIMENT.make(model, key=jax.random.key(0))
    arrays, rest = eqx.partition(made, eqx.is_array)
    learn, seen, rows = jax.jit(gradient(rest)), set(), []
    for same in (False, True):
        bucketed = dataclasses.replace(tasks, same_n_ctx=same)
        padded = dataclasses.replace(bucketed, ctx_sizes=tasks.ctx_sizes[-1:])
        times: dict[str, list[float]] = {"padded": [], "bucketed": []}
        for step in range(batches):
            for name, stream in (("padded", padded), ("bucketed", bucketed)):
                task = prepare(made, stream(step, key=jax.random.key(1)))
                if (size := task.ctx.mask.shape[-1]) not in seen:
                    seen.add(size)
                    jax.block_until_ready(learn(arrays, task))  # compiles
                start = time.perf_counter()
                jax.block_until_ready(learn(arrays, task))
                times[name].append(time.perf_counter() - start)
        rows.append({"one_number": same} | {name: statistics.mean(found) for name, found in times.items()})
    return {"model": model, "batches": batches, "sizes": tasks.ctx_sizes, "rows": rows}


def table(folder: Path = BUCKETS) -> list[str]:
    """What was measured, as Markdown."""
    files = [read(path) for path in sorted(folder.glob("*.json"))]
    if not files:
        return []
    head = ["model", "context points", "padded to the longest, s", "padded to a bucket, s", "ratio", "batches"]
    body = [
        [
            found["model"],
            "one number for a batch" if row["one_number"] else "a number for each task",
            *(f"{row[name]:.2f}" for name in ("padded", "bucketed")),
            f"{row['bucketed'] / row['padded']:.2f}",
            str(found["batches"]),
            hardware(found["hardware"]),
            commit(found["commit"]),
        ]
        for found in files
        for row in found["rows"]
    ]
    text = [
        "Mean seconds of loss and gradient on the paper's 2-D GP batches of 8 tasks, with contexts padded to 512",
        "points or to the smallest of some buckets, the same batches in turn.",
    ]
    return ["", "## Contexts in buckets", "", *text, "", *markdown([*head, "hardware", "commit"], body)]


def main(words: list[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m paper.benchmarks.buckets", description=__doc__)
    parser.add_argument("--model", default="bsa-tnp")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--out", type=Path, default=BUCKETS)
    options = parser.parse_args(words)
    return keep(partial(measure, options.model, options.batches), options.out / f"{options.model}.json", table)


if __name__ == "__main__":
    raise SystemExit(main())
