"""Every table and figure of the paper: the command that makes it here, and whether that was run."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper import published
from paper.markdown import markdown

#: Where the map stands in README.md.
BEGIN, END = "<!-- map: written by `python -m paper report` -->", "<!-- end of map -->"

_GPU, _MORE = (f"100,000 updates of {n} tasks need a GPU" for n in (8, 32))
_EPOCHS = "10,000 updates of 32 tasks need a GPU"
_KEY = "needs a year of ERA5, and so a key of the Climate Data Store"


@dataclasses.dataclass(frozen=True)
class Item:
    """A table or figure, or several that one command makes.

    Args:
        name: its number in the paper.
        what: it shows.
        command: after `python -m paper`.
        rows: experiment and domain of the paper's tables that it needs, whose models it compares.
        files: pictures or results that it needs instead, under `paper/`.
        why: the reason where it was not run in full.
        models: pattern of the names of the models that it compares.
        shown: models that it shows, each in a picture that is named after it.
    """

    name: str
    what: str
    command: str
    rows: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    why: str = ""
    models: str = r"(?!bsa-tnp-basis-|bsa-tnp-160-|svgp).*"
    shown: tuple[str, ...] = ()


def _run(experiment: str, more: str = "") -> str:
    return f"run {experiment} --model … --preset full{more}"


_DATA = " --data FOLDER"
_FORECAST = ("tnp-d", "pt-te-tnp-32", "bsa-tnp")
_ALL = ("convcnp", *_FORECAST)

ITEMS = (
    Item("Figure 1", "overview", "", why="a drawing of the architecture"),
    Item("Tables 1, 9", "2-D GP", _run("gp"), (("gp", "original"),), why=_GPU),
    Item("Tables 1, 10", "2-D GP, shifted", _run("gp"), (("gp", "shifted"),), why=_GPU),
    Item("Tables 1, 11", "2-D GP, doubled", _run("gp"), (("gp", "scaled"),), why=_GPU),
    Item("Tables 2, 12", "multiscale GP", _run("gp-multiscale"), (("gp-multiscale", "multiscale"),), why=_MORE),
    Item("Tables 3, 13", "spherical GP", _run("sphere"), (("sphere", "0-0-0"),), why=_GPU),
    Item("Tables 3, 14", "the same, turned by 60°, 30°", _run("sphere"), (("sphere", "60-30-0"),), why=_GPU),
    Item("Tables 3, 15", "the same, turned by 60°, 30°, 20°", _run("sphere"), (("sphere", "60-30-20"),), why=_GPU),
    Item("Figure 2", "spherical GP under rotation", "figures --only sphere", files=("figures/sphere.png",)),
    Item("Tables 4, 16", "SIR", _run("sir"), (("sir", "original"),), why=_GPU),
    Item("Tables 4, 17", "SIR, shifted", _run("sir"), (("sir", "shifted"),), why=_GPU),
    Item("Tables 4, 18", "SIR, doubled", _run("sir"), (("sir", "scaled"),), why=_GPU),
    Item("Figure 3", "SIR on four domains", "figures --only sir", files=("figures/sir-*.png",), shown=_ALL),
    Item(
        "Table 19",
        "SIR on 128² to 1,024² cells",
        "scaling --model … --preset full",
        tuple(("sir-scaling", f"{n}x{n}") for n in (128, 256, 512, 1024)),
        why=_GPU,
    ),
    Item("Tables 5, 20", "ERA5, CNW", _run("era5-cnw", _DATA), (("era5-cnw", "western"),), why=_KEY),
    Item("Tables 6, 21", "ERA5, CWN", _run("era5-cwn", _DATA), (("era5-cwn", "northern"),), why=_KEY),
    Item("Figure 4", "an ERA5 forecast", "figures --only era5", files=("figures/era5-*.png",), shown=_FORECAST),
    Item("Tables 7, 24", "Beijing air quality", _run("beijing", _DATA), (("beijing", "original"),), why=_EPOCHS),
    Item("Tables 8, 25", "Gneiting GP", _run("gneiting"), (("gneiting", "original"),)),
    Item(
        "Table 22",
        "number of bases on gp, sir, era5-cnw",
        "run gp --model bsa-tnp-basis-… --preset full",
        (("gp", "original"), ("sir", "original"), ("era5-cnw", "western")),
        why=_GPU,
        models=r"bsa-tnp|bsa-tnp-basis-\d+",
    ),
    Item(
        "Table 23",
        "ERA5 against a sparse GP for each task",
        "baseline era5-cnw --method svgp --preset full --batches 20 --data FOLDER",
        (("era5-cnw", "western"),),
        why=_KEY,
        models="bsa-tnp|svgp",
    ),
    Item("Table 26", "orders of time and memory", "", why="a statement; tables 19 and 27 measure it"),
    Item("Table 27", "operations and times", "flops --time", files=("results/flops.json",), why="not asked for yet"),
    Item("Figure 5", "convergence on SIR", "report", files=("figures/convergence-sir-*.png",)),
    Item("Figure 6", "scan against flex attention", "report", files=("figures/ratios-*.png",), why="no times yet"),
    Item("Figure 7", "multiscale tasks", "figures --only gp-multiscale", files=("figures/gp-multiscale.png",)),
    Item("Theorems 1, 2", "invariance", "", why="checked by `tests/invariance/` in every test run"),
)


def state(item: Item, results: Sequence[dict[str, Any]], folder: Path) -> str:
    """What of an item was obtained, from the files alone.

    Args:
        item: of the paper.
        results: as `paper.report.load` gives them.
        folder: `paper/`, where the pictures are.
    """
    if item.files:
        there = [path for pattern in item.files for path in sorted(folder.glob(pattern))]
        if not there:
            return f"not made: {item.why or 'no trained model yet'}"
        origins = [origin(path).replace("\n", "; ") for path in there if path.suffix == ".png"]
        drawn = {name for text in origins for name in re.findall(r"weights (\w+)", text)}
        if drawn - {one.get("weights") for one in results}:
            origins.append("some of these weights are not those of a row of the report")
        if item.command != "report" and any("budget" in text and "weights" not in text for text in origins):
            origins.append("drawn before pictures named their weights")
        named = [name for name in item.shown if any(path.stem.endswith(f"-{name}") for path in there)]
        of = f" for {', '.join(named)} of {', '.join(item.shown)}" if len(named) < len(item.shown) else ""
        return "; ".join([f"made{of}", *filter(None, origins)])
    if not item.rows:
        return f"nothing to run: {item.why}"
    found: dict[str, list[str]] = {"run in full": [], "run lite": [], "run for an hour": [], "not run": []}
    for experiment, domain in item.rows:
        hour = [one["model"] for one in results if (one["experiment"], one["preset"]) == (experiment, "hour")]
        if len(item.rows) == 1:
            found["run for an hour"] += dict.fromkeys(hour)
        for model in _models(item, experiment, domain):
            mine = [one for one in results if (one["experiment"], one["model"]) == (experiment, model)]
            full = [one for one in mine if one["preset"] == "full" and _has(one, domain)]
            lite = [
                one for one in mine if one["preset"] == "lite" and (experiment != "sir-scaling" or _has(one, domain))
            ]
            name = model + (f" {domain if experiment == 'sir-scaling' else experiment}" if len(item.rows) > 1 else "")
            kind = "run in full" if full else "run lite" if lite else "not run"
            seeds = sorted(one["seed"] for one in full or lite)
            if seeds or model not in hour:
                found[kind].append(name + (f" ×{len(seeds)}" if len(seeds) > 1 else ""))
    texts = [f"{kind}: {', '.join(names)}" for kind, names in found.items() if names]
    if not found["run in full"] and item.why:
        texts.append(f"not in full: {item.why}")
    return "; ".join(texts)


def origin(picture: Path) -> str:
    """What a picture says of the model it was drawn from."""
    from PIL import Image

    with Image.open(picture) as image:
        return str(image.info.get("Description", ""))


def _has(one: dict[str, Any], domain: str) -> bool:
    return any(one["published"].get(mine, mine) == domain for mine in one["tests"])


def _models(item: Item, experiment: str, domain: str) -> list[str]:
    """The models that an item compares in one of its rows."""
    return [name for name in published.numbers().get((experiment, domain), {}) if re.fullmatch(item.models, name)]


def table(results: Sequence[dict[str, Any]], folder: Path) -> str:
    """The whole map as Markdown."""
    head = ["in the paper", "what", "`python -m paper …`", "state"]
    body = [
        [item.name, item.what, f"`{item.command}`" if item.command else "–", state(item, results, folder)]
        for item in ITEMS
    ]
    return "\n".join(markdown(head, body))


def rewrite(text: str, results: Sequence[dict[str, Any]], folder: Path) -> str:
    """A README with the map as it is now.

    Raises:
        ValueError: no marks between which the map stands.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"`text` must hold '{BEGIN}' and '{END}' once each.")
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table(results, folder) + "\n" + END + rest.split(END)[1]
