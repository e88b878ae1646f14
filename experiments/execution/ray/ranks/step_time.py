"""Whether a group of workers takes its steps faster than a single one of them would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from experiments.execution.worker import MakeTrainer, Trainer
from experiments.plan import Measurement, Outcome, Pack

_ENOUGH_SECONDS = 0.3
_ENOUGH_STEPS = 64
_MOST_SECONDS = 5.0
"""Most seconds of a probe, its evaluations included, once it has an estimate."""
_GRID = 4.0
"""Evaluation grid of a probe: it measures training, not evaluation."""

Events = list[Measurement | Outcome]


class StepTime:
    """Seconds of one step of one trial: the training time between two evaluations of a pack."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._active = 0
        self.so_far: float | None = None
        self.seconds: float | None = None
        """As ``so_far``, once it rests on enough steps."""

    def add(self, training: Trainer, events: Events) -> None:
        """Take in what a pack's training has yielded. The first steps do not count."""
        times = [event.train_seconds for event in events if isinstance(event, Measurement)]
        if not times or self.seconds is not None:
            return
        if self._first is None or len(training.active) != self._active:
            self._first, self._active = (training.steps, times[-1]), len(training.active)
            return
        steps, seconds = training.steps - self._first[0], times[-1] - self._first[1]
        self.so_far = seconds / steps if steps else None
        enough = seconds >= _ENOUGH_SECONDS or steps >= _ENOUGH_STEPS * max(1, self._active)
        if enough and steps:
            self.seconds = self.so_far


def alone(make: MakeTrainer, pack: Pack, device: str) -> float | None:
    """Seconds of a step that a single worker takes with a pack; ``None`` where it cannot.

    It takes some of the pack's first steps, which are thrown away.
    """
    timer, began = StepTime(), time.monotonic()
    study = replace(pack.study, evaluation_ratio=max(_GRID, pack.study.evaluation_ratio))
    try:
        training = make(replace(pack, study=study), device=device, snapshot=None)
        with closing(training.run(lambda: timer.seconds is not None)) as run:  # type: ignore[type-var]
            for events in run:
                timer.add(training, events)
                late = time.monotonic() - began > _MOST_SECONDS
                if timer.seconds is not None or (late and timer.so_far is not None):
                    break
    except Exception:  # the group raises it too, or has the memory that one worker lacks
        return None
    return timer.so_far


def watched(make: MakeTrainer, take_in: Callable[[Trainer, Events], None]) -> MakeTrainer:
    """``make``, whose trainers hand what they yield to ``take_in`` too."""

    def made(pack: Pack, **how: Any) -> Trainer:
        training = make(pack, **how)
        run = training.run

        def watched_run(should_stop: Callable[[], bool]) -> Iterator[Events]:
            with closing(run(should_stop)) as inner:  # type: ignore[type-var]
                for events in inner:
                    take_in(training, events)
                    yield events

        training.run = watched_run  # type: ignore[method-assign]
        return training

    return made


def slower(alone: float, together: float, workers: int, batch_size: int) -> str | None:
    """The note that a group is slower than one worker; ``None`` where it is not."""
    if together <= alone:
        return None
    return (
        f"a step at batch size {batch_size} takes {_text(together)} with workers: {workers} and "
        f"{_text(alone)} with one: the batch is too small to be divided. workers: 1 is faster."
    )


def _text(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
