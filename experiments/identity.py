"""What makes two trials the same training run, and two studies the same search.

A trial's id hashes what the numbers depend on: the workload (name, fields, code), optimizer,
schedule, technique, batch size, metaparameters as resolved, seed index, evaluation grid, precision.
Not in it: experiment name, pack, engine, device, layout, versions, ``keep``, budget, target.
``study_id`` is the same without point and seed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from experiments.canonical import digest
from experiments.optimizers import Optimizer
from experiments.schedules import Schedule
from experiments.schedules.base import WARMUP
from experiments.techniques import data_files
from workloads.user_code.data_files import fingerprint
from workloads.user_code.fingerprint import file_hash

VERSION = 1
"""Increased when trials of equal description train differently than before."""


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
    evaluation_ratio: float | None,
    repeat_data: bool = True,
    replicate: int = 0,
) -> dict[str, Any]:
    """The description of a study that the ids of studies and trials hash.

    Args:
        workload: ``workloads.identity`` of it, without the fields that are tuned.
        optimizer: ``optimizer_identity`` of it.
        schedule: ``schedule_identity`` of it.
        technique: ``technique_identity`` of it, with ``precision``.
        evaluation_ratio: of the evaluation grid; ``None``: a program has its own.
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
        "evaluation": {"grid": "program"}
        if evaluation_ratio is None
        else {"grid": "geometric", "ratio": evaluation_ratio},
        **({} if repeat_data else {"repeat_data": False}),
        **({"replicate": replicate} if replicate else {}),
    }


def study_id(study: Mapping[str, Any]) -> str:
    """The id of what ``study_identity`` describes."""
    return digest(study)
