"""What every result says, whatever it was obtained with."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paper import machine
from paper.protocol import SMOKE, Experiment, Preset, describe


def made(devices: int = 1) -> dict[str, Any]:
    """What computes at this moment: hardware, versions, commit."""
    return {"hardware": machine.hardware(devices), "versions": machine.versions(), "commit": machine.commit()}


def budget(preset: Preset) -> dict[str, int | float]:
    """The numbers of a preset."""
    values = {field.name: getattr(preset, field.name) for field in dataclasses.fields(preset)}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def record(
    experiment: Experiment,
    model: str,
    preset_name: str,
    seed: int,
    preset: Preset,
    *,
    parts: Sequence[Mapping[str, Any]],
    tested: Mapping[str, Any],
    steps: int,
    train_seconds: float,
    tests: Mapping[str, Any],
    budget: Mapping[str, int | float],
    exact: Mapping[str, Any] | None = None,
    test_seconds: Mapping[str, float | None] | None = None,
    parameters: int | None = None,
    best_step: int | None = None,
    weights: str | None = None,
    history: Sequence[Mapping[str, float]] = (),
) -> dict[str, Any]:
    """The result of one row of a table.

    Args:
        experiment: whose.
        model: name of the model or method.
        preset_name: its name, such as "full".
        seed: of weights and training tasks.
        preset: its tasks and numbers.
        parts: what computed, from one start to the next stop, as `made` gives it.
        tested: what tests, as `made` gave it before.
        steps: updates.
        train_seconds: wall time of training or fitting.
        tests: scores of each domain.
        budget: numbers that say how much was spent.
        exact: comparison with the exact posterior on each domain.
        test_seconds: wall time of each test; None where it is not known.
        parameters: how many were learned.
        best_step: the update with the best validation.
        weights: digest of the file of the trained model.
        history: rows with `step` and `validation_nll`.
    """
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "model": model,
        "preset": preset_name,
        "smoke": SMOKE,
        "seed": seed,
        "steps": steps,
        "budget": dict(budget),
        "published": dict(preset.published),
        "streams": {name: describe(stream) for name, stream in {"train": preset.train, **preset.tests}.items()},
        "parameters": parameters,
        "train_seconds": train_seconds,
        "best_step": best_step,
        "weights": weights,
        "hardware": _distinct(part["hardware"] for part in parts),
        "versions": parts[-1]["versions"],
        "data": parts[-1].get("data"),
        "commits": _distinct(part["commit"] for part in parts),
        "parts": len(parts),
        "tested": dict(tested),
        "history": [dict(row) for row in history],
        "tests": dict(tests),
        "exact": dict(exact) if exact else None,
        "test_seconds": dict(test_seconds) if test_seconds else None,
    }


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in the order in which it first appears."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
