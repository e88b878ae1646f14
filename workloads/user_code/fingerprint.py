"""What makes two workloads the same: their name, their fields, and their code."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workloads.base import Workload
from workloads.errors import WorkloadError
from workloads.user_code.local_imports import digest, local_modules


def identity(workload: Workload) -> dict[str, Any]:
    """``{"name", "fields", "version" or "source"}``, plain JSON; and ``"data"``, where the workload
    has a fingerprint of its data.

    ``source`` is a SHA-256 of the syntax tree of the class's file, without comments and docstrings,
    and of the modules of its folder that it imports, where it does; a ``version`` that the class
    itself pins takes its place. For a class derived from another workload, the part of that class
    is included.

    Raises:
        WorkloadError: there is no source to read, and no version.
    """
    if (described := workload.described) is not None:  # a program
        return described
    parts: list[str] = []
    for cls in type(workload).__mro__:
        if cls.__module__ == Workload.__module__ or not issubclass(cls, Workload):
            continue
        pinned = cls.__dict__.get("version")
        part = f"version {pinned}" if pinned is not None else source_hash(cls)
        if part not in parts:
            parts.append(part)
        if pinned is not None:
            break
    description = {"name": workload.name, "fields": workload.fields_of_identity()}
    if (fingerprint := workload.data_fingerprint) is not None:
        description["data"] = fingerprint
    if type(workload).__dict__.get("version") is not None:
        return {**description, "version": workload.version}
    source = parts[0] if len(parts) == 1 else _sha256("\n".join(parts))
    return {**description, "source": source}


def source_hash(cls: type) -> str:
    """SHA-256 of the syntax tree of the file that defines ``cls`` (in a notebook: of the class),
    with those of the local modules that the file imports.

    Raises:
        WorkloadError: the source cannot be found.
    """
    try:
        file = inspect.getsourcefile(cls)
        module = inspect.getmodule(cls)
        in_file = file is not None and module is not None and getattr(module, "__file__", None)
        text = inspect.getsource(module) if in_file and module else inspect.getsource(cls)
    except (OSError, TypeError):
        raise WorkloadError(
            f"the source of workload {cls.__name__} cannot be found: its trials could not be "
            "distinguished from those of another",
            hint='put the class into a file, or pin it: version = "1"',
        ) from None
    if not in_file:
        return text_hash(inspect.cleandoc("\n" + text))
    return _with_local_modules(text_hash(text), Path(str(file)).resolve())


def file_hash(file: Path) -> str:
    """SHA-256 of the syntax trees of a user's file and of the modules beside it that it imports.

    Raises:
        SyntaxError: the file is no Python.
    """
    return _with_local_modules(text_hash(file.read_text(encoding="utf-8")), file.resolve())


def _with_local_modules(source: str, file: Path) -> str:
    """``source``, the hash of a file alone, where the file imports nothing of its folder."""
    modules = local_modules(file)
    if not modules:
        return source
    lines = [f"{name} {_module_hash(path)}" for name, path in modules.items()]
    return _sha256("\n".join([source, *lines]))


def _module_hash(path: Path) -> str:
    """The hash of a module that is perhaps never imported: it need not parse."""
    try:
        return text_hash(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return digest(path)


@functools.lru_cache(maxsize=256)
def text_hash(source: str) -> str:
    """SHA-256 of Python source's syntax tree without comments, docstrings and layout."""
    return _sha256("".join(_tree_text(ast.parse(source))))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _tree_text(node: Any) -> Iterator[str]:
    """The tree as text; empty fields are left out, since Python versions add such."""
    if isinstance(node, list):
        yield "["
        for item in node:
            yield from _tree_text(item)
        yield "]"
    elif isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(value, list):
                value = _without_docstring(node, value)
            if value is not None and value != [] and not isinstance(value, ast.expr_context):
                yield f" {name}="
                yield from _tree_text(value)
        yield ")"
    else:
        yield f"{type(node).__name__}:{node!r}"


def _without_docstring(node: ast.AST, body: list[Any]) -> list[Any]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if not isinstance(node, documented):
        return body
    # A string on a line of its own anywhere in these bodies has no effect: attributes are
    # documented so.
    return [
        item
        for item in body
        if not (
            isinstance(item, ast.Expr)
            and isinstance(item.value, ast.Constant)
            and isinstance(item.value.value, str)
        )
    ]
