"""The paper's figures of packaged data show what they showed: see ``tests.analysis.reference``."""

from __future__ import annotations

from functools import cache

import pytest

import results
from analysis import figures
from analysis.material import Asked, Material
from tests.analysis.reference import FOLDER, hold

SOURCES = {
    "published": ("published", "dataset IN ('mnist', 'lm1b')"),
    "sgd": ("own", "experiment = 'gallery-goals' AND optimizer = 'sgd'"),
    "goals": ("own", "experiment = 'gallery-goals' AND optimizer <> 'nesterov'"),
}
DRAWN = (
    ("published", "shallue-fig1"),
    ("published", "shallue-fig3"),
    ("published", "shallue-fig4"),
    ("sgd", "shallue-fig2"),
    ("goals", "shallue-fig1"),
    ("goals", "shallue-fig4"),
    ("goals", "shallue-fig8"),
    ("goals", "shallue-fig9"),
    ("goals", "shallue-fig11"),
    ("goals", "shallue-best-learning-rate"),
    ("goals", "shallue-best-momentum"),
)
KEPT = {"shallue-fig9": ["curve", "row", "batch_size", "became", "steps", "best"]}
"""Columns of a figure that has many: those that say what it shows."""


@cache
def material(source: str) -> Material:
    """Packaged data, asked once for all of its figures."""
    root, where = SOURCES[source]
    return Material([results.open(root)], Asked(where=where))


@pytest.mark.parametrize(("source", "name"), DRAWN)
def test_numbers_do_not_change_silently(source: str, name: str) -> None:
    frame = figures.numbers(name, material(source))
    hold(f"{source}-{name}", frame[KEPT[name]] if name in KEPT else frame)


def test_each_reference_is_of_a_figure_that_is_guarded() -> None:
    there = {path.stem for path in FOLDER.glob("*-shallue-*.csv")}
    assert there == {f"{source}-{name}" for source, name in DRAWN}
