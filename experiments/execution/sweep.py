"""Trains what is missing of an experiment: the driver of a sweep.

sweep(load("my_model.yaml"), results="results/runs", address="auto", observer=print)
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.config.combinations import data_files
from experiments.config.compile import Experiment
from experiments.config.dry_build import check_device
from experiments.errors import ExperimentError
from experiments.execution import executors
from experiments.execution.executors.base import ExecutorContext, WorkerPool
from experiments.execution.failures import reproduce_command
from experiments.execution.orphans import end_orphans
from experiments.execution.polling import polling
from experiments.execution.signals import Interrupted, Stop
from experiments.execution.staging import file_specs
from experiments.execution.worker import MakeTrainer, Pace, training
from experiments.plan import Layout, Study
from experiments.records import amend, baselines, snapshots, space_edges
from experiments.records.no_target import no_target
from experiments.records.planned import Planned, new_rows, planned
from experiments.records.recorded import Recorded, changed, read_recorded, refuse_changed
from experiments.records.rows import record_lost_trial
from experiments.records.space_edges import Judge
from experiments.records.stopping import Measure, StoppingRule
from experiments.scheduling import rounds
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.interim import InterimAnalyses
from experiments.scheduling.messages import Note, Observer, Stage, TimeLeft, ignore
from experiments.scheduling.messages import Summary as Summary
from experiments.scheduling.study_state import RangeEnd, StudyState
from results.counts import agreeing, count
from results.run_state.checkpoints import Checkpoints
from results.run_state.claims import Claims, trials_of
from results.storage.location import Location
from results.store import Store
from workloads.user_code.program import Program


def sweep(
    experiment: Experiment,
    *,
    results: str | Path | Location,
    address: str = "auto",
    judge: Judge | None = None,
    measure: Measure | None = None,
    observer: Observer | None = None,
    seconds: float | None = None,
    pack_size: int | None = None,
    keep_old: bool = False,
    retrain: bool = False,
    num_cpus: int | None = None,
    grows_to: int | None = None,
    callbacks: Sequence[Any] = (),
    trainer: MakeTrainer = training,
    pace: Pace | None = None,
) -> Summary:
    """Train what is missing of an experiment, and nothing else.

    Args:
        results: folder or URI of the results.
        address: of the executor: ``none`` (this process), ``auto`` (find or start a Ray),
            ``HOST:PORT`` of a cluster, or a user's ``file.py:Class``.
        judge: checks each study's optimum against its search space, when all is done and, where
            the experiment asks for it, to enlarge the space.
        measure: says how wide the intervals are at which the sweep may ``stop`` itself.
        observer: gets every event.
        seconds: end cleanly after so long. A round that is not expected to fit is not begun.
        pack_size: most trials of a pack; 64 at the most.
        keep_old: if only the workload's code has changed, count its old trials as this one's.
        retrain: if it has, train them again.
        num_cpus: of a Ray that is started here; all cores unless given.
        grows_to: how many workers the cluster can grow to, where an autoscaler starts its machines.
        callbacks: Ray Tune's own (``ray.tune.Callback``), whose trials are packs.

    Raises:
        ExperimentError: a clear error, of the experiment or of the cluster, or that no study has
            reached the target when a round that is not the last one ended.
        TrainingError: the workload's own code raised: before any of it had trained, or always.
        Interrupted: on SIGINT or SIGTERM, when all has ended cleanly.
        ResultsError: the results folder cannot be used.
    """
    stop = Stop(seconds)
    executor_kind = executors.find(address)
    if callbacks and executor_kind is executors.find("none"):
        message = "callbacks are Ray Tune's, and --address none runs without it"
        raise ExperimentError(message, hint='address="auto" finds or starts a Ray')
    if experiment.is_program:
        pack_size = 1
    if isinstance(workload := experiment.combinations[0].workload, Program):
        workload.admit()
    run = _Sweep(experiment, results, observer or ignore, pack_size, judge, measure)
    run.plan(keep_old, retrain, executor_kind)
    while run.incomplete() or run.resolve():
        context = ExecutorContext(
            location=run.location,
            layouts=list(dict.fromkeys(state.study.layout for state in run.states)),
            base=experiment.base,
            specs=file_specs(state.study for state in run.states),
            files=experiment.files,
            trainer=trainer,
            pace=pace,
            num_cpus=num_cpus,
            missing=sum(state.remaining().trials for state in run.states),
            data_files=data_files(experiment.combinations, experiment.base),
            grows_to=grows_to,
            program=experiment.spec if isinstance(experiment.spec, Program) else None,
            callbacks=callbacks,
            over=lambda: bool(stop),
        )
        with executor_kind(address, context) as executor:
            with stop.when(lambda: executor.ready):
                run.train(executor.until_ready(), stop)
            if run.incomplete() and not stop:
                with executor.connect(run.report) as pools:
                    run.train(pools, stop)
        if stop or run.incomplete():
            break
    if not (run.incomplete() or run.resolve()):
        run.tidy()
    summary = run.summary()
    if stop.reason == "signal" and (run.incomplete() or not summary.complete):
        raise Interrupted("interrupted: give the same command again to continue", summary)
    return summary


class _Sweep:
    def __init__(
        self,
        experiment: Experiment,
        results: str | Path | Location,
        observer: Observer,
        pack_size: int | None,
        judge: Judge | None,
        measure: Measure | None,
    ) -> None:
        if not isinstance(results, Location):
            root = str(results)
            here = "://" not in root and root.strip()
            results = Location(os.path.abspath(os.path.expanduser(root)) if here else root)
        self.experiment, self.location, self.observer = experiment, results, observer
        self.pack_size, self.judge, self.measure = pack_size, judge, measure
        self.began = time.monotonic()
        self.trained = 0
        self.states: list[StudyState] = []

    def report(self, text: str) -> None:
        """What the sweep does while it does not train."""
        self.observer(Stage(text=text))

    def note(self, text: str) -> None:
        self.observer(Note(text=text))

    # Before training

    def plan(self, keep_old: bool, retrain: bool, executor: type[executors.Executor]) -> None:
        """Plan the studies, and take in what the results folder holds of them.

        Raises:
            ExperimentError: the executor can never have a new study's layout, precision or
                techniques; nothing has been written then.
        """
        self.report("planning the studies")
        studies = planned(self.experiment)
        check_device(self.experiment, self.experiment.combinations, executor.expected_device())
        layouts = [each.study.layout for each in studies]
        self.report(f"reading {self.location.root}")
        if not self.location.files("studies", ".parquet"):
            executor.check(layouts)  # before the folder is made
        self.store = Store(self.location)
        within, measure = self.experiment.stop, self.measure
        self.rule = StoppingRule(self.store, within, measure) if within and measure else None
        self.since = self.store.next_revision("trials") - 1
        end_orphans(self.store, self.note)
        change = None if retrain else changed(self.store, studies)
        if change is not None and not keep_old:
            name = self.experiment.workload or str(studies[0].columns["workload"])
            raise refuse_changed(change, name)
        self.source = None if change is None else change.version
        self.steps = self._recorded_steps()
        if change is not None or self.steps:
            studies = planned(self.experiment, self.source, self.steps)
        if new_rows(self.store, studies):
            executor.check(layouts)
        self._take(studies)

    def _take(self, every: Sequence[Planned]) -> None:
        """Record the studies, and take in what is recorded of them."""
        studies = [each.study for each in every]
        self.store.add_studies(new_rows(self.store, every))
        if renamed := amend.rename(self.store, studies):
            how = f"{agreeing(renamed, 'are')} recorded under the new name"
            self.note(f"{count(renamed, 'trial')} {how} of an optimizer or a schedule.")
        self.passed_over = snapshots.passed_over(self.store, studies)
        if number := len(self.passed_over):
            hung = f"{count(number, 'trial')} that hung in code that cannot be interrupted"
            end = "not tried again before the sweep is complete"
            self.note(f"{hung} {agreeing(number, 'are')} {end}.")
        self.rows = {each.study.id: each.row for each in every}
        recorded = self._read_recorded(studies)
        self.of_other_targets = recorded.others
        before = {state.study.id for state in self.states}
        self.waiting = [study for study in studies if study.waits]
        self.states = [
            StudyState(
                study=each.study,
                columns=each.columns,
                label=each.label,
                records=recorded.records[each.study.id],
                pack_seconds=recorded.pack_seconds.get(each.study.id, {}),
                engine=recorded.engines.get(each.study.id),
                searches=recorded.searches[each.study.id],
                edges=self._edges,
                on_enlarged=partial(self._enlarged, each.row),
            )
            for each in every
            if not each.study.waits
        ]
        if (rule := self.rule) is not None:
            interim = InterimAnalyses(self.states, lambda _: not rule.exceeding(self.states))
            for state in self.states:
                state.interim = interim
        for state in self.states:
            if state.study.id not in before:
                self.observer(state.planned())
        self._retarget()
        amend.join_searches(self.store, self.states)
        if not before:
            of_others = amend.notes_of_other_searches(self.states)
            for note in (*of_others, *baselines.lines(baselines.WAITS, self.waiting)):
                self.note(note)

    def _recorded_steps(self) -> dict[str, int]:
        studies = self.store.studies(self.experiment.name)
        return baselines.recorded(studies, self.experiment.targets[-1])

    def resolve(self) -> bool:
        """Plan the studies whose baselines are complete by now; whether there are any."""
        steps = baselines.known(self.waiting, self.states)
        if not steps:
            return False
        self.steps = {**steps, **self.steps, **self._recorded_steps()}
        self._take(planned(self.experiment, self.source, self.steps))
        return True

    def _read_recorded(self, studies: Sequence[Study]) -> Recorded:
        return read_recorded(self.store, studies, self.since, self.passed_over)

    def _edges(self, state: StudyState) -> Sequence[RangeEnd]:
        return space_edges.sides(state, self.judge, self.store) if self.judge else ()

    def _enlarged(
        self, planned_row: Mapping[str, Any], state: StudyState, where: Sequence[RangeEnd]
    ) -> None:
        if text := space_edges.record(self.store, planned_row, state, where):
            self.note(text)

    def _retarget(self) -> None:
        """Record trials of an earlier target under the present one, if they need no training."""
        target = self.experiment.targets[-1]
        if moved := amend.retarget_done(self.store, self.states, self.of_other_targets):
            self.note(
                f"{count(moved, 'trial')} of an earlier target {agreeing(moved, 'are')} done "
                f"under {target} as well."
            )

    def incomplete(self) -> bool:
        """Whether a trial is missing."""
        return any(state.wave() for state in self.states)

    # Training

    def train(self, pools: Mapping[Layout, WorkerPool], stop: Stop) -> None:
        """Train what is missing, layout by layout, until ``stop`` asks to end."""
        with stop:
            for layout, pool in pools.items():
                states = [state for state in self.states if state.study.layout == layout]
                dispatcher = self._dispatcher(states, pool, stop)
                dispatcher.merge({}, trials_of(self._claims()))
                try:
                    with polling(partial(self._poll, dispatcher), dispatcher.fail):
                        pool.run(dispatcher)
                finally:
                    self.trained += dispatcher.trained
                if dispatcher.refused is not None:
                    self.note(
                        "the next round does not fit the time left; give the same command "
                        "again to train it."
                    )
                # Where nothing has trained, what failed is the reason that no target was reached.
                error = dispatcher.hopeless() or dispatcher.error
                if error:
                    raise error

    def _dispatcher(self, states: Sequence[StudyState], pool: WorkerPool, stop: Stop) -> Dispatcher:
        return Dispatcher(
            states,
            slots=pool.slots,
            device=pool.device,
            pack_size=self.pack_size,
            resumable=snapshots.resumable(self.store, [state.study for state in states]),
            observer=self.observer,
            on_round=self._round_ended,
            stop=lambda: bool(stop),
            left=lambda: stop.left,
            reproduce=partial(
                reproduce_command,
                root=self.location.root,
                folder=self.experiment.base if file_specs(s.study for s in self.states) else None,
                script=self.experiment.is_program,
            ),
            divide=partial(snapshots.divide, Checkpoints(self.store.location)),
            record=partial(record_lost_trial, self.store),
        )

    def _poll(self, dispatcher: Dispatcher) -> None:
        """Estimate the time left, and read what other drivers have recorded and claimed."""
        claims = self._claims()
        others = [state for state in self.states if state not in dispatcher.states]
        remaining = [*dispatcher.remaining(), *(state.remaining() for state in others)]
        self.observer(TimeLeft(seconds=rounds.seconds_left(remaining, len(claims))))
        claimed = trials_of(claims)
        if dispatcher.shares_with(claimed):
            studies = [state.study for state in dispatcher.states]
            dispatcher.merge(self._read_recorded(studies).records, claimed)

    def _claims(self) -> list[Mapping[str, Any]]:
        """Packs that a driver trains, this one or another."""
        return [claim for claim in Claims(self.store.location).live() if claim["info"].get("study")]

    def _round_ended(self, number: int) -> Exception | None:
        """The error that stops the sweep after a round in which no study has reached the target."""
        amend.join_searches(self.store, self.states)
        if any(state.hits() for state in self.states):
            return None
        ends = Counter(r.stop_reason for state in self.states for r in state.records.values())
        if set(ends) == {"error"}:
            return None  # the sweep ends with the failure itself
        goals = rounds.goals(max(state.study.trials for state in self.states))
        labels = {state.study.id: state.label for state in self.states}
        studies = [state.study for state in self.states]
        error = no_target(self.store, studies, labels, goals[number], ends)
        enlarges = self.judge is not None and any(s.study.search.extend for s in self.states)
        if number < len(goals) - 1 and self.experiment.stop_at_target and not enlarges:
            return error
        self.note(f"{error}. {error.hint}" if error.hint else str(error))
        return None

    # After training

    def tidy(self) -> None:
        """The end of a complete sweep: files are merged, without superseded rows, and optima
        checked against their search spaces."""
        self._retarget()  # of trials that were drawn since
        amend.join_searches(self.store, self.states)
        snapshots.forget(self.store, [state.study for state in self.states])
        # Also if this run trained nothing: an earlier run may have been killed before this.
        name, claims = self.experiment.name, Claims(self.store.location)
        claims.clear()
        if not any(claim["info"].get("experiment") == name for claim in claims.live()):
            self.store.compact(name, idle=True)
        if self.rule is not None:
            self.note(self.rule.conclude(self.states, self.rows))
        at_edges = space_edges.notes(self.states, self.judge, self.store) if self.judge else []
        for note in (*baselines.lines(baselines.UNREACHED, self.waiting), *at_edges):
            self.note(note)

    def summary(self) -> Summary:
        """What the sweep did; what the dataset does not hold does not count."""
        counts = [state.counts() for state in self.states]
        left = sum(each.left for each in counts)
        if left:  # else the baselines of those that wait have not reached the target
            left += sum(study.trials for study in self.waiting)
        known = [each for state in self.states for each in state.recorded()]
        held = set(self.store.trials(columns=["trial"])["trial"]) if known else set()
        records = [record for trial, record in known if trial.id in held]
        return Summary(
            experiment=self.experiment.name,
            location=self.location,
            studies=len(self.states),
            trials=sum(record.stop_reason != "error" for record in records),
            trained=self.trained,
            failed=sum(each.failed for each in counts),
            reached=sum(1 for state in self.states if state.hits()),
            seconds=time.monotonic() - self.began,
            left=left + len(known) - len(records),
        )
