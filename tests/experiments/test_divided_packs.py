"""A pack's snapshot divided: each part goes on from it, with the numbers of the whole pack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import results as dataset
from experiments.execution.ledger import Ledger
from experiments.execution.worker import run_pack
from experiments.plan import Pack
from experiments.records.snapshots import divide, leave_to_next_run, passed_over, resumable
from experiments.scheduling.messages import Assignment, Begun
from experiments.training.pack_training import Training
from tests import problems
from tests.experiments.test_worker import QUICK, Line


def whole_pack(engine: str) -> Assignment:
    of = problems.study(optimizer="momentum", budget_steps=120, keep=None)
    trials = problems.trials(of, 5)
    return Assignment(
        pack=Pack(id="pack", study=of, trials=trials, engine=engine),  # type: ignore[arg-type]
        round=0,
        columns={"study": of.id},
        wanted=frozenset(trial.id for trial in trials),
    )


def train(assignment: Assignment, root: Path, line: Line, trainer: Any = Training) -> str:
    end = run_pack(assignment, Ledger(str(root)), line.channel, trainer=trainer, pace=QUICK)
    return end.end


def numbers(root: Path) -> tuple[Any, Any]:
    read = dataset.open(root)
    columns = ["trial", "step", "validation_error", "validation_cross_entropy"]
    points = read.measurements.sort_values(["trial", "step"])[columns].reset_index(drop=True)
    ends = ["status", "stop_reason", "steps_to_target", "last_miss", "steps_run"]
    return points, read.trials.set_index("trial").sort_index()[ends]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["module", "stacked"])
def test_parts_go_on_bit_for_bit(engine: str, tmp_path: Path, one_thread: None) -> None:
    """One part has a trial besides that had not begun: it joins at its first step."""
    del one_thread
    assignment, line = whole_pack(engine), Line()
    ids = [trial.id for trial in assignment.pack.trials]

    class Stops(Training):
        def run(self, *_: Any) -> Any:
            for events in super().run(lambda: line.stop):
                yield events
                line.stop = self.step >= 20

    first = replace(
        assignment,
        pack=replace(assignment.pack, trials=assignment.pack.trials[:4]),
        wanted=frozenset(ids[:4]),
    )
    root = tmp_path / "divided"
    assert train(first, root, line, Stops) == "stopped"
    ended = set(line.committed)
    kept = Ledger(str(root))
    groups = {"one": ids[:2], "other": ids[2:]}
    headers = divide(kept, "pack", ids, groups)
    assert [header.pack for header in headers] == kept.list() == ["one", "other"]
    for header in headers:
        wanted = frozenset(header.active) - ended
        part = replace(assignment, pack=replace(assignment.pack, id=header.pack), wanted=wanted)
        later = Line()
        assert train(part, root, later) == "done"
        assert set(later.committed) == wanted
        (started,) = (message for message in later.messages if isinstance(message, Begun))
        assert started.step >= 20
    assert kept.list() == []
    assert train(assignment, tmp_path / "whole", Line()) == "done"
    for found, wanted_table in zip(numbers(root), numbers(tmp_path / "whole"), strict=True):
        assert found.equals(wanted_table)


def test_a_snapshot_of_other_trials_is_not_divided(tmp_path: Path) -> None:
    kept = Ledger(str(tmp_path))
    assert divide(kept, "pack", ["a"], {"one": ["a"]}) == []
    kept.save("pack", b"nothing that was written as a snapshot")
    assert divide(kept, "pack", ["a"], {"one": ["a"]}) == []
    assert kept.list() == ["pack"]


@pytest.mark.parametrize("engine", ["module", "stacked"])
def test_a_pack_without_a_snapshot_is_left_to_the_next_run(
    engine: str, tmp_path: Path, one_thread: None
) -> None:
    """In halves that begin anew, until the trial that hung is known."""
    del one_thread
    assignment = whole_pack(engine)
    ids = [trial.id for trial in assignment.pack.trials]
    kept, studies = Ledger(str(tmp_path)), [assignment.pack.study]

    leave_to_next_run(kept, assignment, None)
    halves = {header.active: header for header in resumable(kept.store, studies)}
    assert set(halves) == {tuple(ids[:3]), tuple(ids[3:])}
    assert passed_over(kept.store, studies) == set()

    left = halves[tuple(ids[:3])]
    pack = replace(assignment.pack, id=left.pack, trials=assignment.pack.trials[:3])
    half = replace(assignment, pack=pack, wanted=frozenset(left.active))
    leave_to_next_run(kept, half, ids[1])
    assert passed_over(kept.store, studies) == {ids[1]}
    others = {header.active for header in resumable(kept.store, studies)} - set(halves)
    assert others == {(), (ids[0], ids[2])}

    line = Line()
    assert train(half, tmp_path, line) == "done"
    assert set(line.committed) == set(ids[:3])


def test_a_header_of_other_settings_passes_nothing_over(tmp_path: Path) -> None:
    assignment = whole_pack("module")
    kept, study = Ledger(str(tmp_path)), assignment.pack.study
    leave_to_next_run(kept, assignment, assignment.pack.trials[0].id)
    assert passed_over(kept.store, [replace(study, budget_steps=240)]) == set()
    assert kept.list() == []
