"""Edits of an experiment between sweeps: what is left of it, and what its tables say.

The driver, at the end of a sweep that may train nothing, and ``status`` count the same.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results as dataset
from analysis import Curve
from analysis.curves import edges
from analysis.figure_data import FigureData, Query
from experiments.config.compile import Experiment, parse
from experiments.execution.signals import Interrupted
from experiments.records.status import how_far, status
from experiments.scheduling.messages import Ended, Event
from results.searches import PART, current
from tests.experiments.test_sweep import experiment, run, table

HARDER = "validation_error < 0.025"


def part(*overrides: str, **changes: Any) -> Experiment:
    """The experiment of ``test_sweep``, of three batch sizes, as ``--set`` changes it."""
    return experiment(*overrides, **{"keep": "off", "batch_size": "32, 64, 128", **changes})


def lines(root: Path) -> list[Curve]:
    """The curves of the default table."""
    return FigureData(Query(sources=[root])).trials_of_curves


EDITS: dict[str, Sequence[dict[str, Any]]] = {
    "a harder target": [{"target": HARDER}],
    "an easier target": [{"target": HARDER}, {}],
    "a larger budget": [{"budget": "150 steps"}],
    "a smaller budget": [{"budget": "50 steps"}],
    "a raised keep": [{"keep": 1}, {"keep": "off"}],
    "more trials, then fewer": [{"trials": 40}, {"trials": 10}],
    "a narrowed range": [{"search": {"learning_rate": {"linear": [0.5, 2.0]}}}],
    "a grid of points": [{"method": "grid"}],
    "more that diverges than is drawn": [{"search": {"learning_rate": {"linear": [0.5, 8.0]}}}],
}


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_status_counts_as_the_driver_does(tmp_path: Path, edits: Sequence[dict[str, Any]]) -> None:
    first = experiment(keep="off")
    run(tmp_path, first)
    assert status(tmp_path).left == 0
    for edit in edits:
        edited = experiment(**{"keep": "off", **edit})
        before = run(tmp_path, edited, seconds=0)
        assert status(tmp_path).left == before.left
        after = run(tmp_path, edited)
        assert after.complete
        assert status(tmp_path).left == after.left == 0
        asked = status(tmp_path).studies
        assert (asked.reached > 0).sum() == after.reached
        assert asked.done.sum() >= after.trials


def test_a_part_that_is_interrupted(tmp_path: Path) -> None:
    """It said 12 of 12 where the sweep said: not complete."""
    run(tmp_path, part())
    edited = part(f"target={HARDER}", "grid.batch_size=[64]")
    did = run(tmp_path, edited, seconds=0)
    assert not did.complete
    assert did.left > 0
    found = status(tmp_path)
    assert found.left == did.left
    left = found.studies.set_index("batch_size").left
    assert left.to_dict() == {32: 0, 64: did.left, 128: 0}
    assert how_far(found.left, 0) == f"not complete, {did.left} trials left"


def test_another_target_of_one_batch_size_leaves_the_table_of_the_others(tmp_path: Path) -> None:
    run(tmp_path, part())
    (before,) = lines(tmp_path)
    run(tmp_path, part(f"target={HARDER}", "grid.batch_size=[64]", "trials=10"))
    harder, same = sorted(lines(tmp_path), key=lambda curve: str(curve.target))
    assert same.to_frame().equals(before.to_frame())
    assert same.notes == before.notes
    assert (str(harder.target), harder.batch_sizes, harder.trials) == (HARDER, [64], 10)
    assert not any("not run yet" in note for note in harder.notes)
    wanted = status(tmp_path).studies.set_index("batch_size").wanted
    assert wanted.to_dict() == {32: 20, 64: 10, 128: 20}
    # The file as it is: all of it has one target again, and nothing is trained.
    did = run(tmp_path, part())
    assert (did.trained, did.complete) == (0, True)
    (again,) = lines(tmp_path)
    assert again.to_frame().equals(before.to_frame())


def test_a_harder_target_of_another_experiment_leaves_the_table(tmp_path: Path) -> None:
    run(tmp_path, part())
    (before,) = lines(tmp_path)
    run(tmp_path, part(name="harder", target=HARDER, batch_size="64"))
    harder, same = sorted(lines(tmp_path), key=lambda curve: str(curve.target))
    assert same.to_frame().equals(before.to_frame())
    assert (str(harder.target), harder.batch_sizes) == (HARDER, [64])
    assert run(tmp_path, part()).trained == 0


def test_an_easier_target_of_one_batch_size_takes_nothing_from_the_others(tmp_path: Path) -> None:
    run(tmp_path, part())
    (before,) = lines(tmp_path)
    did = run(tmp_path, part("target=validation_error < 0.2", "grid.batch_size=[64]"))
    assert (did.trained, did.complete, status(tmp_path).left) == (0, True, 0)
    assert (table(tmp_path).target_value == 0.05).all()
    (again,) = lines(tmp_path)
    assert again.to_frame().equals(before.to_frame())
    # New trials of it stop there: they are of that target's curve, and so are all others.
    run(tmp_path, part("target=validation_error < 0.2", "grid.batch_size=[64]", "trials=25"))
    same, easier = sorted(lines(tmp_path), key=lambda curve: str(curve.target))
    assert same.to_frame().equals(before.to_frame())
    assert (str(easier.target), easier.trials) == ("validation_error < 0.2", 20)
    assert easier.batch_sizes == [32, 64, 128]


def test_a_part_drops_nothing_and_a_later_file_does(tmp_path: Path) -> None:
    run(tmp_path, part())
    run(tmp_path, part("grid.batch_size=[64, 256]"))
    studies = dataset.open(tmp_path).studies
    assert set(studies.batch_size[current(studies)]) == {32, 64, 128, 256}
    texts = studies.set_index("batch_size").experiment_yaml
    assert texts.str.startswith(PART).to_dict() == {32: False, 64: True, 128: False, 256: True}
    assert list(parse(texts[256]).batch_sizes) == [64, 256]
    run(tmp_path, part(batch_size="32, 64"))
    studies = dataset.open(tmp_path).studies
    assert set(studies.batch_size[current(studies)]) == {32, 64}


def test_what_an_edit_left_out_is_wanted_again_once_it_is_back(tmp_path: Path) -> None:
    """It said complete, of the other file's studies, where the sweep said: not complete."""
    first, other = experiment(keep="off"), experiment(keep="off", batch_size="16")
    left = run(tmp_path, first, seconds=0).left
    run(tmp_path, other)
    for edited, wanted in ((first, {64, 128}), (other, {16}), (first, {64, 128})):
        did = run(tmp_path, edited, seconds=0)
        found = status(tmp_path)
        assert set(found.studies.batch_size[found.studies.wanted > 0]) == wanted
        assert found.left == did.left == (left if edited is first else 0)


def test_the_words_of_how_far() -> None:
    assert how_far(0, 0) == "complete"
    assert how_far(1, 0) == "not complete, 1 trial left"
    assert how_far(1200, 2) == "not complete, 1,200 trials left, 2 failed"
    assert how_far(0, 1) == (
        "complete but for 1 trial that failed: the same sweep tries it once more"
    )
    assert how_far(0, 3).endswith("3 trials that failed: the same sweep tries them once more")


def test_a_failed_trial_is_neither_left_nor_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "clean", experiment(keep="off", trials=6))
    late: pd.Series = table(tmp_path / "clean").query("steps_run > 50 and batch_size == 128").trial
    monkeypatch.setenv("FAKE_RAISE", late.iloc[0])
    did = run(tmp_path / "runs", experiment(keep="off", trials=6))
    found = status(tmp_path / "runs")
    assert (did.failed, did.left, did.complete) == (1, 0, True)
    assert (found.failed, found.left) == (1, 0)
    # A run that ends before it tries the trial again says the same.
    did = run(tmp_path / "runs", experiment(keep="off", trials=6), seconds=0)
    assert (did.trained, did.failed, did.left, did.complete) == (0, 1, 0, True)
    # Of a study that the file has no more none is tried again.
    other = 192 - int(table(tmp_path / "runs").query("stop_reason == 'error'").batch_size.iloc[0])
    did = run(tmp_path / "runs", experiment(keep="off", trials=6, batch_size=str(other)))
    assert did.failed == status(tmp_path / "runs").failed == 0


def test_what_follows_a_search_is_left_for_both(tmp_path: Path) -> None:
    """Enlargements of a space that is too small, then repeats: interrupted at every third end."""
    narrow = {"learning_rate": {"linear": [0.6, 0.9]}}
    of = experiment(keep=2, repeats=3, extend=2, trials=8, search=narrow)
    for _ in range(40):
        ended: list[Ended] = []

        def interrupt(event: Event, ended: list[Ended] = ended) -> None:
            if isinstance(event, Ended) and event.run is None:
                ended.append(event)
                if len(ended) == 3:
                    signal.raise_signal(signal.SIGINT)

        try:
            did = run(tmp_path, of, judge=edges, pack_size=2, observer=interrupt)
        except Interrupted as interrupted:
            did = interrupted.summary
        found = status(tmp_path)
        assert found.left == did.left
        if did.complete:
            break
    assert did.complete
    rows = table(tmp_path)
    assert (rows.role == "repeat").sum() == 6
    assert set(rows.enlargement) == {0, 1, 2}
    assert run(tmp_path, of, judge=edges).trained == 0
    assert status(tmp_path).studies.wanted.sum() == len(rows)
