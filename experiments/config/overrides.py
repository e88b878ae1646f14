"""``--set grid.batch_size=1..64``: a key of the experiment file said on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from experiments.config.yaml_lines import Places, read
from experiments.errors import ExperimentError

_DOTS = re.compile(r"\.(?!py:)")
"""Dots between keys: not the one in ``search.my_opt.py:Sophia.learning_rate``."""


_SHOWN = 200


def override(data: dict[str, Any], settings: Sequence[str], places: Places) -> None:
    """Put each ``key=value`` into ``data``, in order; the value is read as YAML.

    An empty value takes the key out of the file, which brings its default back.

    Raises:
        ExperimentError: no ``=``, a key below one that has no keys, a value that is not YAML.
    """
    for setting in settings:
        place = f"--set {setting if len(setting) <= _SHOWN else setting[:_SHOWN] + '…'}"
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ExperimentError(f"{place}: not KEY=VALUE", hint="for example: --set trials=8")
        value, _ = read(text, place)
        path = tuple(part.strip() for part in _DOTS.split(key))
        folder = data
        for depth, part in enumerate(path[:-1]):
            inner = folder.setdefault(part, {})
            if not isinstance(inner, dict):
                above = ".".join(path[: depth + 1])
                raise ExperimentError(
                    f"{place}: {above} has no keys of its own", hint=f"--set {above}=…"
                )
            folder = inner
        places.drop(path)
        if value is None:
            folder.pop(path[-1], None)
            continue
        folder[path[-1]] = value
        for depth in range(1, len(path)):  # what it makes on the way has no other place
            if places.at(path[:depth]) == places.at(()):
                places.put(path[:depth], place)
        places.put(path, place)
