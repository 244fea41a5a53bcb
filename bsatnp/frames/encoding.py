"""From columns to points near 1, and from predictions back to columns in the units of the data."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from bsatnp.datasets.scaling import AbstractScaler, Log, Standard
from bsatnp.frames.meaning import Meaning
from bsatnp.frames.roles import Phase
from bsatnp.likelihoods import AbstractLikelihood, GaussianHead, Scaled
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
        return {name: self.marginal(name, only(pred, i)) for i, name in enumerate(self.meaning.columns.values)}

    def marginal(self, name: str, one: AbstractLikelihood) -> AbstractLikelihood:
        """The prediction of the output of one value, in the unit of the value."""
        return Scaled(GaussianHead(), self.f[name]).inverse(one) if self.f else one

    def inverse(self, name: str, values: np.ndarray) -> np.ndarray:
        """Numbers `(…, 1)` of a value in its unit."""
        return self.f[name].inverse(values) if self.f else values

    def limit(self, name: str, limit: float) -> float:
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
                found[name] = np.array(self.meaning.labels[name], object)[values.astype(int)]
            else:
                found[name] = self.inverse(name, values.reshape(-1, 1)).reshape(values.shape)
        return found


def only(pred: AbstractLikelihood, i: int) -> AbstractLikelihood:
    """The prediction of one output."""
    return jax.tree.map(lambda leaf: leaf[:, i : i + 1], pred)
