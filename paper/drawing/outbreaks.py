"""Maps of SIR tasks on the four domains: what is seen, what is, what is most probable, and how uncertain it is."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bsatnp.predict import predict
from paper.drawing import style
from paper.drawing.fields import NAMES
from paper.drawing.trained import Trained, need
from paper.evaluation import test_key


def sir(runs: Path, out: Path) -> list[Path]:
    """A picture for each trained model."""
    models = need(runs, "sir", ("bsa-tnp", "tnp-d", "convcnp", "pt-te-tnp-32"))
    return [_sir(one, out / f"sir-{one.model}.png") for one in models]


def _sir(one: Trained, path: Path) -> Path:
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    tests: dict[str, Any] = dict(one.budget().tests)
    figure, axes = style.axes(len(tests), 4)
    states: dict[str, Any] = {"cmap": ListedColormap(style.STATES), "norm": BoundaryNorm([-0.5, 0.5, 1.5, 2.5], 3)}
    shown = None
    for row, (domain, stream) in enumerate(tests.items()):
        alone = dataclasses.replace(stream, batch=1)
        task, outbreak = alone.draw(2, key=test_key())
        task, truth = jax.tree.map(lambda leaf: np.asarray(leaf)[0], (task, outbreak.state))
        ctx = task.ctx.take(np.flatnonzero(task.ctx.mask))
        grid = alone.grid().astype(np.float32)
        answer: Any = predict(one.experiment.adapt(one.load(), stream), ctx, {"s": grid})
        side = (alone.cells, alone.cells)
        probs = np.asarray(answer.probs)[:, 0]
        entropy = -(probs * np.log(np.maximum(probs, 1e-12))).sum(-1).reshape(side)
        low, high = (edge + alone.shift for edge in alone.domain)
        extent = (low, high, low, high)
        seen = np.full(side, np.nan)
        cell = np.clip(((ctx.index["s"] - low) / (high - low) * alone.cells).astype(int), 0, alone.cells - 1)
        seen[cell[:, 0], cell[:, 1]] = ctx.f[:, 0]
        for axis, values in zip(axes[row], (seen, truth, probs.argmax(-1).reshape(side)), strict=False):
            style.field(axis, values, extent, **states)
        axes[row, 0].set_facecolor("white")
        shown = style.field(axes[row, 3], entropy, extent, cmap=style.SPREAD, vmin=0, vmax=np.log(3))
        style.side(axes[row, 0], domain)
    for axis, title in zip(axes[0], ("context", "truth", "most probable state", "uncertainty"), strict=True):
        axis.set_title(title, fontsize=9)
    style.label(axes, "s₁ (16 cells a unit)", "s₂ (16 cells a unit)")
    for axis in axes.ravel():
        axis.tick_params(labelbottom=True)
    patches = [Patch(facecolor=c, label=n) for c, n in zip(style.STATES, _LABELS, strict=True)]
    patches.append(Patch(facecolor="white", edgecolor="0.6", label="not seen"))
    figure.legend(handles=patches, loc="outside lower left", ncols=4, frameon=False, fontsize=8)
    style.bar(figure, shown, axes, "entropy of the prediction (nats)", shrink=0.3, anchor=(1.0, 0.0))
    figure.suptitle(f"SIR, {NAMES[one.model]}\n{one.origin}", fontsize=9)
    return style.save(figure, path, one.origin)


_LABELS = ("susceptible", "infected", "recovered")
