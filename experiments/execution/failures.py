"""Describes what a worker raised, for the person who can correct it."""

from __future__ import annotations

import shlex
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from experiments.errors import ProgramError
from experiments.programs.place import script_of
from experiments.scheduling.messages import Cause, Failure
from results.errors import line
from results.failures import repeat_command
from results.storage.masking import masked, without_variables
from workloads.user_code.local_imports import PACKAGED, is_installed, is_packaged

_MEMORY = ("can't allocate memory", "not enough memory: you tried to allocate", "std::bad_alloc")
"""What torch and C++ say when an allocation fails."""


def describe(
    error: BaseException, moved: tuple[str, str] | None = None, cause: Cause | None = None
) -> Failure:
    """Describe an exception that is being handled.

    Args:
        moved: a folder of this worker, and the user's folder of which it is a copy.
        cause: what it is a consequence of, in a rank of a group.
    """
    frame = user_frame(error.__traceback__)
    only = " ".join("".join(traceback.format_exception_only(error)).split())
    if isinstance(error, ProgramError):
        text, only = str(error), str(error).rpartition("\n")[2]
    elif frame is not None:
        text = "".join(traceback.format_exception(type(error), error, frame, chain=False))
    elif isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        # A file that does not parse has no frame; the error names it.
        text = "".join(traceback.format_exception_only(error))
    else:
        text = "".join(traceback.format_exception(error))
    if moved:
        text = text.replace(*moved)
    clear = hasattr(error, "hint") and type(error).__module__.split(".")[0] in PACKAGED
    hint: str | None = getattr(error, "hint", None)
    return Failure(
        message=line(str(error) if clear else only),
        hint=hint and line(hint),
        traceback=masked(without_variables(text)).encode("utf-8", "backslashreplace").decode(),
        clear=clear,
        cause=cause or ("memory" if is_memory(error) and not clear else "raised"),
    )


def is_memory(error: BaseException) -> bool:
    """Whether an exception says that there is not enough memory, of the machine or of a GPU.

    torch's allocator for the CPU raises a RuntimeError, and libraries in C++ a ``bad_alloc``.
    """
    gpu = any(each.__name__ == "OutOfMemoryError" for each in type(error).__mro__)
    text = str(error) if isinstance(error, RuntimeError) else ""
    return isinstance(error, MemoryError) or gpu or any(each in text for each in _MEMORY)


def reproduce_command(trial: str, root: str, folder: str | None, *, script: bool = False) -> str:
    """``repeat_command`` where the trial may need files of the user that have just been run.

    Args:
        folder: where their names start; ``None`` where the trial needs none.
        script: whether it is a program's, which a script in its folder starts.
    """
    if script:
        return script_of(root, trial)
    line = repeat_command(trial, root)
    if folder is None:
        return line
    line += " --trust"
    if Path(folder).resolve() == Path.cwd():
        return line
    return f"cd {shlex.quote(folder)} && {line}"


def user_frame(frame: TracebackType | None) -> TracebackType | None:
    """The first frame of the user's code: not of batchscale, nor of an installed package."""
    while frame is not None and not is_users(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return frame


def is_users(filename: str) -> bool:
    # A library's compiled code calls its frames by sources that are not here: pandas/_libs/x.pxi.
    if filename.startswith("<") or not filename.endswith(".py"):
        return False
    path = Path(filename).resolve()
    script = path.is_relative_to(Path(sysconfig.get_path("scripts")).resolve())
    return not (script or is_packaged(path) or is_installed(path))
