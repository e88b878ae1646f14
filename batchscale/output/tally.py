"""The numbers of a running sweep, from its messages alone."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from experiments.scheduling import messages
from results.counts import count

_RATE_SECONDS = 20.0
"""Seconds over which speeds are averaged."""
_LEAST_SECONDS = 0.5
"""Fewest seconds from which a speed is computed, since many steps are reported at once."""
_LONG = 10.0
"""Seconds after which a pack is described, and its time left is estimated."""


@dataclass
class _Study:
    planned: messages.StudyPlanned
    feasible: int
    reached: bool


@dataclass
class Tally:
    """The numbers of a running sweep, from its events alone."""

    clock: Callable[[], float] = time.monotonic
    stage: str = ""
    """The stage while no pack trains."""
    studies: dict[str, _Study] = field(default_factory=dict)
    packs: dict[str, messages.Begun] = field(default_factory=dict)
    at: dict[str, messages.Progress] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    """When each pack that trains now has begun."""
    begun: set[str] = field(default_factory=set)
    """All packs that have begun in this run."""
    stops: Counter[str] = field(default_factory=Counter)
    finished: int = 0
    left: float | None = None
    """Seconds until all studies have what they want; ``None`` while that is not known."""
    steps: int = 0
    """Steps of all trials of this run together."""
    examples: int = 0
    tokens: int = 0
    """Of studies whose workload has tokens."""
    began: float = 0.0
    _marks: deque[tuple[float, int, int, int]] = field(default_factory=deque)
    """Seconds, steps, examples and tokens in the last while."""

    def __post_init__(self) -> None:
        self.began = self.clock()

    def take(self, event: messages.Event) -> None:
        """Count one event."""
        match event:
            case messages.Stage():
                self.stage = event.text
            case messages.StudyPlanned():
                self.stops["diverged"] += event.infeasible
                self.stops["dominated"] += event.dominated
                self.stops["target"] += event.reached
                self.stops["budget"] += event.done - (
                    event.infeasible + event.dominated + event.reached
                )
                self.studies[event.study] = _Study(
                    planned=event, feasible=event.done - event.infeasible, reached=event.reached > 0
                )
            case messages.Begun():
                self.packs[event.pack] = event
                self.begun.add(event.pack)
                self.since[event.pack] = self.clock()
                self._mark()
            case messages.Progress():
                self._advance(event)
            case messages.Ended(run=None):  # they come again when their rows are safe
                self._finish(event)
            case messages.Over():
                for table in (self.packs, self.at, self.since):
                    table.pop(event.pack, None)
            case messages.TimeLeft():
                self.left = event.seconds
            case _:
                pass

    def _advance(self, event: messages.Progress) -> None:
        before = self.at.get(event.pack)
        taken = event.steps - (before.steps if before else 0)
        self.at[event.pack] = event
        study = self.studies.get(event.study)
        self.steps += taken
        examples = taken * (study.planned.batch_size if study else 0)
        self.examples += examples
        self.tokens += examples * ((study and study.planned.tokens_per_example) or 0)
        self._mark()

    def _mark(self) -> None:
        now = self.clock()
        while len(self._marks) > 1 and self._marks[1][0] <= now - _RATE_SECONDS:
            self._marks.popleft()
        self._marks.append((now, self.steps, self.examples, self.tokens))

    def _finish(self, event: messages.Ended) -> None:
        study = self.studies.get(event.study)
        for outcome in event.outcomes:
            resumed = outcome.trial in event.resumed
            self.stops[outcome.stop_reason] += 1
            self.stops["dominated"] -= resumed
            self.finished += not resumed
            if study is not None:
                study.feasible += (outcome.status != "INFEASIBLE") - resumed
                study.reached |= outcome.steps_to_target is not None

    @property
    def seconds(self) -> float:
        """Wall seconds since the sweep began."""
        return self.clock() - self.began

    @property
    def wanted(self) -> int:
        """Feasible trials wanted, of all studies."""
        return sum(study.planned.trials for study in self.studies.values())

    @property
    def feasible(self) -> int:
        """Feasible trials, of each study at most as many as it wants."""
        return sum(min(study.feasible, study.planned.trials) for study in self.studies.values())

    @property
    def counted(self) -> str:
        """Both in words, with the trials beyond them: repeats, and those of enlarged spaces."""
        finished = sum(study.feasible for study in self.studies.values())
        more = f" and {finished - self.feasible:,} more" if finished > self.feasible else ""
        return f"{self.feasible:,} of {count(self.wanted, 'trial')}{more}"

    @property
    def rate(self) -> str:
        """Trials that this run finishes a second, or a minute where they take longer."""
        a_second = self.finished / self.seconds if self.seconds > 0 else 0.0
        if a_second >= 1:
            return f"{_number(a_second)} trials/s"
        return f"{_number(60 * a_second)} trials/min"

    @property
    def plan(self) -> str:
        """What the sweep has planned: its studies and trials."""
        sizes = {study.planned.batch_size for study in self.studies.values()}
        recorded = sum(study.planned.done for study in self.studies.values())
        known = f", {recorded:,} recorded by earlier runs" if recorded else ""
        return (
            f"plan: {count(len(self.studies), 'study')} at {count(len(sizes), 'batch size')}, "
            f"{count(self.wanted, 'trial')} wanted{known}"
        )

    def long_packs(self) -> list[messages.Begun]:
        """The packs that have trained for ten seconds or more, longest first."""
        latest = self.clock() - _LONG
        longest = sorted(self.packs, key=lambda pack: self.since[pack])
        return [self.packs[p] for p in longest if p in self.at and self.since[p] <= latest]

    def where(self, pack: str) -> str:
        """``step 133 of 2,843, best 0.6602, at most 38:10 left``; its whole budget is assumed."""
        begun, at = self.packs[pack], self.at.get(pack)
        if at is None:
            return "starting"
        study = self.studies.get(begun.study)
        budget = study.planned.budget_steps if study else 0
        parts = [f"step {at.step:,}" + (f" of {budget:,}" if budget else "")]
        if at.metric is not None:
            parts.append(f"best {at.metric:.4g}")
        seconds, steps = self.clock() - self.since[pack], at.step - begun.step
        if budget > at.step and steps > 0 and seconds >= _LONG:
            parts.append(f"at most {clock((budget - at.step) * seconds / steps)} left")
        return ", ".join(parts)

    def _per_second(self, column: int) -> float:
        """Of all trials together, over the last ``_RATE_SECONDS``."""
        if not self._marks:
            return 0.0
        first, now = self._marks[0], (self.clock(), self.steps, self.examples, self.tokens)
        seconds = now[0] - first[0]
        return (now[column] - first[column]) / seconds if seconds > 0 else 0.0

    def speed(self) -> list[str]:
        """The training speed in the units of the workload; empty while that is not known."""
        if not self.steps or self.clock() - self._marks[0][0] < _LEAST_SECONDS:
            return []
        plans = [study.planned for study in self.studies.values()]
        units = {plan.example_unit for plan in plans}
        unit = units.pop() if len(units) == 1 else "example"
        steps, examples = self._per_second(1), self._per_second(2)
        speed = [f"{_number(steps)} steps/s", f"{_number(examples)} {unit}s/s"]
        if all(plan.tokens_per_example for plan in plans):
            speed.append(f"{_number(self._per_second(3))} tokens/s")
        return speed


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``3:04:05``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    if hours:
        return f"{hours}:{rest // 60:02}:{rest % 60:02}"
    return f"{rest // 60}:{rest % 60:02}"
