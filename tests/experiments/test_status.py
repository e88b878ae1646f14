"""Where a sweep stands, from its tables and claims alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import results
from batchscale.cli.sweep import _time_left
from experiments.execution.ledger import Ledger
from experiments.records.status import status
from experiments.scheduling import rounds
from results.errors import ResultsError
from results.run_state.claims import Claims
from results.storage.location import Location
from results.store import Store
from tests.experiments.test_sweep import experiment, run
from tests.results import synthetic
from tests.results.test_claim_files import write_malformed


def test_a_complete_sweep(tmp_path: Path) -> None:
    did = run(tmp_path, experiment(keep="off"))
    found = status(tmp_path)
    assert len(found.studies) == 2
    assert found.studies.done.sum() == did.trials
    assert (found.studies.wanted == 20).all()
    assert (found.studies.done - found.studies.infeasible == 20).all()
    assert found.left == 0
    assert found.work_seconds == 0
    assert found.seconds is None
    assert found.packs.empty


def test_the_share_of_evaluations_is_that_of_packs() -> None:
    """Each row has the seconds of its pack until its trial ended."""
    rows = pd.DataFrame(
        {
            "study": ["a", "a", "a", "b"],
            "pack": ["1", "1", "2", "1"],
            "train_seconds": [1.0, 6.0, 2.0, 0.0],
            "evaluation_seconds": [0.5, 2.0, 1.0, 1.0],
            "other_seconds": [0.0, 0.0, 0.0, 4.0],
        }
    )
    assert rounds.evaluation_share(rows) == 4 / 16
    assert rounds.evaluation_share(rows.iloc[:0]) is None


def test_what_is_left_and_running(tmp_path: Path) -> None:
    run(tmp_path, experiment(keep="off", batch_size="64"))
    run(tmp_path, experiment(keep="off", batch_size="64", trials=40), seconds=0)
    ledger = Ledger(str(tmp_path))
    name = status(tmp_path).studies.study[0]
    info = {"experiment": "fake", "study": name}
    assert ledger.take("pack", ["one", "two"], info, {})
    assert ledger.renew("pack", {"one": (12, 0.4), "two": (12, 0.2)})
    found = status(tmp_path)
    (study,) = found.studies.to_dict("records")
    assert (study["wanted"], study["left"], study["running"]) == (40, 20, 2)
    assert found.left == 20
    (pack,) = found.packs.to_dict("records")
    assert (pack["trials"], pack["step"], pack["best"]) == (2, 12, 0.2)
    assert found.seconds == found.work_seconds == pytest.approx(20 * study["trial_seconds"])
    assert found.evaluation_share is None  # the tests' trainer takes no time
    assert "for evaluations" not in _time_left(found)
    timed = _time_left(replace(found, evaluation_share=0.25))
    assert "with the packs that run now (25% of the time so far for evaluations)" in timed
    before_the_first = replace(found, seconds=None, work_seconds=None)
    assert _time_left(before_the_first).endswith("; 1 pack trains now")
    idle = replace(before_the_first, packs=found.packs.iloc[:0])
    assert _time_left(idle).endswith("; nothing runs now")
    ledger.release("pack")


def test_what_a_pack_has_recorded_does_not_run(tmp_path: Path) -> None:
    run(tmp_path, experiment(keep="off", batch_size="64"))
    info = {"experiment": "fake", "study": status(tmp_path).studies.study[0]}
    recorded = [*results.open(tmp_path).trials["trial"][:2]]
    claim = Claims(Location.of(tmp_path)).take("pack", [*recorded, "one"], info=info)
    found = status(tmp_path)
    assert found.studies.running.tolist() == found.packs.trials.tolist() == [1]
    assert claim is not None
    claim.release()


def test_a_study_of_two_experiments_is_counted_at_the_target_of_each(tmp_path: Path) -> None:
    """It said that all trials of the easier one were missing."""
    run(tmp_path, experiment(keep="off"))
    before = status(tmp_path).studies
    harder = experiment(keep="off", name="harder", target="validation_error < 0.025")
    left = run(tmp_path, harder, seconds=0).left
    found = status(tmp_path).studies
    pd.testing.assert_frame_equal(found[found.experiment == "fake"], before)
    assert found.left.sum() == left > 0


def test_rows_that_do_not_say_their_budget(tmp_path: Path) -> None:
    """A null is never wrong: what it leaves unknown is the time alone."""
    plan = {"experiment_yaml": "name: synthetic", "trials_wanted": 4, "targets": [synthetic.TARGET]}
    rows = [synthetic.study_row("digits-mlp", "sgd", size, **plan) for size in (8, 16)]
    store = Store(tmp_path)
    store.add_studies(rows)
    seconds = {"pack": "one", "train_seconds": 3.0, "evaluation_seconds": 1.0, "other_seconds": 0.0}
    synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 8, 0) | seconds])
    found = status(tmp_path)
    assert found.evaluation_share == 0.25
    assert found.studies.left.tolist() == [3, 4]
    assert found.work_seconds is None


@pytest.mark.slow
def test_malformed_claims_stop_neither_a_status_nor_a_sweep(tmp_path: Path) -> None:
    Store(tmp_path)
    write_malformed(tmp_path)
    files = len(list((tmp_path / "claims").glob("*.json")))
    assert status(tmp_path).packs.empty
    did = run(tmp_path, experiment(keep="off"))
    assert did.complete
    assert status(tmp_path).packs.empty
    assert status(tmp_path).left == 0
    assert len(list((tmp_path / "claims").glob("*.json"))) == files


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ResultsError):
        status(tmp_path / "nothing")


@pytest.mark.slow
def test_it_needs_neither_torch_nor_ray(tmp_path: Path) -> None:
    run(tmp_path)
    script = (
        "import sys; sys.modules['torch'] = sys.modules['ray'] = None\n"
        f"from experiments.records.status import status; assert status(r'{tmp_path}').left == 0"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=180)
