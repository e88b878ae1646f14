"""Links in a results folder: a folder or file of it may lie on another disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import results
from results.errors import ResultsError
from results.run_state.checkpoints import Checkpoints
from results.run_state.claims import Claims
from results.storage.location import Location
from results.store import Store
from tests.results.synthetic import claimed

TABLES = ("studies", "trials", "measurements", "sources")


@pytest.fixture
def root(folder: Path) -> Path:
    return folder


@pytest.mark.parametrize("linked", ["table", "experiment", "file"])
def test_what_lies_behind_a_link_is_read_and_written(
    root: Path, tmp_path: Path, linked: str
) -> None:
    trials, measured = results.open(root).trials, results.open(root).measurements
    for table in ("trials", "measurements"):
        folder = root / table / "synthetic"
        places = {"table": root / table, "experiment": folder, "file": min(folder.iterdir())}
        places[linked].rename(tmp_path / table)
        places[linked].symlink_to(tmp_path / table)
    assert results.open(root).trials.equals(trials)
    store = Store(root)
    store.compact()
    row = {"trial": "t", "study": "s", "batch_size": 1}
    store.commit("synthetic", measurements=[], trials=[row])
    assert len(results.open(root).trials) == len(trials) + 1
    assert len(results.open(root).measurements) == len(measured)


def test_claims_and_snapshots_may_lie_elsewhere(root: Path, tmp_path: Path) -> None:
    for folder in ("claims", "checkpoints"):
        (tmp_path / folder).mkdir()
        (root / folder).symlink_to(tmp_path / folder)
    claim = claimed(root, "pack", ["t"])
    assert Claims(root).take("other", ["t"]) is None
    Checkpoints(root).save("pack", b"state")
    assert (tmp_path / "checkpoints" / "pack.snapshot").read_bytes() == b"state"
    assert Checkpoints(root).list() == ["pack"]
    Checkpoints(root).delete("pack")
    assert Checkpoints(root).list() == []
    claim.release()
    assert Claims(root).all() == []


@pytest.mark.parametrize("name", ["synthetic", "x.parquet"])
def test_a_link_to_nowhere_is_named(root: Path, tmp_path: Path, name: str) -> None:
    """A disk that is not mounted: its rows would be missing without a word."""
    place = root / "trials" / name
    if place.exists():
        place.rename(tmp_path / "kept")
    place.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ResultsError, match=f"{name} is a link to nowhere"):
        results.open(root).trials  # noqa: B018


def test_links_in_circles_end(root: Path) -> None:
    files = Location(root).files("trials")
    for name in ("a", "b"):  # 2 ** 40 paths
        (root / "trials" / "synthetic" / name).symlink_to(".")
    assert Location(root).files("trials") == files


def test_the_lock_of_claims_is_not_made_behind_a_link(root: Path, tmp_path: Path) -> None:
    (root / "claims").mkdir()
    for target in (tmp_path / "made", Path("/etc/passwd")):
        (root / "claims" / ".lock").symlink_to(target)
        with pytest.raises(ResultsError, match="cannot write"):
            Claims(root).take("pack", ["t"])
        (root / "claims" / ".lock").unlink()
    assert not (tmp_path / "made").exists()


def test_a_file_that_is_a_link_is_replaced_not_written_through(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (root / "checkpoints").mkdir()
    for name in ("checkpoints/pack.snapshot", "checkpoints/other.snapshot"):
        (root / name).symlink_to(precious)
    kept = Checkpoints(root)
    kept.save("pack", b"state")
    kept.delete("other")
    assert kept.load("pack") == b"state"
    assert kept.list() == ["pack"]
    assert precious.read_bytes() == b"precious"


def test_the_files_of_a_folder_are_those_that_the_system_lists(root: Path) -> None:
    where = Location(root)
    for table in TABLES:
        listed = where.files(table, ".parquet")
        files = sorted((root / table).rglob("*.parquet"))
        assert [each.name for each in listed] == [str(each.relative_to(root)) for each in files]
        assert [each.size for each in listed] == [each.stat().st_size for each in files]
        assert [each.modified for each in listed] == [each.stat().st_mtime for each in files]
    assert where.files("nowhere") == []
    (root / "trials" / ".hidden.parquet").touch()
    os.mkfifo(root / "trials" / "pipe.parquet")
    names = {each.name for each in where.files("trials", hidden=True)}
    assert names - {each.name for each in where.files("trials")} == {"trials/.hidden.parquet"}
