"""Plans and a trainer without torch's work, for the tests of what is scheduled and recorded.

How a fake trial goes depends on its metaparameter alone: ``point`` in [0, 1) is the share of the
budget of 100 steps at which its error falls below 0.05 (below 0.025 at twice that); from 1 on it
never does; below 0, and from 1.6 on, it diverges.
"""

from __future__ import annotations

import json
import os
import queue
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.encoding import MalformedError
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Measurement, Outcome, Pack, Search, Study, Trial, WorkloadRef
from experiments.training.evaluation_grid import evaluation_steps
from results.targets.target import Target

TARGET = Target.parse("validation_error < 0.05")


def study(**changes: Any) -> Study:
    """A study of 20 trials of at most 100 steps."""
    given = {
        "id": "study",
        "experiment": "fake",
        "workload": WorkloadRef(spec="digits-softmax"),
        "optimizer": "sgd",
        "schedule": "constant",
        "batch_size": 64,
        "trials": 20,
        "budget_steps": 100,
        "targets": (TARGET,),
        "evaluation_ratio": 1.2,
        **changes,
    }
    return Study(**given)


@dataclass(frozen=True, kw_only=True)
class Listed(Study):
    """A study whose trials have the search's points, and plain names."""

    ranges: Any = None

    @property
    def max_rows(self) -> int:
        return min(4 * self.trials, len(self.search.points))

    def draw(self, start: int, stop: int) -> list[Trial]:
        points = enumerate(self.search.points[: self.max_rows])
        return [
            Trial(id=f"{self.id}-{index}", index=index, seed=index, metaparameters=point)
            for index, point in [*points][start:stop]
        ]

    def notation(self, *_: Any) -> Any:
        return self.ranges

    def repeats(self, *_: Any) -> list[Trial]:
        return []


def listed(of: Study, values: Iterable[float], ranges: Any = None) -> Listed:
    """``of`` with a table that holds the given values of the learning rate."""
    points = tuple({"learning_rate": value} for value in values)
    return Listed(**{**vars(of), "search": Search(points=points)}, ranges=ranges)


def points(count: int, *, seed: int = 0, diverging: float = 0.2) -> list[float]:
    """Points of which a share diverges, and half reach the target."""
    draw = np.random.default_rng(seed)
    found = draw.uniform(0.05, 1.8, count)
    return [float(-p / 2 if draw.uniform() < diverging else p) for p in found]


class FakeTraining:
    """As ``experiments.training.pack_training.Training``, for points.

    ``FAKE_SECONDS`` is slept at each look, and the first one waits for the file ``FAKE_GATE``; what
    ``FAKE_RAISE`` names (the id's end) raises at its third look; the ids that begin to train are
    written to the file ``FAKE_LOG``.
    """

    def __init__(
        self, pack: Pack, *, device: str = "cpu", group: Ranks = SOLO, snapshot: bytes | None = None
    ) -> None:
        del device, group
        self.pack = pack
        self.engine: str = "module" if pack.engine == "auto" else pack.engine
        self.paused: dict[str, bytes] = {}
        self.not_kept: str | None = None
        self.step, self.steps, self._clock = 0, 0, 0
        self._known = sorted(pack.known)
        self._left = [t.id for t in pack.trials]
        self._last: dict[str, int] = dict.fromkeys(self._left, 0)
        self._born: dict[str, int] = dict.fromkeys(self._left, 0)
        self._reached: list[int] = []
        if snapshot is not None:
            held = _read(snapshot)
            if not isinstance(held, list) or len(held) != 5:
                raise MalformedError("not a snapshot of a fake")
            clock, self._left, self._last, self._born, self._reached = held
            self._known = sorted([*self._known, *self._reached])
            self._advance(clock)
        self._log(self._left, self.step)

    def _log(self, trials: Sequence[str], step: int) -> None:
        if log := os.environ.get("FAKE_LOG"):
            with open(log, "a") as stream:
                stream.writelines(f"{trial} {step}\n" for trial in trials)

    def _advance(self, clock: int) -> None:
        self._clock = clock
        self.step = max((clock - self._born[trial] for trial in self._left), default=0)

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(self._left)

    current: str | None = None

    def keep(self, trials: Collection[str]) -> None:
        self._left = [trial for trial in self._left if trial in trials]
        self._advance(self._clock)

    def know(self, steps_to_target: Iterable[int]) -> None:
        self._known = sorted([*self._known, *steps_to_target])

    def add(self, trials: Sequence[Trial]) -> None:
        self.pack = replace(self.pack, trials=(*self.pack.trials, *trials))
        for trial in trials:
            self._left.append(trial.id)
            self._last[trial.id], self._born[trial.id] = 0, self._clock
        self._log([trial.id for trial in trials], 0)

    def resume(self, paused: Mapping[str, bytes]) -> set[str]:
        resumed = set()
        for trial, data in paused.items():
            with suppress(MalformedError):
                self._last[trial] = _read(data)
                resumed.add(trial)
                self._born[trial] = self._clock - self._last[trial]
                self._log([trial], self._last[trial])
        self._advance(self._clock)
        return resumed

    def snapshot(self) -> bytes | None:
        held = (self._clock, self._left, self._last, self._born, self._reached)
        return json.dumps(held).encode()

    def run(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Measurement | Outcome]]:
        grid = evaluation_steps(self.pack.study.evaluation_ratio, self.pack.study.budget_steps)
        while self._left:
            # Each trial looks at steps of its own, counted from where it joined.
            ahead = [
                self._born[t] + min(look for look in grid if look > self._clock - self._born[t])
                for t in self._left
            ]
            if seconds := float(os.environ.get("FAKE_SECONDS", "0")):
                time.sleep(seconds)
            gate = os.environ.get("FAKE_GATE")
            while gate is not None and not os.path.exists(gate) and not should_stop():
                time.sleep(0.02)
            if should_stop():
                return
            self.steps += len(self._left) * (min(ahead) - self._clock)
            self._advance(min(ahead))
            at = {
                t: self._clock - self._born[t]
                for t, next_ in zip(self._left, ahead, strict=True)
                if next_ == self._clock
            }
            if len(grid) > 3:
                self._raise([trial for trial, step in at.items() if step == grid[3]])
            yield [e for t in self.pack.trials if t.id in at for e in self._look(t, at[t.id])]

    def _raise(self, trials: Sequence[str]) -> None:
        names = os.environ.get("FAKE_RAISE", "").split()
        if any(trial.endswith(name) for name in names for trial in trials):
            raise ValueError("the seventh step is one too many")

    def _point(self, trial: Trial) -> float:
        point = float(trial.metaparameters["learning_rate"])
        return 1.55 - point if point >= 1.6 else point

    def _look(self, trial: Trial, step: int) -> Iterator[Measurement | Outcome]:
        study = self.pack.study
        point = self._point(trial)
        end = Outcome(
            trial=trial.id,
            status="COMPLETE",
            stop_reason="budget",
            steps_run=step,
            examples_run=step * study.batch_size,
        )
        if point < 0 and step >= abs(point) * 100:
            self._left.remove(trial.id)
            yield replace(end, status="INFEASIBLE", stop_reason="diverged")
            return
        error = min(1.0, 0.999 * 5 * point / step) if point >= 0 else 0.9
        yield Measurement(
            trial=trial.id,
            step=step,
            examples=step * study.batch_size,
            train_seconds=0.0,
            metrics={"validation_error": error},
        )
        if study.targets[-1].hit(error):
            self._known = sorted([*self._known, step])
            self._reached.append(step)
            self._left.remove(trial.id)
            miss = self._last[trial.id]
            yield replace(end, stop_reason="target", steps_to_target=step, last_miss=miss)
            return
        self._last[trial.id] = step
        keep = study.keep
        if keep is not None and len(self._known) >= keep and step >= self._known[keep - 1]:
            self._left.remove(trial.id)
            if self.pack.keep_paused:
                self.paused[trial.id] = json.dumps(step).encode()
            yield replace(end, status="INCOMPLETE", stop_reason="dominated")
        elif step == study.budget_steps:
            self._left.remove(trial.id)
            yield end


def _read(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise MalformedError("a fake did not write it") from error


class Pair:
    """One of two ranks, in two threads of this process."""

    size = 2

    def __init__(self, rank: int, line: queue.Queue[Any]) -> None:
        self.rank, self._line = rank, line

    def agree(self, value: Any) -> Any:
        if self.rank == 0:
            self._line.put(value)
            return value
        return self._line.get(timeout=30)
