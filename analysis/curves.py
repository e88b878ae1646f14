"""Curves of steps to target against batch size, from the trials of a results dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis import edges as edge_check
from analysis.groups import Grouping, Wide, grouping, label, labels, target, widen
from analysis.looks import every_second
from analysis.points import SEARCHED, Point, Rows, Runs, best_of, of_runs
from results.errors import ResultsError
from results.target import Target


class UnequalLooksError(ResultsError):
    """Trials whose evaluation grids differ cannot stand in one comparison."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One workload, data set, target and training algorithm, over batch sizes."""

    group: Mapping[str, Any]
    """Its group columns: workload, dataset, optimizer, schedule, … as they are in the results."""
    label: str
    """What tells it from the other curves of the same call."""
    target: Target | None
    points: tuple[Point, ...]
    """One a batch size, ascending; a batch size where nothing reached the target is among them."""
    trials: int
    """N: feasible trials a point; 1 where every run is a point of its own."""
    repeats: bool = False
    """Whether the points are repeated runs, not the best of a search."""
    dimensions: int | None = None
    """Tuned metaparameters, where the studies are known."""
    evaluation_ratio: float | None = None
    example_unit: str = "example"
    notes: tuple[str, ...] = ()
    coarse: Curve | None = None
    """The same curve with every second look dropped, where measurements are given."""

    @property
    def batch_sizes(self) -> list[int]:
        return [point.batch_size for point in self.points]

    @property
    def censored(self) -> list[int]:
        """Batch sizes at which nothing reached the target."""
        return [point.batch_size for point in self.points if point.censored]

    def to_fit(self) -> tuple[np.ndarray, np.ndarray]:
        """Batch sizes and bracket middles in steps, one for each point of the fit; (n,) each."""
        pairs = [(point.batch_size, at) for point in self.points for at in point.middles]
        both = np.array(pairs, dtype=float).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def to_frame(self) -> pd.DataFrame:
        """A row a batch size: what is shown, and the error bar."""
        return pd.DataFrame([{**self.group, **_row(point)} for point in self.points])


def curves(
    trials: pd.DataFrame,
    *,
    studies: pd.DataFrame | None = None,
    measurements: pd.DataFrame | None = None,
    by: Sequence[str] | None = None,
    baseline: str | None = None,
) -> list[Curve]:
    """Divide ``trials`` into curves and take each batch size's steps to target.

    Rows of role search and extension are minimized over: the best of the first N feasible trials
    in the sequence's order, N the largest number that all batch sizes of the curve share. Rows of
    role repeat are runs, each a point of its own. ``transfer`` rows are left alone.

    Args:
        trials: rows with the columns of the trials table; absent ones are null.
        studies: their studies, for the edge check, tuned dimensions, and batch sizes not run yet.
        measurements: theirs, so that ``regimes`` can drop every second look.
        by: columns of the training algorithm that make a curve of their own (default: all);
            the others are minimized over. Workload, data set, target and workload fields that
            vary always group.
        baseline: the curve with this label, or with this value in a column, comes first.

    Raises:
        UnequalLooksError: trials of one workload and data set have unequal evaluation grids.
        ResultsError: no trials, an unknown column in ``by``, or no such baseline.
    """
    if trials.empty:
        raise ResultsError("no trials to make a curve of", hint="see batchscale status")
    wide = widen(trials)
    newest, note = _newest(wide.frame, by or ())
    wide = replace(wide, frame=_in_order(newest))
    groups = grouping(wide, by)
    _check_looks(wide.frame)
    if studies is not None:
        studies = None if studies.empty else widen(studies).frame
    found = _curves(wide, groups, studies)
    if measurements is not None and len(measurements):
        thinned = replace(wide, frame=every_second(wide.frame, measurements))
        coarse = _curves(thinned, groups, None)
        found = [
            replace(curve, coarse=None if curve.repeats else other)
            for curve, other in zip(found, coarse, strict=True)
        ]
    if note:
        found = [replace(curve, notes=(*curve.notes, note)) for curve in found]
    return found if baseline is None else _baseline_first(found, baseline)


def _curves(trials: Wide, groups: Grouping, studies: pd.DataFrame | None) -> list[Curve]:
    runs = Runs.of(trials.frame)
    parts = list(groups.split(trials.frame))
    texts = labels([group for group, _ in parts], [str(target(runs.rows, r)) for _, r in parts])
    return [
        _curve(group, text, runs, rows, groups.over, studies)
        for (group, rows), text in zip(parts, texts, strict=True)
    ]


def _curve(
    group: dict[str, Any],
    text: str,
    runs: Runs,
    rows: Rows,
    over: tuple[str, ...],
    studies: pd.DataFrame | None,
) -> Curve:
    role = runs.rows["role"][rows]
    searched, repeats = rows[np.isin(role, SEARCHED)], rows[role == "repeat"]
    notes: list[str] = []
    if not len(searched):
        points, trials = _repeated(runs, repeats), 1
    else:
        if len(repeats):
            notes.append(f"{len(repeats)} repeated runs are not part of the minima")
        points, trials = _searched(runs, searched, over, notes)
    dimensions = None
    if studies is not None:
        here = {study for study in runs.rows["study"][rows] if isinstance(study, str)}
        mine = studies[studies["study"].isin(here)]
        points = [_with_edges(point, runs, searched, mine) for point in points]
        if "dimensions" in mine and mine["dimensions"].notna().any():
            dimensions = int(mine["dimensions"].max())
        notes += _edge_notes(points)
        waiting = _not_run(group, points, studies)
        if waiting:
            notes.append(f"not run yet: {_sizes(waiting)}")
    censored = [point.batch_size for point in points if point.censored]
    if censored:
        notes.append(f"nothing reached the target at {_sizes(censored)}")
    ratios = runs.rows["evaluation_ratio"][rows]
    units = [unit for unit in runs.rows["example_unit"][rows] if isinstance(unit, str)]
    return Curve(
        group=group,
        label=text,
        target=target(runs.rows, rows),
        points=tuple(points),
        trials=trials,
        repeats=not len(searched),
        dimensions=dimensions,
        evaluation_ratio=next((float(one) for one in ratios if _or_none(one)), None),
        example_unit=units[0] if units else "example",
        notes=tuple(notes),
    )


def _repeated(runs: Runs, rows: Rows) -> list[Point]:
    sizes = runs.rows["batch_size"][rows].astype(np.int64)
    return [of_runs(runs, int(size), rows[sizes == size]) for size in np.unique(sizes)]


def _searched(
    runs: Runs, rows: Rows, over: tuple[str, ...], notes: list[str]
) -> tuple[list[Point], int]:
    """The minima of each batch size at the N that all share, and that N (a point)."""
    searches: dict[int, dict[str, list[int]]] = {}
    sizes = runs.rows["batch_size"]
    for row in rows:
        algorithm = label({name: runs.rows[name][row] for name in over}, over)
        searches.setdefault(int(sizes[row]), {}).setdefault(algorithm, []).append(row)
    parts = {
        size: {name: np.array(some) for name, some in sorted(each.items())}
        for size, each in sorted(searches.items())
    }
    counts = {
        size: {name: len(runs.feasible(some)) for name, some in each.items()}
        for size, each in parts.items()
    }
    known = [count for each in counts.values() for count in each.values() if count]
    n = min(known, default=0)
    points = [best_of(runs, size, list(each.values()), n, over) for size, each in parts.items()]
    if known and max(known) > n:
        few = [size for size, each in counts.items() if n in each.values()]
        notes.append(
            f"each point is the best of the first {n} feasible trials: "
            f"{_sizes(few)} {'has' if len(few) == 1 else 'have'} no more, others up to {max(known)}"
        )
    if over:
        notes += _minimized(over, counts, n)
    barren = [size for size, each in counts.items() if not any(each.values())]
    if barren:
        notes.append(f"no trial stayed feasible at {_sizes(barren)}")
    return points, max((point.trials for point in points), default=0)


def _minimized(over: Sequence[str], counts: Mapping[int, Mapping[str, int]], n: int) -> list[str]:
    algorithms = dict.fromkeys(name for each in counts.values() for name in each)
    each = ", ".join(
        f"{name or 'none'} (N = {n if any(c.get(name) for c in counts.values()) else 0})"
        for name in algorithms
    )
    notes = [f"minimized over {' and '.join(over)}: {each}"]
    lacking = [size for size, each in counts.items() if len(each) < len(algorithms)]
    if lacking:
        notes.append(f"fewer training algorithms ran at {_sizes(lacking)}")
    return notes


def _with_edges(point: Point, runs: Runs, rows: Rows, studies: pd.DataFrame) -> Point:
    """``point`` with the dimensions on whose edge its optimum sits."""
    here = rows[runs.rows["trial"][rows] == point.trial] if point.trial is not None else rows[:0]
    if not len(here):
        return point
    study = runs.rows["study"][here[0]]
    space = studies.loc[studies["study"] == study, "search_space"].dropna()
    if space.empty:
        return point
    mine = rows[runs.rows["study"][rows] == study]
    hits = mine[runs.steps[mine] <= runs.cutoff(mine, runs.kept(mine))]
    near = edge_check.near_best(
        runs.steps[hits].tolist(),
        [edge_check.parameters(text) for text in runs.rows["metaparameters"][hits]],
    )
    budget = _or_none(runs.rows["budget_steps"][here[0]])
    sides = edge_check.edge(space.iloc[-1], point.best, near, budget_steps=budget)
    return replace(point, edges=tuple(sides))


def _not_run(group: Mapping[str, Any], points: list[Point], studies: pd.DataFrame) -> list[int]:
    """Batch sizes of studies of this curve that have no trial yet."""
    mine = pd.Series(True, studies.index)
    for name, value in group.items():
        if name in studies:
            cells = studies[name]
            mine &= cells.isna() if value is None else cells.astype(object) == value
    tested = {point.batch_size for point in points}
    return sorted(set(map(int, studies.loc[mine, "batch_size"])) - tested)


def _edge_notes(points: Iterable[Point]) -> list[str]:
    places: dict[str, list[int]] = {}
    for point in points:
        for side in point.edges:
            if side.verdict == "edge":
                places.setdefault(str(side), []).append(point.batch_size)
    return [
        f"the optimum sits on the edge of its search space, {side}, at {_sizes(sizes)}"
        for side, sizes in places.items()
    ]


def _in_order(trials: pd.DataFrame) -> pd.DataFrame:
    """Without a role a row is a search's; without an index rows are in their own order."""
    index = pd.to_numeric(trials["index"]).astype(float)
    return trials.assign(
        role=trials["role"].where(trials["role"].notna(), "search"),
        index=index.fillna(pd.Series(np.arange(len(trials), dtype=float), trials.index)),
    )


def _newest(trials: pd.DataFrame, by: Sequence[str]) -> tuple[pd.DataFrame, str | None]:
    """The trials of each workload's newest code, and a note if others are left out.

    Trials of an earlier version answer another question. ``by`` may ask for each version.
    """
    if "workload_version" in by or trials["workload_version"].nunique() < 2:
        return trials, None
    code = trials["workload_version"].where(trials["workload_version"].notna(), "")
    keys = [trials[name].astype(str) for name in ("workload", "dataset", "fields")]
    each = trials.assign(code=code).groupby([*keys, "code"], sort=False, dropna=False)
    latest = each["time"].transform("max")
    old = latest < latest.groupby(keys, sort=False, dropna=False).transform("max")
    if not old.any():
        return trials, None
    note = f"{int(old.sum())} trials of an earlier version of the workload's code are left out"
    return trials[~old].reset_index(drop=True), note


def _check_looks(trials: pd.DataFrame) -> None:
    for keys, rows in trials.groupby(["workload", "dataset"], dropna=False, sort=False):
        ratios = Counter(rows["evaluation_ratio"].dropna().astype(float).round(12))
        if len(ratios) > 1:
            usual = ratios.most_common(1)[0][0]
            raise UnequalLooksError(
                f"trials of {keys[0]} were evaluated on unequal grids, with ratios "
                + " and ".join(f"{ratio:g}" for ratio in sorted(ratios)),
                hint=f'compare those of one: --where "evaluation_ratio = {usual:g}"',
            )


def _baseline_first(found: list[Curve], baseline: str) -> list[Curve]:
    first = [
        curve
        for curve in found
        if baseline == curve.label or baseline in map(str, curve.group.values())
    ]
    if not first:
        raise ResultsError(
            f"no curve is called {baseline!r}",
            hint=f"curves: {', '.join(curve.label for curve in found)}",
        )
    return first + [curve for curve in found if curve not in first]


def _sizes(sizes: Sequence[int]) -> str:
    return ("batch size " if len(sizes) == 1 else "batch sizes ") + ", ".join(map(str, sizes))


def _or_none(value: Any) -> float | None:
    return None if value is None or value is pd.NA or value != value else float(value)


def _row(point: Point) -> dict[str, Any]:
    low, high = point.bar or (None, None)
    return {
        "batch_size": point.batch_size,
        "steps": point.steps,
        "low": low,
        "high": None if high == np.inf else high,
        "last_miss": point.last_miss,
        "examples": None if point.steps is None else point.steps * point.batch_size,
        "trials": point.trials,
        "hits": point.hits,
        "ran": point.ran,
        "infeasible": point.infeasible,
        "learning_rate": point.learning_rate,
        "effective_learning_rate": point.effective_learning_rate,
        "edges": "; ".join(map(str, point.edges)),
    }
