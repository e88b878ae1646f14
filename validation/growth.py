"""``python -m validation growth``: does the critical batch size grow with the excess loss, the
data or the size of a model? Exponents of power laws, of the packaged sweeps ``growth-*``.

How they are estimated was decided before these sweeps were trained (docs/findings/questions.md).
Targets of one sweep share its trials, so that a line through them has errors that are correlated;
its slope is one estimate, and those of the widths, which share no trial, give the interval of their
mean (``analysis.fit.random_effects``). Against size the widths themselves are a line's points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData, Query
from analysis.fit.interval import Interval
from analysis.fit.knee_form import critical_within
from analysis.fit.laws import LEAST, line
from analysis.fit.random_effects import mean
from analysis.fit.regimes import Regimes
from results.reader import open as open_results
from validation.page import ROOT, interval, table

PAGE = ROOT / "docs" / "findings" / "growth.md"
EXPERIMENTS = {
    "teacher": "growth-teacher",
    "markov": "growth-markov",
    "lm-transformer": "growth-text",
}
PARAMETERS = {
    "teacher": {16: 289, 32: 577, 64: 1153, 128: 2305},
    "markov": {16: 596, 32: 1188, 64: 2372, 128: 4740},
    "lm-transformer": {16: 7920, 24: 14184, 40: 31320, 64: 68544},
}
"""Of each width, so that no model is made here."""
FORMS = ("form-free", "tested range", "knee")
"""The regimes' critical batch size; the fewest examples over the fewest steps within the tested
batch sizes, which needs no form either and is there where an end is not level; and the knee's."""
BY_LOSS = {"teacher", "markov"}
"""Workloads whose least loss is known, so that a target is an excess loss."""
PUBLISHED = (0.38, 0.46, 0.47, 0.57)
"""Exponents against data: 0.46 (arXiv:2505.13738) and 0.47 (arXiv:2410.21676) of critical batch
sizes, 0.38 (arXiv:2505.13738) and 0.57 (arXiv:2503.04715) of the best ones."""
NARROW = 0.15
"""The half width below which an exponent is an answer."""
_NORMAL = float(ndtri(0.95))


@dataclass(frozen=True, kw_only=True)
class Critical:
    """The critical batch size of one sweep at one of its targets."""

    workload: str
    optimizer: str
    width: int
    parameters: int
    target: float
    examples: float
    """To the target at the smallest batch size."""
    critical: Mapping[str, Interval]
    """By form; open where one has no value between two ends."""


def criticals(source: Any = "own") -> list[Critical]:
    """Of every curve and target that was reached at enough batch sizes, of what is trained."""
    trained = set(open_results(source).studies["experiment"])
    return [
        _critical(curve, fit)
        for experiment in EXPERIMENTS.values()
        if experiment in trained
        for target in _targets(source, experiment)
        for curve, fit in _at(source, experiment, target).pairs
        if fit is not None
    ]


def _at(source: Any, experiment: str, target: str | None = None) -> FigureData:
    where = f"experiment = '{experiment}'"
    return FigureData(Query(sources=(source,), where=where, target=target))


def _targets(source: Any, experiment: str) -> list[str]:
    return [str(goal) for goal in _at(source, experiment).goals]


def _critical(curve: Curve, fit: Regimes) -> Critical:
    group, first = curve.group, min(curve.points, key=lambda point: point.batch_size)
    free, knee = fit.critical_batch_size, critical_within(fit)
    assert curve.target is not None
    assert first.steps is not None
    width = int(next(v for name, v in group.items() if name.removeprefix("fields.") == "width"))
    return Critical(
        workload=str(group["workload"]),
        optimizer=str(group["optimizer"]),
        width=width,
        parameters=PARAMETERS[str(group["workload"])][width],
        target=curve.target.value,
        examples=first.steps * first.batch_size,
        critical={
            "form-free": free if free.reached and free.value is not None else Interval(),
            "tested range": _interval(fit),
            "knee": knee if knee.reached else Interval(),
        },
    )


def _interval(fit: Regimes) -> Interval:
    """Within the tested batch sizes; open where an end of it is."""
    ends = fit.located.tested("critical_batch_size", 0.9)
    return Interval.of_logs(*ends) if np.isfinite(ends).all() else Interval()


def along(given: Sequence[Critical], x: Callable[[Critical], float], form: str) -> Interval:
    """The mean over widths of the exponents against x, each of one width's targets; open with
    fewer than three widths that have three targets."""
    slopes = [
        made
        for width in dict.fromkeys(each.width for each in given)
        if (made := _slope([each for each in given if each.width == width], x, form)) is not None
    ]
    if len(slopes) < LEAST:
        return Interval()
    values, errors = np.array(slopes).T
    value, low, high = mean(values, errors)
    return Interval(value=value, low=low, high=high)


def by_size(given: Sequence[Critical], form: str) -> tuple[Interval, float | None]:
    """The exponent against the number of parameters, and the target: the hardest at which as many
    widths have a value as at any."""
    targets = dict.fromkeys(sorted(each.target for each in given))
    known = {t: sum(each.target == t and each.critical[form].reached for each in given)
             for t in targets}  # fmt: skip
    if not known or max(known.values()) < LEAST:
        return Interval(), None
    target = next(t for t in targets if known[t] == max(known.values()))
    rows = _logs([each for each in given if each.target == target],
                 lambda each: float(each.parameters), form)  # fmt: skip
    fitted = line(*rows)
    by = fitted.slope_by
    return Interval(value=fitted.slope, low=fitted.slope - by, high=fitted.slope + by), target


def _slope(
    given: Sequence[Critical], x: Callable[[Critical], float], form: str
) -> tuple[float, float] | None:
    """The exponent of one width, and its standard error as if the targets were independent."""
    rows = _logs(given, x, form)
    if len(rows[0]) < LEAST:
        return None
    fitted = line(*rows)
    return fitted.slope, fitted.slope_error


def _logs(
    given: Sequence[Critical], x: Callable[[Critical], float], form: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of those with a value log x, log critical batch size and its standard error."""
    known = [each for each in given if each.critical[form].reached]
    ends = np.log(np.array([each.critical[form].ends for each in known], dtype=float))
    ends = ends.reshape(-1, 3)
    at = np.log([x(each) for each in known])
    return at, ends[:, 0], (ends[:, 2] - ends[:, 1]) / (2 * _NORMAL)


def tables(source: Any = "own") -> dict[str, str]:
    """What docs/findings/growth.md has."""
    given = criticals(source)
    return {"exponents": _exponents(given), "sizes": _sizes(given)}


def _exponents(given: Sequence[Critical]) -> str:
    def rows() -> Iterator[list[object]]:
        for (workload, optimizer), own in _groups(given):
            for form in FORMS:
                loss = along(own, lambda each: each.target, form) if workload in BY_LOSS else None
                data = along(own, lambda each: each.examples, form)
                hardest = sorted({each.target for each in own})[:LEAST]  # of losses
                harder = [each for each in own if each.target in hardest]
                late = along(harder, lambda each: each.examples, form)
                size, target = by_size(own, form)
                yield [
                    workload, f"`{optimizer}`", form, "not known" if loss is None else _text(loss),
                    _text(data), _agrees(data), _text(late),
                    _text(size) + ("" if target is None else f" at {target:g}"),
                ]  # fmt: skip

    head = ("workload", "optimizer", "form", "excess loss", "examples", "holds")
    return table((*head, "examples, three hardest targets", "parameters"), rows())


def _agrees(exponent: Interval) -> str:
    """The published exponents against data that lie in the interval."""
    low, high = exponent.low, exponent.high
    if low is None or high is None:
        return "–"
    return ", ".join(f"{p:g}" for p in PUBLISHED if low <= p <= high) or "none"


def _text(exponent: Interval) -> str:
    """``0.47 [0.36, 0.58]``, marked where it is no answer."""
    if exponent.value is None or exponent.low is None or exponent.high is None:
        return "open"
    wide = " ‡" if exponent.high - exponent.value > NARROW else ""
    return f"{exponent.value:.2f} [{exponent.low:.2f}, {exponent.high:.2f}]{wide}"


def _sizes(given: Sequence[Critical]) -> str:
    """Critical batch sizes by the knee: a row a workload, optimizer and width, a column a target
    from the easiest."""

    def rows() -> Iterator[list[object]]:
        for (workload, optimizer), own in _groups(given):
            targets = sorted({each.target for each in own}, reverse=True)
            for width in sorted({each.width for each in own}):
                cells = {e.target: e.critical["knee"] for e in own if e.width == width}
                texts = [interval(cells[t]) if t in cells else "–" for t in targets]
                yield [f"{workload} {width}", f"`{optimizer}`", *texts, *["–"] * (5 - len(texts))]

    return table(("workload, width", "optimizer", *(f"target {n}" for n in range(1, 6))), rows())


def _groups(given: Sequence[Critical]) -> Iterator[tuple[tuple[str, str], list[Critical]]]:
    for key in dict.fromkeys((each.workload, each.optimizer) for each in given):
        yield key, [each for each in given if (each.workload, each.optimizer) == key]
