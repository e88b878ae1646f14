"""Names that were retired for the field's own stay retired."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("batchscale", "workloads", "experiments", "results", "analysis")
MODULES = {
    "aside": "paused_trials",
    "board": "mailbox",
    "complaints": "errors",
    "course": "trial_progress",
    "crossings": "first_hits",
    "eight": "images8x8",
    "known": "recorded",
    "landing": "commit_import",
    "leftovers": "orphans",
    "likely": "priority",
    "looks": "evaluation_grid",
    "material": "figure_data",
    "network": "download",
    "pulse": "heartbeat",
    "reached": "retarget",
    "relabel": "retarget",
    "room": "space_edges",
    "searched": "search_points",
    "shortfall": "no_target",
    "stretches": "regime_spans",
    "telling": "progress",
    "tried": "trial_outcomes",
    "words": "formatting",
}
CLASSES = {
    "Asked": "Query",
    "Asks": "Control",
    "Board": "Mailbox",
    "Course": "TrialProgress",
    "Crossings": "FirstHits",
    "Group": "Ranks",
    "Looks": "Evaluations",
    "Material": "FigureData",
    "Order": "BatchOrder",
    "OwnOptimizer": "UserOptimizer",
    "Pulse": "Heartbeat",
    "Setup": "StudyContext",
    "Shortfall": "NoTarget",
    "Station": "WorkerContext",
    "Stretch": "RegimeSpan",
    "Sums": "MetricSums",
    "Tried": "TrialOutcome",
    "Walk": "BracketRefinement",
    "Wire": "Channel",
    "Word": "Message",
}


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def retired(path: Path, source: str) -> list[str]:
    """What of a file has a retired name, with the name that it should have."""
    found = []
    if path.stem in MODULES:
        found.append(f"module {path.stem}: {MODULES[path.stem]}")
    found += [
        f"{path.name}:{node.lineno} class {node.name}: {CLASSES[node.name]}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and node.name in CLASSES
    ]
    return found


def test_no_retired_name_comes_back() -> None:
    found = [line for path in modules() for line in retired(path, path.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "source"), [("board.py", ""), ("mailbox.py", "class Board: ..."), ("looks.py", "")]
)
def test_one_that_comes_back_is_seen(name: str, source: str) -> None:
    assert retired(Path(name), source)
