"""What the values of an experiment may be whatever their key: checked before any key is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.config.yaml_lines import MOST_NESTED, Path, Places, dotted
from results.errors import is_utf8
from results.storage.masking import masked

_BITS = 63


def check_plain(data: Mapping[str, Any], places: Places) -> None:
    """Refuse values that no key can have.

    Raises:
        ExperimentError: a number beyond 64 bits; text that a file cannot hold; a key or password
            in an address, since what an experiment says is written into its results; a mapping
            whose keys are no words; nesting without end.
    """
    waiting: list[tuple[Path, Any]] = [((), data)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > MOST_NESTED:
            raise places.error(path, f"{dotted(path[:3])} … is nested more than {MOST_NESTED} deep")
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise places.error(path, f"{_name(path)}: key {key!r} is not a word")
                _check_text((*path, key), key, places)
                waiting.append(((*path, key), inner))
        elif isinstance(value, (list, tuple)):
            waiting += [((*path, i), inner) for i, inner in enumerate(value)]
        elif isinstance(value, str):
            _check_text(path, value, places)
        elif isinstance(value, int) and value.bit_length() > _BITS:
            digits = int(value.bit_length() * 0.30103) + 1
            raise places.error(
                path,
                f"{_name(path)} is a whole number of {digits} digits",
                "whole numbers have 64 bits: 18 digits",
            )


def holds_key(value: Any) -> bool:
    """Whether a value, or one in it, is an address with a key or password."""
    if isinstance(value, (list, tuple)):
        return any(holds_key(item) for item in value)
    return isinstance(value, str) and masked(value) != value


WRITTEN = "what an experiment says is written into its results: read keys from the environment"


def _check_text(path: Path, text: str, places: Places) -> None:
    if not _is_text(text):
        message = f"{_name(path)}: {text!r} is not text that a file can hold"
        raise places.error(path, message, "leave out \\0 and halves of surrogate pairs")
    if holds_key(text):
        raise places.error(path, f"{_name(path)} holds a key or password: {text!r}", WRITTEN)


def _is_text(text: str) -> bool:
    return "\0" not in text and is_utf8(text)


def _name(path: Path) -> str:
    return dotted(path) or "the experiment"
