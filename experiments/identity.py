"""What makes two trials the same training run, and two studies the same search.

A trial's id hashes what the numbers depend on: the workload (name, fields, code), optimizer,
schedule, technique, batch size, metaparameters as resolved, seed index, evaluation grid, precision.
Not in it: experiment name, pack, engine, device, layout, versions, ``keep``, budget, target.
``study_id`` is the same without point and seed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError
from experiments.factors.target_share import TargetShare
from experiments.optimizers import Optimizer
from experiments.schedules import Schedule
from experiments.schedules.base import WARMUP
from experiments.techniques import data_files
from workloads.user_code.data_files import fingerprint
from workloads.user_code.fingerprint import file_hash

VERSION = 1
"""Increased when trials of equal description train differently than before."""

_DIGITS = 20


def canonical(value: Any) -> str:
    """Canonical JSON: keys sorted, no spaces, floats in their shortest exact form.

    A whole float is written as the integer that it equals, so that ``1`` and ``1.0`` are the same
    value, as they are to every optimizer.

    Raises:
        ExperimentError: a number that is not finite, or what JSON has no form for.
    """
    return _ENCODER.encode(_plain(value))


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, TargetShare):
        return str(value)
    if type(value) is float:
        if not math.isfinite(value):
            raise ExperimentError(f"{value} cannot be part of a trial's identity")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):  # a number of numpy's
        return _plain(value.item())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _plain(float(value))
    raise ExperimentError(f"a {type(value).__name__} cannot be part of a trial's identity")


def digest(value: Any) -> str:
    """20 hexadecimal digits (80 bits) of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:_DIGITS]


def optimizer_identity(optimizer: Optimizer, base: str | None) -> dict[str, Any]:
    """The name of a registered optimizer; of a user's one the name without its folder, and the
    hash of its syntax tree and of those of the local modules that it imports."""
    return _file_identity(optimizer.name, base) or {"name": optimizer.name}


def schedule_identity(
    schedule: Schedule, base: str | None, given: Collection[str] = ()
) -> str | dict[str, str]:
    """As ``optimizer_identity``, for a schedule.

    Args:
        given: its arguments that are tuned, or not zero. Where a share of a decay comes after a
            warmup, that is said: such trials once decayed beyond the budget.
    """
    of_file = _file_identity(schedule.name, base)
    if schedule.decays_after_warmup and "decay" in given and {*WARMUP} & {*given}:
        return {**(of_file or {"name": schedule.name}), "decay": "after warmup"}
    return of_file or schedule.name


def technique_identity(technique: Mapping[str, Any], base: str | None) -> dict[str, Any]:
    """Names and arguments of packaged techniques; of a user's one also what
    ``optimizer_identity`` holds of its file. A file that a technique reads is a hash of its
    contents, wherever it is.

    Raises:
        WorkloadError: there is no such file.
    """
    described: dict[str, Any] = {}
    files = data_files(technique, base)
    for name, given in technique.items():
        arguments = given
        if files.get(name):
            hashes = {
                path: str(fingerprint([file], file.parent)) for path, file in files[name].items()
            }
            arguments = {"arguments": _replaced(given, hashes), "files": sorted(hashes.values())}
        file = _file_identity(name, base)
        if file is None:
            described[name] = arguments
        else:
            described[file["name"]] = {"arguments": arguments, "source": file["source"]}
    return described


def _replaced(value: Any, hashes: Mapping[str, str]) -> Any:
    """``value`` with hashes in the place of paths, at any depth."""
    if isinstance(value, str):
        return hashes.get(value, value)
    if isinstance(value, Mapping):
        return {name: _replaced(item, hashes) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(item, hashes) for item in value]
    return value


def _file_identity(spec: str, base: str | None) -> dict[str, str] | None:
    path, _, name = spec.rpartition(":")
    if not path:
        return None
    file = Path(base or ".") / Path(path).expanduser()
    return {"name": f"{file.name}:{name}", "source": file_hash(file)}


def study_identity(
    *,
    workload: Mapping[str, Any],
    optimizer: Mapping[str, Any],
    schedule: str | Mapping[str, Any],
    technique: Mapping[str, Any],
    batch_size: int,
    evaluation_ratio: float,
    repeat_data: bool = True,
    replicate: int = 0,
) -> dict[str, Any]:
    """The description of a study that the ids of studies and trials hash.

    Args:
        workload: ``workloads.identity`` of it, without the fields that are tuned.
        optimizer: ``optimizer_identity`` of it.
        schedule: ``schedule_identity`` of it.
        technique: ``technique_identity`` of it, with ``precision``.
        repeat_data: part of it only where data are not repeated.
        replicate: the number of a search that a design repeats; part of it only beyond the first.
    """
    rest = {name: value for name, value in technique.items() if name != "precision"}
    return {
        "identity": VERSION,
        "workload": dict(workload),
        "optimizer": dict(optimizer),
        "schedule": schedule if isinstance(schedule, str) else dict(schedule),
        "technique": rest,
        "precision": technique.get("precision", "float32"),
        "batch_size": batch_size,
        "evaluation": {"grid": "geometric", "ratio": evaluation_ratio},
        **({} if repeat_data else {"repeat_data": False}),
        **({"replicate": replicate} if replicate else {}),
    }


def study_id(study: Mapping[str, Any]) -> str:
    """The id of what ``study_identity`` describes."""
    return digest(study)


class TrialIds:
    """Ids of the points of one study.

    An id is the ``digest`` of the study's description with the keys ``metaparameters`` and
    ``seed_index`` added; what all trials share is brought into canonical form once.
    """

    def __init__(self, study: Mapping[str, Any]) -> None:
        texts = {key: canonical(value) for key, value in study.items()}
        names = sorted([*texts, *_TRIAL_KEYS])
        pieces = ",".join(f"{canonical(n)}:{texts.get(n, _HOLE)}" for n in names)
        self._pieces = f"{{{pieces}}}".split(_HOLE)

    def id(self, point: str, seed_index: tuple[int, int]) -> str:
        """The id of a point, trained with one seed.

        Args:
            point: the metaparameters in canonical form.
            seed_index: the experiment's seed, and how many trials of the very same point there are
                before this one (0 wherever a metaparameter is continuous).
        """
        head, middle, tail = self._pieces
        text = f"{head}{point}{middle}{canonical(seed_index)}{tail}"
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


_TRIAL_KEYS = ("metaparameters", "seed_index")
_HOLE = "\0"
"""A character that canonical JSON never contains, since it is escaped."""
