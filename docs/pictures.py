"""The pictures of concepts.md: an exact curve, and simulated sweeps of it as `analysis` fits them;
and those of findings/noise-scale.md and findings/wrong-batch-size.md, of packaged sweeps.

``python docs/pictures.py`` writes docs/img/concepts-*.png and theirs, the same every time.
Each is one panel, so that two stand side by side where there is room, and one below the other on a
phone.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.drawing.colours import FAINT, INK, tint
from analysis.figures.drawing.facets import styles_of
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import BLUE, VERMILION, log2_axis, log10_axis
from analysis.fit.convex import Array, Points
from analysis.fit.knee import log_steps, theta
from analysis.fit.locate import Located, locate
from validation.noise_scale import cases
from validation.wrong_size import TIMES, costs, median

IMAGES = Path(__file__).resolve().parent / "img"
TOLERANCE = 0.2
SWEEPS = 20
LEVEL = 0.9
TESTED = 2.0 ** np.arange(14)
CRITICAL, MIN_STEPS, NOISE = 256.0, 100.0, 0.08
SIZES = np.geomspace(TESTED[0], TESTED[-1], 400)
STEPS = np.exp(log_steps(np.log(SIZES), theta(MIN_STEPS, CRITICAL)))
LEAST = MIN_STEPS * CRITICAL
OPEN = 1e9
"""An open end is beyond the frame."""
NAMES = ("perfect scaling", "diminishing\nreturns", "maximal\nparallelism")


def steps(ax: Axes) -> None:
    """S(B) of one exact curve, its asymptotes and its three regimes."""
    _bands(ax)
    ax.plot(SIZES, STEPS, color=BLUE, linewidth=1.8, zorder=3)
    ax.plot(SIZES, LEAST / SIZES, "--", color=FAINT, linewidth=0.9)
    ax.axhline(MIN_STEPS, color=FAINT, linewidth=0.9, linestyle="--")
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
    ax.plot(SIZES, MIN_STEPS * SIZES, "--", color=FAINT, linewidth=0.9)
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
    ax.axvline(CRITICAL, color=INK, linewidth=0.8, linestyle=":", zorder=2)
    examples = SIZES * STEPS
    ends = [
        float(SIZES[examples <= (1 + TOLERANCE) * examples.min()][-1]),
        float(SIZES[(1 + TOLERANCE) * STEPS.min() >= STEPS][0]),
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
    located = _sweeps()[1]
    fit, points = located.fits.best, located.points
    at = np.log(SIZES)
    for coefficients in _allowed(located):
        steps = [fit.family.log_steps(x).row @ coefficients for x in at]
        ax.plot(SIZES, np.exp(steps), color=tint(BLUE, 0.25), linewidth=0.5)
    ax.plot(SIZES, np.exp([fit.log_steps(x) for x in at]), color=BLUE, linewidth=1.5)
    ax.plot(np.exp(points.x), np.exp(points.y), "o", color=BLUE, markeredgecolor="white", zorder=4)
    _, low, high = np.exp(located.ends("critical_batch_size", LEVEL))
    ax.plot([low, high], [60, 60], color=INK, linewidth=1.4, marker="|", markersize=6)
    ax.text(low / 1.4, 60, "critical batch size, 90 %", fontsize=7, va="center", ha="right")
    ax.set_title("one sweep: curves that its points allow")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_ylim(45, np.exp(points.y.max()) * 1.5)
    ax.set_xlabel("batch size (examples)")
    ax.set_ylabel("steps to target")
    log2_axis(ax.yaxis, *ax.get_ylim())
    log2_axis(ax.xaxis, SIZES[0], SIZES[-1])


def sweeps(ax: Axes) -> None:
    """The intervals of twenty sweeps of the same truth: its least examples over its least steps."""
    truth = (SIZES * STEPS).min() / STEPS.min()
    for i, located in enumerate(_sweeps()):
        value, low, high = np.exp(located.ends("critical_batch_size", LEVEL))
        holds = not (low > truth or high < truth)  # NaN, an open end, is neither
        colour = BLUE if holds else VERMILION
        ends = (low, 100.0, "<"), (high, 620.0, ">")  # known, or the axis's end with an arrow
        places = [end if np.isfinite(end) else edge for end, edge, _ in ends]
        ax.plot(places, [i, i], color=colour, linewidth=1.4)
        for place, (end, _, arrow) in zip(places, ends, strict=True):
            mark = "|" if np.isfinite(end) else arrow
            ax.plot(place, i, mark, color=colour, markersize=4, clip_on=False)
        ax.plot(value, i, "o" if holds else "s", color=colour, markersize=3.2)
    ax.axvline(truth, color=INK, linewidth=0.8, linestyle=":")
    ax.set_title("twenty sweeps: 90 % intervals and the truth")
    ax.yaxis.set_major_locator(NullLocator())
    ax.set_ylabel("a sweep each")
    ax.invert_yaxis()
    ax.set_xscale("log", base=2)
    ax.set_xlim(100, 620)
    log2_axis(ax.xaxis, 100, 620)
    ax.set_xlabel("critical batch size (examples)")


def _sweeps() -> list[Located]:
    """Sweeps of the exact curve with normal noise in log steps."""
    rng, x = np.random.default_rng(3), np.log(TESTED)
    exact = log_steps(x, theta(MIN_STEPS, CRITICAL))
    return [
        locate(
            Points(x=x, y=exact + rng.normal(0, NOISE, len(x)), variance=np.zeros(len(x))),
            tolerance=TOLERANCE,
        )
        for _ in range(SWEEPS)
    ]


def _allowed(located: Located) -> list[Array]:
    """Coefficients of curves at the ends of intervals: of log steps along the batch sizes."""
    fit = located.fits.best
    kept = []
    for x in np.linspace(*located.points.span, 40):
        quantity = fit.family.log_steps(float(x))
        _, *ends = located.steps_at(float(x), LEVEL)
        kept += [fit.family.solve(fit.points, quantity, end)[0] for end in ends]
    return kept


def noise_scale(ax: Axes) -> None:
    """Critical batch sizes against noise scales half-way, both with their intervals."""
    every = [(case, case.noise("half")) for case in cases()]
    known = [(c, n) for c, n in every if c.knee.value and n is not None and n.noise_scale > 0]
    named = list(dict.fromkeys(case.optimizer for case, _ in known))
    styles = styles_of(named)
    for case, noise in known:
        style, knee = styles[case.optimizer], case.knee
        x, (y, low, high) = noise.noise_scale, (end or OPEN for end in knee.ends)
        ax.vlines(x, low, high, color=style.colour, linewidth=0.6)
        ends = (noise.low or 1 / OPEN, noise.high or OPEN)
        if noise.low is not None:
            ax.hlines(y, *ends, color=style.colour, linewidth=0.6)
        ax.plot(x, y, style.marker, color=style.colour, markersize=4)
    for name in named:
        style = styles[name]
        ax.plot([], [], style.marker, color=style.colour, markersize=4, label=name)
    span = np.array([0.5, 5000])
    for times, text in ((1, "equal"), (4, "four times")):
        ax.plot(span, times * span, color=FAINT, linewidth=0.8, linestyle=":", zorder=1)
        ax.annotate(text, (0.7, 0.7 * times), (0, 3), textcoords="offset points", fontsize=6,
                    rotation=45, rotation_mode="anchor", color=FAINT)  # fmt: skip
    ax.set(xscale="log", yscale="log", xlim=span, ylim=span)
    log10_axis(ax.xaxis, *span)
    log10_axis(ax.yaxis, *span)
    ax.set(xlabel="noise scale half-way (examples)", ylabel="critical batch size (knee)")
    ax.set_aspect("equal")
    ax.legend(fontsize=6.5, loc="lower right", frameon=False)


def wrong_size(ax: Axes) -> None:
    """Steps and examples at multiples of the critical batch size, over those at it."""
    given = costs()
    multiples = np.array([*TIMES[:3], 1.0, *TIMES[3:]])
    middles = np.ones(len(multiples))
    ranges = np.ones((len(multiples), 2))
    for place, times in enumerate(TIMES):
        made, between, _ = median(given, place)
        at = int(np.flatnonzero(multiples == times)[0])
        middles[at], ranges[at] = made.value or np.nan, between
    fine = np.geomspace(multiples[0], multiples[-1], 200)
    law = (1 + 1 / fine) / 2
    for name, colour, power, marker in (("steps", BLUE, 0, "o"), ("examples", VERMILION, 1, "s")):
        scale = multiples**power
        low, high = (ranges * scale[:, None]).T
        ax.fill_between(multiples, low, high, color=tint(colour, 0.3), linewidth=0)
        ax.plot(multiples, middles * scale, marker, color=colour, markersize=4, label=name)
        ax.plot(fine, law * fine**power, color=colour, linewidth=0.8, linestyle=":")
    ax.axhline(1, color=FAINT, linewidth=0.6)
    ax.set(xscale="log", yscale="log")
    log2_axis(ax.xaxis, multiples[0], multiples[-1])
    log2_axis(ax.yaxis, 0.45, 6.5)
    ax.set_ylim(0.45, 6.5)
    ax.set(
        xlabel="batch size over the critical one", ylabel="over those at the critical batch size"
    )
    ax.legend(fontsize=6.5, loc="upper center", frameon=False)


def main() -> None:
    """Write all of them."""
    mpl.use("agg")
    findings = {noise_scale: "noise-scale", wrong_size: "wrong-batch-size"}
    for panel in (steps, examples, sweep, sweeps, noise_scale, wrong_size):
        name = findings.get(panel, f"concepts-{panel.__name__}")
        with Page().context():
            figure, ax = plt.subplots(figsize=(3.4, 2.9), layout="constrained")
            panel(ax)
            figure.savefig(IMAGES / f"{name}.png", dpi=216)
        print(f"wrote docs/img/{name}.png")


if __name__ == "__main__":
    main()
