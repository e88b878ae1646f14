"""Published curves, and the regimes that their authors report.

A golden is one statement of authors about their curves, our result for the same points, and the
rule by which the two agree. The statements are from the facts that the packaged data comes with;
**(r)** marks what is remembered of a paper's text and could not be read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.curves.curve import Curve
from analysis.fit.comparisons import ratio, ratio_text
from analysis.fit.convex import Array, Points
from analysis.fit.definitions import beta
from analysis.fit.laws import laws
from validation.packaged import interval, located, named, short, trials
from validation.page import table

SHALLUE, ZHANG = "shallue_2019_digitized", "zhang_2024"
FLOOR = 1.5
"""Two nearly equal optimizers, searched separately, differ by up to this factor (Shallue et al.'s
protocol, single-seed minima of about 100 trials)."""
WOBBLE = 0.25
"""Relative scatter of a published plateau."""
SINGLE = 0.09
"""Noise of log steps about McCandlish's knee that most published curves keep within."""
ORDER = 10.0
"""The factor that "the same order of magnitude" allows."""
PUBLISHED: Mapping[str, float] = {
    "resnet": 1.2,
    "bert": 3.9,
    "stable_diffusion": 11,
    "unet3d": 22,
}
"""Coefficients of variation of MLPerf's runs in per cent, from the facts of the packaged data."""

DRAWS = 1000
SEED = 2026


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One statement of authors about a curve, compared with ours."""

    key: str
    curve: str
    quantity: str
    theirs: str
    place: str
    """The place of the statement."""
    ours: str
    agrees: bool | None
    """None where an end of the curve that is not level leaves a bound, which cannot say."""
    rule: str
    """The rule by which the two agree."""
    why: str | None = None
    """Why they may not agree, or the end that is not level."""


def goldens() -> list[Golden]:
    """All of them, in the order of the page."""
    return [
        *_zhang(),
        _zhang_law(),
        *_momentum(),
        *_everywhere(),
        *_models(),
        _relation(),
        _noise_scale(),
        *_plateaus(),
        *_run_noise(),
    ]


def section(processes: int | None = None) -> str:  # noqa: ARG001
    """The section's Markdown."""
    every = goldens()
    heads = ["curve", "quantity", "its authors say", "here", "agrees"]
    rows = [
        [golden.curve, golden.quantity, f"{golden.theirs} ({golden.place})", golden.ours,
         {True: "yes", False: "**no**", None: "bounded"}[golden.agrees]]
        for golden in every
    ]  # fmt: skip
    rules = dict.fromkeys(f"- {golden.quantity}: {golden.rule}" for golden in every)
    count = sum(bool(golden.agrees) for golden in every)
    bounded = sum(golden.agrees is None for golden in every)
    whys = [f"- {golden.curve}, {golden.quantity}: {golden.why or 'not known'}." for golden in every
            if not golden.agrees]  # fmt: skip
    lines = ["When the two agree:\n", *rules, ""]
    lines += ["Why some do not, or cannot be said:\n", *whys, ""] if whys else []
    return "\n".join(
        [
            _HEAD.format(count=count, all=len(every), bounded=bounded),
            table(heads, rows),
            *lines,
            _MISSING,
        ]
    )


_HEAD = """Published curves (`batchscale regimes published`) and what their authors say of them:
{count} of {all} agree; {bounded} cannot be said, where an end of the curve is not level and the
numbers are bounds. **(r)** marks what is remembered of a paper's text and could not be read again:
right as far as known, not to be cited as a quotation. Intervals are 90 %.
"""

_MISSING = """Not here, for want of data: VGG-11 and ResNet-50 on ImageNet and Open Images, the
Transformer on Common Crawl, and the curves over several goals of Shallue et al. (not among the
digitized ones), RNN-T of MLPerf (not among the newest versions), McCandlish et al.'s own curves.
"""


def _zhang() -> Iterator[Golden]:
    theirs = {"85m": 745.32, "151m": 955.16, "604m": 1888.52}
    for curve, regimes in located("published", ZHANG, None, "zhang2024"):
        size = str(curve.group["model"]).rpartition("-")[2]
        ours = regimes.defined
        assert ours is not None
        yield Golden(
            key=f"zhang {size}",
            curve=named(curve),
            quantity="critical batch size by their definition",
            theirs=f"{theirs[size]:,.2f}",
            place="Zhang et al. 2024, the authors' answer",
            ours=interval(ours) + ("" if ours.value is None else f", exactly {ours.value:,.2f}"),
            agrees=ours.value is not None and abs(ours.value - theirs[size]) <= 0.01,
            rule="0.01 apart at most, from the steps that they fitted",
        )


def _zhang_law() -> Golden:
    curves, regimes = zip(*located("published", ZHANG, None, "zhang2024"), strict=True)
    millions = {str(curve.group["model"]): curve.group["parameters"] / 1e6 for curve in curves}
    ((law, _),) = laws(curves, regimes, "model", sizes=millions)
    power, factor = law.exponent, law.coefficient
    assert power.value is not None
    return Golden(
        key="zhang law",
        curve="the three of c4",
        quantity="its law over model size N in millions",
        theirs="93.2 · N^0.47",
        place="Zhang et al. 2024",
        ours=f"{interval(factor)} · N^{interval(power)}",
        agrees=round(power.value, 2) == 0.47 and factor.holds(93.2) and power.holds(0.47),
        rule="the exponent to two digits, and both numbers in the intervals",
    )


def _momentum() -> Iterator[Golden]:
    """SGD against momentum and Nesterov, on each workload that has both."""
    place = "Shallue et al. 2019, 4.4 and figure 4 (r)"
    for workload in ("mnist-simple-cnn", "cifar10-resnet8"):
        by = {c.group["optimizer"]: (c, r) for c, r in located("published", SHALLUE, workload)}
        base = by.pop("sgd")[1]
        for curve, regimes in by.values():
            longer = ratio(regimes.critical_batch_size, base.critical_batch_size)
            yield Golden(
                key=f"longer {named(curve)}",
                curve=named(curve),
                quantity="critical batch size over SGD's",
                theirs="momentum extends perfect scaling to larger batch sizes",
                place=place,
                ours=ratio_text(longer),
                agrees=longer.low is not None and longer.low > 1,
                rule="the whole interval of the ratio lies above 1",
            )
            same = ratio(regimes.min_examples, base.min_examples)
            yield Golden(
                key=f"same {named(curve)}",
                curve=named(curve),
                quantity="examples to target at small batches, over SGD's",
                theirs="it matches plain SGD at small batch sizes",
                place=place,
                ours=ratio_text(same),
                agrees=same.low is not None and same.high is not None
                and same.low < FLOOR and same.high > 1 / FLOOR,
                rule=f"the interval meets 1/{FLOOR:g} to {FLOOR:g}, what separate searches of one "
                "optimizer differ by",
            )  # fmt: skip


def _everywhere() -> Iterator[Golden]:
    """Perfect scaling, then diminishing returns, then maximal data parallelism."""
    for curve, regimes in located("published", SHALLUE):
        perfect, maximal = regimes.perfect_scaling_until, regimes.maximal_parallelism_from
        said = perfect.reached and maximal.reached
        bounded = not (regimes.small_level and regimes.large_level)
        yield Golden(
            key=f"regimes {named(curve)}",
            curve=named(curve),
            quantity="the three regimes",
            theirs="perfect scaling at the smallest batch sizes, diminishing returns, then none",
            place="Shallue et al. 2019, 4.1 and figure 1 (r)",
            ours=f"perfect until {interval(perfect)}, maximal from {interval(maximal)}",
            agrees=said or (None if bounded else False),
            rule="perfect scaling's end and maximal parallelism's beginning have both ends",
            why=_start(curve),
        )


def _start(curve: Curve) -> str:
    """The evidence of the two smallest batch sizes alone, where the small end is not level."""
    (small, most), (large, least) = ((p.batch_size, p.steps or np.nan) for p in curve.points[:2])
    return (
        f"its digitized points begin at {small} and {large}, where {large / small:.0f} times the "
        f"batch size takes {most / least:.1f} times fewer steps, and smaller ones are not there"
    )


def _models() -> Iterator[Golden]:
    """The Transformer against the LSTM."""
    (_, long), (_, short_) = (
        located("published", SHALLUE, workload)[0]
        for workload in ("lm1b-transformer-base", "lm1b-lstm")
    )
    yield Golden(
        key="models",
        curve="lm1b, Transformer over LSTM",
        quantity="critical batch size over the LSTM's",
        theirs="some models can exploit much larger batch sizes than others",
        place="Shallue et al. 2019, 4.3 and figure 3 (r)",
        ours=ratio_text(ratio(long.critical_batch_size, short_.critical_batch_size)),
        agrees=(ratio(long.critical_batch_size, short_.critical_batch_size).low or 0) > 1,
        rule="the whole interval of the ratio lies above 1",
    )


def _relation() -> Golden:
    off = {}
    for source, definition in ((SHALLUE, None), (ZHANG, "zhang2024")):
        for curve, _ in located("published", source, None, definition):
            off[named(curve)] = scatter(*curve.to_fit())
    within = [name for name, noise_ in off.items() if noise_ <= SINGLE]
    worst = max(off, key=lambda name: off[name])
    return Golden(
        key="relation",
        curve=f"the {len(off)} curves of Shallue et al. and Zhang et al.",
        quantity="scatter about (S/S_min - 1)(E/E_min - 1) = 1",
        theirs=f"the relation holds; within {SINGLE:.0%} for most published curves",
        place="McCandlish et al. 2018; the facts of the packaged data",
        ours=f"within {SINGLE:.0%}: {len(within)} of {len(off)}; the most is "
        f"{off[worst]:.0%} ({worst})",
        agrees=2 * len(within) > len(off),
        rule=f"the root mean square of log steps about it is at most {SINGLE:g} for more than half",
    )


def scatter(sizes: np.ndarray, steps: np.ndarray) -> float:
    """Root mean square of log steps about the best knee of bend 1 through the points (n,)."""
    x, y = np.log(sizes), np.log(steps)
    at, _, _ = beta(Points(x=x, y=y, variance=np.zeros_like(x)))
    off = y - np.logaddexp(0.0, at - x)
    return float(np.sqrt(np.square(off - off.mean()).mean()))


def _noise_scale() -> Golden:
    ours = {
        curve.group["optimizer"]: regimes.critical_batch_size
        for curve, regimes in located("published", SHALLUE, "mnist-simple-cnn")
    }
    values = [critical.value for critical in ours.values() if critical.value is not None]
    return Golden(
        key="noise scale",
        curve="mnist-simple-cnn, its three optimizers",
        quantity="critical batch size against the gradient noise scale",
        theirs="about 900 for MNIST, another network and target",
        place="McCandlish et al. 2018 (r)",
        ours="; ".join(f"{name} {interval(critical)}" for name, critical in ours.items()),
        agrees=len(values) == len(ours)
        and all(1 / ORDER <= value / 900 <= ORDER for value in values),
        rule="the same order of magnitude, a factor of ten: the two are held equal only roughly",
    )


def _plateaus() -> Iterator[Golden]:
    """How far the points of a plateau lie from the fit."""
    for curve, regimes in located("published", SHALLUE):
        start = regimes.maximal_parallelism_from.value
        if start is None:
            continue
        sizes, steps = curve.to_fit()
        flat = sizes >= start
        off = np.log(steps[flat] / regimes.steps(sizes[flat]))
        far = float(np.abs(off).max()) if flat.any() else 0.0
        yield Golden(
            key=f"plateau {named(curve)}",
            curve=named(curve),
            quantity="wobble of the plateau",
            theirs=f"up to ±{WOBBLE:.0%}",
            place="the facts of the packaged data: minima over single seeds",
            ours=f"at most {np.expm1(far):.0%} off the fit, {int(flat.sum())} points from "
            f"{short(start)} on",
            agrees=far <= np.log1p(WOBBLE),
            rule=f"no point of it lies more than {WOBBLE:.0%} off the fitted curve",
        )


def _run_noise() -> Iterator[Golden]:
    for benchmark, theirs in PUBLISHED.items():
        ours = noise(benchmark)
        yield Golden(
            key=f"noise {benchmark}",
            curve=f"{benchmark}, {ours.runs} runs at {ours.sizes} batch sizes",
            quantity="run-to-run coefficient of variation of steps to target",
            theirs=f"{theirs:g} %",
            place="MLPerf reference convergence points, the facts of the packaged data",
            ours=f"{ours.value:.1f} % [{ours.low:.1f}, {ours.high:.1f}], from "
            f"{ours.least:.1f} to {ours.most:.1f} by batch size",
            agrees=ours.low <= theirs <= ours.high,
            rule="theirs lies in the interval: the median over batch sizes of the standard "
            "deviation over the mean, runs drawn again within each batch size",
        )


@dataclass(frozen=True, kw_only=True)
class RunNoise:
    """Of one benchmark, in per cent: the median over its batch sizes of the sample coefficient of
    variation, its 90 % bootstrap interval, and the least and the most of a batch size."""

    value: float
    low: float
    high: float
    least: float
    most: float
    sizes: int
    runs: int


def noise(benchmark: str) -> RunNoise:
    """The run-to-run noise of a packaged benchmark; runs without steps to target are left out."""
    rows = trials("published")
    rows = rows[(rows["workload"] == benchmark) & rows["steps_to_target"].notna()]
    parts = [part.to_numpy() for _, part in rows.groupby("batch_size")["steps_to_target"]]
    return noise_of(parts)


def noise_of(parts: list[Array]) -> RunNoise:
    """The noise of runs by batch size: steps to target (n,) each, of at least two runs."""
    rng = np.random.default_rng(SEED)
    each = np.array([variation(part) for part in parts])
    again = [variation(part[rng.integers(0, len(part), (DRAWS, len(part)))]) for part in parts]
    low, high = np.quantile(np.median(again, axis=0), (0.05, 0.95))
    return RunNoise(
        value=100 * float(np.median(each)),
        low=100 * float(low),
        high=100 * float(high),
        least=100 * float(each.min()),
        most=100 * float(each.max()),
        sizes=len(parts),
        runs=sum(map(len, parts)),
    )


def variation(steps: Array) -> Array:
    """Sample standard deviation over the mean, along the last axis."""
    return np.asarray(steps.std(-1, ddof=1) / steps.mean(-1))
