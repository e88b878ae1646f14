"""The release's tree in small: what is measured of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import results
from batchscale.run import Run
from benchmarks import published
from tests.results import release


@pytest.mark.slow
def test_a_tree_in_small(tmp_path: Path) -> None:
    tree, root = tmp_path / "batch_science", tmp_path / "runs"
    plans = [
        release.ReleasedStudy(name=f"{name}/{size}", batch_size=size, rows=(30, 90, 60, 120, 80))
        for name in (release.HALF, release.IMAGES, release.WORDS)
        for size in (64, 128, 256)
    ]
    release.write(tree, plans)
    assert published.load(str(tree), str(root)) == 9 * 380
    goals = published.goals(results.open(root).studies)
    assert sorted(goals.values()) == [
        *("validation_average_precision > 0.31", "validation_cross_entropy < 3.9"),
        release.GOAL,
    ]
    assert len(published.steps(str(root))) == 9
    assert published.regimes(str(root)) <= 3


@pytest.mark.slow
def test_a_workload_of_the_tree_has_its_regimes(tmp_path: Path) -> None:
    """Steps fall as its batch sizes say, and come to the goal at all of them."""
    tree, root = tmp_path / "batch_science", tmp_path / "runs"
    own = [study for study in release.plan() if study.name.startswith(release.FC + "/")]
    release.write(tree, [replace(study, rows=(40,) * 16) for study in own])
    published.load(str(tree), str(root))
    assert published.regimes(str(root)) == 1
    (found,) = Run(results.open(root)).regimes()
    assert found["target"] == "validation_error < 0.03"
    assert found["censored"] == []
    # Half way, in octaves, between the least and the greatest batch size.
    assert found["critical_batch_size"]["low"] < 55_000**0.5 < found["critical_batch_size"]["high"]


def test_a_tree_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    tree = tmp_path / "batch_science-0.002"
    tree.mkdir()
    expected = sum(sum(study.rows) for study in release.plan(0.002))
    assert published.fill(str(tree), "0.002") == expected
    assert list(tree.iterdir()) == []


@pytest.mark.parametrize("text", ["0", "2", "a tenth", "-1"])
def test_a_share_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHSCALE_RELEASE_SHARE", text)
    with pytest.raises(SystemExit, match="no share from above 0 to 1"):
        published.share()
