"""What is said of every value: the names and units of results, and how each is read off a prediction."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bsatnp._types import real
from bsatnp.frames.encoding import Encoding, only
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.metrics import exceedance


@dataclass(frozen=True)
class Result:
    """One result of one value.

    Args:
        output: which output of the model it is about.
        read: what reads it off the prediction of that output in the scale of the model, both `(row, 1)`.
        attrs: its description, and its unit where it has one.
    """

    output: int
    read: Callable[[Any], Any]
    attrs: dict[str, str]

    def __call__(self, pred: AbstractLikelihood) -> np.ndarray:
        """The result at every target, `(row,)`: float64, or objects for labels."""
        found = np.asarray(self.read(only(pred, self.output)))[:, 0]
        return found if found.dtype == object else found.astype(np.float64)


def results(
    encoding: Encoding, quantiles: Sequence[float], above: Mapping[str, float | Sequence[float]] | None = None
) -> dict[str, Result]:
    """Mean, standard deviation and quantiles of each value, and probabilities of labels and of more, by name.

    Args:
        encoding: what the values are.
        quantiles: which.
        above: limits by value, in its unit, of which to give the probability that they are exceeded.

    Raises:
        ValueError: quantiles that are none, or too close for a name each; limits of labels or of what is no value.
    """
    quantiles, limits = _quantiles(quantiles), _limits(encoding, {} if above is None else above)
    found = {}
    for i, name in enumerate(encoding.meaning.columns.values):
        if name in encoding.meaning.labels:
            of = _of_labels(name, encoding.meaning.labels[name])
        else:
            of = _of_numbers(encoding, name, quantiles, limits.get(name, ()))
        found |= {f"{name}_{kind}": Result(i, read, attrs) for kind, read, attrs in of}
    return found


_Read = tuple[str, Callable[[Any], Any], dict[str, str]]


def _of_labels(name: str, labels: Sequence[Any]) -> Iterator[_Read]:
    yield "mode", lambda one: np.array(labels, object)[np.asarray(one.mode)], {"long_name": f"most probable {name}"}
    for j, label in enumerate(labels):
        yield f"is_{label}", lambda one, j=j: one.probs[..., j], {"long_name": f"probability of {label}"}


def _of_numbers(encoding: Encoding, name: str, quantiles: Iterable[float], limits: Iterable[float]) -> Iterator[_Read]:
    units = encoding.meaning.units
    unit = {"units": units[name]} if name in units else {}
    for kind, what in (("mean", "mean"), ("std", "standard deviation")):
        attrs = {"long_name": f"predictive {what} of {name}"} | unit
        yield kind, lambda one, kind=kind: getattr(encoding.marginal(name, one), kind), attrs
    for p in quantiles:
        kind = percent(p)
        attrs = {"long_name": f"predictive quantile {kind[1:]} % of {name}"} | unit
        yield kind, lambda one, p=p: encoding.inverse(name, np.asarray(one.quantile(p), np.float64)), attrs
    for limit in limits:
        told = repr(limit).removesuffix(".0")
        read = partial(exceedance, threshold=encoding.limit(name, limit))
        yield f"above_{told}", read, {"long_name": f"probability of {name} above {told}"}


def _quantiles(given: Any) -> list[float]:
    if not isinstance(given, Iterable):
        raise ValueError(f"`quantiles` must be a list of numbers, got {given!r}.")
    found = [real("quantiles", p, 0, 1) for p in given]
    if len(set(map(percent, found))) < len(set(found)):
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
    return {name: [real("above", limit, -np.inf) for limit in limits] for name, limits in many.items()}


def percent(p: float) -> str:
    """The name of a quantile: q05 for 0.05, q2.5 for 0.025."""
    return f"q{100 * p:02.0f}" if round(100 * p, 6) == round(100 * p) else f"q{100 * p:.6g}"
