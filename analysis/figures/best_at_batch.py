"""Final losses against batch size at one budget, and where the best curve changes"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.facets import styles_of
from analysis.figures.drawing.optimizer_styles import CurveStyle
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import grid, number, size_axis
from analysis.figures.drawing.text_fit import no_snake_case
from analysis.fit.budgets.loss_crossovers import LEVEL, LossCrossover, Place, interpolation
from analysis.fit.budgets.ranking import Ranking, rankings, significant
from analysis.formatting import units

_BEST: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markersize": 8.5,
                         "markeredgewidth": 0.9}  # fmt: skip


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel for each workload, metric and budget; a line a curve, the cubics in log batch size of
    which crossovers are made.

    Points are means of the runs, with their 90 % interval. One that is told to be better than all
    others at its batch size is ringed. A crossover that is told is a diamond, with its interval.
    Where a run failed, a cross on the edge of the panel says so.
    """
    made = data.computed(_made)
    (axes,) = page.panels([len(made)], "budget", 2.3, 2.1)
    styles = styles_of(name for each in made for name in each.curves)
    for ax, ranking in zip(axes, made, strict=True):
        _draw_panel(ax, ranking, styles)
        size_axis(ax, [row[0].batch_size for row in ranking.rows], page.panel)
        budget = f"budget {number(ranking.budget)} {ranking.unit}"
        title = (str(ranking.group["workload"] or ""), budget)
        page.title(ax, " · ".join(filter(None, title)))
    metrics = dict.fromkeys(no_snake_case(each.metric) for each in made)
    unit = units(each.unit.removesuffix("s") for each in made)
    page.name_axes(axes, f"batch size ({unit})", f"final {' and '.join(metrics)}")
    page.legend(axes, _handles(made, styles))
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a batch size and curve, by rank, with the crossovers of its curve."""
    rows = []
    for ranking in data.computed(_made):
        for row in ranking.rows:
            for rank, place in enumerate(row, start=1):
                of_curve = [c for c in ranking.crossovers if place.curve in (c.first, c.second)]
                rows.append(
                    {
                        **ranking.group,
                        "metric": ranking.metric,
                        "unit": ranking.unit,
                        "budget": ranking.budget,
                        "batch_size": place.batch_size,
                        "rank": rank,
                        **place.to_dict(),
                        "significant": significant(row) if rank == 1 else None,
                        "crossovers": "; ".join(c.sentence for c in of_curve if c.at),
                    }
                )
    return pd.DataFrame(rows)


def _made(data: FigureData) -> list[Ranking]:
    return rankings(data.final_losses)


def _curve(ranking: Ranking, name: str) -> list[Place]:
    return [p for row in ranking.rows for p in row if p.curve == name and p.compared]


def _line(places: list[Place], x: Any) -> Any:
    """A curve's loss at log batch sizes ``x``, (n,)."""
    nodes = np.log([float(place.batch_size) for place in places])
    return interpolation(nodes, np.asarray(x), 4) @ np.array([place.mean for place in places])


def _draw_panel(ax: Axes, ranking: Ranking, styles: dict[str, CurveStyle]) -> None:
    grid(ax)
    for name in ranking.curves:
        places, style = _curve(ranking, name), styles[name]
        sizes = [place.batch_size for place in places]
        bars = [(i.value or 0.0, i.low, i.high) for i in (place.interval for place in places)
                if i.low is not None and i.high is not None]  # fmt: skip
        marks.error_bars(ax, sizes, bars, style.colour)
        if len(places) > 1:
            x = np.linspace(np.log(sizes[0]), np.log(sizes[-1]), 200)
            ax.plot(np.exp(x), _line(places, x), color=style.colour, linestyle=style.line, zorder=3)
        marks.dots(ax, sizes, [place.mean for place in places], style)
    for row in ranking.rows:
        if significant(row):
            ax.plot([row[0].batch_size], [row[0].mean or 0.0], linestyle="none", zorder=6,
                    markeredgecolor=styles[row[0].curve].colour, **_BEST)  # fmt: skip
    for crossover in ranking.crossovers:
        _draw_crossover(ax, ranking, crossover)
    failed = [place for row in ranking.rows for place in row if place.failed]
    ax.margins(y=0.12 if failed else 0.07)
    worst = ax.get_ylim()[1 if ranking.lower_is_better else 0]
    ax.set_ylim(ax.get_ylim())
    for place in failed:
        ax.plot([place.batch_size], [worst], marker="x", color=styles[place.curve].colour, zorder=6,
                linestyle="none", clip_on=False)  # fmt: skip
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def _draw_crossover(ax: Axes, ranking: Ranking, crossover: LossCrossover) -> None:
    for interval in crossover.at:
        if interval.value is None:
            continue
        height = float(_line(_curve(ranking, crossover.first), [np.log(interval.value)])[0])
        span = float(crossover.batch_sizes[0]), float(crossover.batch_sizes[-1])
        marks.draw_interval(ax, interval, height, span, colour=ink(), width=1.3, cap=4.5)
        ax.plot([interval.value], [height], linestyle="none", zorder=7, **marks.crossover_mark())


def _handles(made: list[Ranking], styles: dict[str, CurveStyle]) -> list[Artist]:
    rows = [row for ranking in made for row in ranking.rows]
    known = any(place.error is not None for row in rows for place in row)
    handles: list[Artist] = [marks.curve_entry(name, style) for name, style in styles.items()]
    if known:
        handles.append(marks.entry(f"mean, {100 * LEVEL:g} %", marker="|", color=faint(),
                                   markersize=6, markeredgewidth=0.9))  # fmt: skip
    if any(map(significant, rows)):
        handles.append(marks.entry("best, told apart", markeredgecolor=faint(), **_BEST))
    if any(each.at for ranking in made for each in ranking.crossovers):
        label = f"crossover, {100 * LEVEL:g} %"
        handles.append(marks.entry(label, linestyle="-", **marks.crossover_mark()))
    if any(place.failed for row in rows for place in row):
        handles.append(marks.entry("failed runs", marker="x", color=faint()))
    return handles
