"""What an experiment is: models, streams of tasks, budgets."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import optax

from bsatnp.models.base import AbstractModel
from bsatnp.tasks import Task
from bsatnp.train import optimizer
from paper import machine

#: `stream(step, key=key)` is a batch of tasks.
Stream = Callable[..., Task]

#: `make(key=key)` is an untrained model.
Make = Callable[..., AbstractModel]

#: Whether everything is shrunk to a few steps, to see that it runs.
SMOKE = os.environ.get("SMOKE") == "1"


def describe(stream: Any) -> str:
    """The kind of a stream and its settings, without its data."""
    fields = dataclasses.fields(stream) if dataclasses.is_dataclass(stream) else ()
    values = {field.name: getattr(stream, field.name) for field in fields}
    plain = {name: value for name, value in values.items() if isinstance(value, int | float | str | tuple | None)}
    return f"{type(stream).__name__}({', '.join(f'{name}={value}' for name, value in plain.items())})"


@dataclasses.dataclass(frozen=True)
class Preset:
    """The budget of an experiment and its tasks; all models of a table get the same.

    Args:
        train: tasks to learn from.
        validation: tasks that choose the best of the models seen on the way.
        tests: domain to the tasks that are scored in the end, the training domain first.
        steps: number of updates.
        validate_every: updates between validations.
        validation_batches: batches of one validation.
        test_batches: batches of one test.
        exact_batches: how many of these the exact posterior scores, where there is one.
        peak: largest learning rate.
        end: learning rate of the last update, after a cosine.
        published: domain of a test to the domain of the paper's tables that it equals.
        warmup: updates with a rising learning rate before; the paper has none.
        checkpoint_every: updates between writings of the training state.
    """

    train: Stream
    validation: Stream
    tests: Mapping[str, Stream]
    steps: int
    validate_every: int
    validation_batches: int
    test_batches: int
    peak: float
    end: float
    published: Mapping[str, str]
    warmup: int = 0
    exact_batches: int = 100
    checkpoint_every: int = 250

    def optimizer(self) -> optax.GradientTransformation:
        """The paper's AdamW, weight decay and clipping, under this learning rate."""
        return optimizer(self.steps, peak=self.peak, end=self.end, warmup=self.warmup)

    def smoke(self) -> "Preset":
        """A few steps of the same."""
        few = {"steps": 4, "validate_every": 2, "checkpoint_every": 1, "warmup": min(1, self.warmup)}
        few |= {"validation_batches": 1, "test_batches": 2, "exact_batches": 1}
        return dataclasses.replace(self, **few)


def full_budget(
    tasks: Any, tests: Mapping[str, Stream], published: Mapping[str, str] | None = None, *, end: float = 2e-5
) -> Preset:
    """The paper's budget for synthetic tasks; every domain is one of the paper's where `published` is None."""
    return Preset(
        train=tasks,
        validation=tasks,
        tests=tests,
        steps=100_000,
        validate_every=10_000,
        validation_batches=5_000,
        test_batches=5_000,
        peak=1e-4,
        end=end,
        published={name: name for name in tests} if published is None else published,
    )


def lite_budget(tasks: Any, tests: Mapping[str, Stream], published: Mapping[str, str], **changes: Any) -> Preset:
    """3,000 steps of 8 tasks with a warm-up and a higher peak; `changes` are fields of `Preset`."""
    common = {
        "steps": 3_000,
        "validate_every": 500,
        "validation_batches": 50,
        "test_batches": 200,
        "peak": 1e-3,
        "end": 1e-5,
        "warmup": 150,
        "checkpoint_every": 100,
    }
    return Preset(train=tasks, tests=tests, published=published, **{"validation": tasks, **common, **changes})


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Args:
        name: what the command line calls it.
        title: one line.
        models: names to constructors.
        presets: names to functions that give the budget, from the folder of the data where there is one to read.
        exact: negative log densities of the targets `(task, tgt)` under the exact posterior of batch number n of a test
            stream, as `exact(stream, n, key)`; None where no such thing is known.
        adapt: gives the model for a test stream, as `adapt(model, stream)`; ConvCNP needs another grid elsewhere.
        default_data: what is read where the caller names nothing.
        models_for: gives the models for a preset, where they depend on its data; all presets share names and sizes.
    """

    name: str
    title: str
    models: Mapping[str, Make]
    presets: Mapping[str, Callable[[Path | None], Preset]]
    exact: Callable[[Any, int, Any], Any] | None = None
    adapt: Callable[[AbstractModel, Any], AbstractModel] = lambda model, stream: model
    default_data: Path | None = None
    models_for: Callable[[Preset], Mapping[str, Make]] | None = None

    def preset(self, name: str, data: Path | None = None) -> Preset:
        """The budget of that name, or a few steps of it under SMOKE=1.

        Raises:
            ValueError: no such preset; `data` for an experiment that reads none.
        """
        self._reads(data)
        self._one_of("preset", self.presets, name)
        preset = self.presets[name](data)
        return preset.smoke() if SMOKE else preset

    def contents(self, data: Path | None) -> str | None:
        """A short name for the data that are read where the caller names `data`; None without any.

        Raises:
            FileNotFoundError: nothing is there.
            ValueError: `data` for an experiment that reads none.
        """
        self._reads(data)
        return machine.contents(data or self.default_data)

    def check(self, model: str, preset: str) -> None:
        """Refuse the names of what is not there, before any data are read.

        Raises:
            ValueError: no such model or preset.
        """
        self._one_of("model", self.models, model)
        self._one_of("preset", self.presets, preset)

    def _one_of(self, what: str, there: Mapping[str, Any], name: str) -> None:
        if name not in there:
            raise ValueError(f"`{what}` must be one of {sorted(there)} for '{self.name}', got '{name}'.")

    def _reads(self, data: Path | None) -> None:
        if data is not None and self.default_data is None:
            raise ValueError(f"`--data` must be left out for '{self.name}', which reads none, got '{data}'.")

    def make(self, model: str, *, key: Any, preset: Preset | None = None) -> AbstractModel:
        """The untrained model of that name, for the data of a preset where they matter.

        Raises:
            ValueError: no such model.
        """
        self._one_of("model", self.models, model)
        fitting = self.models if preset is None or self.models_for is None else self.models_for(preset)
        return fitting[model](key=key)
