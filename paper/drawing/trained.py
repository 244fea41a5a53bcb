"""The trained models that are there."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bsatnp import checkpoint
from paper.evaluation import digest
from paper.experiments import experiment as find
from paper.files import read, read_lines
from paper.markdown import commit
from paper.protocol import Experiment, Preset


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model, and what it was trained with.

    Args:
        experiment: whose.
        model: its name.
        preset: name of its budget.
        seed: of its training.
        file: its checkpoint.
    """

    experiment: Experiment
    model: str
    preset: str
    seed: int
    file: Path

    def load(self) -> Any:
        """The model."""
        return checkpoint.load(self.file)

    def budget(self, data: Path | None = None) -> Preset:
        """Its tasks."""
        return self.experiment.preset(self.preset, data)

    @property
    def origin(self) -> str:
        """One line that says where the picture of it comes from."""
        history = read(self.file.parent / "history.json")
        best = checkpoint.header(self.file)["extra"]["step"]
        parts = read_lines(self.file.parent / "parts.jsonl")
        made = f"commit {commit(parts[-1]['commit'])}, weights {digest(self.file)}"
        steps = f"update {best:,} of {history[-1]['step']:,}"
        return f"{self.model}, {self.preset} budget, {steps}, seed {self.seed}, {made}"


def trained(runs: Path, name: str, models: Sequence[str]) -> list[Trained]:
    """Of each of the models of an experiment the one with the larger budget and the smallest seed, where there is one.

    All are of the full budget if any of them has it, else of the lite one, so that they are compared fairly.
    """
    experiment = find(name)
    found: dict[str, dict[str, Trained]] = {}
    for preset in ("full", "lite"):
        for model in models:
            files = (runs / name).glob(f"{model}-{preset}-seed*/model.npz")
            seeds = {file.parent.name.rpartition("seed")[2]: file for file in files}
            numbers = sorted(int(seed) for seed in seeds if seed.isdigit())
            if numbers:
                one = Trained(experiment, model, preset, numbers[0], seeds[str(numbers[0])])
                found.setdefault(preset, {})[model] = one
    best = next(iter(found.values()), {})
    return [best[model] for model in models if model in best]


def origins(models: Sequence[Trained]) -> str:
    """Where a picture of several models comes from, a line for each."""
    return "\n".join(one.origin for one in models)


class Missing(Exception):
    """No model to draw; says which command trains one."""

    def __init__(self, name: str, models: Sequence[str]):
        super().__init__(
            f"no trained model among {', '.join(models)}: `python -m paper run {name} --model {models[0]} "
            "--preset lite` trains one"
        )


def need(runs: Path, name: str, models: Sequence[str]) -> list[Trained]:
    """The trained models.

    Raises:
        Missing: there is none.
    """
    found = trained(runs, name, models)
    if not found:
        raise Missing(name, models)
    return found
