"""Importers and exporters: each is a file, and its function's signature has its options.

The importer ``log`` is the function ``import_log`` of ``results/imports/log.py``; the first line of
that file describes it. A user's is any function, which ``batchscale`` finds as ``file.py:Name``. An
option is a keyword-only parameter with a type and a description::

    def import_log(path, results, *, name: Annotated[str | None, "The experiment's name."] = None):
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from results.errors import ResultsError, nearest

LOG = "log"
"""The import that finds out what a file or folder is."""
_OTHER_NAMES = {"csv": LOG, "wandb": LOG}
REPORTED = "progress"
"""The parameter that is not an option: if it exists, it is called with the progress so far."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """The form of an option on the command line, if a description alone is not enough."""

    help: str
    flag: str = ""
    """``--name`` of the parameter ``name`` unless given."""
    metavar: str | None = None


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An option of an importer or exporter."""

    name: str
    type: Any
    """Type of its values, without ``None``."""
    required: bool
    option: Option

    @property
    def flag(self) -> str:
        return self.option.flag or f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Extension:
    """An importer or exporter: ``function(first, second, **options)``."""

    verb: str
    name: str
    function: Callable[..., Any]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Its options by name.

        Raises:
            ResultsError: a keyword-only parameter without a description.
        """
        hints = get_type_hints(self.function, include_extras=True)
        return {
            name: self._parameter(name, hints.get(name), parameter.default)
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and name != REPORTED
        }

    @property
    def reports(self) -> bool:
        """Whether it reports progress."""
        return REPORTED in inspect.signature(self.function).parameters

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Call the function; an option that is None is not given.

        Raises:
            ResultsError: an option that it does not have, or one that is missing.
        """
        options = {name: value for name, value in options.items() if value is not None}
        if not self.reports:
            options.pop(REPORTED, None)
        for name in options:
            if name not in {*self.parameters, REPORTED}:
                raise self.unknown(f"--{name.replace('_', '-')}")
        for name, parameter in self.parameters.items():
            if parameter.required and name not in options:
                raise ResultsError(
                    f"{self.verb} {self.name} needs {parameter.flag}", hint=parameter.option.help
                )
        return self.function(*given, **options)

    def unknown(self, flag: str) -> ResultsError:
        """The error of an option that it does not have."""
        flags = ", ".join(parameter.flag for parameter in self.parameters.values()) or "none"
        return ResultsError(
            f"{self.verb} {self.name} has no option {flag}",
            hint=f"leave it out; options of {self.name}: {flags}",
        )

    def _parameter(self, name: str, hint: Any, default: Any) -> Parameter:
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        note = next((each for each in notes if isinstance(each, (str, Option))), None)
        if note is None:
            raise ResultsError(
                f"{self.verb} {self.name}: the option {name} has no description",
                hint=f'for example: {name}: Annotated[str | None, "What it is."] = None',
            )
        if get_origin(kind) in (Union, types.UnionType):
            kind = next(each for each in get_args(kind) if each is not type(None))
        return Parameter(
            name=name,
            type=kind,
            required=default is inspect.Parameter.empty,
            option=Option(help=note) if isinstance(note, str) else note,
        )


@dataclass(frozen=True)
class Registry:
    """The packaged extensions of a kind: the files of a folder, none of which is imported before
    it is used."""

    verb: str
    """The verb, with which the names of their functions begin: ``import``."""

    def names(self) -> dict[str, str]:
        """Each name with one line that describes it."""
        files = sorted((Path(__file__).parent / f"{self.verb}s").glob("[!_]*.py"))
        return {file.stem.replace("_", "-"): description(file) for file in files}

    def knows(self, name: str) -> bool:
        """Whether there is one of this name."""
        return _OTHER_NAMES.get(name, name) in self.names()

    def get(self, name: str) -> Extension:
        """The packaged extension of this name.

        Raises:
            ResultsError: there is none.
        """
        names = self.names()
        name = _OTHER_NAMES.get(name, name)
        if not self.knows(name):
            raise ResultsError(
                f"there is no {self.verb} of {name!r}",
                hint=nearest(name, names, f"one of {', '.join(names)}; or file.py:Name"),
            )
        stem = name.replace("-", "_")
        module = import_module(f"results.{self.verb}s.{stem}")
        return Extension(self.verb, name, getattr(module, f"{self.verb}_{stem}"))


def description(file: Path) -> str:
    """The first paragraph of a file's docstring, as one line; the file is not executed."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).removesuffix(".")


IMPORTS, EXPORTS = Registry("import"), Registry("export")
KINDS: Mapping[str, Registry] = {"import": IMPORTS, "export": EXPORTS}
