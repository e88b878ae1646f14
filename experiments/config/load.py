"""Read an experiment as plain data: a user's or a packaged YAML file, a mapping, or keywords.

The meaning of the keys is checked in ``schema`` and ``compile``, not here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config import keywords, sources
from experiments.config.inherit import EXTENDS, inherit, override
from experiments.config.schema import LONGEST_NAME
from experiments.config.yaml_lines import MOST_NESTED, Places, dotted, read
from experiments.config.yaml_lines import Path as KeyPath
from experiments.errors import ExperimentError
from results.errors import escaped, is_utf8
from results.storage.masking import masked

_BITS = 63
KEY_HINT = "what an experiment says is written into its results: read keys from the environment"


class Content(NamedTuple):
    """An experiment as it was written: plain data that a file can hold, its keys not checked."""

    data: dict[str, Any]
    places: Places
    base: Path
    """The folder that relative paths start from."""


def read_source(source: str | Path | Mapping[str, Any], overrides: Sequence[str]) -> Content:
    """The content of a file, by its path or the name of a packaged one, or of a mapping.

    Raises:
        ExperimentError: it cannot be read.
    """
    if isinstance(source, Mapping):
        check_plain(source, Places())
        return _complete(copy.deepcopy(dict(source)), Places(), overrides, Path.cwd(), None)
    if isinstance(source, str) and sources.is_name(source):
        text = sources.packaged_text(source)
        return read_text(text, f"{source}.yaml", overrides, Path.cwd(), source)
    file = Path(source)
    try:
        text = sources.file_text(file)
    except FileNotFoundError:
        hint = "batchscale list experiments prints the packaged ones"
        raise ExperimentError(f"no experiment file {str(source)!r}", hint=hint) from None
    return read_text(text, str(source), overrides, file.expanduser().resolve().parent, file.stem)


def read_text(
    text: str, source: str, overrides: Sequence[str], base: Path, name: str | None
) -> Content:
    """The content of YAML text.

    Args:
        source: what errors call it.
        name: the experiment's, where the text has none.

    Raises:
        ExperimentError: it is not a mapping in YAML.
    """
    data, places = read(text, source)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ExperimentError(
            f"{source}: not a mapping of keys to values", hint="begin with: workload: digits-mlp"
        )
    return _complete(data, places, overrides, base, name)


def read_keywords(values: Mapping[str, Any]) -> Content:
    """The content of an experiment from Python's keywords.

    Raises:
        ExperimentError: an unknown keyword, or a class in no file.
    """
    data, base = keywords.mapping(values)
    return _complete(data, Places(), (), base, None)


def _complete(
    data: dict[str, Any], places: Places, overrides: Sequence[str], base: Path, name: str | None
) -> Content:
    """Apply what the file extends and the overrides, and give it a name."""
    data, places = inherit(data, places, base)
    override(data, overrides, places)
    check_plain(data, places)
    if EXTENDS in data:
        message = f"{EXTENDS} can be given in a file alone"
        raise places.error((EXTENDS,), message, "sweep a file that extends another")
    data = {key: value for key, value in data.items() if value is not None}
    if "name" not in data:
        label = name or re.split(r"[:/]", str(data.get("workload", "")))[-1]
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", label).lstrip("._-")
        data["name"] = plain[:LONGEST_NAME] or "experiment"
    return Content(data, places, base)


def check_plain(data: Mapping[str, Any], places: Places) -> None:
    """Refuse values that are wrong for every key.

    Raises:
        ExperimentError: a number beyond 64 bits; text that a file cannot hold; a key or password
            in an address, since what an experiment says is written into its results; a mapping
            whose keys are not text; nesting without end.
    """
    waiting: list[tuple[KeyPath, Any]] = [((), data)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > MOST_NESTED:
            raise places.error(path, f"{dotted(path[:3])} … is nested more than {MOST_NESTED} deep")
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise places.error(path, f"{_name(path)}: key {key!r} is not text")
                _check_text((*path, key), key, places)
                waiting.append(((*path, key), inner))
        elif isinstance(value, (list, tuple)):
            waiting += [((*path, i), inner) for i, inner in enumerate(value)]
        elif isinstance(value, str):
            _check_text(path, value, places)
        elif isinstance(value, int) and value.bit_length() > _BITS:
            digits = int(value.bit_length() * 0.30103) + 1
            message = f"{_name(path)} is a whole number of {digits} digits"
            raise places.error(path, message, "whole numbers have 64 bits: 18 digits")


def holds_key(value: Any) -> bool:
    """Whether a value, or an item of it, is an address with a key or password."""
    if isinstance(value, (list, tuple)):
        return any(holds_key(item) for item in value)
    return isinstance(value, str) and masked(value) != value


def _check_text(path: KeyPath, text: str, places: Places) -> None:
    if "\0" in text or not is_utf8(text):
        message = f"{_name(path)}: {text!r} is not text that a file can hold"
        raise places.error(path, message, "remove \\0 and halves of surrogate pairs")
    if any(escaped(sign) != sign for sign in {*text} - {"\n", "\t"}):
        message = f"{_name(path)} holds control characters: {text!a}"
        raise places.error(path, message, "remove them: names are printed on terminals")
    if holds_key(text):
        raise places.error(path, f"{_name(path)} holds a key or password: {text!r}", KEY_HINT)


def _name(path: KeyPath) -> str:
    return dotted(path) or "the experiment"
