"""A running sweep on the screen: a live panel on a terminal, else a plain line every ten seconds.

It is an observer (`experiments.scheduling.messages`). It prints to stderr, so that stdout holds the
result alone. `Tally` has the numbers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from batchscale.output.tally import Tally, clock
from experiments.scheduling import messages
from results.counts import agreeing, count
from results.errors import lines

if TYPE_CHECKING:
    from rich.console import Console, Group

_PLAIN_SECONDS = 10.0
_STAGE_SECONDS = 2.0
"""Seconds after which a stage is printed: a shorter one needs no line."""
_TICK_SECONDS = 0.5
_MOST_PACKS = 6
_MOST_LONG = 2
"""Packs that a plain line describes."""
_ORDER = ("target", "budget", "dominated", "diverged", "error")
_LABELS = {
    "target": "reached",
    "budget": "at budget",
    "dominated": "dominated",
    "diverged": "infeasible",
    "error": "failed",
}


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


def _reached(reached: int, studies: int) -> str:
    return f"{reached} of {count(studies, 'study')} {agreeing(reached, 'have')} reached the target"
