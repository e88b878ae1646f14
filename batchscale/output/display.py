"""A running sweep on the screen: a live panel on a terminal, else a plain line every ten seconds.

It is an observer (`experiments.scheduling.messages`). It prints to stderr, so that stdout holds the
result alone. `Tally` has the numbers.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from experiments.scheduling import messages
from results.counts import agreeing, count
from results.errors import lines

if TYPE_CHECKING:
    from rich.console import Console, Group

_PLAIN_SECONDS = 10.0
_STAGE_SECONDS = 2.0
"""Seconds after which a stage is printed: a shorter one needs no line."""
_TICK_SECONDS = 0.5
_RATE_SECONDS = 20.0
"""Seconds over which speeds are averaged."""
_LEAST_SECONDS = 0.5
"""Fewest seconds from which a speed is computed, since many steps are reported at once."""
_MOST_PACKS = 6
_MOST_LONG = 2
"""Packs that a plain line describes."""
_LONG = 10.0
"""Seconds after which a pack is described, and its time left is estimated."""
_ORDER = ("target", "budget", "dominated", "diverged", "error")
_LABELS = {
    "target": "reached",
    "budget": "at budget",
    "dominated": "dominated",
    "diverged": "infeasible",
    "error": "failed",
}


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
                    planned=event,
                    feasible=event.done - event.infeasible,
                    reached=event.reached > 0,
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


class Display:
    """Shows a sweep while it runs: ``with Display() as display: sweep(…, observer=display)``."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = console or Console(stderr=True, highlight=False)
        self.tally = Tally(clock=clock)
        self._live = (
            Live(console=self.console, get_renderable=self._panel, transient=True)
            if self.console.is_terminal
            else None
        )
        self._said = clock()
        self._staged = (clock(), "")
        """When the present stage began, and whether it was printed."""
        self._failed: list[str] = []
        self._last = ""
        self._lock = threading.RLock()
        self._over = threading.Event()

    def __enter__(self) -> Display:
        if self._live:
            self._live.start()
        else:
            threading.Thread(target=self._tick, name="display", daemon=True).start()
        return self

    def _tick(self) -> None:
        """Without a terminal: print what is due while no event comes, too."""
        while not self._over.wait(_TICK_SECONDS):
            with self._lock:
                self.say_what_is_due()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._live:
            self._live.stop()
        if self.tally.finished and self.line() != self._last:
            self._say(self.line())

    def __call__(self, event: messages.Event) -> None:
        with self._lock:
            self._report(event)
            self.say_what_is_due()

    def _report(self, event: messages.Event) -> None:
        tally = self.tally
        before = tally.steps > 0, tally.finished > 0, bool(tally.stops["target"])
        known = {*tally.begun}
        tally.take(event)
        # The first step, the first trial that ends, and the first to reach its target are printed
        # at once.
        news = before != (tally.steps > 0, tally.finished > 0, bool(tally.stops["target"]))
        if not isinstance(event, messages.Over):
            for text in self._failed:
                self._say(text)
            self._failed.clear()
        match event:
            case messages.Stage():
                self._staged = (self.tally.clock(), "")
            case messages.Note():
                self._say(event.text)
            case messages.Begun(step=step):
                if not known:
                    self._say(tally.plan)
                if step:
                    how = "goes on" if event.pack in known else "goes on where an earlier run ended"
                    trials = count(event.trials, "trial")
                    self._say(f"{self._label(event.study)}: {how}, at step {step:,} ({trials})")
            case messages.Progress() | messages.Ended() if news and self._live is None:
                self._say_line()
            case messages.Round():
                self._say(
                    f"{count(event.trials, 'trial')} a study: "
                    f"{_reached(event.reached, event.studies)}"
                )
            case messages.Over(failure=messages.Failure(message=error)):
                # Kept until the sweep continues: an error that ends it is printed separately.
                self._failed.append(f"a pack of {self._label(event.study)} failed: {error}")
            case _:
                pass

    def say_what_is_due(self) -> None:
        """Without a terminal, a line of the stage that lasts, and one of the sweep's progress."""
        now, (began, said) = self.tally.clock(), self._staged
        if self._live is not None:
            return
        if self._stage and self._stage != said and now - began >= _STAGE_SECONDS:
            self._staged = (began, self._stage)
            self._said = now
            self._say(f"{clock(self.tally.seconds)}  {self._stage}")
        elif self.tally.studies and now - self._said >= _PLAIN_SECONDS:
            self._say_line()

    def _say_line(self) -> None:
        self._said = self.tally.clock()
        self._say(self.line())

    @property
    def _stage(self) -> str:
        """The present stage while nothing trains."""
        return "" if self.tally.packs else self.tally.stage

    def line(self) -> str:
        """The sweep's progress, in one line."""
        tally = self.tally
        parts = [f"{clock(tally.seconds)}  {tally.counted}"]
        parts += [f"{_LABELS[key]} {tally.stops[key]:,}" for key in _ORDER if tally.stops[key]]
        if tally.finished:
            parts.append(tally.rate)
        parts += tally.speed()
        if tally.left:
            parts.append(f"{clock(tally.left)} left")
        packs = [
            f"{self._label(pack.study)}: {tally.where(pack.pack)}"
            for pack in tally.long_packs()[:_MOST_LONG]
        ]
        return "; ".join([", ".join(parts), *packs])

    def _say(self, text: str) -> None:
        self._last = text = lines(text)
        self.console.print(text, markup=False, soft_wrap=True)

    def _label(self, study: str) -> str:
        entry = self.tally.studies.get(study)
        return entry.planned.label if entry else study

    def _panel(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally = self.tally
        top = Table.grid(padding=(0, 2))
        top.add_row(
            Text(tally.counted),
            ProgressBar(total=max(tally.wanted, 1), completed=tally.feasible, width=30),
            Text(tally.rate if tally.finished else ""),
            Text(f"{clock(tally.seconds)} gone"),
            Text(f"about {clock(tally.left)} left" if tally.left else ""),
        )
        reached = sum(study.reached for study in tally.studies.values())
        counts = Text(_reached(reached, len(tally.studies)), "bold")
        for key in _ORDER:
            counts.append(f"   {_LABELS[key]} {tally.stops[key]:,}", style="not bold")
        now = Text(self._stage or ", ".join(tally.speed()), "dim")
        rows = Table.grid(padding=(0, 2))
        running = sorted(tally.packs.values(), key=lambda pack: pack.pack)
        for pack in running[:_MOST_PACKS]:
            at = tally.at.get(pack.pack)
            rows.add_row(
                Text(self._label(pack.study), "cyan"),
                Text(f"{at.active if at else pack.trials} of {pack.trials} training"),
                Text(tally.where(pack.pack)),
            )
        if len(running) > _MOST_PACKS:
            rows.add_row(Text(f"and {count(len(running) - _MOST_PACKS, 'more pack')}", "dim"))
        return Group(top, counts, now, rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _reached(reached: int, studies: int) -> str:
    return f"{reached} of {count(studies, 'study')} {agreeing(reached, 'have')} reached the target"


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``3:04:05``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    if hours:
        return f"{hours}:{rest // 60:02}:{rest % 60:02}"
    return f"{rest // 60}:{rest % 60:02}"
