"""Figures of packaged data show what they showed: see ``tests.analysis.reference``."""

from __future__ import annotations

from functools import cache

import pytest

import results
from analysis import figures
from analysis.figure_data import FigureData, Query
from tests.analysis.reference import FOLDER, hold
from tests.marks import quick

SOURCES = {
    "published": ("published", "dataset IN ('mnist', 'lm1b')"),
    "sgd": ("own", "experiment = 'gallery-goals' AND optimizer = 'sgd'"),
    "goals": ("own", "experiment = 'gallery-goals' AND optimizer <> 'nesterov'"),
    "models": ("own", "experiment = 'gallery-models' AND batch_size IN (16, 128, 1024)"),
    "sets": (
        "own",
        "experiment IN ('gallery-goals', 'gallery-mnist', 'gallery-fashion') "
        "AND optimizer = 'sgd' AND batch_size IN (32, 128, 1024)",
    ),
    "subsets": ("own", "experiment = 'gallery-subsets' AND batch_size IN (32, 128, 2048)"),
    "smoothing": ("own", "experiment = 'gallery-smoothing' AND batch_size IN (16, 128, 1024)"),
    "demo": (
        "own",
        "experiment = 'digits' AND optimizer = 'momentum' AND batch_size IN (1, 32, 1024)",
    ),
    "noise": ("own", "experiment = 'noise-fashion' AND batch_size IN (16, 128, 1024)"),
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
    ("models", "shallue-fig3"),
    ("models", "shallue-fig10"),
    ("sets", "shallue-fig5"),
    ("subsets", "shallue-fig6"),
    ("smoothing", "shallue-fig7"),
    ("published", "collapse"),
    ("published", "crossover"),
    ("published", "techniques"),
    ("demo", "steps"),
    ("demo", "learning_rate"),
    ("demo", "rate_map"),
    ("demo", "budget"),
    ("demo", "rates"),
    ("demo", "search"),
    ("noise", "noise"),
)
KEPT = {
    "shallue-fig9": ["curve", "row", "batch_size", "became", "steps", "best"],
    "techniques": ["technique", "baseline", "quantity", "ratio_value", "compared"],
    "crossover": ["first", "second", "batch_size", "target", "ratio", "fitted_ratio"],
}
"""Columns of a figure that has many: those that say what it shows. Bands of many fits are left
out: the last digits of each fit depend on the processor."""


@cache
def data_of(source: str) -> FigureData:
    """Packaged data, asked once for all of its figures."""
    root, where = SOURCES[source]
    return FigureData(Query(sources=[results.open(root)], where=where))


@pytest.mark.parametrize(("source", "name"), quick(DRAWN, 8))
def test_numbers_do_not_change_silently(source: str, name: str) -> None:
    frame = figures.numbers(name, data_of(source))
    hold(f"{source}-{name}", frame[KEPT[name]] if name in KEPT else frame)


def test_each_reference_is_of_a_figure_that_is_guarded() -> None:
    committed = {path.stem for path in FOLDER.glob("*-*.csv")}
    assert committed == {f"{source}-{name}" for source, name in DRAWN}


def test_every_figure_is_guarded() -> None:
    committed = {path.stem for path in FOLDER.glob("*.csv")}
    assert all(
        any(stem == name or stem.endswith(f"-{name}") for stem in committed)
        for name in figures.names()
    )
