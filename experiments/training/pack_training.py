"""A pack in training: the training loop, and the features that a sweep needs besides.

Trials join while others train, dominated trials are paused and go on elsewhere, and the whole can
be saved as a snapshot and continued from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import torch

from experiments.encoding import MalformedError, UnencodableError
from experiments.engines import Engine, check_contract, make_engine
from experiments.engines.base import gather
from experiments.parallel import SOLO, Ranks
from experiments.plan import Pack, Trial
from experiments.training.clock import Clock
from experiments.training.loop import Event, TrainingLoop
from experiments.training.snapshot import SavedTrial, Snapshot, fitting
from experiments.training.stopping import Evaluation, StudyHits, TrialProgress
from experiments.training.study_context import StudyContext


class Training:
    """Trains the trials of a pack until each has a reason to stop; others may join meanwhile."""

    def __init__(
        self,
        pack: Pack,
        *,
        device: str = "cpu",
        group: Ranks = SOLO,
        snapshot: bytes | None = None,
        keep_weights: bool = False,
    ) -> None:
        """Load the workload, make the models; continue from ``snapshot`` if there is one.

        ``keep_weights``: ``final`` holds the measured weights of trials that have ended.

        Raises:
            ExperimentError: the study names something that is not there or cannot be.
            WorkloadError: the workload cannot be loaded, or breaks its contract.
            MalformedError: ``snapshot`` is none of this pack.
        """
        trials = {t.id: t for t in pack.trials}
        saved = Snapshot.decode(snapshot, trials) if snapshot is not None else None
        clock = Clock()
        self.pack = pack
        context = StudyContext.load(pack.study, device, group)
        first = [trials[t] for t in saved.trials] if saved else list(pack.trials)
        check_contract(context, first[0])
        engine = make_engine(saved.engine if saved else pack.engine, context, first)
        self.engine = engine.kind
        self._engine: Engine = engine
        self._hits = StudyHits(pack.known)
        self._loop = TrainingLoop(engine, self._hits, clock, self._evaluated)
        self._keep_weights = keep_weights
        self.final: dict[str, dict[str, torch.Tensor]] = {}
        self.paused: dict[str, bytes] = {}
        """Where the pack pauses dominated trials: what ``resume`` needs of each, by id. The caller
        takes them out."""
        self.not_kept: str | None = None
        """Why the states of trials cannot be saved, once that is known."""
        if saved:
            for row, of_row in enumerate(saved.trials.values()):
                self._restore(row, of_row)
            self._hits.restore(saved.hits)
            clock.train, clock.evaluation, clock.before = saved.seconds

    def _restore(self, row: int, saved: SavedTrial) -> None:
        """Take a trial of the engine to where it was saved.

        Raises:
            MalformedError: its state is of another form.
        """
        with fitting():
            self._engine.restore(row, saved.state)
        self._loop.progress[self._engine.trials[row].id] = saved.progress
        self._loop.step = max(self._engine.steps)

    @property
    def step(self) -> int:
        """The most steps that an active trial has trained."""
        return self._loop.step

    @property
    def steps(self) -> int:
        """Steps that this training has taken, of all its trials together."""
        return self._loop.steps

    @property
    def active(self) -> tuple[str, ...]:
        """Ids of the trials still training."""
        return tuple(t.id for t in self._engine.trials)

    @property
    def current(self) -> str | None:
        """The trial whose code runs, where they run one after the other."""
        return self._engine.current

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[list[Event]]:
        """See ``TrainingLoop.run``."""
        with closing(self._engine):
            yield from self._loop.run(should_stop)

    def know(self, steps_to_target: Iterable[int]) -> None:
        """Take in steps to target that the study's trials have reached in other packs."""
        for steps in steps_to_target:
            self._hits.add(steps)

    def add(self, trials: Sequence[Trial]) -> None:
        """Let further trials of the study begin here; valid between what ``run`` yields.

        Each trains as it does alone. Where no trial was left, ``run`` has ended: call it again.
        """
        self._engine.add(trials)
        self._loop.begin(trials)
        self.pack = replace(self.pack, trials=(*self.pack.trials, *trials))

    def keep(self, trials: Collection[str]) -> None:
        """Train these alone, at least one; valid between what ``run`` yields."""
        rows = [row for row, trial in enumerate(self._engine.trials) if trial.id in trials]
        for trial in set(self.active) - set(trials):
            del self._loop.progress[trial]
        self._engine.keep(rows)

    def resume(self, paused: Mapping[str, bytes]) -> set[str]:
        """Take trials that have not trained yet to where another pack paused them, by id.

        That pack had the same engine. Returns those that could be: what cannot be read, or does
        not fit, leaves its trial at its beginning.
        """
        resumed = set()
        for row, trial in enumerate(self._engine.trials):
            if trial.id not in paused:
                continue
            beginning = self._engine.copy([row])[0]
            try:
                self._restore(row, SavedTrial.decode(paused[trial.id]))
            except MalformedError:
                self._engine.restore(row, beginning)
            else:
                resumed.add(trial.id)
        return resumed

    def _evaluated(self, evaluations: Sequence[Evaluation]) -> None:
        """Keep the weights of trials that end, and pause those that are dominated."""
        for e in evaluations:
            if e.outcome is not None and self._keep_weights:
                self.final[e.trial.id] = self._engine.measured(e.row)
        dominated = [e for e in evaluations if e.outcome and e.outcome.stop_reason == "dominated"]
        for e in dominated if self.pack.keep_paused else ():
            data = self._encoded(self._saved(e.row, e.progress))
            if data is None:
                return  # the others are as large, and of the same kind
            self.paused[e.trial.id] = data

    def snapshot(self) -> bytes | None:
        """All that is needed to continue exactly; valid between what ``run`` yields.

        ``None`` if it cannot be saved: ``not_kept`` says why.
        """
        clock = self._loop.clock
        return self._encoded(
            Snapshot(
                engine=self.engine,  # type: ignore[arg-type]
                trials={
                    trial: self._saved(row, self._loop.progress[trial])
                    for row, trial in enumerate(self.active)
                },
                hits=self._hits.of_pack,
                seconds=(clock.train, clock.evaluation, clock.total),
            )
        )

    def _saved(self, row: int, progress: TrialProgress) -> SavedTrial:
        # One at a time, and in main memory: a device need not hold all of them twice.
        (state,) = self._engine.copy([row])
        return SavedTrial(progress=progress, state=gather(state, torch.device("cpu")))

    def _encoded(self, saved: Snapshot | SavedTrial) -> bytes | None:
        try:
            return saved.encode()
        except UnencodableError as error:
            self.not_kept = str(error)
            return None
