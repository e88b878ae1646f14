"""A user's own program in the place of a workload: a command with ``{names}``.

It has neither data nor model: ``experiments.programs`` says how a trial of it is trained.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workloads.base import Workload
from workloads.errors import WorkloadError
from workloads.user_code.data_files import fingerprint
from workloads.user_code.fingerprint import file_hash
from workloads.user_code.trust import admit

NAME = re.compile(r"\{([A-Za-z_]\w*)(?:!r)?\}")
"""A name of a command, which a trial has a value for, ``!r`` as Python writes it; other braces are
text."""
OF_TRIAL = ("batch_size", "budget", "seed", "folder", "per_device", "devices")
"""Names that every trial has: examples a step, most steps, a number of 31 bits, the folder of its
checkpoints, and examples a device and forward pass: batch size / devices / ``accumulate``."""


class Program(Workload):
    """``train.py --lr={learning_rate}`` and the like: what experiments see of it."""

    command: tuple[str, ...]
    """Its words, with ``{names}``."""
    files: tuple[str, ...] = ()
    """What it consists of besides the files that the command names."""
    values: Any = dataclasses.field(default_factory=dict)
    """Those of the ``{names}`` that are factors of the grid."""
    resume: tuple[str, ...] = ()
    """Words that are appended where a trial goes on; empty: it begins again."""
    reports: str | None = None
    """Where it reports, as the key ``metrics`` says; ``None``: in lines of standard output."""
    devices: int = 1
    """GPUs of a trial."""
    nodes: int = 1
    """Machines of a trial: each has an equal part of the GPUs."""

    @property
    def name(self) -> str:
        """``train.py``: the first word that is a script or a function of one, a module behind
        ``-m``, or a program."""
        if functions := [part for part in self.command if ".py:" in part]:
            return Path(functions[0]).name
        for before, part in zip(("", *self.command), self.command, strict=False):
            if before == "-m" or part.endswith((".py", ".sh")):
                return Path(part).name
        return Path(self.command[0]).name

    @property
    def dataset(self) -> str:  # type: ignore[override]
        """Not known: the program's name, which no other workload has."""
        return self.name

    @property
    def model_name(self) -> str:  # type: ignore[override]
        """As ``dataset``."""
        return self.name

    @property
    def fields(self) -> dict[str, Any]:
        return dict(self.values)

    def fields_of_identity(self, stated: Any = ()) -> dict[str, Any]:  # noqa: ARG002 - all are
        return dict(self.values)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the command, each once, in its order."""
        return tuple(dict.fromkeys(n for part in self.command for n in NAME.findall(part)))

    def with_fields(self, fields: Mapping[str, Any]) -> Program:
        return dataclasses.replace(self, values={**self.values, **fields})

    @property
    def described(self) -> dict[str, Any]:
        """Its identity: the command, its files and its factors.

        Raises:
            WorkloadError: no file of it is known, or one of ``files`` is not there.
        """
        parts, reports = [f"{name} {digest}" for name, digest in self._sources()], self.reports
        scripts = [p for p in self.command if p.endswith((".py", ".sh")) and not NAME.search(p)]
        if not parts and scripts:
            raise WorkloadError(
                f"no file {scripts[0]!r} in {self.experiment_folder}",
                hint="a path is relative to its experiment file",
            )
        if not parts:
            raise WorkloadError(
                f"program {' '.join(self.command)!r} names no file here: a change of it could not "
                "be seen",
                hint="files: [train.py]: what the program consists of, for its trials' identity",
            )
        return {
            "name": self.name,
            "fields": self.fields,
            "command": list(self.command),
            "source": hashlib.sha256("\n".join(parts).encode()).hexdigest(),
            # What is measured depends on it, unless it only says where.
            **({"reports": reports} if reports and "{folder}" not in reports else {}),
        }

    def admit(self) -> None:
        """Called before it is run. What is remembered is the command, with the source.

        Raises:
            RefusedCodeError: as of ``trust.admit``.
        """
        folder = self.experiment_folder
        file = folder / Path(next(self.named_files(folder), "")).expanduser()
        identity = json.dumps([self.command, self.resume, self.described["source"]])
        admit(file, hashlib.sha256(identity.encode()).hexdigest())

    def _sources(self) -> Iterator[tuple[str, str]]:
        """Names and hashes of its files; of Python the syntax trees, with local imports."""
        folder, known = self.experiment_folder, set[Path]()
        for name in dict.fromkeys((*self.named_files(folder), *self.files)):
            path = folder / Path(name).expanduser()
            every = sorted(path.rglob("*")) if path.is_dir() and name in self.files else [path]
            for file in every:
                if not file.is_file() or file in known or "__pycache__" in file.parts:
                    continue
                known.add(file)
                place = file.relative_to(path).as_posix() if path.is_dir() else file.name
                yield f"{Path(name).name}/{place}", _hash(file)

    def named_files(self, folder: Path) -> Iterator[str]:
        """Words of the command, or their parts behind ``=``, that are files of a folder."""
        for before, part in zip(("", *self.command), self.command, strict=False):
            module = part.replace(".", "/")
            of_module = [f"{module}.py", f"{module}/__main__.py"] if before == "-m" else []
            for name in (part, part.partition("=")[2], part.rpartition(":")[0], *of_module):
                if name and not NAME.search(name) and (folder / name).is_file():
                    yield name


def _hash(file: Path) -> str:
    if file.suffix == ".py":
        try:
            return file_hash(file)
        except (SyntaxError, ValueError):
            pass
    return str(fingerprint([file.resolve()], file.parent))
