"""Every mark of a figure has an entry in its legend, and only those that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.legend import Legend

from analysis import Curve, Point, figures
from analysis.curves.estimators import MEDIAN
from analysis.curves.runs import Repeats
from tests.analysis.legible import faults, figure_of
from tests.marks import quick

pytestmark = pytest.mark.usefixtures("closed_figures")
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
FEW = "fewer than 4 trials reached the target"
NEVER = "a search never reached the target"
REPEATS = "too few repeats reached the target"
BAR, RUNS, OPEN = "error bar of a point", "least to most of the runs", "open end of an interval"


def curve(points: Sequence[Point], **fields: Any) -> Curve:
    given: dict[str, Any] = {
        "group": {"optimizer": "sgd", "workload": "w"}, "label": "sgd", "target": None,
        "points": tuple(points), "trials": 16,
    }  # fmt: skip
    return Curve(**{**given, **fields})


def best_point(size: int, **more: Any) -> Point:
    steps = round(50 * (1 + 64 / size))
    given: dict[str, Any] = {
        "batch_size": size, "steps": steps, "minimum": steps, "trials": 16, "hits": 2,
        "fourth": steps * 1.4, "middles": (steps,),
    }  # fmt: skip
    return Point(**{**given, **more})


def entries(name: str, curves: Sequence[Curve], **more: Any) -> set[str]:
    figure = figure_of(figures.draw(name, curves, **more))
    assert faults(figure) == []
    texts = (text for legend in figure.findobj(Legend) for text in legend.get_texts())
    return {text.get_text().replace("\n", " ") for text in texts}


@pytest.mark.slow
def test_a_bar_that_is_open_above_says_why() -> None:
    closed = [best_point(size) for size in SIZES]
    few = [best_point(SIZES[0], fourth=None), *closed[1:]]
    for name in ("steps", "shallue-fig1"):
        assert FEW not in entries(name, [curve(closed)])
        assert FEW in entries(name, [curve(few)])
    assert BAR in entries("steps", [curve(closed)])


@pytest.mark.slow
def test_of_other_estimators_and_of_repeats_too() -> None:
    closed = [best_point(size) for size in SIZES]
    spread: Any = (closed[0].steps, np.inf)
    never = replace(closed[0], estimator=MEDIAN, spread=spread)
    said = entries("steps", [curve([never, *closed[1:]], estimator=MEDIAN)])
    assert NEVER in said
    assert FEW not in said
    steps = float(closed[0].steps or 0)
    open_repeats = Repeats(steps=(steps, steps * 1.1, float("inf")))
    repeated = [replace(closed[0], repeats=open_repeats), *closed[1:]]
    assert REPEATS in entries("steps", [curve(repeated)])


@pytest.mark.slow
def test_runs_and_points_without_bars() -> None:
    steps = [round(50 * (1 + 64 / size)) for size in SIZES]
    runs = [
        Point(batch_size=size, steps=at, runs=(at, at + 5.0), middles=(at, at + 5.0), trials=2)
        for size, at in zip(SIZES, steps, strict=True)
    ]
    assert RUNS in entries("steps", [curve(runs)])
    alone = [
        Point(batch_size=size, steps=at, middles=(at,))
        for size, at in zip(SIZES, steps, strict=True)
    ]
    assert not {BAR, RUNS, FEW} & entries("steps", [curve(alone)])


@pytest.mark.parametrize("name", quick(["steps", "forest"], 1))
def test_an_interval_that_is_open_has_its_arrow_explained(name: str) -> None:
    # Flat throughout: where perfect scaling ends is not seen.
    steps = (51, 49, 50, 52, 50, 49, 51, 50)
    flat = [
        best_point(size, steps=at, minimum=at, fourth=70, middles=(at,))
        for size, at in zip(SIZES, steps, strict=True)
    ]
    whole = [
        best_point(2**i, steps=at, minimum=at, fourth=1.02 * at, middles=(at,))
        for i, at in enumerate(5000 * (1 + 150 / 2.0 ** np.arange(16)))
    ]
    assert OPEN in entries(name, [curve(flat)])
    assert OPEN not in entries(name, [curve(whole)])
