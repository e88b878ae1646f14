"""Training curves of whole studies: the metric of every trial, the best one and its bracket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.curves.curve import Curve, names_of
from analysis.curves.points import Point
from analysis.curves.runs import CLASSES
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ground, ink, tint, visible
from analysis.figures.drawing.marks import OUTCOMES, entry
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import BLUE, DASHES, ORANGE, VERMILION, grid, log10_axis, number
from analysis.figures.drawing.text_fit import no_snake_case
from analysis.formatting import units
from results.counts import count
from results.errors import ResultsError
from results.targets.target import Target

MOST = 12
"""Panels of one figure."""


@dataclass(frozen=True, kw_only=True)
class _Panel:
    curve: Curve
    target: Target
    point: Point
    evaluations: pd.DataFrame
    """A row an evaluation of every trial: its step, value and standard error, which is NaN where a
    whole split was evaluated; the trial, what it became, and whether it is the best."""
    scale: float
    """What is drawn of a step: 1, or the batch size."""


def draw(data: FigureData, *, page: Page, against: str = "steps") -> Axes:
    """A panel a batch size: the metric of every trial that ran against steps or, ``against``
    ``data``, the examples or tokens (``--unit``) that it had seen.

    The best trial (X(1) of the N) is dark, from its last miss to its first hit the bracket, the
    level line the target. A trial that diverged ends in a cross. Where evaluations ended after a
    part of their split the values are its means, in a band of one standard error. Of more batch
    sizes than a figure holds those are shown that divide them evenly, the ends among them.
    """
    panels = _panels(data, against)
    names = names_of([panel.curve for panel in panels])
    # One pair of axes is for one batch size, also of those that are not shown.
    curves = {id(panel.curve): panel.curve for panel in panels}.values()
    panel_count = len(panels) if page.ax is None else sum(len(curve.points) for curve in curves)
    (axes,) = page.panels(
        [panel_count], "batch size", 1.55, 1.3, sharex=True, sharey=True, across=4
    )
    limits = _limits(panels)
    for ax, panel, name in zip(axes, panels, names, strict=True):
        _draw_panel(ax, panel, *limits)
        size = number(panel.point.batch_size)
        page.title(
            ax, f"{name}, B = {size}" if len(curves) > 1 else f"batch size {size}", color=ink()
        )
    across = "steps" if against == "steps" else units(p.curve.example_unit for p in panels)
    page.name_axes(axes, across, no_snake_case(panels[0].target.metric))
    page.legend(axes, _handles(panels))
    return axes[0]


def numbers(data: FigureData, *, against: str = "steps") -> pd.DataFrame:
    """A row an evaluation of every trial in the figure; the standard errors of means over a part of
    a split, if there are any."""
    panels = _panels(data, against)
    rows = pd.concat(
        [
            panel.evaluations.assign(curve=panel.curve.label, batch_size=panel.point.batch_size)
            for panel in panels
        ],
        ignore_index=True,
    )
    columns = ["curve", "batch_size", "trial", "became", "best", "step", "value"]
    columns += ["standard_error"] * bool(rows["standard_error"].notna().any())
    return rows[columns].rename(columns={"value": panels[0].target.metric})


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


def _panels(data: FigureData, against: str) -> list[_Panel]:
    """The batch sizes with their evaluations, which are read once: by step, without values that are
    not finite."""
    chosen = _chosen(data)
    if against not in ("steps", "data"):
        raise ResultsError(f"against cannot be {against!r}", hint="choose steps or data")
    if against == "data" and any('"ramp"' in str(c.group.get("technique")) for c, _ in chosen):
        raise ResultsError("the batch size of these curves grows", hint="against=steps")
    target = chosen[0][0].target
    assert target is not None
    trials = [str(t.trial) for _, point in chosen for t in point.trial_outcomes if t.trial]
    names = [*dict.fromkeys(trials)]
    sql = """SELECT row, step, value, if(partial, standard_error, NULL) AS standard_error
    FROM evaluations WHERE isfinite(value) ORDER BY row, step"""
    read = data.evaluations.select(sql, {"trial": names}, target.metric)
    read = read.astype({"step": int, "value": float, "standard_error": float})
    read["trial"] = [names[row] for row in read.pop("row")]
    panels = []
    for curve, point in chosen:
        became = {str(trial.trial): trial.became for trial in point.trial_outcomes}
        rows = read[read["trial"].isin(became)]
        rows = rows.assign(became=rows["trial"].map(became), best=rows["trial"] == point.trial)
        if len(rows) and curve.target is not None:
            scale = 1.0 if against == "steps" else point.batch_size
            panels.append(_Panel(curve=curve, target=curve.target, point=point, evaluations=rows,
                                 scale=scale))  # fmt: skip
    if not panels:
        raise ResultsError(
            "no training curves to draw: there are no measurements beside these trials",
            hint="published points and tables of steps have none",
        )
    return panels


def _spread(curve: Curve, most: int) -> list[Point]:
    """At most ``most`` batch sizes, evenly among them, the ends too."""
    ran = [point for point in curve.points if point.trial_outcomes]
    if len(ran) <= most:
        return ran
    if most == 1:
        return [ran[len(ran) // 2]]
    return [ran[place] for place in np.round(np.linspace(0, len(ran) - 1, most)).astype(int)]


def _colour(outcome: str) -> Any:
    if outcome == "reached":
        return tint(visible(BLUE), 0.4)
    return tint(visible(VERMILION), 0.6) if outcome == "infeasible" else tint(faint(), 0.55)


def _limits(panels: Sequence[_Panel]) -> tuple[tuple[float, float], tuple[float, float]]:
    """One range of steps and of values for all panels: what trials that did not diverge measured;
    the others are cut off above it."""
    every = pd.concat([panel.evaluations for panel in panels])
    finite = every[every["became"] != "infeasible"]
    values = np.append((finite if len(finite) else every)["value"],
                       [panel.target.value for panel in panels])  # fmt: skip
    low, high = float(values.min()), float(np.quantile(values, 0.995))
    steps = pd.concat([panel.evaluations["step"] * panel.scale for panel in panels])
    ends = max(float(steps[steps > 0].min()), 1.0) / 1.15, float(steps.max()) * 1.15
    if low > 0 and high / low > 5:
        return ends, (low / 1.2, high * 1.3)
    return ends, (low - 0.06 * (high - low), high + 0.08 * (high - low))


def _draw_panel(
    ax: Axes, panel: _Panel, steps: tuple[float, float], values: tuple[float, float]
) -> None:
    point = panel.point
    ax.set(xscale="log", xlim=steps, ylim=values)
    log10_axis(ax.xaxis, *steps, most=4)
    if values[0] > 0 and values[1] / values[0] > 5:
        ax.set_yscale("log")
        log10_axis(ax.yaxis, *values)
    grid(ax)
    for name in reversed(CLASSES):
        trials = panel.evaluations[panel.evaluations["became"] == name]
        for _, each in trials.groupby("trial"):
            step = each["step"] * panel.scale
            value, error = each["value"], each["standard_error"]
            is_best = each["best"].any()
            if np.isfinite(error).any():  # one standard error of means over a part of a split
                half = error.replace(np.inf, 0).fillna(0)
                colour = tint(ink() if is_best else _colour(name), 0.3)
                ax.fill_between(step, value - half, value + half, color=colour, linewidth=0,
                                zorder=1.5)  # fmt: skip
            if not is_best:
                ax.plot(step, value, color=_colour(name), linewidth=0.5, zorder=2)
            if name == "infeasible":  # where it diverged, at the frame where that is beyond it
                ax.plot(step[-1:], np.clip(value[-1:], *values), marker="x", zorder=4,
                        color=visible(VERMILION), markersize=3.4, markeredgewidth=0.8,
                        clip_on=False)  # fmt: skip
    ax.axhline(panel.target.value, color=ink(), linewidth=0.8, linestyle=DASHES, zorder=3)
    best = panel.evaluations[panel.evaluations["best"]].set_index("step")["value"]
    if len(best):
        ax.plot(best.index * panel.scale, best, color=ink(), zorder=5)
        _draw_bracket(ax, panel, best)
    elif point.censored:
        ax.text(0.97, 0.94, "target not reached", transform=ax.transAxes, ha="right", va="top",
                fontsize="small")  # fmt: skip


def _bracket_colour() -> Any:
    return tint(visible(ORANGE), 0.35)


def _draw_bracket(ax: Axes, panel: _Panel, best: pd.Series) -> None:
    """The last miss (hollow) and the first hit, and the steps between."""
    first_hit, scale = panel.point.minimum, panel.scale
    if first_hit is None:
        return
    last_miss = panel.point.last_miss or 0.0
    ax.axvspan(max(last_miss, 0.5) * scale, first_hit * scale, color=_bracket_colour(),
               linewidth=0, zorder=1)  # fmt: skip
    for step, face in ((last_miss, ground()), (first_hit, ink())):
        if step in best.index:
            ax.plot([step * scale], [best[step]], marker="o", markersize=3.4, color=ink(),
                    markerfacecolor=face, markeredgewidth=0.8, zorder=6)  # fmt: skip


def _handles(panels: Sequence[_Panel]) -> list[Artist]:
    outcomes = {trial.became for panel in panels for trial in panel.point.trial_outcomes}
    handles: list[Artist] = [entry("target", color=ink(), linewidth=0.8, linestyle=DASHES)]
    if not all(panel.point.censored for panel in panels):
        bracket = Patch(facecolor=_bracket_colour(), linewidth=0, label="last miss to first hit")
        handles = [entry("best trial", color=ink(), linewidth=1.2), bracket, *handles]
    for name in CLASSES:
        if name in outcomes:
            cross: dict[str, Any] = {"marker": "x", "markeredgecolor": visible(VERMILION),
                                     "markersize": 3.4} if name == "infeasible" else {}  # fmt: skip
            options = {"color": _colour(name), "linestyle": "-", "linewidth": 0.9, **cross}
            handles.append(entry(OUTCOMES[name], **options))
    if any(np.isfinite(panel.evaluations["standard_error"]).any() for panel in panels):
        band = Patch(facecolor=tint(faint(), 0.3), linewidth=0, label="± 1 standard error")
        handles.append(band)
    return handles
