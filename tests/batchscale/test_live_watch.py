"""What the live page shows of a folder that changes, is empty, broken, compacted or gone."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchscale.live import watch as watching
from batchscale.live.content import Content
from batchscale.live.status import nothing
from batchscale.live.watch import Watch
from experiments.execution.ledger import Ledger
from results.errors import ResultsError
from results.reader import Results
from results.storage.compact import compact
from results.storage.location import Location
from results.store import Store
from tests.results import synthetic
from tests.results.test_claim_files import write_malformed

PLAN = {
    "experiment_yaml": "name: synthetic",
    "trials_wanted": synthetic.TRIALS,
    "keep": None,
    "targets": [synthetic.TARGET],
}


class Case:
    """A folder, a watch over it with a clock of its own, and what it has computed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        self.cost = 0.0
        self.spent = 0.0
        self.made: list[int] = []
        self.said: list[str] = []
        self.before: Callable[[], Any] = lambda: None
        self.content = Content(self.page, nothing(str(root), "Reading …"))
        self.watch = Watch(
            root,
            self.make,
            self.content,
            say=self.said.append,
            clock=lambda: self.now,
            spent=lambda: self.spent,
        )

    @staticmethod
    def page(payload: dict[str, Any] | None) -> str:
        return f"<p>{payload}</p>"

    def make(self, found: Results) -> dict[str, Any] | None:
        self.before()
        self.spent += self.cost
        count = len(found.trial_rows)
        if not count:
            return None
        self.made.append(count)
        looks = len(found.measurements)
        return {"trials": count, "looks": looks, "made": len(self.made)}

    def look(self, after: float = 5.0) -> dict[str, Any]:
        """What is served ``after`` seconds."""
        self.now += after
        self.watch.update()
        state: dict[str, Any] = json.loads(self.content.state.body)
        assert str(state["payload"]) in self.content.page.body.decode()
        return state

    def plan(self, batch_size: int = 8) -> None:
        row = synthetic.study_row("digits-mlp", "sgd", batch_size, **PLAN)
        Store(self.root).add_studies([row])

    def commit(self, *indices: int, batch_size: int = 8) -> None:
        rows = [synthetic.trial_row("digits-mlp", "sgd", batch_size, i) for i in indices]
        synthetic.commit(Store(self.root), rows)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path / "runs")


def test_from_no_folder_to_the_last_trial(case: Case) -> None:
    state = case.look()
    assert state["payload"] is None
    assert state["status"]["sentence"].startswith("Waiting for a sweep")
    case.root.mkdir()
    assert case.look()["status"]["error"] is None
    case.plan()
    status = case.look()["status"]
    assert status["sentence"] == "0 of 4 trials: not complete, 4 trials left; nothing runs now."
    assert (status["left"], status["complete"], status["seconds_left"]) == (4, False, None)
    case.commit(0, 1)
    state = case.look()
    assert state["payload"] == {"trials": 2, "looks": 9, "made": 1}
    assert (
        state["status"]["sentence"]
        == "2 of 4 trials: not complete, 2 trials left; nothing runs now."
    )
    case.commit(2, 3)
    state = case.look()
    assert state["payload"]["trials"] == 4
    assert state["status"]["complete"]
    (row,) = state["status"]["experiments"]
    assert (row["optimizer"], row["done"], row["reached"], row["left"]) == ("sgd", 4, 3, 0)
    (cell,) = state["status"]["cells"]
    assert (cell["batch_size"], cell["done"], cell["wanted"], cell["left"]) == (8, 4, 4, 0)
    assert not case.said


def test_claims_alone_renew_the_status_alone(case: Case) -> None:
    case.plan()
    case.commit(0)
    case.look()
    before = case.content.page.tag, case.content.state.tag
    ledger = Ledger(str(case.root))
    study = synthetic.study_id("digits-mlp", "sgd", 8)
    info = {"experiment": "synthetic", "study": study}
    assert ledger.take("pack", ["one", "two"], info, {})
    ledger.renew("pack", {"one": (12, 0.4), "two": (14, 0.2)})
    status = case.look()["status"]
    (pack,) = status["packs"]
    assert {name: pack[name] for name in ("optimizer", "batch_size", "trials", "step")} == {
        "optimizer": "sgd", "batch_size": 8, "trials": 2, "step": 14,
    }  # fmt: skip
    assert (pack["metric"], pack["best"], pack["silent"]) == ("validation_error", 0.2, False)
    assert abs(pack["last_word"] - time.time()) < 60
    assert status["sentence"] == "1 of 4 trials: not complete, 3 trials left; 1 pack trains now."
    assert case.content.page.tag == before[0]
    assert case.content.state.tag != before[1]
    ledger.release("pack")
    assert case.look()["status"]["packs"] == []
    assert case.made == [1]


def test_nothing_new_is_nothing_computed_and_the_same_tag(case: Case) -> None:
    case.plan()
    case.commit(0)
    case.look()
    tag, asked = case.content.state.tag, watching.status
    with pytest.MonkeyPatch.context() as patch:
        calls: list[int] = []
        patch.setattr(watching, "status", lambda found: calls.append(1) or asked(found))
        for _ in range(5):
            case.look()
        assert not calls
        # Claims fall free by time alone, and so do those that run.
        Ledger(str(case.root)).take("pack", ["one"], {"experiment": "synthetic"}, {})
        for _ in range(5):
            case.look(after=watching._RENEWED)
        assert len(calls) == 5
    assert case.made == [1]
    assert case.content.state.tag == tag  # a pack of no study is no training


def test_what_takes_long_is_computed_seldom(case: Case) -> None:
    """Of 6 seconds of computing, 18 of rest: a quarter of a processor."""
    case.plan()
    case.cost = 6.0
    for index in range(4):
        case.commit(index)
        case.look(after=5.0)
    assert case.made == [1]
    assert case.content.status["complete"]  # the status did not wait
    case.look(after=5.0)
    assert case.made == [1, 4]


def test_infeasible_trials_are_told(case: Case) -> None:
    case.plan()
    row = synthetic.trial_row("digits-mlp", "sgd", 8, 0)
    lost = {"status": "INFEASIBLE", "stop_reason": "diverged", "steps_to_target": None}
    Store(case.root).commit("synthetic", measurements=[], trials=[{**row, **lost}])
    status = case.look()["status"]
    assert status["sentence"].endswith("4 trials left; nothing runs now. 1 infeasible so far.")
    assert status["experiments"][0]["infeasible"] == 1
    row = synthetic.trial_row("digits-mlp", "sgd", 8, 1)
    failed = {"status": "INCOMPLETE", "stop_reason": "error", "steps_to_target": None}
    failed["error"] = "Traceback (most recent call last):\nRuntimeError: not with 8\n"
    Store(case.root).commit("synthetic", measurements=[], trials=[{**row, **failed}])
    status = case.look()["status"]
    (listed,) = status["failed_trials"]
    assert (listed["batch_size"], listed["error"]) == (8, "RuntimeError: not with 8")
    assert listed["command"] == f"batchscale trial --from {row['trial']} --results {case.root}"
    assert status["sentence"].endswith(
        "3 trials left, 1 failed; nothing runs now. 1 infeasible so far. "
        "1 trial failed at batch size 8: RuntimeError: not with 8."
    )


def test_a_pack_that_has_said_nothing_yet_is_at_no_step(case: Case) -> None:
    case.plan()
    study = synthetic.study_id("digits-mlp", "sgd", 8)
    ledger = Ledger(str(case.root))
    assert ledger.take("pack", ["one"], {"experiment": "synthetic", "study": study}, {})
    (pack,) = case.look()["status"]["packs"]
    assert (pack["step"], pack["best"]) == (None, None)
    assert ledger.renew("pack", {"one": (7, None)})
    (pack,) = case.look()["status"]["packs"]
    assert (pack["step"], pack["best"]) == (7, None)


def test_a_broken_file_is_a_line_and_the_page_goes_on(case: Case) -> None:
    case.plan()
    case.commit(0)
    good = case.look()
    broken = case.root / "trials" / "synthetic" / "broken.parquet"
    broken.write_bytes(b"PAR1 this is none")
    for _ in range(3):
        state = case.look()
        assert "broken.parquet is not a whole Parquet file" in state["status"]["error"]
        assert "move it out of the results folder" in state["status"]["error"]
        assert state["payload"] == good["payload"]
        assert state["status"]["experiments"] == good["status"]["experiments"]
    assert len(case.said) == 1
    broken.unlink()
    state = case.look()
    assert state["status"]["error"] is None
    assert state["payload"] == {**good["payload"], "made": 2}


def test_what_cannot_be_computed_is_a_line_and_tried_again(case: Case) -> None:
    def fail() -> None:
        raise ZeroDivisionError("of nobody's fault")

    case.plan()
    case.commit(0)
    case.before = fail
    state = case.look()
    assert state["status"]["error"] == "ZeroDivisionError: of nobody's fault"
    assert not state["status"]["computing"]
    assert state["payload"] is None
    case.before = lambda: None
    assert case.look()["payload"] is None  # no file has changed
    state = case.look(after=watching._AGAIN)
    assert state["payload"]["trials"] == 1
    assert state["status"]["error"] is None
    assert case.said == ["ZeroDivisionError: of nobody's fault"]


def test_files_that_are_compacted_away_are_read_again(case: Case) -> None:
    case.plan()
    for index in range(4):
        case.commit(index)
    done: list[int] = []

    def merge() -> None:
        if not done:
            done.append(1)
            compact(Location(case.root))

    case.before = merge
    state = case.look()
    assert state["payload"]["looks"] == 4 + 5 + 6 + 10
    assert state["status"]["error"] is None
    before = case.made
    assert case.look()["payload"]["looks"] == 25
    assert case.made == before


def test_files_that_keep_going_away_are_no_error(case: Case) -> None:
    def gone() -> None:
        raise FileNotFoundError("again")

    case.plan()
    case.commit(0)
    case.before = gone
    state = case.look()
    assert state["payload"] is None
    assert state["status"]["error"] is None
    case.before = lambda: None
    assert case.look()["payload"]["trials"] == 1


def test_a_folder_that_vanishes_and_comes_back(case: Case) -> None:
    case.plan()
    case.commit(0)
    good = case.look()
    moved = case.root.rename(case.root.with_name("elsewhere"))
    state = case.look()
    assert "is empty now" in state["status"]["error"]
    assert state["payload"] == good["payload"]
    moved.rename(case.root)
    state = case.look()
    assert state["status"]["error"] is None
    assert state["status"]["experiments"] == good["status"]["experiments"]


def test_a_folder_of_somebody_else_is_told(case: Case) -> None:
    case.look()
    (case.root / "photos").mkdir(parents=True)
    assert "is not a results folder" in case.look()["status"]["error"]
    shutil.rmtree(case.root)
    case.plan()
    assert case.look(after=watching._AGAIN)["status"]["error"] is None


def test_imported_results_have_no_plan(case: Case) -> None:
    case.commit(0, 1)
    state = case.look()
    assert state["payload"]["trials"] == 2
    assert state["status"]["sentence"] == "No sweep was planned here."
    assert not state["status"]["complete"]


def test_the_thread_looks_by_itself_and_ends(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.plan()
    case.commit(0)
    monkeypatch.setattr(case.watch, "_every", 0.01)
    case.watch.start()
    until = time.monotonic() + 60
    while json.loads(case.content.state.body)["payload"] is None and time.monotonic() < until:
        time.sleep(0.01)
    assert case.watch.stop(60)
    assert case.made == [1]


def test_a_source_that_is_none_is_refused() -> None:
    with pytest.raises(ResultsError, match="cannot open"):
        Watch("nowhere://x", lambda _: None, Content(Case.page, {}))


def test_malformed_claims_and_metrics_that_are_no_numbers(case: Case) -> None:
    case.plan()
    case.commit(0)
    write_malformed(case.root)
    study = synthetic.study_id("digits-mlp", "sgd", 8)
    ledger = Ledger(str(case.root))
    assert ledger.take("pack", ["one", "two"], {"experiment": "synthetic", "study": study}, {})
    assert ledger.renew("pack", {"one": (12, float("inf")), "two": (14, float("nan"))})
    state = case.look()
    assert state["status"]["error"] is None
    (pack,) = state["status"]["packs"]
    assert (pack["trials"], pack["step"], pack["best"]) == (2, 14, None)
    assert "NaN" not in case.content.state.body.decode()
    assert case.said == []
