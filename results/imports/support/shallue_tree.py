"""The release's folders: the places of studies, and the content of their JSON files.

    <dataset>/<model>/<optimizer>/<batch_size>/study.json
                                              /<trial_id>/metadata.json
                                              /<trial_id>/measurements.csv

and the same once more under ``mnist_subsets/``, ``imagenet_subsets/`` and ``solution_quality/``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from results.errors import ResultsError
from results.imports import Imported
from results.imports.support import shallue_facts as facts
from results.storage.names import experiment_name

STUDY, METADATA, MEASUREMENTS = "study.json", "metadata.json", "measurements.csv"


class UnplacedError(Exception):
    """Why a part of the tree cannot be placed: one line without its name."""


_Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Study(BaseModel):
    """``study.json``. In the special sub-trees the folder alone says which data set it is."""

    model: str | None = None
    optimizer: str | None = None
    dataset: str | None = None
    batch_size: Annotated[int, Field(ge=1, lt=2**63)]
    train_steps: _Count = 0
    parameter_configs: dict[str, dict[str, Any]] = {}


class _Metadata(BaseModel):
    """``metadata.json``."""

    trial_id: int
    status: Literal["COMPLETE", "INFEASIBLE", "INCOMPLETE"]
    steps: _Count
    parameters: dict[str, float | int | str]


_Content = TypeVar("_Content", bound=BaseModel)


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
    """A trial of a study; None, and why in ``refused``, if it cannot be placed."""
    name = f"{study.name}/{trial_id}"
    folder = f"{study.folder}/{trial_id}"
    present = set(os.listdir(folder))
    done.ignored += [f"{name}/{other}" for other in sorted(present - {METADATA, MEASUREMENTS})]
    try:
        content = _read(_Metadata, folder, METADATA)
        if content.trial_id != trial_id:
            raise UnplacedError(f"{METADATA}: trial_id is {content.trial_id}")
        return TrialFolder(
            name=name,
            trial_id=trial_id,
            status=content.status,
            steps=content.steps,
            parameters=content.parameters,
            measurements=_bytes(folder, MEASUREMENTS),
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
    content = _read(_Study, folder, STUDY)
    dataset, model, optimizer, size = name.split("/")[-4:]
    said = {"model": model, "optimizer": optimizer, "batch_size": size}
    if collection is None:
        said["dataset"] = dataset
    for key, expected in said.items():
        value = getattr(content, key)
        if value is not None and str(value) != expected:
            raise UnplacedError(f"{STUDY}: {key} is {value!r}, its folder says {expected!r}")
    if optimizer not in facts.OPTIMIZERS:
        names = ", ".join(facts.OPTIMIZERS)
        raise UnplacedError(f"optimizer {optimizer!r} is none of the release's: {names}")
    try:
        experiment_name(name.replace("/", "-"))
    except ResultsError as error:
        raise UnplacedError(f"its folder's name: {error.hint}") from error
    return StudyFolder(
        folder=folder,
        name=name,
        collection=collection,
        dataset=dataset,
        model=model,
        optimizer=optimizer,
        batch_size=content.batch_size,
        train_steps=content.train_steps,
        parameters=content.parameter_configs,
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


def _read(kind: type[_Content], folder: str, name: str) -> _Content:
    try:
        return kind.model_validate_json(_bytes(folder, name))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][:2]))
        raise UnplacedError(f"{name}: {place}: {first['msg']}".replace(": : ", ": ")) from error


def _bytes(folder: str, name: str) -> bytes:
    try:
        with open(f"{folder}/{name}", "rb", buffering=0) as stream:
            return stream.read()
    except FileNotFoundError:
        raise UnplacedError(f"it has no {name}") from None
    except OSError as error:
        raise UnplacedError(f"{name} cannot be read: {os.strerror(error.errno or 0)}") from error
