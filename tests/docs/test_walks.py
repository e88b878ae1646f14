"""The walks of the architecture page: each file has the name that the page says it has."""

from __future__ import annotations

import ast
import re

import pytest

from tests.test_imports import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
WALKS = PAGE.partition("## Three walks")[2].partition("\n## ")[0]
STEPS = re.findall(r"`([a-z_/]+\.py)` `([A-Za-z_.]+)`", WALKS)


def names(tree: ast.Module | ast.ClassDef) -> dict[str, ast.AST]:
    """What a module or a class defines, by name."""
    defined: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined[node.target.id] = node
    return defined


def test_there_are_three_walks() -> None:
    assert WALKS.count("\n### ") == 3
    assert len(STEPS) > 12


@pytest.mark.parametrize(("file", "name"), STEPS)
def test_the_file_has_the_name(file: str, name: str) -> None:
    node: ast.AST = ast.parse((ROOT / "experiments" / file).read_text("utf-8"))
    for part in name.split("."):
        assert isinstance(node, ast.Module | ast.ClassDef)
        assert part in names(node), f"{file} has no {name}"
        node = names(node)[part]
