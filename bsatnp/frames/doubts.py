"""What makes one doubt that data are in the units of the training."""

from collections.abc import Iterator

import numpy as np

from bsatnp.datasets.scaling import AbstractScaler, Log, Standard
from bsatnp.frames.encoding import Encoding
from bsatnp.frames.roles import Forward, Plane, Sphere, Time
from bsatnp.tasks import Points

#: So many standard deviations from the mean of the training lies half of a column, or more, before it is told.
_FAR = 10.0
#: So much, in a column that was the same in all of training, or of its size, is rounding.
_ROUNDING = 1e-6
#: So many times the spread of the training's places, or a part of it, is told.
_SPREAD = 100.0
#: So many times the extent of the context, or the spread of training, lie all targets away before it is told.
_AWAY = 10.0


def about_context(encoding: Encoding, ctx: Points) -> Iterator[str]:
    """One sentence for each column or component of a context that is far from all of the training."""
    yield from _about_columns(encoding, ctx, "context")
    for role in _measured(encoding):
        values = ctx.index[role.component]
        middle = np.median(values, 0)
        spread = float(np.median(np.abs(values - middle)))
        elsewhere = np.abs(middle).max() > _FAR  # a part of the training's places is nothing unusual
        if spread > _SPREAD or (isinstance(role, Plane) and elsewhere and 0 < spread < 1 / _SPREAD):
            yield _asked(f"The context spreads {spread:.3g} times as far in '{role.component}' as the training data")
    for i, (name, scaler) in enumerate(encoding.f.items()):
        yield from _about_column(name, scaler, np.asarray(ctx.f)[:, i], "context")


def about_targets(encoding: Encoding, ctx: Points, tgt: Points) -> Iterator[str]:
    """One sentence for each covariate of targets that is far from training, and each component far from the context."""
    if not len(tgt) or not len(ctx):
        return
    yield from _about_columns(encoding, tgt, "targets")
    globe = [role for role in encoding.meaning.columns.roles if isinstance(role, Sphere)]
    for role in [*_measured(encoding), *globe]:
        known, asked = (role.positions(points.index[role.component]) for points in (ctx, tgt))
        low, high = known.min(0), known.max(0)
        away = np.maximum(np.maximum(low - asked, asked - high), 0).max(-1).min()
        extent = (high - low).max()
        if away > _AWAY * max(extent, 1.0) and extent > 0:
            times = f"at least {away / extent:.3g} times its extent"
            yield _asked(f"All targets lie {times} away from the context in '{role.component}'")


def _about_columns(encoding: Encoding, points: Points, what: str) -> Iterator[str]:
    for i, name in enumerate(encoding.meaning.columns.covariates):
        scaler = encoding.index["x"]
        one = Standard(scaler.mean[i : i + 1], scaler.std[i : i + 1])
        yield from _about_column(name, one, points.index["x"][:, i], what)


def _about_column(name: str, scaler: AbstractScaler, column: np.ndarray, what: str) -> Iterator[str]:
    far = float(np.median(np.abs(column)))
    if not _varies(scaler):
        if far > _ROUNDING * max(1.0, abs(float(_linear(scaler).origin[0]))):
            yield f"Half of the {what} differs in {name!r}, which never varied in training: its effect is unknown"
    elif far > _FAR:
        yield _asked(
            f"Half of the {what} lies at least {far:.3g} standard deviations from the training mean of {name!r}"
        )


def _linear(scaler: AbstractScaler) -> AbstractScaler:
    """A scaler without the logarithm before it."""
    return scaler.inner if isinstance(scaler, Log) else scaler


def _measured(encoding: Encoding) -> list:
    """The components whose unit is the caller's, and which were not constant in training."""
    roles = [role for role in encoding.meaning.columns.roles if isinstance(role, Plane | Time | Forward)]
    return [role for role in roles if _varies(encoding.index[role.component])]


def _varies(scaler: AbstractScaler) -> bool:
    """Whether what a scaler was fitted on was not constant; one that was has no spread to compare with."""
    inner = _linear(scaler)
    return isinstance(inner, Standard) and bool((inner.std == inner.width).all())


def _asked(what: str) -> str:
    return f"{what}: are the units those of training?"
