"""``extends: base.yaml`` and ``--set trials=8``: how an experiment differs from another file.

Mappings are merged key by key, and the extending file overrides the other; lists, values and ranges
are replaced; an empty value removes the key. A file does not inherit the name of an experiment, and
the paths of all files are relative to the folder of the one that is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import optimizers
from experiments.config import sources
from experiments.config.yaml_lines import Path as KeyPath
from experiments.config.yaml_lines import Places, read
from experiments.errors import ExperimentError
from experiments.search.space import SCALES
from results.counts import count

EXTENDS = "extends"
_LONGEST_CHAIN = 20
_DOTS = re.compile(r"\.(?!py:)")
"""Dots between keys: not the one in ``search.my_opt.py:Sophia.learning_rate``."""
_LONGEST_QUOTE = 200


def inherit(
    data: dict[str, Any], places: Places, folder: Path, chain: tuple[str, ...] = ()
) -> tuple[dict[str, Any], Places]:
    """``data`` merged with the files that it extends, directly and through others; and the places
    of all keys.

    Args:
        folder: where ``data`` was read, from which a relative file starts.
        chain: the files that lead here, from the first.

    Raises:
        ExperimentError: no such file, one that is not an experiment, or files that extend each
            other.
    """
    if data.get(EXTENDS) is None:
        return {k: v for k, v in data.items() if k != EXTENDS}, places
    name, here = data[EXTENDS], (EXTENDS,)
    if not isinstance(name, str) or not name:
        message = f"extends must name a file, not {name!r}"
        raise places.error(here, message, "for example: extends: base.yaml")
    source, text, base_folder = _find(name, places, folder)
    identity = str(base_folder / Path(source).name)
    if identity in chain:
        circle = [Path(file).name for file in chain[chain.index(identity) :]]
        names = " > ".join([*circle, circle[0]])
        raise places.error(here, f"extends {name} is circular: {names}")
    if len(chain) >= _LONGEST_CHAIN:
        message = f"extends {name}: a chain of more than {count(_LONGEST_CHAIN, 'file')}"
        raise places.error(here, message)
    try:
        base, base_places = read(text, source)
    except ExperimentError as error:
        message = f"{error} (extended by {places.at(here)})"
        raise ExperimentError(message, hint=error.hint) from None
    if not isinstance(base, dict):
        raise places.error(here, f"extends {name}, which is not a mapping of keys to values")
    base, base_places = inherit(base, base_places, base_folder, (*chain, identity))
    base.pop("name", None)
    before = _labels(base)
    changes = {key: value for key, value in data.items() if key != EXTENDS}
    _merge(base, changes, (), base_places, places)
    _remove_sections(base, before)
    base_places.source = places.source
    base_places.put((), places.at(()))
    return base, base_places


def override(data: dict[str, Any], settings: Sequence[str], places: Places) -> None:
    """Put each ``key=value`` into ``data``, in order; the value is read as YAML.

    An empty value removes the key from the file, so that its default applies.

    Raises:
        ExperimentError: no ``=``, a key below one that has no keys, a value that is not YAML.
    """
    before = _labels(data)
    for setting in settings:
        quoted = setting if len(setting) <= _LONGEST_QUOTE else setting[:_LONGEST_QUOTE] + "…"
        place = f"--set {quoted}"
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ExperimentError(f"{place}: not KEY=VALUE", hint="for example: --set trials=8")
        value, _ = read(text, place)
        path = tuple(part.strip() for part in _DOTS.split(key))
        mapping = data
        for depth, part in enumerate(path[:-1]):
            inner = mapping.setdefault(part, {})
            if not isinstance(inner, dict):
                above = ".".join(path[: depth + 1])
                message = f"{place}: {above} is a value and has no keys"
                raise ExperimentError(message, hint=f"--set {above}=…")
            mapping = inner
        places.drop(path)
        places.settings.add(path[0])
        if value is None:
            mapping.pop(path[-1], None)
            continue
        mapping[path[-1]] = value
        for depth in range(1, len(path)):  # mappings that this setting has made
            if places.at(path[:depth]) == places.at(()):
                places.put(path[:depth], place)
        places.put(path, place)
    _remove_sections(data, before)


def _labels(data: Mapping[str, Any]) -> set[str]:
    """What the optimizers of a file's grid are called."""
    grid = data.get("grid")
    value = grid.get("optimizer") if isinstance(grid, Mapping) else None
    written = value if isinstance(value, list) else [value]
    return {optimizers.label(text) for text in written if isinstance(text, str)}


def _remove_sections(data: dict[str, Any], before: set[str]) -> None:
    """Remove from ``search`` and ``points`` the sections of a user's optimizers that were in the
    grid ``before``, by label, and are no longer."""
    for name in before - _labels(data) - {*optimizers.names()}:
        for key in ("search", "points"):
            if isinstance(data.get(key), dict):
                data[key].pop(name, None)


def _find(name: str, places: Places, folder: Path) -> tuple[str, str, Path]:
    """What errors call the file, its text, and its folder."""
    here = (EXTENDS,)
    if sources.is_name(name):
        try:
            return f"{name}.yaml", sources.packaged_text(name), Path()
        except ExperimentError as error:
            raise places.error(here, f"extends {name}: {error}", error.hint) from None
    file = Path(name)
    if not sources.is_file(name):
        message = f"extends {name}, which is not an experiment file"
        raise places.error(here, message, "its name ends in .yaml or .yml")
    with places.errors_at(here):
        if not _is_near(name, folder):
            message = f"extends {name}, which is neither in the folder of the file nor beside it"
            raise ExperimentError(message, hint="paths are relative, such as ../base.yaml")
        try:
            text = sources.file_text(folder / file)
        except FileNotFoundError:
            hint = "paths are relative to the file's folder"
            raise ExperimentError(f"extends {name}: no such file in {folder}", hint=hint) from None
    return str(Path(places.source).parent / file), text, (folder / file).resolve().parent


def _is_near(name: str, folder: Path) -> bool:
    """Whether a path leads to ``folder`` or into what lies beside it: an experiment of somebody
    else cannot name other files of this machine.

    Raises:
        ExperimentError: no file can have that name.
    """
    if name.startswith("~") or Path(name).is_absolute():
        return False
    try:
        return (folder / name).resolve().is_relative_to(folder.resolve().parent)
    except (OSError, ValueError, RuntimeError):  # a NUL, half of a surrogate pair; a circle
        raise ExperimentError(f"extends {name!r}: a file cannot have that name") from None


def _merge(
    base: dict[str, Any],
    changes: Mapping[str, Any],
    path: KeyPath,
    base_places: Places,
    places: Places,
) -> None:
    """Put ``changes`` and their places into ``base`` and its places."""
    for key, value in changes.items():
        here = (*path, key)
        before = base.get(key)
        if value is None and key in base:
            base_places.drop(here)
            del base[key]
        elif isinstance(before, dict) and isinstance(value, Mapping) and not _range(before, value):
            base_places.put(here, places.at(here))
            _merge(before, value, here, base_places, places)
        else:
            base_places.drop(here)
            base_places.put(here, places.at(here))
            base_places.take(here, places)
            base[key] = value


def _range(*values: Mapping[str, Any]) -> bool:
    """Whether a value is a range: ``{log: […]}`` is one value, not keys to merge."""
    return any(value and set(value) <= set(SCALES) for value in values)
