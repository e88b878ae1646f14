"""The files that a worker keeps of trials that have not ended: a pack's snapshot, a paused trial.

Both are read strictly: a file of another version, another program, or other settings of the study
is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Any

from experiments.encoding import MalformedError, decode, encode, from_fields, to_fields
from experiments.plan import Measurement, Study
from experiments.scheduling.messages import Assignment, SnapshotHeader
from experiments.scheduling.packs import pack_id
from results.run_state.checkpoints import Checkpoints
from results.run_state.claims import Claims
from results.store import Store

FORMAT = 2
"""Format of a snapshot, in its first line. The first format was pickled, and is not read."""

_WRITTEN_SECONDS = 10.0
"""Seconds in which a driver, which has no claim, writes the snapshots of a divided pack."""

Points = Mapping[str, Sequence[Measurement]]


def settings_hash(study: Study) -> str:
    """Hash of everything in a study that decides its training, except for place and layout."""
    content = asdict(study)
    # A stopped pack continues with the ``keep`` that applies then.
    searching = ("trials", "keep", "search", "identity", "baseline")
    names = ("experiment", "layout", "engine", "estimator", "evaluate")
    labels = ("optimizer_name", "schedule_name")
    for name in (*searching, *names, *labels):
        del content[name]
    # The study's id holds the code; the path differs for a staged copy.
    content["schedule"] = PurePosixPath(study.schedule).name
    content["technique"] = {PurePosixPath(n).name: v for n, v in study.technique.items()}
    del content["workload"]["base"]  # a staged copy has another path
    del content["workload"]["spec"]
    del content["workload"]["data_fingerprint"]  # in the study's id too
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def resumable(store: Store, studies: Sequence[Study]) -> list[SnapshotHeader]:
    """The snapshots that can be continued from. Those of other settings are deleted."""
    checkpoints = Checkpoints(store.location)
    settings = {study.id: settings_hash(study) for study in studies}
    headers = []
    for pack in checkpoints.list():
        snapshot = unpack_snapshot(checkpoints.load(pack))
        # A header that names another pack than its file could have that one deleted.
        if snapshot is None or snapshot[0].pack != pack or snapshot[0].study not in settings:
            continue
        if snapshot[0].settings == settings[snapshot[0].study]:
            headers.append(snapshot[0])
        else:
            checkpoints.delete(pack)
    return headers


def forget(store: Store, studies: Sequence[Study]) -> None:
    """Delete the snapshots and the paused trials of studies that are complete, and what a killed
    worker has begun to write of them."""
    checkpoints = Checkpoints(store.location)
    claims = Claims(store.location)
    old = claims.now() - _WRITTEN_SECONDS
    checkpoints.drop_all((study.id for study in studies), old)
    begun = checkpoints.unfinished(old)
    # Read after the files: a worker that writes one has its claim before.
    claimed = {claim["pack"] for claim in claims.live()} if begun else set()
    complete = {study.id for study in studies}
    for name, data in begun.items():
        snapshot = unpack_snapshot(data)
        if snapshot and snapshot[0].study in complete and snapshot[0].pack not in claimed:
            checkpoints.drop_unfinished(name)
    for header in resumable(store, studies):
        checkpoints.delete(header.pack)


def divide(
    checkpoints: Checkpoints, pack: str, trials: Sequence[str], groups: Mapping[str, Sequence[str]]
) -> list[SnapshotHeader]:
    """Make of a pack's snapshot one for each group of its ``trials``, by the ids of their packs.

    Trials that are in no group, as those that have ended, are left out. Returns the new headers;
    none where there is no snapshot of that pack.
    """
    snapshot = unpack_snapshot(checkpoints.load(pack))
    if snapshot is None or snapshot[0].trials != tuple(trials[: len(snapshot[0].trials)]):
        return []
    header, body = snapshot
    headers = [
        replace(header, pack=name, trials=tuple(trials), active=tuple(active))
        for name, active in groups.items()
    ]
    for each in headers:
        checkpoints.save(each.pack, pack_snapshot(each, body))
    if pack not in groups:
        checkpoints.delete(pack)
    return headers


def leave_to_next_run(
    checkpoints: Checkpoints, assignment: Assignment, culprit: str | None
) -> None:
    """Leave the trials of a pack that ended the program to the next run: all but the ``culprit``,
    or in halves where it is not known.

    They go on from the pack's snapshot or, where there is none, begin anew, from headers alone. The
    culprit leaves a header without active trials, by which the next runs know it
    (``passed_over``).
    """
    study, trials = assignment.pack.study, [trial.id for trial in assignment.pack.trials]
    left = [trial for trial in trials if trial in assignment.wanted and trial != culprit]
    half = (len(left) + 1) // 2
    parts = [left] if culprit else [left[:half], left[half:]]
    groups = {pack_id(study.id, part): part for part in parts if part}
    divided = divide(checkpoints, assignment.pack.id, trials, groups)
    stateless = {} if divided else {pack: (part, part) for pack, part in groups.items()}
    if culprit is not None:
        stateless[pack_id(study.id, [culprit])] = [culprit], []
    for pack, (part, active) in stateless.items():
        header = assignment.without_state(pack, part, active, settings_hash(study))
        checkpoints.save(pack, pack_snapshot(header, b""))


def passed_over(store: Store, studies: Sequence[Study]) -> set[str]:
    """The trials that have ended a program: recorded as failed, and not tried again before the
    sweep is complete, or else each run would end with the first of them."""
    headers = resumable(store, studies)
    return {trial for header in headers if not header.active for trial in header.trials}


def pack_snapshot(header: SnapshotHeader, body: bytes) -> bytes:
    """A line of JSON, then the body."""
    return json.dumps({"format": FORMAT, **to_fields(header)}).encode() + b"\n" + body


def unpack_snapshot(data: bytes | None) -> tuple[SnapshotHeader, bytes] | None:
    """The header and the body; ``None`` if it is not a snapshot of this format, or none at all."""
    line, _, body = (data or b"").partition(b"\n")
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        return None
    lists = {key: tuple(each) for key, each in content.items() if isinstance(each, list)}
    try:
        return from_fields(SnapshotHeader, {**content, **lists}), body
    except MalformedError:
        return None


def encode_body(training: bytes, points: Points) -> bytes:
    """The trainer's own part of a snapshot, and what was measured of the trials in it."""
    plain = {trial: [to_fields(point) for point in each] for trial, each in points.items()}
    return encode({"training": training, "points": plain})


def decode_body(data: bytes) -> tuple[bytes, dict[str, list[Measurement]]]:
    """
    Raises:
        MalformedError: ``encode_body`` did not write it.
    """
    training, points = _values(data, training=bytes, points=dict)
    if any(type(trial) is not str for trial in points):
        raise MalformedError("not the ids of trials")
    return training, {trial: _points(each) for trial, each in points.items()}


def encode_trial(
    settings: str, engine: str, training: bytes, points: Sequence[Measurement]
) -> bytes:
    """A paused trial: under which settings, by which engine, the trainer's own part, and what was
    measured."""
    plain = [to_fields(point) for point in points]
    return encode({"settings": settings, "engine": engine, "training": training, "points": plain})


def decode_trial(data: bytes, settings: str, engine: str) -> tuple[bytes, list[Measurement]] | None:
    """The trainer's part and the measurements; ``None`` if it is not such a trial, or is of other
    settings or another engine."""
    try:
        *origin, training, points = _values(
            data, settings=str, engine=str, training=bytes, points=list
        )
        return (training, _points(points)) if origin == [settings, engine] else None
    except MalformedError:
        return None


def _values(data: bytes, **kinds: type) -> list[Any]:
    """The values of a mapping of these keys, each of exactly that type."""
    content = decode(data)
    if type(content) is not dict or {key: type(each) for key, each in content.items()} != kinds:
        raise MalformedError(f"not {', '.join(kinds)}")
    return [content[key] for key in kinds]


def _points(content: Any) -> list[Measurement]:
    if type(content) is not list:
        raise MalformedError("not measurements")
    return [from_fields(Measurement, each) for each in content]
