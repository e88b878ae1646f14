"""One pack on one worker: claimed, trained, committed, kept in a snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results as dataset
from experiments.execution.ledger import Ledger
from experiments.execution.worker import Pace, run_pack
from experiments.plan import Measurement, Outcome, Pack, WorkloadRef
from experiments.records.snapshots import unpack_snapshot
from experiments.scheduling.messages import (
    Assignment,
    Begun,
    Channel,
    Ended,
    Message,
    Over,
    Progress,
)
from experiments.training.pack_training import Training
from tests import problems
from tests.experiments.fakes import FakeTraining, listed, points, study

QUICK = Pace(ask=0.01, renew=0.02, commit=0.0, snapshot=0.0)


class Line:
    """A channel that keeps what was sent, and can ask to stop after some evaluations."""

    def __init__(self, hits: tuple[int, ...] = ()) -> None:
        self.messages: list[Message] = []
        self.stop, self.hits = False, hits

    @property
    def channel(self) -> Channel:
        return Channel(
            send=self.messages.append,
            ask=lambda known: replace(known, stop=self.stop, hits=self.hits),
        )

    @property
    def committed(self) -> list[str]:
        ended = [w for w in self.messages if isinstance(w, Ended) and w.run]
        return [outcome.trial for word in ended for outcome in word.outcomes]


def assignment(count: int = 8, **changes: Any) -> Assignment:
    of = study(**changes)
    trials = tuple(listed(of, points(80)).draw(0, count))
    return Assignment(
        pack=Pack(id="pack", study=of, trials=trials),
        round=0,
        columns={"study": of.id, "workload": "fake", "batch_size": of.batch_size},
        wanted=frozenset(trial.id for trial in trials),
    )


def run(one: Assignment, root: Path, line: Line, pace: Pace = QUICK, **options: Any) -> Over:
    trainer = options.pop("trainer", FakeTraining)
    return run_pack(one, Ledger(str(root)), line.channel, trainer=trainer, pace=pace, **options)


def test_steps_before_the_first_evaluation_are_told(tmp_path: Path) -> None:
    """Status and page had a pack at step 0 until each of its trials had been evaluated."""
    line = Line()

    def told() -> list[Progress]:
        return [message for message in line.messages if isinstance(message, Progress)]

    class Slow(FakeTraining):
        def run(
            self, should_stop: Callable[[], bool] = lambda: False
        ) -> Iterator[list[Measurement | Outcome]]:
            self.step, self.steps = 3, 12
            yield []
            while not told() and not should_stop():
                time.sleep(0.01)
            yield from super().run(should_stop)

    run(assignment(4), tmp_path, line, trainer=Slow)
    first = told()[0]
    assert (first.step, first.steps, first.active, first.metric) == (3, 12, 4, None)


class StopsAt(FakeTraining):
    """Asks the line to stop once a step is reached."""

    line: Line
    at = 30

    def run(self, *_: Any) -> Any:
        for events in super().run(lambda: self.line.stop):
            yield events
            if self.step >= self.at:
                self.line.stop = True


def results(root: Path) -> dict[str, tuple[str, float | None, int]]:
    rows = Ledger(str(root)).store.trials()
    return {
        trial: (reason, steps if steps > 0 else None, run)
        for trial, reason, steps, run in zip(
            *(rows[name] for name in ("trial", "stop_reason", "steps_to_target", "steps_run")),
            strict=True,
        )
    }


def test_a_pack_is_recorded_whole(tmp_path: Path) -> None:
    line, one = Line(), assignment()
    assert run(one, tmp_path, line).end == "done"
    assert isinstance(line.messages[0], Begun)
    assert line.messages[0].step == 0
    assert isinstance(line.messages[-1], Over)
    assert sorted(line.committed) == sorted(one.wanted)
    assert results(tmp_path).keys() == one.wanted
    ledger = Ledger(str(tmp_path))
    assert ledger.claims.all() == []
    assert ledger.list() == []
    row = ledger.store.trials().iloc[0]
    assert (row.pack, row.pack_models, row.engine, row.world_size) == ("pack", 8, "module", 1)
    assert row.workload == "fake"
    assert row.learning_rate == row.effective_learning_rate


def measured(root: Path) -> pd.DataFrame:
    rows = dataset.open(root).measurements.sort_values(["trial", "step"])
    return rows[["trial", "step", "validation_error"]].reset_index(drop=True)


def test_measurements_belong_to_recorded_trials(tmp_path: Path) -> None:
    run(assignment(), tmp_path, Line())
    found = dataset.open(tmp_path)
    last = found.measurements.groupby("trial").step.max()
    ends = found.trials.set_index("trial")
    looked = ends[ends.status != "INFEASIBLE"].steps_run
    assert (last.reindex(looked.index) == looked).all()
    assert found.measurements.validation_error.notna().all()


def test_a_stop_keeps_a_snapshot_and_the_same_numbers_follow(tmp_path: Path) -> None:
    one = assignment(12, keep=4)
    whole, line = tmp_path / "whole", Line()
    run(one, whole, line)
    cut, line = tmp_path / "cut", Line()
    trainer = type("Stops", (StopsAt,), {"line": line})
    assert run(one, cut, line, trainer=trainer).end == "stopped"
    first = set(line.committed)
    assert 0 < len(first) < 12
    kept = Ledger(str(cut))
    header, _ = unpack_snapshot(kept.load("pack") or b"") or pytest.fail("no snapshot")
    assert set(header.active) == one.wanted - first
    assert header.trials == tuple(trial.id for trial in one.pack.trials)
    line = Line()
    again = replace(one, wanted=frozenset(header.active))
    assert run(again, cut, line).end == "done"
    assert set(line.committed) == one.wanted - first
    begun = line.messages[0]
    assert isinstance(begun, Begun)
    assert begun.step >= StopsAt.at
    assert results(cut) == results(whole)
    assert measured(cut).equals(measured(whole))
    assert kept.list() == []


def test_a_claimed_pack_is_left_alone(tmp_path: Path) -> None:
    other = Ledger(str(tmp_path))
    assert other.take("another", ["study-3"], {}, {})
    line = Line()
    assert run(assignment(), tmp_path, line).end == "taken"
    assert results(tmp_path) == {}
    other.release("another")
    assert run(assignment(), tmp_path, Line()).end == "done"


def test_what_somebody_recorded_meanwhile_is_left_alone(tmp_path: Path) -> None:
    one = assignment()
    assert run(one, tmp_path, Line()).end == "done"
    assert run(one, tmp_path, Line()).end == "taken"
    runs = Ledger(str(tmp_path)).store.trials(columns=["trial", "run"])
    before = dict(zip(runs["trial"], runs["run"], strict=True))
    assert run(replace(one, before=before), tmp_path, Line()).end == "done"  # known, and reopened


def test_who_lost_the_claim_does_not_commit(tmp_path: Path) -> None:
    class Robbed(FakeTraining):
        def run(self, should_stop: Any = None) -> Any:
            for number, events in enumerate(super().run(should_stop)):
                if number == 2:
                    (tmp_path / "claims" / "pack.json").unlink()
                yield events

    line = Line()
    slow = replace(QUICK, commit=60.0, snapshot=60.0)
    assert run(assignment(), tmp_path, line, slow, trainer=Robbed).end == "taken"
    assert line.committed == []
    assert results(tmp_path) == {}


def test_an_exception_keeps_what_had_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_RAISE", "-0 -1")
    line, one = Line(), assignment()
    end = run(one, tmp_path, line)
    assert end.end == "failed"
    assert end.failure is not None
    assert "one too many" in end.failure.message
    assert end.failure.trial is None
    assert not end.failure.clear
    assert set(results(tmp_path)) == set(line.committed) < one.wanted
    assert Ledger(str(tmp_path)).claims.all() == []


def test_a_pack_of_one_records_its_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_RAISE", "-0")
    line = Line()
    end = run(assignment(1), tmp_path, line)
    assert end.failure is not None
    assert end.failure.trial == "study-0"
    assert [m.run is None for m in line.messages if isinstance(m, Ended)] == [True, False]
    row = Ledger(str(tmp_path)).store.trials().iloc[0]
    assert (row.status, row.stop_reason) == ("INCOMPLETE", "error")
    assert "one too many" in row.error


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (
            "import no_such_module",
            "ModuleNotFoundError: No module named 'no_such_module'",
            "line 1",
        ),
        ("def step(:", "SyntaxError: invalid syntax", "line 1"),
        ("import sys\nsys.exit('enough')", "SystemExit: enough", "line 2"),
    ],
)
def test_a_file_that_cannot_be_imported_is_recorded_as_what_it_raises(
    tmp_path: Path, text: str, message: str, place: str
) -> None:
    """The trial's row must not ask the optimizer that the trial has failed for."""
    (tmp_path / "rule.py").write_text(text)
    of = problems.study(workload=WorkloadRef(spec="digits-softmax", base=str(tmp_path)))
    trials = problems.trials(of, 1)
    single = replace(
        assignment(1),
        pack=Pack(id="pack", study=replace(of, optimizer="rule.py:Rule"), trials=trials),
        wanted=frozenset({trials[0].id}),
    )
    line = Line()
    end = run(single, tmp_path / "runs", line, trainer=Training)
    assert end.failure is not None
    assert message in end.failure.message
    assert end.failure.trial == trials[0].id
    frames = [part for part in end.failure.traceback.splitlines() if "File" in part]
    assert frames[0].startswith(f'  File "{tmp_path / "rule.py"}", {place}')
    (row,) = Ledger(str(tmp_path / "runs")).store.trials().to_dict("records")
    assert (row["stop_reason"], row["error"]) == ("error", end.failure.traceback)


def test_results_found_elsewhere_dominate(tmp_path: Path) -> None:
    class Slow(FakeTraining):
        def run(self, should_stop: Any = None) -> Any:
            import time

            for events in super().run(should_stop):
                time.sleep(0.01)
                yield events

    run(assignment(keep=2), tmp_path / "alone", Line())
    run(assignment(keep=2), tmp_path / "told", Line(hits=(10, 10)), trainer=Slow)
    alone, told = (results(tmp_path / name) for name in ("alone", "told"))
    assert sum(end[0] == "dominated" for end in told.values()) > sum(
        end[0] == "dominated" for end in alone.values()
    )
