"""The release's folders: the places of studies, and the content of their JSON files.

    <dataset>/<model>/<optimizer>/<batch_size>/study.json
                                              /<trial_id>/metadata.json
                                              /<trial_id>/measurements.csv

and the same once more under ``mnist_subsets/``, ``imagenet_subsets/`` and ``solution_quality/``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.imports import Imported
from results.imports.support import shallue_facts as facts
from results.storage.names import experiment_name

STUDY, METADATA, MEASUREMENTS = "study.json", "metadata.json", "measurements.csv"


class UnplacedError(Exception):
    """Why a part of the tree cannot be placed: one line without its name."""


@dataclass(frozen=True, kw_only=True)
class StudyFolder:
    """A study of the release; ``name`` is its folder within the tree."""

    folder: str
    name: str
    collection: str | None
    dataset: str
    model: str
    optimizer: str
    batch_size: int
    train_steps: int
    """The least for a COMPLETE trial; 0 where the budget was one of time."""
    parameters: Mapping[str, Mapping[str, Any]]

    @property
    def workload(self) -> str:
        """Its folder without the batch size, as a name that a folder can have."""
        return self.name.rpartition("/")[0].replace("/", "-")


@dataclass(frozen=True, kw_only=True)
class TrialFolder:
    """A trial of the release: the contents of its two files."""

    name: str
    trial_id: int
    status: str
    steps: int
    parameters: Mapping[str, float | int | str | bool]
    measurements: bytes


def root_of(folder: str | Path) -> Path:
    """The folder that holds the data sets: ``folder``, or ``batch_science`` in it.

    Raises:
        ResultsError: it does not exist, or holds no study in the release's layout.
    """
    root = Path(folder)
    if not os.path.isdir(root):
        what = "is not a folder" if os.path.exists(root) else "does not exist"
        raise ResultsError(
            f"{root} {what}", hint="unpack batch_science_data.tar.bz2 and name what comes out"
        )
    root = root / "batch_science" if (root / "batch_science").is_dir() else root
    try:
        has_studies = any(next(root.glob(f"{'*/' * depth}{STUDY}"), None) for depth in (4, 5))
    except OSError as error:
        raise ResultsError(f"{root} cannot be read: {error.strerror}") from error
    if not has_studies:
        raise ResultsError(
            f"{root} holds no study of the release: no */*/*/*/{STUDY}",
            hint="name the folder that holds cifar_10, mnist, …, each with its models in it",
        )
    return root


def studies(root: Path, done: Imported) -> list[StudyFolder]:
    """The studies of a tree, by workload and batch size."""
    folders: list[StudyFolder] = []
    for dataset in _folders(root, "", done):
        if dataset in facts.COLLECTIONS:
            for inner in _folders(root, dataset, done):
                folders += _of_dataset(root, f"{dataset}/{inner}", dataset, done)
        else:
            folders += _of_dataset(root, dataset, None, done)
    return sorted(folders, key=lambda study: (study.workload, study.batch_size))


def trial_ids(study: StudyFolder, done: Imported) -> list[int]:
    """The ids of a study's trials, ascending."""
    ids = []
    for name in _folders(Path(study.folder), "", done, prefix=study.name, expected=(STUDY,)):
        if name.isdecimal() and str(int(name)) == name:
            ids.append(int(name))
        elif os.path.exists(os.path.join(study.folder, name, METADATA)):
            done.refused.append((f"{study.name}/{name}", "its folder's name is not a trial id"))
        else:
            done.ignored.append(f"{study.name}/{name}")
    return sorted(ids)


def read_trial(study: StudyFolder, trial_id: int, done: Imported) -> TrialFolder | None:
    """A trial of a study; None, and why in ``passed``, if it cannot be placed."""
    name = f"{study.name}/{trial_id}"
    folder = f"{study.folder}/{trial_id}"
    present = set(os.listdir(folder))
    done.ignored += [f"{name}/{other}" for other in sorted(present - {METADATA, MEASUREMENTS})]
    try:
        for file in (METADATA, MEASUREMENTS):
            if file not in present:
                raise UnplacedError(f"it has no {file}")
        content = _json(f"{folder}/{METADATA}", METADATA)
        status, parameters = content.get("status"), content.get("parameters")
        if status not in facts.STOP_REASONS:
            statuses = ", ".join(facts.STOP_REASONS)
            raise UnplacedError(f"{METADATA}: status {status!r} is none of {statuses}")
        if content.get("trial_id") != trial_id:
            raise UnplacedError(f"{METADATA}: trial_id is {content.get('trial_id')!r}")
        if not isinstance(parameters, dict):
            raise UnplacedError(f"{METADATA}: parameters is {parameters!r}, not a mapping")
        for key, value in parameters.items():
            if not isinstance(value, (int, float, str)):
                raise UnplacedError(
                    f"{METADATA}: parameter {key} is {value!r}, not a number or text"
                )
        return TrialFolder(
            name=name,
            trial_id=trial_id,
            status=status,
            steps=_count(content, "steps", METADATA),
            parameters=parameters,
            measurements=_bytes(f"{folder}/{MEASUREMENTS}", MEASUREMENTS),
        )
    except UnplacedError as reason:
        done.refused.append((name, str(reason)))
        return None


def _of_dataset(
    root: Path, dataset: str, collection: str | None, done: Imported
) -> Iterator[StudyFolder]:
    for model in _folders(root, dataset, done):
        for optimizer in _folders(root, f"{dataset}/{model}", done):
            where = f"{dataset}/{model}/{optimizer}"
            for size in _folders(root, where, done):
                name = f"{where}/{size}"
                try:
                    yield _study(root, name, collection)
                except UnplacedError as reason:
                    done.refused.append((name, str(reason)))


def _study(root: Path, name: str, collection: str | None) -> StudyFolder:
    folder = f"{root}/{name}"
    if not os.path.exists(f"{folder}/{STUDY}"):
        raise UnplacedError(f"it has no {STUDY}")
    content = _json(f"{folder}/{STUDY}", STUDY)
    dataset, model, optimizer, size = name.split("/")[-4:]
    # In the special sub-trees the folder alone says which part of a data set it is.
    named = {"model": model, "optimizer": optimizer}
    if collection is None:
        named["dataset"] = dataset
    for key, expected in named.items():
        if content.get(key, expected) != expected:
            raise UnplacedError(f"{STUDY}: {key} is {content[key]!r}, its folder says {expected!r}")
    if optimizer not in facts.OPTIMIZERS:
        names = ", ".join(facts.OPTIMIZERS)
        raise UnplacedError(f"optimizer {optimizer!r} is none of the release's: {names}")
    if not size.isdecimal() or _count(content, "batch_size", STUDY) != int(size) or size == "0":
        raise UnplacedError(
            f"{STUDY}: batch_size is {content['batch_size']!r}, its folder says {size}"
        )
    try:
        experiment_name(name.replace("/", "-"))
    except ResultsError as error:
        raise UnplacedError(f"its folder's name: {error.hint}") from error
    parameters = content.get("parameter_configs", {})
    if not isinstance(parameters, dict) or not all(
        isinstance(config, dict) for config in parameters.values()
    ):
        raise UnplacedError(f"{STUDY}: parameter_configs is not a mapping of mappings")
    return StudyFolder(
        folder=folder,
        name=name,
        collection=collection,
        dataset=dataset,
        model=model,
        optimizer=optimizer,
        batch_size=int(size),
        train_steps=_count({"train_steps": 0, **content}, "train_steps", STUDY),
        parameters=parameters,
    )


def _folders(
    root: Path, where: str, done: Imported, *, prefix: str = "", expected: tuple[str, ...] = ()
) -> list[str]:
    """Names of the folders in ``where``, sorted; files that are not ``expected`` are ignored."""
    names = []
    above = "/".join(filter(None, (prefix, where)))
    with os.scandir(root / where) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_dir() and not entry.name.startswith("."):
                names.append(entry.name)
            elif entry.name not in expected:
                done.ignored.append(f"{above}/{entry.name}" if above else entry.name)
    return names


def _json(path: str, name: str) -> dict[str, Any]:
    try:
        content = json.loads(_bytes(path, name))
    except ValueError as error:
        raise UnplacedError(f"{name} is not JSON") from error
    if not isinstance(content, dict):
        raise UnplacedError(f"{name} is not a mapping")
    return content


def _bytes(path: str, name: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read()
    except OSError as error:
        raise UnplacedError(f"{name} cannot be read: {os.strerror(error.errno or 0)}") from error


def _count(content: Mapping[str, Any], key: str, file: str) -> int:
    value = content.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    raise UnplacedError(f"{file}: {key} is {value!r}, not a whole number")
