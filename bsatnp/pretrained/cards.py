"""What is known of a trained model."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Card:
    """What a trained model was trained for, what that cost, and its scores.

    `str(card)` is a page of Markdown.

    Args:
        name: of the weights, with their version.
        title: the task in a few words.
        task: the distribution of tasks it was trained on, with its settings.
        index: components of the points and their widths.
        out: number of outputs, or of classes.
        units: what lengths, times and values are measured in.
        budget: updates, seconds, hardware and what else was spent.
        scores: domain of the test to the scores there: `nll` and the others, and the exact posterior's where known.
        source: where the weights come from: command, seed, commit.
        sha256: of the file of weights.
    """

    name: str
    title: str
    task: str
    index: Mapping[str, int]
    out: int
    units: str
    budget: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, float]]
    source: Mapping[str, Any]
    sha256: str

    def to_json(self) -> str:
        """The card as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Card":
        """A card from what `to_json` gave."""
        return Card(**json.loads(text))

    def __str__(self) -> str:
        columns = list(dict.fromkeys(name for row in self.scores.values() for name in row))
        rows = [
            [domain, *(f"{row[name]:.4g}" if name in row else "–" for name in columns)]
            for domain, row in self.scores.items()
        ]
        table = [["tested on", *columns], ["---"] * (1 + len(columns)), *rows]
        return "\n".join(
            [
                f"# {self.name}",
                "",
                f"{self.title}. Trained for: `{self.task}`.",
                f"Points have {_listed(self.index)}; `f` has {self.out} column{'s' * (self.out != 1)}. {self.units}",
                "",
                *(f"| {' | '.join(row)} |" for row in table),
                "",
                f"Budget: {_listed(self.budget)}.",
                f"Source: {_listed(self.source)}.",
            ]
        )


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
