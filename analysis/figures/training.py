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
from analysis.figures.drawing.marks import OUTCOMES, entry
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import (
    BLUE,
    DASHES,
    ORANGE,
    VERMILION,
    grid,
    log10_axis,
    number,
)
from analysis.figures.drawing.text_fit import no_snake_case
from results.counts import count
from results.errors import ResultsError
from results.targets.evaluations import Evaluations
from results.targets.target import Target

MOST = 12
"""Panels of one figure."""


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


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel a batch size: the metric of every trial that ran against steps.

    The best trial (X(1) of the N) is dark, from its last miss to its first hit the bracket, the
    level line the target. A trial that diverged ends in a cross. Where evaluations ended after a
    part of their split the values are its means, in a band of one standard error. Of more batch
    sizes than a figure holds those are shown that divide them evenly, the ends among them.
    """
    chosen = _chosen(data)
    panels = _panels(data, chosen)
    names = labels([panel.curve.group for panel in panels])
    # One pair of axes is for one batch size, also of those that are not shown.
    curves = {id(curve): curve for curve, _ in chosen}.values()
    panel_count = len(panels) if page.ax is None else sum(len(curve.points) for curve in curves)
    (axes,) = page.panels(
        [panel_count], "batch size", 1.55, 1.3, sharex=True, sharey=True, across=4
    )
    several = len({id(panel.curve) for panel in panels}) > 1
    limits = _limits(panels)
    for ax, panel, name in zip(axes, panels, names, strict=True):
        _draw_panel(ax, panel, *limits)
        size = number(panel.point.batch_size)
        page.title(ax, f"{name}, B = {size}" if several else f"batch size {size}", color=ink())
    page.name_axes(axes, "steps", no_snake_case(panels[0].target.metric))
    page.legend(axes, _handles(panels))
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


def _limits(panels: Sequence[_Panel]) -> tuple[tuple[float, float], tuple[float, float]]:
    """One range of steps and of values for all panels: what trials that did not diverge measured;
    the others are cut off above it."""
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
    ends = max(float(steps[steps > 0].min()), 1.0) / 1.15, float(steps.max()) * 1.15
    if low > 0 and high / low > 5:
        return ends, (low / 1.2, high * 1.3)
    return ends, (low - 0.06 * (high - low), high + 0.08 * (high - low))


def _draw_panel(
    ax: Axes, panel: _Panel, steps: tuple[float, float], values: tuple[float, float]
) -> None:
    point, evaluated = panel.point, panel.evaluations
    ax.set(xscale="log", xlim=steps, ylim=values)
    log10_axis(ax.xaxis, *steps, most=4)
    if values[0] > 0 and values[1] / values[0] > 5:
        ax.set_yscale("log")
        log10_axis(ax.yaxis, *values)
    grid(ax)
    for name in reversed(CLASSES):
        lines = [
            evaluated[trial][:2].T
            for trial, outcome in panel.outcomes.items()
            if outcome == name and trial != point.trial
        ]
        many = LineCollection(lines, colors=[_colour(name)], linewidths=0.5, zorder=2)
        ax.add_collection(many, autolim=False)
    for trial, outcome in panel.outcomes.items():
        step, value, error = evaluated[trial]
        if np.isfinite(error).any():  # one standard error of means over a part of a split
            half = np.nan_to_num(error, posinf=0.0)
            colour = tint(ink() if trial == point.trial else _colour(outcome), 0.3)
            ax.fill_between(step, value - half, value + half, color=colour, linewidth=0, zorder=1.5)
        if outcome == "infeasible":  # where it diverged, at the frame where that is beyond it
            ax.plot(step[-1:], np.clip(value[-1:], *values), marker="x", color=visible(VERMILION),
                    markersize=3.4, markeredgewidth=0.8, zorder=4, clip_on=False)  # fmt: skip
    ax.axhline(panel.target.value, color=ink(), linewidth=0.8, linestyle=DASHES, zorder=3)
    best = evaluated.get(str(point.trial))
    if best is not None:
        ax.plot(*best[:2], color=ink(), zorder=5)
        _draw_bracket(ax, point, best)
    elif point.censored:
        ax.text(0.97, 0.94, "target not reached", transform=ax.transAxes, ha="right", va="top",
                fontsize="small")  # fmt: skip


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
            ax.plot([step], [best[1][places[0]]], marker="o", markersize=3.4, color=ink(),
                    markerfacecolor=face, markeredgewidth=0.8, zorder=6)  # fmt: skip


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
