"""The text of experiment files: packaged ones by their name, a user's by their path."""

from __future__ import annotations

import os
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from experiments.errors import ExperimentError
from results.errors import nearest

_LARGEST_FILE = 2_000_000


def _folder() -> Traversable:
    return resources.files("experiments").joinpath("files")


def names() -> dict[str, str]:
    """The packaged experiments: name -> what it is, in one line (the file's first comment)."""
    summaries = {}
    for file in sorted(_folder().iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            first = file.read_text(encoding="utf-8").partition("\n")[0]
            summaries[file.name.removesuffix(".yaml")] = first.lstrip("# ")
    return summaries


def is_name(source: str) -> bool:
    """Whether ``source`` is the name of a packaged experiment rather than a path."""
    return not is_file(source) and "/" not in source


def is_file(source: str) -> bool:
    """Whether ``source`` ends as the name of an experiment's file does."""
    return Path(source).suffix in (".yaml", ".yml")


def packaged_text(name: str) -> str:
    """The packaged file of that name.

    Raises:
        ExperimentError: there is none.
    """
    if name not in names():
        raise ExperimentError(
            f"no experiment is called {name!r}",
            hint=nearest(
                name,
                names(),
                "batchscale list experiments names them; a file of your own ends in .yaml",
                form="did you mean {!r}? A file of your own ends in .yaml",
            ),
        )
    return _folder().joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def file_text(file: Path) -> str:
    """The text of a file, or of a pipe.

    Raises:
        FileNotFoundError: there is none.
        ExperimentError: it cannot be read, is no UTF-8 text, or is larger than an experiment is.
    """
    try:
        with file.expanduser().open("rb") as stream:
            data = stream.read(_LARGEST_FILE + 1)
        if len(data) <= _LARGEST_FILE:
            return data.decode("utf-8")
        reason = f"an experiment file has at most {_LARGEST_FILE / 1e6:g} MB"
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, RuntimeError):  # a NUL or a lone surrogate in its name; an unknown home
        reason = "a file cannot have that name"
    raise ExperimentError(f"{file} cannot be read: {reason}")


def why_not_copied(path: str, base: str, *, named_by_user: bool) -> tuple[str, str] | None:
    """Why workers get no copy of an entry of ``files``, and a hint; ``None`` where they do.

    Only what lies below the experiment's folder ``base``, with all links followed: an experiment
    of somebody else cannot send a private file to other machines. Outside, the user names it.
    """
    file = os.path.join(base, os.path.expanduser(path))
    if not os.path.exists(file):
        return f"files: no file {path!r} in {base}", "paths are relative to the experiment file"
    if named_by_user or Path(os.path.realpath(file)).is_relative_to(os.path.realpath(base)):
        return None
    message = f"files: {path!r} is not below {base}: it would be copied to other machines"
    return message, f"put it there, or name it on the command line: --set 'files=[{path}]'"
