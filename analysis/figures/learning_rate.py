"""The best effective learning rate against batch size, with the linear and square-root rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, grey, ground, ink
from analysis.figures.drawing.page import context, mark, stroke, unit
from analysis.figures.drawing.style import (
    Look,
    grid,
    inches,
    log2_axis,
    look,
    panels,
    tiles,
)
from analysis.figures.drawing.text_fit import within
from analysis.fit.reference_lines import LINEAR, SQUARE_ROOT, best_rates, level
from analysis.fit.regimes import Regimes
from analysis.formatting import units
from results.errors import ResultsError

_INSIDE = 0.5
"""The part of a panel's width that a curve's name may take in it; a longer one is its title."""
RULES = (
    ("linear rule", LINEAR, (0, (4, 2))),
    ("square-root rule", SQUARE_ROOT, (0, (1, 1.3))),
)


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a curve over one axis of batch sizes, log₂ against log₂.

    Points are the learning rate of the best trial, divided by 1 - momentum where the optimizer
    has that meaning; bars reach over the up to four best. Rules are fitted in log learning rate
    over the batch sizes up to the critical one (all, where none is known), each with its level
    alone free: that the smallest batch size was lucky tilts neither.
    """
    both = zip(shown.curves, shown.regimes, strict=True)
    rated = [(curve, found) for curve, found in both if best_rates(curve)[0].size]
    if not rated:
        raise ResultsError(
            "no learning rates to draw", hint="this figure needs trials of a search, not steps"
        )
    with context():
        axes = panels(ax, len(rated), lambda: tiles(len(rated), 1.25, least=2.1))
        texts = labels([curve.group for curve, _ in rated])
        for i, (one, (curve, found)) in enumerate(zip(axes, rated, strict=True)):
            _panel(one, curve, found, look(i), texts[i])
        sizes = [size for curve, _ in rated for size in curve.batch_sizes]
        axes[0].set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
        log2_axis(axes[0].xaxis, min(sizes), max(sizes))
        across = f"batch size ({units(curve.example_unit for curve, _ in rated)})"
        if ax is None:
            figure = axes[0].get_figure(root=True)
            assert figure is not None
            figure.supxlabel(across)
            figure.supylabel(measure(rated[0][0]))
        else:
            ax.set_xlabel(across)
            ax.set_ylabel(measure(rated[0][0]))
        _legend(axes[0], [curve for curve, _ in rated], alone=ax is not None)
    return axes[0]


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a batch size: the best learning rates, and what the two rules say."""
    frames = []
    for curve, found in zip(shown.curves, shown.regimes, strict=True):
        points = [point for point in curve.points if point.rates]
        frame = pd.DataFrame(
            {
                "curve": curve.label,
                "batch_size": [point.batch_size for point in points],
                "effective_learning_rate": [point.rates[0] for point in points],
                "low": [min(point.rates) for point in points],
                "high": [max(point.rates) for point in points],
                "divided_by_one_minus_momentum": [
                    point.effective_learning_rate is not None for point in points
                ],
                "steps": [point.steps for point in points],
                "trials": [point.trials for point in points],
                "edges": ["; ".join(edge.text for edge in point.edges) for point in points],
            }
        )
        for name, power, _ in RULES:
            column = name.replace("-", "_").replace(" ", "_")
            frame[column] = level(curve, found, power) * frame["batch_size"].astype(float) ** power
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _panel(ax: Axes, curve: Curve, found: Regimes | None, one: Look, text: str) -> None:
    sizes, _ = best_rates(curve)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    grid(ax)
    ends = np.array([sizes.min(), sizes.max()])
    for _, power, dashes in RULES:
        ax.plot(ends, level(curve, found, power) * ends**power, color=ink(), linewidth=stroke(0.9),
                linestyle=dashes, zorder=2)  # fmt: skip
    if found is not None and found.critical_batch_size.value is not None:
        critical = found.critical_batch_size
        ax.axvline(critical.value, color=faint(), linewidth=stroke(0.8), zorder=1)  # type: ignore[arg-type]
        if critical.low is not None and critical.high is not None:
            ax.axvspan(critical.low, critical.high, color=grey("#ececec"), linewidth=0, zorder=0)
    for point in curve.points:
        if point.rates:
            _point(ax, point, one)
    near = [rate for point in curve.points for rate in point.rates]
    low, high = min(near) / 2, max(near) * 2
    ax.set_ylim(low, high)
    log2_axis(ax.yaxis, low, high, most=5)
    divided = any(point.effective_learning_rate is not None for point in curve.points)
    name = text if divided else f"{text} (plain rate)"
    across, _ = inches(ax)
    if not within(_INSIDE * across)(name):
        ax.set_title(name, color=one.colour, fontweight="bold", pad=3 * unit())
        return
    ax.text(
        0.98, 0.06, name, transform=ax.transAxes, ha="right", va="bottom", color=one.colour,
        fontsize="medium", fontweight="bold",
        path_effects=[withStroke(linewidth=stroke(2), foreground=ground())],
    )  # fmt: skip


def _point(ax: Axes, point: Point, one: Look) -> None:
    at = point.batch_size
    ax.plot([at, at], [min(point.rates), max(point.rates)], color=one.colour, linewidth=stroke(0.8),
            zorder=3)  # fmt: skip
    ax.plot([at], [point.rates[0]], marker=one.marker, color=one.colour, markeredgecolor=ground(),
            markeredgewidth=stroke(0.5), zorder=4)  # fmt: skip
    marks.ring(ax, at, point.rates[0], [e for e in point.edges if e.dimension == "learning_rate"])


def measure(curve: Curve) -> str:
    """What the vertical axis shows."""
    divided = any(point.effective_learning_rate is not None for point in curve.points)
    return "best effective learning rate" if divided else "best learning rate"


def _legend(ax: Axes, curves: Sequence[Curve], *, alone: bool) -> None:
    handles: list[Artist] = [
        Line2D([], [], color=ink(), linewidth=stroke(0.9), linestyle=dashes, label=name)
        for name, _, dashes in RULES
    ]
    handles.append(
        Line2D([], [], color=faint(), linewidth=stroke(0.8), label="critical batch size")
    )
    if any(len(p.rates) > 1 for c in curves for p in c.points):
        handles.append(
            Line2D([], [], marker="|", linestyle="none", color=faint(), markersize=mark(6),
                   markeredgewidth=stroke(0.8), label="up to 4 best trials")
        )  # fmt: skip
    edges = [e for c in curves for p in c.points for e in p.edges]
    handles += marks.rings([e for e in edges if e.dimension == "learning_rate"])
    if alone:
        ax.legend(handles=handles, loc="upper left")
        return
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.legend(
        handles=handles, loc="outside upper center", ncols=3 if len(handles) == 3 else 2,
        fontsize="small", columnspacing=1.2, handlelength=2,
    )  # fmt: skip
