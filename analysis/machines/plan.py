"""Time and money to the target by the number of devices, each with the batch size that is best.

Seconds to target are S(B) · t(n, B): the steps of the fitted curve (``analysis.fit.locate``), which
need no form, times the seconds of a step (``step_time``). Of n devices the batch size is taken at
which that is least, of those that were tested and between them. The interval is that of S at this
batch size, joined with that of t in quadrature of logs, which assumes independent errors; that the
batch size was chosen by the same curve is not in it. What one number of devices saves over another
is of one curve: the interval of S(B)/S(B') is the curve's own.

Nothing is extrapolated. Where the best batch size is the smallest or the largest that was tested,
and the curve is not level there, the time is an upper bound: beyond it may be a better one. So it
is where it is the smallest or the largest of several with a measured step time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.curves.curve import Curve
from analysis.fit.comparisons import log_ratio
from analysis.fit.interval import Interval
from analysis.fit.locate import Located
from analysis.fit.regimes import Regimes
from analysis.machines.step_time import StepTime
from analysis.notes import Note, codes
from results.errors import ResultsError

LEVEL = 0.9
NOTHING = 0.05
"""The share of the time that more devices must save to be said to gain something."""
_A_DOUBLING = 8
"""Batch sizes that are compared."""
_HOUR = 3600.0
_NO_TIME = ("relative", "grows", "met_at_start")
"""Notes on curves whose steps are none, or of one batch size none."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A number of devices with its best batch size."""

    curve: str
    devices: int
    batch_size: int
    step_seconds: float
    steps: Interval
    seconds: Interval
    """To the target; a bound above where a better batch size may lie beyond the tested ones."""
    cost: Interval | None
    """Of all devices over that time."""
    saves: Interval | None = None
    """The share of the time that is saved against the next smaller number of devices; None of the
    first one, without an end where one of the two times is a bound."""
    frontier: bool = False
    """Whether no other choice, of any curve, is known to be both quicker and cheaper, which of a
    bound none is."""

    @property
    def is_bound(self) -> bool:
        return self.seconds.value is None

    def to_dict(self) -> dict[str, Any]:
        """As ``batchscale.plan`` returns it."""
        return {
            "devices": self.devices,
            "batch_size": self.batch_size,
            "step_seconds": self.step_seconds,
            "steps": self.steps.to_dict(),
            "seconds": self.seconds.to_dict(),
            "cost": None if self.cost is None else self.cost.to_dict(),
            "saves": None if self.saves is None else self.saves.to_dict(),
            "frontier": self.frontier,
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The choices of one curve."""

    group: Mapping[str, Any]
    label: str
    target: str
    unit: str
    choices: tuple[Choice, ...]
    """By ascending number of devices; without those of which no step time is known."""
    enough: Interval
    """The least number of devices that takes at most ``NOTHING`` more time than the quickest; a
    bound below where its time, or that of more devices, is a bound itself."""
    notes: tuple[Note, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As ``batchscale.plan`` returns it."""
        return {
            **self.group,
            "label": self.label,
            "target": self.target,
            "unit": self.unit,
            "choices": [choice.to_dict() for choice in self.choices],
            "enough": self.enough.to_dict(),
            "level": LEVEL,
            "notes": list(self.notes),
            "note_codes": codes(self.notes),
        }


def plans(
    curves: Sequence[Curve],
    fits: Sequence[Regimes | None],
    times: StepTime,
    devices: Sequence[int],
    *,
    price: float | None = None,
    unit: str = "examples",
) -> list[Plan]:
    """A plan of each curve that has a fit, and a step time for any of ``devices``.

    Args:
        devices: ascending.
        price: of a device, an hour.
        unit: what batch sizes count.

    Raises:
        ResultsError: steps of a curve that say nothing of the time.
    """
    fitted = [(curve, fit) for curve, fit in zip(curves, fits, strict=True) if fit is not None]
    for curve, fit in fitted:
        if why := next((note for note in fit.notes if note.code in _NO_TIME), None):
            hint = "leave this curve out by --where"
            raise ResultsError(f"{curve.label}: its time is not known: {why}", hint=hint)
    made = [_plan(curve, fit, times, devices, price, unit) for curve, fit in fitted]
    made = [plan for plan in made if plan.choices]
    on = set[int]()
    for competing in alike(made).values():
        on |= _frontier([choice for plan in competing for choice in plan.choices])
    return [
        replace(plan, choices=tuple(replace(c, frontier=id(c) in on) for c in plan.choices))
        for plan in made
    ]


def of_another(plan: Plan, **values: str) -> Plan:
    """A plan of the curve of ``workload`` that is taken for that of ``name``, and ``why``."""
    return replace(plan, notes=(Note("other_workload", **values), *plan.notes))


def alike(made: Sequence[Plan]) -> dict[str, list[Plan]]:
    """Plans for one workload, data set and target: their curves compete."""
    questions: dict[str, list[Plan]] = {}
    for plan in made:
        workload, data = (str(plan.group.get(name) or "") for name in ("workload", "dataset"))
        named = workload if data in ("", workload) else f"{workload} on {data}"
        questions.setdefault(", ".join(filter(None, (named, plan.target))), []).append(plan)
    return questions


def _plan(
    curve: Curve,
    fit: Regimes,
    times: StepTime,
    devices: Sequence[int],
    price: float | None,
    unit: str,
) -> Plan:
    located = fit.located
    several = next((note for note in fit.notes if note.code == "gradients"), None)
    times = times if several is None else times.of_gradients(several.values["n"])
    bests = [_best(curve.label, located, times, n) for n in devices]
    known = [each for each in bests if each is not None]
    choices: list[Choice] = []
    for at, each in enumerate(known):
        choice = each.choice(located, price)
        if at:
            choice = replace(choice, saves=_saved(located, known[at - 1], each))
        choices.append(choice)
    notes = [*filter(None, [several]), *times.notes(curve.label)]
    if lost := [n for n, each in zip(devices, bests, strict=True) if each is None]:
        notes.append(Note("no_step_time", devices=", ".join(map(str, lost))))
    if any(choice.is_bound for choice in choices):
        notes.append(Note("best_at_end"))
    if choices and not any(each.half for each in known):
        notes.append(Note("exact_step_time"))
    return Plan(
        group=curve.group,
        label=curve.label,
        target=str(curve.target) if curve.target is not None else "",
        unit=unit,
        choices=tuple(choices),
        enough=_enough(choices),
        notes=tuple(notes),
    )


@dataclass(frozen=True, kw_only=True)
class _Best:
    """The best batch size of a number of devices."""

    curve: str
    devices: int
    x: float
    """Its log."""
    seconds: float
    """Of a step."""
    half: float
    """Half the width of the interval of their log, by Student's t."""
    is_end: bool
    """Whether a better one may lie beyond the tested or the measured ones."""

    def choice(self, located: Located, price: float | None) -> Choice:
        value, low, high = located.steps_at(self.x, LEVEL)
        of_step = math.log(self.seconds)
        logs = (
            value + of_step,
            value + of_step - math.hypot(value - low, self.half),
            value + of_step + math.hypot(high - value, self.half),
        )
        seconds = Interval.of_logs(*logs)
        if self.is_end:
            seconds = Interval(high=seconds.high)
        cost = None
        if price is not None:
            rate = price * self.devices / _HOUR
            cost = Interval(**{k: end and end * rate for k, end in seconds.to_dict().items()})
        return Choice(
            curve=self.curve,
            devices=self.devices,
            batch_size=round(math.exp(self.x)),
            step_seconds=self.seconds,
            steps=Interval.of_logs(value, low, high),
            seconds=seconds,
            cost=cost,
        )


def _best(curve: str, located: Located, times: StepTime, devices: int) -> _Best | None:
    from scipy.special import stdtrit  # a third of a second to import: not at start

    first, last = located.points.span
    count = max(2, math.ceil((last - first) / math.log(2) * _A_DOUBLING))
    more = np.log(times.sizes(curve, devices))
    inside = more[(more >= first - 1e-9) & (more <= last + 1e-9)]
    # Whole batch sizes; the tested ones are among them.
    sizes = np.round(np.exp(np.concatenate([np.linspace(first, last, count), inside])))
    sizes = np.unique(np.concatenate([sizes, np.round(np.exp(located.points.x))]))
    share = devices if times.even else 1
    least, most = np.ceil(sizes[0] / share) * share, np.floor(sizes[-1] / share) * share
    shared = np.concatenate([np.floor(sizes / share), np.ceil(sizes / share)]) * share
    sizes = np.union1d(sizes, shared[(shared >= least) & (shared <= most)])
    x = np.clip(np.log(sizes), first, last)
    seconds, errors = times.seconds(curve, devices, sizes)
    known = np.flatnonzero(np.isfinite(seconds))
    if not len(known):
        return None
    fit = located.fits.best
    logs = np.array([fit.log_steps(float(each)) for each in x[known]]) + np.log(seconds[known])
    at = known[int(logs.argmin())]
    # An end of the curve is the last batch size of its shares: that of the next was not tested.
    is_first = known[0] == 0 and sizes[at] <= least
    is_last = known[-1] == len(x) - 1 and sizes[at] >= most
    # One beyond several that were measured may be better; a single one is what is asked about.
    below, above = len(more) > 1 and at == known[0], len(more) > 1 and at == known[-1]
    if is_first:
        below = sizes[at] > share and not located.small_level  # no share is below one example
    if is_last:
        above = not located.large_level
    return _Best(
        curve=curve,
        devices=devices,
        x=float(x[at]),
        seconds=float(seconds[at]),
        half=float(stdtrit(times.freedom, (1 + LEVEL) / 2) * errors[at]),
        is_end=bool(below or above),
    )


def _saved(located: Located, fewer: _Best, more: _Best) -> Interval:
    """1 - T(more)/T(fewer)."""
    if fewer.is_end or more.is_end:
        return Interval()
    value, low, high = located.steps_ratio(more.x, fewer.x, LEVEL)
    of_step = math.log(more.seconds / fewer.seconds)
    half = math.hypot(more.half, fewer.half)
    return Interval(
        value=-math.expm1(value + of_step),
        low=-math.expm1(value + of_step + math.hypot(high - value, half)),
        high=-math.expm1(value + of_step - math.hypot(value - low, half)),
    )


def time_of(choice: Choice) -> float:
    """The estimate, or the bound."""
    value, _, high = choice.seconds.ends
    return float(value if value is not None else high or math.inf)


def _enough(choices: Sequence[Choice]) -> Interval:
    if not choices:
        return Interval()
    most = min(map(time_of, choices)) * (1 + NOTHING)
    at, first = next((i, each) for i, each in enumerate(choices) if time_of(each) <= most)
    if first is choices[-1] or any(each.is_bound for each in choices[at:]):
        may_be = next(each for each in choices if each.is_bound or each is first)
        return Interval(low=float(may_be.devices))
    return Interval(value=float(first.devices))


def _frontier(choices: Sequence[Choice]) -> set[int]:
    """The choices that no other one is known to beat in both time and cost: their ids."""
    on: set[int] = set()
    cheapest = math.inf
    for choice in sorted(choices, key=lambda c: (time_of(c), c.devices)):
        cost = time_of(choice) * choice.devices
        if choice.is_bound or cost < cheapest * (1 - 1e-12):
            on.add(id(choice))
        cheapest = min(cheapest, cost)
    return on


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The quickest curve at a number of devices."""

    question: str
    """The workload, the data and the target."""
    devices: int
    curve: str
    significant: bool | None
    """Whether it is quicker than each of the others by their intervals; None where one is a bound,
    or there is no other."""


def winners(made: Sequence[Plan]) -> list[Winner]:
    """The quickest curve at each number of devices that several have."""
    won = []
    for question, competing in alike(made).items():
        choices = [choice for plan in competing for choice in plan.choices]
        for n in sorted({choice.devices for choice in choices}):
            here = [choice for choice in choices if choice.devices == n]
            if len(here) < 2:
                continue
            best, *others = sorted(here, key=time_of)
            bounded = any(choice.is_bound for choice in here)
            apart = None if bounded else all(_is_quicker(best, other) for other in others)
            won.append(Winner(question=question, devices=n, curve=best.curve, significant=apart))
    return won


def _is_quicker(best: Choice, other: Choice) -> bool:
    """Whether the ratio of two curves' times is below 1 by its interval (Zou & Donner 2008)."""
    first, second = (
        tuple(np.log(np.array([float(end or math.nan)])) for end in choice.seconds.ends)
        for choice in (best, other)
    )
    _, _, high = log_ratio(first, second)
    return bool(high[0] < 0)
