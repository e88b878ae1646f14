"""``python -m validation noise-scale``: how well the gradient noise scale predicts the critical batch
size, of the packaged sweeps that recorded it (``results/own/experiments/noise-*.yaml``).

What is compared was decided before these sweeps were trained: of each curve the trials at one batch
size, the middle one of those whose trials reached the target, since a user who predicts does not
know the curve; five parts of their way (``analysis.noise.scales.WINDOWS``, and weighted by
improvement); and four ways to make a critical batch size of it. What is fitted for a curve is
fitted on the other workloads' alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData, Query
from analysis.fit.interval import Interval
from analysis.noise.scales import WINDOWS, Way, by_curve
from results.noise_estimate import NoiseEstimate
from validation.page import ROOT, interval, number, table

PAGE = ROOT / "docs" / "findings" / "noise-scale.md"
WHERE = "experiment LIKE 'noise-%'"
PARTS = (*WINDOWS, "by improvement")
RESAMPLES = 2000
Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Case:
    """A curve: what was measured, and what was predicted of it."""

    curve: Curve
    way: Way
    """At the middle batch size."""
    critical: Interval
    """The form-free critical batch size."""
    knee: float | None
    """That of the knee, an assumed form, where the form-free one is a bound."""

    @property
    def workload(self) -> str:
        return str(self.curve.group["workload"])

    @property
    def variant(self) -> str:
        """Its workload with the fields that tell it from others."""
        named = [str(v) for k, v in self.curve.group.items() if k.startswith("fields.")]
        return " ".join([self.workload, *named])

    @property
    def optimizer(self) -> str:
        return str(self.curve.group["optimizer"])

    def noise(self, part: str) -> NoiseEstimate | None:
        """The noise scale of a part of the way."""
        return (
            self.way.by_improvement() if part not in WINDOWS else self.way.between(*WINDOWS[part])
        )


def cases(source: Any = "own", where: str = WHERE) -> list[Case]:
    """The curves whose trials recorded their noise scale."""
    made = []
    for curve, fit, ways in by_curve(FigureData(Query(sources=[source], where=where))):
        way = ways[len(ways) // 2]
        knee = None if fit is None else fit.best.get("critical_batch_size")
        critical = Interval() if fit is None else fit.critical_batch_size
        made.append(Case(curve=curve, way=way, critical=critical, knee=knee))
    return made


# From a noise scale to a critical batch size. Each is fitted on logs x of noise scales, logs y of
# critical batch sizes and optimizers of other workloads, and gives the y of some x and optimizers.

Fitted = Callable[[Array, Sequence[str]], Array]


def _itself(x: Array, y: Array, optimizers: Sequence[str]) -> Fitted:
    del x, y, optimizers
    return lambda x, _: x


def _factor(x: Array, y: Array, optimizers: Sequence[str]) -> Fitted:
    del optimizers
    shift = float(np.median(y - x))
    return lambda x, _: x + shift


def _factor_by_optimizer(x: Array, y: Array, optimizers: Sequence[str]) -> Fitted:
    of_all = float(np.median(y - x))
    names = np.array(optimizers)
    shifts = {str(n): float(np.median((y - x)[names == n])) for n in np.unique(names)}
    return lambda x, names: x + np.array([shifts.get(name, of_all) for name in names])


def _power(x: Array, y: Array, optimizers: Sequence[str]) -> Fitted:
    del optimizers
    slope, level = np.polyfit(x, y, 1)
    return lambda x, _: slope * x + level


def _nothing(x: Array, y: Array, optimizers: Sequence[str]) -> Fitted:
    del x, optimizers
    middle = float(np.median(y))
    return lambda x, _: np.full(len(x), middle)


WAYS = {
    "itself": _itself,
    "times a factor": _factor,
    "times a factor of the optimizer": _factor_by_optimizer,
    "a power of it": _power,
    "no prediction: the median of all": _nothing,
}


@dataclass(frozen=True, kw_only=True)
class Score:
    """By which factor predictions miss, up or down."""

    curves: int
    median: Interval
    """With its interval at 90 %, by resampling variants of workloads."""
    ninth: float
    """The factor that 90 % of them stay within."""
    shift: float
    """The median of prediction over measurement."""


def score(part: str, how: str, given: Sequence[Case]) -> Score:
    """Of the curves that have both numbers, each predicted from those of the other workloads."""
    known = [
        (case, noise.noise_scale, case.critical.value)
        for case in given
        if case.critical.value and (noise := case.noise(part)) and noise.noise_scale > 0
    ]
    x = np.log([noise for _, noise, _ in known])
    y = np.log([critical for _, _, critical in known])
    workloads = np.array([case.workload for case, *_ in known])
    optimizers = np.array([case.optimizer for case, *_ in known])
    errors = np.empty(len(known))
    for name in np.unique(workloads):
        own = workloads == name
        fitted = WAYS[how](x[~own], y[~own], list(optimizers[~own]))
        errors[own] = fitted(x[own], list(optimizers[own])) - y[own]
    variants = [np.flatnonzero([c.variant == n for c, *_ in known])
                for n in dict.fromkeys(case.variant for case, *_ in known)]  # fmt: skip
    draw = np.random.default_rng(40)
    medians = [
        np.median(
            np.abs(
                errors[
                    np.concatenate(
                        [variants[i] for i in draw.integers(0, len(variants), len(variants))]
                    )
                ]
            )
        )
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(medians, (0.05, 0.95))
    return Score(
        curves=len(known),
        median=Interval.of_logs(float(np.median(np.abs(errors))), float(low), float(high)),
        ninth=float(np.exp(np.quantile(np.abs(errors), 0.9))),
        shift=float(np.exp(np.median(errors))),
    )


def tables(source: Any = "own") -> dict[str, str]:
    """What docs/findings/noise-scale.md has."""
    given = cases(source)
    return {"scores": _scores(given), "optimizers": _optimizers(given), "curves": _curves(given)}


def _scores(given: Sequence[Case]) -> str:
    """A row a part of the way and a use of it."""
    pairs = [
        (part, how) for part in PARTS for how in WAYS if how != "no prediction: the median of all"
    ]
    pairs.append(("path", "no prediction: the median of all"))
    rows = []
    for part, how in pairs:
        made = score(part, how, given)
        said = "–" if how.startswith("no prediction") else part
        rows.append(
            [
                said,
                how,
                made.curves,
                interval(made.median),
                f"{made.ninth:.3g}",
                f"{made.shift:.2g}",
            ]
        )
    head = (
        "part of the way",
        "prediction",
        "curves",
        "median factor",
        "90 % within",
        "prediction / measured",
    )
    return table(head, rows)


def _optimizers(given: Sequence[Case]) -> str:
    """Measured over noise scale of the whole way, by optimizer."""
    rows = []
    for name in dict.fromkeys(case.optimizer for case in given):
        ratios = [
            case.critical.value / noise.noise_scale
            for case in given
            if case.optimizer == name
            and case.critical.value
            and (noise := case.noise("path"))
            and noise.noise_scale > 0
        ]
        if ratios:
            low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
            rows.append([name, len(ratios), f"{middle:.2g}", f"{low:.2g} to {high:.2g}"])
    return table(
        ("optimizer", "curves", "critical batch size / noise scale", "80 % of curves"), rows
    )


def _curves(given: Sequence[Case]) -> str:
    """A row a curve."""
    rows = []
    for case in given:
        noise = case.noise("path")
        knee = "" if case.critical.value or not case.knee else f" (knee: {number(case.knee)})"
        rows.append(
            [
                case.variant,
                case.optimizer,
                interval(case.critical) + knee,
                case.way.point.batch_size,
                "–" if noise is None else _estimate(noise),
            ]
        )
    return table(
        ("workload", "optimizer", "critical batch size", "at batch size", "noise scale"), rows
    )


def _estimate(noise: NoiseEstimate) -> str:
    low, high = (("open" if end is None else number(end)) for end in (noise.low, noise.high))
    return f"{number(noise.noise_scale)} [{low}, {high}]"
