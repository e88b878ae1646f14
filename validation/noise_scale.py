"""``python -m validation noise-scale``: how well the gradient noise scale predicts the critical
batch size, of the packaged sweeps that recorded it (``results/own/experiments/noise-*.yaml``).

What is compared was decided when the first of these sweeps was there: of each curve the trials at
one batch size, the middle one of those whose trials reached the target, since a user who predicts
does not know the curve; five parts of their trajectory (``analysis.noise.scales.WINDOWS``, and
weighted by improvement); and four uses of it. What is fitted for a curve is fitted on the other
workloads' alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData, Query
from analysis.fit.interval import Interval
from analysis.fit.knee_form import critical_within
from analysis.noise.scales import WINDOWS, Trajectory, by_curve
from results.noise_estimate import NoiseEstimate
from validation.page import ROOT, interval, number, table

PAGE = ROOT / "docs" / "findings" / "noise-scale.md"
WHERE = "experiment LIKE 'noise-%'"
PARTS = (*WINDOWS, "by improvement")
NOT_FIELDS = ("workload", "dataset", "model", "optimizer", "schedule", "technique")
NOTHING = "no prediction: the median of all"
FORMS = ("form-free", "knee")
RESAMPLES = 2000
Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Case:
    """A curve: what was measured, and what was predicted of it."""

    curve: Curve
    variant: str
    """Its workload, with the fields that tell it from other curves of that workload."""
    trajectory: Trajectory
    """At the middle batch size."""
    critical: Interval
    """The critical batch size without a form: a bound, or open, where an end of the curve is not
    level."""
    knee: Interval
    """That of the knee, an assumed form, which has a value there too; open where that lies beyond
    the tested batch sizes."""

    @property
    def workload(self) -> str:
        return str(self.curve.group["workload"])

    @property
    def optimizer(self) -> str:
        return str(self.curve.group["optimizer"])

    def measured(self, form: str) -> float | None:
        """The critical batch size that predictions are held against."""
        return (self.knee if form == "knee" else self.critical).value

    def noise(self, part: str) -> NoiseEstimate | None:
        """The noise scale of a part of the trajectory."""
        return (
            self.trajectory.by_improvement()
            if part not in WINDOWS
            else self.trajectory.between(*WINDOWS[part])
        )


def cases(source: Any = "own", where: str = WHERE) -> list[Case]:
    """The curves whose trials recorded their noise scale."""
    curves = by_curve(FigureData(Query(sources=[source], where=where)))
    groups = pd.DataFrame([dict(curve.group) for curve, *_ in curves])
    fields = [str(name) for name in groups if name not in NOT_FIELDS]
    made = []
    for curve, fit, trajectories in curves:
        workload = str(curve.group["workload"])
        of_workload = groups[groups["workload"] == workload]
        varied = [name for name in fields if of_workload[name].nunique() > 1]
        named = (f"{n.removeprefix('fields.')} {_plain(curve.group[n])}" for n in varied)
        trajectory = trajectories[len(trajectories) // 2]
        critical, knee = Interval(), Interval()
        if fit is not None:
            critical, knee = fit.critical_batch_size, critical_within(fit)
        variant = ", ".join([workload, *named])
        made.append(
            Case(curve=curve, variant=variant, trajectory=trajectory, critical=critical, knee=knee)
        )
    return made


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


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


PREDICTIONS = {
    "itself": _itself,
    "times a factor": _factor,
    "times a factor of the optimizer": _factor_by_optimizer,
    "a power of it": _power,
    NOTHING: _nothing,
}
Prediction = tuple[Case, float]
"""A curve, and the log of its predicted critical batch size."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """By which factor predictions miss, up or down."""

    curves: int
    median: Interval
    """With its interval at 90 %, by resampling workloads with their curves."""
    ninth: float
    """The factor that 90 % of them stay within."""
    shift: float
    """The median of prediction over measurement."""
    ended: int
    """Curves whose critical batch size without a form has an end."""
    held: int
    """Those whose ends the prediction is within."""


def predictions(part: str, how: str, given: Sequence[Case]) -> list[Prediction]:
    """Each curve predicted from those of the other workloads."""
    known = [
        (case, np.log(noise.noise_scale))
        for case in given
        if (noise := case.noise(part)) and noise.noise_scale > 0
    ]
    cases = [case for case, _ in known]
    x = np.array([log for _, log in known])
    y = np.log([case.knee.value or np.nan for case in cases])
    workloads = np.array([case.workload for case in cases])
    optimizers = np.array([case.optimizer for case in cases])
    predicted = np.empty(len(known))
    for name in np.unique(workloads):
        own = workloads == name
        others = ~own & np.isfinite(y)
        fitted = PREDICTIONS[how](x[others], y[others], list(optimizers[others]))
        predicted[own] = fitted(x[own], list(optimizers[own]))
    return list(zip(cases, map(float, predicted), strict=True))


def chosen(given: Sequence[Case]) -> list[Prediction]:
    """Each workload by the part and the prediction that miss least among the others, so that their
    choice is no part of the score."""
    uses = [(part, how) for part in PARTS for how in PREDICTIONS if how != NOTHING]
    made = []
    for name in dict.fromkeys(case.workload for case in given):
        others = [case for case in given if case.workload != name]
        misses = [np.median(np.abs(_errors(predictions(*use, others)))) for use in uses]
        best = uses[int(np.argmin(misses))]
        made += [each for each in predictions(*best, given) if each[0].workload == name]
    return made


def _errors(made: Sequence[Prediction]) -> Array:
    """Logs of prediction over knee, where that has a value."""
    return np.array([log - np.log(knee) for case, log in made if (knee := case.knee.value)])


def score(made: Sequence[Prediction]) -> Score:
    """Predictions held against the knee, and against the ends of the critical batch size without a
    form."""
    errors = _errors(made)
    size = np.abs(errors)
    names = np.array([case.workload for case, _ in made if case.knee.value])
    blocks = [size[names == name] for name in dict.fromkeys(names)]
    draw = np.random.default_rng(40)
    picked = draw.integers(0, len(blocks), (RESAMPLES, len(blocks)))
    medians = [np.median(np.concatenate([blocks[i] for i in row])) for row in picked]
    low, high = np.quantile(medians, (0.05, 0.95))
    ended = [case.critical.holds(np.exp(log)) for case, log in made if not case.critical.is_open]
    return Score(
        curves=len(size),
        median=Interval.of_logs(float(np.median(size)), float(low), float(high)),
        ninth=float(np.exp(np.quantile(size, 0.9))),
        shift=float(np.exp(np.median(errors))),
        ended=len(ended),
        held=sum(ended),
    )


def tables(source: Any = "own") -> dict[str, str]:
    """What docs/findings/noise-scale.md has."""
    given = cases(source)
    return {
        "scores": _scores(given),
        "workloads": _workloads(given),
        "optimizers": _optimizers(given),
        "curves": _curves(given),
    }


def _scores(given: Sequence[Case]) -> str:
    """A row a part of the trajectory and a use of it."""
    uses = [(part, how) for part in PARTS for how in PREDICTIONS if how != NOTHING]
    named = [
        *((part, how, predictions(part, how, given)) for part, how in uses),
        ("chosen", "chosen on the other workloads", chosen(given)),
        ("–", NOTHING, predictions("path", NOTHING, given)),
    ]
    rows = []
    for part, how, each in named:
        made = score(each)
        row: list[object] = [part, how, made.curves, interval(made.median)]
        row += [f"{made.ninth:.3g}", f"{made.shift:.2g}", f"{made.held} of {made.ended}"]
        rows.append(row)
    head = ("part of the trajectory", "prediction", "curves", "median factor", "90 % within")
    return table((*head, "predicted / measured", "within the form-free ends"), rows)


def _workloads(given: Sequence[Case]) -> str:
    """By how much the row *chosen* misses, and no prediction: a row a workload."""
    made, none = chosen(given), predictions("path", NOTHING, given)
    rows: list[list[object]] = []
    for name in dict.fromkeys(case.workload for case in given):
        own, by_none = ([each for each in of if each[0].workload == name] for of in (made, none))
        scored = [case for case, _ in own if case.knee.value]
        misses = (np.exp(np.median(np.abs(_errors(each)))) for each in (own, by_none))
        variants = len({case.variant for case in scored})
        rows.append([name, variants, len(scored), *(f"{miss:.2g}" for miss in misses)])
    return table(("workload", "variants", "curves", "chosen misses by", NOTHING), rows)


def _optimizers(given: Sequence[Case]) -> str:
    """Measured over noise scale of the whole trajectory, by optimizer."""
    rows = []
    for name in dict.fromkeys(case.optimizer for case in given):
        row: list[object] = [name]
        for form in FORMS:
            ratios = [
                critical / noise.noise_scale
                for case in given
                if case.optimizer == name
                and (critical := case.measured(form))
                and (noise := case.noise("path"))
                and noise.noise_scale > 0
            ]
            row.append(len(ratios))
            if ratios:
                low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
                row += [f"{middle:.2g}", f"{low:.2g} to {high:.2g}"]
            else:
                row += ["–", "–"]
        rows.append(row)
    of_form = [(f"{form}: curves", "median ratio", "80 % of curves") for form in FORMS]
    return table(("optimizer", *of_form[0], *of_form[1]), rows)


def _curves(given: Sequence[Case]) -> str:
    """A row a curve."""
    rows = []
    for case in given:
        noise = case.noise("path")
        rows.append(
            [
                case.variant,
                case.optimizer,
                interval(case.critical),
                interval(case.knee),
                "–" if noise is None else _estimate(noise),
                case.trajectory.point.batch_size,
            ]
        )
    return table(
        (
            *("workload", "optimizer", "critical batch size", "by the knee"),
            *("noise scale", "of trials at batch size"),
        ),
        rows,
    )


def _estimate(noise: NoiseEstimate) -> str:
    low, high = (("open" if end is None else number(end)) for end in (noise.low, noise.high))
    return f"{number(noise.noise_scale)} [{low}, {high}]"
