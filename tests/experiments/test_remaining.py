"""How long the rest of a sweep takes: one estimate, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.execution.executors import in_process
from experiments.execution.sweep import sweep
from experiments.plan import Measurement, Outcome
from experiments.records.status import status
from experiments.scheduling import messages, rounds
from experiments.scheduling.rounds import Record, Remaining
from results.store import Store
from tests.experiments.fakes import FakeTraining, study
from tests.experiments.test_sweep import experiment, run


def lacking(trials: int, seconds: float | None, cost: float | None = 100.0) -> Remaining:
    return Remaining(trials=trials, seconds_per_trial=seconds, cost=cost)


def test_a_studys_trials_cost_what_its_own_have_cost() -> None:
    studies = [lacking(3, 10.0, 100.0), lacking(2, 1.0, 100.0)]
    assert rounds.worker_seconds(studies) == 32
    assert rounds.seconds_left(studies, 2) == 16
    assert rounds.seconds_left(studies, 0) is None


def test_a_study_without_any_costs_as_its_size_says_at_the_rate_of_the_others() -> None:
    """Not what the cheapest studies, which end first, have cost."""
    studies = [lacking(0, 2.0, 100.0), lacking(4, None, 1000.0)]
    assert rounds.worker_seconds(studies) == 4 * 20
    assert rounds.trial_cost(100, 0) == 100
    assert rounds.trial_cost(100, 200) == 500


def test_before_any_trial_has_ended_it_cannot_be_told() -> None:
    assert rounds.worker_seconds([lacking(3, None, 10.0)]) is None
    assert rounds.worker_seconds([lacking(0, None, 10.0)]) == 0


def test_a_study_whose_budget_is_unknown_has_no_rate() -> None:
    known = lacking(2, 3.0, None)
    assert rounds.worker_seconds([known]) == 6
    assert rounds.worker_seconds([known, lacking(1, None, 10.0)]) is None
    measured = lacking(0, 2.0, 100.0)
    assert rounds.worker_seconds([measured, lacking(1, None, None)]) is None
    assert rounds.worker_seconds([measured, known, lacking(0, None, None)]) == 6


@given(
    studies=st.lists(
        st.builds(
            Remaining,
            trials=st.integers(0, 64),
            seconds_per_trial=st.none() | st.floats(1e-3, 1e4),
            cost=st.floats(1.0, 1e6),
        ),
        max_size=8,
    ),
    factor=st.floats(0.1, 10.0),
)
def test_slower_trials_take_as_much_longer(studies: list[Remaining], factor: float) -> None:
    slower = [
        replace(s, seconds_per_trial=s.seconds_per_trial and s.seconds_per_trial * factor)
        for s in studies
    ]
    before, after = rounds.worker_seconds(studies), rounds.worker_seconds(slower)
    if before is None:
        assert after is None
    else:
        assert after == pytest.approx(before * factor)


def test_what_lacks_counts_neither_infeasible_trials_nor_failed_ones() -> None:
    def record(status: str, reason: str, steps: int | None = None, **of: Any) -> Record:
        run = 100 if reason == "budget" else 9
        return Record(status=status, stop_reason=reason, steps_run=run, steps_to_target=steps, **of)

    records = [
        record("COMPLETE", "target", 9),
        record("INFEASIBLE", "diverged"),
        record("INCOMPLETE", "error", fresh=False),
        record("COMPLETE", "budget"),
    ]
    found = dict(enumerate(records))
    of = study(trials=8, keep=None)
    counted = rounds.counts(of, 32, found.get)
    assert counted == rounds.Counts(wanted=8, left=5, failed=1, retried=1)
    few = rounds.counts(of, 4, found.get)  # no row is left that could replace one
    assert (few.left, few.retried) == (0, 1)
    assert rounds.counts(study(trials=1, keep=None), 4, found.get).left == 0
    # Under a larger budget only what spent the smaller one goes on, and an error of this run is
    # not tried again in it.
    found[2] = record("INCOMPLETE", "error")
    ended = rounds.counts(study(trials=3, keep=None), 12, found.get)
    assert (ended.left, ended.failed, ended.retried) == (0, 1, 0)
    larger = study(trials=3, keep=None, budget_steps=200)
    assert rounds.counts(larger, 12, found.get).left == 1


def test_a_packs_seconds_are_those_of_its_last_commit() -> None:
    rows = pd.DataFrame(
        {
            "study": ["a", "a", "a", "b"],
            "pack": ["p", "p", "q", "r"],
            "train_seconds": [1.0, 3.0, 10.0, 5.0],
            "evaluation_seconds": [0.5, 1.0, 0.0, 0.0],
            "other_seconds": [0.0, 0.5, 0.0, 0.25],
        }
    )
    assert rounds.pack_seconds(rows) == {"a": {"p": 4.5, "q": 10.0}, "b": {"r": 5.25}}


class Timed(FakeTraining):
    """Trials take seconds, as they say."""

    def run(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Measurement | Outcome]]:
        for found in super().run(should_stop):
            yield [
                replace(each, train_seconds=3.0 * self.step) if isinstance(each, Outcome) else each
                for each in found
            ]


def test_the_driver_and_status_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the trials are there, and one pack trains: it waits for the gate meanwhile."""
    monkeypatch.setattr(in_process, "POLL_SECONDS", 0.0)
    root, gate = tmp_path / "runs", tmp_path / "gate"
    sweep(experiment(keep="off"), results=root, address="none", trainer=Timed)
    monkeypatch.setenv("FAKE_GATE", str(gate))
    pairs: list[tuple[float | None, float | None]] = []

    def watch(event: messages.Event) -> None:
        if isinstance(event, messages.TimeLeft) and not gate.exists():
            pairs.append((event.seconds, status(root).seconds))
            gate.touch()

    more = experiment(keep="off", trials=40)
    sweep(more, results=root, address="none", trainer=Timed, observer=watch)
    ((driver, asked),) = pairs
    assert driver is not None
    assert driver > 1000
    assert asked == pytest.approx(driver)


def test_what_an_edited_experiment_dropped_is_not_left(tmp_path: Path) -> None:
    run(tmp_path, experiment(keep="off", trials=40), seconds=0)
    before = status(tmp_path)
    assert before.left == 80
    run(tmp_path, experiment(keep="off", trials=40, batch_size="64"))
    found = status(tmp_path)
    assert found.left == 0
    assert found.studies.set_index("batch_size").wanted.to_dict() == {64: 40, 128: 0}
    assert len(Store(tmp_path).studies()) == 2
