"""Times of the attention against its peers, read from `paper/benchmarks/*.json`.

A file is a list of rows, or an object with such a list as `rows` beside `hardware`, `versions` and `commit` (as
`paper.record.made` gives them). A row has `work` (what was computed, such as "L=1024"), `what` ("forward",
"backward"), `peer` ("scan" for this package's attention, else the name of the other) and `ms` (None where it ran out
of memory).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paper.benchmarks.rows import DIM, HEADS
from paper.files import read
from paper.folders import PAPER
from paper.markdown import commit, hardware, markdown

FOLDER = PAPER / "benchmarks"

#: What this package's own attention is called in the files.
OURS = "scan"


class Bench(NamedTuple):
    """What one file holds."""

    name: str
    rows: list[dict[str, Any]]
    made: dict[str, Any]

    def pick(self, what: str, peer: str) -> dict[str, float]:
        """Work to milliseconds."""
        rows = [row for row in self.rows if (row["what"], row["peer"]) == (what, peer) and row["ms"] is not None]
        return {row["work"]: float(row["ms"]) for row in rows}

    def names(self, column: str) -> list[str]:
        """What stands in a column, in the order of the file."""
        return list(dict.fromkeys(row[column] for row in self.rows))

    def ratios(self, what: str, peer: str) -> dict[str, float]:
        """Work to the time of a peer over that of this package, where both were timed."""
        ours, theirs = self.pick(what, OURS), self.pick(what, peer)
        return {work: theirs[work] / ours[work] for work in ours if work in theirs}


def load(folder: Path = FOLDER) -> list[Bench]:
    """All files.

    Raises:
        ValueError: a file without such rows.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        content = read(path)
        made = {} if isinstance(content, list) else {k: v for k, v in content.items() if k != "rows"}
        rows = content if isinstance(content, list) else content.get("rows")
        if not isinstance(rows, list) or not all({"work", "what", "peer", "ms"} <= set(row) for row in rows):
            raise ValueError(f"`{path.name}` must hold rows with `work`, `what`, `peer` and `ms`, got other ones.")
        found.append(Bench(path.stem, [row | {"work": str(row["work"])} for row in rows], made))
    return found


def length(work: str) -> float | None:
    """The sequence length in the name of a work, such as 1024 in "B=32 L=1024"; None where there is none."""
    found = re.search(r"\bL\s*=\s*(\d+)", work)
    return float(found.group(1)) if found else None


def tables(benches: Sequence[Bench]) -> list[str]:
    """All times as Markdown, and how many times longer each peer takes."""
    lines: list[str] = []
    for bench in benches:
        peers = bench.names("peer")
        head = ["work", "what", *(f"{peer} ms" for peer in peers), *(f"{p} / {OURS}" for p in peers if p != OURS)]
        body = []
        for work in bench.names("work"):
            for what in bench.names("what"):
                times = [bench.pick(what, peer).get(work) for peer in peers]
                if all(time is None for time in times):
                    continue
                ratios = [bench.ratios(what, peer).get(work) for peer in peers if peer != OURS]
                cells = ["" if time is None else f"{time:,.0f}" if time >= 100 else f"{time:.3g}" for time in times]
                body.append([work, what, *cells, *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)])
        where = f" on {hardware(bench.made['hardware'])}" if "hardware" in bench.made else ""
        made = f", commit {commit(bench.made['commit'])}" if "commit" in bench.made else ""
        lines += ["", f"**{bench.name}**{where}{made}", "", *markdown(head, body)]
    if lines and {bench.made.get("hardware", {}).get("platform") for bench in benches} == {"cpu"}:
        lines += ["", "Nothing was measured on a GPU: none could be had."]
    about = [
        f"{HEADS} heads of {DIM}; all add a bias of RBF networks over places in the plane but 'scan, no bias'.",
        "'scan' is `scan_attention` here; flex_attention and scaled_dot_product_attention are those of PyTorch.",
        "A ratio above 1: the other takes longer.",
    ]
    return ["", "## Attention: milliseconds", "", *about, *lines] if lines else []
