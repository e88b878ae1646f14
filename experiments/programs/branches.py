"""Branches of a trial of a program: it goes on by ``resume`` from copies of its folder.

The program is trained once more up to each step, and ended there. Its folder then holds a
checkpoint, which may be of an earlier step or of a later one. A program need not come to the same
weights twice: branches from a step are of one copy, which stays in ``RESULTS/programs``.

Where a branch began is seen by the examples (or tokens) so far in its reports. The trial reads r a
step, so a branch at k times its batch size reads k r: one that has read n after step s began at
step (k r s - n) / ((k - 1) r), and all of them must have begun at one. At k = 1 reports lie on the
trial's own line, wherever it began: these branches are trained last.
"""

from __future__ import annotations

import itertools
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.errors import ExperimentError, ProgramError
from experiments.factors.rule import rate_factor
from experiments.plan import Measurement, Outcome, Pack, Study, Trial
from experiments.programs.check import SEEN
from experiments.programs.nodes import Meeting
from experiments.programs.process import REPORTS, Process, runs_in
from experiments.programs.training import RECORDED, UNREPORTED, Event, ProgramTraining
from experiments.training.branches import Branch
from results.counts import count

_OURS = (REPORTS, RECORDED, *UNREPORTED)
"""Files of a trial's folder that the program has not made."""
_POLL_SECONDS = 0.2
_ROUNDING = 2e-7
"""Relative: TensorBoard's numbers have 24 bits."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How much a trial reads, as its reports count it."""

    name: str
    rate: float
    """So much a step."""
    before: float
    """So much before the first one."""

    def began(self, times: int, step: int, read: float) -> float:
        """Where a branch at ``times`` (above 1) the batch size began that has read so much."""
        return (self.before + times * self.rate * step - read) / ((times - 1) * self.rate)

    def is_of(self, times: int, began: int, step: int, read: float) -> bool:
        """Whether one that began there has read so much after ``step``."""
        expected = self.before + self.rate * (began + times * (step - began))
        return math.isclose(read, expected, rel_tol=_ROUNDING)


def reading(trial: str, measured: Mapping[int, Mapping[str, float]]) -> Reading:
    """How a trial reads, by its metrics at each step.

    Raises:
        ExperimentError: they do not say how much, or it is not the same at each step.
    """
    names = [name for name in next(iter(measured.values())) if name.endswith(SEEN)]
    for name in names:
        read = {step: metrics.get(name, math.nan) for step, metrics in measured.items()}
        first, last = (min(read), max(read)) if len(read) > 1 else (0, max(read))
        rate = (read[last] - read.get(first, 0.0)) / (last - first)
        line = Reading(name=name, rate=rate, before=read[last] - rate * last)
        if rate > 0 and all(line.is_of(1, 0, *point) for point in read.items()):
            return line
    said = "reports neither examples nor tokens"
    if names:
        said = f"reports {names[0]} that do not grow by one number a step"
    raise ExperimentError(
        f"trial {trial} {said}: it could not be seen where a branch begins",
        hint="report with each measurement what all steps so far have read, in batches of one size",
    )


class ProgramBranches:
    """What trains the branches of a trial of a program."""

    def __init__(
        self,
        study: Study,
        trial: Trial,
        measured: Mapping[int, Mapping[str, float]],
        *,
        rule: str,
        code: str,
        window: int,
        folder: str,
    ) -> None:
        """
        Args:
            study: the trial's, with its whole budget.
            measured: its recorded metrics by step.
            code: the version of the program.
            window: in steps of the trial.
            folder: of all trials of programs.

        Raises:
            ExperimentError: the program or its reports do not allow branches.
        """
        program = study.workload.program
        assert program is not None
        name, steps = program.name, (0, *sorted(measured))
        distance = min(after - before for before, after in itertools.pairwise(steps))
        if not program.resume:
            raise ExperimentError(
                f"{name} has no resume, by which a branch would go on from a checkpoint",
                hint="resume: --resume in the experiment's file, then the same sweep again",
            )
        if program.nodes > 1:
            message = f"{name} trains on several machines, and branches are trained on one"
            raise ExperimentError(message, hint="branch a trial of one machine")
        if rule != "none" and _learning_rate(study, trial) is None:
            message = f"the command of {name} has no {{learning_rate}}, which the {rule} rule sets"
            raise ExperimentError(message, hint="give it this name in the file; or --rule none")
        if window < distance:
            message = f"{name} evaluates each {count(distance, 'step')}, the window is {window:,}"
            raise ExperimentError(message, hint="give a longer one, or evaluate more often")
        self.study, self.trial = replace(study, stop_at_target=False, keep=None), trial
        self.window, self.folder = window, Path(folder)
        self.reading = reading(trial.id, measured)
        self._name = f"{trial.id}-{code[:8]}"

    def train(
        self, wanted: Sequence[Branch], began: Mapping[int, int]
    ) -> Iterator[tuple[Branch, list[Measurement], list[Outcome]]]:
        """Train the trial once more, and from its checkpoints the branches, each alone.

        Args:
            began: where those from each step of which some are recorded have begun.

        Raises:
            ExperimentError: the program failed, or did not go on as its branch should; a checkpoint
                of recorded branches is gone.
        """
        again = replace(self.trial, id=self._name)
        by_step, begun = sorted(wanted, key=lambda branch: branch.step), {*began.values()}
        for step, group in itertools.groupby(by_step, key=lambda branch: branch.step):
            checkpoint, at = self.folder / f"{again.id}-at-{step}", began.get(step)
            if not checkpoint.is_dir():
                if at is not None:
                    message = f"the checkpoint of the recorded branches is gone: {checkpoint}"
                    raise ExperimentError(message, hint="give another step, or another window")
                self._train_to(step, again)
                _copy(self.folder / again.id, checkpoint)
            alone = [replace(b, trials=(each,)) for b in group for each in b.trials]
            for branch in sorted(alone, key=_order):
                with _clear_errors(self.folder / branch.trials[0].id):
                    made = _BranchTraining(self, branch, checkpoint, at).train()
                if at is None and made[0].step in begun:
                    message = f"branches from step {step:,} began at the checkpoint of another"
                    raise ExperimentError(message, hint="give steps that are farther apart")
                begun.add(at := made[0].step)
                shutil.rmtree(self.folder / branch.trials[0].id)
                yield made
        shutil.rmtree(self.folder / again.id, ignore_errors=True)

    def _train_to(self, step: int, trial: Trial) -> None:
        """Train it up to its first report at or after a step, from where it was stopped before."""
        pack = Pack(id=trial.id, study=self.study, trials=(trial,))
        training = ProgramTraining(pack, folder=str(self.folder))
        if any(each["step"] >= step for each in training.recorded()):  # it has gone too far
            _empty(self.folder / trial.id)
        with _clear_errors(self.folder / trial.id):
            events = [e for each in training.run(lambda: training.step >= step) for e in each]
        if any(isinstance(each, Outcome) and each.stop_reason == "diverged" for each in events):
            message = f"trial {self.trial.id} has diverged before step {step:,}"
            raise ExperimentError(message, hint="branch from an earlier step")
        if training.step > step + self.window:
            message = f"trial {self.trial.id} was at step {training.step:,} before it was ended"
            raise ExperimentError(f"{message} near step {step:,}", hint="give a longer --window")


def _learning_rate(study: Study, trial: Trial) -> float | None:
    """The ``{learning_rate}`` of a trial's command; ``None``: it has none."""
    program = study.workload.program
    assert program is not None
    rate = {**program.values, **trial.metaparameters}.get("learning_rate")
    return float(rate) if isinstance(rate, (int, float)) else None


def _order(branch: Branch) -> tuple[int, bool, int]:
    """By seed; the trial's own batch size comes last."""
    return branch.trials[0].index, branch.times == 1, branch.times


class _BranchTraining(ProgramTraining):
    """Of one branch, in a folder of its own."""

    def __init__(
        self, of: ProgramBranches, branch: Branch, checkpoint: Path, began: int | None
    ) -> None:
        (trial,), ramp = branch.trials, branch.study.ramp
        rate = _learning_rate(of.study, trial)
        if ramp is not None and ramp.learning_rate != "none" and rate is not None:
            rates = {"learning_rate": rate * rate_factor(ramp.learning_rate, branch.times)}
            trial = replace(trial, metaparameters={**trial.metaparameters, **rates})
        study = replace(of.study, batch_size=branch.times * of.study.batch_size)
        super().__init__(Pack(id="", study=study, trials=(trial,)), folder=str(of.folder))
        self._of, self._branch, self._origin = of, branch, began
        self._measured: list[Measurement] = []
        _copy(checkpoint, self._folder)

    def train(self) -> tuple[Branch, list[Measurement], list[Outcome]]:
        """The branch from where it has begun, and what was measured up to its end.

        Raises:
            ProgramError: it failed.
            ExperimentError: it has not read what a branch would have.
        """
        for events in self.run(self._is_over):
            self._measured += [each for each in events if isinstance(each, Measurement)]
        self._is_over()
        if self._origin is None:
            message = "diverged before its first report, so that it is not known where it began"
            raise self._error(message, "leave larger ones out, or choose another --rule")
        branch = self._branch.moved(self._origin)
        end, examples = branch.ends[-1], branch.study.batches.examples
        outcome = self._outcome
        if outcome is None or outcome.steps_run > end:
            outcome = self._ended("budget", end, self._seconds)
        # Whether the trial had reached its target before is not known here.
        outcome = replace(outcome, steps_to_target=None, last_miss=None)
        outcome = replace(outcome, examples_run=examples(outcome.steps_run))
        kept = [replace(m, examples=examples(m.step)) for m in self._measured if m.step <= end]
        return branch, kept, [outcome]

    def _run(self, should_stop: Callable[[], bool]) -> Iterator[list[Event]]:
        yield from self._attempt(should_stop, None)

    def _start(self, *, resume: bool, meeting: Meeting) -> Process:
        del resume
        return super()._start(resume=True, meeting=meeting)

    def _is_over(self) -> bool:
        """Whether its window has ended.

        Raises:
            ExperimentError: it has not read what a branch would have.
        """
        line, times = self._of.reading, self._branch.times
        points = [(m.step, m.metrics.get(line.name, math.nan)) for m in self._measured]
        if not points:
            return False
        (first, read), (last, most) = points[0], points[-1]
        near, far = self._branch.step, self._of.window
        if self._origin is not None:
            near, far = self._origin, 0
        at = line.began(times, first, read) if times > 1 else near if first >= near else 0
        if not (abs(at - near) <= far + 0.5 and 0.5 < at < first + 0.5):
            raise self._error(
                f"reports {read:,.6g} {line.name} after step {first:,}: by that it began at step "
                f"{at:,.6g}, and its checkpoint is of step {near:,} or about that",
                "the checkpoint must hold the step, and what was read until then, to which each "
                "step adds: examples += batch_size",
            )
        self._origin = round(at)
        if not all(line.is_of(times, self._origin, *point) for point in points):
            rate = (most - read) / (last - first) if last > first else math.nan
            raise self._error(
                f"reads {rate:,.6g} {line.name} a step, not {times * line.rate:,.6g}: it does not "
                "take the new batch size",
                "let the program apply its arguments after it has loaded its checkpoint",
            )
        return last >= self._branch.moved(self._origin).ends[-1]

    def _error(self, message: str, hint: str) -> ExperimentError:
        where = f"from step {self._branch.step:,} at batch size {self._study.batch_size:,}"
        return ExperimentError(f"a branch {where} {message}", hint=hint)


@contextmanager
def _clear_errors(output: Path) -> Iterator[None]:
    """A program that fails inside is an error of one line."""
    try:
        yield
    except ProgramError as error:
        last = str(error).splitlines()[-1]
        raise ExperimentError(last, hint=f"its output is in {output}") from None


def _copy(folder: Path, to: Path) -> None:
    """Make a copy of a trial's folder, without what is not the program's; whole or not at all."""
    _empty(to)
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(folder, part, symlinks=True, ignore=shutil.ignore_patterns(*_OURS))
    part.rename(to)


def _empty(folder: Path) -> None:
    while runs_in(folder):  # a program of a command that was killed
        time.sleep(_POLL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
