"""The cost of rules: steps to target by a rule over those of free tuning, at each batch size.

A rule that gives the learning rate transfers the best points of its base batch size: its steps are
those of the point that is best there, and its interval holds those of the four best. One that
leaves the learning rate to be tuned has the steps of its own best point, as both have at the base.
Both are divided by the best of the free search, as independent quantities
(``analysis.fit.comparisons.ratio``).

Steps are those of an evaluation, and the target was passed anywhere after the one before: low ends
begin there. Where the four best of a search are reached at one evaluation, the interval would have
no width otherwise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.curve import Curve
from analysis.curves.estimators import MINIMUM
from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.curves.units import RECORDED
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.legends import entry, shared_legend
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import (
    curve_style,
    decimal_axis,
    grid,
    log2_axis,
    name_axes,
    stroke,
    tiles,
)
from analysis.fit.comparisons import ratio
from analysis.fit.regimes import Interval
from analysis.formatting import units
from results.errors import ResultsError

_BEST = 4
"""As many best points of the base tell how uncertain the transferred one is."""
_OPEN = 1.3
"""How many times a point's value its bar is drawn up to where it is open above."""
_UNKNOWN = Interval(value=None, low=None, high=None)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a rule costs at one batch size."""

    free: Curve
    rule: str
    batch_size: int
    steps: Interval
    """Steps to target by the rule; low alone where it does not reach the target."""
    free_steps: Interval
    cost: Interval
    """The first over the second."""


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A panel for each free search; a triangle points up where a rule does not reach the target, or
    its bar is open above."""
    made = [cost for cost in costs(data) if cost.cost.value or cost.cost.low]
    if not made:
        raise ResultsError("no cost of a rule is known", hint="raise the budget, or the trials")
    free = list({id(cost.free): cost.free for cost in made}.values())
    axes = tiles(ax, page, len(free), "curve", 1.9, extra=1.0, sharey=True)
    rules = list(dict.fromkeys(cost.rule for cost in made))
    names = labels([curve.group for curve in free])
    for panel_ax, curve, name in zip(axes, free, names, strict=True):
        _draw_panel(panel_ax, [cost for cost in made if cost.free is curve], rules)
        panel_ax.set_title(name, color=ink(), fontsize="small")
    ends = [end for c in made for end in (*c.cost.ends, _drawn_end(c.cost)) if end]
    low, high = min(0.8, *ends) / 1.15, max(2.2, *ends) * 1.15
    sizes = [cost.batch_size for cost in made]
    for panel_ax in axes:
        panel_ax.set(xscale="log", yscale="log", ylim=(low, high))
        panel_ax.set_xlim(min(sizes) / 1.4, max(sizes) * 1.4)
        log2_axis(panel_ax.xaxis, min(sizes), max(sizes))
        decimal_axis(panel_ax.yaxis, low, high)
    size_name = f"batch size ({units(curve.example_unit for curve in free)})"
    name_axes(axes, size_name, "steps / those of free tuning", given=ax is not None)
    handles = [
        entry(rule, color=style.colour, marker=style.marker, linestyle="-")
        for rule, style in ((rule, curve_style(i)) for i, rule in enumerate(rules))
    ]
    inside = None if ax is None else {"loc": "best"}
    shared_legend(axes, handles, inside, ncols=1, fontsize="small")
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a rule and batch size: steps by the rule and by free tuning, and their ratio."""
    names = ("curve", "rule", "batch_size", "steps", "steps_low", "steps_high", "free_steps",
             "free_low", "free_high", "cost", "cost_low", "cost_high")  # fmt: skip
    rows = [
        (
            cost.free.label,
            cost.rule,
            cost.batch_size,
            *(
                end
                for each in (cost.steps, cost.free_steps, cost.cost)
                for end in (each.value, each.low, each.high)
            ),
        )
        for cost in costs(data)
    ]
    return pd.DataFrame(rows, columns=list(names))


def costs(data: FigureData) -> list[Cost]:
    """The cost of each rule at each batch size that it shares with its free search.

    Raises:
        ResultsError: no curve has a rule, or none of them the same without it.
    """
    return data.computed(_costs)


def _costs(data: FigureData) -> list[Cost]:
    return costs_of(data.trials_of_curves, data.trials)


def costs_of(curves: Sequence[Curve], trials: pd.DataFrame) -> list[Cost]:
    """As ``costs``, of curves and all trials that they are made of."""
    free = {_key(curve): curve for curve in curves if not _rule(curve)}
    ruled = [curve for curve in curves if _rule(curve)]
    if not ruled:
        raise ResultsError(
            "no curve has a rule",
            hint="sweep grid: {rule: [none, {learning_rate: sqrt, from: 64}]}",
        )
    pairs = [(curve, free[_key(curve)]) for curve in ruled if _key(curve) in free]
    if not pairs:
        raise ResultsError(
            "the searches of the rules have no free search beside them",
            hint="grid: {rule: [none, …]}",
        )
    made = []
    for curve, beside in pairs:
        points = {point.batch_size: point for point in beside.points}
        transferred = _transferred(curve, trials)
        for point in curve.points:
            if point.batch_size not in points:
                continue
            tuned = _interval(points[point.batch_size])
            steps = transferred.get(point.batch_size, _interval(point))
            made.append(
                Cost(
                    free=beside,
                    rule=_rule(curve),
                    batch_size=point.batch_size,
                    steps=steps,
                    free_steps=tuned,
                    cost=ratio(steps, tuned),
                )
            )
    return made


def _technique(curve: Curve) -> dict[str, Any]:
    text = curve.group.get("technique")
    technique = json.loads(text) if isinstance(text, str) and text else {}
    rule = curve.group.get("rule")  # with `--by rule`
    return {**technique, **({"rule": rule} if rule else {})}


def _rule(curve: Curve) -> str:
    return str(_technique(curve).get("rule") or "")


def _transfers(curve: Curve) -> bool:
    return _rule(curve).startswith("learning_rate ")


def _key(curve: Curve) -> str:
    """What a curve has in common with that of the free search."""
    rest = {name: value for name, value in _technique(curve).items() if name != "rule"}
    others = {n: v for n, v in curve.group.items() if n not in ("technique", "rule")}
    return json.dumps([rest, others, str(curve.target)], sort_keys=True, default=str)


def _interval(point: Point) -> Interval:
    """The best of a search with its error bar; only a low end where the target was not reached."""
    low, high = point.bar or (None, None)
    if high == math.inf:  # fewer than four hits: nothing is known of either end
        low, high = None, None
    if low is not None and point.steps and point.estimator == MINIMUM:
        low *= point.steps if point.last_miss is None else point.last_miss + 1
        low /= point.steps
    return Interval(value=point.steps, low=low, high=high)


def _transferred(curve: Curve, trials: pd.DataFrame) -> dict[int, Interval]:
    """By batch size other than the base, the steps of the points that are best at the base; none of
    a rule that does not transfer them.

    Of those that were trained at both: where fewer points diverge than at the base, a study has
    its number of feasible ones after fewer rows of the table.
    """
    if not _transfers(curve):
        return {}
    base = int(_rule(curve).rpartition(" ")[2])
    studies = {point.batch_size: point.study for point in curve.points}
    rows = {
        size: trials[(trials["study"] == study) & (trials["role"] == "search")]
        .drop_duplicates("index")
        .set_index("index")
        for size, study in studies.items()
        if study is not None
    }
    recorded = RECORDED if RECORDED in trials else "batch_size"
    of_base = {size for size, of_size in rows.items() if of_size[recorded].eq(base).any()}
    if not of_base:
        return dict.fromkeys(studies, _UNKNOWN)
    steps = rows[min(of_base)]["steps_to_target"].dropna().astype(float).sort_values(kind="stable")
    return {
        size: _UNKNOWN
        if size not in rows
        else _of_rows(rows[size], steps.index[steps.index.isin(rows[size].index)][:_BEST].tolist())
        for size in studies
        if size not in of_base
    }


def _of_rows(rows: pd.DataFrame, best: Sequence[int]) -> Interval:
    """The steps of the first of these rows, between the least and the most of all of them; only a
    low end, the least that any of them can have needed, where the first has not reached the target.
    """
    reached = [_number(rows, row, "steps_to_target") for row in best]
    least = [steps for row in best if (steps := _least_steps(rows, row))]
    if not least:
        return _UNKNOWN
    known = [steps for steps in reached if steps is not None]
    closed = reached[0] is not None and len(known) == _BEST
    return Interval(value=reached[0], low=min(least), high=max(known) if closed else None)


def _least_steps(rows: pd.DataFrame, row: int) -> float | None:
    """The least steps that a row can have needed: one more than its last evaluation before the
    target. One that has not reached it needs more than it ran, one that diverged more than its
    budget."""
    steps, missed = _number(rows, row, "steps_to_target"), _number(rows, row, "last_miss")
    if steps is not None:
        return steps if missed is None else missed + 1
    ran = _number(rows, row, "steps_run")
    if row in rows.index and rows["status"].loc[row] == "INFEASIBLE":
        return _number(rows, row, "budget_steps") or ran
    return ran


def _number(rows: pd.DataFrame, row: int, column: str) -> float | None:
    if row not in rows.index:
        return None
    value = rows[column].loc[row]
    return None if pd.isna(value) else float(value)


def _draw_panel(ax: Axes, made: Sequence[Cost], rules: Sequence[str]) -> None:
    grid(ax)
    ax.axhline(1, color=faint(), linewidth=stroke(0.8), zorder=1)
    for i, rule in enumerate(rules):
        style: Any = curve_style(i)
        of_rule = [cost for cost in made if cost.rule == rule]
        shift = 1.06 ** (i - (len(rules) - 1) / 2)  # so that bars do not cover each other
        dots = [(c.batch_size * shift, c.cost.value) for c in of_rule if c.cost.value is not None]
        ax.plot(
            [x for x, _ in dots], [y for _, y in dots],
            color=style.colour, marker=style.marker, linewidth=stroke(0.9), zorder=3,
        )  # fmt: skip
        for cost in of_rule:
            _draw_bar(ax, cost.batch_size * shift, cost.cost, {"color": style.colour})


def _drawn_end(cost: Interval) -> float | None:
    """Where the triangle of a bar that is open above is drawn; above the point, if there is one."""
    if cost.high is not None:
        return None
    return cost.low if cost.value is None else cost.value * _OPEN


def _draw_bar(ax: Axes, x: float, cost: Interval, options: Mapping[str, Any]) -> None:
    top = cost.high or _drawn_end(cost)
    low = cost.low if cost.low is not None else cost.value
    if low is not None and top is not None:
        ax.plot([x, x], [low, top], linewidth=stroke(0.9), zorder=2, **options)
    if cost.high is None and top is not None:
        ax.plot([x], [top], marker="^", markerfacecolor="none", zorder=3, **options)
