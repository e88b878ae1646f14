"""What a worker keeps on disk of trials that have not ended: a pack's snapshot, a paused trial.

Both are read again by whoever goes on with them, strictly: what another version wrote, or nobody of
ours, is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from experiments.encoding import MalformedError, decode, encode, from_fields, to_fields
from experiments.plan import Measurement

FORMAT = 2
"""Of a snapshot. Its first line says so; the first format was pickled, and is not read."""

Points = Mapping[str, Sequence[Measurement]]


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a snapshot tells of itself in its first line, without being decoded."""

    pack: str
    study: str
    settings: str
    """Hash of the study as it was: another budget or target, another pack."""
    trials: tuple[str, ...]
    """All trials of the pack, in order."""
    active: tuple[str, ...]
    """Those still training."""
    engine: Literal["module", "stacked"]
    round: int


def pack_snapshot(header: Header, body: bytes) -> bytes:
    """A line of JSON, then the body."""
    return json.dumps({"format": FORMAT, **to_fields(header)}).encode() + b"\n" + body


def unpack_snapshot(data: bytes) -> tuple[Header, bytes] | None:
    """The header and the body; ``None`` for what is no snapshot of this format."""
    line, _, body = data.partition(b"\n")
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        return None
    lists = {key: tuple(each) for key, each in content.items() if isinstance(each, list)}
    try:
        return from_fields(Header, {**content, **lists}), body
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
    content = _mapping(decode(data), "training", "points")
    training, points = content["training"], content["points"]
    if type(training) is not bytes or type(points) is not dict:
        raise MalformedError("not the body of a snapshot")
    return training, {_text(trial): _points(each) for trial, each in points.items()}


def encode_trial(
    settings: str, engine: str, training: bytes, points: Sequence[Measurement]
) -> bytes:
    """A paused trial: under which settings, by which engine, the trainer's own part, and what was
    measured."""
    plain = [to_fields(point) for point in points]
    return encode({"settings": settings, "engine": engine, "training": training, "points": plain})


def decode_trial(data: bytes, settings: str, engine: str) -> tuple[bytes, list[Measurement]] | None:
    """The trainer's part and the measurements; ``None`` for what these settings and this engine
    have no use for, or is no such trial."""
    try:
        content = _mapping(decode(data), "settings", "engine", "training", "points")
        points = _points(content["points"])
    except MalformedError:
        return None
    if (content["settings"], content["engine"]) != (settings, engine):
        return None
    training = content["training"]
    return (training, points) if type(training) is bytes else None


def _mapping(content: Any, *keys: str) -> dict[str, Any]:
    if type(content) is not dict or content.keys() != set(keys):
        raise MalformedError(f"not {', '.join(keys)}")
    return content


def _points(content: Any) -> list[Measurement]:
    if type(content) is not list:
        raise MalformedError("not measurements")
    return [from_fields(Measurement, each) for each in content]


def _text(content: Any) -> str:
    if type(content) is not str:
        raise MalformedError("not the id of a trial")
    return content
