"""Predict at very many targets in one call: `python -m paper.benchmarks.scale --targets 262144 --ctx 26214`.

Time, the process's largest memory, and what the same pairs cost in the attention alone. With `--first N` only N of the
targets are predicted, from the whole context, and the time of all is projected from the chunks of these. Writes
`paper/benchmarks/scale/<targets>-<ctx>.json`, which `python -m paper report` shows. Let nothing else run meanwhile.
"""

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bsatnp import devices
from bsatnp._types import whole
from bsatnp.attention import scan_attention
from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.layers import AdditiveScore
from bsatnp.predict import predict
from bsatnp.tasks import Points
from paper.benchmarks import FOLDER
from paper.benchmarks.keeping import keep
from paper.benchmarks.rows import BASES, DIM, HEADS
from paper.files import read
from paper.markdown import commit, hardware, markdown
from paper.models import bsa_tnp
from paper.scaling import CHUNK, peak_mib

#: Blocks of the paper's model.
DEPTH = 6

SCALE = FOLDER / "scale"


class Timed:
    """An array that is written by slices, and remembers when."""

    def __init__(self, array: np.ndarray):
        self._array, self.shape, self.dtype, self.times = array, array.shape, array.dtype, []

    def __setitem__(self, where: slice, value: np.ndarray) -> None:
        """Write, and look at the clock."""
        self._array[where] = value
        self.times.append(time.perf_counter())


def measure(targets: int, ctx: int, first: int | None = None, *, progress: bool = True) -> dict[str, Any]:
    """Predict at `targets` places from `ctx` values, into memory-mapped files.

    Args:
        targets: number of targets.
        ctx: number of context points.
        first: how many of the targets to predict; all when None.
        progress: whether to show a bar.

    Raises:
        ValueError: no targets or no context; a part of the targets with too few chunks to tell what one of them takes.
    """
    whole("targets", targets)
    whole("ctx", ctx)
    done = targets if first is None else min(first, targets)
    if done < targets and done < 3 * CHUNK:
        raise ValueError(f"`first` must be at least {3 * CHUNK}, three chunks, got {first}.")
    model = bsa_tnp({"s": 2}, key=jax.random.key(0))
    rng = np.random.default_rng(0)
    half = targets**0.5 / 32  # the extent of a lattice of so many of the paper's cells
    draw = lambda n: rng.uniform(-half, half, (n, 2)).astype(np.float32)  # noqa: E731
    known = Points({"s": draw(ctx)}, rng.standard_normal((ctx, 1)).astype(np.float32))
    with tempfile.TemporaryDirectory() as folder:

        def file(name, width):
            return np.lib.format.open_memmap(Path(folder) / f"{name}.npy", "w+", np.float32, (targets, width))

        places = file("places", 2)
        for start in range(0, targets, CHUNK):
            places[start : start + CHUNK] = draw(len(places[start : start + CHUNK]))
        out = {"mean": Timed(file("mean", 1)[:done]), "std": file("std", 1)[:done]}
        start = time.perf_counter()
        predict(model, known, {"s": places[:done]}, out=out, chunk=CHUNK, progress=progress)
        seconds = time.perf_counter() - start
    peak = peak_mib()
    found = {"targets": targets, "ctx": ctx, "predicted": done, "seconds": seconds, "peak_mib": peak}
    if done < targets:
        chunk = statistics.median(np.diff(out["mean"].times[:-1]))
        found["seconds"] = seconds + chunk * (targets - done) / CHUNK
    pairs = HEADS * DEPTH * ctx * (ctx + targets)
    return found | {"attention_seconds": pairs * pair_seconds(min(CHUNK, ctx)), "measured_seconds": seconds}


def pair_seconds(keys: int, rounds: int = 5) -> float:
    """What a pair and head of the attention takes by itself, with the bias, where a chunk of queries sees the keys."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((HEADS, n, DIM)).astype(np.float32) for n in (CHUNK, keys, keys))
    index = [{"s": rng.standard_normal((n, 2)).astype(np.float32)} for n in (CHUNK, keys)]
    score = AdditiveScore(RBFNetwork(On("s", Translation(2)), heads=HEADS, basis=BASES))
    attend = devices.jit(lambda q, k, v, p, x: scan_attention(q, k, v, score=score, q_index=p, k_index=x))
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        jax.block_until_ready(attend(q, k, v, *index))
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) / (HEADS * CHUNK * keys)


def table(folder: Path = SCALE) -> list[str]:
    """What was measured, as Markdown."""
    rows = sorted((read(path) for path in folder.glob("*.json")), key=lambda row: row["targets"])
    if not rows:
        return []
    head = [
        "targets",
        "context",
        "predicted",
        "time of all",
        "attention, projected",
        "time / attention",
        "peak",
        "hardware",
        "commit",
    ]
    body = [
        [
            *(f"{row[name]:,}" for name in ("targets", "ctx", "predicted")),
            *(f"{row[name]:,.0f} s" for name in ("seconds", "attention_seconds")),
            f"{row['seconds'] / row['attention_seconds']:.2f}",
            f"{row['peak_mib'] / 1024:.2f} GiB",
            hardware(row["hardware"]),
            commit(row["commit"]),
        ]
        for row in rows
    ]
    text = [
        f"One call of `predict` into memory-mapped files, BSA-TNP with {DEPTH} blocks. Where fewer targets were",
        "predicted than there are, the time of all is projected from their chunks, and the peak is that of the part.",
        f"The time includes compiling; that of the attention does not, and is projected from {CHUNK:,} queries.",
    ]
    return ["", "## Predicting at scale", "", *text, "", *markdown(head, body)]


def main(words: list[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m paper.benchmarks.scale", description=__doc__)
    parser.add_argument("--targets", type=int, default=512**2)
    parser.add_argument("--ctx", type=int, help="context points; a tenth of the targets when left out")
    parser.add_argument("--first", type=int, help="predict this many of the targets and project the rest")
    parser.add_argument("--out", type=Path, default=SCALE)
    options = parser.parse_args(words)
    ctx = options.targets // 10 if options.ctx is None else options.ctx
    path = options.out / f"{options.targets}-{ctx}.json"
    return keep(partial(measure, options.targets, ctx, options.first), path, table)


if __name__ == "__main__":
    raise SystemExit(main())
