"""From a data set to a trained model in one call."""

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from bsatnp._types import Key, real, typed, whole
from bsatnp.frames.columns import Columns
from bsatnp.frames.default import FEW, default_model, default_splits
from bsatnp.frames.drawing import AbstractSplits, Forecasts, Rows, Stream, generator, same
from bsatnp.frames.encoding import Encoding
from bsatnp.frames.fitted import Fitted, positions, scores
from bsatnp.frames.meaning import Meaning
from bsatnp.frames.report import Report
from bsatnp.frames.roles import lengths
from bsatnp.frames.simulated import Simulated
from bsatnp.frames.table import is_missing, table
from bsatnp.likelihoods import AbstractHead, GaussianHead
from bsatnp.models.base import AbstractModel
from bsatnp.predict import predict
from bsatnp.tasks import Points, Task
from bsatnp.train import EpochStream
from bsatnp.train import fit as train

#: Share of the times that must have another one before them within a horizon or a history.
_FEWEST = 0.01

#: Validations of a run, and how many of them in a row may bring nothing before it stops.
_VALIDATIONS, _PATIENCE = 25, 13
#: Updates that are made even where there is no time for them.
_LEAST = 10


def fit(
    data: Any,
    columns: Columns,
    *,
    key: Key,
    steps: int | None = None,
    minutes: float | None = None,
    batch: int = 8,
    held_out: float = 0.15,
    splits: AbstractSplits | None = None,
    model: Callable[..., AbstractModel] | None = None,
    simulate: float | None = None,
    progress: bool = True,
) -> Fitted:
    """Train a model on one data set.

    Tasks are drawn from the data set itself, see `bsatnp.frames.Random`, `Windows` and `Forecasts`. A part is held out:
    the last of the time for forecasts, whole blocks of large data sets, else points at random. Scaling is fitted on the
    rest alone, the training stops when the held-out score no longer falls, and the best parameters are kept. From up to
    1,500 points a network learns little but the points themselves; it is then trained on Gaussian processes of many
    kinds, simulated at the same places, and the data choose when to stop and are predicted from.

    Args:
        data: a DataFrame, a Dataset, a DataArray, or a list of them with the same columns, gridded or scattered.
        columns: what the columns mean.
        key: a typed key. The same key, data and steps give the same model, bit for bit on one machine.
        steps: number of updates; 2000 when neither they nor `minutes` are given.
        minutes: training time to choose `steps` by, from the speed of a few; the result then depends on the machine.
        batch: tasks in an update.
        held_out: share of the data that is kept from training.
        splits: how tasks are drawn, in the units of the data; chosen by the size of the data and the meaning of time
            when None.
        model: builds a model of your own, called with (`columns`, scaled `index`, `head`, `key=`); see
            `bsatnp.frames.default_model`.
        simulate: share of the tasks whose values are simulated; 1 for few points and 0 for others when None.
        progress: whether to show a bar.

    Warns:
        UserWarning: `minutes` that are used up by compiling, so that the model is hardly trained.

    Raises:
        ValueError: columns that are missing or do not hold what they should, too few rows, numbers out of range, a
            `history` or `horizon` shorter than one step of the times.
        FloatingPointError: the training diverged.
    """
    real("held_out", held_out, 0, 1)
    if simulate is not None:
        real("simulate", simulate, 0, 1, ends=True)
    if minutes is not None:
        real("minutes", minutes)
        if steps is not None:
            raise ValueError(f"`steps` or `minutes` must be given, not both, got {steps} and {minutes:g}.")
    steps, batch = whole("steps", 2000 if steps is None else steps), whole("batch", batch)
    if not isinstance(splits, AbstractSplits | None):
        raise ValueError(f"`splits` must be Random, Windows, Forecasts or None, got {type(splits).__name__}.")
    if not isinstance(columns, Columns):
        raise ValueError(f"`columns` must be Columns, got {type(columns).__name__}.")
    hold_key, check_key, model_key, train_key = jax.random.split(typed(key), 4)

    meaning, index, f, report = _read(data, columns)
    given = default_splits(columns, index) if splits is None else splits
    if isinstance(given, Forecasts) and columns.forward is None:
        raise ValueError("`time` must be `Forward` for tasks that are forecasts.")
    if isinstance(splits, Forecasts) and columns.forward is not None:
        for name in ("horizon", "history"):
            if (wish := getattr(columns.forward, name)) not in (None, getattr(splits, name)):
                raise ValueError(f"`{name}` must be the same in `Forward` and `splits`, got {wish} and another.")
    if not isinstance(given, Forecasts) and columns.forward is not None:
        raise ValueError(f"`splits` must be Forecasts where time is `Forward`, got {type(given).__name__}.")
    if len(f) < 3:
        raise ValueError(f"`data` must have at least 3 rows with coordinates and a value, got {len(f)}.")
    if report.used == report.partial:
        raise ValueError(
            f"`values` must be known together in some rows, which alone are context, got none of {report.used}: fit "
            f"each of {list(columns.values)} apart."
        )
    if isinstance(given, Forecasts):
        _check_spans(given, meaning, index["t"])
    first = Encoding.fit(meaning, index, f)  # of all rows, to choose what is held out; nothing of it is kept
    rows = _rows(first, index, f)
    held = _scaled(given, first).hold_out(rows, held_out, generator(hold_key))
    if held.sum() < 1 or (~held).sum() < 2:
        raise ValueError(
            f"`splits` and `held_out` must leave 2 rows to train on and hold out 1, got {(~held).sum()} and "
            f"{held.sum()}."
        )
    encoding = Encoding.fit(meaning, {name: values[~held] for name, values in index.items()}, f[~held])
    rows = _rows(encoding, index, f)
    chosen = _scaled(given, encoding)

    known = {name: value[~held] for name, value in rows.points.index.items()}
    few = len(rows) <= FEW and isinstance(meaning.head, GaussianHead) and columns.forward is None
    share = (1.0 if few else 0.0) if simulate is None else simulate
    simulated = _simulated(columns, known, meaning.head) if share > 0 else None
    build = default_model if model is None else model
    start = build(columns, known, meaning.head, key=model_key)
    drawn = chosen.validation(rows, held, generator(check_key), max(2 * batch, 16))
    validation = EpochStream(drawn, batch, ctx_sizes=(chosen.n_ctx,), tgt_sizes=(chosen.n_tgt,))

    began = time.perf_counter()
    if minutes is not None:
        steps = _affordable(start, Stream(chosen, rows, ~held, batch), 60 * minutes, key=train_key)
    stream = Stream(chosen, rows, ~held, batch, simulated, share)
    every = max(1, steps // _VALIDATIONS)
    run = train(
        start,
        stream,
        steps=steps,
        key=train_key,
        validation=validation,
        validate_every=every,
        log_every=every,
        callbacks=(_patience(_PATIENCE * every),),
        progress=progress,
    )
    scored = [row for row in run.history if "validation_nll" in row]
    best = min(scored, key=lambda row: row["validation_nll"])
    told = dataclasses.replace(
        report,
        held_out=int(held.sum()),
        repeated=len(rows) - len(np.unique(same(rows.points))),
        steps=run.steps,
        seconds=time.perf_counter() - began,
        best_step=int(best["step"]),
        scores=_scores(run.best, encoding, drawn),
        history=run.history,
    )
    context = rows.points.take(np.flatnonzero(np.asarray(rows.points.usable)))
    return Fitted(run.best, encoding, chosen, context, told)


def _read(data: Any, columns: Columns) -> tuple[Meaning, dict[str, np.ndarray], np.ndarray, Report]:
    """All usable rows of all data sets, and what became of the others."""
    many = data if isinstance(data, list | tuple) else [data]
    if not many:
        raise ValueError("`data` must be at least one data set, got none.")
    names = (*columns.coordinates, *columns.values)
    tables = [table(one, names, whole=columns.values, dates=columns.dates) for one in many]
    meaning = Meaning.of(columns, tables)
    parts = [meaning.read(one)[0] for one in tables]
    index = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    f = np.concatenate([meaning.values(one) for one in tables])
    placed = np.logical_and.reduce([~np.isnan(values).any(-1) for values in index.values()])
    some, every = ~np.isnan(f).all(-1), ~np.isnan(f).any(-1)
    used = placed & some
    holes = {name: int(sum(is_missing(one.columns[name]).sum() for one in tables)) for name in columns.coordinates}
    absent = zip(columns.values, (np.isnan(f) & placed[:, None]).sum(0).tolist(), strict=True)
    report = Report(
        rows=len(f),
        used=int(used.sum()),
        missing=dict(absent),
        unplaced={name: n for name, n in holes.items() if n},
        partial=int((used & ~every).sum()),
        units=meaning.units,
    )
    return meaning, {name: values[used] for name, values in index.items()}, f[used], report


def _check_spans(splits: Forecasts, meaning: Meaning, times: np.ndarray) -> None:
    """Raise ValueError for spans so short that hardly a time has another one within them."""
    gaps = np.diff(np.unique(times))
    step = float(np.median(gaps)) if len(gaps) else 0.0
    hint = "" if meaning.span(step) == f"{step:.4g}" else ": numbers are seconds for dates"
    for name in ("history", "horizon"):
        span = getattr(splits, name)
        if len(gaps) and (gaps <= (1 + 1e-6) * span).mean() < _FEWEST:
            got = f"{meaning.span(step)}, got {meaning.span(span)}"
            raise ValueError(f"`{name}` must be at least one step of the times, {got}{hint}.")


def _rows(encoding: Encoding, index: dict[str, np.ndarray], f: np.ndarray) -> Rows:
    points = encoding.points(index, f)
    (where,) = positions(encoding.meaning.columns, points.index)
    time_ = points.index["t"][:, 0] if encoding.meaning.columns.forward is not None else None
    return Rows(points, where, time_)


def _scaled(splits: AbstractSplits, encoding: Encoding) -> AbstractSplits:
    """The same splits in scaled time."""
    if not isinstance(splits, Forecasts):
        return splits
    width = float(encoding.index["t"].width[0])
    return dataclasses.replace(splits, history=splits.history / width, horizon=splits.horizon / width)


def _simulated(columns: Columns, index: dict[str, np.ndarray], head: AbstractHead) -> Simulated:
    if not isinstance(head, GaussianHead):
        raise ValueError(f"`simulate` must be 0 for the likelihood of {type(head).__name__}, got more.")
    ranges = {"x": (0.7, 15.0)}
    for role in columns.roles:
        short, long = lengths(role.positions(index[role.component]))
        ranges[role.component] = (2 * short, 4 * long)
    return Simulated(columns.roles, ranges, head.out)


def _affordable(model: AbstractModel, stream: Stream, limit: float, *, key: Key) -> int:
    """How many steps fit into `limit` seconds, compilation and validation included."""
    start = time.perf_counter()
    trial = train(model, stream, steps=6, key=key, log_every=1, progress=False).history
    compiling = time.perf_counter() - start
    each = float(np.median(np.diff([row["seconds"] for row in trial])))
    steps = int(0.85 * max(limit - 2 * compiling, 0) / each)
    if steps < _LEAST:
        warnings.warn(
            f"`minutes` must leave time for {_LEAST} updates beside compiling, got {limit / 60:g}: the model is hardly "
            "trained.",
            stacklevel=3,
        )
    return max(_LEAST, steps)


def _patience(steps: int) -> Callable[[int, dict[str, float], Any], bool]:
    """Stops a run that has brought nothing for so many steps."""
    best = [np.inf, 0]

    def stop(step: int, row: dict[str, float], model: Any) -> bool:
        del model
        if row.get("validation_nll", np.inf) < best[0]:
            best[:] = [row["validation_nll"], step]
        return step - best[1] >= steps

    return stop


def _scores(model: AbstractModel, encoding: Encoding, drawn: Sequence[Task]) -> dict[str, dict[str, float]]:
    """Scores of the validation tasks in the units of the data."""
    n_ctx, n_tgt = (max(len(points) for points in side) for side in zip(*((t.ctx, t.tgt) for t in drawn), strict=True))
    padded = [Task(task.ctx.pad(n_ctx), task.tgt.pad(n_tgt)) for task in drawn]  # one size, one compilation
    parts = [predict(model, task.ctx, task.tgt) for task in padded]
    pred = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return scores(encoding, pred, np.concatenate([_unscaled(encoding, task.tgt) for task in padded]))


def _unscaled(encoding: Encoding, points: Points) -> np.ndarray:
    f = np.where(points.observed, points.f, np.nan)
    if not encoding.f:
        return f
    return np.concatenate([scaler.inverse(f[:, i : i + 1]) for i, scaler in enumerate(encoding.f.values())], -1)
