"""YAML as people read it, with the line of every key.

YAML 1.1 reads ``1e-3`` as text, ``no`` as false and ``1:30`` as 90; this loader resolves plain
scalars as YAML 1.2's core schema does: ``true`` and ``false`` are the only booleans, ``1e-3`` is a
number, dates and the rest are text.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from experiments.errors import ExperimentError, PlacedError
from results.counts import count
from results.errors import ClearError
from workloads.errors import WorkloadError

Path = tuple[str | int, ...]
"""Keys and positions from the top: ``("search", "adam", "learning_rate")``."""

MOST_NESTED = 40
"""Levels of lists and mappings; an experiment needs five."""
_MOST_ALIASED = 10_000
"""Values that aliases may expand to, beyond those that are written."""
_MOST_DIGITS = 400
_LONGEST_TAG = 60


def dotted(path: Path) -> str:
    """A path as text: ``points[2].momentum``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")
_BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_NULLS = ("", "~", "null", "Null", "NULL")


@dataclass
class Places:
    """Where each key was given: ``my.yaml:7``, or the ``--set`` that gave it."""

    source: str = ""
    settings: set[str] = field(default_factory=set)
    """Keys of the file that ``--set`` has changed, in part or whole."""
    _places: dict[Path, str] = field(default_factory=dict)

    def put(self, path: Path, place: str) -> None:
        """Remember the place of ``path``."""
        self._places[path] = place

    def drop(self, path: Path) -> None:
        """Forget ``path`` and all below it."""
        for below in [p for p in self._places if p[: len(path)] == path]:
            del self._places[below]

    def take(self, path: Path, other: Places) -> None:
        """Remember the places that ``other`` has of ``path`` and all below it."""
        places = other._places.items()
        self._places.update({p: place for p, place in places if p[: len(path)] == path})

    def at(self, path: Path) -> str:
        """The place of ``path`` or of what is nearest above it; empty where there is no text."""
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path, self.source)

    def error(self, path: Path, message: str, hint: str | None = None) -> PlacedError:
        """An error that begins with the place of ``path``."""
        place = self.at(path)
        return PlacedError(f"{place}: {message}" if place else message, hint=hint)

    @contextlib.contextmanager
    def errors_at(
        self, path: Path, *kinds: type[ClearError | WorkloadError], named: bool = False
    ) -> Iterator[None]:
        """What is raised inside begins with the place of ``path``, or of what it says of below.

        Owners of a value check it, and know nothing of files. Errors that have a place keep it.

        Args:
            kinds: of errors, ``ExperimentError`` unless given.
            named: whether the path itself follows: ``grid.batch_size: …``.
        """
        kinds = kinds or (ExperimentError,)
        try:
            yield
        except PlacedError:
            raise
        except kinds as error:
            message = f"{dotted(path)}: {error}" if named else str(error)
            raise self.error((*path, *getattr(error, "at", ())), message, error.hint) from None


def scalar(text: str) -> Any:
    """The value of a plain (unquoted) scalar.

    Raises:
        ValueError: a number of hundreds of digits.
    """
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) > _MOST_DIGITS and (_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)):
        raise ValueError(f"a number of {len(text):,} digits")
    if _INTEGER.fullmatch(text):
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf"))
    return float("nan") if _NAN.fullmatch(text) else text


class _TagError(Exception):
    """A value has a tag."""

    def __init__(self, tag: str, line: int) -> None:
        super().__init__(tag)
        written = tag.replace("tag:yaml.org,2002:", "!!", 1)
        self.tag = written if len(written) <= _LONGEST_TAG else f"{written[:_LONGEST_TAG]}…"
        self.line = line


class _Loader(yaml.SafeLoader):
    """Refuses tags, also those that SafeLoader knows: without them, what a value means is said by
    ``scalar`` alone."""

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _TagError(tag, event.start_mark.line + 1)
        node: Node | None = super().compose_node(parent, index)
        return node


def read(text: str, source: str) -> tuple[Any, Places]:
    """The value of a YAML text and the places of its keys; ``source`` names it in errors.

    Raises:
        ExperimentError: it is not YAML, holds a key twice, is nested too deep, or has aliases that
            expand to too much.
    """
    places = Places(source)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except _TagError as error:
        raise ExperimentError(
            f"{source}:{error.line}: {error.tag} is a tag of YAML, and an experiment is plain data",
            hint="remove the tag; text that begins with ! is written in quotes",
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source}:{mark.line + 1}" if mark else source
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise ExperimentError(
            f"{place}: not YAML: {reason}", hint="indent with spaces; quote text that holds ': '"
        ) from None
    except yaml.YAMLError as error:
        raise ExperimentError(f"{source}: not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise _too_deep(source) from None
    except (ValueError, OverflowError):  # an escape beyond the last code point of Unicode
        raise ExperimentError(
            f"{source}: not YAML: an escape that is not a Unicode character"
        ) from None
    if node is None:
        return None, places
    _check_aliases(node, source)
    return _construct(node, (), places), places


def _too_deep(place: str) -> ExperimentError:
    return ExperimentError(
        f"{place}: lists and mappings are nested more than {MOST_NESTED} deep",
        hint="an experiment needs five levels",
    )


def _check_aliases(root: Node, source: str) -> None:
    """Refuse aliases that contain themselves or expand to too much, before they are expanded."""
    sizes: dict[int, int] = {}

    def size(node: Node, above: tuple[int, ...]) -> int:
        """The number of values in a node, with all aliases expanded."""
        place = f"{source}:{node.start_mark.line + 1}"
        if id(node) in above:
            raise ExperimentError(f"{place}: an alias that contains itself")
        if len(above) > MOST_NESTED:
            raise _too_deep(place)
        if id(node) not in sizes:
            inner = () if isinstance(node, ScalarNode) else node.value
            pairs = isinstance(node, MappingNode)
            parts = [part for pair in inner for part in pair] if pairs else inner
            sizes[id(node)] = 1 + sum(size(part, (*above, id(node))) for part in parts)
            if sizes[id(node)] > len(sizes) + _MOST_ALIASED:
                raise ExperimentError(
                    f"{place}: aliases that expand to more than {count(_MOST_ALIASED, 'value')}",
                    hint="use fewer aliases (& and *)",
                )
        return sizes[id(node)]

    size(root, ())


def _construct(node: Node, path: Path, places: Places) -> Any:
    place = f"{places.source}:{node.start_mark.line + 1}"
    if path not in places._places:  # a key's own line is better than its value's
        places.put(path, place)
    if isinstance(node, ScalarNode):
        try:
            return scalar(node.value) if node.style is None else node.value
        except ValueError as error:
            raise ExperimentError(f"{place}: {dotted(path)} is {error}") from None
    if isinstance(node, SequenceNode):
        return [_construct(n, (*path, i), places) for i, n in enumerate(node.value)]
    assert isinstance(node, MappingNode)
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = f"{places.source}:{key_node.start_mark.line + 1}"
        if not isinstance(key_node, ScalarNode):
            raise ExperimentError(f"{place}: a key must be text")
        key = key_node.value
        if key in mapping:
            raise ExperimentError(f"{place}: key {key!r} is given twice", hint="keep one of them")
        places.put((*path, key), place)
        mapping[key] = _construct(value_node, (*path, key), places)
    return mapping


class _Dumper(yaml.SafeDumper):
    """Lists on one line; text that ``scalar`` would not read as text is quoted."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    try:
        style = None if isinstance(scalar(text), str) else "'"
    except ValueError:
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _flow(dumper: yaml.SafeDumper, items: Any) -> SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _flow)
_Dumper.add_representer(tuple, _flow)


def write(data: Mapping[str, Any]) -> str:
    """YAML of plain data; ``read`` gives the same back, floats to the last bit."""
    text: str = yaml.dump(
        dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text
