"""Extension points: what a packaged file or a user's ``file.py:Name`` adds under a name.

A packaged optimizer, schedule, technique or layout is one file in its folder: every class there
that derives from the folder's base class and has a ``name`` is an entry. Nothing else lists it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from experiments.errors import ExperimentError, nearest
from results.optimizers import class_name
from workloads.user_code.user_files import find_file, import_file

T = TypeVar("T")

_AS = re.compile(r"(?P<name>.*\S)\s+as\s+(?P<display_name>[^\s:/][^:/]*?)\s*")
"""A display name is not a path: ``runs as is/my_opt.py:Lion`` has none."""


def find_packaged(package: str, entry: type[T], *, folders: bool = False) -> dict[str, type[T]]:
    """The classes in a folder that derive from ``entry`` and have a ``name``, by it, file by file.

    ``folders``: whether folders of it are searched too.
    """
    classes: dict[str, type[T]] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, entry)
                and value.__module__ == module.__name__
                and isinstance(name := vars(value).get("name"), str)
            ):
                classes[name] = value
        if info.ispkg and folders:
            classes |= find_packaged(module.__name__, entry, folders=True)
    return classes


class Registry(Generic[T]):
    """The entries of one kind.

    Args:
        kind: what an entry is, for messages: ``optimizer``.
        package: the folder that is searched for packaged entries.
        entry: their base class.
        user_base: what a user's class derives from.
        user_contract: what else it must define, for a hint.
        adopt: makes an entry of a user's name and class; it raises ``ExperimentError`` for a class
            that cannot be one. The class is called without arguments unless it is given.
        folders: whether folders of the package are searched too.
        other: a class from elsewhere by a name that is no packaged one, or ``None``.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        entry: type[T],
        *,
        user_base: tuple[str, type],
        user_contract: str,
        adopt: Callable[[str, Any], T] = lambda name, kind: kind(),  # noqa: ARG005
        folders: bool = False,
        other: Callable[[str], Any] = lambda name: None,  # noqa: ARG005
    ) -> None:
        self.kind, self.package, self.entry = kind, package, entry
        self.user_base, self.user_contract = user_base, user_contract
        self.adopt, self.folders, self.other = adopt, folders, other

    @functools.cached_property
    def packaged(self) -> Mapping[str, type[T]]:
        """The packaged classes by name."""
        return find_packaged(self.package, self.entry, folders=self.folders)

    def names(self) -> list[str]:
        """The names of the packaged entries."""
        return list(self.packaged)

    def get(self, text: str, base: str | None = None) -> T:
        """The entry of a name, perhaps with a display name: ``my_opt.py:Lion as Lion``.

        Args:
            text: a packaged name or ``file.py:Class``; ``as`` and a display name may follow.
            base: folder that a relative file starts from.

        Raises:
            ExperimentError: there is no such entry, or the class cannot be one.
        """
        name, display_name = _split(text)
        if name in self.packaged:
            entry = self.packaged[name]()
        else:
            entry = self.adopt(name, self.user_class(name, base))
        if display_name is not None:
            entry.display_name = display_name  # type: ignore[attr-defined]
        return entry

    def get_class(self, name: str, base: str | None = None) -> type[T]:
        """The class of a name, where users derive from the class that packaged ones derive from.

        Raises:
            ExperimentError: there is none.
        """
        if name in self.packaged:
            return self.packaged[name]
        kind: type[T] = self.user_class(name, base)
        return kind

    def label(self, text: str) -> str:
        """The display name of the entry that ``get`` makes of ``text``, without loading it."""
        name, display_name = _split(text)
        return display_name or class_name(name)

    def user_class(self, name: str, base: str | None) -> Any:
        """The class of a name that is not packaged.

        Raises:
            ExperimentError: there is none, or it does not derive from the base class.
        """
        base_name, base_class = self.user_base
        value = _from_file(self.kind, name, base, base_class) if ":" in name else self.other(name)
        if value is None:
            raise ExperimentError(
                f"unknown {self.kind} {name!r}", hint=nearest(name, self.packaged)
            )
        is_class = isinstance(value, type) and issubclass(value, base_class)
        if not is_class or value is base_class:
            raise ExperimentError(
                f"{self.kind} {name!r} is not a class of {base_name}",
                hint=f"subclass {base_name}; {self.user_contract}",
            )
        return value


def _split(text: str) -> tuple[str, str | None]:
    """``my_opt.py:Lion as lion``: what loads it, and its display name if it has one."""
    named = _AS.fullmatch(text)
    return (named["name"], named["display_name"]) if named else (text, None)


def _from_file(kind: str, name: str, base: str | None, parent: type) -> Any:
    """The object that a user's file defines under the name.

    Raises:
        ExperimentError: there is no such file, or no such name in it.
    """
    path, _, attribute = name.rpartition(":")
    file = find_file(path, Path(base or "."))
    if file is None:
        raise ExperimentError(
            f"{kind} {name!r}: no file {path!r} in {Path(base or '.').resolve()}",
            hint="a path is relative to its experiment file",
        )
    module = import_file(file)
    if attribute not in vars(module):
        classes = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, parent)
        ]
        raise ExperimentError(
            f"{path} has no class {attribute!r}", hint=nearest(attribute, classes)
        )
    return vars(module)[attribute]
