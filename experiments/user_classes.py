"""A class that an experiment names by its file: ``my_opt.py:Lion``, perhaps ``as`` a name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError, nearest
from workloads.user_code.import_stop import missing
from workloads.user_code.user_files import find_file, import_file

_AS = re.compile(r"(?P<name>.*\S)\s+as\s+(?P<display_name>[^\s:/][^:/]*?)\s*")
"""A display name is no path: ``runs as is/my_opt.py:Lion`` has none."""


def split(text: str) -> tuple[str, str | None]:
    """``my_opt.py:Lion as lion``: what loads it, and its display name if it has one."""
    named = _AS.fullmatch(text)
    return (named["name"], named["display_name"]) if named else (text, None)


def load(kind: str, name: str, base: str | None, parent: type) -> Any:
    """What stands in the file under the name.

    Args:
        kind: what it should be, for messages: ``optimizer``.
        name: ``file.py:Class``.
        base: folder that a relative file starts from.
        parent: the class that its like derive from: for a hint.

    Raises:
        ExperimentError: there is no such file, or no such name in it.
    """
    path, _, attribute = name.rpartition(":")
    file = find_file(path, Path(base or "."))
    if file is None:
        raise ExperimentError(
            f"{kind} {name!r}: no file {path!r} in {Path(base or '.').resolve()}",
            hint="a path starts at its experiment file",
        )
    module = import_file(file)
    if attribute not in vars(module):
        known = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, parent)
        ]
        raise missing(module, attribute) or ExperimentError(
            f"{path} has no class {attribute!r}", hint=nearest(attribute, known)
        )
    return vars(module)[attribute]
