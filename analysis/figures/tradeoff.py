"""Steps and examples together: what a batch size buys in steps and costs in examples (McCandlish
et al. 2018, arXiv:1812.06162, figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox, ScaledTranslation

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.figures.drawing import key
from analysis.figures.drawing.colours import faint, grey, ground, ink
from analysis.figures.drawing.facets import (
    MANY,
    Pairs,
    caption,
    examples_of,
    facets,
    names,
    to_target,
)
from analysis.figures.drawing.page import COLUMN, context, mark, stroke, unit
from analysis.figures.drawing.style import Look, grid, inches, log10_axis, look, plain, tiles
from analysis.figures.drawing.text_fit import apart, within
from analysis.fit.regimes import Regimes
from results.errors import ResultsError

_PANEL, _LEAST = 2.5, 2.6
"""Inches of a panel: its height, and what it needs across."""
_SMALL = 2.0, 2.3
"""The same of one of many."""
_LONG = 20
"""Letters from which names may have no room there."""
_FULL = 4
"""Curves whose names have room within the axes."""
_GROUND: dict[str, Any] = {"frameon": True, "framealpha": 1, "edgecolor": "none", "fancybox": False}
"""A legend that hides what is behind it."""


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel for each workload and target: steps to target against examples to target, B times
    as many.

    Along the fitted frontier the batch size grows from the right end of the plateau of examples
    to that of steps: its asymptotes are the least examples E_min (vertical) and the least steps
    S_min (level), dashed where their intervals are known. The large mark is the critical batch
    size: at k = 1 it costs twice the least of both. Grey lines have equal batch sizes.
    """
    curves, regimes = shown.curves, shown.regimes
    panels = facets(curves, regimes)
    if not any(point.steps for curve in curves for point in curve.points):
        raise ResultsError("nothing reached the target", hint="take an easier --target")
    with context():
        need = COLUMN * min(len(panels), 2)
        if ax is not None:
            if len(panels) > 1:
                raise ResultsError(
                    "several workloads or targets do not go on one pair of axes",
                    hint="choose one with --where, or leave ax out",
                )
            axes = [ax]
        else:
            many = len(panels) > MANY
            most = max(len(pairs) for pairs in panels)
            longest = max(len(text) for pairs in panels for text in names(pairs))
            extra = 0.45 + (0.14 * most if most > _FULL or longest > _LONG else 0)
            axes = tiles(
                len(panels), _SMALL[0] if many else _PANEL, extra=extra,
                least=_SMALL[1] if many else _LEAST, need=need, sharex=False,
            )  # fmt: skip
        order = list(dict.fromkeys(text for pairs in panels for text in names(pairs)))
        for one, pairs in zip(axes, panels, strict=True):
            looks = [look(order.index(text)) for text in names(pairs)]
            _panel(one, pairs, looks)
            across, _ = inches(one)
            key.title(one, caption(pairs, within(across, "small")))
        every = [pair for pairs in panels for pair in pairs]
        _legend(axes[0], every, alone=ax is not None)
        if ax is None:
            figure = axes[0].get_figure(root=True)
            assert figure is not None
            figure.draw_without_rendering()  # lays out: what is told must know its room
        for one, pairs in zip(axes, panels, strict=True):
            _told(one, pairs)
    return axes[0]


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a batch size: steps and examples, the frontier there, and where its ends lie."""
    frames = []
    for curve, found in zip(shown.curves, shown.regimes, strict=True):
        sizes = np.array(curve.batch_sizes, dtype=float)
        steps = np.array([point.steps or np.nan for point in curve.points])
        frame = pd.DataFrame(
            {
                "curve": curve.label,
                "target": None if curve.target is None else str(curve.target),
                "batch_size": curve.batch_sizes,
                "examples": steps * sizes,
                "steps": steps,
                "fitted_examples": sizes * found.steps(sizes) if found else np.nan,
                "fitted_steps": found.steps(sizes) if found else np.nan,
            }
        )
        for name in ("min_examples", "min_steps", "critical_batch_size"):
            frame[name] = None if found is None else getattr(found, name).value
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _panel(ax: Axes, pairs: Pairs, looks: Sequence[Look]) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    _limits(ax, pairs)
    grid(ax)
    for (curve, found), one in zip(pairs, looks, strict=True):
        if found is not None:
            _frontier(ax, found, one)
        left_out = set(found.left_out) if found else set()
        for size, steps in _hits(curve):
            hollow = size in left_out
            ax.plot(
                [steps * size], [steps], marker=one.marker,
                color=one.colour, markerfacecolor=ground() if hollow else one.colour,
                markeredgecolor=one.colour if hollow else ground(), markersize=mark(3.6),
                markeredgewidth=stroke(0.8 if hollow else 0.4), zorder=5,
            )  # fmt: skip
    ax.set_xlabel(to_target(examples_of(pairs), pairs))
    ax.set_ylabel(to_target("steps", pairs))
    across, _ = inches(ax)
    texts = apart(names(pairs), within(across - key.HANDLE * unit()))
    handles = [
        Line2D([], [], color=one.colour, linestyle=one.line if found else "none",
               marker=one.marker, markersize=mark(3.6), markeredgecolor=ground(),
               markeredgewidth=stroke(0.4), label=text)
        for (_, found), one, text in zip(pairs, looks, texts, strict=True)
    ]  # fmt: skip
    columns = key.columns(names(pairs), across, _FULL)
    if len(pairs) > 1 and columns:
        key.over(ax, handles, columns)
    elif len(pairs) > 1:
        # Of its own ground: the lines of equal batch sizes pass behind it.
        ax.legend(handles=handles, loc="upper right", **_GROUND)


def _limits(ax: Axes, pairs: Pairs) -> None:
    steps = [point.steps for curve, _ in pairs for point in curve.points if point.steps]
    examples = [
        point.steps * point.batch_size
        for curve, _ in pairs
        for point in curve.points
        if point.steps
    ]
    # Room at the left and below for the asymptotes, which no point reaches.
    least = [min(steps), *(f.min_steps.value for _, f in pairs if f and f.min_steps.value)]
    fewest = [min(examples)] + [
        f.min_examples.value for _, f in pairs if f and f.min_examples.value
    ]
    ax.set_xlim(min(fewest) / 1.5, max(examples) * 1.6)
    ax.set_ylim(min(least) / 1.6, max(steps) * 1.6)
    log10_axis(ax.xaxis, *ax.get_xlim(), most=5)
    log10_axis(ax.yaxis, *ax.get_ylim(), most=6)


def _equal_sizes(ax: Axes, pairs: Pairs) -> list[tuple[float, float, float]]:
    """A faint line every eight-fold batch size; each with the steps at its two ends."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    sizes = [size for curve, _ in pairs for size in curve.batch_sizes]
    first, last = np.log2(min(sizes)), np.log2(max(sizes))
    found = []
    every = 3 if last - first > 6 else 1
    for power in range(int(np.ceil(first)), int(np.floor(last)) + 1, every):
        size = 2.0**power
        start, end = max(left, size * low), min(right, size * high)
        if end > start:
            ax.plot([start, end], [start / size, end / size], color=grey("#dcdcdc"),
                    linewidth=stroke(0.6), zorder=1)  # fmt: skip
            found.append((size, start / size, end / size))
    return found


def _frontier(ax: Axes, found: Regimes, one: Look) -> None:
    sizes = np.geomspace(*found.fitted_over, 256)
    steps = found.steps(sizes)
    ax.plot(sizes * steps, steps, color=one.colour, linestyle=one.line, zorder=4)
    dashes: dict[str, Any] = {
        "color": one.colour,
        "linewidth": stroke(0.7),
        "linestyle": (0, (4, 3)),
        "zorder": 2,
    }
    if found.min_steps.value is not None:
        ax.axhline(found.min_steps.value, **dashes)
    if found.min_examples.value is not None:
        ax.axvline(found.min_examples.value, **dashes)
    critical = found.critical_batch_size.value
    if critical is not None:
        at = float(found.steps([critical])[0])
        ax.plot([critical * at], [at], marker=one.marker, markersize=mark(7.5), color=ground(),
                markeredgecolor=one.colour, markeredgewidth=stroke(1.3), zorder=6)  # fmt: skip


def _told(ax: Axes, pairs: Pairs) -> None:
    """The critical batch size beside its mark, and a few batch sizes beside their points, where
    they have room; in axes of several curves the critical ones alone."""
    taken: list[np.ndarray] = []
    figure = ax.get_figure(root=True)
    assert figure is not None
    for curve, found in pairs:
        taken += [_pixels(ax, size, steps) for size, steps in _hits(curve)]
        if found and (critical := found.critical_batch_size.value) is not None:
            taken.append(_pixels(ax, critical, float(found.steps([critical])[0])))
    for _, found in pairs:
        critical = found.critical_batch_size.value if found else None
        if critical is not None and found is not None:
            steps = float(found.steps([critical])[0])
            _tell(ax, critical, steps, f"{_short(critical)}", taken, bold=True)
    lines = _equal_sizes(ax, pairs)
    if len(pairs) == 1:
        for size, steps in _few(pairs[0][0]):
            _tell(ax, size, steps, plain(size), taken, bold=False)
    else:
        taken += _dashes(ax, pairs)
        for power, first, last in lines:
            text = f"B = {plain(power)}"
            pale: dict[str, Any] = {"bold": False, "colour": faint()}
            for steps in np.geomspace(first, last, 9):
                if _tell(ax, power, steps, text, taken, places=((1, -0.3), (-1, 0.3)), **pale):
                    break


_ROUND = ((1, -1), (-1, 1), (-1, -1), (1, 1), (1.8, -1.5), (-1.8, 1.5), (-1.8, -1.5), (1.8, 1.5))
"""Where the critical batch size may stand about its mark, the best place first."""


def _few(curve: Curve) -> list[tuple[int, float]]:
    """The ends first, then those between, halving the gaps."""
    hits = _hits(curve)
    order = [0, len(hits) - 1]
    step = len(hits)
    while step > 1:
        step = -(-step // 2)
        order += [i for i in range(0, len(hits), step) if i not in order]
        if step == 1:
            break
    return [hits[i] for i in dict.fromkeys(order)]


def _hits(curve: Curve) -> list[tuple[int, float]]:
    """Batch sizes that reached the target, and their steps."""
    return [(point.batch_size, point.steps) for point in curve.points if point.steps]


def _dashes(ax: Axes, pairs: Pairs) -> list[np.ndarray]:
    """Places on the asymptotes, in pixels, that words are not to stand on."""
    box, found = ax.bbox, [one for _, one in pairs if one is not None]
    level = [ax.transData.transform((1, s))[1] for f in found if (s := f.min_steps.value)]
    upright = [ax.transData.transform((e, 1))[0] for f in found if (e := f.min_examples.value)]
    return [np.array([x, y]) for y in level for x in np.linspace(box.x0, box.x1, 80)] + [
        np.array([x, y]) for x in upright for y in np.linspace(box.y0, box.y1, 80)
    ]


def _pixels(ax: Axes, size: float, steps: float) -> np.ndarray:
    return np.asarray(ax.transData.transform((size * steps, steps)))


def _tell(
    ax: Axes,
    size: float,
    steps: float,
    text: str,
    taken: list[np.ndarray],
    *,
    bold: bool,
    colour: str = "",
    places: Sequence[tuple[float, float]] = (),
) -> bool:
    """Beside its point, where no other point or word is; whether there was such a place."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    dpi = figure.dpi
    legends = [each.get_window_extent() for each in ax.findobj(Legend)]
    line = 6.7 * unit() * dpi / 72
    wide = 0.58 * line * len(text) * (1.12 if bold else 1)
    at = _pixels(ax, size, steps)
    gap = (5.5 if bold else 3.5) * unit() * dpi / 72
    usual = _ROUND if bold else ((-1, -1), (1, 1))
    for across, up in places or usual:
        middle = at + np.array(
            [across * gap + np.sign(across) * wide / 2, up * (gap * 0.6 + line / 2)]
        )
        near = [
            place
            for place in taken
            if abs(place[0] - middle[0]) < wide / 2 + 2.5 * dpi / 72 * unit()
            and abs(place[1] - middle[1]) < line / 2 + 2.5 * dpi / 72 * unit()
        ]
        box = ax.bbox
        inside = box.x0 < middle[0] - wide / 2 and middle[0] + wide / 2 < box.x1
        inside = inside and box.y0 < middle[1] - line / 2 and middle[1] + line / 2 < box.y1
        if near or not inside or any(_under(each, middle, wide, line) for each in legends):
            continue
        ax.annotate(
            text, (size * steps, steps), xytext=(middle - at) * 72 / dpi, ha="center", va="center",
            textcoords="offset points", fontsize="small", zorder=7, color=colour or ink(),
            fontweight="bold" if bold else "normal",
            path_effects=[withStroke(linewidth=stroke(1.8), foreground=ground())],
        )  # fmt: skip
        taken += [middle + np.array([part * wide / 2, 0]) for part in (-1, -0.5, 0, 0.5, 1)]
        return True
    return False


def _under(box: Bbox, middle: np.ndarray, wide: float, line: float) -> bool:
    """Whether words of that size, in pixels, would stand in ``box``."""
    across, up = np.abs(middle - [(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
    return bool(across < (wide + box.width) / 2 and up < (line + box.height) / 2)


def _short(number: float) -> str:
    return plain(float(f"{number:.2g}" if number < 100 else f"{number:.3g}"))


def _legend(ax: Axes, pairs: Pairs, *, alone: bool) -> None:
    located = [found for _, found in pairs if found]
    handles: list[Artist] = [
        Line2D([], [], linestyle="none", marker="o", markersize=mark(7), markerfacecolor=ground(),
               markeredgecolor=faint(), markeredgewidth=stroke(1.3), label="critical batch size"),
        Line2D([], [], color=faint(), linewidth=stroke(0.7), linestyle=(0, (4, 3)),
               label=f"least steps, least {examples_of(pairs)}"),
        Line2D([], [], color=grey("#dcdcdc"), linewidth=stroke(0.8), label="equal batch size"),
    ]  # fmt: skip
    if all(one.min_steps.value is None and one.min_examples.value is None for one in located):
        del handles[1]
    if all(one.critical_batch_size.value is None for one in located):
        del handles[0]
    if any(found.left_out for found in located):
        handles.insert(
            0,
            Line2D([], [], linestyle="none", marker="o", markersize=mark(3.6), color=faint(),
                   markerfacecolor=ground(), markeredgewidth=stroke(0.8),
                   label="rise, left out of the fit"),
        )  # fmt: skip
    figure = ax.get_figure(root=True)
    assert figure is not None
    if alone:
        beneath = ScaledTranslation(0, -0.42 * unit(), figure.dpi_scale_trans)
        names = ax.get_legend()
        ax.legend(
            handles=handles[:-1], loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=0,
            bbox_transform=ax.transAxes + beneath,
        )  # fmt: skip
        if names is not None:
            ax.add_artist(names)  # which the second one has put in its place
        return
    wide = figure.get_size_inches()[0] / unit() > 1.5 * COLUMN
    figure.legend(
        handles=handles, loc="outside lower center", ncols=3 if wide else 2, columnspacing=1.2
    )
