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
from matplotlib.patches import Patch

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.curves.runs import CLASSES
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ground, ink, tint, visible
from analysis.figures.drawing.legends import OUTCOMES, entry, shared_legend
from analysis.figures.drawing.page import Page, mark, stroke, unit
from analysis.figures.drawing.style import (
    BLUE,
    DASHES,
    ORANGE,
    VERMILION,
    figure_width,
    given_axes,
    grid,
    left_column,
    log10_axis,
    name_axes,
    plain,
    tiles,
)
from results.counts import count
from results.errors import ResultsError
from results.targets.evaluations import Evaluations
from results.targets.target import Target

MOST = 12
"""Panels of one figure."""
_PANEL, _LEAST = 1.45, 1.55
"""Inches of a panel: its height, and the width that it needs."""


@dataclass(frozen=True, kw_only=True)
class _Panel:
    curve: Curve
    target: Target
    point: Point
    evaluations: Mapping[str, np.ndarray]
    """Steps, values and standard errors of each trial, (3, n); an error is NaN where a whole split
    was evaluated."""

    @property
    def outcomes(self) -> dict[str, str]:
        """The outcome of each trial that has measurements."""
        outcomes = {str(trial.trial): trial.became for trial in self.point.trial_outcomes}
        return {trial: outcomes[trial] for trial in self.evaluations}


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A panel a batch size: the metric of every trial that ran against steps.

    The best trial (X(1) of the N) is dark, from its last miss to its first hit the bracket, the
    level line the target. A trial that diverged ends in a cross. Where evaluations ended after a
    part of their split the values are its means, in a band of one standard error. Of more batch
    sizes than a figure holds those are shown that divide them evenly, the ends among them.
    """
    chosen = _chosen(data)
    curves = list({id(curve): curve for curve, _ in chosen}.values())
    if ax is not None:
        given_axes(ax, sum(len(curve.points) for curve in curves), "batch size")
    panels = _panels(data, chosen)
    names = labels([panel.curve.group for panel in panels])
    need = min(len(panels), 4) * 1.7 + 0.4
    axes = tiles(
        ax, page, len(panels), "batch size", _PANEL, extra=0.95, least=_LEAST, need=need,
        sharey=True,
    )  # fmt: skip
    several = len({id(panel.curve) for panel in panels}) > 1
    for panel_ax, panel, name in zip(axes, panels, names, strict=True):
        _draw_panel(panel_ax, panel)
        size = plain(panel.point.batch_size)
        title = f"{name}, B = {size}" if several else f"batch size {size}"
        panel_ax.set_title(title, color=ink(), fontsize="small", pad=3 * unit())
    _set_limits(axes, panels)
    for panel_ax, panel in zip(axes, panels, strict=True):
        _draw_divergences(panel_ax, panel)
    metric = panels[0].target.metric.replace("_", " ")
    name_axes(axes, "steps", metric, given=ax is not None)
    if ax is None:
        for panel_ax in axes:
            panel_ax.tick_params(labelleft=panel_ax in left_column(axes))
    handles = _handles(panels)
    inside = {"loc": "lower left", "bbox_to_anchor": (0, 1.1), "ncols": 2, "borderpad": 0}
    columns = min(len(handles), 4) if figure_width(axes[0]) > 5 else 2
    shared_legend(axes, handles, None if ax is None else inside, ncols=columns)
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row an evaluation of every trial in the figure; the standard errors of means over a part of
    a split, if there are any."""
    rows = pd.concat(
        [
            pd.DataFrame(
                {
                    "curve": panel.curve.label,
                    "batch_size": panel.point.batch_size,
                    "trial": trial,
                    "became": panel.outcomes[trial],
                    "best": trial == panel.point.trial,
                    "step": step.astype(int),
                    panel.target.metric: value,
                    "standard_error": error,
                }
            )
            for panel in _panels(data, _chosen(data))
            for trial, (step, value, error) in panel.evaluations.items()
        ],
        ignore_index=True,
    )
    return rows if rows["standard_error"].notna().any() else rows.drop(columns="standard_error")


def _chosen(data: FigureData) -> list[tuple[Curve, Point]]:
    """The batch sizes that are shown."""
    curves = [
        curve
        for curve in data.curves
        if curve.target and any(point.trial_outcomes for point in curve.points)
    ]
    if not curves or not data.sources:
        raise ResultsError(
            "no training curves to draw", hint="this figure needs trials with their measurements"
        )
    metrics = list(dict.fromkeys(curve.target.metric for curve in curves if curve.target))
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
    return [(curve, point) for curve in curves for point in _spread(curve, MOST // len(curves))]


def _panels(data: FigureData, chosen: Sequence[tuple[Curve, Point]]) -> list[_Panel]:
    """The batch sizes with their evaluations, which are read once."""
    trials = [
        str(trial.trial)
        for _, point in chosen
        for trial in point.trial_outcomes
        if trial.trial is not None
    ]
    target = chosen[0][0].target
    assert target is not None
    read = _read(data.evaluations, trials, target.metric)
    panels = [
        _Panel(
            curve=curve,
            target=curve.target,
            point=point,
            evaluations={
                str(trial.trial): read[str(trial.trial)]
                for trial in point.trial_outcomes
                if str(trial.trial) in read
            },
        )
        for curve, point in chosen
        if curve.target is not None
    ]
    measured = [panel for panel in panels if panel.evaluations]
    if not measured:
        raise ResultsError(
            "no training curves to draw: there are no measurements beside these trials",
            hint="published points and tables of steps have none",
        )
    return measured


def _spread(curve: Curve, most: int) -> list[Point]:
    """At most ``most`` batch sizes, evenly among them, the ends too."""
    ran = [point for point in curve.points if point.trial_outcomes]
    if len(ran) <= most:
        return ran
    if most == 1:
        return [ran[len(ran) // 2]]
    return [ran[place] for place in np.round(np.linspace(0, len(ran) - 1, most)).astype(int)]


def _read(evaluations: Evaluations, trials: Sequence[str], metric: str) -> dict[str, np.ndarray]:
    """Steps, values and standard errors of each trial, by step, without values that are not
    finite."""
    names = [*dict.fromkeys(trials)]
    sql = """SELECT row, step, value, if(partial, standard_error, NULL) AS error
    FROM evaluations WHERE isfinite(value) ORDER BY row, step"""
    rows = evaluations.select(sql, {"trial": names}, metric)
    parts = rows.astype({"error": float}).groupby("row")
    return {names[part["row"].iloc[0]]: part.to_numpy(float)[:, 1:].T for _, part in parts}


def _colour(outcome: str) -> Any:
    if outcome == "reached":
        return tint(visible(BLUE), 0.4)
    return tint(visible(VERMILION), 0.6) if outcome == "infeasible" else tint(faint(), 0.55)


def _draw_panel(ax: Axes, panel: _Panel) -> None:
    point = panel.point
    grid(ax)
    for name in reversed(CLASSES):
        lines = [
            panel.evaluations[trial][:2].T
            for trial, outcome in panel.outcomes.items()
            if outcome == name and trial != point.trial
        ]
        ax.add_collection(
            LineCollection(lines, colors=[_colour(name)], linewidths=stroke(0.5), zorder=2),
            autolim=False,
        )
    for trial, outcome in panel.outcomes.items():
        best_trial = trial == point.trial
        _draw_band(ax, panel.evaluations[trial], ink() if best_trial else _colour(outcome))
    ax.axhline(panel.target.value, color=ink(), linewidth=stroke(0.8), linestyle=DASHES, zorder=3)
    best = panel.evaluations.get(str(point.trial))
    if best is not None:
        ax.plot(*best[:2], color=ink(), linewidth=stroke(1.2), zorder=5)
        _draw_bracket(ax, point, best)
    elif point.censored:
        ax.text(0.97, 0.94, "target not reached", transform=ax.transAxes, ha="right", va="top",
                fontsize="small")  # fmt: skip


def _draw_band(ax: Axes, evaluated: np.ndarray, colour: Any) -> None:
    """One standard error on each side of means over a part of a split; none at whole ones."""
    step, value, error = evaluated
    if np.isfinite(error).any():
        half = np.nan_to_num(error, posinf=0.0)
        ax.fill_between(step, value - half, value + half, color=tint(colour, 0.3), linewidth=0,
                        zorder=1.5)  # fmt: skip


def _bracket_colour() -> Any:
    return tint(visible(ORANGE), 0.35)


def _draw_bracket(ax: Axes, point: Point, best: np.ndarray) -> None:
    """The last miss (hollow) and the first hit, and the steps between."""
    first_hit = point.minimum
    if first_hit is None:
        return
    last_miss = point.last_miss or 0.0
    ax.axvspan(max(last_miss, 0.5), first_hit, color=_bracket_colour(), linewidth=0, zorder=1)
    for step, face in ((last_miss, ground()), (first_hit, ink())):
        places = np.flatnonzero(best[0] == step)
        if len(places):
            ax.plot([step], [best[1][places[0]]], marker="o", markersize=mark(3.4), color=ink(),
                    markerfacecolor=face, markeredgewidth=stroke(0.8), zorder=6)  # fmt: skip


def _set_limits(axes: Sequence[Axes], panels: Sequence[_Panel]) -> None:
    """One range for all panels: what trials that did not diverge measured; the others are cut off
    above it."""
    finite = [
        panel.evaluations[trial][1]
        for panel in panels
        for trial, outcome in panel.outcomes.items()
        if outcome != "infeasible"
    ]
    every = [evaluated for panel in panels for evaluated in panel.evaluations.values()]
    values = np.concatenate(finite or [evaluated[1] for evaluated in every])
    values = np.append(values, [panel.target.value for panel in panels])
    low, high = float(values.min()), float(np.quantile(values, 0.995))
    steps = np.concatenate([evaluated[0] for evaluated in every])
    first, last = max(float(steps[steps > 0].min()), 1.0), float(steps.max())
    for ax in axes:
        ax.set_xscale("log")
        ax.set_xlim(first / 1.15, last * 1.15)
        log10_axis(ax.xaxis, first / 1.15, last * 1.15, most=4)
        if low > 0 and high / low > 5:
            ax.set_yscale("log")
            ax.set_ylim(low / 1.2, high * 1.3)
            log10_axis(ax.yaxis, low / 1.2, high * 1.3, most=5)
        else:
            ax.set_ylim(low - 0.06 * (high - low), high + 0.08 * (high - low))


def _draw_divergences(ax: Axes, panel: _Panel) -> None:
    """Where trials diverged, at the frame where that is beyond it."""
    low, high = ax.get_ylim()
    for trial, outcome in panel.outcomes.items():
        if outcome == "infeasible":
            step, value = panel.evaluations[trial][:2, -1]
            ax.plot([step], [np.clip(value, low, high)], marker="x", color=visible(VERMILION),
                    markersize=mark(3.4), markeredgewidth=stroke(0.8), zorder=4,
                    clip_on=False)  # fmt: skip


def _handles(panels: Sequence[_Panel]) -> list[Artist]:
    outcomes = {trial.became for panel in panels for trial in panel.point.trial_outcomes}
    handles: list[Artist] = [
        entry("target", color=ink(), linewidth=0.8, linestyle=DASHES),
    ]
    if not all(panel.point.censored for panel in panels):
        bracket = Patch(facecolor=_bracket_colour(), linewidth=0, label="last miss to first hit")
        handles = [entry("best trial", color=ink(), linewidth=1.2), bracket, *handles]
    for name in CLASSES:
        if name in outcomes:
            cross: dict[str, Any] = {"marker": "x", "markeredgecolor": visible(VERMILION),
                                     "markersize": 3.4} if name == "infeasible" else {}  # fmt: skip
            options = {"color": _colour(name), "linestyle": "-", "linewidth": 0.9, **cross}
            handles.append(entry(OUTCOMES[name], **options))
    every = [evaluated for panel in panels for evaluated in panel.evaluations.values()]
    if any(np.isfinite(evaluated[2]).any() for evaluated in every):
        band = Patch(facecolor=tint(faint(), 0.3), linewidth=0, label="± 1 standard error")
        handles.append(band)
    return handles
