"""All figures, each drawn or with the reason why not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paper import benchmarks
from paper.drawing import curves, fields, forecasts, outbreaks
from paper.drawing.trained import Missing

#: What can be drawn from trained models.
MODELS: dict[str, Callable[..., list[Path]]] = {
    "gp": fields.gp,
    "gp-multiscale": fields.multiscale,
    "sphere": fields.sphere,
    "sir": outbreaks.sir,
    "era5": forecasts.era5,
}

#: What can be drawn from results.
RESULTS = ("convergence", "ratios")


def draw(
    runs: Path,
    results: list[dict[str, Any]],
    out: Path,
    *,
    data: Path | None = None,
    only: list[str] | None = None,
    benches: Path = benchmarks.FOLDER,
) -> dict[str, list[Path] | str]:
    """Figure to its files, or to the reason why there are none.

    Args:
        runs: folder of trained models.
        results: what `paper.report.load` gives.
        out: where the pictures go.
        data: of ERA5, where the model was trained on some other than the sample.
        only: names of figures; all when None.
        benches: folder of the attention's times.

    Raises:
        ValueError: no such figure.
    """
    names = only or [*MODELS, *RESULTS]
    if unknown := sorted(set(names) - {*MODELS, *RESULTS}):
        raise ValueError(f"`only` must name some of {[*MODELS, *RESULTS]}, got {unknown}.")
    found: dict[str, list[Path] | str] = {}
    for name in names:
        if name == "convergence":
            found[name] = curves.convergence(results, out) or "no result has a history of validations"
        elif name == "ratios":
            found[name] = curves.ratios(benchmarks.load(benches), out) or f"no times in {benches.name}/*.json"
        else:
            options = {"data": data} if name == "era5" else {}
            try:
                found[name] = MODELS[name](runs, out, **options)
            except (Missing, FileNotFoundError) as reason:
                found[name] = str(reason)
    return found
