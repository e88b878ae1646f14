"""The parts of a query are named where users name them; all other functions take the whole."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import batchscale
from analysis.figure_data import Query
from tests.test_imports import ROOT

MOST = 4
PARTS = {field.name for field in fields(Query)}
PUBLIC = {
    "batchscale/analysis.py": {
        *("regimes", "techniques", "laws", "optimal_batch", "plot", "report", "serve"),
    },
    "batchscale/cli/options.py": {"_query"},
}
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in ("batchscale", "analysis", "results", "validation")
    for path in (ROOT / package).rglob("*.py")
)


def parts(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg]
    return {argument.arg for argument in every if argument is not None} & PARTS


@pytest.mark.slow
def test_no_other_function_repeats_it() -> None:
    for file in FILES:
        allowed = PUBLIC.get(file, set())
        for node in ast.walk(ast.parse(Path(ROOT / file).read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            repeated = set() if node.name in allowed else parts(node)
            assert len(repeated) <= MOST, f"{file}: {node.name} takes {sorted(repeated)}"


def test_the_public_functions_are_public() -> None:
    assert {*batchscale.__all__} >= PUBLIC["batchscale/analysis.py"]


def test_a_query_is_frozen_and_keyword_only() -> None:
    query = Query(sources=["own"], where="width = 64")
    with pytest.raises(AttributeError):
        query.where = None  # type: ignore[misc]
    with pytest.raises(TypeError):
        Query(["own"])  # type: ignore[call-arg]
