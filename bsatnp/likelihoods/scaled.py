"""Where the scaling of values and the likelihood meet."""

from typing import Any

import equinox as eqx
import numpy as np

from bsatnp._types import Array
from bsatnp.likelihoods.base import AbstractHead, AbstractLikelihood
from bsatnp.likelihoods.gaussian import Gaussian
from bsatnp.likelihoods.lognormal import LogNormal


class Scaled(eqx.Module):
    """A head and the scaling of the values it is given, checked to fit each other when they are put together.

    **Units.** `transform` takes values in the units of the data; `inverse` gives predictions in them.

    Args:
        head: the likelihood of the scaled values.
        scaler: with `transform` and `inverse` on `(…, out)` and `width`, such as `bsatnp.datasets.scaling.MinMax`.

    Raises:
        ValueError: the scaler has another number of columns than the head has outputs; it moves, or does not take,
            values that the likelihood needs where they are (`head.fixed`), such as the 0 of rain or of counts.
    """

    head: AbstractHead
    scaler: Any = eqx.field(static=True)

    def __check_init__(self):
        names = type(self.head).__name__, type(self.scaler).__name__
        if (columns := np.shape(self.scaler.width)) != (self.head.out,):
            raise ValueError(f"`scaler` must have the {self.head.out} outputs of {names[0]}, got {names[1]} {columns}.")
        for value in self.head.fixed:
            must = f"`scaler` must leave {value:g} as it is for the likelihood of {names[0]}, but {names[1]}"
            try:
                there = np.asarray(self.scaler.transform(np.full((1, self.head.out), value)))
            except ValueError as error:
                raise ValueError(f"{must} does not take it.") from error
            if len(moved := there[~np.isclose(there, value, rtol=1e-9, atol=1e-9)]):
                raise ValueError(f"{must} maps it to {moved[0]:.6g}.")

    def transform(self, f: Array) -> np.ndarray:
        """Values in the units of the data, `(…, out)`, as the head takes them; NaN for what a masked array hides.

        Raises:
            ValueError: values outside the support of the likelihood.
        """
        scaled = np.asarray(self.scaler.transform(np.ma.asarray(f)))
        self.head.check(scaled)
        return scaled

    def inverse(self, pred: AbstractLikelihood) -> AbstractLikelihood:
        """A prediction of scaled values in the units of the data; log-normal where the scaler takes logarithms.

        Raises:
            ValueError: a likelihood that no change of unit can be applied to.
        """
        if isinstance(pred, Gaussian) and getattr(self.scaler, "logarithmic", False):
            return LogNormal(self.scaler.inner.inverse(np.asarray(pred.mean)), np.asarray(pred.std) * self.scaler.width)
        if isinstance(pred, Gaussian):
            return Gaussian(self.scaler.inverse(np.asarray(pred.mean)), np.asarray(pred.std) * self.scaler.width)
        if {0.0, 1.0} <= set(self.head.fixed):  # a scaler that leaves both where they are changes nothing
            return pred
        raise ValueError(f"`pred` must be a Gaussian or have values in their own units, got {type(pred).__name__}.")
