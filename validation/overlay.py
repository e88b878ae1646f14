"""Published and packaged curves in one picture: each scaled by its knee, and by workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.curves.curve import Curve
from analysis.figures import save
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import FAINT, INK
from analysis.figures.drawing.optimizer_styles import CurveStyle, style_numbers
from analysis.figures.drawing.page import COLUMN, Page
from analysis.figures.drawing.style import curve_style, grid, log2_axis
from analysis.fit.regimes import Regimes
from validation.packaged import interval, located, named, sources
from validation.page import PAGE, table

OWN = "own"
DEMO = "digits"
"""The experiment whose packaged curves are compared: those of the gallery have few trials."""
PICTURES = {"knees": "overlay-knees.png", "workloads": "overlay-workloads.png"}
IMAGES = PAGE.parent / "img"
NAMES = {
    "shallue_2019_digitized": "Shallue et al. 2019",
    "zhang_2024": "Zhang et al. 2024",
    "mlperf_rcp": "MLPerf",
    OWN: OWN,
}
_PACKAGED_STYLE = CurveStyle("#000000", "D", "-")
BOTH = ("mnist-simple-cnn", "cifar10-resnet8")
"""Published workloads that are packaged as workloads too: a panel each."""


@dataclass(frozen=True, kw_only=True)
class Knee:
    """A curve with its regimes: its fitted knee in the pictures, and why it is not drawn."""

    source: str
    curve: Curve
    regimes: Regimes

    @property
    def why_not(self) -> str | None:
        """Why it is not drawn; None if its critical batch size has a value and both ends."""
        regimes = self.regimes
        if regimes.critical_batch_size.reached:
            return None
        ends = {"small": regimes.small_level, "large": regimes.large_level}
        if all(ends.values()):
            return "its interval is open"
        return f"not level: {', '.join(name for name, level in ends.items() if not level)}"

    def scaled(self) -> tuple[np.ndarray, np.ndarray]:
        """B/B_crit and S/S_min, of the knee, of each batch size that reached the target; (n,) each.
        Of repeated runs the median."""
        hit = [point for point in self.curve.points if point.steps is not None]
        best = self.regimes.best
        size = np.array([point.batch_size for point in hit]) / best["critical_batch_size"]
        steps = np.array([point.steps for point in hit], dtype=float) / best["min_steps"]
        return size, steps


def packaged_knees() -> list[Knee]:
    """Every published curve of three or more batch sizes, then the demo's."""
    return [
        Knee(source=OWN if packaged == OWN else source, curve=curve, regimes=regimes)
        for packaged in ("published", OWN)
        for source in sources(packaged)
        for curve, regimes in located(
            packaged, source, experiment=DEMO if packaged == OWN else None
        )
    ]


def section(processes: int | None = None) -> str:  # noqa: ARG001
    """Draw both pictures into docs/img; the section's Markdown."""
    every = packaged_knees()
    pictures(IMAGES, every)
    return render(every)


def render(every: Sequence[Knee]) -> str:
    """The section's Markdown."""
    heads = ["curve", "batch sizes", "critical batch size", "k", "a", "scatter", "in the picture"]
    rows = [
        [
            f"{NAMES.get(knee.source, knee.source)}: {named(knee.curve)}",
            _sizes(knee.curve),
            interval(knee.regimes.critical_batch_size),
            f"{knee.regimes.best['k']:.2g}",
            f"{knee.regimes.best['a']:.2g}",
            f"{knee.regimes.best['noise']:.1%}",
            knee.why_not or "yes",
        ]
        for knee in every
    ]
    parts = [_HEAD, _link("knees", "Every curve by its own knee"), table(heads, rows), _BESIDE]
    parts += [
        _link("workloads", "Published and own points of one workload"),
        *_own_points(every),
        "",
    ]
    return "\n".join(parts)


_HEAD = """Steps over S_min against batch size over B_crit, the asymptotes of the fitted knee, of
every packaged curve whose critical batch size has a value and both ends, as both ends of the curve
are level. On McCandlish et al.'s knee (k = 1) all would lie on the line; beneath, how far they lie
off it. A bend k above 1 dips below the line about B_crit, one below 1 rises above it; curves whose
slope a at small batches is not 1 leave the line there. Of several runs the median is drawn.
"""

_BESIDE = """
Published points (open) and those that were measured with the packaged workload (filled), at the
same target; lines are the fitted knees, bars beneath the critical batch sizes with 90 % intervals.
"""


def _link(name: str, description: str) -> str:
    return f"![{description}](img/{PICTURES[name]})\n"


def _sizes(curve: Curve) -> str:
    return f"{min(curve.batch_sizes):,}–{max(curve.batch_sizes):,} ({len(curve.batch_sizes)})"


def _own_points(every: Sequence[Knee]) -> Iterator[str]:
    """A line on the packaged points of each panel."""
    for workload in BOTH:
        _, own = _pair(every, workload)
        if not own:
            yield f"- {workload}: published points alone, none of its own is packaged yet."
        for knee in own:
            at = ", ".join(f"{size:,}" for size in knee.curve.batch_sizes)
            yield (
                f"- {workload}, {knee.curve.group.get('optimizer')}: own points at {at}, the best "
                f"of {knee.curve.trials}"
            )


def _pair(every: Sequence[Knee], workload: str) -> tuple[list[Knee], list[Knee]]:
    """The published curves of a workload, and the own ones at the same target."""
    of_workload = [knee for knee in every if knee.curve.group.get("workload") == workload]
    published = [knee for knee in of_workload if knee.source != OWN]
    targets = {str(knee.curve.target) for knee in published}
    own = [knee for knee in of_workload if knee.source == OWN and str(knee.curve.target) in targets]
    return published, own


def knees(every: Sequence[Knee]) -> Figure:
    """Every curve by its own knee, and how far it lies off the knee of bend 1."""
    figure = Figure(figsize=(COLUMN * 1.6, COLUMN * 1.7), layout="constrained")
    ax, beneath = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1.3]})
    used = [knee for knee in every if knee.why_not is None]
    counts = Counter(knee.source for knee in used)
    names = dict.fromkeys(knee.source for knee in every if knee.source != OWN)
    styles = {**{name: curve_style(i) for i, name in enumerate(names)}, OWN: _PACKAGED_STYLE}
    sides: list[float] = []
    tops: list[float] = []
    for knee in used:
        size, steps = knee.scaled()
        sides += size.tolist()
        tops += steps.tolist()
        for at, y in ((ax, steps), (beneath, steps / (1 + 1 / size))):
            _dots(at, size, y, styles[knee.source])
    low, high = min(sides), max(sides)
    x = np.geomspace(low / 1.5, high * 1.5, 400)
    ax.plot(x, 1 + 1 / x, color=INK, linewidth=1.1, zorder=3)
    ax.plot(x[x < 1.6], 1 / x[x < 1.6], color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=3)
    beneath.axhline(1, color=INK, linewidth=1.1, zorder=3)
    for at in (ax, beneath):
        at.set_xscale("log", base=2)
        at.set_yscale("log", base=2)
        at.axvline(1, color=FAINT, linewidth=0.6, zorder=1)
        grid(at)
    log2_axis(ax.xaxis, low, high)
    log2_axis(ax.yaxis, 0.5, max(tops), most=9)
    ax.set_ylim(0.5, max(tops) * 1.5)
    log2_axis(beneath.yaxis, 0.25, 4)
    beneath.set_ylim(0.4, 2.5)
    ax.set_ylabel(r"$S\,/\,S_\mathrm{min}$")
    beneath.set_ylabel("over the knee")
    beneath.set_xlabel(r"$B\,/\,B_\mathrm{crit}$")
    handles = [
        _handle(styles[name], f"{NAMES.get(name, name)}, {_curves(counts[name])}")
        for name in counts
    ]
    handles += [
        Line2D([], [], color=INK, linewidth=1.1,
               label=r"$S = S_\mathrm{min}\,(1 + B_\mathrm{crit}/B)$"),
        Line2D([], [], color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="perfect scaling"),
    ]  # fmt: skip
    ax.legend(handles=handles, loc="upper right")
    return figure


def _curves(count: int) -> str:
    return f"{count} curve" + "s" * (count != 1)


def _dots(ax: Axes, x: np.ndarray, y: np.ndarray, style: CurveStyle) -> None:
    ax.plot(
        x, y, marker=style.marker, linestyle="none", markersize=3.2, zorder=4, color=style.colour,
        alpha=0.8, markeredgecolor="white", markeredgewidth=0.4,
    )  # fmt: skip


def _handle(style: CurveStyle, text: str, *, hollow: bool = False, line: bool = False) -> Line2D:
    return Line2D(
        [], [], color=style.colour, marker=style.marker, linestyle=style.line if line else "none",
        label=text, markerfacecolor="white" if hollow else style.colour,
        markeredgecolor=style.colour if hollow else "white", markeredgewidth=0.8 if hollow else 0.5,
    )  # fmt: skip


def workloads(every: Sequence[Knee]) -> Figure:
    """A panel for each of ``BOTH``: published points and knees, with the own ones beside."""
    figure = Figure(figsize=(COLUMN * len(BOTH), COLUMN * 1.15), layout="constrained")
    for ax, workload in zip(figure.subplots(1, len(BOTH), squeeze=False)[0], BOTH, strict=True):
        _panel(ax, workload, *_pair(every, workload))
    return figure


def _panel(ax: Axes, workload: str, published: Sequence[Knee], own: Sequence[Knee]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    both = [*published, *own]
    steps = [p.steps for knee in both for p in knee.curve.points if p.steps is not None]
    sizes = [size for knee in both for size in knee.curve.batch_sizes]
    ax.set_ylim(min(steps) / 1.7, max(steps) * 1.6)
    grid(ax)
    # A training algorithm has one colour for all sources.
    optimizers = [str(knee.curve.group.get("optimizer")) for knee in both]
    numbers = style_numbers(optimizers)
    styles = [curve_style(numbers[name]) for name in optimizers]
    for knee, style in zip(both, styles, strict=True):
        _points(ax, knee, style)
    regimes: list[Regimes | None] = [knee.regimes for knee in both]
    marks.criticals(ax, regimes, styles)
    log2_axis(ax.xaxis, min(sizes), max(sizes))
    log2_axis(ax.yaxis, min(steps) / 1.7, max(steps) * 1.6, most=8)
    handles = [
        _handle(style, f"{name}, {'own' if knee.source == OWN else 'published'}",
                hollow=knee.source != OWN, line=True)
        for knee, style in zip(both, styles, strict=True)
        for name in [str(knee.curve.group.get("optimizer"))]
    ]  # fmt: skip
    ax.legend(handles=handles, loc="upper right")
    if not own:
        ax.text(0.03, 0.24, "no own points yet", transform=ax.transAxes, color=FAINT, fontsize=6.5)
    ax.set_title(f"{workload}\n{both[0].curve.target}", color=FAINT, fontsize=7, pad=5)
    ax.set_xlabel("batch size")
    ax.set_ylabel("steps to target")


def _points(ax: Axes, knee: Knee, style: CurveStyle) -> None:
    x = np.geomspace(*knee.regimes.fitted_over, 200)
    filled = knee.source == OWN
    ax.plot(x, knee.regimes.steps(x), color=style.colour, linestyle=style.line, zorder=4,
            linewidth=1.3 if filled else 0.9)  # fmt: skip
    if filled:
        marks.points(ax, knee.curve, style)
        return
    for point in knee.curve.points:
        if point.steps is not None:
            ax.plot(
                [point.batch_size], [point.steps], marker=style.marker, color=style.colour,
                markerfacecolor="white", markeredgewidth=0.8, zorder=3, linestyle="none",
            )  # fmt: skip


def pictures(folder: Path, every: Sequence[Knee]) -> list[Path]:
    """Both pictures as files of a folder; what was written."""
    with Page().context():
        return [
            *save(knees(every), folder / PICTURES["knees"]),
            *save(workloads(every), folder / PICTURES["workloads"]),
        ]
