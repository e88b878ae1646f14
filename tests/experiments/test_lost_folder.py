"""A results folder that disappears while a sweep runs: nothing is said to be recorded that is not.

The folder is moved away, or an empty one, or another dataset, comes into its place, as where a
mount is lost.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import results as dataset
from experiments.errors import ExperimentError
from experiments.execution.sweep import sweep
from experiments.execution.worker import Pace
from results.errors import DatasetLostError, ResultsError
from results.run_state import mark
from results.run_state.claims import Claims
from results.storage import local, location, whole_file
from results.storage.location import Location
from results.storage.objects import ObjectStore
from results.store import Store
from tests.experiments.fakes import FakeTraining
from tests.experiments.test_sweep import experiment, table
from tests.results.conftest import bucket as bucket

OF: dict[str, Any] = {"keep": "off", "batch_size": "64, 128", "trials": 8}
GONE = "is gone: moved, deleted, or its mount is lost"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of this machine."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(mark.tempfile, "tempdir", str(folder))
    return folder


def mount_is_lost(root: Path) -> None:
    root.rename(root.with_name("moved"))
    root.mkdir()


def is_moved(root: Path) -> None:
    root.rename(root.with_name("moved"))


def is_replaced(root: Path) -> None:
    root.rename(root.with_name("moved"))
    Store(root)


def losing(root: Path, lose: Any, at: int) -> type[FakeTraining]:
    """A trainer at whose evaluation ``at``, counted over all packs, the folder is lost."""
    seen = [0]

    class Losing(FakeTraining):
        def run(self, *given: Any) -> Any:
            for events in super().run(*given):
                seen[0] += 1
                if seen[0] == at:
                    lose(root)
                yield events

    return Losing


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("lose", [is_moved, mount_is_lost, is_replaced])
@pytest.mark.parametrize(("at", "keep"), [(3, "off"), (40, "off"), (12, 2)])
def test_the_sweep_stops_and_keeps_what_it_holds(
    tmp_path: Path, temporary: Path, lose: Any, at: int, keep: Any
) -> None:
    whole, root = tmp_path / "whole", tmp_path / "runs"
    of = experiment(**{**OF, "keep": keep, "trials": 8 if keep == "off" else 40})
    sweep(of, results=whole, address="none", trainer=FakeTraining)
    said = "is another results folder than before" if lose is is_replaced else GONE
    with pytest.raises(ExperimentError, match=said) as caught:
        sweep(of, results=root, address="none", trainer=losing(root, lose, at))
    message, hint = str(caught.value), str(caught.value.hint)
    assert hint.startswith("put it back (move it, mount it), then")
    left = files(root) if root.exists() else []
    assert left == (["dataset.json"] if lose is is_replaced else [])
    moved = root.with_name("moved")
    before = len(dataset.open(moved).trials)
    (spool,) = temporary.iterdir()
    assert str(spool) in message
    assert f"cp -r {spool}/. {root}/" in hint
    assert spool.stat().st_mode & 0o077 == 0

    shutil.rmtree(root, ignore_errors=True)
    moved.rename(root)
    shutil.rmtree(root / "claims")  # free once their process has ended, but this one lives on
    shutil.copytree(spool, root, dirs_exist_ok=True)
    kept = len(dataset.open(root).trials)
    assert kept > before
    did = sweep(of, results=root, address="none", trainer=FakeTraining)
    assert did.complete
    if keep == "off":
        assert did.trained == did.trials - kept
    columns = ["trial", "status", "steps_to_target", "steps_run"]
    if keep == "off":
        assert table(root)[columns].equals(table(whole)[columns])
    best = [table(each).groupby("study").steps_to_target.nsmallest(2) for each in (root, whole)]
    assert best[0].tolist() == best[1].tolist()
    points = dataset.open(root).measurements
    assert not points.duplicated(["trial", "step"]).any()
    if keep == "off":
        assert len(points) == len(dataset.open(whole).measurements)


def test_where_nothing_had_ended_the_claim_finds_out(tmp_path: Path, temporary: Path) -> None:
    root = tmp_path / "runs"

    class Waits(losing(root, is_moved, 1)):  # type: ignore[misc]
        def run(self, should_stop: Any = lambda: False) -> Any:
            for events in super().run(should_stop):
                yield events
                while not root.exists() and not should_stop():
                    pass

    pace = Pace(ask=0.01, renew=0.01)
    with pytest.raises(ExperimentError, match=GONE):
        sweep(experiment(**OF), results=root, address="none", trainer=Waits, pace=pace)
    assert not root.exists()
    assert not list(temporary.iterdir())


def test_nothing_is_written_or_read_in_its_place(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    store = Store(root)
    is_moved(root)
    for use in (
        lambda: store.add_studies([{"experiment": "e", "study": "s"}]),
        lambda: store.trials(columns=["trial"]),
        lambda: store.location.write("checkpoints/p.snapshot", b""),
        lambda: store.location.make("claims"),
        lambda: Store(store.location),
        lambda: Store(pickle.loads(pickle.dumps(store.location))),
    ):
        with pytest.raises(DatasetLostError, match=GONE):
            use()
    assert not root.exists()
    assert Store(root).location.dataset != store.location.dataset  # a new one, of a new run


@pytest.mark.parametrize(
    ("module", "function", "first"),
    [
        (local, "write_file", True),
        (whole_file, "make_folder", True),
        (whole_file, "make_folder", False),
        (location, "make_folder", True),
        (location, "make_folder", False),
    ],
)
def test_that_it_goes_in_the_middle_of_a_write_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, function: str, first: bool
) -> None:
    """After the mark was read, and before the file is there; or its lock, or its claim."""
    root = tmp_path / "runs"
    store = Store(root)
    uses: dict[Any, Callable[[], object]] = {
        location: lambda: Claims(store.location).take("p", ["t"], info={}),
        local: lambda: store.location.write("checkpoints/p.snapshot", b""),
    }
    real = getattr(module, function)

    def losing(*given: Any) -> None:
        if first and root.exists():
            is_moved(root)
        real(*given)
        if root.exists():
            is_moved(root)

    monkeypatch.setattr(module, function, losing)
    with pytest.raises(DatasetLostError, match=GONE):
        uses.get(module, uses[local])()
    assert not root.exists()


def test_the_mark_is_written_once_and_older_folders_get_one(tmp_path: Path) -> None:
    first = Store(tmp_path / "runs").location.dataset
    assert Store(tmp_path / "runs").location.dataset == first
    (tmp_path / "runs" / "dataset.json").unlink()
    assert Store(tmp_path / "runs").location.dataset not in (None, first)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"id": 7}', b"\xff"])
def test_a_mark_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(mark, "_PAUSE", 0)
    Store(tmp_path / "runs")
    (tmp_path / "runs" / "dataset.json").write_bytes(content)
    with pytest.raises(ResultsError, match=r"dataset\.json does not name a dataset"):
        Store(tmp_path / "runs")


def test_a_spool_of_another_user_is_not_used(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    is_moved(tmp_path / "runs")
    spool = Path(mark.spool(str(store.location.dataset)))
    spool.rmdir()
    spool.symlink_to(theirs)
    row = {"trial": "t", "study": "s", "experiment": "e"}
    with pytest.raises(ResultsError, match="belongs to another user"):
        store.commit("e", measurements=[], trials=[row])
    assert not list(theirs.iterdir())


def test_an_object_store_has_a_mark_too(bucket: Location) -> None:
    store = Store(bucket)
    assert isinstance(bucket.store, ObjectStore)
    again = Location(bucket.path, bucket.filesystem, bucket.store)
    assert Store(again).location.dataset == bucket.dataset
    bucket.delete("dataset.json")
    with pytest.raises(DatasetLostError, match=GONE):
        store.commit("e", measurements=[], trials=[{"trial": "t", "study": "s"}])
