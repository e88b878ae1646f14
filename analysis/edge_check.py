"""The edge check of a curve's points, against their studies' search spaces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from analysis import edges
from analysis.points import Point
from analysis.runs import Rows, Runs, number
from analysis.words import sizes


def with_edges(point: Point, runs: Runs, rows: Rows, studies: pd.DataFrame) -> Point:
    """``point`` with the dimensions on whose edge its optimum sits, or a near-best trial.

    The space is that of the study's latest row: where it was enlarged, the larger one.
    """
    here = rows[runs.rows["trial"][rows] == point.trial] if point.trial is not None else rows[:0]
    if not len(here):
        return point
    study = runs.rows["study"][here[0]]
    spaces = studies.loc[studies["study"] == study, ["search_space", "time"]].dropna(
        subset="search_space"
    )
    if spaces.empty:
        return point
    space = spaces.sort_values("time", kind="stable", na_position="first")["search_space"].iloc[-1]
    mine = rows[runs.rows["study"][rows] == study]
    hits = mine[runs.steps[mine] <= runs.cutoff(mine, runs.kept(mine))]
    near = edges.near_best(
        runs.steps[hits].tolist(),
        [edges.parameters(text) for text in runs.rows["metaparameters"][hits]],
    )
    budget = number(runs.rows["budget_steps"][here[0]])
    return replace(point, edges=tuple(edges.edge(space, point.best, near, budget_steps=budget)))


def notes(points: Iterable[Point]) -> list[str]:
    """A sentence for each end of a dimension on which an optimum sits, or a near-best trial."""
    places: dict[tuple[str, str], list[int]] = {}
    for point in points:
        for side in point.edges:
            places.setdefault((side.verdict, side.where), []).append(point.batch_size)
    words = {
        "edge": "the optimum sits on the edge of its search space",
        "near": "near-best trials sit on the edge of their search space",
    }
    return [
        f"{words[verdict]}, {where}, at {sizes(some)}"
        for (verdict, where), some in sorted(places.items(), key=lambda item: item[0][0])
    ]
