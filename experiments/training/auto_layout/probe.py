"""Tries layouts on the ranks that are to train a pack: what fits, and how long a step takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from experiments import parallel
from experiments.engines import Engine, make_engine
from experiments.engines.randomness import RandomDraws
from experiments.engines.selection import choose as choose_engine
from experiments.errors import ExperimentError
from experiments.parallel.local_ranks import most_ranks, on_local_ranks
from experiments.parallel.ranks import SOLO, Ranks
from experiments.parallel.renewal import Meeting
from experiments.plan import AUTO, Layout, Pack, Study
from experiments.training.auto_layout.candidates import candidates, halves, largest_share
from experiments.training.auto_layout.choice import OUT_OF_MEMORY, Attempt, LayoutChoice, best
from experiments.training.auto_layout.step_times import attempt
from experiments.training.clock import wait_for
from experiments.training.micro_batch import chunk_size
from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread
from results.counts import count

_TIMED_SECONDS = 0.2
"""Least seconds that steps are timed for, and at least so many of them:"""
_TIMED_STEPS = 3
_HOPELESS = 4.0
"""A layout whose second step takes so many times the best one's is not timed further."""

_choices: dict[str, LayoutChoice] = {}
"""Of each study, as its last pack was tried here."""


def choose(pack: Pack, device: str = "cpu", ranks: Ranks = SOLO) -> LayoutChoice:
    """The layout and the micro-batch that train ``pack`` fastest. All ranks call it together.

    The ranks of a process group that stays up try a study once, and again for a larger pack.

    Raises:
        ExperimentError: nothing fits, or nothing can be trained.
        WorkloadError: the workload breaks its contract.
    """
    key = repr((pack.study.id, pack.study.shape, pack.study.batches, device))
    before = _choices.get(key)
    if before is not None and before.models < len(pack.trials):
        before = None
    # Other processes may not remember it: rank 0 decides for all.
    choice: LayoutChoice | None = ranks.agree(before)
    if choice is None:
        choice = _Probe(pack, device, ranks).choice()
    _choices[key] = choice
    return choice


def local_choices(packs: Sequence[Pack], device: str) -> list[dict[str, Any]] | None:
    """The content of ``layout_choice`` for each pack, all of as many workers, by processes that
    train some steps of each here; ``None``: this machine has too few cores or GPUs for them.

    Raises:
        ExperimentError: nothing fits into the memory.
        WorkloadError: a workload breaks its contract.
    """
    workers = packs[0].study.layout.workers
    if workers > most_ranks(device):
        return None
    if workers == 1:
        with single_thread():
            return _choose_all(SOLO, device, packs)
    choices: list[dict[str, Any]] = on_local_ranks(workers, device, _choose_all, list(packs))
    return choices


def _choose_all(ranks: Ranks, device: str, packs: Sequence[Pack]) -> list[dict[str, Any]]:
    return [choose(pack, device, ranks).columns() for pack in packs]


class _Probe:
    def __init__(self, pack: Pack, device: str, ranks: Ranks) -> None:
        study = pack.study
        largest = study.batches.largest
        self.ranks, self.trials = ranks, list(pack.trials)
        layout = replace(study.layout, auto=None)
        self.study = replace(study, batch_size=largest, ramp=None, layout=layout)
        self.context = StudyContext.load(self.study, device, ranks)
        kind = pack.engine if pack.engine != AUTO else self.study.engine
        if kind == AUTO:
            kind = ranks.agree(choose_engine(self.context, self.trials))
        self.kind, self.stated = kind, layout.micro_batch
        self.meeting = Meeting(ranks)
        self.unit = self.context.ghost_batch or 1

    def choice(self) -> LayoutChoice:
        """Try each candidate."""
        technique = self.context.techniques_of(self.trials[0]).communication()
        plan = self.context.workload_of(self.trials[0]).layout_plan()
        alone = self.kind == "stacked" or technique is not None
        attempts: list[Attempt] = []
        for of in candidates(self.ranks.size, plan, data_alone=alone):
            layout = replace(of, gpus_per_worker=self.study.layout.gpus_per_worker)
            shortest = min((a.seconds for a in attempts if a.seconds is not None), default=None)
            for micro_batch in halves(self._most(layout), self.unit):
                attempt = self._attempt(replace(layout, micro_batch=micro_batch), shortest)
                attempts.append(attempt)
                if attempt.failure != OUT_OF_MEMORY:
                    break
        self.meeting.close()
        chosen = best(attempts)
        if chosen is None and any(each.failure == OUT_OF_MEMORY for each in attempts):
            raise self._nothing_fits(attempts)
        # What raises in every layout is raised by the training, with all that it says of it.
        chosen = chosen or attempts[0]
        return LayoutChoice(chosen=chosen, attempts=tuple(attempts), models=len(self.trials))

    def _nothing_fits(self, attempts: Sequence[Attempt]) -> ExperimentError:
        least = min(each.layout.micro_batch or 1 for each in attempts)
        return ExperimentError(
            f"layout: auto: at batch size {self.study.batch_size} nothing fits into the memory of "
            f"{count(self.ranks.size, 'worker')}, not even a micro-batch of {least}",
            hint="more workers, a smaller model, or fewer trials",
        )

    def _most(self, layout: Layout) -> int:
        """Examples of the first micro-batch that is tried."""
        share = largest_share(self.study.batch_size, layout, self.unit)
        if self.stated is not None:
            return min(share, max(self.unit, self.stated // self.unit * self.unit))
        if self.context.device.type == "cpu":
            # There a system kills what takes too much memory, instead of saying so.
            model = self.context.model(self.trials[0])
            models = len(self.trials) if self.kind == "stacked" else 1
            with suppress(Exception):  # the first attempt raises it again, and it is recorded
                drawn = RandomDraws.of(self.context, model)
                divisible = drawn.unsupported is None
                most = chunk_size(self.context, model, models, divisible=divisible)
                return min(share, most)
        return share

    def _attempt(self, layout: Layout, shortest: float | None) -> Attempt:
        """Take steps in a layout."""
        seconds, failure = attempt(
            lambda: self._seconds(self._engine(layout), shortest), self.ranks, self.meeting
        )
        return Attempt(layout=layout, seconds=seconds, failure=failure)

    def _engine(self, layout: Layout) -> Engine:
        """All trials of the pack, which share the memory."""
        study: Study = replace(self.study, layout=layout)
        made = parallel.of(layout, study.workload.base).join(self.ranks)
        return make_engine(self.kind, replace(self.context, study=study, layout=made), self.trials)

    def _seconds(self, engine: Engine, shortest: float | None) -> float:
        """Seconds of a step of one model, or of the stack."""
        device = self.context.device
        engine.advance(1)  # of all: then each has its gradient, and its optimizer's state
        if self.kind == "module":
            engine.keep([0])
        steps, spent, least = 0, 0.0, float("inf")
        while True:
            wait_for(device)
            began = time.perf_counter()
            engine.advance(1)
            wait_for(device)
            now = time.perf_counter() - began
            steps, spent, least = steps + 1, spent + now, min(least, now)
            slow = shortest is not None and least > _HOPELESS * shortest
            # Ranks take the same steps: rank 0 says when they are enough.
            if self.ranks.agree(slow or (spent >= _TIMED_SECONDS and steps >= _TIMED_STEPS)):
                engine.close()
                return least
