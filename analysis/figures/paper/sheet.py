"""Panels on a sheet: rows and columns that fit, lines with triangles, what they are beneath."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETUPBASE
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, ground, ink, tint
from analysis.figures.drawing.page import COLUMN, context, stroke, tall, unit, width
from analysis.figures.drawing.page import mark as size
from analysis.figures.drawing.style import (
    Look,
    grid,
    log2_axis,
    look,
    plain,
)
from analysis.figures.paper.heads import heads, room, title
from analysis.figures.paper.layout import across, need, panel_width, places
from analysis.figures.paper.legends import (
    DASHES,
    TIGHT,
    handles_of,
    mark,
    of_lines,
    settle,
    shared_labels,
)
from analysis.figures.paper.panel import Line, Panel
from results.counts import count
from results.errors import ResultsError

_MARKERS = "^v><DsoP"
_PANEL = 1.62
"""Inches of a panel's height, its title and numbers without."""
_LEGEND = 6.5
_LETTER = 0.044
"""Inches of a letter of the foot, about."""
_NAME = 0.064
"""Inches of a letter of an axis' name, about."""


def look_of(i: int) -> Look:
    """The ``i``-th line's: triangles first, joined by whole lines."""
    return Look(look(i).colour, _MARKERS[i % len(_MARKERS)], "-")


def draw(panels: Sequence[Panel], ax: Axes | None = None, foot: str = "") -> Axes:
    """The panels on a new figure, or the only one on ``ax``; ``foot`` stands beneath.

    Raises:
        ResultsError: several panels, and one pair of axes to draw them on.
    """
    with context():
        if ax is not None and len(panels) > 1:
            raise ResultsError(
                f"{count(len(panels), 'panel', 'do')} not go on one pair of axes",
                hint="choose one with --where, or leave ax out",
            )
        shared = shared_labels(panels)
        looks = [_looks(panel, shared) for panel in panels]
        n = 1 if ax is not None else across(panels)
        said = heads(panels, panel_width(n))
        named = [_batch_size(panels if ax is None else [panel], n) for panel in panels]
        two_lines = any("\n" in name for name in named)
        axes = [ax] if ax is not None else _sheet(panels, n, room(said), 0.12 if two_lines else 0)
        for one, panel, mine, name in zip(axes, panels, looks, named, strict=True):
            _panel(one, panel, mine, _peers(panel, panels), n)
            one.set_xlabel(name)
        rows = max(len(note) for _, note in said)
        notes = [title(one, head, rows) for one, head in zip(axes, said, strict=True)]
        if ax is None:
            _beneath(axes, panels, looks, shared, foot)
        own = [
            _own(panel, mine, shared, len(panels))
            for panel, mine in zip(panels, looks, strict=True)
        ]
        lifts = settle(axes, own, given=ax is not None)
        for one, head, note, lift in zip(axes, said, notes, lifts, strict=True):
            if lift:
                if note is not None:
                    note.remove()
                title(one, head, rows, lift)
        return axes[0]


def _own(
    panel: Panel, looks: Sequence[Look], shared: Sequence[str] | None, count: int
) -> list[Artist]:
    """What a panel's own legend tells: all where it is alone, else what the shared one does not."""
    if count == 1:
        return handles_of([(panel, looks)], ("",) if len(panel.lines) > 1 else None)
    return of_lines([(panel, looks)]) if shared is None and len(panel.lines) > 1 else []


def _sheet(panels: Sequence[Panel], n: int, above: float, beneath: float) -> list[Axes]:
    at = places(panels, n)
    down = 1 + max(row for row, _ in at)
    height = _PANEL * (1.2 if n < 3 else 1.0)
    figure = plt.figure(
        figsize=(width(need(n)), tall(((height + above) * down + 0.3 + beneath) * unit())),
        layout="constrained",
    )
    spec = figure.add_gridspec(down, n)
    axes = [figure.add_subplot(spec[place]) for place in at]
    figure.set_layout_engine("constrained", hspace=0.04, wspace=0.03)
    return axes


def _peers(panel: Panel, panels: Sequence[Panel]) -> list[Line]:
    """The lines that share the vertical axis: a metric is read across a row."""
    same = [one for one in panels if one.wide == panel.wide and one.measure == panel.measure]
    return [line for one in ([panel] if panel.counted else same) for line in one.lines]


def _panel(ax: Axes, panel: Panel, looks: Sequence[Look], peers: Sequence[Line], n: int) -> None:
    sizes = [dot.batch_size for line in panel.lines for dot in line.dots]
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(sizes) / 1.6, max(sizes) * 1.6)
    # What the longest number leaves room for.
    most = panel_width(n) / (0.075 * len(plain(max(sizes))) + 0.08)
    log2_axis(ax.xaxis, min(sizes), max(sizes), most=max(2, min(7, int(most))))
    top = _limits(ax, panel, peers)
    grid(ax)
    low, _ = ax.get_ylim()
    ends = np.array([min(sizes), max(sizes)], dtype=float)
    for rule in panel.rules:
        ax.plot(
            ends,
            rule.level * ends**rule.power,
            color=ink(),
            linewidth=stroke(0.8),
            zorder=2,
            linestyle=rule.dashes,
        )
    for place, (line, one) in enumerate(zip(panel.lines, looks, strict=True)):
        _line(ax, line, one)
        if line.perfect is not None and line.source is None and not (panel.one_perfect and place):
            single = panel.one_perfect or len([x for x in panel.lines if not x.source]) == 1
            _perfect(ax, line, one, low, single=single)
        if top is not None:
            _unreached(ax, line, one, top, place)
    ax.set_ylabel(panel.measure)


def _limits(ax: Axes, panel: Panel, peers: Sequence[Line]) -> float | None:
    """Sets the vertical limits; where marks of targets not reached stand, if there are any."""
    values = [x for line in peers for x in line.values().values()]
    bars = [x for line in peers for dot in line.dots if dot.bar for x in dot.bar]
    known = [x for x in [*values, *bars] if np.isfinite(x) and (x > 0 or not panel.counted)] or [
        1.0
    ]
    low, high = min(known), max(known)
    lost = any(not dot.reached for line in panel.lines for dot in line.dots)
    if panel.counted:
        ax.set_yscale("log", base=2)
        top = high * 2.0
        ax.set_ylim(low / 1.6, high * (3.6 if lost else 1.6))
        log2_axis(ax.yaxis, low / 1.6, high * 1.3, most=6)
        return top if lost else None
    if low > 0 and high / low > 4:
        ax.set_yscale("log")
        ax.set_ylim(low / 1.25, high * 1.25)
        _decimal(ax, low / 1.25, high * 1.25)
    else:
        room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
        ax.set_ylim(low - room, high + room)
        ax.yaxis.set_major_locator(MaxNLocator(5))
    return None


def _decimal(ax: Axes, low: float, high: float) -> None:
    """1, 2, 5 of each decade as plain numbers; 1 alone where there are many."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    heads = (1, 2, 5) if high / low < 300 else (1,)
    ticks = [head * 10.0**power for power in decades for head in heads]
    ax.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _line(ax: Axes, line: Line, one: Look) -> None:
    """Dots and their bars, joined between neighbours that both have a value."""
    for run in _runs(line):
        ax.plot(
            [size for size, _ in run],
            [value for _, value in run],
            color=one.colour,
            linewidth=stroke(0.9),
            zorder=3 if line.source else 4,
        )
    for dot in line.dots:
        if dot.value is None:
            continue
        if dot.bar is not None:
            open_above = not np.isfinite(dot.bar[1])
            end = dot.value * 1.25 if open_above else dot.bar[1]
            pale = tint(one.colour, 0.55)
            ax.plot(
                [dot.batch_size] * 2, [dot.bar[0], end], color=pale, linewidth=stroke(0.9), zorder=2
            )
            if open_above:
                ax.plot(
                    [dot.batch_size],
                    [end],
                    marker=CARETUPBASE,
                    markersize=size(3),
                    color=pale,
                    zorder=2,
                )
        ax.plot([dot.batch_size], [dot.value], zorder=4 if line.source else 5, **mark(line, one))
        marks.ring(ax, dot.batch_size, dot.value, dot.edges)


def _runs(line: Line) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for dot in line.dots:
        if dot.value is None:
            runs.append([])
        else:
            runs[-1].append((dot.batch_size, dot.value))
    return [run for run in runs if len(run) > 1]


def _perfect(ax: Axes, line: Line, one: Look, low: float, *, single: bool) -> None:
    """Down to the foot of the panel; of several, somewhat under the line that it belongs to."""
    assert line.perfect is not None
    sizes = [dot.batch_size for dot in line.dots]
    least = low if single else max(low, 0.55 * min(line.values().values(), default=low))
    end = min(max(sizes) * 1.6, line.perfect / least)
    ax.plot(
        [min(sizes), end],
        [line.perfect / min(sizes), line.perfect / end],
        linestyle=DASHES,
        color=ink() if single else tint(one.colour, 0.6),
        linewidth=stroke(0.8 if single else 0.7),
        zorder=2,
    )


def _unreached(ax: Axes, line: Line, one: Look, top: float, place: int) -> None:
    """An open mark with an arrow up where the target was not reached; lines beside each other."""
    aside = 2.0 ** (0.25 * place)
    for dot in line.dots:
        if not dot.reached:
            at = dot.batch_size * aside
            hollow = {**mark(line, one), "markerfacecolor": ground(), "markeredgecolor": one.colour}
            ax.plot(
                [at],
                [top],
                linestyle="none",
                zorder=5,
                **{**hollow, "markeredgewidth": stroke(0.8)},
            )
            ax.annotate(
                "",
                (at, top),
                xytext=(0, 8),
                textcoords="offset points",
                zorder=4,
                arrowprops={
                    "arrowstyle": "<-",
                    "color": one.colour,
                    "linewidth": stroke(0.7),
                    "shrinkA": 0,
                    "shrinkB": 2,
                    "mutation_scale": 5,
                },
            )


def _looks(panel: Panel, shared: Sequence[str] | None) -> list[Look]:
    mine = [line.label for line in panel.lines if line.source is None]
    order = list(shared) if shared else mine
    # In a panel of its own line, what the others show is not told by colour.
    place = {label: i for i, label in enumerate(order)} if shared != [] else dict.fromkeys(mine, 0)
    found = []
    for i, line in enumerate(panel.lines):
        if line.source is None:
            found.append(look_of(place[line.label]))
        else:
            beside = place.get(line.alike or "", i)
            found.append(Look(faint(), _MARKERS[beside % len(_MARKERS)], "-"))
    return found


def _beneath(
    axes: Sequence[Axes],
    panels: Sequence[Panel],
    looks: Sequence[Sequence[Look]],
    shared: Sequence[str] | None,
    foot: str,
) -> None:
    """The legend of all panels, and the foot; names of axes once a row and a column."""
    figure = axes[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    wide = figure.get_size_inches()[0] > 1.2 * COLUMN * unit()
    handles = handles_of(list(zip(panels, looks, strict=True)), shared)
    if handles and len(panels) > 1:
        rows = -(-len(handles) // (5 if wide else 2))
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=-(-len(handles) // rows),
            fontsize=_LEGEND * unit(),
            columnspacing=1.4,
            **TIGHT,
        )
        across_, height = figure.get_size_inches()
        figure.set_size_inches(across_, height + 0.16 * rows * unit())
    if foot:
        across = figure.get_size_inches()[0] / unit()
        foot = "\n".join(wrap(foot, int(across / _LETTER)))
        figure.supxlabel(foot, fontsize=6 * unit(), color=faint(), x=0.01, ha="left")
    said = [one.get_ylabel() for one in axes]
    for one, text in zip(axes, said, strict=True):
        left = [t for other, t in zip(axes, said, strict=True) if _left_of(other, one)]
        if left and left[-1] == text:
            one.set_ylabel("")
    under = [any(_above(one, other) for other in axes) for one in axes]
    for one, covered in zip(axes, under, strict=True):
        if covered:
            one.set_xlabel("")


def _left_of(a: Axes, b: Axes) -> bool:
    first, second = a.get_subplotspec(), b.get_subplotspec()
    assert first is not None
    assert second is not None
    return (
        first.rowspan.start == second.rowspan.start and first.colspan.start < second.colspan.start
    )


def _above(a: Axes, b: Axes) -> bool:
    first, second = a.get_subplotspec(), b.get_subplotspec()
    assert first is not None
    assert second is not None
    return (
        first.colspan.start == second.colspan.start and first.rowspan.start < second.rowspan.start
    )


def _batch_size(panels: Sequence[Panel], n: int) -> str:
    """What the axis of batch sizes is called, on two lines where ``n`` panels stand in a row that
    have no room for one."""
    each = {panel.unit for panel in panels}
    name = f"batch size ({each.pop() if len(each) == 1 else 'examples'})"
    return name if len(name) * _NAME <= panel_width(n) else name.replace(" (", "\n(")
