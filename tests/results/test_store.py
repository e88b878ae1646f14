"""The writer: what a commit puts on the disk, and what a crash or a bad disk leaves."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import results
from results.errors import ResultsError
from results.storage import location
from results.storage.location import Location
from results.store import Store


def _trial(name: str, **more: Any) -> dict[str, Any]:
    return {"trial": name, "study": "s", "status": "COMPLETE", **more}


def _point(name: str, step: int) -> dict[str, Any]:
    return {"trial": name, "step": step, "metrics": {"validation_error": 1 / step}}


def test_a_commit_is_one_file_a_table_and_no_other(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    store.commit("e", measurements=[_point("a", 1)], trials=[_trial("a")])
    files = sorted(path for path in (tmp_path / "runs").rglob("*/*") if path.is_file())
    assert [path.parent.relative_to(tmp_path / "runs").as_posix() for path in files] == [
        "measurements/e",
        "trials/e",
    ]
    assert files[0].name == files[1].name
    assert all(path.suffix == ".parquet" for path in files)


def test_ids_and_time_are_filled_in(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    run = store.commit("e", measurements=[_point("a", 1)], trials=[_trial("a")])
    opened = results.open(tmp_path / "runs")
    row = opened.trials.iloc[0]
    assert (row.experiment, row.run) == ("e", run)
    assert str(row.time.tz) == "UTC"
    assert opened.measurements.iloc[0][["experiment", "study", "run"]].tolist() == ["e", "s", run]


def test_a_commit_of_nothing_writes_nothing(tmp_path: Path) -> None:
    assert Store(tmp_path / "runs").commit("e", measurements=[], trials=[]) is None
    assert not list((tmp_path / "runs").rglob("*.parquet"))


def test_what_is_not_a_commit_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    with pytest.raises(ValueError, match="twice"):
        store.commit("e", measurements=[], trials=[_trial("a"), _trial("a")])
    with pytest.raises(ValueError, match="not committed: \\['b'\\]"):
        store.commit("e", measurements=[_point("b", 1)], trials=[_trial("a")])
    with pytest.raises(ResultsError, match="experiment 'a/b' cannot name a folder"):
        store.commit("a/b", measurements=[], trials=[_trial("a")])
    assert set(store.trials().trial) == set()


def test_trials_and_done(folder: Path) -> None:
    store = Store(folder)
    assert len(set(store.trials().trial)) == len(set(store.trials("synthetic").trial)) == 48
    assert set(store.trials("other").trial) == set()
    found = store.trials(columns=["trial", "steps_to_target"])
    assert list(found) == ["trial", "steps_to_target"]
    assert found.steps_to_target.min() == 8
    with pytest.raises(ResultsError, match="trials have no column 'steps'"):
        store.trials(columns=["steps"])


def test_polling_reads_each_file_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from results.storage import dataset as polling

    read: list[str] = []
    checked = polling.checked
    monkeypatch.setattr(polling, "checked", lambda *given: read.append(given[2]) or checked(*given))
    store = Store(folder)
    assert len(store.trials(columns=["trial"])) == 48
    assert len(read) == 12
    read.clear()
    store.commit("synthetic", measurements=[], trials=[_trial("new")])
    assert len(store.trials(columns=["trial"])) == 49
    assert len(read) == 1
    store.compact()
    assert len(store.trials(columns=["trial"])) == 49


@pytest.mark.parametrize("failing", [1, 2])
def test_a_crash_between_the_writes_commits_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    store = Store(folder)
    write = Location.write
    calls = 0

    def crash(self: Location, name: str, data: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise KeyboardInterrupt
        write(self, name, data)

    monkeypatch.setattr(Location, "write", crash)
    with pytest.raises(KeyboardInterrupt):
        store.commit("synthetic", measurements=[_point("new", 1)], trials=[_trial("new")])
    opened = results.open(folder)
    assert len(opened.trials) == 48
    assert "new" not in set(opened.measurements.trial)  # written, but nobody's


_LOOP = """
import sys
from results.store import Store
store = Store(sys.argv[1])
print("ready", flush=True)
n = 0
while True:
    trials = [{"trial": f"{n}-{i}", "study": "s"} for i in range(20)]
    points = [{"trial": t["trial"], "step": k} for t in trials for k in range(50)]
    store.commit("e", measurements=points, trials=trials)
    n += 1
"""


@pytest.mark.slow
def test_a_kill_leaves_whole_commits(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for wanted in (1, 3, 5):
        child = subprocess.Popen(
            [sys.executable, "-c", _LOOP, str(root)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        with child:
            assert child.stdout.readline() == "ready\n"
            while len(list(root.glob("trials/e/*.parquet"))) < wanted:
                pass
            child.send_signal(signal.SIGKILL)
        opened = results.open(root)
        assert len(opened.trials) % 20 == 0
        assert (opened.measurements.groupby("trial").size() == 50).all()
        assert set(opened.measurements.trial) == set(opened.trials.trial)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_refuses_is_one_line_and_no_harm(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(code, os.strerror(code))

    before = sorted(folder.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(location.os, "fsync", refuse)
        with pytest.raises(ResultsError, match=os.strerror(code)) as caught:
            Store(folder).commit("synthetic", measurements=[], trials=[_trial("new")])
    assert "\n" not in str(caught.value)
    assert "committed before is safe" in str(caught.value.hint)
    assert sorted(folder.rglob("*")) == before
    assert len(results.open(folder).trials) == 48


_FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from results.errors import ResultsError
from results.store import Store
try:
    Store(sys.argv[1]).commit("synthetic", measurements=[], trials=[{"trial": "new"}])
except ResultsError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="the system has no such limit")
def test_a_write_cut_off_by_the_system_leaves_no_half_file(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(folder)], capture_output=True, text=True, check=True
    )
    assert "cannot write" in done.stdout
    assert done.stdout.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(folder: Path) -> None:
    (folder / "trials" / "synthetic").chmod(0o500)
    with pytest.raises(ResultsError, match="Permission denied"):
        Store(folder).commit("synthetic", measurements=[], trials=[_trial("new")])
    (folder / "trials" / "synthetic").chmod(0o700)


def test_a_folder_of_somebody_else_is_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    for use in (Store, results.open):
        with pytest.raises(ResultsError, match="is not a results folder"):
            use(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ResultsError, match="is a file, not a results folder"):
        Store(tmp_path / "thesis.tex")


def test_a_folder_that_is_missing_or_empty_is_made_but_not_read(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="there is no such folder"):
        results.open(tmp_path / "none")
    with pytest.raises(ResultsError, match="is not a results folder"):
        results.open(tmp_path)
    Store(tmp_path)
    assert len(results.open(tmp_path).trials) == 0
