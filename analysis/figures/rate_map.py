"""Steps to target over batch size and learning rate, with the linear and the square-root rule."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ground, ink
from analysis.figures.drawing.facets import Pair
from analysis.figures.drawing.marks import OUTCOMES, entry
from analysis.figures.drawing.page import Page, name_once
from analysis.figures.drawing.style import colour_bar, log_colours, number, size_ticks
from analysis.figures.landscape import rated
from analysis.figures.learning_rate import RULES, growth, growth_text, rule_column, with_rates
from analysis.fit.reference_lines import best_rates, level
from analysis.formatting import units

_MARKERS = {"dominated": ".", "not reached": "_", "infeasible": "x"}


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel a curve; a cell a batch size and octave of the learning rate, with its fewest steps.

    Rates are divided by 1 - momentum where the optimizer has that meaning; dots are the best ones.
    A cell without a trial that reached the target is marked by what its trials became. The rules
    and the power in a title are those of ``learning_rate``.
    """
    frame = numbers(data)
    panels = [*frame.groupby("curve", sort=False)]
    colours = log_colours(frame["steps"].dropna())
    (axes,) = page.panels([len(panels)], "curve", 1.9, 2.2)
    for ax, (label, cells) in zip(axes, panels, strict=True):
        _draw_panel(ax, cells, colours, page.panel)
        power = cells[["power", "power_low", "power_high"]].iloc[0].tolist()
        page.title(ax, f"{label}{growth_text(power)}", color=ink())
        ax.set_xlabel(f"batch size ({units(curve.example_unit for curve in data.curves)})")
    name_once(axes)
    colour_bar(axes, colours, "steps to target")
    handles = [entry("best", marker="o", color=ground(), markeredgecolor=ink())]
    handles += [entry(rule, color=ink(), linestyle=dashes) for rule, _, dashes in RULES]
    became = [name for name in _MARKERS if name in {*frame["became"]}]
    handles += [entry(OUTCOMES[name], marker=_MARKERS[name], color=faint()) for name in became]
    page.legend(axes, handles)
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a cell; the best rate and the rules are of its batch size, the power of its curve."""
    return pd.concat(map(_cells, with_rates(data)), ignore_index=True)


def _cells(pair: Pair) -> pd.DataFrame:
    curve, fit = pair
    trials = rated([curve])
    trials["rate_from"] = 2.0 ** np.floor(np.log2(trials["rate"]))
    order = ["reached", *_MARKERS]  # a cell became the first of these that one of its trials became
    trials["became"] = trials["became"].map(order.index)
    grouped = trials.groupby(["curve", "batch_size", "rate_from"])
    cells = grouped[["became", "divided_by_one_minus_momentum", "steps"]].min()
    cells = cells.assign(trials=grouped.size()).reset_index()
    cells["became"] = cells["became"].map(dict(enumerate(order)))
    cells["best_rate"] = cells["batch_size"].map(dict(zip(*best_rates(curve), strict=True)))
    for rule, power, _ in RULES:
        cells[rule_column(rule)] = level(curve, fit, power) * cells["batch_size"] ** power
    cells[["power", "power_low", "power_high"]] = np.tile(growth(curve, fit), (len(cells), 1))
    return cells


def _draw_panel(ax: Axes, cells: pd.DataFrame, colours: ScalarMappable, inches: float) -> None:
    table = cells.pivot(index="rate_from", columns="batch_size", values="steps")
    first, last = (int(np.log2(end)) for end in (table.index.min(), table.index.max()))
    table = table.reindex(2.0 ** np.arange(first, last + 1))
    seaborn.heatmap(table, ax=ax, cmap=colours.cmap, norm=colours.norm, cbar=False, linewidths=0.4,
                    linecolor=ground(), xticklabels=False, yticklabels=False)  # fmt: skip
    ax.invert_yaxis()
    size_ticks(ax, table.columns.astype(int).tolist(), inches, 0.5)
    decades = np.arange(np.ceil(first * np.log10(2)), (last + 1) * np.log10(2))
    ax.set_yticks(decades / np.log10(2) - first, [number(10.0**power) for power in decades])
    divided = cells["divided_by_one_minus_momentum"].any()
    ax.set_ylabel("effective learning rate" if divided else "learning rate")
    cells = cells.assign(x=0.5 + table.columns.searchsorted(cells["batch_size"]))
    cells["y"] = 0.5 + np.log2(cells["rate_from"]) - first
    for name, marker in _MARKERS.items():
        x, y = cells.loc[cells["became"] == name, ["x", "y"]].to_numpy().T
        ax.scatter(x, y, s=9, marker=marker, color=faint(), linewidths=0.7)
    cells = cells.drop_duplicates("batch_size")
    for rule, _, dashes in RULES:
        rates = np.log2(cells[rule_column(rule)]) - first
        ax.plot(cells["x"], rates, color=ground(), linewidth=2.2, alpha=0.7)
        ax.plot(cells["x"], rates, color=ink(), linestyle=dashes)
    ax.scatter(cells["x"], np.log2(cells["best_rate"]) - first, s=13, color=ground(), zorder=4,
               edgecolors=ink(), linewidths=0.7)  # fmt: skip
