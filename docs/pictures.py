"""The pictures of concepts.md: an exact curve, and simulated sweeps of it as `analysis` fits them;
and those of findings, of packaged sweeps.

``python docs/pictures.py`` writes docs/img/concepts-*.png and theirs, the same every time.
Those of concepts are one panel each, so that two stand side by side where there is room, and one
below the other on a phone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.drawing.colours import FAINT, INK, tint
from analysis.figures.drawing.facets import styles_of
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import BLUE, VERMILION, curve_style, log2_axis, log10_axis
from analysis.fit.convex import Array, Points
from analysis.fit.knee import log_steps, theta
from analysis.fit.locate import Located, locate
from analysis.techniques.pooled import pooled
from validation.growth import criticals
from validation.half_life import FIXED, HALF_LIFE, arms
from validation.noise_scale import cases
from validation.optimizers import BASELINE, ratios
from validation.rules import CHEAP, RULES
from validation.rules import costs as rule_costs
from validation.rules import pooled as rule_mean
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


def optimizers(ax: Axes) -> None:
    """Ratios to momentum: steps at the largest batch size against examples at the smallest."""
    made = ratios()
    means = pooled(made).rows
    styles = styles_of([BASELINE, *means])
    drawn = [1.0]
    for name, row in means.items():
        style = styles[name]
        rows = [each.ratios for each in made.rows if each.name == name]
        dots = [(r["min_examples"].interval.value, r["min_steps"].interval.value) for r in rows]
        known = [(x, y) for x, y in dots if x and y]
        ax.plot(
            *zip(*known, strict=True), style.marker, color=tint(style.colour, 0.4), markersize=3
        )
        x, y = (row[quantity].ratio.interval for quantity in ("min_examples", "min_steps"))
        drawn += [each for dot in known for each in dot]
        if x.value and y.value and x.low and x.high and y.low and y.high:
            drawn += [x.low, x.high, y.low, y.high]
            ax.hlines(y.value, x.low, x.high, color=style.colour, linewidth=1)
            ax.vlines(x.value, y.low, y.high, color=style.colour, linewidth=1)
            ax.plot(x.value, y.value, style.marker, color=style.colour, markersize=5, label=name)
    span = min(drawn) / 1.2, max(drawn) * 1.2
    ax.plot(span, span, color=FAINT, linewidth=0.8, linestyle=":", zorder=1)
    for draw in (ax.axhline, ax.axvline):
        draw(1, color=FAINT, linewidth=0.6, zorder=1)
    small: dict[str, Any] = {"fontsize": 6, "color": FAINT, "transform": ax.transAxes}
    ax.text(0.03, 0.97, "shorter perfect scaling", va="top", **small)
    ax.text(0.97, 0.03, "longer", ha="right", **small)
    ax.set(xscale="log", yscale="log", xlim=span, ylim=span)
    log10_axis(ax.xaxis, *span)
    log10_axis(ax.yaxis, *span)
    ax.set(xlabel="examples at the smallest batch size / momentum's",
           ylabel="steps at the largest / momentum's")  # fmt: skip
    ax.set_aspect("equal")
    ax.legend(
        fontsize=5.5, loc="lower right", bbox_to_anchor=(1.02, 0.06), frameon=False,
        handletextpad=0.2, labelspacing=0.3,
    )  # fmt: skip


def rules(*axes: Axes) -> None:
    """What each rule costs at each factor of the batch size, an optimizer a panel; hollow where
    seeds missed the target, with an arrow to where the true mean lies."""
    given = [each for each in rule_costs() if not each.half_life]
    for ax, optimizer in zip(axes, ("sgd", "momentum", "adamw"), strict=True):
        for place, rule in enumerate(RULES):
            own = [e for e in given if (e.optimizer, e.rule) == (optimizer, rule)]
            times = sorted({each.times for each in own})
            means = [rule_mean([each for each in own if each.times == t]) for t in times]
            known = [(t, *mean.ends) for t, mean in zip(times, means, strict=True) if mean.value]
            x, y, low, high = np.array(known, dtype=float).T
            style, beside = curve_style(place), 2 ** (0.18 * (place - 1))
            x = x * beside
            ax.vlines(x, low, high, color=tint(style.colour, 0.5), linewidth=0.8)
            ax.plot(x, y, marker=style.marker, color=style.colour, markersize=3.5, label=rule)
            for t in {*times} - {t for t, *_ in known}:
                here = [each for each in own if each.times == t]
                at = t * beside, float(np.exp(np.mean([each.log_ratio for each in here])))
                ax.plot(*at, marker=style.marker, color=style.colour, markerfacecolor="white",
                        markersize=3.5, zorder=3)  # fmt: skip
                bounds = any(e.missed for e in here) - any(e.tuned_missed for e in here)
                arrow = {"arrowstyle": "->", "color": style.colour, "linewidth": 0.7}
                end = at[0], at[1] * 1.5**bounds
                if bounds:
                    ax.annotate("", xy=end, xytext=at, arrowprops=arrow)
        ax.axhline(CHEAP, color=FAINT, linewidth=0.8, linestyle=":")
        ax.axhline(1, color=FAINT, linewidth=0.6)
        ax.set(xscale="log", yscale="log", title=optimizer, xlabel="batch size / that of the base")
        log2_axis(ax.xaxis, 1 / 8, 32)
        log10_axis(ax.yaxis, 0.5, 40)
        ax.set_ylim(0.5, 40)
    axes[0].set_ylabel("steps by the rule / tuned")
    axes[-1].legend(fontsize=6.5, loc="upper left", frameon=False, title="learning rate",
                    title_fontsize=6.5)  # fmt: skip


def growth(*axes: Axes) -> None:
    """Critical batch sizes against the examples to their target, a workload a panel: wider models
    darker."""
    given = criticals()
    workloads = list(dict.fromkeys(each.workload for each in given))
    for ax, workload in zip(axes, workloads, strict=False):
        for optimizer, marker, base in (("sgd", "o", BLUE), ("adamw", "s", VERMILION)):
            own = [e for e in given if (e.workload, e.optimizer) == (workload, optimizer)]
            for place, width in enumerate(sorted({each.width for each in own})):
                line = [e for e in own if e.width == width and e.critical["tested range"].value]
                x = [each.examples for each in line]
                ends = [each.critical["tested range"].ends for each in line]
                y, low, high = np.array(ends, dtype=float).T
                colour = tint(base, 0.25 + 0.25 * place)
                ax.vlines(x, low, high, color=colour, linewidth=0.6)
                ax.plot(x, y, marker=marker, color=colour, markersize=3.5, linewidth=1)
            ax.plot([], [], marker=marker, color=base, markersize=3.5, label=optimizer)
        ax.set(xscale="log", yscale="log", title=workload, xlabel="examples to target")
        log10_axis(ax.xaxis, *ax.get_xlim())
        log10_axis(ax.yaxis, *ax.get_ylim())
        ax.legend(fontsize=6.5, loc="upper left", frameon=False, title="darker: wider",
                  title_fontsize=6.5)  # fmt: skip
    axes[0].set_ylabel("critical batch size (tested range)")


def half_life(*axes: Axes) -> None:
    """Examples to target of both kinds of beta2, a text a panel."""
    given = arms()
    for ax, text in zip(axes, dict.fromkeys(each.text for each in given), strict=False):
        for place, kind in enumerate((FIXED, HALF_LIFE)):
            (arm,) = (each for each in given if (each.text, each.beta2) == (text, kind))
            style = curve_style(place)
            name = "beta2 fixed" if kind == FIXED else "half-life fixed"
            x, y = zip(*sorted(arm.examples.items()), strict=True)
            ax.plot(x, y, marker=style.marker, color=style.colour, markersize=4, label=name)
        ax.set(xscale="log", yscale="log", title=text, xlabel="batch size (sequences)")
        log2_axis(ax.xaxis, 1, 64)
        log10_axis(ax.yaxis, *ax.get_ylim())
    axes[0].set_ylabel("sequences to target")
    axes[0].legend(fontsize=6.5, frameon=False)


FINDINGS: dict[Callable[..., None], tuple[str, int]] = {
    noise_scale: ("noise-scale", 1),
    wrong_size: ("wrong-batch-size", 1),
    optimizers: ("optimizers", 1),
    rules: ("rules", 3),
    growth: ("growth", 3),
    half_life: ("half-life", 2),
}
"""Pictures of docs/findings: the name, and how many panels."""


def main() -> None:
    """Write all of them."""
    mpl.use("agg")
    concepts = {each: (f"concepts-{each.__name__}", 1) for each in (steps, examples, sweep, sweeps)}
    for draw, (name, panels) in (*concepts.items(), *FINDINGS.items()):
        with Page().context():
            width = 3.4 if panels == 1 else 7.0
            figure, axes = plt.subplots(
                1, panels, figsize=(width, 2.9), layout="constrained", squeeze=False
            )
            draw(*axes[0])
            figure.savefig(IMAGES / f"{name}.png", dpi=216)
        print(f"wrote docs/img/{name}.png")


if __name__ == "__main__":
    main()
