"""The pictures of concepts.md, from the model and the simulator of `analysis`.

``python docs/pictures.py`` writes concepts-regimes.png and concepts-intervals.png into docs/img/,
the same every time.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from analysis.estimate import estimate
from analysis.figures.style import FAINT, INK, LOOKS, context, log2_axis, tint
from analysis.knee import Array, log_steps, theta
from analysis.profile import limit
from analysis.simulate import Cell, doubling, draw, true_value

IMAGES = Path(__file__).resolve().parent / "img"
TOLERANCE = 0.2
SWEEPS = 20
TRUE = Cell(batch_sizes=doubling(14), critical=256.0, min_steps=100.0, noise=0.12)
BLUE, RED = LOOKS[0].colour, LOOKS[1].colour


def regimes() -> Figure:
    """S(B) and E(B) of one exact curve, divided into the three regimes."""
    truth = theta(TRUE.min_steps, TRUE.critical)
    x = np.log(np.geomspace(TRUE.batch_sizes[0], TRUE.batch_sizes[-1], 400))
    steps = np.exp(log_steps(x, truth))
    sizes = np.exp(x)
    ends = [
        float(np.exp(true_value(TRUE, name, TOLERANCE)))
        for name in ("perfect_scaling_until", "maximal_parallelism_from")
    ]
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.0), layout="constrained")
    for ax, line in ((left, steps), (right, steps * sizes)):
        _bands(ax, ends, sizes)
        ax.plot(sizes, line, color=BLUE, linewidth=1.8, zorder=3)
        ax.axvline(TRUE.critical, color=INK, linewidth=0.8, linestyle=":", zorder=2)
        ax.set_xlabel("batch size B (examples)")
    least = TRUE.min_steps * TRUE.critical
    left.plot(sizes, least / sizes, "--", color=FAINT, linewidth=0.9)
    left.axhline(TRUE.min_steps, color=FAINT, linewidth=0.9, linestyle="--")
    left.set_ylim(60, steps[0] * 1.6)
    left.set_title("steps to target S", pad=22)
    left.text(1.4, 700, "twice the batch,\nhalf the steps", fontsize=7, va="top")
    left.text(7000, 70, "no step saved", fontsize=7, ha="right")
    left.text(300, 10000, "critical batch size", fontsize=7)
    right.axhline(least, color=FAINT, linewidth=0.9, linestyle="--")
    right.plot(sizes, TRUE.min_steps * sizes, "--", color=FAINT, linewidth=0.9)
    right.set_ylim(least * 0.6, least * 60)
    right.set_title("examples to target E = B · S", pad=22)
    right.text(1.4, least * 0.7, "no example wasted", fontsize=7, va="bottom")
    right.text(7000, least * 1.3, "twice the batch,\ntwice the examples", fontsize=7, ha="right")
    for ax in (left, right):
        log2_axis(ax.yaxis, *ax.get_ylim())
    return figure


def _bands(ax: Axes, ends: list[float], sizes: Array) -> None:
    """The three regimes as tints, and their names over the axes."""
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xlim(sizes[0], sizes[-1])
    log2_axis(ax.xaxis, sizes[0], sizes[-1])
    edges = [sizes[0], *ends, sizes[-1]]
    names = ("perfect scaling", "diminishing\nreturns", "maximal\nparallelism")
    for name, low, high, share in zip(names, edges, edges[1:], (0.32, 0.16, 0.05), strict=False):
        ax.axvspan(low, high, color=tint(BLUE, share), linewidth=0, zorder=0)
        ax.annotate(
            name, (np.sqrt(low * high), 1), (0, 3), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="bottom", fontsize=6.5, linespacing=0.95,
        )  # fmt: skip


def intervals() -> Figure:
    """What one sweep allows, and what twenty sweeps of the same truth say."""
    x, y = draw(TRUE, SWEEPS, seed=3)
    found = estimate(x, y, np.ones_like(x), tolerance=TOLERANCE, level=0.9)
    low, high = (np.exp(end["critical_batch_size"]) for end in (found.low, found.high))
    value = np.exp(found.value["critical_batch_size"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.1), layout="constrained")

    most = limit(found.fitted.data, found.fitted.sse, 0.9)[0]
    allowed = _allowed(x[0], y[0], found.fitted.params[0], most)
    at = np.linspace(x[0, 0], x[0, -1], 200)
    for one in allowed:
        left.plot(np.exp(at), np.exp(log_steps(at, one)), color=tint(BLUE, 0.25), linewidth=0.5)
    left.plot(np.exp(at), np.exp(log_steps(at, found.fitted.params[0])), color=BLUE, linewidth=1.5)
    left.plot(np.exp(x[0]), np.exp(y[0]), "o", color=BLUE, markeredgecolor="white", zorder=4)
    left.set_yscale("log", base=2)
    left.set_title("one sweep: curves that its points allow")
    left.set_ylabel("steps to target")
    left.set_ylim(45, np.exp(y[0].max()) * 1.5)
    log2_axis(left.yaxis, *left.get_ylim())
    left.plot([low[0], high[0]], [60, 60], color=INK, linewidth=1.4, marker="|", markersize=6)
    left.text(low[0] / 1.4, 60, "critical batch size, 90 %", fontsize=7, va="center", ha="right")

    for i in range(SWEEPS):
        holds = low[i] <= TRUE.critical <= high[i]
        colour = BLUE if holds else RED
        right.plot([low[i], high[i]], [i, i], color=colour, linewidth=1.4, marker="|", markersize=4)
        right.plot(value[i], i, "o" if holds else "s", color=colour, markersize=3.2)
    right.axvline(TRUE.critical, color=INK, linewidth=0.8, linestyle=":")
    right.set_title("twenty sweeps: 90 % intervals and the truth")
    right.yaxis.set_major_locator(NullLocator())
    right.set_ylabel("a sweep each")
    right.invert_yaxis()
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.xaxis.set_minor_formatter(NullFormatter())
    log2_axis(left.xaxis, 1, TRUE.batch_sizes[-1])
    left.set_xlabel("batch size")
    right.set_xlim(100, 620)
    log2_axis(right.xaxis, 100, 620)
    right.set_xlabel("critical batch size")
    return figure


def _allowed(x: Array, y: Array, best: Array, most: float, wanted: int = 150) -> Array:
    """Curves about the best one whose sum of squares is at most that of the interval's ends."""
    rng = np.random.default_rng(0)
    kept: list[Array] = []
    while len(kept) < wanted:
        near = best + rng.normal(0, 1, (2000, 4)) * [0.15, 0.3, 0.4, 0]
        sse = ((log_steps(np.tile(x, (len(near), 1)), near) - y) ** 2).sum(1)
        kept += list(near[sse <= most])
    return np.array(kept[:wanted])


def main() -> None:
    """Write both."""
    mpl.use("agg")
    for name, make in (("regimes", regimes), ("intervals", intervals)):
        with context():
            make().savefig(IMAGES / f"concepts-{name}.png", dpi=200)
        print(f"wrote docs/img/concepts-{name}.png")


if __name__ == "__main__":
    main()
