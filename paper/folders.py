"""Where things are."""

from pathlib import Path

#: The repository.
ROOT = Path(__file__).resolve().parents[1]

#: Results, figures and the report.
PAPER = ROOT / "paper"
RESULTS = PAPER / "results"

#: Training states, models and half-finished tests.
RUNS = ROOT / "runs"
