"""Training curves of whole studies: the metric of every trial, the best one and its bracket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.curves.runs import CLASSES
from analysis.curves.thinned_evaluations import Evaluations
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ground, ink, seen, tint
from analysis.figures.drawing.page import context, mark, stroke, unit
from analysis.figures.drawing.style import (
    LOOKS,
    grid,
    left_column,
    log10_axis,
    plain,
    tiles,
)
from results.counts import count
from results.errors import ResultsError
from results.storage.dataset import retrying

MOST = 12
"""Panels of one figure."""
_TALL, _LEAST = 1.45, 1.55
"""Inches of a panel: its height, and what it needs across."""

_BLUE, _VERMILION = LOOKS[0].colour, LOOKS[1].colour


def _colours() -> dict[str, Any]:
    return {
        "reached": tint(seen(_BLUE), 0.4),
        "not reached": tint(faint(), 0.55),
        "dominated": tint(faint(), 0.55),
        "infeasible": tint(seen(_VERMILION), 0.6),
    }


_WORDS = {
    "reached": "target reached",
    "not reached": "not reached",
    "dominated": "dominated: not known",
    "infeasible": "infeasible",
}


@dataclass(frozen=True, kw_only=True)
class _Panel:
    curve: Curve
    point: Point
    looks: Mapping[str, np.ndarray]
    """Of each trial its steps and values, (2, n)."""


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a batch size: the metric of every trial that ran against steps.

    The best trial (X(1) of the N) is dark, from its last miss to its first hit the bracket, the
    level line the target. A trial that diverged ends in a cross. Of more batch sizes than a figure
    holds those are shown that divide them evenly, the ends among them.
    """
    found = _panels(shown, one=ax is not None)
    with context():
        many = len({id(panel.curve) for panel in found}) > 1
        need = min(len(found), 4) * 1.7 + 0.4
        axes = [ax] if ax is not None else tiles(
            len(found), _TALL, extra=0.95, least=_LEAST, need=need, sharex=True, sharey=True
        )  # fmt: skip
        texts = labels([panel.curve.group for panel in found]) if many else [""] * len(found)
        for one, panel, text in zip(axes, found, texts, strict=True):
            size = plain(panel.point.batch_size)
            title = f"{text}, B = {size}" if many else f"batch size {size}"
            _draw(one, panel, title)
        _axes(axes, found, alone=ax is not None)
        _legend(axes[0], found, alone=ax is not None)
    return axes[0]


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a look of every trial in the figure."""
    frames = []
    for panel in _panels(shown):
        became = {one.trial: one.became for one in panel.point.trial_outcomes}
        for trial, (step, value) in panel.looks.items():
            frames.append(
                pd.DataFrame(
                    {
                        "curve": panel.curve.label,
                        "batch_size": panel.point.batch_size,
                        "trial": trial,
                        "became": became[trial],
                        "best": trial == panel.point.trial,
                        "step": step.astype(int),
                        str(_metric(panel.curve)): value,
                    }
                )
            )
    return pd.concat(frames, ignore_index=True)


def _panels(shown: FigureData, *, one: bool = False) -> list[_Panel]:
    """The batch sizes that are shown, with their looks, which are read once."""
    curves = [
        curve
        for curve in shown.curves
        if _metric(curve) and any(p.trial_outcomes for p in curve.points)
    ]
    if not curves or not shown.sources:
        raise ResultsError(
            "no training curves to draw", hint="this figure needs trials with their measurements"
        )
    metrics = list(dict.fromkeys(str(_metric(curve)) for curve in curves))
    if len(metrics) > 1:
        raise ResultsError(
            f"curves of several metrics ({', '.join(metrics)}) do not share their axes",
            hint="choose one with --where \"target_metric = '" + metrics[0] + "'\"",
        )
    if len(curves) > MOST:
        raise ResultsError(
            f"{count(len(curves), 'curve', 'are')} too many for one figure, which holds "
            f"{count(MOST, 'batch size')}",
            hint="choose with --where \"optimizer = 'sgd'\"",
        )
    chosen = [(curve, point) for curve in curves for point in _spread(curve, MOST // len(curves))]
    if one and sum(len(curve.points) for curve in curves) > 1:
        raise ResultsError(
            "several batch sizes do not go on one pair of axes in this figure",
            hint='choose one with --where "batch_size = 64", or leave ax out',
        )
    wanted = [
        str(t.trial) for _, point in chosen for t in point.trial_outcomes if t.trial is not None
    ]
    looks = retrying(lambda: _read(shown.evaluations, wanted, metrics[0]))
    found = []
    for curve, point in chosen:
        mine = {
            str(t.trial): looks[str(t.trial)] for t in point.trial_outcomes if str(t.trial) in looks
        }
        found.append(_Panel(curve=curve, point=point, looks=mine))
    if not any(panel.looks for panel in found):
        raise ResultsError(
            "no training curves to draw: there are no measurements beside these trials",
            hint="published points and tables of steps have none",
        )
    return [panel for panel in found if panel.looks]


def _metric(curve: Curve) -> str | None:
    return None if curve.target is None else curve.target.metric


def _spread(curve: Curve, most: int) -> list[Point]:
    """At most ``most`` batch sizes, evenly among them, the ends too."""
    ran = [point for point in curve.points if point.trial_outcomes]
    if len(ran) <= most:
        return ran
    places = (
        np.round(np.linspace(0, len(ran) - 1, most)).astype(int) if most > 1 else [len(ran) // 2]
    )
    return [ran[place] for place in places]


def _read(looks: Evaluations, trials: Sequence[str], metric: str) -> dict[str, np.ndarray]:
    """Steps and values of each trial, by step; values that are no numbers left out."""
    steps: dict[int, list[np.ndarray]] = {}
    for batch in looks.of(trials, metric):
        assert batch.value is not None
        ends = np.append(batch.starts[1:], len(batch.step))
        for trial, start, end in zip(batch.trial, batch.starts, ends, strict=True):
            both = np.array([batch.step[start:end], batch.value[start:end]], dtype=float)
            steps.setdefault(int(trial), []).append(both)
    found = {}
    for place, parts in steps.items():
        whole = np.concatenate(parts, axis=1)
        whole = whole[:, np.isfinite(whole[1])]
        if whole.shape[1]:
            found[trials[place]] = whole[:, np.argsort(whole[0], kind="stable")]
    return {trial: found[trial] for trial in trials if trial in found}


def _draw(ax: Axes, panel: _Panel, title: str) -> None:
    target, point = panel.curve.target, panel.point
    assert target is not None
    grid(ax)
    became = {str(one.trial): one.became for one in point.trial_outcomes}
    for name in reversed(CLASSES):
        lines = [looks.T for trial, looks in panel.looks.items()
                 if became[trial] == name and trial != point.trial]  # fmt: skip
        ax.add_collection(
            LineCollection(lines, colors=[_colours()[name]], linewidths=stroke(0.5), zorder=2),
            autolim=False,
        )
    ax.axhline(target.value, color=ink(), linewidth=stroke(0.8), linestyle=(0, (4, 2)), zorder=3)
    best = panel.looks.get(str(point.trial))
    if best is not None:
        ax.plot(*best, color=ink(), linewidth=stroke(1.2), zorder=5)
        _bracket(ax, point, best)
    elif point.censored:
        ax.text(0.97, 0.94, "target not reached", transform=ax.transAxes, ha="right", va="top",
                fontsize="small")  # fmt: skip
    ax.set_title(title, color=ink(), fontsize="small", pad=3 * unit())


def _between() -> Any:
    return tint(seen(LOOKS[4].colour), 0.35)


def _bracket(ax: Axes, point: Point, best: np.ndarray) -> None:
    """The last miss (hollow) and the first hit, and the stretch between."""
    first = point.minimum
    if first is None:
        return
    low = point.last_miss or 0.0
    ax.axvspan(max(low, 0.5), first, color=_between(), linewidth=0, zorder=1)
    for step, face in ((low, ground()), (first, ink())):
        at = np.flatnonzero(best[0] == step)
        if len(at):
            ax.plot(
                [step], [best[1][at[0]]], marker="o", markersize=mark(3.4), color=ink(),
                markerfacecolor=face, markeredgewidth=stroke(0.8), zorder=6,
            )  # fmt: skip


def _axes(axes: Sequence[Axes], panels: Sequence[_Panel], *, alone: bool) -> None:
    """One range for all panels: what trials that did not diverge measured, after their first
    look; others are cut off above it."""
    sane, target = [], panels[0].curve.target
    assert target is not None
    for panel in panels:
        fine = {str(one.trial) for one in panel.point.trial_outcomes if one.became != "infeasible"}
        sane += [looks[1] for trial, looks in panel.looks.items() if trial in fine]
    values = np.concatenate(sane or [looks[1] for p in panels for looks in p.looks.values()])
    values = np.append(values, [panel.curve.target.value for panel in panels if panel.curve.target])
    low, high = float(values.min()), float(np.quantile(values, 0.995))
    steps = np.concatenate([looks[0] for panel in panels for looks in panel.looks.values()])
    first, last = max(float(steps[steps > 0].min()), 1.0), float(steps.max())
    for one in axes:
        one.set_xscale("log")
        one.set_xlim(first / 1.15, last * 1.15)
        log10_axis(one.xaxis, first / 1.15, last * 1.15, most=4)
        if low > 0 and high / low > 5:
            one.set_yscale("log")
            one.set_ylim(low / 1.2, high * 1.3)
            log10_axis(one.yaxis, low / 1.2, high * 1.3, most=5)
        else:
            one.set_ylim(low - 0.06 * (high - low), high + 0.08 * (high - low))
    for one, panel in zip(axes, panels, strict=True):
        _crosses(one, panel)
    name = target.metric.replace("_", " ")
    if alone:
        axes[0].set_xlabel("steps")
        axes[0].set_ylabel(name)
        return
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    figure.supxlabel("steps")
    figure.supylabel(name)
    for one in axes:
        one.tick_params(labelleft=one in left_column(axes))


def _crosses(ax: Axes, panel: _Panel) -> None:
    """Where trials diverged, at the frame where that is beyond it."""
    low, high = ax.get_ylim()
    for one in panel.point.trial_outcomes:
        looks = panel.looks.get(str(one.trial))
        if one.became == "infeasible" and looks is not None:
            ax.plot(
                [looks[0, -1]], [np.clip(looks[1, -1], low, high)], marker="x",
                color=seen(_VERMILION), markersize=mark(3.4), markeredgewidth=stroke(0.8),
                zorder=4, clip_on=False,
            )  # fmt: skip


def _legend(ax: Axes, panels: Sequence[_Panel], *, alone: bool) -> None:
    there = {one.became for panel in panels for one in panel.point.trial_outcomes}
    handles: list[Artist] = [
        Line2D([], [], color=ink(), linewidth=stroke(1.2), label="best trial"),
        Patch(facecolor=_between(), linewidth=0, label="last miss to first hit"),
        Line2D([], [], color=ink(), linewidth=stroke(0.8), linestyle=(0, (4, 2)), label="target"),
    ]
    if all(panel.point.censored for panel in panels):
        handles = handles[2:]
    for name in CLASSES:
        if name in there:
            cross: dict[str, Any] = {"marker": "x", "markeredgecolor": seen(_VERMILION),
                                     "markersize": mark(3.4)}  # fmt: skip
            handles.append(
                Line2D([], [], color=_colours()[name], linewidth=stroke(0.9), label=_WORDS[name],
                       **(cross if name == "infeasible" else {}))
            )  # fmt: skip
    if alone:
        ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.1), ncols=2, borderpad=0)
        return
    figure = ax.get_figure(root=True)
    assert figure is not None
    wide = figure.get_size_inches()[0] / unit() > 5
    figure.legend(
        handles=handles, loc="outside upper center", columnspacing=1.2,
        ncols=min(len(handles), 4) if wide else 2,
    )  # fmt: skip
