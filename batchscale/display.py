"""A running sweep on the screen: a live panel on a terminal, else a plain line every ten seconds.

It is an observer of `experiments.driver.events`. What it shows goes to stderr, so that stdout holds
the result alone. `Progress` (the numbers) knows nothing of the screen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from experiments.driver import events
from results.counts import agreeing, count

if TYPE_CHECKING:
    from rich.console import Console, Group

_PLAIN_SECONDS = 10.0
_SHOWN_PACKS = 6
_ORDER = ("target", "budget", "dominated", "diverged", "error")
_WORDS = {
    "target": "reached",
    "budget": "at budget",
    "dominated": "dominated",
    "diverged": "infeasible",
    "error": "failed",
}


@dataclass
class _Study:
    label: str
    wanted: int
    feasible: int
    reached: bool
    seconds: float = 0.0
    """Pack seconds that this run has spent on it."""
    finished: int = 0
    """Trials that this run has finished in it."""

    @property
    def left(self) -> int:
        return max(0, self.wanted - self.feasible)


@dataclass
class Tally:
    """The numbers of a running sweep, from its events alone."""

    clock: Callable[[], float] = time.monotonic
    studies: dict[str, _Study] = field(default_factory=dict)
    packs: dict[str, events.PackStarted] = field(default_factory=dict)
    steps: dict[str, events.Progress] = field(default_factory=dict)
    stops: Counter[str] = field(default_factory=Counter)
    earlier: int = 0
    finished: int = 0
    began: float = 0.0
    busy: float = 0.0

    def __post_init__(self) -> None:
        self.began = self.clock()

    def take(self, event: events.Event) -> None:
        """Count one event."""
        match event:
            case events.StudyPlanned():
                self.earlier += event.done
                self.stops["diverged"] += event.infeasible
                self.stops["dominated"] += event.dominated
                self.stops["target"] += event.reached
                self.stops["budget"] += event.done - (
                    event.infeasible + event.dominated + event.reached
                )
                self.studies[event.study] = _Study(
                    label=event.label,
                    wanted=event.trials,
                    feasible=event.done - event.infeasible,
                    reached=event.reached > 0,
                )
            case events.PackStarted():
                self.packs[event.pack] = event
            case events.Progress():
                self.steps[event.pack] = event
            case events.TrialFinished():
                self._finish(event)
            case events.PackFinished():
                self.packs.pop(event.pack, None)
                self.steps.pop(event.pack, None)
                self.busy += event.seconds
                if event.study in self.studies:
                    self.studies[event.study].seconds += event.seconds
            case _:
                pass

    def _finish(self, event: events.TrialFinished) -> None:
        outcome = event.outcome
        self.stops[outcome.stop_reason] += 1
        self.stops["dominated"] -= event.again
        self.finished += not event.again
        study = self.studies.get(event.study)
        if study is None:
            return
        study.finished += not event.again
        study.feasible += (outcome.status != "INFEASIBLE") - event.again
        study.reached |= outcome.steps_to_target is not None

    @property
    def seconds(self) -> float:
        """Wall seconds since the sweep began."""
        return self.clock() - self.began

    @property
    def wanted(self) -> int:
        """Feasible trials wanted, of all studies."""
        return sum(study.wanted for study in self.studies.values())

    @property
    def feasible(self) -> int:
        """Feasible trials there are, none counted beyond what its study wants."""
        return sum(min(study.feasible, study.wanted) for study in self.studies.values())

    @property
    def rate(self) -> float:
        """Trials that this run finishes a second."""
        return self.finished / self.seconds if self.seconds > 0 else 0.0

    def left(self) -> float | None:
        """Seconds until all studies have what they want; ``None`` while that cannot be told.

        A study's trials cost what its own have cost so far: those at small batch sizes take many
        more steps than the rest.
        """
        if self.busy <= 0 or self.finished == 0:
            return None
        usual = self.busy / self.finished
        work = sum(
            study.left * (study.seconds / study.finished if study.finished else usual)
            for study in self.studies.values()
        )
        return work * self.seconds / self.busy


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
        self._failed: list[str] = []
        self._last = ""

    def __enter__(self) -> Display:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
        if self.tally.finished and self.line() != self._last:
            self._say(self.line())

    def __call__(self, event: events.Event) -> None:
        self.tally.take(event)
        if not isinstance(event, events.PackFinished):
            for text in self._failed:
                self._say(text)
            self._failed.clear()
        match event:
            case events.Note():
                self._say(event.text)
            case events.RoundFinished():
                self._say(
                    f"{count(event.trials, 'trial')} a study: "
                    f"{_reached(event.reached, event.studies)}"
                )
            case events.PackFinished(error=str(error)):
                # Held until the sweep goes on: an error that ends it says so itself.
                self._failed.append(f"a pack of {self._label(event.study)} failed: {error}")
            case _:
                pass
        now = self.tally.clock()
        if self._live is None and now - self._said >= _PLAIN_SECONDS:
            self._said = now
            self._say(self.line())

    def line(self) -> str:
        """Where the sweep stands, in one line."""
        tally = self.tally
        parts = [f"{clock(tally.seconds)}  {tally.feasible:,} of {count(tally.wanted, 'trial')}"]
        parts += [f"{_WORDS[key]} {tally.stops[key]:,}" for key in _ORDER if tally.stops[key]]
        parts.append(f"{tally.rate:.1f} trials/s")
        left = tally.left()
        if left:
            parts.append(f"{clock(left)} left")
        return ", ".join(parts)

    def _say(self, text: str) -> None:
        self._last = text
        self.console.print(text, markup=False, soft_wrap=True)

    def _label(self, study: str) -> str:
        return self.tally.studies[study].label if study in self.tally.studies else study

    def _panel(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally = self.tally
        left = tally.left()
        top = Table.grid(padding=(0, 2))
        top.add_row(
            Text(f"{tally.feasible:,} of {count(tally.wanted, 'trial')}"),
            ProgressBar(total=max(tally.wanted, 1), completed=tally.feasible, width=30),
            Text(f"{tally.rate:.1f} trials/s"),
            Text(f"{clock(tally.seconds)} gone"),
            Text(f"about {clock(left)} left" if left else ""),
        )
        reached = sum(study.reached for study in tally.studies.values())
        counts = Text(_reached(reached, len(tally.studies)), "bold")
        for key in _ORDER:
            counts.append(f"   {_WORDS[key]} {tally.stops[key]:,}", style="not bold")
        rows = Table.grid(padding=(0, 2))
        running = sorted(tally.packs.values(), key=lambda pack: pack.pack)
        for pack in running[:_SHOWN_PACKS]:
            at = tally.steps.get(pack.pack)
            rows.add_row(
                Text(self._label(pack.study), "cyan"),
                Text(f"{at.active if at else pack.trials} of {pack.trials} training"),
                Text(f"{pack.engine} engine"),
                Text(f"step {at.step:,}" if at else "starting"),
                Text(f"best {at.metric:.4g}" if at and at.metric is not None else ""),
            )
        if len(running) > _SHOWN_PACKS:
            rows.add_row(Text(f"and {count(len(running) - _SHOWN_PACKS, 'more pack')}", "dim"))
        return Group(top, counts, rows)


def _reached(reached: int, studies: int) -> str:
    return f"{reached} of {count(studies, 'study')} {agreeing(reached, 'have')} reached the target"


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``3:04:05``."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    if hours:
        return f"{hours}:{rest // 60:02}:{rest % 60:02}"
    return f"{rest // 60}:{rest % 60:02}"
