"""``python -m tests.analysis.figures_numbers``: renew the numbers that guard the paper's figures.

Each of ``REFERENCE`` has the CSV that its figure of packaged data had when it was last looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd

import results
from analysis import figures
from analysis.material import Asked, Material

FOLDER = Path(__file__).parent / "figures_reference"
SOURCES = {
    "published": ("published", "dataset IN ('mnist', 'lm1b')"),
    "sgd": ("own", "experiment = 'gallery-goals' AND optimizer = 'sgd'"),
    "goals": ("own", "experiment = 'gallery-goals' AND optimizer <> 'nesterov'"),
}
DRAWN = {
    "published": ("shallue-fig1", "shallue-fig3", "shallue-fig4"),
    "sgd": ("shallue-fig2",),
    "goals": (
        "shallue-fig1",
        "shallue-fig4",
        "shallue-fig8",
        "shallue-fig9",
        "shallue-fig11",
        "shallue-best-learning-rate",
        "shallue-best-momentum",
    ),
}
KEPT = {
    "shallue-fig9": ["curve", "row", "batch_size", "became", "steps", "best"],
}
"""Columns of a figure that has many: those that say what it shows."""


@cache
def material(source: str) -> Material:
    """Packaged data, asked once for all of its figures."""
    root, where = SOURCES[source]
    return Material([results.open(root)], Asked(where=where))


def every() -> Iterator[tuple[str, str]]:
    """The source and name of each figure that is guarded."""
    for source, names in DRAWN.items():
        yield from ((source, name) for name in names)


def numbers(source: str, name: str) -> pd.DataFrame:
    """What the figure's CSV has."""
    frame = figures.numbers(name, material(source))
    return frame[KEPT[name]] if name in KEPT else frame


def path(source: str, name: str) -> Path:
    """Where its reference lies."""
    return FOLDER / f"{source}-{name}.csv"


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for source, name in every():
        numbers(source, name).to_csv(path(source, name), index=False, float_format="%.10g")
        print(path(source, name).relative_to(Path.cwd()))


if __name__ == "__main__":
    main()
