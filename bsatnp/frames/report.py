"""What became of the rows of a data set, and how training went."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """What became of the rows, and how the training went.

    Args:
        rows: rows of all data sets given.
        used: those with all coordinates and at least one value.
        missing: values that were not observed in rows with all coordinates, by name.
        unplaced: rows without each coordinate or covariate, by column; they are left out.
        repeated: used rows that are the same as one before them in coordinates and values.
        partial: used rows with some of several values missing: they are learned from as targets, never as context.
        held_out: used rows that were kept from training.
        steps: updates made.
        seconds: that training took.
        best_step: update with the best score on the held-out part; its parameters were kept.
        scores: on the held-out part, by value and score, in the units of the data. The best parameters were chosen by
            this part, so that new data will score a little worse. `n` counts the targets of all validation tasks, in
            several of which a row may be.
        history: rows of `bsatnp.train.Fit.history`; not shown.
        units: of the values that have one, by name.
    """

    rows: int
    used: int
    missing: dict[str, int]
    unplaced: dict[str, int]
    partial: int
    held_out: int = 0
    steps: int = 0
    seconds: float = 0.0
    best_step: int = 0
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list, repr=False)
    repeated: int = 0
    units: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Some lines of text."""
        lines = [f"{self.rows} rows, {self.used} used, {self.held_out} of them held out"]
        lines += [f"  {n} without a value of {name}" for name, n in self.missing.items() if n]
        lines += [f"  {n} left out without {name}" for name, n in self.unplaced.items() if n]
        lines += [f"  {self.partial} with some values missing, used as targets only"] if self.partial else []
        lines += [f"  {self.repeated} the same as another row"] if self.repeated else []
        lines += [f"{self.steps} steps in {self.seconds:.0f} s, best after {self.best_step}"] if self.steps else []
        return "\n".join([*lines, *(score_lines(self.scores, self.units, "held-out ") if self.scores else [])])


def score_lines(scores: dict[str, dict[str, float]], units: dict[str, str], lead: str = "") -> list[str]:
    """Scores as lines of text, one for each value, with its unit and the number of predictions."""
    lines = []
    for name, row in scores.items():
        unit = f" ({units[name]})" if name in units else ""
        each = ", ".join(f"{score} {value:.4g}" for score, value in row.items() if score != "n")
        lines.append(f"{lead}{name}{unit}: {each}, over {row['n']:.0f} predictions")
    return lines
