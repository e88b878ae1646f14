"""A pack in training: look by look, what was measured and which trials have ended.

This is the whole life of a trial. Two clocks are kept apart, training and evaluation, and the
device is waited for before either is read; what is left is the pack's other time.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from experiments.engines import Engine, check_contract, make_engine
from experiments.plan import Measurement, Outcome, Pack, Status, StopReason, Trial
from experiments.training.groups import SOLO, Group
from experiments.training.looks import looks
from experiments.training.setup import Setup

_HEARTBEAT_SECONDS = 2.0
_STATUS: dict[StopReason, Status] = {
    "target": "COMPLETE",
    "budget": "COMPLETE",
    "diverged": "INFEASIBLE",
    "dominated": "INCOMPLETE",
}


class Training:
    """Trains the trials of a pack in lockstep until each has a reason to stop.

    A trial stops at its target (unless the study says not to), when it diverged, at its budget,
    or *dominated*: it has run as many steps as the study's ``keep``-th smallest steps to target
    and can no longer be among the ``keep`` smallest, nor tie with them.
    """

    def __init__(
        self,
        pack: Pack,
        *,
        device: str = "cpu",
        group: Group = SOLO,
        snapshot: bytes | None = None,
        keep_weights: bool = False,
    ) -> None:
        """Load the workload, make the models; continue from ``snapshot`` if there is one.

        ``keep_weights``: ``final`` holds the weights of trials that have ended, by id.

        Raises:
            ExperimentError: the study names something that is not there or cannot be.
            WorkloadError: the workload cannot be loaded, or breaks its contract.
        """
        held = _read(snapshot) if snapshot is not None else None
        self._started = time.perf_counter()
        self.pack = pack
        self.setup = Setup.load(pack.study, device, group)
        self.group = group
        trials = list(pack.trials)
        if held:
            trials = [t for t in trials if t.id in held["active"]]
        kind = held["engine"] if held else pack.engine
        if trials:
            check_contract(self.setup, trials[0])
        self._engine: Engine = make_engine(kind, self.setup, trials)
        self.engine = self._engine.kind
        self._looks = looks(pack.study.evaluation_ratio, pack.study.budget_steps)
        self._last: dict[str, int] = {t.id: 0 for t in trials}
        self._hit: dict[str, tuple[int, int]] = {}
        self._keep_weights = keep_weights
        self.final: dict[str, dict[str, torch.Tensor]] = {}
        self._known = sorted(pack.known)
        self._train_seconds = 0.0
        self._evaluation_seconds = 0.0
        self._other_before = 0.0
        if held:
            self._engine.load(held["state"])
            self._last, self._hit = held["last"], held["hit"]
            self._known = sorted([*self._known, *held["reached"]])
            self._train_seconds, self._evaluation_seconds, self._other_before = held["seconds"]
        self._reached: list[int] = held["reached"] if held else []

    @property
    def step(self) -> int:
        """Steps that the active trials have trained."""
        return self._engine.step

    @property
    def active(self) -> tuple[str, ...]:
        """Ids of the trials still training."""
        return tuple(t.id for t in self._engine.trials)

    def know(self, steps_to_target: Iterable[int]) -> None:
        """Results of the study's trials found elsewhere since the pack began."""
        self._known = sorted([*self._known, *steps_to_target])

    def run(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Measurement | Outcome]]:
        """Train; one list a look, an empty one as a heartbeat between distant looks.

        Ends when no trial is active, or, without outcomes for those that are, once
        ``should_stop()`` (rank 0's, heard by all ranks at every heartbeat) is true.
        What the user's own code raises passes through.
        """
        if not self._last:
            return
        chunk = 1
        # A snapshot is never taken between reaching a look and looking.
        for look in [look for look in self._looks if look > self.step]:
            while self.step < look:
                stop, chunk = self.group.agree((should_stop(), chunk))
                if stop:
                    return
                took = self._advance(min(chunk, look - self.step))
                chunk = _next_chunk(chunk, took)
                if self.step < look:
                    yield []
            events = self._look(final=look == self._looks[-1])
            yield events
            if not self.active:
                return

    def _advance(self, steps: int) -> float:
        began = time.perf_counter()
        # An optimizer's averages of a gradient that has become zero decay into denormal numbers,
        # on which a processor is ten times slower; below 1e-38 they mean nothing.
        torch.set_flush_denormal(True)
        try:
            self._engine.advance(steps)
        finally:
            torch.set_flush_denormal(False)
        self._wait()
        took = time.perf_counter() - began
        self._train_seconds += took
        return took

    def _wait(self) -> None:
        if self.setup.device.type == "cuda":
            torch.cuda.synchronize(self.setup.device)

    def _look(self, *, final: bool) -> list[Measurement | Outcome]:
        began = time.perf_counter()
        trials, study = list(self._engine.trials), self.pack.study
        finite = self._engine.finite()
        measured: list[dict[str, float]] = [{} for _ in trials]
        for split in self.setup.evaluated if any(finite) else ():
            for row, metrics in enumerate(self._engine.evaluate(split)):
                measured[row].update({f"{split}_{k}": v for k, v in metrics.items()})
        self._wait()
        self._evaluation_seconds += time.perf_counter() - began
        events: list[Measurement | Outcome] = []
        reasons: dict[str, StopReason] = {}
        for trial, ok, metrics in zip(trials, finite, measured, strict=True):
            if not ok:
                reasons[trial.id] = "diverged"
                continue
            events.append(self._measurement(trial, metrics))
            if trial.id not in self._hit and study.targets[-1].hit(
                metrics[study.targets[-1].metric]
            ):
                self._hit[trial.id] = (self.step, self._last[trial.id])
                self._reached.append(self.step)
                self._known = sorted([*self._known, self.step])
                if study.stop_at_target:
                    reasons[trial.id] = "target"
            self._last[trial.id] = self.step
        for trial in trials:
            if trial.id not in reasons and self._dominated():
                reasons[trial.id] = "dominated"
            if trial.id not in reasons and final:
                reasons[trial.id] = "budget"
        events += [self._outcome(t, reasons[t.id]) for t in trials if t.id in reasons]
        if self._keep_weights:
            ended = [(i, t.id) for i, t in enumerate(trials) if t.id in reasons]
            self.final.update({trial: self._engine.weights(i) for i, trial in ended})
        if reasons:
            self._engine.keep([i for i, t in enumerate(trials) if t.id not in reasons])
        return events

    def _dominated(self) -> bool:
        """Whether a trial that has not reached the target by now is out of the ``keep`` best."""
        study = self.pack.study
        if study.keep is None or not study.stop_at_target or len(self._known) < study.keep:
            return False
        return self.step >= self._known[study.keep - 1]

    def _measurement(self, trial: Trial, metrics: dict[str, float]) -> Measurement:
        return Measurement(
            trial=trial.id,
            step=self.step,
            examples=self.step * self.pack.study.batch_size,
            train_seconds=self._train_seconds,
            metrics=metrics,
        )

    def _outcome(self, trial: Trial, reason: StopReason) -> Outcome:
        hit = self._hit.get(trial.id)
        spent = time.perf_counter() - self._started + self._other_before
        return Outcome(
            trial=trial.id,
            status=_STATUS[reason],
            stop_reason=reason,
            steps_run=self.step,
            examples_run=self.step * self.pack.study.batch_size,
            steps_to_target=hit[0] if hit else None,
            last_miss=hit[1] if hit else None,
            train_seconds=self._train_seconds,
            evaluation_seconds=self._evaluation_seconds,
            other_seconds=max(0.0, spent - self._train_seconds - self._evaluation_seconds),
        )

    def weights(self, trial: str) -> dict[str, torch.Tensor]:
        """A copy of an active trial's parameters and buffers by name."""
        return self._engine.weights(self.active.index(trial))

    def snapshot(self) -> bytes:
        """All that is needed to continue exactly; valid between what ``run`` yields."""
        buffer = io.BytesIO()
        spent = time.perf_counter() - self._started + self._other_before
        held = {
            "active": self.active,
            "engine": self.engine,
            "state": self._engine.state(),
            "last": self._last,
            "hit": self._hit,
            "reached": self._reached,
            "seconds": (self._train_seconds, self._evaluation_seconds, spent),
        }
        torch.save(held, buffer)
        return buffer.getvalue()


def _read(snapshot: bytes) -> dict[str, Any]:
    held: dict[str, Any] = torch.load(io.BytesIO(snapshot), weights_only=False)
    return held


def _next_chunk(chunk: int, seconds: float) -> int:
    """Steps to train before the next heartbeat, from how long the last ``chunk`` took."""
    if seconds <= 0:
        return chunk * 8
    return max(1, min(chunk * 8, int(chunk * 0.5 * _HEARTBEAT_SECONDS / seconds)))
