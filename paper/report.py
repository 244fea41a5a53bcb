"""The tables of all results beside the paper's numbers, with the budget and the hardware of each."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from paper import flops, published
from paper.experiments import title_of
from paper.files import read
from paper.markdown import commit, duration, error, hardware, markdown, number

#: Experiments in the order of the paper.
ORDER = ("gp", "gp-multiscale", "sphere", "sir", "sir-scaling", "era5-cnw", "era5-cwn", "beijing", "gneiting")

#: Columns of scores: name in the results, heading, name in the paper's tables. The paper's RMSE is a mean over batches.
SCORES = (
    ("mae", "MAE", "mae"),
    ("rmse", "RMSE", ""),
    ("rmse_of_batches", "RMSE of batches", "rmse"),
    ("coverage", "CVG@95%", "coverage"),
    ("crps", "CRPS", "crps"),
    ("accuracy", "accuracy", "accuracy"),
    ("seconds", "s a sample", "seconds"),
    ("peak_mib", "peak MiB", "peak_mib"),
)


def load(folder: Path) -> list[dict[str, Any]]:
    """All results of a folder, in the order of the paper's tables.

    Raises:
        ValueError: a file that is damaged.
    """
    found = [read(path) for path in sorted(folder.glob("*/*.json"))]
    found = [one for one in found if "tests" in one]

    def place(one):
        name, model = one["experiment"], one["model"]
        models = [m for (e, _), rows in published.numbers().items() if e == name for m in rows]
        last = len(models)
        where = ORDER.index(name) if name in ORDER else len(ORDER)
        return where, one["preset"], models.index(model) if model in models else last, model, one["seed"]

    return sorted(found, key=place)


def render(results: Sequence[dict[str, Any]]) -> str:
    """All tables as Markdown."""
    lines = [
        "# Results",
        "",
        "Written by `python -m paper report` from the files in `paper/results/`. NLL is in nats for each value, ± its",
        "standard error over test batches; the paper's ± is over five seeds on one RTX 4090. The gap is to the exact",
        "posterior over the batches for which that was computed, and so not the difference of the two numbers that are",
        "printed; its ± is over the differences of these batches. What was not obtained is absent.",
        "",
        "Columns named after the paper are the paper's, after its full budget, on the domain of its training. The lite",
        "and hour budgets are less, see README.md, and their 'scaled' and 'doubled' domains, twice as wide as that of",
        "their training, are the paper's own: there its models were trained, and ours extrapolate.",
        "Domains of the sphere are named by how they are turned: north, east and tilt in degrees.",
        "",
        "The paper's RMSE is a mean over batches, which share one length scale where it draws Gaussian processes; here",
        "every task has its own, and the RMSE of batches is higher for that alone. Older rows lack it.",
        "",
        "'Best at' is the update whose weights were tested. Times are of different commits, and of runs beside other",
        "work: do not compare them between rows. The time of tests is absent where it was not kept. `+` after a",
        "commit: with changes on top.",
    ]
    names = [name for name in ORDER if any(one["experiment"] == name for one in results)]
    names += sorted({one["experiment"] for one in results} - set(ORDER))
    for name in names:
        rows = [one for one in results if one["experiment"] == name]
        lines += ["", f"## {title_of(rows[0])}"]
        for preset in sorted({one["preset"] for one in rows}):
            of_preset = [one for one in rows if one["preset"] == preset]
            lines += ["", f"### {preset} budget", "", *_budget(of_preset)]
            for domain in dict.fromkeys(domain for one in of_preset for domain in one["tests"]):
                lines += ["", *_table(name, domain, [one for one in of_preset if domain in one["tests"]])]
    return "\n".join(lines) + "\n"


def complexity(folder: Path) -> str:
    """The table that `python -m paper flops` wrote, or nothing where it did not."""
    path = folder / "flops.json"
    if not path.exists():
        return ""
    found = read(path)
    lines = [
        "",
        "## Operations and memory on the 2-D GP batch",
        "",
        f"{found['batch']} tasks with contexts of 128 to 511 points padded to 512, and 1,024 targets, on "
        f"{hardware(found['hardware'])}, commit {commit(found['commit'])}.",
        "GFLOP with loops in full and padding counted; XLA's own count, which the paper gives, takes each loop once",
        "and so misses most of what runs here. Seconds are those of one batch.",
        "",
        *flops.table(found),
    ]
    return "\n".join(lines) + "\n"


def _budget(rows: list[dict[str, Any]]) -> Iterable[str]:
    """How each row was obtained."""
    head = ["model", "seed", "steps", "best at", "parameters", "training", "tests", "hardware", "commit"]
    body = []
    for one in rows:
        made = ", ".join(map(commit, one["commits"]))
        tested, where = one.get("tested", {}), hardware(*one["hardware"])
        if (on := tested.get("hardware")) and hardware(on) not in map(hardware, one["hardware"]):
            where += f", tests {hardware(on)}"
        counts = ["" if one[n] is None else f"{one[n]:,}" for n in ("steps", "best_step", "parameters")]
        times = [duration(one["train_seconds"]), _tested(one.get("test_seconds") or {})]
        if (last := tested.get("commit")) not in (None, *one["commits"]):
            made += f", tests {commit(last)}"
        body.append([one["model"], str(one["seed"]), *counts, *times, where, made])
    return markdown(head, body)


def _tested(seconds: dict[str, float | None]) -> str:
    """How long all tests took; nothing where older records have next to no time for one that an earlier call made."""
    known = [each for each in seconds.values() if each is not None and each > 0.1]
    return duration(sum(known)) if len(known) == len(seconds) > 0 else ""


def _table(name: str, domain: str, rows: list[dict[str, Any]]) -> Iterable[str]:
    """Scores on one domain."""
    theirs = rows[0]["published"].get(domain)
    paper = published.numbers().get((name, theirs), {}) if theirs is not None else {}
    scores = [column for column in SCORES if any(column[0] in one["tests"][domain] for one in rows)]
    printed = [(name, title) for _, title, name in scores if any(name in row for row in paper.values())]
    bounds = [one["exact"][domain] for one in rows if one.get("exact") and domain in one["exact"]]
    batches = max(one["tests"][domain]["batches"] for one in rows)
    head = ["model", "seed", "NLL", *(["gap"] if bounds else []), *(title for _, title, _ in scores)]
    if paper:
        head += ["paper NLL", *(f"paper {title}" for _, title in printed)]
    body = []
    for one in rows:
        test, bound = one["tests"][domain], (one.get("exact") or {}).get(domain)
        few = f" on {test['batches']} batches" if test["batches"] < batches else ""
        cells = [one["model"], str(one["seed"]), number(test["nll"], 3) + error(test.get("nll_standard_error")) + few]
        cells += [number(bound["gap"], 3) + error(bound.get("gap_standard_error")) if bound else ""] if bounds else []
        cells += [number(test.get(name), 3) for name, _, _ in scores]
        if paper:
            row = paper.get(one["model"], {})
            cells += [row.get(name, "").replace("-", "−") for name in ("nll", *(name for name, _ in printed))]
        body.append(cells)
    note = f", the paper's {theirs} domain" if theirs not in (None, domain) else ""
    most = max(bounds, key=lambda bound: bound["batches"], default=None)
    bound = f" Exact posterior: {number(most['nll'], 3)} on {most['batches']} batches." if most else ""
    count = f"{batches:,} test batch{'es' if batches > 1 else ''}"
    lines = [f"**{domain}**{note}: {count}.{bound}", "", *markdown(head, body)]
    missing = [f"{model} {row['nll'].replace('-', '−')}" for model, row in paper.items() if "nll" in row]
    missing = [text for text in missing if text.split()[0] not in {one["model"] for one in rows}]
    return [*lines, "", f"NLL, only in the paper: {'; '.join(missing)}."] if missing else lines
