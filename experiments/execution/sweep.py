"""Trains what an experiment lacks: the driver of a sweep.

sweep(load("my_model.yaml"), results="results/runs", address="auto", observer=print)
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.config.file import Experiment
from experiments.execution.executors import Executor
from experiments.execution.executors.opening import Executors, Opening
from experiments.execution.orphans import end_leftovers
from experiments.execution.signals import Interrupted, Stop, StopWhen
from experiments.execution.worker import MakeTrainer, Pace, training
from experiments.plan import Layout
from experiments.records import recorded as dataset
from experiments.records.display_names import rename
from experiments.records.no_target import shortfall
from experiments.records.planned import Planned, planned
from experiments.records.retarget import relabel
from experiments.records.samples import adopt, left_out
from experiments.records.space_edges import Judge, edges, sentence, sides
from experiments.scheduling import remaining, rounds
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.events import Note, Observer, Stage, TimeLeft, ignore
from experiments.scheduling.failures import reproducing
from experiments.scheduling.study_state import Side, StudyState
from results.counts import agreeing, count
from results.run_state.claims import Claims
from results.schema import json_text
from results.storage.location import Location
from results.store import Store

_EDGES_SHOWN = 6
_END = {"low": "lower", "high": "upper"}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a sweep did."""

    experiment: str
    location: Location
    """The results folder or URI: what opens it again."""
    studies: int
    trials: int
    """Trials of the experiment that are recorded by now, without failed ones."""
    trained: int
    """Trials that this run recorded."""
    failed: int
    """Trials whose own code raised, of this run."""
    reached: int
    """Studies in which a trial has reached the target."""
    seconds: float
    complete: bool
    """Whether nothing is left to do."""

    @property
    def path(self) -> str:
        """The results folder or URI, to be shown: keys in it are masked."""
        return self.location.root


def sweep(
    experiment: Experiment,
    *,
    results: str | Path | Location,
    address: str = "auto",
    judge: Judge | None = None,
    observer: Observer | None = None,
    seconds: float | None = None,
    pack_size: int | None = None,
    keep_old: bool = False,
    retrain: bool = False,
    num_cpus: int | None = None,
    trainer: MakeTrainer = training,
    pace: Pace | None = None,
) -> Summary:
    """Train what is missing of an experiment, and nothing else.

    Args:
        results: folder or URI of the results.
        address: ``none`` (this process), ``auto`` (find or start a Ray), or ``HOST:PORT``.
        judge: checks each study's optimum against its search space, when all is done and, where
            the experiment asks for it, to enlarge the space.
        observer: gets every event.
        seconds: end cleanly after so long. A round that is not expected to fit is not begun.
        pack_size: most trials of a pack; 64 at the most.
        keep_old: if only the workload's code has changed, count its old trials as this one's.
        retrain: if it has, train them again.
        num_cpus: of a Ray that is started here; all cores unless given.

    Raises:
        ExperimentError: a clear error, of the experiment or of the cluster, or that no study has
            reached the target when a round that is not the last one ended.
        TrainingError: the workload's own code raised: in the first three packs alike, or always.
        Interrupted: on SIGINT or SIGTERM, when all has ended cleanly.
        ResultsError: the results folder cannot be used.
    """
    if not isinstance(results, Location):
        root = str(results)
        here = "://" not in root and root.strip()
        results = Location(os.path.abspath(os.path.expanduser(root)) if here else root)
    return _Sweep(experiment, results, observer or ignore, pack_size, judge).run(
        address, Stop(seconds), keep_old, retrain, num_cpus, trainer, pace
    )


class _Sweep:
    def __init__(
        self,
        experiment: Experiment,
        location: Location,
        observer: Observer,
        pack_size: int | None,
        judge: Judge | None,
    ) -> None:
        self.experiment, self.location, self.observer = experiment, location, observer
        self.root = location.root
        self.pack_size, self.judge = pack_size, judge
        self.began, self.since = time.monotonic(), datetime.now(UTC)
        self.trained = self.failed = 0

    def run(
        self,
        address: str,
        stop: Stop,
        keep_old: bool,
        retrain: bool,
        num_cpus: int | None,
        trainer: MakeTrainer,
        pace: Pace | None,
    ) -> Summary:
        self._stage("planning the studies")
        plans = planned(self.experiment)
        self._stage(f"reading {self.root}")
        self.store = Store(self.location)
        end_leftovers(self.store)
        plans = self._settle_changes(plans, keep_old, retrain)
        self.store.add_studies(plans.new_rows(self.store))
        if renamed := rename(self.store, plans.studies):
            text = f"{count(renamed, 'trial')} {agreeing(renamed, 'are')} recorded under the new "
            self.observer(Note(text=f"{text}name of an optimizer or a schedule."))
        self.states = self._states(plans)
        self._tell_plan()
        self._move_targets()
        self._settle_samples()
        if self._lacks():
            opening = self._opening(trainer, pace)
            with opening.local_ray(address, num_cpus) as local_ray:
                if local_ray is not None:
                    until = StopWhen(stop, lambda: local_ray.decided)
                    self._train(opening.meanwhile(), until)
                if self._lacks() and not stop:
                    with opening.open(address, local_ray, self._stage) as executors:
                        self._train(executors, stop)
        complete = not self._lacks()
        if complete:
            self._tidy()
        summary = self._summary(complete)
        if stop.reason == "signal" and not complete:
            raise Interrupted("interrupted: the same command goes on from here", summary)
        return summary

    def _lacks(self) -> bool:
        """Whether a trial is missing."""
        return any(state.wave() for state in self.states)

    def _stage(self, text: str) -> None:
        self.observer(Stage(text=text))

    def _settle_changes(self, plans: Planned, keep_old: bool, retrain: bool) -> Planned:
        found = dataset.changed(self.store, plans.plans, plans.rows)
        if found is None or retrain:
            return plans
        if not keep_old:
            raise dataset.refuse_changed(found, self.experiment.workload)
        return planned(self.experiment, source=found.version)

    def _states(self, plans: Planned) -> list[StudyState]:
        found = dataset.known(self.store, plans.studies, self.since)
        self.others = found.others
        self.rows = {row["study"]: row for row in plans.rows}
        return [
            StudyState(
                plan=plan,
                columns=columns,
                label=label,
                records=dict(found.records[plan.study.id]),
                spent=dict(found.spent.get(plan.study.id, {})),
                engine=found.engines.get(plan.study.id),
                searches=dict(found.searches[plan.study.id]),
                edges=self._sides,
                on_enlarged=self._enlarged,
            )
            for plan, columns, label in zip(plans.plans, plans.columns, plans.labels, strict=True)
        ]

    def _sides(self, state: StudyState) -> Sequence[Side]:
        return sides(state, self.judge, self.store) if self.judge else ()

    def _enlarged(self, state: StudyState, where: Sequence[Side]) -> None:
        """The enlarged space is the study's from now on: its row says so."""
        space = json_text(dict(state.search_space))
        before = self.store.studies(self.experiment.name)
        spaces = before["search_space"][before["study"] == state.study.id]
        if len(spaces) and spaces.iloc[-1] == space:
            return  # an earlier run has said so
        self.store.add_studies([{**self.rows[state.study.id], "search_space": space}])
        ends = " and ".join(f"{name} at its {_END[side]} end" for name, side in where)
        more = count(len(state.blocks[-1].trials), "more trial")
        text = f"{state.label}: the optimum has no room, {ends}: {more}, beyond it."
        self.observer(Note(text=text))

    def _tell_plan(self) -> None:
        for state in self.states:
            self.observer(state.planned())

    def _move_targets(self) -> None:
        """What is done under another target than the present one is recorded under this one."""
        target = self.states[0].study.targets[-1]
        others = {t: state for state in self.states for t in state.records if t in self.others}
        done = [t for t, state in others.items() if not state.need(t)]
        moved = relabel(self.store, self.experiment.name, target, done) if done else 0
        if moved:
            text = f"{count(moved, 'trial')} of an earlier target {agreeing(moved, 'are')} done "
            text += f"under {target} as well."
            self.observer(Note(text=text))

    def _settle_samples(self) -> None:
        """Trials of other searches of the studies are this one's where it has drawn them too."""
        adopt(self.store, self.states)
        foreign = {state.label: left_out(state) for state in self.states}
        trials, studies = sum(foreign.values()), sum(1 for left in foreign.values() if left)
        if trials:
            text = (
                f"{count(trials, 'recorded trial')} of {count(studies, 'study')} "
                f"{agreeing(trials, 'belong')} to another search (another space, method or seed) "
                f"and {agreeing(trials, 'are')} not counted; --search all of regimes, plot and "
                "report counts them."
            )
            self.observer(Note(text=text))

    def _opening(self, trainer: MakeTrainer, pace: Pace | None) -> Opening:
        return Opening(
            location=self.location,
            layouts=list(dict.fromkeys(state.study.layout for state in self.states)),
            base=self.experiment.base,
            specs=self._specs_of_files(),
            files=self.experiment.files,
            trainer=trainer,
            pace=pace,
        )

    def _train(self, executors: Executors, stop: Stop) -> None:
        with stop:
            for layout, executor in executors.items():
                self._train_layout(executor, layout, stop)

    def _train_layout(self, executor: Executor, layout: Layout, stop: Stop) -> None:
        states = [state for state in self.states if state.study.layout == layout]
        dispatcher = Dispatcher(
            states,
            slots=executor.slots,
            device=executor.device,
            pack_size=self.pack_size,
            resumable=dataset.snapshots(self.store, [s.study for s in states]),
            observer=self.observer,
            on_round=self._round_ended,
            left=lambda: stop.left,
            reproduce=self._reproduce,
        )

        def trials_of(claims: Iterable[Mapping[str, Any]]) -> set[str]:
            return {trial for claim in claims for trial in claim["trials"]}

        def look() -> None:
            claims = self._claims()
            rests = dispatcher.rests() + [s.rest() for s in self.states if s not in states]
            self.observer(TimeLeft(seconds=remaining.seconds(rests, len(claims))))
            claimed = trials_of(claims)
            if dispatcher.shares_with(claimed):
                found = dataset.known(self.store, [s.study for s in states], self.since)
                dispatcher.merge(found.records, claimed)

        dispatcher.merge({}, trials_of(self._claims()))
        try:
            executor.run(dispatcher, stop, look)
        finally:
            self.trained += dispatcher.trained
            self.failed += dispatcher.failed
        if dispatcher.refused is not None:
            text = "the next round does not fit the time left; the same command goes on with it."
            self.observer(Note(text=text))
        # Where nothing has trained, what failed says why no study has come anywhere.
        error = dispatcher.hopeless() or dispatcher.error
        if error:
            raise error

    def _reproduce(self, trial: str) -> str:
        """The command that trains a recorded trial again, to be given where this one was."""
        folder = self.experiment.base if self._specs_of_files() else None
        return reproducing(trial, self.root, folder)

    def _specs_of_files(self) -> list[str]:
        """Workloads, optimizers, schedules and layouts that are named by their files."""
        specs = [
            spec
            for study in (state.study for state in self.states)
            for spec in (
                study.workload.spec,
                study.optimizer,
                study.schedule,
                *study.technique,
                study.layout.name,
            )
        ]
        return [spec for spec in specs if spec and ".py" in spec]

    def _claims(self) -> list[Mapping[str, Any]]:
        """Packs that somebody is training. This sweep's own are known to the dispatcher."""
        return [one for one in Claims(self.store.location).live() if one["info"].get("study")]

    def _round_ended(self, number: int) -> Exception | None:
        adopt(self.store, self.states)
        if any(state.reached() for state in self.states):
            return None
        goals = rounds.goals(max(state.study.trials for state in self.states))
        labels = {state.study.id: state.label for state in self.states}
        ends = Counter(r.stop_reason for state in self.states for r in state.records.values())
        if set(ends) == {"error"}:
            return None  # the sweep ends with what was raised
        short = shortfall(self.store, [s.study for s in self.states], labels)
        error = short.error(goals[number], ends)
        if number < len(goals) - 1 and self.experiment.stop_at_target and not self._extends:
            return error
        self.observer(Note(text=f"{error}. {error.hint}" if error.hint else str(error)))
        return None

    def _tidy(self) -> None:
        """The end of a complete sweep: files are merged, without what is superseded in them, and
        optima checked for room."""
        adopt(self.store, self.states)
        dataset.forget_snapshots(self.store, [state.study for state in self.states])
        # Also where this run trained nothing: the one that did may have been killed before this.
        name, claims = self.experiment.name, Claims(self.store.location).live()
        if not any(claim["info"].get("experiment") == name for claim in claims):
            self.store.compact(name)
        notes = [note for state in self.states for note in self._edges(state)]
        for note in notes[:_EDGES_SHOWN]:
            self.observer(Note(text=note))
        if len(notes) > _EDGES_SHOWN:
            more = count(len(notes) - _EDGES_SHOWN, "more study", "have")
            self.observer(Note(text=f"{more} an optimum at an edge."))

    def _edges(self, state: StudyState) -> Iterator[str]:
        """The best trials must have room around them in their search space."""
        if self.judge is None or not state.reached():
            return
        found = edges(state, self.judge, self.store)
        if found:
            yield sentence(state, found)

    @property
    def _extends(self) -> bool:
        """Whether spaces are enlarged where no optimum is in them."""
        return self.judge is not None and any(state.study.extend for state in self.states)

    def _summary(self, complete: bool) -> Summary:
        records = [record for state in self.states for _, record in state.recorded()]
        return Summary(
            experiment=self.experiment.name,
            location=self.location,
            studies=len(self.states),
            trials=sum(record.stop_reason != "error" for record in records),
            trained=self.trained,
            failed=self.failed,
            reached=sum(1 for state in self.states if state.reached()),
            seconds=time.monotonic() - self.began,
            complete=complete,
        )
