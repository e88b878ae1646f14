"""The training of one trial of a program: what a worker needs of it (``execution.trainer``).

What the program reports is evaluated by the stopping rules of ``experiments.training.stopping``.
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import Any

from experiments.errors import ProgramError, nearest
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Measurement, Outcome, Pack, StopReason, Trial
from experiments.programs.metrics import Metrics
from experiments.programs.nodes import Instruction, Meeting, follow, lead, start
from experiments.programs.place import SCRIPT
from experiments.programs.process import REPORTS, RUNNING, Ended, Process, runs_in
from experiments.programs.reports import Report
from experiments.training.stopping import STATUS, Evaluation, StudyHits, TrialProgress, stop_reasons
from workloads.user_code.program import Program

Event = Measurement | Outcome
ENGINE = "program"
_POLL_SECONDS = 0.2
_VALUE_WIDTH = 40
RECORDED = "measurements.jsonl"
UNREPORTED = (RUNNING, SCRIPT, "stdout.log*", "stderr.log*", "stop")
"""Files of ours in a trial's folder, though its program has not reported."""
_NO_RESUME = "the experiment has no resume: … for its program"


class ProgramTraining:
    """Runs the program of a pack's one trial until it has a reason to stop."""

    def __init__(
        self,
        pack: Pack,
        *,
        folder: str,
        device: str = "cpu",
        group: Ranks = SOLO,
        snapshot: bytes | None = None,
    ) -> None:
        """
        Args:
            folder: of all trials of the results; a trial has its own below it.
            group: of a rank for each node.
            snapshot: none is ever made: all that is needed is in the trial's folder.
        """
        del device, snapshot
        self._group = group
        (self._trial,) = pack.trials
        self._study, spec = pack.study, pack.study.workload.program
        assert spec is not None
        self._program: Program = spec
        self._folder = Path(folder).absolute() / self._trial.id
        self._metric = self._study.targets[-1].metric
        self._hits = StudyHits(pack.known)
        self.engine, self.paused = ENGINE, dict[str, bytes]()
        self.not_kept = None if spec.resume else _NO_RESUME
        self.steps = 0
        """Steps that the program has taken since it was started here."""
        self._instruction = Instruction()
        self.step = 0
        self._progress = TrialProgress(next=0)
        self._largest_gap = 0
        self._step_metrics: tuple[int, dict[str, float]] = (0, {})
        self._names: dict[str, None] = {}
        self._no_number = ""
        """What was last said of the metric that is no number."""
        self._outcome: Outcome | None = None
        self._before = 0.0
        """Seconds of training before this run."""
        self._began = time.monotonic()

    @property
    def active(self) -> tuple[str, ...]:
        """The trial, as long as it trains."""
        return () if self._outcome else (self._trial.id,)

    @property
    def current(self) -> str | None:
        """The trial."""
        return self._trial.id

    def know(self, steps_to_target: Iterable[int]) -> None:
        """Take in steps to target that other trials of the study have reached."""
        for steps in steps_to_target:
            self._hits.add(steps)

    def keep(self, trials: Collection[str]) -> None:
        """There is no other."""

    def add(self, trials: Sequence[Trial]) -> None:
        """
        Raises:
            ValueError: always: a pack of a program has one trial.
        """
        raise ValueError(f"a pack of a program has one trial, not {1 + len(trials)}")

    def resume(self, paused: Mapping[str, bytes]) -> Collection[str]:
        """None by a state: it goes on from its folder by itself."""
        del paused
        return ()

    def snapshot(self) -> bytes | None:
        """None: see ``__init__``."""
        return None

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[list[Event]]:
        """Run the program, on all nodes; a list for each poll, mostly an empty one.

        Ends when the trial has ended, or, without its outcome, once ``should_stop()`` is true; none
        of its processes runs then.

        Raises:
            ProgramError: it ended by itself before its budget, or failed.
            ExperimentError: a report cannot be read.
        """
        if self._group.size == 1:
            yield from self._run(should_stop)
        elif self._group.rank == 0:
            yield from lead(self._run(should_stop), self._instruct, self._group)
        else:
            yield from follow(self._start_part, self._obey, self._group)

    def _instruct(self) -> Instruction:
        """What the other ranks are to know."""
        state = {"step": self.step, "steps": self.steps, "outcome": self._outcome}
        return replace(self._instruction, state=state)

    def _obey(self, said: Instruction) -> None:
        state = dict(said.state or {})
        self.step, self.steps, self._outcome = state["step"], state["steps"], state["outcome"]

    def _start_part(self, said: Instruction) -> Process:
        """The part of the program on another node, once none of a dead worker is left here."""
        while runs_in(self._folder.with_name(f"{self._folder.name}.node{self._group.rank}")):
            time.sleep(_POLL_SECONDS)
        return start(
            self._study,
            self._trial,
            self._folder,
            resume=said.resume,
            meeting=said.meeting,
            node=self._group.rank,
        )

    def _run(self, should_stop: Callable[[], bool]) -> Iterator[list[Event]]:
        """On the first node, or the only one."""
        while runs_in(self._folder):  # of a worker that has died
            if should_stop():
                return
            time.sleep(_POLL_SECONDS)
            yield []
        if not self._program.resume:
            shutil.rmtree(self._folder, ignore_errors=True)
        if not self._has_begun():
            yield from self._attempt(should_stop, None)
            return
        events = self._replayed(self.recorded())
        self._began = time.monotonic()
        # What it has still reported while no worker read it.
        unread = Metrics(self._program.reports).sources(self._folder / REPORTS, self._folder)
        events += self._taken(chain.from_iterable(each.more(ended=True) for each in unread))
        if self._outcome is None:
            yield from self._attempt(should_stop, events)
        else:
            yield [*events, self._outcome]

    def _has_begun(self) -> bool:
        """Whether an earlier run has reported anything, or written a file into the folder: only
        then may there be a checkpoint."""
        files = (path for path in self._folder.rglob("*") if not path.is_dir())
        names = (str(path.relative_to(self._folder)) for path in files)
        return any(not any(fnmatch(name, ours) for ours in UNREPORTED) for name in names)

    def _attempt(
        self, should_stop: Callable[[], bool], before: list[Event] | None
    ) -> Iterator[list[Event]]:
        """Run it once.

        ``before``: the events of the runs that this one goes on from, if it does; they are given
        with its first.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        reported = stopped = False
        self._began = time.monotonic()
        nodes = self._group.size
        meeting = Meeting.at(self._group.address, nodes, self._program.devices // nodes)
        resume = before is not None
        number = self._instruction.started + 1
        self._instruction = Instruction(started=number, meeting=meeting, resume=resume)
        with closing(self._start(resume=resume, meeting=meeting)) as process:
            while self._outcome is None and process.ended is None and not stopped:
                stopped = should_stop()
                reports = process.reports(_POLL_SECONDS)
                events = self._taken(reports)
                if reports and not reported:
                    reported, events = True, [*(before or ()), *events]
                yield events
                if process.hangs:
                    raise self._hanging(process)
            self._instruction = replace(self._instruction, ending=True)
            if process.ended is None:
                process.end()
            while process.ended is None:
                reports = process.reports(_POLL_SECONDS)
                yield [] if self._outcome else self._taken(reports)
            if self._outcome is None and not stopped:
                self._outcome = self._at_end(process.ended, reported=reported)
        if self._outcome is not None:
            yield [*(() if reported else before or ()), self._outcome]

    def _start(self, *, resume: bool, meeting: Meeting) -> Process:
        where = self._study, self._trial, self._folder
        return start(*where, resume=resume, meeting=meeting, from_now=resume)

    def _hanging(self, process: Process) -> ProgramError:
        silent = f"nothing was reported for {process.silent:,.0f} s"
        process.close()
        assert process.ended is not None
        message = f"{self._program.name} hung after step {self.step:,}: {silent}"
        return ProgramError("\n".join([*process.ended.stderr, message]))

    # What it reports

    def _taken(self, reports: Iterable[Report]) -> list[Event]:
        """The measurements among reports, which are kept in the folder first."""
        events: list[Event] = []
        for report in reports:
            if self._outcome is not None:
                break
            self.steps += max(0, report.step - self.step)
            events += self._evaluated(report, self._seconds)
        if events:
            with (self._folder / RECORDED).open("a", encoding="utf-8") as stream:
                for event in events:
                    assert isinstance(event, Measurement)
                    kept = {"step": event.step, "seconds": event.train_seconds}
                    stream.write(json.dumps({**kept, "metrics": dict(event.metrics)}) + "\n")
        return events

    def _evaluated(self, report: Report, seconds: float) -> list[Event]:
        """The measurement of a report, if it is one; sets the outcome where the trial ends."""
        step, budget = report.step, self._study.budget_steps
        self.step = max(self.step, step)
        self._names.update(dict.fromkeys(report.metrics))
        if (value := report.no_numbers.get(self._metric)) is not None:
            text = repr(value)[:_VALUE_WIDTH]
            self._no_number = f"; {self._metric} was {text} at step {step:,}, which is no number"
        if step > budget:
            self._outcome = self._ended("budget", budget, seconds)
            return []
        if step != self._step_metrics[0]:
            self._step_metrics = step, {}
        metrics = self._step_metrics[1]
        metrics.update(report.metrics)
        finite = all(
            math.isfinite(value)
            for name, value in report.metrics.items()
            if name == self._metric or name.endswith("loss")
        )
        measured = self._metric in report.metrics and step > self._progress.last
        if finite and not measured:
            return []
        evaluation = Evaluation(
            row=0,
            trial=self._trial,
            step=step,
            progress=self._progress,
            finite=finite,
            metrics=dict(metrics),
            hit=finite and self._study.targets[-1].hit(metrics[self._metric]),
            train_seconds=seconds,
        )
        events = [self._record(evaluation)] if finite else []
        reason = next(stop_reasons(self._study, self._hits, evaluation), None)
        if reason is not None:
            self._outcome = self._ended(reason, step, seconds)
        return events

    def _record(self, evaluation: Evaluation) -> Event:
        progress, step = self._progress, evaluation.step
        self._hits.add_first(evaluation)
        self._largest_gap = max(self._largest_gap, step - progress.last)
        progress.last = step
        return Measurement(
            trial=self._trial.id,
            step=step,
            examples=self._study.batches.examples(step),
            train_seconds=evaluation.train_seconds,
            metrics=evaluation.metrics,
        )

    def _ended(self, reason: StopReason, step: int, seconds: float) -> Outcome:
        steps_to_target, last_miss = self._progress.hit or (None, None)
        return Outcome(
            trial=self._trial.id,
            status=STATUS[reason],
            stop_reason=reason,
            steps_run=step,
            examples_run=self._study.batches.examples(step),
            steps_to_target=steps_to_target,
            last_miss=last_miss,
            train_seconds=seconds,
        )

    @property
    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    def _at_end(self, ended: Ended, *, reported: bool) -> Outcome:
        """The outcome of a program that ended by itself. ``reported``: anything in this run.

        Raises:
            ProgramError: it failed, or ended before its budget.
        """
        budget, last = self._study.budget_steps, self._progress.last
        if ended.exit == 0 and last > 0 and last + self._largest_gap >= budget:
            return self._ended("budget", budget, self._seconds)
        after = (
            f"after step {self.step:,} of {budget:,}" if self.step else "before its first report"
        )
        cannot = self._instruction.resume and not reported
        said = ": ".join([str(ended), *(ended.stderr[-1:] if ended.exit or cannot else ())])
        message = f"{self._program.name} ended {after}: {said}"
        if self._no_number and ended.exit == 0:
            message += self._no_number
        elif ended.error is None and not last and self._names:
            near = nearest(self._metric, self._names)
            message += f"; it has reported no {self._metric}: {near or ', '.join(self._names)}"
        elif ended.exit == 0 and not self._names:
            example = f'lines such as {{"step": 1, "{self._metric}": 0.5}}'
            of = Metrics(self._program.reports).written(self._folder, example)
            message += f"; it reports by {of}"
        if cannot:
            message = f"{self._program.name} could not go on by {shlex.join(self._program.resume)}"
            message += f": {said}; its folder is kept, the next sweep tries again; anew: "
            message += f"rm -r {shlex.quote(str(self._folder))}"
        lines = [*ended.stderr, f"(its output: {self._folder}/stdout.log)", message]
        raise ProgramError("\n".join(lines))

    # What earlier runs have reported

    def recorded(self) -> list[Mapping[str, Any]]:
        """What the trial's folder holds; without half a line at its end."""
        try:
            lines = (self._folder / RECORDED).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            return []
        recorded: list[Mapping[str, Any]] = []
        for line in lines:
            try:
                recorded.append(json.loads(line))
            except ValueError:
                break
        return recorded

    def _replayed(self, recorded: Iterable[Mapping[str, Any]]) -> list[Event]:
        events: list[Event] = []
        for each in recorded:
            report = Report(step=int(each["step"]), metrics=each["metrics"])
            if self._outcome is None:
                events += self._evaluated(report, float(each["seconds"]))
            self._before = float(each["seconds"])
        return events
