"""The user's own files, in a small folder that workers get as their working directory.

Never the current folder: Ray would upload all of it, and a ``results/`` or ``experiments/`` in it
would hide our packages on the workers.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from filecmp import cmp
from pathlib import Path

from experiments.errors import ExperimentError
from experiments.plan import Study
from workloads.user_code.data_files import staged_place
from workloads.user_code.local_imports import PACKAGED, local_modules
from workloads.user_code.program import Program

_THEIRS = {"torch", "torchvision", "ray", "numpy", "pandas", "pyarrow", "scipy"}
_LARGEST_DATA_FILE = 2**28
"""Bytes of a data file that is sent to workers; Ray refuses a folder of twice as much."""
_PROGRAM = Path("program")
"""The folder of a program's files."""
_SKIP = shutil.ignore_patterns("__pycache__", ".*", "*.pyc")


@dataclass(frozen=True, kw_only=True)
class Staged:
    """The folder of the files here, and the names that studies on workers give them."""

    folder: str
    marker: str
    """A file of a unique name in the folder, by which a worker finds its copy."""
    specs: Mapping[str, str]
    """``../models/a.py:Net`` -> ``a.py:Net``: for files from outside the experiment's folder."""
    program: str | None = None
    """Where a program runs in the folder: ``program``, or ``program/…`` if it has files above."""

    def localize(self, study: Study) -> Study:
        """The study as this process loads it, from its own copy of the folder.

        Raises:
            ExperimentError: this process has none.
        """
        ref, here = study.workload, self._here()
        if isinstance(ref.spec, str):
            ref = replace(ref, spec=self.specs.get(ref.spec, ref.spec), base=here)
        else:
            ref = replace(ref, base=self._place_of_program(ref.base or ".", here))
        name = study.layout.name
        return replace(
            study,
            workload=ref,
            optimizer=self.specs.get(study.optimizer, study.optimizer),
            schedule=self.specs.get(study.schedule, study.schedule),
            technique={self.specs.get(name, name): v for name, v in study.technique.items()},
            layout=replace(study.layout, name=name and self.specs.get(name, name)),
        )

    def _place_of_program(self, base: str, here: str) -> str:
        """Where a worker runs a program: in the experiment's folder, with all that is beside it, if
        this machine has the same files there; else in the copy of what the experiment names."""
        assert self.program is not None
        copy, depth = Path(here, _PROGRAM), len(Path(self.program).parts) - 1
        root = Path(base, *[".."] * depth)
        files = [path for path in copy.rglob("*") if path.is_file()]
        there = [root / path.relative_to(copy) for path in files]
        same = all(p.is_file() and cmp(p, q) for p, q in zip(there, files, strict=True))
        if same and os.path.isdir(base):
            return base
        os.makedirs(Path(here, self.program), exist_ok=True)  # all of its files may be above
        return str(Path(here, self.program))

    def _here(self) -> str:
        for folder in (os.getcwd(), *sys.path, self.folder):
            if folder and os.path.exists(os.path.join(folder, self.marker)):
                return folder
        raise ExperimentError("a worker of Ray's did not get the experiment's files")


def file_specs(studies: Iterable[Study]) -> list[str]:
    """What the studies name by its file: workloads, optimizers, schedules, techniques, layouts."""
    return [
        spec
        for study in studies
        for spec in (
            *(study.workload.spec, study.optimizer, study.schedule, study.layout.name),
            *study.technique,
        )
        if isinstance(spec, str) and ".py" in spec
    ]


@contextmanager
def staged(
    base: str | None,
    specs: Iterable[str],
    files: Iterable[str],
    data_files: Iterable[str] = (),
    program: Program | None = None,
) -> Iterator[Staged]:
    """Copy the files that ``specs`` (``file.py:Name``) and ``files`` name into a new folder.

    With each file of ``specs`` go the modules of its own folder that it imports, itself or through
    one another, to the same places beside it.

    Args:
        base: the folder that relative paths start from; the current one unless given.
        specs: of workloads, optimizers, schedules, techniques and layouts; packaged names need no
            file.
        files: more files and folders, as the experiment file lists them: data, and modules whose
            names no import statement says.
        data_files: those that workloads and techniques name as theirs.
        program: of the experiment. What it consists of has a folder of its own, where its names
            hide no package.

    Raises:
        ExperimentError: a file does not exist, or its name would hide a package; two files have the
            same place; a data file is too large to be sent.
        WorkloadError: a local module has the name of an installed package.
    """
    start = Path(base or ".").resolve()
    with tempfile.TemporaryDirectory(prefix="batchscale-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) / "files"
        folder.mkdir()
        renamed: dict[str, str] = {}
        for spec in sorted(set(specs)):
            path, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
            if not path.endswith(".py"):
                continue
            place = _copy_with_imports(start, path, folder)
            renamed[spec] = f"{place}:{name}" if name else place
        place_of_program = None
        if program is not None:
            named = [*program.named_files(start), *files]
            place_of_program = _copy_program(start, named, folder)
        for file in files if program is None else ():
            _copy(start, file, folder)
        for path in sorted(set(data_files)):
            _copy_data_file(start, path, folder)
        _refuse_clashes(folder)
        marker = f"batchscale-files-{uuid.uuid4().hex}"
        (folder / marker).touch()
        moved_specs = {old: new for old, new in renamed.items() if old != new}
        yield Staged(folder=str(folder), marker=marker, specs=moved_specs, program=place_of_program)


def _copy_with_imports(start: Path, name: str, folder: Path) -> str:
    """Copy a file, and what it imports of its own folder to the same places beside its copy; its
    path in ``folder``."""
    place = _copy(start, name, folder)
    source = _resolved(start, name)
    is_python = source.suffix == ".py" and source.is_file()
    for module in local_modules(source).values() if is_python else ():
        beside = module.relative_to(source.parent)
        called = f"{beside}, which {source.name} imports"
        _copy_file(module, (folder / place).parent / beside, called)
    return place


def _copy_program(start: Path, named: Sequence[str], folder: Path) -> str:
    """Copy what a program consists of so that its command means the same there: a file of a folder
    above lies above too. An absolute path is the worker's own.

    Returns:
        Where it runs in ``folder``.
    """
    relative = [name for name in named if not Path(name).expanduser().is_absolute()]
    sources = [os.path.normpath(start / name) for name in relative]
    root = Path(os.path.commonpath([start, *sources]))
    for source in sources:
        _copy_with_imports(root, os.path.relpath(source, root), folder / _PROGRAM)
    return str(_PROGRAM / start.relative_to(root))


def _copy(start: Path, name: str, folder: Path) -> str:
    """Copy a file or folder; its path in ``folder``."""
    source = _resolved(start, name)
    if not source.exists():
        raise ExperimentError(
            f"no file {name!r} in {start}", hint="a path is relative to its experiment file"
        )
    inside = source.is_relative_to(start)
    place = source.relative_to(start) if inside else Path(source.name)
    if source.is_dir():

        def skipped(here: str, names: list[str]) -> set[str]:
            left_out = set(_SKIP(here, names))
            for each in sorted({*names} - left_out):
                _refuse_link(Path(here, each), source)
            return left_out

        shutil.copytree(source, folder / place, dirs_exist_ok=True, ignore=skipped)
    else:
        _copy_file(source, folder / place, name)
    return place.as_posix()


def _refuse_link(path: Path, folder: Path) -> None:
    """A link in a folder is copied as what it leads to, which nobody has named."""
    if path.is_symlink() and not path.resolve().is_relative_to(folder):
        raise ExperimentError(
            f"files: {path} is a link that leads out of {folder}",
            hint="list what it leads to as well, and remove the link",
        )


def _copy_data_file(start: Path, name: str, folder: Path) -> None:
    """Copy it to where a worker reads it; a large one is read where its absolute path says."""
    path = Path(name).expanduser()
    source = start / path
    if not source.is_file():
        raise ExperimentError(
            f"data file {name}: no file {source}", hint="a path is relative to its experiment file"
        )
    size = source.stat().st_size
    if size <= _LARGEST_DATA_FILE:
        _copy_file(source, folder / staged_place(name), name)
    elif not path.is_absolute():
        raise ExperimentError(
            f"data file {name} has {size / 1e6:,.0f} MB, too many to be sent to workers",
            hint="put it where every worker can read it, and write its absolute path",
        )


def _resolved(start: Path, name: str) -> Path:
    return (start / Path(name).expanduser()).resolve()


def _copy_file(source: Path, target: Path, name: str) -> None:
    """Copy a file, unless another file has its place."""
    if target.exists() and target.read_bytes() != source.read_bytes():
        raise ExperimentError(
            f"{name}: two files of the experiment are called {source.name}",
            hint="rename one, or put both under the experiment file's folder",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _refuse_clashes(folder: Path) -> None:
    for entry in sorted(folder.iterdir()):
        top = entry.name.removesuffix(".py")
        if top in {*PACKAGED, *_THEIRS} or top in sys.stdlib_module_names:
            owner = "batchscale's own" if top in PACKAGED else "the"
            raise ExperimentError(
                f"{entry.name}: on the workers it would hide {owner} package {top!r}",
                hint=f"rename {entry.name}, or move it into a folder of another name",
            )
