"""The keys of an experiment file that say what its program is."""

from __future__ import annotations

import ast
import shlex
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.errors import ExperimentError
from experiments.programs.command import PYTHON, names
from experiments.programs.metrics import Metrics
from results.counts import count
from workloads.user_code.program import Program

_EXAMPLE = "for example: python train.py --batch_size={batch_size} --lr={learning_rate}"


def parse(
    command: str | Sequence[str],
    *,
    files: Sequence[str] = (),
    resume: str | None = None,
    metrics: str | None = None,
    devices: int = 1,
    nodes: int = 1,
    base: str = "",
) -> Program:
    """The program of an experiment file.

    Args:
        command: as a shell would take it, but without a shell; or its words.
        files: what it consists of besides the files that the command names.
        resume: what is appended where a trial goes on.
        metrics: where it reports (``programs.metrics``).
        devices: GPUs of a trial.
        nodes: machines of a trial.
        base: the folder that it runs in.

    Raises:
        ExperimentError: one of them cannot be; below its key.
    """
    parts = _parts(command, "program")
    if not parts:
        raise ExperimentError("program is empty", hint=_EXAMPLE, at=("program",))
    if names(parts[:1]):
        message = f"the program itself cannot be a name: {parts[0]}"
        raise ExperimentError(message, hint=_EXAMPLE, at=("program",))
    known = parts[0] in PYTHON or shutil.which(parts[0]) or (Path(base) / parts[0]).is_file()
    if not known:
        message = f"no program {parts[0]!r} on the path or in {base or '.'}"
        hint = "a script is run by its interpreter: python train.py …"
        raise ExperimentError(message, hint=hint, at=("program",))
    if not {"batch_size", "per_device"} & {*names(parts)}:
        message = "the command does not take the batch size: it has no {batch_size}"
        raise ExperimentError(message, hint=_EXAMPLE, at=("program",))
    more = _parts(resume, "resume") if resume else []
    if unknown := sorted({*names(more)} - {*names(parts), "folder"}):
        message = f"resume has {{{unknown[0]}}}, which the command has not"
        raise ExperimentError(message, hint="for example: resume: --resume", at=("resume",))
    if resume and "folder" not in names([*parts, *more]):
        raise ExperimentError(
            "resume, but the command has no {folder}, where its checkpoints would be",
            hint="write it into the command: --out={folder}",
            at=("resume",),
        )
    if devices % nodes:
        message = f"{count(devices, 'device')} cannot be divided among {count(nodes, 'node')}"
        raise ExperimentError(message, hint=f"devices: {devices + -devices % nodes}", at=("nodes",))
    try:
        Metrics(metrics).check()
    except ExperimentError as error:
        error.at = ("metrics",)
        raise
    return Program(
        command=tuple(parts),
        files=tuple(files),
        resume=tuple(more),
        reports=metrics,
        devices=devices,
        nodes=nodes,
    )


def is_function(spec: str, base: str) -> bool:
    """Whether ``FILE.py:NAME`` is a function, as far as that can be read."""
    path, _, name = spec.rpartition(":")
    try:
        tree = ast.parse((Path(base) / Path(path).expanduser()).read_bytes())
    except (OSError, SyntaxError, ValueError, RuntimeError):  # nobody's home folder
        return False
    return any(isinstance(each, ast.FunctionDef) and each.name == name for each in tree.body)


def command_of_function(spec: str, names: Iterable[str]) -> list[str]:
    """The words that call it with the values of ``names`` (``batchscale.function``)."""
    values = [f"{name}={{{name}!r}}" for name in dict.fromkeys(names)]
    return ["python", "-P", "-m", "batchscale.function", spec, *values]


def _parts(text: str | Sequence[str], key: str) -> list[str]:
    if not isinstance(text, str):
        return [str(part) for part in text]
    try:
        return shlex.split(text)
    except ValueError as error:
        message = f"{key} cannot be divided into words: {str(error).lower()}"
        raise ExperimentError(message, hint="close the quotation mark", at=(key,)) from None
