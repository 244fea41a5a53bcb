"""From columns to points near 1, and from predictions back to columns in the units of the data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import jax
import numpy as np

from bsatnp.datasets.scaling import AbstractScaler, Log, Standard
from bsatnp.frames.meaning import Meaning
from bsatnp.frames.roles import Phase
from bsatnp.likelihoods import AbstractLikelihood, Categorical, GaussianHead, Scaled
from bsatnp.metrics import exceedance
from bsatnp.tasks import Points


@dataclass(frozen=True)
class Encoding:
    """Scaling of coordinates and values, fitted on the training part alone."""

    meaning: Meaning
    index: dict[str, Standard]
    f: dict[str, AbstractScaler]

    @classmethod
    def fit(cls, meaning: Meaning, index: Mapping[str, np.ndarray], f: np.ndarray) -> "Encoding":
        """Fit on training rows."""
        columns = meaning.columns
        for role in columns.roles:
            dated = "date" in meaning.kinds[role.columns[0]]
            if isinstance(role, Phase) and dated and not role.dated and not np.ptp(index[role.component]):
                raise ValueError(
                    f"Column {role.columns[0]!r} must have several phases in a period of {role.period:g} s, got one: "
                    "the period of dates is in seconds."
                )
        scalers = {role.component: role.scaler(index[role.component]) for role in columns.roles}
        if "x" in index:
            numbers = Standard.fit(index["x"])
            hot = np.arange(len(numbers.mean)) >= len(columns.covariates)
            scalers["x"] = Standard(np.where(hot, 0.0, numbers.mean), np.where(hot, 1.0, numbers.std))
        values = {}
        if isinstance(meaning.head, GaussianHead):
            for name, column in zip(columns.values, f.T, strict=True):
                seen = column[~np.isnan(column)][:, None]
                if not len(seen):
                    raise ValueError(f"Column {name!r} must hold a value in the training part, got none.")
                values[name] = (Log if name in columns.log else Standard).fit(seen)
        return cls(meaning, scalers, values)

    def points(self, index: Mapping[str, np.ndarray], f: np.ndarray | None = None) -> Points:
        """Points with scaled coordinates and values, in float64 on the host."""
        scaled = {name: self.index[name].transform(values) for name, values in index.items()}
        if f is not None and self.f:
            f = np.concatenate([self.f[name].transform(f[:, i : i + 1]) for i, name in enumerate(self.f)], -1)
        return Points(scaled, f)

    def marginals(self, pred: AbstractLikelihood) -> dict[str, AbstractLikelihood]:
        """The prediction of each value in its own units, with one output each."""
        names = self.meaning.columns.values
        parts = [jax.tree.map(lambda leaf, i=i: leaf[:, i : i + 1], pred) for i in range(len(names))]
        if not self.f:
            return dict(zip(names, parts, strict=True))
        each = zip(names, parts, strict=True)
        return {name: Scaled(GaussianHead(), self.f[name]).inverse(part) for name, part in each}

    def results(
        self, pred: AbstractLikelihood, quantiles: Iterable[float], above: Mapping[str, Iterable[float]]
    ) -> dict[str, np.ndarray]:
        """Mean, standard deviation and quantiles of each value, in its units; probabilities of labels, and of more."""
        results = {}
        for i, (name, one) in enumerate(self.marginals(pred).items()):
            if isinstance(one, Categorical):
                labels = self.meaning.labels[name]
                results[f"{name}_mode"] = np.array(labels, object)[np.asarray(one.mode)[:, 0]]
                probs = np.asarray(one.probs, np.float64)[:, 0]
                results |= {f"{name}_is_{label}": probs[:, j] for j, label in enumerate(labels)}
                continue
            results[f"{name}_mean"] = np.asarray(one.mean, np.float64)[:, 0]
            results[f"{name}_std"] = np.asarray(one.std, np.float64)[:, 0]
            for p in quantiles:
                level = np.asarray(pred.quantile(p), np.float64)[:, i : i + 1]
                results[f"{name}_{percent(p)}"] = (self.f[name].inverse(level) if self.f else level)[:, 0]
            for limit in above.get(name, ()):
                more = np.asarray(exceedance(pred, self._scaled(name, limit)), np.float64)
                results[f"{name}_above_{plain(limit)}"] = more[:, i]
        return results

    def _scaled(self, name: str, limit: float) -> float:
        """A limit of a value as the model has it: below all of them where it has no logarithm."""
        if name in self.meaning.columns.log and limit <= 0:
            return -np.inf
        return float(self.f[name].transform(np.array([limit]))[0]) if self.f else limit

    def drawn(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Draws `(sample, point, out)` of each value in its units, or of its labels, `(sample, point)`."""
        found = {}
        for i, name in enumerate(self.meaning.columns.values):
            values = np.asarray(draws[..., i], np.float64)
            if name in self.meaning.labels:
                values = np.array(self.meaning.labels[name], object)[values.astype(int)]
            elif self.f:
                values = self.f[name].inverse(values.reshape(-1, 1)).reshape(values.shape)
            found[name] = values
        return found

    def attrs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Units and a description of each result."""
        found = {}
        for result in names:
            known = self.meaning.columns.values
            name = max((one for one in known if result.startswith(f"{one}_")), key=len)
            kind = result[len(name) + 1 :]
            if name in self.meaning.labels:
                what = f"most probable {name}" if kind == "mode" else f"probability of {kind[3:]}"
                found[result] = {"long_name": what}
                continue
            if kind.startswith("above_"):
                found[result] = {"long_name": f"probability of {name} above {kind[6:]}"}
                continue
            named = {"mean": "predictive mean", "std": "predictive standard deviation"}
            what = named.get(kind, f"predictive quantile {kind[1:]} %")
            found[result] = {"long_name": f"{what} of {name}"}
            if name in self.meaning.units:
                found[result]["units"] = self.meaning.units[name]
        return found


def plain(limit: float) -> str:
    """A limit in the name of a result: 500 for 500.0."""
    return repr(limit).removesuffix(".0")


def percent(p: float) -> str:
    """The name of a quantile: q05 for 0.05, q2.5 for 0.025."""
    return f"q{100 * p:02.0f}" if round(100 * p, 6) == round(100 * p) else f"q{100 * p:.6g}"
