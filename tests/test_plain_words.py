"""Words that were retired for the field's own stay out of identifiers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "batchscale", "workloads", "experiments", "results", "analysis", "validation", "benchmarks",
    "docs",
)  # fmt: skip
RETIRED = {
    "look": "evaluation, or style",
    "walk": "refine",
    "aside": "paused",
    "told": "progress",
    "tell": "progress",
    "telling": "progress",
    "shown": "what the variable holds",
    "found": "what the variable holds",
    "one": "what the variable holds",
    "some": "what the variable holds",
    "looked": "what the variable holds",
    "looking": "what the variable holds",
    "searched": "search_points, or rows of a search",
    "tried": "trial_outcomes",
    "room": "space_edges",
    "house": "default style",
    "pulse": "heartbeat",
    "outward": "what the module holds",
    "landing": "commit_import",
    "sheet": "table",
    "word": "message, or part",
    "board": "mailbox",
    "course": "trial_progress",
    "wire": "channel",
    "asks": "control",
    "asked": "query",
    "station": "worker_context",
    "setup": "context",
    "material": "figure_data",
    "stretch": "regime_span, or scale",
    "stretches": "regime_spans",
    "eight": "images8x8",
    "mine": "packaged, or user",
    "relabel": "retarget",
    "leftover": "orphan",
    "shortfall": "no_target",
    "complaint": "error",
    "crossing": "first_hit",
    "likely": "priority",
}
ALLOWED = {
    "style_sheet": "matplotlib's name for a file of settings",
    "setup": "the function that Sphinx calls in docs/conf.py",
    "setup_context": "a method that torch calls of an autograd.Function",
}


def words(name: str) -> list[str]:
    """The parts of an identifier, at underscores and capitals, in small letters."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def definitions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that a file defines, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


def retired(path: Path, source: str) -> list[str]:
    """The names with retired words: of the file, of its folder, and those that it defines."""
    names = [(path.stem, 1), (path.parent.name, 1), *definitions(ast.parse(source))]
    return [
        f"{path}:{line}: {name} (instead of {word!r}: {better})"
        for name, line in names
        if name not in ALLOWED
        for word, better in RETIRED.items()
        if {word, f"{word}s"} & {*words(name)}
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_identifier_has_a_retired_word(folder: str) -> None:
    lines = [
        line
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in retired(path.relative_to(ROOT), path.read_text("utf-8"))
    ]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("board.py", ""),
        ("landing/csv.py", ""),
        ("a.py", "class WorkerStation: ..."),
        ("a.py", "def one_of(x): ..."),
        ("a.py", "def f(looks): ..."),
        ("a.py", "for found in (): ..."),
        ("a.py", "_SOME: int = 1"),
        ("a.py", "x.lastWord = 1"),
        ("a.py", "import json as wire"),
    ],
)
def test_a_retired_word_is_recognized(name: str, source: str) -> None:
    assert retired(Path(name), source)


def test_a_part_of_a_longer_word_is_no_retired_word() -> None:
    assert not retired(Path("a.py"), "lookup = sometimes = neighbourhood = foundation = 1")


def test_every_exception_is_used() -> None:
    defined = {
        name
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for name, _ in definitions(ast.parse(path.read_text("utf-8")))
    }
    assert {*ALLOWED} <= defined
