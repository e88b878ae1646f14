"""Snapshots and paused trials, as somebody else may have written them: nothing in them is run, what
they name is not touched, and the sweep goes on."""

from __future__ import annotations

import json
import os
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import results as dataset
from experiments.config.compile import Experiment
from experiments.encoding import decode, encode
from experiments.execution.ledger import Ledger
from experiments.execution.sweep import sweep
from experiments.execution.worker import Pace, run_pack
from experiments.plan import Pack
from experiments.records import snapshots
from experiments.records.snapshots import settings_hash
from experiments.training.pack_training import Training
from results.run_state.checkpoints import Checkpoints
from results.run_state.claims import Claims
from results.store import Store
from tests import problems
from tests.experiments.fakes import FakeTraining
from tests.experiments.test_paused_trials import (
    assignment,
    coarse,
    ends,
    files,
    later,
    looks,
    run,
    some_of,
)
from tests.experiments.test_sweep import experiment
from tests.experiments.test_worker import Line

QUICK = Pace(ask=0.01, renew=0.02, commit=0.0, snapshot=0.0)

pytestmark = pytest.mark.usefixtures("one_thread")


class Crafted:
    """What makes a folder where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def test_the_crafted_files_do_something_where_they_are_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Crafted(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


# Whole sweeps over a folder in which files lie for all packs and trials


def fake() -> Experiment:
    """Trials that an early round sets aside go on in a later one."""
    return experiment(batch_size="64", trials=40, keep=6, method="random")


def best(root: Path) -> tuple[list[str], list[float]]:
    """The trials, and the steps to target that stay exact whatever packs there are."""
    trials = dataset.open(root).trials
    return sorted(trials["trial"]), sorted(trials["steps_to_target"].dropna())[:6]


class Remembering(FakeTraining):
    """Keeps what is read, to be asked about."""

    packs: dict[str, Pack]
    resumed: list[str]

    def __init__(self, pack: Pack, **how: Any) -> None:
        self.packs.setdefault(pack.id, pack)
        self.resumed += [pack.id] if how["snapshot"] is not None else []
        super().__init__(pack, **how)

    def resume(self, held: Any) -> set[str]:
        self.resumed += held
        return super().resume(held)


def remembering() -> type[Remembering]:
    return type("Remembering", (Remembering,), {"packs": {}, "resumed": []})


HOW: dict[str, Any] = {"address": "none", "pack_size": 8}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["the first format", "this format", "nothing at all"])
def test_a_sweep_goes_on_over_crafted_files(tmp_path: Path, kind: str) -> None:
    first = remembering()
    sweep(fake(), results=tmp_path / "whole", trainer=first, **HOW)
    assert first.resumed  # trials of an early round go on in a later one
    crafted = pickle.dumps(Crafted(tmp_path / "ran"))
    kept = Checkpoints(Store(tmp_path / "runs").location)
    for pack in first.packs.values():
        header = {
            "pack": pack.id,
            "study": pack.study.id,
            "settings": settings_hash(pack.study),
            "trials": [trial.id for trial in pack.trials],
            "active": [trial.id for trial in pack.trials],
            "engine": "module",
            "round": 0,
            **({} if kind == "the first format" else {"format": snapshots.FORMAT}),
        }
        line = b"" if kind == "nothing at all" else json.dumps(header).encode() + b"\n"
        kept.save(pack.id, line + crafted)
        for trial in pack.trials:
            kept.keep_paused(pack.study.id, {trial.id: crafted})
    second = remembering()
    did = sweep(fake(), results=tmp_path / "runs", trainer=second, **HOW)
    assert did.complete
    assert not (tmp_path / "ran").exists()
    assert best(tmp_path / "runs") == best(tmp_path / "whole")
    # What this run itself paused was written over what lay there, and went on.
    assert second.resumed


# One pack of the real training, stopped in its middle


class StopsAfter(Training):
    line: Line

    def run(self, *_: Any) -> Any:
        for number, events in enumerate(super().run(lambda: self.line.stop)):
            yield events
            if number >= 12:
                self.line.stop = True


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Any, Path]:
    """A assignment of which a snapshot is left, and the results folder."""
    of = problems.study(budget_steps=60, keep=None, target="validation_error < 0.01")
    pack_job = assignment(of, problems.trials(of, 4))
    line = Line()
    trainer = type("Stops", (StopsAfter,), {"line": line})
    how: dict[str, Any] = {"trainer": trainer, "pace": QUICK}
    end = run_pack(pack_job, Ledger(str(tmp_path / "runs")), line.channel, **how)
    assert end.end == "stopped"
    return replace(pack_job, before={}), tmp_path / "runs"


def smaller(trial: dict[str, Any]) -> dict[str, Any]:
    """A trial in training, but of a smaller model."""
    weights = {name: value[:1] for name, value in trial["state"]["model"].items()}
    return {**trial, "state": {**trial["state"], "model": weights}}


def without_progress(trial: dict[str, Any]) -> dict[str, Any]:
    return {**trial, "progress": {}}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "training", "progress", "engine", "body", "state"])
def test_a_pack_goes_on_over_a_crafted_snapshot(
    stopped: tuple[Any, Path], tmp_path: Path, kind: str
) -> None:
    pack_job, root = stopped
    kept = Checkpoints(root)
    header, body = snapshots.unpack_snapshot(kept.load("pack") or b"") or pytest.fail("no snapshot")
    crafted = pickle.dumps(Crafted(tmp_path / "ran"))
    training, points = snapshots.decode_body(body)
    content = decode(training)
    bodies = {
        "whole": body,
        "body": crafted,
        "training": snapshots.encode_body(crafted, points),
        "engine": snapshots.encode_body(encode({**content, "engine": "stacked"}), points),
    }
    for name, changed in {"state": smaller, "progress": without_progress}.items():
        trials = [(trial, changed(each)) for trial, each in content["trials"]]
        bodies[name] = snapshots.encode_body(encode({**content, "trials": trials}), points)
    kept.save("pack", snapshots.pack_snapshot(header, bodies[kind]))
    began: list[int] = []

    class Watched(Training):
        def run(self, *given: Any) -> Any:
            began.append(self.step)
            yield from super().run(*given)

    run(pack_job, root, trainer=Watched)
    assert not (tmp_path / "ran").exists()
    assert (began[0] > 0) == (kind == "whole")
    run(pack_job, tmp_path / "whole")
    assert ends(root) == ends(tmp_path / "whole")
    assert looks(root).equals(looks(tmp_path / "whole"))
    assert kept.list() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "lost", "training", "state", "all", "engine"])
def test_a_round_goes_on_over_crafted_trials(tmp_path: Path, kind: str) -> None:
    """With the rows of trials that never stopped; whole ones go on, others begin again."""
    of = coarse()
    drawn = some_of(of, 6)
    root = tmp_path / "runs"
    run(assignment(replace(of, keep=1), drawn), root)
    left, runs = later(root, drawn)
    kept = Checkpoints(root)
    crafted = pickle.dumps(Crafted(tmp_path / "ran"))
    settings = settings_hash(of)
    assert left
    for trial in left:
        data = kept.paused(of.id, [trial.id]).get(trial.id) or pytest.fail("not kept")
        training, points = snapshots.decode_trial(data, settings, "module") or pytest.fail(
            "not read"
        )
        other = encode(smaller(decode(training)))
        forms = {
            "whole": data,
            "all": crafted,
            "training": snapshots.encode_trial(settings, "module", crafted, points),
            "state": snapshots.encode_trial(settings, "module", other, points),
            "engine": encode({**decode(data), "engine": 1}),
        }
        if kind == "lost":
            (root / "checkpoints" / f"{of.id},{trial.id}.trial").unlink()
        else:
            kept.keep_paused(of.id, {trial.id: forms[kind]})
    resumed: list[str] = []

    class Watched(Training):
        def resume(self, held: Any) -> set[str]:
            gone_on = super().resume(held)
            resumed.extend(gone_on)
            return gone_on

    run(assignment(of, left, runs), root, trainer=Watched)
    assert not (tmp_path / "ran").exists()
    assert sorted(resumed) == (sorted(t.id for t in left) if kind == "whole" else [])
    assert files(root) == []
    run(assignment(of, drawn, {}), tmp_path / "whole")
    assert looks(root).equals(looks(tmp_path / "whole"))
    assert ends(root) == ends(tmp_path / "whole")


# What a snapshot names


def test_a_snapshot_that_names_another_pack_deletes_nothing(
    stopped: tuple[Any, Path], tmp_path: Path
) -> None:
    pack_job, root = stopped
    kept = Checkpoints(root)
    header, body = snapshots.unpack_snapshot(kept.load("pack") or b"") or pytest.fail("no snapshot")
    outside = tmp_path / "precious.snapshot"
    outside.write_bytes(b"precious")
    study = pack_job.pack.study
    other = replace(study, budget_steps=1)  # its snapshots are of other settings, and deleted
    for name in ("another", "../../precious", "/etc/passwd", "a/b", ""):
        kept.save("crafted", snapshots.pack_snapshot(replace(header, pack=name), body))
        store = Ledger(str(root)).store
        assert [header.pack for header in snapshots.resumable(store, [study])] == ["pack"]
        snapshots.forget(store, [other])
        assert "crafted" in kept.list()
        kept.save("pack", snapshots.pack_snapshot(header, body))
    assert outside.read_bytes() == b"precious"


MALFORMED: list[dict[str, Any]] = [
    {"pack": 1},
    {"study": None},
    {"trials": "abc"},
    {"trials": [1]},
    {"active": None},
    {"engine": "auto"},
    {"engine": ["module"]},
    {"round": "0"},
    {"round": float("nan")},
    {"more": 1},
    {"format": 1},
    {"format": None},
    {"format": [2]},
]


def test_a_malformed_header_is_none(stopped: tuple[Any, Path]) -> None:
    _, root = stopped
    data = Checkpoints(root).load("pack") or b""
    line, _, body = data.partition(b"\n")
    assert snapshots.unpack_snapshot(data)
    for change in MALFORMED:
        header = json.dumps({**json.loads(line), **change}).encode()
        assert snapshots.unpack_snapshot(header + b"\n" + body) is None, change
    for wrong in (b"", b"\n", b"[" * 100_000, b"1\n", b"null\n", line[:-1], b"\xff\xfe\n", body):
        assert snapshots.unpack_snapshot(wrong) is None


def test_files_of_other_names_are_passed_over(stopped: tuple[Any, Path]) -> None:
    pack_job, root = stopped
    folder = root / "checkpoints"
    data = (folder / "pack.snapshot").read_bytes()
    (folder / "inner").mkdir()
    strange = ["a b.snapshot", "-x.snapshot", "inner/x.snapshot", "inner/s,t.trial"]
    strange += [f"{pack_job.pack.study.id},a b.trial", f"{pack_job.pack.study.id},..trial"]
    for name in strange:
        (folder / name).write_bytes(data)
    store = Ledger(str(root)).store
    assert Checkpoints(root).list() == ["pack"]
    assert [header.pack for header in snapshots.resumable(store, [pack_job.pack.study])] == ["pack"]
    snapshots.forget(store, [pack_job.pack.study])
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.*")) == sorted(strange)


def test_what_a_killed_worker_has_begun_to_write_is_deleted_with_the_snapshots(
    stopped: tuple[Any, Path],
) -> None:
    pack_job, root = stopped
    folder, study = root / "checkpoints", pack_job.pack.study
    data = (folder / "pack.snapshot").read_bytes()
    header, body = snapshots.unpack_snapshot(data) or pytest.fail("no snapshot")
    line = data.partition(b"\n")[0]
    of_another = snapshots.pack_snapshot(replace(header, study="another"), body)
    claimed = snapshots.pack_snapshot(replace(header, pack="claimed"), body)
    contents = {
        ".pack.snapshot.0123abcd.tmp": data[: len(line) + 10],
        ".pack.snapshot.without-a-header.tmp": line[:-1],
        ".another.snapshot.0123abcd.tmp": of_another,
        ".claimed.snapshot.0123abcd.tmp": claimed,
        ".new.snapshot.0123abcd.tmp": data,
        f".{study.id},trial.trial.0123abcd.tmp": data[:10],
        f".{study.id},new.trial.0123abcd.tmp": data[:10],
        ".another,trial.trial.0123abcd.tmp": data[:10],
        f".{study.id},-x.trial.0123abcd.tmp": data[:10],
        ".other.0123abcd.tmp": data,
        "pack.snapshot.0123abcd.tmp": data,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        if "new" not in name:
            os.utime(folder / name, (time.time() - 60,) * 2)
    store = Ledger(str(root)).store
    claim = Claims(root).take("claimed", [])
    snapshots.forget(store, [study])
    left = {file.name for file in folder.iterdir()}
    of_trial = f".{study.id},trial.trial.0123abcd.tmp"
    assert left == contents.keys() - {".pack.snapshot.0123abcd.tmp", of_trial}
    assert claim is not None
    claim.release()
    snapshots.forget(store, [study])
    assert left - {file.name for file in folder.iterdir()} == {".claimed.snapshot.0123abcd.tmp"}
