"""What a user's file defines, read from its syntax tree: a script is not run to learn that it holds
no workload."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from workloads.user_code.local_imports import PACKAGED, find


def defined_names(file: Path) -> set[str] | None:
    """The names that running ``file`` may bind at its top level; None where they cannot be told:
    it does not parse, or imports everything of a module."""
    tree = _parsed(file)
    if tree is None:
        return None
    names: set[str] = set()
    for node in _top_level(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.name == "*":
                    return None
                names.add(alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Call) and _root(node.func) in ("exec", "globals", "vars"):
            return None
    return names


def possible_workloads(file: Path) -> list[str] | None:
    """The classes of ``file`` that derive from a class of this project, directly or by way of other
    classes of the file and of modules beside it; None where the file does not parse."""
    tree = _parsed(file)
    return None if tree is None else _derived(file, tree, {file})


def _derived(file: Path, tree: ast.Module, seen: set[Path]) -> list[str]:
    ours: set[str] = set()
    classes = []
    for node in _top_level(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            ours |= _imported(file, node, seen)
        elif isinstance(node, ast.ClassDef) and any(_root(base) in ours for base in node.bases):
            ours.add(node.name)
            classes.append(node.name)
        elif isinstance(node, ast.Assign) and _root(node.value) in ours:
            ours |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return classes


def _imported(file: Path, node: ast.Import | ast.ImportFrom, seen: set[Path]) -> set[str]:
    """The names that an import binds to this project, its classes, or classes that derive from
    them."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]
            for alias in node.names
            if alias.name.partition(".")[0] in PACKAGED or find(file.parent, alias.name)
        }
    module = node.module or ""
    if node.level == 0 and module.partition(".")[0] in PACKAGED:
        return {alias.asname or alias.name for alias in node.names}
    beside = find(file.parent, module) if module else None
    if beside is None or not beside.is_file() or beside in seen:
        return set()
    tree = _parsed(beside)
    if tree is None:
        return set()
    derived = {*_derived(beside, tree, {*seen, beside})}
    return {alias.asname or alias.name for alias in node.names if alias.name in derived}


def _parsed(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return None  # the import itself reports the error and its place


def _top_level(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run with the module itself, in order: no bodies of functions and classes."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _top_level(node)


def _root(node: ast.expr) -> str:
    """``bs`` of ``bs.Classification``, ``Base`` of ``Base[int]``; the name itself of a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
