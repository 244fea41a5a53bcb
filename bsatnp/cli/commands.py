"""What the commands do."""

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from bsatnp import frames, testing
from bsatnp._types import whole
from bsatnp.checkpoint import check_writable
from bsatnp.cli.options import columns, limits, parser
from bsatnp.frames.files import MISSING, as_written, check_out, is_csv
from bsatnp.frames.report import score_lines
from bsatnp.frames.results import described, results
from bsatnp.frames.table import check_names, is_frame, need
from bsatnp.groups import factors
from bsatnp.models.base import count_parameters

#: What users can cause and mend. Anything else is a fault of the program, and shows where it is.
_ERRORS = (ValueError, OSError, ImportError, FloatingPointError, testing.LawError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: those of the process when None.

    Returns:
        The exit status: 0, or 2 for an error, which is one sentence on standard error.
    """
    try:
        options = parser().parse_args(arguments)
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"bsatnp: {message}", file=sys.stderr)
            {"fit": _fit, "predict": _predict, "check": _check}[options.command](options)
    except KeyboardInterrupt:
        return 130
    except _ERRORS as error:
        print(f"bsatnp: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _fit(options: argparse.Namespace) -> None:
    meaning = columns(options)
    check_writable(options.out)
    _check_other(options.out, options.data)
    data = [frames.read(path) for path in options.data]
    fitted = frames.fit(
        data,
        meaning,
        key=jax.random.key(options.seed),
        steps=options.steps,
        minutes=options.minutes,
        progress=not options.quiet,
    )
    fitted.save(options.out)
    print(f"{fitted.report}\nsaved as {options.out}")


def _predict(options: argparse.Namespace) -> None:
    check_out(options.out)
    _check_other(options.out, [options.model, options.data, *(options.context or ())])
    fitted = _load(options.model)
    data, context, above = _read(options.data, fitted), _context(options, fitted), limits(options)
    names, table = described(results(fitted.encoding, options.quantiles, above)), None
    if is_frame(data):  # results go beside all that is there, such as the names of places, as it is written
        table = as_written(options.data) if is_csv(options.data) and is_csv(options.out) else data.copy()
        check_names(names, table.columns)
    predicted = fitted.predict(data, context=context, quantiles=options.quantiles, above=above)
    if table is not None:
        for name in names:  # row by row: an index may have a label twice
            table[name] = predicted[name].array
        table.attrs, predicted = predicted.attrs, table
    frames.write(predicted, options.out)
    blank = int((~fitted.placed(data)).sum())
    rest = f", {blank} left blank without all coordinates" if blank else ""
    print(f"{', '.join(fitted.columns.values)} predicted{rest}, saved as {options.out}")


def _check(options: argparse.Namespace) -> None:
    if options.context and options.data is None:
        raise ValueError("`--context` needs data to score the model on, got none.")
    whole("--examples", options.examples, 0)
    fitted = _load(options.model)
    data = None if options.data is None else _read(options.data, fitted)
    context = _context(options, fitted)
    meaning = fitted.encoding.meaning
    units = {name: f" ({meaning.units[name]})" for name in fitted.columns.values if name in meaning.units}
    print("predicts " + ", ".join(name + units.get(name, "") for name in fitted.columns.values), end="")
    print(f" by {type(meaning.head).__name__}, with {count_parameters(fitted.model)} parameters")
    for role in fitted.columns.roles:
        print(f"  {role.component}: {', '.join(role.columns)} as {type(role).__name__}")
    for name in fitted.columns.embedded:
        print(f"  x: {name}" + (f", one of {list(meaning.labels[name])}" if name in meaning.labels else ""))
    if fitted.horizon is not None:
        print(f"forecasts up to {meaning.span(fitted.horizon)} ahead")
    print("no data to predict from" if fitted.context is None else f"predicts from {len(fitted.context)} points")
    print(fitted.report)
    if options.examples > 0:
        need("hypothesis", "Checking invariances")
        _check_groups(fitted, options.examples)
    if data is not None:
        scores = fitted.score(data, context=context)
        print("\n".join(score_lines(scores, meaning.units, f"{options.data} ")))


def _check_groups(fitted: frames.Fitted, examples: int) -> None:
    """Check the invariances that the model has, and say of which components, and which components have none."""
    moved = [(group, {factor.component for factor in factors(group)}) for group in fitted.model.groups]
    kept = [(group, names) for group, names in moved if not names & set(fitted.model.embedded)]
    for group, _ in kept:
        testing.check_model(fitted.model, group, sets=False, examples=examples)
    checked = set().union(*(names for _, names in kept))
    if kept:
        print(f"unchanged under the groups of {', '.join(sorted(checked)) or 'the model'}")
    if others := sorted({role.component for role in fitted.columns.roles} - checked):
        print(f"no invariance to check of {', '.join(others)}")


def _load(path: str) -> frames.Fitted:
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {path!r}.")
    return frames.load(path)


def _check_other(out: str, given: Sequence[str]) -> None:
    """Raise ValueError where a file that is read would be replaced."""
    if any(Path(path).resolve() == Path(out).resolve() for path in given):
        raise ValueError(f"`--out` must not be a file that is read, got {out!r}.")


def _read(path: str, fitted: frames.Fitted) -> Any:
    """Data for a model; words such as NA are labels where they are among those that it knows."""
    known = fitted.encoding.meaning.labels
    return frames.read(path, labels=[name for name, found in known.items() if MISSING & set(map(str, found))])


def _context(options: argparse.Namespace, fitted: frames.Fitted) -> list | None:
    return [_read(path, fitted) for path in options.context] if options.context else None
