"""What is said of every value: the names and units of results, and how each is read off a prediction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bsatnp._types import real
from bsatnp.frames.encoding import Encoding, only
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.metrics import exceedance


@dataclass(frozen=True)
class Results:
    """All results of one value.

    Args:
        output: which output of the model they are about.
        attrs: by name of a result its description, and its unit where it has one.
        read: what reads them off the prediction of that output in the scale of the model, in their order, each
            `(row, 1)`.
    """

    output: int
    attrs: dict[str, dict[str, str]]
    read: Callable[[Any], Iterable[Any]]

    def __call__(self, pred: AbstractLikelihood) -> dict[str, np.ndarray]:
        """Each result at every target, `(row,)`: float64, or objects for labels."""
        found = {}
        for name, values in zip(self.attrs, self.read(only(pred, self.output)), strict=True):
            column = np.asarray(values)[:, 0]
            found[name] = column if column.dtype == object else column.astype(np.float64)
        return found


def results(
    encoding: Encoding, quantiles: Sequence[float], above: Mapping[str, float | Sequence[float]] | None = None
) -> list[Results]:
    """Mean, standard deviation and quantiles of each value, and probabilities of labels and of more.

    Args:
        encoding: what the values are.
        quantiles: which.
        above: limits by value, in its unit, of which to give the probability that they are exceeded.

    Raises:
        ValueError: quantiles that are none, or too close for a name each; limits of labels or of what is no value.
    """
    quantiles, limits = _quantiles(quantiles), _limits(encoding, {} if above is None else above)
    found = []
    for i, name in enumerate(encoding.meaning.columns.values):
        if name in encoding.meaning.labels:
            found.append(_of_labels(i, name, encoding.meaning.labels[name]))
        else:
            found.append(_of_numbers(i, name, encoding, quantiles, limits.get(name, [])))
    return found


def described(results: Iterable[Results]) -> dict[str, dict[str, str]]:
    """By name of each result, in their order, its description and unit."""
    return {name: attrs for one in results for name, attrs in one.attrs.items()}


def _of_labels(output: int, name: str, labels: Sequence[Any]) -> Results:
    attrs = {f"{name}_mode": {"long_name": f"most probable {name}"}}
    attrs |= {f"{name}_is_{label}": {"long_name": f"probability of {label}"} for label in labels}

    def read(one):
        yield np.array(labels, object)[np.asarray(one.mode)]
        yield from np.moveaxis(np.asarray(one.probs), -1, 0)

    return Results(output, attrs, read)


def _of_numbers(output: int, name: str, encoding: Encoding, quantiles: list[float], limits: list[float]) -> Results:
    units = encoding.meaning.units
    unit = {"units": units[name]} if name in units else {}
    attrs = {f"{name}_mean": {"long_name": f"predictive mean of {name}"} | unit}
    attrs[f"{name}_std"] = {"long_name": f"predictive standard deviation of {name}"} | unit
    for kind in map(percent, quantiles):
        attrs[f"{name}_{kind}"] = {"long_name": f"predictive quantile {kind[1:]} % of {name}"} | unit
    for told in (repr(limit).removesuffix(".0") for limit in limits):
        attrs[f"{name}_above_{told}"] = {"long_name": f"probability of {name} above {told}"}

    def read(one):
        scaled = encoding.marginal(name, one)
        yield scaled.mean
        yield scaled.std
        for p in quantiles:
            yield encoding.inverse(name, np.asarray(one.quantile(p), np.float64))
        for limit in limits:
            yield exceedance(one, encoding.limit(name, limit))

    return Results(output, attrs, read)


def _quantiles(given: Any) -> list[float]:
    if not isinstance(given, Iterable):
        raise ValueError(f"`quantiles` must be a list of numbers, got {given!r}.")
    found = _once(real("quantiles", p, 0, 1) for p in given)
    if len(set(map(percent, found))) < len(found):
        raise ValueError(f"`quantiles` must differ by more than a millionth of a percent, got {found}.")
    return found


def _limits(encoding: Encoding, above: Any) -> dict[str, list[float]]:
    """The limits of each value in a list."""
    if not isinstance(above, Mapping):
        raise ValueError(f"`above` must give a limit for each value by name, got {above!r}.")
    known = [name for name in encoding.meaning.columns.values if name not in encoding.meaning.labels]
    if strange := [name for name in above if name not in known]:
        raise ValueError(f"`above` must name values that are numbers, here {known}, got {strange[0]!r}.")
    many = {name: limits if isinstance(limits, Iterable) else [limits] for name, limits in above.items()}
    return {name: _once(real("above", limit, -np.inf) for limit in limits) for name, limits in many.items()}


def _once(numbers: Iterable[float]) -> list[float]:
    """Each of them once."""
    return list(dict.fromkeys(numbers))


def percent(p: float) -> str:
    """The name of a quantile: q05 for 0.05, q2.5 for 0.025."""
    return f"q{100 * p:02.0f}" if round(100 * p, 6) == round(100 * p) else f"q{100 * p:.6g}"
