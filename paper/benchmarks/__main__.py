"""Measure attention and training steps against peers: `python -m paper.benchmarks`.

Each peer runs in a process of its own, in an environment that is made under `runs/benchmarks` on first use. All rows
are compiled first, then timed in turns, so that whatever else the machine does falls on all of them; of two calls in a
row the second counts, as one step of a training follows another. All of them keep the memory that they have freed:
whether glibc gives it back and has it cleared anew in each call is chance, and can be a third of the time. Writes
`paper/benchmarks/<device>.json`, which `python -m paper report` makes a table of. Let nothing else run meanwhile.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from paper import record
from paper.benchmarks import FOLDER
from paper.benchmarks.rows import PEERS, REQUIREMENTS, WORKS, rows
from paper.folders import ROOT, RUNS

ENVIRONMENTS = RUNS / "benchmarks"

#: With these glibc gives no memory back to the system.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**28)}


class Worker:
    """A peer's process, which answers one question at a time."""

    def __init__(self, name: str, python: Path):
        script = Path(__file__).parent / f"worker_{name}.py"
        self._process = subprocess.Popen(
            [str(python), str(script)],
            cwd=ROOT,
            env=os.environ | KEEP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.versions = self._read()["versions"]

    def ask(self, **question: Any) -> dict[str, Any]:
        """Its answer; {"failed": why} where it could not, or is gone."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return self._read()
        except (BrokenPipeError, json.JSONDecodeError):
            return {"failed": f"the process ended with {self._process.poll()}"}

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Let it go."""
        self._process.terminate()
        self._process.wait()


def environment(name: str, folder: Path) -> Path:
    """The Python of a worker's environment, which is made where it is missing."""
    if name not in REQUIREMENTS:
        return Path(sys.executable)
    python = folder / name / "bin" / "python"
    if not (folder / name / "complete").exists():
        venv.create(folder / name, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *REQUIREMENTS[name]], check=True)
        (folder / name / "complete").touch()
    return python


def measure(workers: dict[str, Worker], rounds: int, works: tuple[str, ...]) -> list[dict[str, Any]]:
    """All rows: prepared one after the other, then timed in turns, work by work."""
    found = []
    for work in WORKS:
        if works and work.name not in works:
            continue
        for kind in work.kinds:
            turns = []
            for name, worker in workers.items():
                for peer in PEERS[name]:
                    for row in rows(name, peer, (work.name,)):
                        if row["kind"] != kind:
                            continue
                        key = json.dumps([work.name, kind, peer])
                        answer = worker.ask(do="prepare", name=key, row=row)
                        record = {"work": work.name, "what": kind, "peer": peer, "ms": None, "times": []} | answer
                        found.append(record)
                        if "failed" not in answer and kind != "memory":
                            turns.append((worker, key, record))
            for _ in range(rounds):
                for worker, key, record in turns:
                    answer = worker.ask(do="time", name=key)
                    record.update(answer if "failed" in answer else {"times": [*record["times"], answer["ms"]]})
            for _, _, record in turns:
                if "failed" in record:
                    continue
                record["ms"] = statistics.median(record["times"])
                print(f"{record['work']:32s} {kind:14s} {record['peer']:32s} {record['ms']:9.1f} ms", flush=True)
    return found


def main(words: list[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m paper.benchmarks", description=__doc__)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--works", nargs="+", choices=[work.name for work in WORKS], default=[])
    parser.add_argument("--rounds", type=int, default=7, help="times each row is measured; the median counts")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="folder of the peers' environments")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(words)
    workers = {name: Worker(name, environment(name, options.environments)) for name in options.peers}
    try:
        found = measure(workers, options.rounds, tuple(options.works))
    finally:
        for worker in workers.values():
            worker.close()
    versions = {key: value for worker in workers.values() for key, value in worker.versions.items()}
    made = record.made()
    made["versions"] |= {f"{name} of peers": value for name, value in versions.items() if name != "bsatnp"}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{made['hardware']['platform']}.json"
    path.write_text(json.dumps(made | {"rows": found}, indent=1) + "\n")
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
