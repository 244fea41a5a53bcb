"""A trained model with all that it needs to read and to write the caller's data."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from bsatnp import checkpoint, metrics
from bsatnp._types import Key
from bsatnp.checkpoint import CheckpointError
from bsatnp.frames import doubts, plans
from bsatnp.frames.columns import Columns
from bsatnp.frames.drawing import AbstractSplits, Forecasts, same
from bsatnp.frames.encoding import Encoding
from bsatnp.frames.report import Report
from bsatnp.frames.results import described, results
from bsatnp.frames.roles import same_width
from bsatnp.frames.table import Table, table
from bsatnp.joint import joint_samples
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.models.base import AbstractModel
from bsatnp.predict import predict
from bsatnp.tasks import Points

#: Frames from a method that a public one calls to whoever called that one; Equinox has one of its own before each.
_CALLER = 5


class Fitted(eqx.Module):
    """A trained model, the scaling and meaning of its columns, and the data it predicts from.

    **Units.** Everything that comes in or goes out is in the units of the data.
    """

    model: AbstractModel
    encoding: Encoding
    splits: AbstractSplits
    context: Points | None
    report: Report

    @property
    def columns(self) -> Columns:
        """What the columns mean."""
        return self.encoding.meaning.columns

    @property
    def horizon(self) -> float | None:
        """How far ahead forecasts go, in the unit of the time column, seconds for dates; None where there are none."""
        return self._time(self.splits.horizon) if isinstance(self.splits, Forecasts) else None

    def _time(self, scaled: float) -> float:
        return scaled * float(self.encoding.index["t"].width[0])

    def predict(
        self,
        data: Any,
        *,
        context: Any = None,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        above: Mapping[str, float | Sequence[float]] | None = None,
        progress: bool = False,
    ) -> Any:
        """Mean, standard deviation and quantiles at new places and times, in the units and the order of the data.

        A DataFrame comes back with its own index and coordinates, an xarray object as a Dataset on its own. Results are
        called `zinc_mean`, `zinc_std`, `zinc_q05`, … and `zinc_above_500`, the probability of more than 500; for labels
        `soil_mode` and the probabilities `soil_is_…`. Rows without all coordinates and covariates get NaN; a table's
        other columns stay behind. Where time runs forward, no target is predicted from values of its own time or later,
        and targets that lie within a horizon after the same known values are predicted together, from what lies before
        the first of them: which others are asked for matters.

        Args:
            data: where; it needs the columns of coordinates and covariates, not those of values.
            context: known values, of any kind that `fit` takes; those of the training data when None.
            quantiles: which.
            above: limits by value, in its unit, of which to give the probability that they are exceeded.
            progress: whether to show a bar.

        Warns:
            UserWarning: values, covariates or places that are so far from all of training, or from the context, that
                they can hardly be in its units.

        Raises:
            ValueError: columns that are missing, of another kind or in another unit, where the data name them,
                categories that training did not have, targets beyond the horizon, a context without a usable row,
                limits of labels or of what is no value, columns that are called as a result.
        """
        told = results(self.encoding, quantiles, above)
        asked, ctx = self._table(data), self._context(context)
        attrs = described(told)
        asked.layout.check(attrs)
        known, tgt = self._targets(asked, ctx)
        pred = self._distribution(ctx, tgt, progress=progress)
        found = {}
        for name, values in (read for one in told for read in one(pred).items()):
            found[name] = np.full(len(asked), None if values.dtype == object else np.nan, values.dtype)
            found[name][known] = values
        return asked.layout.restore(found, attrs)

    def placed(self, data: Any) -> np.ndarray:
        """Which rows have all coordinates and covariates, and so are predicted, `(row,)`.

        Raises:
            ValueError: columns that are missing or of another kind, categories that training did not have.
        """
        return self.encoding.meaning.read(self._table(data))[1]

    def distribution(self, data: Any, *, context: Any = None) -> dict[str, AbstractLikelihood]:
        """The predictive distribution of every value, in its units: Gaussian, log-normal, of counts or of labels.

        **Shapes.** Parameters are `(row, 1)`, in the order of the rows of `data`; those of an xarray object are the
        points of its dimensions, the last one fastest.

        **Units.** Parameters are in float64, but what is computed from them, such as quantiles, is in float32 unless
        x64 is enabled: subtract an offset before `fit` from values such as 1e8 ± 1. `predict` loses nothing by it.

        Warns:
            UserWarning: as `predict`.

        Raises:
            ValueError: as `predict`; rows without all coordinates.
        """
        asked, ctx = self._table(data), self._context(context)
        known, tgt = self._targets(asked, ctx)
        if not known.all():
            raise ValueError(
                f"`data` must have all coordinates in every row, got {int((~known).sum())} rows without: leave them "
                "out by `table[fitted.placed(table)]`, where of a grid `table = data.to_dataframe().reset_index()`."
            )
        return self.encoding.marginals(self._distribution(ctx, tgt))

    def samples(
        self, data: Any, *, samples: int = 100, key: Key, context: Any = None, together: int = 1
    ) -> Mapping[str, Any]:
        """Joint draws of every value at all rows, for a maximum, a sum or a probability over many places.

        Each row that is drawn joins the context of the next, see `bsatnp.joint.joint_samples`: meant for hundreds of
        rows. Draws are of observations, noise included; the same key gives the same.

        **Shapes.** By value `(sample, row)`, in the order of the rows of `data`; of an xarray object a Dataset with the
        dimension `sample` before its own. In units of the value, or labels; NaN or None in rows without all
        coordinates.

        Args:
            data: where; as for `predict`.
            samples: number of draws.
            key: a typed key.
            context: known values; those of the training data when None.
            together: rows that are drawn at once, as if they were independent given those before.

        Warns:
            UserWarning: as `predict`.

        Raises:
            ValueError: as `predict`; time that runs forward, where rows of one time never see each other; more rows
                than can share one context.
        """
        if self.columns.forward is not None:
            raise ValueError("`time` must not be `Forward` for joint samples: forecasts of one time are made apart.")
        asked, ctx = self._table(data), self._context(context)
        asked.layout.check(self.columns.values, drawn=True)
        known, tgt = self._targets(asked, ctx)
        plan = list(self._plan(ctx, tgt))
        if len(plan) > 1:
            raise ValueError(
                f"`data` must have few enough rows to share the nearest of {len(ctx)} context points, got {len(tgt)}: "
                "sample parts of it, or give a smaller `context`."
            )
        ((_, of),) = plan
        drawn = joint_samples(self.model, ctx.take(of), tgt, samples=samples, key=key, together=together)
        found = {}
        for name, values in self.encoding.drawn(drawn).items():
            found[name] = np.full((len(values), len(asked)), None if values.dtype == object else np.nan, values.dtype)
            found[name][:, known] = values
        return asked.layout.drawn(found, {name: {"units": unit} for name, unit in self.encoding.meaning.units.items()})

    def score(self, data: Any, *, context: Any = None) -> dict[str, dict[str, float]]:
        """Scores on data that were not trained on, by value: NLL, MAE, RMSE, 95 % coverage, CRPS, in their units.

        Where time runs forward, these are forecasts at most a horizon ahead, from what lies before in `context` and in
        `data`, of one horizon after the other. Rows that the context holds must be left out of `data` for time of
        either kind: those of the training data unless `context` is given.

        Warns:
            UserWarning: as `predict`.

        Raises:
            ValueError: as `predict`; no observed values; rows that are in the context too, whose scores would flatter.
        """
        asked = self._table(data, values=True)
        f = self.encoding.meaning.values(asked)
        ctx, new = self._context(context), self._known(asked)
        if (held := _held(ctx, new)).any():
            raise ValueError(
                f"`data` must be new to be scored, got {held.sum()} rows that the context holds as well: leave "
                "them out."
            )
        if self.columns.forward is not None:
            ctx = joined(ctx, new)
        known, tgt = self._targets(asked, ctx)
        found = scores(self.encoding, self._distribution(ctx, tgt), f[known])
        if unseen := [name for name in self.columns.values if name not in found]:
            raise ValueError(f"Column {unseen[0]!r} must hold a value to be scored, got none.")
        return found

    def save(self, path: str | os.PathLike, *, context: bool = True) -> None:
        """Write everything to one file, whole or not at all. Nothing in it is executed when it is loaded.

        Args:
            path: name of the file; an existing one is replaced.
            context: whether the data to predict from go with it; without them, `predict` must be given some.
        """
        kept = self if context else eqx.tree_at(lambda x: x.context, self, None, is_leaf=lambda x: x is None)
        told = {"frames": 1, "values": list(self.columns.values), "units": self.encoding.meaning.units}
        checkpoint.save(path, kept, extra=told)

    def _table(self, data: Any, *, values: bool = False) -> Table:
        columns = self.columns
        whole = columns.values if values else ()
        found = table(data, (*columns.coordinates, *whole), whole=whole, dates=columns.dates)
        self.encoding.meaning.check_units(found)
        return found

    def _context(self, data: Any) -> Points:
        if data is None and self.context is None:
            raise ValueError("`context` must be given, since the file was saved without one.")
        if data is None:
            assert self.context is not None
            return self.context
        many = data if isinstance(data, list | tuple) else [data]
        if not many:
            raise ValueError("`context` must be at least one data set, got none.")
        found = joined(*[self._known(self._table(one, values=True)) for one in many])
        if not len(found):
            raise ValueError("`context` must hold rows with all coordinates and values, got none.")
        for doubt in doubts.about_context(self.encoding, found):
            warnings.warn(doubt, stacklevel=_CALLER)
        return found

    def _known(self, data: Table) -> Points:
        """Rows that can serve as context."""
        index, known = self.encoding.meaning.read(data)
        f = self.encoding.meaning.values(data)
        known &= ~np.isnan(f).any(-1)
        return self.encoding.points({name: values[known] for name, values in index.items()}, f[known])

    def _distribution(self, ctx: Points, tgt: Points, *, progress: bool = False) -> AbstractLikelihood:
        """The scaled prediction."""
        plan = self._plan(ctx, tgt)
        parts = [(rows, predict(self.model, ctx.take(of), tgt.take(rows), progress=progress)) for rows, of in plan]
        if not parts:
            return predict(self.model, ctx.take(slice(0, 0)), tgt)
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *[one for _, one in parts])

    def _targets(self, asked: Table, ctx: Points) -> tuple[np.ndarray, Points]:
        """Which rows have all coordinates, and these as points."""
        index, known = self.encoding.meaning.read(asked)
        tgt = self.encoding.points({name: values[known] for name, values in index.items()})
        for doubt in doubts.about_targets(self.encoding, ctx, tgt):
            warnings.warn(doubt, stacklevel=_CALLER)
        return known, tgt

    def _plan(self, ctx: Points, tgt: Points) -> plans.Plan:
        """Which context each target is predicted from."""
        splits = self.splits
        if isinstance(splits, Forecasts):
            spans = {"n_ctx": splits.n_ctx, "history": splits.history, "horizon": splits.horizon}
            meaning = self.encoding.meaning
            return plans.ahead(
                ctx.index["t"][:, 0], tgt.index["t"][:, 0], **spans, say=lambda scaled: meaning.span(self._time(scaled))
            )
        return plans.everywhere(*positions(self.columns, ctx.index, tgt.index), n_ctx=splits.n_ctx)


def load(path: str | os.PathLike, *, classes: Iterable[Any] = ()) -> Fitted:
    """Read what `Fitted.save` wrote, in any process.

    Args:
        path: the file.
        classes: the caller's own classes and functions, where a model or a group of the caller's own is in it.

    Raises:
        CheckpointError: the file is truncated, foreign or newer, holds a bare model, or needs other classes.
    """
    found = checkpoint.load(path, classes=classes)
    if not isinstance(found, Fitted):
        raise CheckpointError(
            f"{os.fspath(path)!r} must be a file of `Fitted.save`, got a {type(found).__name__}; see `bsatnp.load`."
        )
    return found


def positions(columns: Columns, *indices: Mapping[str, Any]) -> list[np.ndarray]:
    """Where the points of each set are for choosing neighbours, `(row, dim)`: positions of all components with a group.

    Covariates take their place where there is no such component.

    **Units.** Each component is in units of its spread in the first set.
    """
    roles = columns.roles
    sets = [[role.positions(np.asarray(index[role.component])) for role in roles] for index in indices]
    sets = sets if roles else [[np.asarray(index["x"])] for index in indices]
    widths = [same_width(part).width if len(part) else 1.0 for part in sets[0]]
    return [np.concatenate([part / width for part, width in zip(parts, widths, strict=True)], -1) for parts in sets]


def joined(*points: Points) -> Points:
    """Points of several sets as one set."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *points)


def _held(ctx: Points, new: Points) -> np.ndarray:
    """Which points of the second set the first holds with the same coordinates and values, `(row,)`."""
    number = same(joined(ctx, new))
    return np.isin(number[len(ctx) :], number[: len(ctx)])


def scores(encoding: Encoding, pred: AbstractLikelihood, f: np.ndarray) -> dict[str, dict[str, float]]:
    """Scores by value, in the units of the data; values without any observation are left out.

    **Shapes.** `f` is `(row, out)` in those units, NaN where not observed.
    """
    found = {}
    for i, (name, one) in enumerate(encoding.marginals(pred).items()):
        column = f[:, i : i + 1]
        seen = ~np.isnan(column)
        if not seen.any():
            continue
        summary = metrics.summarise(one, np.where(seen, column, 0), seen)
        found[name] = {score: float(value) for score, value in summary.items()} | {"n": float(seen.sum())}
    return found
