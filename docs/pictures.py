"""The pictures of concepts.md, from the model and the simulator of `analysis`.

``python docs/pictures.py`` writes docs/img/concepts-*.png, the same every time. Each is one panel,
so that two stand side by side where there is room, and one below the other on a phone.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.drawing.style import FAINT, INK, LOOKS, context, log2_axis, tint
from analysis.fit.estimate import Estimate, estimate
from analysis.fit.knee import Array, log_steps, theta
from analysis.fit.least_squares import limit
from validation.simulate import Cell, doubling, draw, true_value

IMAGES = Path(__file__).resolve().parent / "img"
TOLERANCE = 0.2
SWEEPS = 20
TRUE = Cell(batch_sizes=doubling(14), critical=256.0, min_steps=100.0, noise=0.12)
SIZES = np.geomspace(TRUE.batch_sizes[0], TRUE.batch_sizes[-1], 400)
STEPS = np.exp(log_steps(np.log(SIZES), theta(TRUE.min_steps, TRUE.critical)))
LEAST = TRUE.min_steps * TRUE.critical
BLUE, RED = LOOKS[0].colour, LOOKS[1].colour
NAMES = ("perfect scaling", "diminishing\nreturns", "maximal\nparallelism")


def steps(ax: Axes) -> None:
    """S(B) of one exact curve, its asymptotes and its three regimes."""
    _bands(ax)
    ax.plot(SIZES, STEPS, color=BLUE, linewidth=1.8, zorder=3)
    ax.plot(SIZES, LEAST / SIZES, "--", color=FAINT, linewidth=0.9)
    ax.axhline(TRUE.min_steps, color=FAINT, linewidth=0.9, linestyle="--")
    ax.set_ylim(60, STEPS[0] * 1.6)
    ax.set_ylabel("steps to target S")
    ax.text(1.4, 700, "twice the batch,\nhalf the steps", fontsize=7, va="top")
    ax.text(7000, 70, "no step saved", fontsize=7, ha="right")
    ax.text(300, 10000, "critical batch size", fontsize=7)
    log2_axis(ax.yaxis, *ax.get_ylim())


def examples(ax: Axes) -> None:
    """E(B) = B · S(B) of the same curve."""
    _bands(ax)
    ax.plot(SIZES, STEPS * SIZES, color=BLUE, linewidth=1.8, zorder=3)
    ax.plot(SIZES, TRUE.min_steps * SIZES, "--", color=FAINT, linewidth=0.9)
    ax.axhline(LEAST, color=FAINT, linewidth=0.9, linestyle="--")
    ax.set_ylim(LEAST * 0.36, LEAST * 50)
    ax.set_ylabel("examples to target E = B · S")
    ax.text(1.4, LEAST * 0.85, "no example wasted", fontsize=7, va="top")
    said = "twice the batch,\ntwice the examples"
    ax.text(7600, LEAST * 0.85, said, fontsize=6.5, ha="right", va="top")
    log2_axis(ax.yaxis, *ax.get_ylim())


def _bands(ax: Axes) -> None:
    """The three regimes as tints, and their names over the axes."""
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xlim(SIZES[0], SIZES[-1])
    log2_axis(ax.xaxis, SIZES[0], SIZES[-1])
    ax.set_xlabel("batch size B (examples)")
    ax.axvline(TRUE.critical, color=INK, linewidth=0.8, linestyle=":", zorder=2)
    ends = [
        float(np.exp(true_value(TRUE, name, TOLERANCE)))
        for name in ("perfect_scaling_until", "maximal_parallelism_from")
    ]
    edges = [SIZES[0], *ends, SIZES[-1]]
    for name, low, high, share in zip(NAMES, edges, edges[1:], (0.32, 0.16, 0.05), strict=False):
        ax.axvspan(low, high, color=tint(BLUE, share), linewidth=0, zorder=0)
        ax.annotate(
            name, (np.sqrt(low * high), 1), (0, 3), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="bottom", fontsize=6.5, linespacing=0.95,
        )  # fmt: skip


def sweep(ax: Axes) -> None:
    """The points of one sweep, and curves that they allow."""
    x, y, found = _sweeps()
    best = found.fitted.params[0]
    most = limit(found.fitted.data, found.fitted.sse, 0.9)[0]
    at = np.log(SIZES)
    for one in _allowed(x[0], y[0], best, most):
        ax.plot(SIZES, np.exp(log_steps(at, one)), color=tint(BLUE, 0.25), linewidth=0.5)
    ax.plot(SIZES, np.exp(log_steps(at, best)), color=BLUE, linewidth=1.5)
    ax.plot(np.exp(x[0]), np.exp(y[0]), "o", color=BLUE, markeredgecolor="white", zorder=4)
    low, high = (np.exp(end["critical_batch_size"][0]) for end in (found.low, found.high))
    ax.plot([low, high], [60, 60], color=INK, linewidth=1.4, marker="|", markersize=6)
    ax.text(low / 1.4, 60, "critical batch size, 90 %", fontsize=7, va="center", ha="right")
    ax.set_title("one sweep: curves that its points allow")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_ylim(45, np.exp(y[0].max()) * 1.5)
    ax.set_xlabel("batch size (examples)")
    ax.set_ylabel("steps to target")
    log2_axis(ax.yaxis, *ax.get_ylim())
    log2_axis(ax.xaxis, SIZES[0], SIZES[-1])


def sweeps(ax: Axes) -> None:
    """The intervals of twenty sweeps of the same truth."""
    _, _, found = _sweeps()
    kinds = (found.low, found.value, found.high)
    for i, (low, value, high) in enumerate(
        zip(*(np.exp(kind["critical_batch_size"]) for kind in kinds), strict=True)
    ):
        holds = low <= TRUE.critical <= high
        colour = BLUE if holds else RED
        ax.plot([low, high], [i, i], color=colour, linewidth=1.4, marker="|", markersize=4)
        ax.plot(value, i, "o" if holds else "s", color=colour, markersize=3.2)
    ax.axvline(TRUE.critical, color=INK, linewidth=0.8, linestyle=":")
    ax.set_title("twenty sweeps: 90 % intervals and the truth")
    ax.yaxis.set_major_locator(NullLocator())
    ax.set_ylabel("a sweep each")
    ax.invert_yaxis()
    ax.set_xscale("log", base=2)
    ax.set_xlim(100, 620)
    log2_axis(ax.xaxis, 100, 620)
    ax.set_xlabel("critical batch size (examples)")


def _sweeps() -> tuple[Array, Array, Estimate]:
    """Log batch sizes and log steps of all sweeps, (SWEEPS, n), and what is estimated of them."""
    x, y = draw(TRUE, SWEEPS, seed=3)
    return x, y, estimate(x, y, np.ones_like(x), tolerance=TOLERANCE, level=0.9)


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
    """Write all four."""
    mpl.use("agg")
    for panel in (steps, examples, sweep, sweeps):
        with context():
            figure, ax = plt.subplots(figsize=(3.4, 2.9), layout="constrained")
            panel(ax)
            figure.savefig(IMAGES / f"concepts-{panel.__name__}.png", dpi=216)
        print(f"wrote docs/img/concepts-{panel.__name__}.png")


if __name__ == "__main__":
    main()
