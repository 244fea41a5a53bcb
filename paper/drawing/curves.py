"""Curves: validation against updates, and how much longer other attentions take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paper.benchmarks import OURS, Bench, length
from paper.drawing import style
from paper.experiments import title_of

#: What ablations, which are left to the tables, have in the names of their models and budgets.
_ABLATIONS = ("-basis-", "-equal-start", "lite-")

#: Models with one look in all pictures, of which none has two of a row. Others come after them.
_LOOKS = (
    ("bsa-tnp", "bsa-tnp-bias", "bsa-tnp-geodesic"),
    ("tnp-d",),
    ("convcnp", "bsa-tnp-embed", "bsa-tnp-rbf", "bsa-tnp-window"),
    ("pt-te-tnp-32",),
    ("te-tnp", "bsa-tnp-embed-bias"),
    ("pt-te-tnp-128",),
    ("sa-tnp", "bsa-tnp-linear"),
)


def convergence(results: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """A picture for each experiment and budget: validation NLL against updates for all models but the ablations."""
    import matplotlib.pyplot as plt

    made = []
    for name, preset in sorted({(one["experiment"], one["preset"]) for one in results}):
        rows = [one for one in results if (one["experiment"], one["preset"]) == (name, preset) and _drawn(one)]
        if not rows:
            continue
        figure, axis = plt.subplots(figsize=(8.5, 4), layout="constrained")
        models = list(dict.fromkeys(one["model"] for one in rows))
        top = _top(_values(rows))
        for one in rows:
            steps = [row["step"] for row in one["history"]]
            values = _values([one])
            beyond = f" (up to {max(values):,.0f})" if top is not None and max(values) > top else ""
            line: dict[str, Any] = _line(_look(one["model"], models))
            if one["seed"]:
                line["markerfacecolor"] = "white"
            label = f"{one['model']}, seed {one['seed']}{beyond}"
            axis.plot(steps, values, **line, ms=3.5, lw=1.6, label=label)
        axis.set(xlabel="updates", ylabel="validation NLL (nats a value)")
        figure.suptitle(f"{title_of(rows[0])}, {preset} budget", fontsize=10)
        if top is not None:
            low = min(_values(rows))
            axis.set_ylim(low - 0.05 * (top - low), top)
        _plain(axis)
        figure.legend(loc="outside right center", frameon=False, fontsize="small")
        made.append(
            style.save(figure, folder / f"convergence-{name}-{preset}.png", f"{preset} budget: {', '.join(models)}")
        )
    return made


def ratios(benches: Sequence[Bench], folder: Path) -> list[Path]:
    """For each benchmark how many times longer each peer takes than the scan: a panel for each direction."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator

    made = []
    for bench in benches:
        peers = [peer for peer in bench.names("peer") if peer != OURS]
        directions = [what for what in bench.names("what") if any(bench.ratios(what, peer) for peer in peers)]
        if not directions:
            continue
        panels = {
            what: [work for work in bench.names("work") if any(work in bench.ratios(what, peer) for peer in peers)]
            for what in directions
        }
        figure, axes = plt.subplots(
            1,
            len(directions),
            figsize=(sum(2.0 + 0.6 * len(works) for works in panels.values()) + 2.5, 3.6),
            width_ratios=[2.0 + 0.6 * len(works) for works in panels.values()],
            layout="constrained",
            squeeze=False,
            sharey=True,
        )
        for axis, (what, works) in zip(axes[0], panels.items(), strict=True):
            lengths = [length(work) for work in works]
            numbers = None not in lengths and len(set(lengths)) == len(lengths)
            for number, peer in enumerate(peers):
                found = bench.ratios(what, peer)
                at = [place for place, work in enumerate(works) if work in found]
                x = [lengths[place] if numbers else place for place in at]
                line = _line(number) | ({} if numbers else {"linestyle": "none"})
                axis.plot(x, [found[works[place]] for place in at], **line, ms=6, lw=1.6, label=peer)
            axis.axhline(1, color="0.4", lw=1)
            if numbers:
                axis.set_xscale("log", base=2)
                axis.set_xticks(lengths, [f"{int(n or 0):,}" for n in lengths])
            else:
                axis.set_xticks(range(len(works)), [work.replace(" ", "\n") for work in works])
                axis.set_xlim(-0.6, len(works) - 0.4)
            axis.set(yscale="log", xlabel="sequence length" if numbers else "", title=what)
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_locator(NullLocator())
            _plain(axis)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", frameon=False)
        axes[0, 0].set_ylabel(f"time over that of {OURS} (ratio)")
        figure.suptitle(f"{bench.name}: runtime ratios; above 1 the other is slower than {OURS}", fontsize=10)
        made.append(style.save(figure, folder / f"ratios-{bench.name}.png"))
    return made


def _drawn(result: dict[str, Any]) -> bool:
    """Whether a result has a curve."""
    name = f"{result['model']} {result['preset']}"
    return len(result["history"]) > 2 and not any(part in name for part in _ABLATIONS)


def _values(rows: Sequence[dict[str, Any]]) -> list[float]:
    """The validation scores of several results."""
    return [row["validation_nll"] for one in rows for row in one["history"]]


def _top(values: Sequence[float]) -> float | None:
    """Where a picture ends, so that a few values far above the others do not flatten them; None for all of it."""
    low, usual, most = np.quantile(values, [0, 0.8, 1])
    return None if most <= usual + 5 * (usual - low) else float(usual + (usual - low))


def _look(model: str, models: Sequence[str]) -> int:
    """The number of a model's look, in a picture of several."""
    known = [number for number, alike in enumerate(_LOOKS) if model in alike]
    return known[0] if known else len(_LOOKS) + models.index(model)


def _line(number: int) -> dict[str, Any]:
    """Colour, dashes and marker, so that colour is never all that tells lines apart."""
    return {
        "color": style.COLOURS[number % 7],
        "linestyle": ("-", "--", "-.", ":")[number % 4],
        "marker": "osD^vPX"[number % 7],
    }


def _plain(axis: Any) -> None:
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
