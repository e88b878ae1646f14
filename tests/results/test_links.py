"""Links in a results folder that somebody else has made: none leads out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import results
from results.errors import ResultsError
from results.run_state.checkpoints import Checkpoints
from results.run_state.claims import Claims
from results.storage import location
from results.storage.location import Location
from results.store import Store

OUT = "is a link that leads out of the results folder"
TO_FOLDER = "is a link to a folder"
TABLES = ("studies", "trials", "measurements", "sources")


@pytest.fixture
def root(folder: Path) -> Path:
    return folder


def moved(place: Path, theirs: Path) -> None:
    """Put a folder or file of the results outside of them, and a link in its place."""
    place.rename(theirs)
    place.symlink_to(theirs)


def content(path: Path) -> dict[str, bytes]:
    """Every file of a folder, or the file."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {str(each): each.read_bytes() for each in files}


READS: dict[str, Callable[[Path], object]] = {
    "trials": lambda root: results.open(root).trials,
    "measurements": lambda root: results.open(root).measurements,
    "sql": lambda root: results.open(root).query("SELECT count(*) FROM measurements, trials"),
    "writer": lambda root: Store(root).trials(),
    "compaction": lambda root: Store(root).compact(),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("linked", ["table", "experiment", "file"])
def test_what_lies_behind_a_link_out_is_not_read(
    root: Path, tmp_path: Path, read: str, linked: str
) -> None:
    table = root / ("measurements" if read in ("measurements", "sql") else "trials")
    folder = table / "synthetic"
    place = {"table": table, "experiment": folder, "file": min(folder.iterdir())}[linked]
    theirs = tmp_path / "theirs"
    moved(place, theirs)
    before = content(theirs)
    with pytest.raises(ResultsError) as caught:
        READS[read](root)
    assert f"{place} is a link" in str(caught.value)
    assert "put a copy in its place" in (caught.value.hint or "")
    assert content(theirs) == before
    place.unlink()
    theirs.rename(place)
    READS[read](root)


def test_a_link_to_a_file_of_the_machine_is_not_read(root: Path, tmp_path: Path) -> None:
    """Whose first line an error would quote, or which never ends."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    place = root / "trials" / "synthetic" / "x.parquet"
    for target in (secret, Path("/dev/zero"), Path("../../../secret"), tmp_path / "nowhere"):
        place.symlink_to(target)
        with pytest.raises(ResultsError, match=OUT) as caught:
            results.open(root).trials  # noqa: B018
        assert "hunter2" not in f"{caught.value}{caught.value.hint}"
        place.unlink()


def test_links_in_circles_end(root: Path) -> None:
    for name in ("a", "b"):  # 2 ** 40 paths
        (root / "trials" / name).symlink_to(".")
    with pytest.raises(ResultsError, match=TO_FOLDER):
        results.open(root).trials  # noqa: B018
    for name in ("a", "b"):
        (root / "trials" / name).unlink()
    (root / "trials" / "synthetic" / "x.parquet").symlink_to("x.parquet")
    with pytest.raises(ResultsError):
        results.open(root).trials  # noqa: B018


def test_nothing_is_written_behind_a_link(root: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    store = Store(root)
    row = {"trial": "t", "study": "s", "experiment": "new", "batch_size": 1}
    for folder, write_one in {
        "trials/new": lambda: store.commit("new", measurements=[], trials=[row]),
        "studies/new": lambda: store.add_studies([{"study": "s", "experiment": "new"}]),
        "checkpoints": lambda: Checkpoints(root).save("pack", b"state"),
        "claims": lambda: Claims(root).take("pack", ["t"]),
    }.items():
        (root / folder).symlink_to(theirs)
        with pytest.raises(ResultsError, match=f"{folder} ({OUT}|{TO_FOLDER})"):
            write_one()
        (root / folder).unlink()
    assert list(theirs.iterdir()) == []


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
    for read in (lambda: kept.load("pack"), kept.list):
        with pytest.raises(ResultsError, match=OUT):
            read()
    kept.save("pack", b"state")
    kept.delete("other")
    assert kept.load("pack") == b"state"
    assert kept.list() == ["pack"]
    assert precious.read_bytes() == b"precious"


def test_the_results_folder_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "outer").symlink_to(tmp_path)
    rows = len(results.open(root).trials)
    for path in (tmp_path / "link", tmp_path / "outer" / "runs", tmp_path / "outer" / "link"):
        assert len(results.open(path).trials) == rows
        Store(path).compact()
    os.symlink("trials/synthetic", root / "unrelated")  # where no table is
    assert len(results.open(root).trials) == rows


def test_links_that_an_installation_has_made_are_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of packaged data: some installers link each file to a store."""
    monkeypatch.setitem(location.PACKAGED, "own", root)
    rows = len(results.open("own").trials)
    moved(min((root / "trials" / "synthetic").iterdir()), tmp_path / "store")
    assert len(results.open("own").trials) == rows


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
