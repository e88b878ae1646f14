"""Which modules of its own folder a user's file imports, read from its syntax tree.

A module is *local* if it is a Python file or package in the folder of the user's file. Such modules
have to travel with the file to another machine, and decide, with it, what is trained.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import site
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from workloads.errors import WorkloadError

PACKAGED = ("batchscale", "workloads", "experiments", "results", "analysis")
"""The packages of this project."""
_ROOT = Path(__file__).resolve().parent.parent.parent


class Imported(NamedTuple):
    """One import of a file: ``level`` counts the leading dots, as in ``ast.ImportFrom``."""

    module: str
    level: int
    names: tuple[str, ...]
    """The names imported from the module; they may be submodules."""
    listed: bool = False
    """Named by ``__all__`` alone: ``from package import *`` imports the submodules among them."""


def local_modules(file: Path) -> dict[str, Path]:
    """The local modules that ``file`` imports, itself or through one another, by dotted name.

    ``import``, ``from … import`` (relative too), ``import_module("name")`` and
    ``__import__("name")`` count at any place in a file, with the packages above a module.
    Names that are neither in the folder nor installed are left to the import itself.

    Args:
        file: resolved; its folder is where names are looked up, its packages below that.

    Returns:
        In alphabetical order, without ``file``; empty for a file of this project or of an
        installed package.

    Raises:
        WorkloadError: a module of the folder has the name of an installed package.
    """
    if is_packaged(file) or is_installed(file):
        return {}
    folder = file.parent
    modules: dict[str, Path] = {}
    waiting: list[tuple[tuple[str, ...], Path]] = [((), file)]
    while waiting:
        package, source = waiting.pop()
        for name, relative in sorted(_dotted_names(source, package)):
            for parent in _with_parents(name):
                path = find(folder, parent) if relative else find_local(folder, parent, source)
                if path is None:
                    break
                if path.is_file() and path != file and parent not in modules:
                    modules[parent] = path
                    parts = tuple(parent.split("."))
                    waiting.append((parts if path.name == "__init__.py" else parts[:-1], path))
    return dict(sorted(modules.items()))


def find_local(folder: Path, name: str, importer: Path | None = None) -> Path | None:
    """Where an import of a dotted name leads to in ``folder``, as ``find``; ``None``: elsewhere.

    The standard library comes first, and what is installed before a folder without ``__init__.py``.

    Raises:
        WorkloadError: ``importer`` is given, and the name is that of an installed package too.
    """
    top = name.partition(".")[0]
    path = _entry(folder, top)
    if path is None or top in sys.stdlib_module_names:
        return None
    installed = _installed(top)
    if installed is not None and (top in PACKAGED or installed != path):
        if importer is not None and path.is_file() and path != installed:
            raise _clash(importer, path, top)
        return None
    return find(folder, name)


def find(folder: Path, name: str) -> Path | None:
    """The path of a dotted name in ``folder``: a module's file, a package's ``__init__.py``, the
    folder of a package without one, or ``None``."""
    path: Path | None = folder / "__init__.py"
    for part in name.split("."):
        if path is None or (path.is_file() and path.name != "__init__.py"):
            return None  # a module holds no modules
        path = _entry(path if path.is_dir() else path.parent, part)
    return path


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_installed(path: Path) -> bool:
    """Whether a file belongs to the standard library or to an installed package."""
    return any(path.is_relative_to(folder) for folder in _installed_folders())


def is_packaged(path: Path) -> bool:
    """Whether a file belongs to this project."""
    return any(path.is_relative_to(_ROOT / package) for package in PACKAGED)


def _entry(folder: Path, name: str) -> Path | None:
    """The path of a name in a folder, in Python's order: package, module, plain folder."""
    if not name:
        return None
    for path in (folder / name / "__init__.py", folder / f"{name}.py"):
        if path.is_file():
            return path
    return folder / name if (folder / name).is_dir() else None


@functools.cache
def _installed(name: str) -> Path | None:
    """The file of the installed package ``name``, or of this project's."""
    if name in PACKAGED:
        return _ROOT / name / "__init__.py"
    spec = PathFinder.find_spec(name, [str(folder) for folder in _installed_folders()])
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


@functools.cache
def _installed_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    named = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    if site.ENABLE_USER_SITE:
        named.append(site.getusersitepackages())
    return tuple(dict.fromkeys(Path(name).resolve() for name in (*named, *site.getsitepackages())))


def _clash(importer: Path, path: Path, top: str) -> WorkloadError:
    owner = "one of batchscale's own packages" if top in PACKAGED else "an installed package"
    place = path.parent.name + "/" if path.name == "__init__.py" else path.name
    return WorkloadError(
        f"{importer.name} imports {top!r}, which is both {place} beside it and {owner}",
        hint=f"rename {place}",
    )


def _with_parents(name: str) -> list[str]:
    """``a.b.c``: a, a.b, a.b.c. All of them are imported, in this order."""
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _dotted_names(source: Path, package: tuple[str, ...]) -> set[tuple[str, bool]]:
    """The modules that a file of ``package`` may import, by their names from the folder on, and
    whether the import says that they are there (it is relative)."""
    names: set[tuple[str, bool]] = set()
    for entry in imports(source.read_bytes()):
        if entry.listed and source.name != "__init__.py":
            continue
        above = entry.level - 1
        if above > len(package):
            continue  # beyond the folder
        base = package[: len(package) - above] if entry.level else ()
        start = ".".join((*base, *filter(None, [entry.module])))
        modules = [start, *(f"{start}.{name}" if start else name for name in entry.names)]
        names.update((name, entry.level > 0) for name in modules if name)
    return names


@functools.lru_cache(maxsize=256)
def imports(source: bytes) -> tuple[Imported, ...]:
    """All imports in Python source, at any place; none if it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()  # the import itself reports the error and its place
    return tuple(entry for node in ast.walk(tree) for entry in _of_node(node))


def _of_node(node: ast.AST) -> Iterator[Imported]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Imported(alias.name, 0, ())
    elif isinstance(node, ast.ImportFrom):
        names = tuple(alias.name for alias in node.names if alias.name != "*")
        yield Imported(node.module or "", node.level, names)
    elif isinstance(node, ast.Assign) and _assigns_all(node):
        yield Imported("", 1, tuple(_texts(node.value)), listed=True)
    elif isinstance(node, ast.Call) and _function_name(node.func) in _IMPORTERS and node.args:
        (text, *_) = (*_texts(node.args[0]), "")
        if text:
            name = text.lstrip(".")
            yield Imported(name, len(text) - len(name), ())


_IMPORTERS = ("import_module", "__import__")


def _function_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _assigns_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def _texts(node: ast.expr) -> Iterator[str]:
    """The string that a node is, or those of a list or tuple."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    for item in items:
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item.value
