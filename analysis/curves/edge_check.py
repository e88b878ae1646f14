"""The edge check of a curve's points, against their studies' search spaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd

from analysis.curves import edges
from analysis.curves.points import Point
from analysis.curves.runs import Rows, Runs, number
from analysis.formatting import sizes


def of_trials(studies: pd.DataFrame, runs: Runs, rows: Rows) -> pd.DataFrame:
    """The ``studies`` that searched as the trials ``rows`` were: one may have searched otherwise
    in another experiment."""
    if "search_id" not in studies:
        return studies
    searched = {str(search) for search in runs.rows["search_id"][rows] if isinstance(search, str)}
    return studies[studies["search_id"].isna() | studies["search_id"].isin(searched)]


def spaces(studies: pd.DataFrame) -> dict[str, str]:
    """Each study's search space, of its latest row: where it was enlarged, the larger one."""
    known = studies[studies["search_space"].notna()]
    known = known.sort_values("time", kind="stable", na_position="first")
    return dict(zip(known["study"], known["search_space"], strict=True))


def with_edges(point: Point, runs: Runs, rows: Rows, space: Mapping[str, str]) -> Point:
    """``point`` with the dimensions on whose edge its optimum sits, or a near-best trial.

    ``space``: by study, from ``spaces``.
    """
    study = point.study
    if point.trial is None or study is None or study not in space:
        return point
    mine = rows[runs.rows["study"][rows] == study]
    hits = mine[runs.steps[mine] <= runs.cutoff(mine, runs.kept(mine))]
    near = edges.near_best(
        runs.steps[hits].tolist(),
        [edges.parameters(text) for text in runs.rows["metaparameters"][hits]],
    )
    (here,) = mine[runs.rows["trial"][mine] == point.trial][:1]
    budget = number(runs.rows["budget_steps"][here])
    found = edges.edge(space[study], point.best, near, budget_steps=budget)
    return replace(point, edges=tuple(found))


def notes(points: Iterable[Point]) -> list[str]:
    """A sentence for each end of a dimension on which an optimum sits, or a near-best trial."""
    places: dict[tuple[str, str], list[int]] = {}
    for point in points:
        for side in point.edges:
            places.setdefault((side.verdict, str(side)), []).append(point.batch_size)
    words = {
        "edge": "the optimum sits on the edge of its search space",
        "near": "near-best trials sit on the edge of their search space",
    }
    return [
        f"{words[verdict]}, {where}, at {sizes(some)}"
        for (verdict, where), some in sorted(places.items(), key=lambda item: item[0][0])
    ]
