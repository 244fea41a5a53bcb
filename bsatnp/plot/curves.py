"""Predictions along one coordinate, and forecasts along time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bsatnp._types import Array, Index, real
from bsatnp.likelihoods import AbstractLikelihood
from bsatnp.plot.canvas import BLUE, GREY, RED, column, component_of, index_of, interval, kept, labelled, new_axes, tidy
from bsatnp.tasks import Points


def band(
    tgt: Points | Index,
    pred: AbstractLikelihood,
    *,
    ctx: Points | None = None,
    component: str | None = None,
    at: Mapping[str, Any] | None = None,
    out: int = 0,
    levels: Sequence[float] = (0.5, 0.95),
    samples: Array | None = None,
    xlabel: str | None = None,
    ylabel: str = "f",
    xunit: str = "",
    unit: str = "",
    ax: Any = None,
) -> Any:
    """The mean and central intervals along one coordinate, with the context and, where `tgt` has values, the truth.

    **Units.** `xunit` and `unit` are written beside the labels; nothing is converted.

    Args:
        tgt: where was predicted, unbatched.
        pred: the prediction there.
        ctx: what it was conditioned on.
        component: which coordinate, of width 1; not needed where there is only one.
        at: values that other components must have, such as `{"s": station}`; rows elsewhere are left out. Dates may be
            `datetime64`, `datetime` or text.
        out: which output.
        levels: probabilities of the intervals.
        samples: draws `(sample, tgt, out)` to show as thin lines, such as those of `bsatnp.joint.joint_samples`.
        xlabel: name of the coordinate, that of the component when None.
        ylabel: name of the output.
        xunit: unit of the coordinate.
        unit: unit of the output.
        ax: where to draw.

    Raises:
        ValueError: what does not fit; no target where `at` says.
    """
    index = index_of(tgt, "tgt")
    name = component_of(index, 1, component)
    rows = _rows(index, at)
    if not rows.any():
        raise ValueError(f"`at` must leave some target to draw, got none at {dict(at or {})}.")
    x = index[name][rows, 0]
    order, n = np.argsort(x, kind="stable"), len(rows)
    x = x[order]
    pred = kept(tgt, pred, "pred")
    alone = x[0] == x[-1]  # one place has no width: its intervals are bars, and lines are marks
    ax = tidy(new_axes()[0] if ax is None else ax)
    for number, level in enumerate(sorted((real("levels", level, 0, 1) for level in levels), reverse=True)):
        low, high = (end[rows][order] for end in interval(pred, level, out, n))
        look: dict[str, Any] = {"alpha": 0.18 + 0.17 * number, "label": f"{100 * level:.3g} % interval"}
        if alone:
            ax.vlines(x, low, high, color=BLUE, linewidth=10, **look)
        else:
            ax.fill_between(x, low, high, color=BLUE, linewidth=0, **look)
    if samples is not None:
        for number, draw in enumerate(np.asarray(samples)):
            values = column(kept(tgt, draw, "samples"), out, n, "samples")[rows][order]
            label = "_samples" if number else "samples"  # the legend shows one of them
            ax.plot(x, values, "_" if alone else "-", color=BLUE, linewidth=0.6, alpha=0.6, label=label)
    mean = column(pred.mean, out, n, "pred")[rows][order]
    ax.plot(x, mean, color=BLUE, linewidth=2, label="mean", marker="o" if alone else None)
    if isinstance(tgt, Points) and tgt.f is not None:
        truth, known = (column(kept(tgt, values, "tgt"), out, n, "tgt") for values in (tgt.f, tgt.observed))
        truth = np.where(known > 0, truth, np.nan)[rows][order]
        ax.plot(x, truth, "o", color=RED, markersize=3.5, label="truth", zorder=3)
    if ctx is not None:
        x, f = _observed(ctx, name, at, out)
        ax.plot(x, f, "o", color=GREY, markersize=4, markeredgecolor="white", markeredgewidth=0.4, label="context")
    ax.set_xlabel(labelled(name if xlabel is None else xlabel, xunit))
    ax.set_ylabel(labelled(ylabel, unit))
    ax.legend(frameon=False, fontsize="small")
    return ax


def forecast(
    tgt: Points | Index,
    pred: AbstractLikelihood,
    *,
    ctx: Points,
    component: str | None = None,
    at: Mapping[str, Any] | None = None,
    past: Any = None,
    ax: Any = None,
    **options: Any,
) -> Any:
    """`band` along time: the context comes first, a line marks its last time before the targets, dates are short.

    Args:
        tgt: where was predicted, unbatched.
        pred: the prediction there.
        ctx: what it was conditioned on.
        component: the component of time; not needed where only one has width 1.
        at: values that other components must have, such as `{"s": station}`; rows elsewhere are left out. Dates may be
            `datetime64`, `datetime` or text.
        past: how much of the context to show, in the units of time, seconds or a `timedelta64` for dates; three times
            the span of the targets when None.
        ax: where to draw.
        options: the other arguments of `band`.

    Raises:
        ValueError: what does not fit, a context without observed values where `at` says, or with none before the
            targets.
    """
    name = component_of(index_of(tgt, "tgt"), 1, component)
    future = index_of(tgt, "tgt")[name][_rows(index_of(tgt, "tgt"), at), 0]
    before, f = _observed(ctx, name, at, options.get("out", 0))
    if not len(before):
        raise ValueError("`ctx` must have observed values where `at` says, got none.")
    if len(future) and before[0] > future.min():
        raise ValueError("`ctx` must have a value before the first target, or at its time, got none.")
    if future.dtype.kind == "M":  # whole days have no fraction, for a margin beside the last one
        future, before = (time.astype("datetime64[us]") for time in (future, before))
    ax = new_axes()[0] if ax is None else ax
    ax.plot(before, f, "-", color=GREY, linewidth=0.8, alpha=0.6)
    ax = band(tgt, pred, ctx=ctx, component=name, at=at, ax=ax, **options)
    now = before[before <= future.min()].max()
    ax.axvline(now, color="0.6", linewidth=0.9, linestyle="--", zorder=0)
    shown = 3 * (future.max() - now) if past is None else past
    if future.dtype.kind == "M" and not isinstance(shown, np.timedelta64):
        shown = np.timedelta64(round(1e6 * real("past", shown)), "us")
    span = future.max() - (now - shown)
    if span > now - now:  # one time alone has no span
        ax.set_xlim(now - shown, future.max() + span / 50)
        _fit_height(ax, f[before >= now - shown])
    if future.dtype.kind == "M":
        import matplotlib.dates as mdates

        locator = mdates.AutoDateLocator(minticks=3, maxticks=7)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
    return ax


def _rows(index: Mapping[str, np.ndarray], at: Mapping[str, Any] | None) -> np.ndarray:
    """Which rows have the values of `at`."""
    rows = np.ones(len(next(iter(index.values()))), bool)
    for name, value in (at or {}).items():
        if name not in index:
            raise ValueError(f"`at` must name components of {sorted(index)}, got {name!r}.")
        rows &= (index[name] == _wanted(name, value, index[name])).all(-1)
    return rows


def _wanted(name: str, value: Any, component: np.ndarray) -> np.ndarray:
    """The value of `at` for a component: one number or date for each of its columns."""
    try:
        wanted = np.asarray(value, "datetime64" if component.dtype.kind == "M" else None).ravel()
    except (TypeError, ValueError) as error:
        raise ValueError(f"`at` must give {name!r} a date, got {value!r}.") from error
    if len(wanted) != component.shape[-1]:
        raise ValueError(f"`at` must give {name!r} a value of width {component.shape[-1]}, got {value!r}.")
    return wanted


def _observed(ctx: Points, name: str, at: Mapping[str, Any] | None, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of the context that were observed, in order of place."""
    if ctx.f is None:
        raise ValueError("`ctx` must carry observed values `f`, got None.")
    index = index_of(ctx, "ctx")
    f, known = (column(kept(ctx, values, "ctx"), out, len(index[name]), "ctx") for values in (ctx.f, ctx.observed))
    rows = _rows(index, at) & (known > 0)
    x, f = index[name][rows, 0], f[rows]
    order = np.argsort(x, kind="stable")
    return x[order], f[order]


def _fit_height(ax: Any, f: np.ndarray) -> None:
    """Limits that hold the shown part of the context and everything drawn of the targets."""
    of_targets = ("mean", "truth", "samples", "_samples")
    lines = [np.asarray(line.get_ydata(), float) for line in ax.lines if line.get_label() in of_targets]
    ends = [path.vertices[:, 1] for drawn in ax.collections for path in drawn.get_paths()]
    values = np.concatenate([f, *lines, *ends])
    low, high = np.nanmin(values), np.nanmax(values)
    margin = 0.05 * (high - low or 1.0)
    ends = [low - margin, high + margin]
    if any(other is not ax and other.lines for other in ax.get_shared_y_axes().get_siblings(ax)):
        ends += ax.get_ylim()  # what was drawn beside it stays in sight
    ax.set_ylim(min(ends), max(ends))
