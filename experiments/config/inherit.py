"""``extends: base.yaml``: an experiment file that says only how it differs from another.

Mappings are merged key by key, the extending file winning; lists, values and ranges are replaced;
an empty value takes the key out. The name of an experiment is its own, and paths of all files start
at the folder of the one that is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments import optimizers
from experiments.config import packaged
from experiments.config import yaml_lines as lines
from experiments.config.text_file import UnreadableError, read_text
from experiments.config.yaml_lines import Places, read
from experiments.errors import ExperimentError
from experiments.search.space import SCALES
from results.counts import count

KEY = "extends"
_LONGEST_CHAIN = 20


def inherit(
    data: dict[str, Any], places: Places, folder: Path, seen: tuple[str, ...] = ()
) -> tuple[dict[str, Any], Places]:
    """``data`` with what it extends, and what that extends; and the places of all of it.

    Args:
        folder: where ``data`` was read, from which a relative file starts.
        seen: the files that lead here, from the first.

    Raises:
        ExperimentError: no such file, one that is none, or files that extend each other.
    """
    if data.get(KEY) is None:
        return {k: v for k, v in data.items() if k != KEY}, places
    name = data[KEY]
    if not isinstance(name, str) or not name:
        raise places.error(
            (KEY,), f"extends must name a file, not {name!r}", "for example: extends: base.yaml"
        )
    source, text, where = _find(name, places, folder)
    identity = str(where / Path(source).name)
    if identity in seen:
        circle = [Path(one).name for one in seen[seen.index(identity) :]]
        raise places.error(
            (KEY,), f"extends {name} goes in a circle: {' > '.join([*circle, circle[0]])}"
        )
    if len(seen) >= _LONGEST_CHAIN:
        message = f"extends {name}: a chain of more than {count(_LONGEST_CHAIN, 'file')}"
        raise places.error((KEY,), message)
    try:
        base, of_base = read(text, source)
    except ExperimentError as error:
        raise ExperimentError(f"{error} (extended by {places.at((KEY,))})", hint=error.hint) from (
            None
        )
    if not isinstance(base, dict):
        raise places.error((KEY,), f"extends {name}, which is not a mapping of keys to values")
    base, of_base = inherit(base, of_base, where, (*seen, identity))
    base.pop("name", None)
    own = {key: value for key, value in data.items() if key != KEY}
    before = labels(base)
    _merge(base, own, (), of_base, places)
    leave_out(base, before)
    of_base.source = places.source
    of_base.put((), places.at(()))
    return base, of_base


def labels(data: Mapping[str, Any]) -> set[str]:
    """What the optimizers of a file's grid are called."""
    grid = data.get("grid")
    named = grid.get("optimizer") if isinstance(grid, Mapping) else None
    texts = named if isinstance(named, list) else [named]
    return {optimizers.label(text) for text in texts if isinstance(text, str)}


def leave_out(data: dict[str, Any], before: set[str]) -> None:
    """Drop what ``search`` and ``points`` say of optimizers that were in the grid ``before``, by
    what they were called there."""
    for name in before - labels(data) - {*optimizers.names()}:
        for key in ("search", "points"):
            if isinstance(data.get(key), dict):
                data[key].pop(name, None)


def _find(name: str, places: Places, folder: Path) -> tuple[str, str, Path]:
    """What errors call the file, its text, and its folder."""
    file = Path(name)
    if file.suffix not in (".yaml", ".yml") and "/" not in name:
        try:
            return f"{name}.yaml", packaged.text(name), Path()
        except ExperimentError as error:
            raise places.error((KEY,), f"extends {name}: {error}", error.hint) from None
    try:
        file = file.expanduser()
        text = read_text(folder / file)
    except FileNotFoundError:
        raise places.error(
            (KEY,), f"extends {name}: no such file in {folder}", "paths start at the file's folder"
        ) from None
    except (UnreadableError, RuntimeError) as error:
        raise places.error((KEY,), f"extends {name}, which cannot be read: {error}") from None
    return str(Path(places.source).parent / file), text, (folder / file).resolve().parent


def _merge(
    base: dict[str, Any], own: Mapping[str, Any], path: lines.Path, of_base: Places, places: Places
) -> None:
    """Put ``own`` and its places into ``base`` and its places."""
    for key, value in own.items():
        here = (*path, key)
        before = base.get(key)
        if value is None and key in base:
            of_base.drop(here)
            del base[key]
        elif isinstance(before, dict) and isinstance(value, Mapping) and not _range(before, value):
            of_base.put(here, places.at(here))
            _merge(before, value, here, of_base, places)
        else:
            of_base.drop(here)
            of_base.put(here, places.at(here))
            of_base.take(here, places)
            base[key] = value


def _range(*values: Mapping[str, Any]) -> bool:
    """Whether one of them is a range: ``{log: […]}`` is one value, not keys to merge."""
    return any(value and set(value) <= set(SCALES) for value in values)
