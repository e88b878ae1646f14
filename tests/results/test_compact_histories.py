"""Random histories of commits, supersessions, crashes and compactions, against a plain twin.

Whoever reads, ours or not, at whatever moment, misses no live row; in the end each is there once.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import results
from results.schema import SCHEMAS
from results.storage import location
from results.storage.compact import ORPHAN_SECONDS, compact
from results.storage.location import Location
from results.store import Store

TRIALS = [f"t{number}" for number in range(5)]
EXPERIMENTS = ["a", "b"]
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

Pairs = dict[str, str]


@dataclass(frozen=True)
class Commit:
    """Trials with a number of evaluations each, dated by hand: clocks of machines differ."""

    experiment: str
    evaluations: dict[str, int]
    second: int
    ending: str
    """``whole``; ``half``: its writer dies between the two files; ``slow``: a compaction runs
    there; ``asleep``: one that takes the measurements for a dead writer's."""


@dataclass(frozen=True)
class Plan:
    """A row of a study that was written before, perhaps."""

    experiment: str
    study: str
    second: int


@dataclass(frozen=True)
class Compaction:
    experiment: str | None
    cut: int | None
    """File operations after which it dies."""
    meanwhile: dict[int, Commit]
    """What is committed right before one of its file operations."""


@dataclass(frozen=True)
class Open:
    """Somebody opens the folder, and reads the measurements later."""


whole = st.builds(
    Commit,
    experiment=st.sampled_from(EXPERIMENTS),
    evaluations=st.dictionaries(st.sampled_from(TRIALS), st.integers(0, 3), min_size=1, max_size=3),
    second=st.integers(0, 4),
    ending=st.just("whole"),
)
endings = st.sampled_from(["whole"] * 5 + ["half", "slow", "asleep"])
commits = st.builds(lambda commit, ending: replace(commit, ending=ending), whole, endings)
compactions = st.builds(
    Compaction,
    experiment=st.sampled_from([None, None, "a", "b"]),
    cut=st.none() | st.integers(0, 12),
    meanwhile=st.dictionaries(st.integers(0, 8), whole, max_size=1),
)
plans = st.builds(
    Plan,
    experiment=st.sampled_from(EXPERIMENTS),
    study=st.sampled_from(["s", "r"]),
    second=st.integers(0, 4),
)
histories = st.lists(commits | commits | compactions | plans | st.builds(Open), max_size=9)


class CutError(Exception):
    """Stands for the end of a process."""


@dataclass
class Twin:
    """What was committed, in lists; and whoever has opened the folder."""

    root: Path
    rows: list[tuple[str, str]] = field(default_factory=list)
    """Trial and run, in the order of the commits: clocks differ, and decide nothing."""
    points: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    orphans: int = 0
    """Measurements of writers that died."""
    studies: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    readers: list[tuple[results.Results, Pairs]] = field(default_factory=list)

    @property
    def live(self) -> Pairs:
        return dict(self.rows)

    def committed(self, commit: Commit, run: str) -> None:
        for trial, evaluations in commit.evaluations.items():
            self.rows.append((trial, run))
            self.points[trial, run] = set(range(evaluations))

    def wanted(self) -> list[tuple[str, str, int]]:
        return sorted((t, r, step) for t, r in self.live.items() for step in self.points[t, r])

    def check(self) -> None:
        """Ours, and others that take the latest row of each trial, see what is live."""
        run = results.open(self.root)
        rows = run.trials
        assert dict(zip(rows.trial, rows.run, strict=True)) == self.live
        assert len(rows) == len(self.live)
        assert _keys(run.measurements) == self.wanted()
        every = _raw(self.root, "trials")
        last = every.sort_values("revision").drop_duplicates("trial", keep="last")
        assert dict(zip(last.trial, last.run, strict=True)) == self.live
        points = _raw(self.root, "measurements")
        assert set(_keys(points)) >= set(self.wanted())
        latest = {key: seconds[-1] for key, seconds in self.studies.items()}
        read = run.studies
        keys = zip(read.experiment, read.study, strict=True)
        assert dict(zip(keys, read.time, strict=True)) == {k: _at(s) for k, s in latest.items()}

    def check_readers(self) -> None:
        """Whoever opened it before gets all evaluations of each trial, by its row or a later."""
        for run, before in self.readers:
            evaluations: dict[tuple[str, str], set[int]] = {}
            for trial, commit, step in _keys(run.read_measurements()):
                assert (trial, commit, step) not in evaluations.get((trial, commit), set())
                evaluations.setdefault((trial, commit), set()).add(step)
            for trial, commit in before.items():
                seen = {pair: steps for pair, steps in evaluations.items() if pair[0] == trial}
                before_it = {
                    pair: self.points[pair] for pair in [(trial, commit)] if self.points[pair]
                }
                later = (trial, self.live[trial])
                now = {later: self.points[later]} if self.points[later] else {}
                assert seen in (before_it, now)

    def check_compacted(self) -> None:
        """Nobody needs to know which rows count."""
        every = _raw(self.root, "trials")
        assert sorted(zip(every.trial, every.run, strict=True)) == sorted(self.live.items())
        points = _raw(self.root, "measurements")
        assert len(points) == len(self.wanted()) + self.orphans
        assert set(_keys(points)) >= set(self.wanted())
        studies = _raw(self.root, "studies")
        assert sorted(zip(studies.experiment, studies.study, strict=True)) == sorted(self.studies)


def _at(second: int) -> datetime:
    return _BEGAN + timedelta(seconds=second)


def _raw(root: Path, table: str) -> Any:
    schema = SCHEMAS[table].remove_metadata()
    return ds.dataset(root / table, schema=schema, format="parquet").to_table().to_pandas()


def _keys(points: Any) -> list[tuple[str, str, int]]:
    return sorted(zip(points.trial, points.run, points.step, strict=True))


@contextmanager
def each_operation(call: Callable[[str], None]) -> Iterator[None]:
    """Call something before every file that is written or deleted."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "delete"):
            real = getattr(Location, name)

            def watched(self: Location, name: str, *data: Any, _real: Any = real) -> None:
                call(name)
                _real(self, name, *data)

            patch.setattr(Location, name, watched)
        yield


def apply(twin: Twin, commit: Commit) -> None:
    points = [
        {"trial": t, "step": step} for t, n in commit.evaluations.items() for step in range(n)
    ]
    rows = [{"trial": t, "study": "s", "time": _at(commit.second)} for t in commit.evaluations]
    store = Store(twin.root)

    def before(name: str) -> None:
        if not name.startswith("trials/") or done:
            return
        done.append(name)
        if commit.ending == "half":
            raise CutError
        if commit.ending == "asleep" and points:
            past = time.time() - ORPHAN_SECONDS - 60
            os.utime(twin.root / name.replace("trials/", "measurements/"), (past, past))
        if commit.ending != "whole":
            compact(Location(twin.root))

    done: list[str] = []
    with each_operation(before):
        try:
            run = store.commit(commit.experiment, measurements=points, trials=rows)
        except CutError:
            twin.orphans += len(points)
            return
    assert run is not None
    twin.committed(commit, run)


def run_compaction(twin: Twin, step: Compaction) -> None:
    count = 0
    busy = False

    def before(name: str) -> None:
        nonlocal count, busy
        if busy or name.startswith("claims/"):
            return
        busy = True
        twin.check()
        if count in step.meanwhile:
            apply(twin, step.meanwhile[count])
            twin.check()
        twin.check_readers()
        busy = False
        count += 1
        if step.cut is not None and count > step.cut:
            raise CutError

    with each_operation(before):
        try:
            compact(Location(twin.root), step.experiment)
        except CutError:
            for path in (twin.root / "claims").glob("*.json"):
                path.unlink()  # its process is gone


def play(history: list[Any]) -> None:
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=draw.getrandbits(128)))
        patch.setattr(location.os, "fsync", lambda _: None)  # no power is cut here
        twin = Twin(Path(folder) / "runs")
        store = Store(twin.root)
        for step in history:
            if isinstance(step, Commit):
                apply(twin, step)
            elif isinstance(step, Plan):
                row = {"experiment": step.experiment, "study": step.study}
                store.add_studies([{**row, "time": _at(step.second)}])
                twin.studies.setdefault((step.experiment, step.study), []).append(step.second)
            elif isinstance(step, Open):
                run = results.open(twin.root)
                rows = run.trial_rows.to_pylist()
                twin.readers.append((run, {row["trial"]: row["run"] for row in rows}))
            else:
                run_compaction(twin, step)
            twin.check()
        run_compaction(twin, Compaction(None, None, {}))
        twin.check()
        twin.check_readers()
        twin.check_compacted()
        before = {path: path.stat().st_mtime_ns for path in twin.root.rglob("*.parquet")}
        compact(Location(twin.root))
        assert {p: p.stat().st_mtime_ns for p in twin.root.rglob("*.parquet")} == before


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_random_histories(history: list[Any]) -> None:
    play(history)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 5, 8, 11])
def test_cut_off_after_any_file(cut: int) -> None:
    """Two experiments, one of which supersedes trials of the other, and of its own."""
    play(
        [
            Commit("a", {"t0": 3, "t1": 2, "t2": 1}, 0, "whole"),
            Open(),
            Plan("a", "s", 0),
            Commit("a", {"t0": 2, "t3": 1}, 1, "whole"),
            Commit("b", {"t1": 1, "t3": 3}, 2, "whole"),
            Commit("b", {"t4": 2}, 2, "half"),
            Plan("a", "s", 1),
            Open(),
            Compaction("b", cut, {cut // 2: Commit("a", {"t2": 3, "t4": 1}, 3, "whole")}),
            Compaction(None, cut, {}),
        ]
    )
