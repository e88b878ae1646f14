"""A sweep from the experiment to the results folder, in this process, with a fake trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results as dataset
from analysis.curves import edges
from batchscale.output.tally import Tally
from experiments.config.compile import Experiment, load
from experiments.errors import ExperimentError, TrainingError
from experiments.execution.sweep import Summary, sweep
from experiments.plan import Measurement, Outcome
from experiments.records.status import status
from experiments.scheduling.messages import Begun, Event, Note, Round, StudyPlanned
from results.errors import ResultsError
from tests.experiments.fakes import FakeTraining
from tests.user_models import LINEAR


def experiment(*overrides: str, **changes: Any) -> Experiment:
    grid = {"batch_size": changes.pop("batch_size", "64, 128"), "optimizer": ["sgd"]}
    return load(
        {
            "name": "fake",
            "workload": "digits-softmax",
            "grid": grid,
            "search": {"learning_rate": {"linear": [0.05, 2.0]}},
            "trials": 20,
            "budget": "100 steps",
            "target": "validation_error < 0.05",
            "evaluation_ratio": 1.2,
            **changes,
        },
        overrides,
    )


def run(root: Path, of: Experiment | None = None, **options: Any) -> Summary:
    return sweep(of or experiment(), results=root, address="none", trainer=FakeTraining, **options)


def table(root: Path) -> pd.DataFrame:
    return dataset.open(root).trials.sort_values("trial").reset_index(drop=True)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that every trial that begins to train is written to."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("FAKE_LOG", str(path))
    return path


def began(log: Path) -> list[str]:
    lines = [line.split()[0] for line in log.read_text().splitlines()]
    log.write_text("")
    return lines


def test_a_sweep_does_what_is_missing_and_nothing_twice(tmp_path: Path, log: Path) -> None:
    seen: list[Event] = []
    root = tmp_path / "runs"
    did = run(root, observer=seen.append)
    found = table(root)
    assert did.complete
    assert did.trained == did.trials == len(found) == len(began(log))
    assert status(root).left == 0
    assert did.reached == did.studies == 2
    assert len([e for e in seen if isinstance(e, StudyPlanned)]) == 2
    assert [e.round for e in seen if isinstance(e, Round)] == [0, 1]
    again = run(root)
    assert (again.trained, again.trials, again.complete) == (0, did.trials, True)
    assert began(log) == []
    assert table(root).equals(found)


def test_rows_say_how_they_were_trained(tmp_path: Path) -> None:
    of = experiment(keep="off")
    run(tmp_path, of)
    rows = table(tmp_path)
    assert (rows[rows.status != "INFEASIBLE"].groupby("study").size() == 20).all()
    assert set(rows.role) == {"search", "extension"}
    assert ((rows["index"] >= 20) == (rows.role == "extension")).all()
    assert set(rows["round"]) == {0, 1}
    assert (rows.device == "cpu").all()
    assert rows.workload_version.notna().all()
    assert (rows.trials_wanted == 20).all()
    assert rows.pack.nunique() >= 4
    studies = dataset.open(tmp_path).studies
    assert (studies.experiment_yaml == of.to_yaml()).all()
    assert (studies.dimensions == 1).all()


def test_more_trials_and_batch_sizes_train_the_rest(tmp_path: Path, log: Path) -> None:
    root = tmp_path / "runs"
    run(root, experiment(keep="off"))
    before = set(began(log))
    did = run(root, experiment(keep="off", trials=40, batch_size="32, 64, 128"))
    later = began(log)
    assert not before & set(later)
    assert len(later) == did.trained == len(set(later))
    whole = tmp_path / "whole"
    run(whole, experiment(keep="off", trials=40, batch_size="32, 64, 128"))
    columns = ["trial", "steps_to_target", "status"]
    assert table(root)[columns].equals(table(whole)[columns])


def test_a_raised_keep_reopens_what_was_dominated(tmp_path: Path, log: Path) -> None:
    root = tmp_path / "runs"
    run(root, experiment(keep=1))
    rows, _ = table(root), began(log)
    run(root, experiment(keep="off"))
    again = set(began(log))
    assert set(rows.trial[rows.stop_reason == "dominated"]) <= again
    assert not again & set(rows.trial[rows.stop_reason != "dominated"])
    assert not (table(root).stop_reason == "dominated").any()


def test_a_harder_target_reopens_what_was_stopped_at_the_easier(tmp_path: Path, log: Path) -> None:
    root = tmp_path / "runs"
    run(root, experiment(keep="off"))
    rows, _ = table(root), began(log)
    run(root, experiment(keep="off", target="validation_error < 0.025"))
    short = (rows.stop_reason == "target") & (rows.steps_run < 100)
    assert set(began(log)) == set(rows.trial[short])


def test_an_easier_target_trains_nothing(tmp_path: Path, log: Path) -> None:
    root, of = tmp_path / "runs", experiment(keep="off")
    run(root, experiment(keep="off", target="validation_error < 0.025"))
    measured = dataset.open(root).measurements
    began(log)
    did = run(root, of)
    assert began(log) == []
    assert did.complete
    rows = table(root)
    assert (rows.target_value == 0.05).all()  # one curve, not two halves
    run(tmp_path / "direct", of)
    direct = table(tmp_path / "direct")
    columns = ["trial", "status", "steps_to_target", "last_miss"]
    assert rows[columns].equals(direct[columns])
    assert len(dataset.open(root).measurements) == len(measured)
    assert run(root, of).trained == 0


def test_a_raised_budget_reopens_what_had_spent_it(tmp_path: Path, log: Path) -> None:
    root = tmp_path / "runs"
    run(root, experiment(keep="off"))
    rows, _ = table(root), began(log)
    run(root, experiment(keep="off", budget="150 steps"))
    assert set(began(log)) == set(rows.trial[rows.stop_reason == "budget"])


def test_a_failed_trial_is_tried_again_by_the_next_run_alone(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, of = tmp_path / "runs", experiment(keep="off", trials=6)
    run(tmp_path / "clean", of)
    late = table(tmp_path / "clean").query("steps_run > 50 and batch_size == 128").trial
    bad = late.iloc[0]  # of the second pack: the first one shows that such trials train
    began(log)
    monkeypatch.setenv("FAKE_RAISE", bad)
    seen: list[Event] = []
    did = run(root, of, observer=seen.append)
    assert did.failed == 1
    tally = Tally()
    for event in seen:
        tally.take(event)
    assert (tally.finished, tally.stops["error"]) == (did.trained, 1)
    assert began(log).count(bad) == 3  # in its pack, in a half of it, and alone
    row = table(root).set_index("trial").loc[bad]
    assert (row.status, row.stop_reason) == ("INCOMPLETE", "error")
    assert "one too many" in row.error
    assert any("a trial failed" in e.text for e in seen if isinstance(e, Note))
    assert run(root, of).failed == 1
    monkeypatch.delenv("FAKE_RAISE")
    began(log)
    assert run(root, of).trained == 1
    assert began(log) == [bad]
    columns = ["trial", "steps_to_target", "status"]
    assert table(root)[columns].equals(table(tmp_path / "clean")[columns])


def test_the_first_exception_stops(tmp_path: Path, log: Path) -> None:
    class Broken(FakeTraining):
        def run(self, *_: Any) -> Any:
            yield []
            raise ValueError("no model today")

    root, seen = tmp_path / "runs", list[Event]()
    with pytest.raises(TrainingError, match="no model today") as caught:
        sweep(experiment(), results=root, address="none", trainer=Broken, observer=seen.append)
    (row,) = table(root).to_dict("records")
    assert row["stop_reason"] == "error"
    assert caught.value.reproduce
    assert f"--from {row['trial']} --results {root}" in caught.value.reproduce
    assert "in run" in caught.value.traceback
    assert len(began(log)) == 16
    assert not any("diverged" in e.text for e in seen if isinstance(e, Note))


def test_what_failed_is_not_said_to_have_diverged(tmp_path: Path) -> None:
    """Each trial trains for a while before it raises, so that the sweep goes on to its end."""

    class Broken(FakeTraining):
        def run(self, *_: Any) -> Any:
            self.step = self.steps = 25
            point: dict[str, Any] = {"trial": self._left[0], "step": 25, "train_seconds": 0.0}
            yield [Measurement(examples=25, metrics={"validation_error": 0.5}, **point)]
            raise ValueError("no model today")

    seen: list[Event] = []
    of = experiment(batch_size="64", trials=4)
    with pytest.raises(TrainingError, match="no model today"):
        sweep(of, results=tmp_path, address="none", trainer=Broken, observer=seen.append)
    assert table(tmp_path).stop_reason.to_list() == ["error"] * 4
    assert not any("diverged" in e.text for e in seen if isinstance(e, Note))


def test_some_diverged_and_some_failed(tmp_path: Path) -> None:
    class Wild(FakeTraining):
        """All but one diverge before they are measured."""

        def run(self, *_: Any) -> Any:
            yield [self._end(trial) for trial in list(self._left) if trial != bad]
            if bad in self._left:
                raise ValueError("no model today")

        def _end(self, trial: str) -> Outcome:
            self._left.remove(trial)
            ended: Any = {"status": "INFEASIBLE", "stop_reason": "diverged", "steps_run": 1}
            return Outcome(trial=trial, examples_run=1, **ended)

    of = experiment(batch_size="64", trials=2)
    bad = of.studies()[0].trial(0).id
    seen: list[Event] = []
    sweep(of, results=tmp_path, address="none", trainer=Wild, observer=seen.append)
    (note,) = [e.text for e in seen if isinstance(e, Note) and "no study has reached" in e.text]
    assert "none was measured at all, 7 trials diverged, 1 failed" in note


def test_a_full_disk_stops_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise ResultsError("cannot write trials: No space left on device", hint="free some space")

    monkeypatch.setattr("results.store.Store.commit", full)
    with pytest.raises(ExperimentError, match="No space left on device") as caught:
        run(tmp_path)
    assert caught.value.hint == "free some space"
    monkeypatch.undo()
    assert run(tmp_path).complete


def test_several_workers_need_ray(tmp_path: Path) -> None:
    """Refused before anything is written, whether the folder is new or holds other studies."""
    with pytest.raises(ExperimentError, match="workers: 2 needs Ray"):
        run(tmp_path / "runs", experiment(workers=2))
    assert not list(tmp_path.iterdir())
    assert run(tmp_path / "runs", experiment(trials=2)).complete
    files = sorted((tmp_path / "runs").rglob("*.parquet"))
    with pytest.raises(ExperimentError, match="workers: 2 needs Ray"):
        run(tmp_path / "runs", experiment(trials=2, workers=2))
    assert sorted((tmp_path / "runs").rglob("*.parquet")) == files


def test_a_round_without_the_target_stops_and_names_one(tmp_path: Path, log: Path) -> None:
    of = experiment(target="validation_error < 0.0001")
    with pytest.raises(ExperimentError, match="no study has reached") as caught:
        run(tmp_path / "runs", of)
    assert "sgd, batch 64: 0.00" in str(caught.value)
    assert "1 of 2 studies has reached validation_error < 0.0051" in (caught.value.hint or "")
    assert len(began(log)) == 32
    assert run(tmp_path / "runs", of).complete  # who gives the command again means it


def test_the_last_round_without_the_target_is_a_result(tmp_path: Path) -> None:
    seen: list[Event] = []
    of = experiment(target="validation_error < 0.0001", trials=8)
    assert run(tmp_path, of, observer=seen.append).complete
    assert any("no study has reached" in e.text for e in seen if isinstance(e, Note))


def test_time_that_is_up_ends_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.1")
    did = run(tmp_path / "runs", seconds=1.0)
    assert not did.complete
    monkeypatch.setenv("FAKE_SECONDS", "0")
    assert run(tmp_path / "runs").complete
    run(tmp_path / "whole")
    best = [
        table(tmp_path / name).groupby("study").steps_to_target.nsmallest(4)
        for name in ("runs", "whole")
    ]
    assert best[0].to_list() == best[1].to_list()


def test_a_changed_workload_asks(tmp_path: Path, log: Path) -> None:
    file, root = tmp_path / "mine.py", tmp_path / "runs"
    file.write_text(LINEAR)
    of = {"workload": f"{file}:Mine", "batch_size": "64", "trials": 5}
    run(root, experiment(**of))
    first = began(log)
    file.write_text("# a remark changes nothing\n" + LINEAR)
    assert run(root, experiment(**of)).trained == 0
    file.write_text(LINEAR.replace("Linear(4, 2)", "Linear(4, 3)"))
    with pytest.raises(ExperimentError, match=r"has changed since \d+ trials of 1 study were"):
        run(root, experiment(**of))
    assert began(log) == []
    kept = run(root, experiment(**of), keep_old=True)
    assert (kept.trained, kept.trials) == (0, len(first))
    did = run(root, experiment(**of), retrain=True)
    assert did.trained == len(began(log)) > 0
    assert run(root, experiment(**of)).trained == 0


def test_an_optimum_on_the_edge_is_told(tmp_path: Path) -> None:
    seen: list[Event] = []
    run(tmp_path, judge=edges, observer=seen.append)
    notes = [e.text for e in seen if isinstance(e, Note) and "on the edge" in e.text]
    assert len(notes) == 2  # the fewer steps, the lower the fake's rate
    assert all("learning_rate at its lower end 0.05" in note for note in notes)


def test_one_engine_a_study(tmp_path: Path) -> None:
    seen: list[Event] = []
    run(tmp_path, observer=seen.append)
    assert {e.engine for e in seen if isinstance(e, Begun)} == {"module"}
    assert set(table(tmp_path).engine) == {"module"}
