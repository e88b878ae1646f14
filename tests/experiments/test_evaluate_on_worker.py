"""Evaluation in another process gives what evaluation by the trainer gives, whatever the delay."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import batchscale as bs
from experiments.config.compile import from_keywords
from experiments.engines.selection import Kind
from experiments.errors import ExperimentError
from experiments.execution.failures import describe
from experiments.execution.ray.demand import Capacity
from experiments.plan import Layout, Outcome, Pack, Study, Trial, WorkloadRef
from experiments.training.evaluation import process, worker
from experiments.training.evaluation.process import EvaluationProcess
from experiments.training.evaluation.shared_memory import SharedMemory
from experiments.training.evaluation.worker import EvaluationWorker
from experiments.training.pack_training import Training
from experiments.training.snapshot import PausedTrial
from tests.experiments.test_refine import plain, some_of
from tests.problems import outcomes, study

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS: list[Kind] = ["module", "stacked"]
CASES: dict[str, dict[str, Any]] = {
    "brackets are refined": {"refine": 1.02, "evaluation_ratio": 1.3},
    "refined, and trials go on": {
        "refine": 1.05, "evaluation_ratio": 1.3, "stop_at_target": False, "budget_steps": 60,
    },
    "dominated": {"keep": 2},
    "trials go on": {"stop_at_target": False, "budget_steps": 50},
    "averaged weights": {"technique": {"ema": 0.9}},
    "two optimizer states": {"optimizer": "schedule-free-adamw"},
}  # fmt: skip


def problem(**changes: Any) -> Study:
    given = {"optimizer": "adam", "target": "validation_error < 0.08", "keep": None}
    return study(**{**given, "budget_steps": 90, "evaluation_ratio": 1.1, **changes})


def elsewhere(of: Study) -> Study:
    return replace(of, layout=replace(of.layout, evaluate_on="worker"))


class SameProcess:
    """In the place of the other process: an engine of its own in this one."""

    def begin(self, of: Study, engine: str, device: str) -> None:
        self._begun = process._Begin(study=of, engine=engine, device=device, threads=1)
        self._engine: Any = None
        self._memory = SharedMemory.new()

    def evaluate(self, trials: Sequence[Trial], states: Mapping[int, Any]) -> Any:
        written = self._memory.write(dict(states))
        self._engine = process._with_trials(self._engine, self._begun, trials)
        request = process._Evaluate(trials=trials, states=written)
        return process._evaluated(self._engine, request, self._memory.read(written))

    def give_back(self) -> None:
        """Nothing runs beside this process."""

    end = kill = give_back


@pytest.fixture
def as_late_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer never sees a result before it has to wait for it, on every machine."""
    monkeypatch.setattr(worker.EvaluationProcess, "take", SameProcess)
    monkeypatch.setattr(EvaluationWorker, "ready", property(lambda self: self._answer is None))


def full(events: Sequence[Any]) -> list[Any]:
    """Events in their order, without clocks."""
    ends = [e for e in events if isinstance(e, Outcome)]
    return [*plain(list(events)), *[(e.refined_steps, e.refined_last_miss) for e in ends]]


def trained(of: Study, some: tuple[Trial, ...], kind: Kind, **more: Any) -> tuple[Any, Training]:
    pack = Pack(id="pack", study=of, trials=some, engine=kind, **more)
    training = Training(pack, keep_weights=True)
    return [event for events in training.run() for event in events], training


def compare(of: Study, kind: Kind, count: int = 4) -> list[Outcome]:
    """Train by both ways; the outcomes of that with another process."""
    some = some_of(of, count)
    events, training = trained(of, some, kind, keep_paused=True)
    theirs, other = trained(elsewhere(of), some, kind, keep_paused=True)
    assert full(theirs) == full(events)
    for trial, named in training.final.items():
        assert all(torch.equal(value, other.final[trial][n]) for n, value in named.items())
    assert training.paused.keys() == other.paused.keys()
    for trial, data in training.paused.items():
        ours, paused = PausedTrial.decode(data), PausedTrial.decode(other.paused[trial])
        assert replace(paused.progress, discarded=None) == ours.progress
        assert repr(paused.state) == repr(ours.state)
    assert {end.steps_discarded for end in outcomes(events).values()} == {None}
    return list(outcomes(theirs).values())


@pytest.mark.slow
@pytest.mark.usefixtures("as_late_as_can_be")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_everything_is_what_the_trainer_evaluates(case: str, kind: Kind) -> None:
    ended = compare(problem(**CASES[case]), kind)
    discarded = sum(end.steps_discarded or 0 for end in ended)
    reasons = {end.stop_reason for end in ended}
    if case in ("brackets are refined", "dominated"):
        assert discarded > 0
    if case == "dominated":
        assert "dominated" in reasons
    if case == "trials go on":
        assert discarded == 0  # all end at their budget, beyond which nothing trains
    assert all(end.steps_discarded is not None for end in ended)


@pytest.mark.usefixtures("as_late_as_can_be")
def test_a_trial_is_at_most_one_evaluation_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    of = elsewhere(problem(evaluation_ratio=1.5, stop_at_target=False))
    training = Training(Pack(id="pack", study=of, trials=some_of(of, 2), engine="stacked"))
    begun, most = [0], []
    begin, advance = EvaluationWorker.begin, training._engine.advance
    monkeypatch.setattr(
        EvaluationWorker,
        "begin",
        lambda self, rows: (begun.append(training._engine.steps[0]), begin(self, rows)),
    )

    def counted(steps: int) -> None:
        most.append((training._engine.steps[0] + steps, begun[-1]))
        advance(steps)

    monkeypatch.setattr(training._engine, "advance", counted)
    for _ in training.run():
        pass
    grid = [0, 1, 2, 3, 5, 8, 12, 18, 27, 41, 62, 90]
    assert begun == [0, *grid[1:]]
    for step, last in most:
        assert step <= grid[min(grid.index(last) + 1, len(grid) - 1)]
    assert any(step == grid[grid.index(last) + 1] for step, last in most if last < 90)


@pytest.mark.slow
@pytest.mark.usefixtures("as_late_as_can_be")
@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_goes_on_from_any_snapshot(kind: Kind) -> None:
    of = problem(refine=1.05, evaluation_ratio=1.4)
    some = some_of(of, 3)
    whole, _ = trained(of, some, kind)
    pack = Pack(id="pack", study=elsewhere(of), trials=some, engine=kind)
    training, events = Training(pack), []
    while training.active:
        events += next(training.run())
        if training.active:
            training = Training(pack, snapshot=training.snapshot())
    assert full(events) == full(whole)


@pytest.mark.slow
@pytest.mark.usefixtures("as_late_as_can_be")
@pytest.mark.parametrize("kind", KINDS)
def test_trials_join_while_others_are_ahead(kind: Kind) -> None:
    of = problem()
    some = some_of(of, 4)
    ends = []
    for each in (of, elsewhere(of)):
        training = Training(Pack(id="pack", study=each, trials=some[:2], engine=kind))
        events: list[Any] = []
        for yielded, of_step in enumerate(training.run()):
            events += of_step
            if yielded == 12:
                training.add(some[2:])
        ends.append({t: full([e for e in events if e.trial == t]) for t in (s.id for s in some)})
    assert ends[0] == ends[1]


USERS = """
import time
from tests.problems import TinyData
from workloads import Classification

class Own(Classification):
    target = "validation_error < 0.0001"
    raises_above: float = 10.0**9
    seconds: float = 0.0

    def data(self): return TinyData.splits()
    def model(self): return TinyData.model()

    def metrics(self, output, batch):
        time.sleep(self.seconds if len(output) > 32 else 0.0)
        if output.abs().max() > self.raises_above: raise ValueError("my own bug")
        return super().metrics(output, batch)
"""


def own(folder: Path, **fields: Any) -> WorkloadRef:
    (folder / "own.py").write_text(USERS)
    return WorkloadRef(spec="own.py:Own", base=str(folder), fields=fields)


@pytest.mark.usefixtures("as_late_as_can_be")
@pytest.mark.parametrize("reached", [True, False])
def test_an_error_ahead_is_raised_where_the_trial_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    """A step that is taken ahead for nothing would not have been taken by the trainer alone."""
    target = "validation_error < 2" if reached else "validation_error < 0.0001"
    of = elsewhere(problem(workload=own(tmp_path), batch_size=8, target=target))
    training = Training(Pack(id="pack", study=of, trials=some_of(of, 1), engine="module"))
    advance = training._engine.advance

    def raising(steps: int) -> None:
        advance(steps)
        if training._engine.steps[0] > (1 if reached else 4):
            raise ValueError("my own step")

    monkeypatch.setattr(training._engine, "advance", raising)
    events: list[Any] = []
    run = training.run()
    if reached:
        (end,) = outcomes([event for each in run for event in each]).values()
        assert (end.stop_reason, end.steps_run, end.steps_discarded) == ("target", 1, 1)
        return
    with pytest.raises(ValueError, match="my own step"):
        events.extend(each for each in run)
    assert [event.step for each in events for event in each] == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_by_another_process(kind: Kind) -> None:
    for case in ("brackets are refined", "averaged weights"):
        compare(problem(**CASES[case]), kind)
    assert len(EvaluationProcess._idle) == 1  # the same one for all packs


@pytest.mark.slow
def test_the_users_exception_is_the_trainers(tmp_path: Path) -> None:
    """The same failure, with the traceback from the user's own frame."""
    failures = []
    for name, change in (("a", lambda of: of), ("b", elsewhere)):
        (tmp_path / name).mkdir()
        of = problem(workload=own(tmp_path / name, raises_above=2.0), batch_size=8)
        with pytest.raises(ValueError, match="my own bug") as caught:
            trained(change(of), some_of(of, 1), "module")
        failures.append(describe(caught.value))
    ours, theirs = failures
    assert ours.message == theirs.message
    assert ours.where == theirs.where
    tracebacks = [failure.traceback.partition("own.py")[2] for failure in failures]
    assert "my own bug" in tracebacks[0]
    assert tracebacks[0] == tracebacks[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_trainer_goes_on_without_a_process_that_was_killed(kind: Kind) -> None:
    of = problem(refine=1.05, evaluation_ratio=1.3)
    some = some_of(of, 3)
    expected, _ = trained(of, some, kind)
    training = Training(Pack(id="pack", study=elsewhere(of), trials=some, engine=kind))
    run, evaluator = training.run(), training._evaluator
    events = [event for _ in range(6) for event in next(run)]
    assert isinstance(evaluator, EvaluationWorker)
    assert evaluator._process is not None
    os.kill(evaluator._process.pid, signal.SIGKILL)
    with pytest.warns(UserWarning, match="the trainer evaluates from now on: the process that"):
        events += [event for each in run for event in each]
    assert full(events) == full(expected)


SCRIPT = """
import sys
from experiments.plan import Pack
from experiments.training.pack_training import Training
from tests.experiments.test_evaluate_on_worker import elsewhere, own, problem, some_of
from pathlib import Path

of = elsewhere(problem(workload=own(Path(sys.argv[1]), seconds=float(sys.argv[2])), batch_size=8,
                       budget_steps=10**7, evaluation_ratio=1.0001))
training = Training(Pack(id="pack", study=of, trials=some_of(of, 1), engine="module"))
print(training._evaluator._process.pid, flush=True)
for number, events in enumerate(training.run()):
    if not number:  # nobody reads what follows, and a pipe that is full would hold up the end
        print("evaluated", flush=True)
"""


def lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not show it")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("seconds", [0.0, 600.0])  # the latter: in the middle of an evaluation
def test_it_ends_with_the_trainer(tmp_path: Path, sent: int, seconds: float) -> None:
    """Also by Ctrl-C, which a terminal sends to both."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as trainer:
        assert trainer.stdout is not None
        pid = int(trainer.stdout.readline())
        if not seconds:
            assert trainer.stdout.readline() == "evaluated\n"
        else:
            time.sleep(4)
        assert lives(pid)
        for _ in range(5):  # one Ctrl-C may come where Python ignores it, such as in a destructor
            if trainer.poll() is None:
                os.killpg(trainer.pid, sent) if sent == signal.SIGINT else trainer.kill()
                with suppress(subprocess.TimeoutExpired):
                    trainer.wait(20)
        assert trainer.poll() is not None
        end = time.monotonic() + 30
        while lives(pid) and time.monotonic() < end:
            time.sleep(0.1)
        assert not lives(pid)


def test_shared_memory_has_every_value() -> None:
    memory = SharedMemory.new()
    reading = SharedMemory(os.dup(memory.descriptor))
    kinds = (torch.float64, torch.bfloat16, torch.bool, torch.int64, torch.complex64, torch.uint8)
    for count in (3, 1000, 10):
        values = {
            "tensors": [torch.arange(count).to(kind) for kind in kinds],
            "others": (None, 1, math.pi, "text", b"\0", torch.empty(0, 4), torch.tensor(7.0)),
            "transposed": torch.arange(6.0).view(2, 3).t(),
        }
        read = reading.read(memory.write(values))
        assert repr(read) == repr(values)
    memory.close()
    reading.close()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"workers": 2}, "evaluate_on: worker and workers: 2: the weights lie on several workers"),
        ({"layout": {"shard": 2}}, "evaluate_on: worker and workers: 2"),
        ({"layout": "auto"}, "evaluate_on: worker and layout: auto, which does not measure its"),
        ({"gpus": "auto"}, "evaluate_on: worker and gpus: auto, which does not measure its memory"),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"workload": "digits-mlp", "optimizer": ["sgd"], "batch_size": 64}
    with pytest.raises(ExperimentError, match=said) as caught:
        from_keywords(**given, **keys, evaluate_on="worker")
    assert "leave evaluate_on out: the trainer evaluates" in str(caught.value.hint)


def test_the_trainer_is_the_default_and_the_worker_takes_a_core() -> None:
    given: dict[str, Any] = {"workload": "digits-mlp", "optimizer": ["sgd"], "batch_size": 64}
    assert from_keywords(**given)._layout.evaluate_on is None
    assert from_keywords(**given, evaluate_on="trainer")._layout.evaluate_on is None
    assert from_keywords(**given, evaluate_on="worker")._layout.evaluate_on == "worker"
    assert Capacity(nodes=[]).worker(Layout(evaluate_on="worker")) == {"CPU": 2.0}


@pytest.mark.slow
def test_the_column(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "workload": "digits-softmax", "optimizer": ["adam"], "batch_size": [64], "trials": 4,
        "budget": "60 steps", "target": "validation_error < 0.2", "address": "none",
    }  # fmt: skip
    trainer = bs.sweep(**given, results=tmp_path / "trainer").trials
    other = bs.sweep(**given, evaluate_on="worker", results=tmp_path / "worker").trials
    assert trainer.steps_discarded.isna().all()
    assert (other.steps_discarded >= 0).all()
    both = [frame.set_index("trial").sort_index() for frame in (trainer, other)]
    columns = ["study", "seed", "stop_reason", "steps_to_target", "last_miss", "steps_run"]
    assert both[0][columns].equals(both[1][columns])
