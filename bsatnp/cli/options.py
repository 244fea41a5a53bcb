"""What can be said on the command line."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from bsatnp import frames
from bsatnp.checkpoint.files import package_version
from bsatnp.likelihoods import AbstractHead, CategoricalHead, GaussianHead, NegativeBinomialHead, PoissonHead

#: Likelihoods by the names that the command line has for them.
HEADS: dict[str, AbstractHead] = {
    "gaussian": GaussianHead(),
    "poisson": PoissonHead(),
    "negative-binomial": NegativeBinomialHead(),
    "categorical": CategoricalHead(2),
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Raise ValueError."""
        raise ValueError(f"{message[:1].upper()}{message[1:].rstrip('.')}; see `{self.prog} --help`.")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    root = Parser(prog="bsatnp", description="Fit a neural process to a data set, and predict with it.")
    root.add_argument("--version", action="version", version=f"bsatnp {package_version()}")
    commands = root.add_subparsers(dest="command", required=True, metavar="fit | predict | check")
    fit = commands.add_parser("fit", help="train a model on one data set (CSV, Parquet or netCDF)")
    _add_fit(fit)
    predict = commands.add_parser("predict", help="predict at new places and times")
    predict.add_argument("model", help="file that `bsatnp fit` wrote")
    predict.add_argument("data", help="where to predict: CSV, Parquet or netCDF")
    predict.add_argument("--out", required=True, help="file for the predictions: CSV, Parquet or netCDF")
    predict.add_argument("--context", nargs="+", help="known values to predict from, instead of the training data")
    predict.add_argument(
        "--quantiles", nargs="*", type=float, default=[0.05, 0.5, 0.95], metavar="P", help="0.05 0.5 0.95 if not given"
    )
    predict.add_argument(
        "--above", nargs="+", default=[], metavar="COLUMN=LIMIT", help="limits to give the probability of exceeding"
    )
    check = commands.add_parser("check", help="tell what a file holds, check its invariances, score it on new data")
    check.add_argument("model", help="file that `bsatnp fit` wrote")
    check.add_argument("data", nargs="?", help="data that were not trained on, to score the model on")
    check.add_argument("--context", nargs="+", help="known values to predict from, instead of the training data")
    check.add_argument("--examples", type=int, default=5, help="cases tried for each invariance; 0 for none")
    return root


def _add_fit(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("data", nargs="+", help="data sets with the same columns")
    fit.add_argument("--out", required=True, help="file for the model")
    what = fit.add_argument_group("what the columns mean")
    what.add_argument("--values", nargs="+", required=True, metavar="COLUMN", help="what to predict")
    what.add_argument("--log", nargs="+", default=[], metavar="COLUMN", help="values to take the logarithm of")
    what.add_argument("--units", nargs="+", default=[], metavar="COLUMN=UNIT", help="of values, such as zinc=mg/kg")
    what.add_argument("--likelihood", choices=HEADS, default="gaussian", help="of the values")
    space, time = what.add_mutually_exclusive_group(), what.add_mutually_exclusive_group()
    space.add_argument("--space", nargs="+", metavar="COLUMN", help="projected coordinates, such as metres")
    space.add_argument("--sphere", nargs=2, metavar=("LON", "LAT"), help="longitude and latitude in degrees")
    time.add_argument("--time", metavar="COLUMN", help="time, where values before and after may help")
    time.add_argument("--forward", metavar="COLUMN", help="time, to forecast from the past alone")
    what.add_argument(
        "--horizon", type=_span, metavar="SPAN", help="how far forecasts go: a number, or for dates 3D or 12h"
    )
    what.add_argument(
        "--history", type=_span, metavar="SPAN", help="how far forecasts look back; a number is seconds for dates"
    )
    what.add_argument("--hour", metavar="COLUMN", help="dates of which like hours of the day are alike")
    what.add_argument("--season", metavar="COLUMN", help="dates of which like days of the year are alike")
    what.add_argument("--phase", nargs=2, action="append", default=[], metavar=("COLUMN", "PERIOD"), help="any phase")
    what.add_argument(
        "--covariates", nargs="+", default=[], metavar="COLUMN", help="numbers known wherever you predict"
    )
    what.add_argument("--categories", nargs="+", default=[], metavar="COLUMN", help="labels known wherever you predict")
    how = fit.add_argument_group("training")
    length = how.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="number of updates (2000)")
    length.add_argument("--minutes", type=float, help="training time to choose the number of updates by")
    how.add_argument("--seed", type=int, default=0, help="decides everything that is random (0)")
    how.add_argument("--quiet", action="store_true", help="show no bar")


def columns(options: argparse.Namespace) -> frames.Columns:
    """What the columns mean, from the options of `bsatnp fit`.

    Raises:
        ValueError: options that do not fit each other.
    """
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"`--seed` must lie between 0 and {2**32 - 1}, got {options.seed}.")
    if (options.horizon is not None or options.history is not None) and not options.forward:
        raise ValueError("`--horizon` and `--history` need `--forward`, got none.")
    named = _pairs("--units", options.units, "a column, `=` and its unit, such as zinc=mg/kg")
    units = dict(named)
    if len(units) < len(named):
        raise ValueError(f"`--units` must name each column once, got {' '.join(options.units)}.")
    space = (
        frames.Plane(*options.space) if options.space else frames.Sphere(*options.sphere) if options.sphere else None
    )
    time = frames.Time(options.time) if options.time else None
    if options.forward:
        time = frames.Forward(options.forward, horizon=options.horizon, history=options.history)
    others: list[frames.AbstractRole] = []
    others += [frames.HourOfDay(options.hour)] if options.hour else []
    others += [frames.DayOfYear(options.season)] if options.season else []
    others += [frames.Phase(name, _number("--phase", p), component=f"phase of {name}") for name, p in options.phase]
    return frames.Columns(
        options.values,
        space=space,
        time=time,
        others=others,
        covariates=options.covariates,
        categories=options.categories,
        log=options.log,
        head=HEADS[options.likelihood],
        units=units,
    )


def limits(options: argparse.Namespace) -> dict[str, list[float]]:
    """Limits by value, from the options of `bsatnp predict`.

    Raises:
        ValueError: options that name no value, or no number.
    """
    found: dict[str, list[float]] = {}
    for name, limit in _pairs("--above", options.above, "a column, `=` and a limit, such as zinc=500"):
        found.setdefault(name, []).append(_number("--above", limit))
    return found


def _pairs(name: str, given: Sequence[str], must: str) -> list[tuple[str, str]]:
    """What stands before and behind the first `=` of each."""
    if wrong := [one for one in given if not all(one.partition("="))]:
        raise ValueError(f"`{name}` must be {must}, got {wrong[0]!r}.")
    return [(left, right) for left, _, right in (one.partition("=") for one in given)]


def _span(text: str) -> float | str:
    """A number where it is one; other text is read by what takes it."""
    try:
        return float(text)
    except ValueError:
        return text


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"`{name}` must end in a number, got {text!r}.") from None
