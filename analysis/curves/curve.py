"""Curves of steps to target against batch size, from the trials of a results dataset."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves import edges, samples
from analysis.curves.estimators import MINIMUM, EstimatorError
from analysis.curves.groups import Grouping, Wide, grouping, labels, target, widen
from analysis.curves.points import BRANCH, SEARCH_ROLES, Point, tabulate
from analysis.curves.runs import Rows, Runs, number, parameters
from analysis.curves.search_points import points
from analysis.curves.thinned_evaluations import every_second
from analysis.formatting import unit
from analysis.notes import Note, note_at
from results.counts import count
from results.errors import ResultsError
from results.failures import failures
from results.searches import current
from results.targets.evaluations import Evaluations
from results.targets.target import Target

_MOST_NAMED = 6
"""Curves that an error names."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One workload, data set, target and training algorithm, over batch sizes."""

    group: Mapping[str, Any]
    """Its group columns: workload, dataset, optimizer, schedule, … as they are in the results."""
    label: str
    """The values that distinguish it from the other curves of the same call."""
    target: Target | None
    points: tuple[Point, ...]
    """One a batch size, ascending; a batch size where nothing reached the target is among them."""
    trials: int
    """N: feasible trials a point; 1 where every run is a point of its own."""
    repeats: bool = False
    """Whether the points are repeated runs, not the best of a search."""
    estimator: str = MINIMUM
    """The estimator of a search's points: see ``analysis.curves.estimators``."""
    withheld: str | None = None
    """Why the trials are not drawn alike, so that intervals from single trials are withheld."""
    dimensions: int | None = None
    """Tuned metaparameters, where the studies are known."""
    scaled_dimensions: int | None = None
    """Those of them that have a scale, not choices: where their spaces are known, else all."""
    studies: tuple[str, ...] = ()
    """The trials of its points."""
    evaluation_ratio: float | None = None
    example_unit: str = "example"
    notes: tuple[Note, ...] = ()
    coarse: Curve | None = None
    """The same curve with every second evaluation dropped, where measurements are given."""

    @property
    def batch_sizes(self) -> list[int]:
        return [point.batch_size for point in self.points]

    @property
    def censored(self) -> list[int]:
        """Batch sizes at which nothing reached the target."""
        return [point.batch_size for point in self.points if point.censored]

    @property
    def relative(self) -> bool:
        """Whether its steps are only proportional to numbers of steps, as values below one must be:
        the source does not say how many examples an epoch has."""
        return any(point.steps is not None and 0 < point.steps < 1 for point in self.points)

    @property
    def grows(self) -> bool:
        """Whether the batch size of a point grew during training: then B·S is not its examples."""
        return any(point.phases is not None for point in self.points)

    def to_fit(self) -> tuple[np.ndarray, np.ndarray]:
        """Batch sizes and bracket middles in steps, one for each point of the fit; (n,) each."""
        pairs = [(point.batch_size, steps) for point in self.points for steps in point.middles]
        columns = np.array(pairs, dtype=float).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    def to_frame(self) -> pd.DataFrame:
        """A row a batch size: its steps to target, and the error bar."""
        return pd.DataFrame([{**self.group, **row} for row in self.tabulate()])

    def tabulate(self) -> list[dict[str, Any]]:
        """The same as plain values, without the group columns: see ``points.tabulate``."""
        return [{**tabulate(point), "estimator": self.named} for point in self.points]

    @property
    def named(self) -> str:
        """The estimator's name, or ``run``."""
        return "run" if self.repeats else self.estimator


def curves(
    trials: pd.DataFrame,
    *,
    studies: pd.DataFrame | None = None,
    measurements: pd.DataFrame | Evaluations | None = None,
    by: Sequence[str] | None = None,
    baseline: str | None = None,
    estimator: str | None = None,
    search: str = samples.PRESENT,
) -> list[Curve]:
    """Divide ``trials`` into curves and take each batch size's steps to target.

    Rows of role search and extension are minimized over: the best of the first N feasible trials
    in the sequence's order, N the largest number that all batch sizes of the curve share, or what
    another estimator makes of them. Rows of role repeat never are: beside a search they are its
    best configuration trained again, else runs, each a point of its own.

    Args:
        trials: rows with the columns of the trials table; absent ones are null.
        studies: their studies, for the edge check, tuned dimensions, and batch sizes not run yet.
        measurements: theirs, so that ``regimes`` can drop every second evaluation: a frame, or
            ``results.targets.evaluations.Evaluations``, which does not hold them.
        by: columns of the training algorithm that make a curve of their own (default: all);
            the others are minimized over. Workload, data set, target and workload fields that
            vary always group.
        baseline: the curve with this label, or with this value in a column, comes first.
        estimator: the estimator of a batch size (``estimators.NAMES``); by default as the trials'
            column says, else the minimum.
        search: ``present``: the trials of each study's latest search (``samples``), or
            of all its seeds for the median of searches; ``all``: those of all its searches.

    Raises:
        EstimatorError: no such estimator, or trials that do not carry it.
        ResultsError: no trials, an unknown column in ``by``, or no such baseline.
    """
    if "role" in trials:
        trials = trials[trials["role"].ne(BRANCH)]
    if trials.empty:
        raise ResultsError("no trials to make a curve of", hint="see batchscale status")
    wide, of_code = prepared(trials, by)
    sample = samples.sample(wide.frame, studies, scope=search, estimator=estimator)
    wide = replace(wide, frame=sample.trials)
    if wide.frame.empty:
        raise ResultsError(
            "no trial belongs to the present search of its study: all of these "
            f"({count(len(trials), 'trial')}) were drawn by other searches",
            hint="--search all counts all of them; batchscale status says how far each search is",
        )
    groups = grouping(wide, by)
    if studies is not None:
        studies = None if studies.empty else widen(studies).frame
    made = _curves(wide, groups, studies, estimator)
    if isinstance(measurements, pd.DataFrame) and measurements.empty:
        measurements = None
    if measurements is not None:
        if isinstance(measurements, pd.DataFrame):
            measurements = Evaluations.of_frame(measurements)
        thinned = every_second(wide.frame, measurements)
        if thinned is not None:
            made = _with_coarse(made, replace(wide, frame=thinned), groups, estimator)
    made = [
        replace(curve, notes=(*curve.notes, *of_code, *sample.notes(curve.studies)))
        for curve in made
    ]
    return baseline_first(made, baseline)


def baseline_first(curves: Sequence[Curve], baseline: str | None) -> list[Curve]:
    """The curves with those that ``baseline`` names first.

    Raises:
        ResultsError: it names none.
    """
    first = [] if baseline is None else [c for c in curves if is_baseline(c, baseline)]
    if baseline is not None and not first:
        named = "; ".join(curve.label for curve in curves[:_MOST_NAMED])
        more = f"; {len(curves) - _MOST_NAMED:,} more" if len(curves) > _MOST_NAMED else ""
        raise ResultsError(f"no curve is called {baseline!r}", hint=f"curves: {named}{more}")
    return first + [curve for curve in curves if curve not in first]


def is_baseline(curve: Curve, baseline: str) -> bool:
    """Whether ``baseline`` is its label, or a value of one of its columns."""
    return baseline == curve.label or baseline in map(str, curve.group.values())


def prepared(
    trials: pd.DataFrame, by: Sequence[str] | None, *, apart: Sequence[str] = ()
) -> tuple[Wide, list[Note]]:
    """``trials`` with every column that is read, those of each workload's newest code alone, and a
    note if others are left out. A trial has a row for each value of the columns ``apart``.

    Trials of an earlier version of the code are not comparable; ``by`` may separate the versions. A
    trial without a role is a search's; without an index the order is that of the rows.
    """
    wide = widen(trials, apart=apart)
    trials, notes = wide.frame, []
    for name in {*(by or ())} - {*trials.columns}:
        values = [parameters(text).get(name) for text in trials["metaparameters"]]
        if any(value is not None for value in values):
            trials = trials.assign(**{name: pd.Series(values, index=trials.index)})
    if "workload_version" not in (by or ()) and trials["workload_version"].nunique() > 1:
        code = trials["workload_version"].where(trials["workload_version"].notna(), "")
        keys = [trials[name].astype(str) for name in ("workload", "dataset", "fields")]
        newest = trials.assign(code=code, revision=pd.to_numeric(trials["revision"]).fillna(0))
        for age in ("revision", "time"):
            of_code = newest.groupby([*keys, "code"], sort=False, dropna=False)
            latest = of_code[age].transform("max")
            earlier = latest < latest.groupby(keys, sort=False, dropna=False).transform("max")
            newest = newest[~earlier]
        if left_out := len(trials) - len(newest):
            notes.append(Note("earlier_code", n=left_out))
            trials = trials.loc[newest.index].reset_index(drop=True)
    index = pd.to_numeric(trials["index"]).astype(float)
    trials = trials.assign(
        role=trials["role"].where(trials["role"].notna(), "search"),
        index=index.fillna(pd.Series(np.arange(len(trials), dtype=float), trials.index)),
    )
    return replace(wide, frame=trials), notes


def names_of(curves: Sequence[Curve]) -> list[str]:
    """What distinguishes them besides their targets, and these where two would have one name."""
    groups = [curve.group for curve in curves]
    texts = labels(groups)
    return texts if len({*texts}) == len(texts) else labels(groups, [str(c.target) for c in curves])


def _with_coarse(
    made: list[Curve], thinned: Wide, groups: Grouping, estimator: str | None
) -> list[Curve]:
    try:
        coarse = _curves(thinned, groups, None, estimator)
    except EstimatorError:  # if thinned brackets leave too few order statistics for it
        return made
    return [
        replace(curve, coarse=None if curve.repeats else other)
        for curve, other in zip(made, coarse, strict=True)
    ]


def _curves(
    trials: Wide, groups: Grouping, studies: pd.DataFrame | None, estimator: str | None
) -> list[Curve]:
    runs = Runs.of(trials.frame)
    parts = list(groups.split(trials.frame))
    targets = [str(target(runs.rows, rows) or "") for _, rows in parts]
    texts = labels([group for group, _ in parts], targets)
    studies = None if studies is None else _with_plans(studies)
    return [
        _curve(group, text, runs, rows, groups.over, studies, estimator)
        for (group, rows), text in zip(parts, texts, strict=True)
    ]


def _curve(
    group: dict[str, Any],
    text: str,
    runs: Runs,
    rows: Rows,
    over: tuple[str, ...],
    studies: pd.DataFrame | None,
    estimator: str | None,
) -> Curve:
    role = runs.rows["role"][rows]
    search = rows[np.isin(role, SEARCH_ROLES)]
    made = points(runs, search, rows[role == "repeat"], over, estimator)
    # Failed and interrupted trials say nothing: without others their batch size was not tested.
    tested = [point for point in made.points if point.ran]
    by_size, notes, dimensions, scaled = tested or made.points, made.notes, None, None
    failed = rows[runs.rows["stop_reason"][rows] == "error"]
    errors = failures(pd.DataFrame({name: runs.rows[name][failed] for name in _FAILED}))
    notes += [Note("failed", text=text) for text in errors]
    names = dict.fromkeys(study for study in runs.rows["study"][rows] if isinstance(study, str))
    if studies is not None:
        study_rows = studies[studies["study"].isin(names)]
        if "search_id" in studies:  # another folder may hold another search of it
            ids = {str(id_) for id_ in runs.rows["search_id"][rows] if isinstance(id_, str)}
            study_rows = study_rows[
                study_rows["search_id"].isna() | study_rows["search_id"].isin(ids)
            ]
        spaces = edges.spaces(study_rows)
        by_size = [_with_edges(point, runs, search, spaces) for point in by_size]
        if "dimensions" in study_rows and study_rows["dimensions"].notna().any():
            dimensions = int(study_rows["dimensions"].max())
        scaled = max((edges.scaled_dimensions(space) for space in spaces.values()), default=None)
        notes += edges.notes((point.batch_size, point.edges) for point in by_size)
        if "notes" in study_rows:
            lists = map(json.loads, study_rows["notes"].dropna().unique())
            texts = dict.fromkeys(text for each in lists for text in each)
            notes += [Note("recorded", text=text) for text in texts]
        ran = {point.batch_size for point in by_size} | {*runs.rows["batch_size"][failed]}
        goal = target(runs.rows, rows)
        waiting = _planned(group, studies, goal, {*runs.rows["study"]}) - ran
        notes += note_at("not_run", sorted(waiting))
    example_unit = unit(runs.rows["example_unit"][rows])
    notes += runs.undecided_notes(rows) + _transferred(runs, search)
    notes += _gradients(runs, rows, example_unit) + _censored(by_size)
    ratios = runs.rows["evaluation_ratio"][rows]
    return Curve(
        group=group,
        label=text,
        target=target(runs.rows, rows),
        points=tuple(by_size),
        trials=made.trials,
        repeats=not len(search),
        estimator=made.estimator,
        withheld=made.withheld,
        dimensions=dimensions,
        scaled_dimensions=dimensions if scaled is None else scaled,
        studies=tuple(names),
        evaluation_ratio=next((float(ratio) for ratio in ratios if number(ratio)), None),
        example_unit=example_unit,
        notes=tuple(notes),
    )


_FAILED = ("stop_reason", "error", "batch_size")


def _with_edges(point: Point, runs: Runs, rows: Rows, spaces: Mapping[str, str]) -> Point:
    """``point`` with the edges of its study's space on which its best trial sits, or a near-best
    one; ``rows``: the curve's trials of searches."""
    if point.trial is None or point.study is None or point.study not in spaces:
        return point
    of_study = rows[runs.rows["study"][rows] == point.study]
    sides = edges.of_best(spaces[point.study], runs, of_study, point.trial, point.best)
    return replace(point, edges=sides)


def _with_plans(studies: pd.DataFrame) -> pd.DataFrame:
    """``studies`` with whether each is ``_current``, and its ``_last`` target."""
    now = current(studies) if "experiment_yaml" in studies else True
    named = studies["targets"] if "targets" in studies else [None] * len(studies)
    last = pd.Series([_last_target(text) for text in named], studies.index, dtype=object)
    return studies.assign(_current=now, _last=last)


def _planned(
    group: Mapping[str, Any], studies: pd.DataFrame, goal: Target | None, trained: Collection[str]
) -> set[int]:
    """Batch sizes of studies of this curve (``_with_plans``); not those that are ``trained``, but
    not to its target as they are to be."""
    due = [each is None or each == goal for each in studies["_last"]]
    of_curve = studies["_current"] & (~studies["study"].isin(trained) | np.asarray(due, dtype=bool))
    for name, value in group.items():
        if name in studies:
            cells = studies[name]
            of_curve &= cells.isna() if value is None else cells.astype(object) == value
    return set(map(int, studies.loc[of_curve, "batch_size"]))


def _last_target(text: Any) -> Target | None:
    """The hardest of a study's; None where its row names none."""
    named = json.loads(text) if isinstance(text, str) else []
    return Target.parse(named[-1]) if named else None


def _transferred(runs: Runs, rows: Rows) -> list[Note]:
    """A note where a rule gives the learning rate: its studies have a best trial of their own."""
    rules = runs.rows["rule"][rows] if "rule" in runs.rows else ()
    given = any(isinstance(rule, str) and rule.startswith("learning_rate ") for rule in rules)
    return [Note("rule")] if given else []


def _gradients(runs: Runs, rows: Rows, example_unit: str) -> list[Note]:
    """A note where steps take several gradients: examples are B·S, whatever is computed of them."""
    column = pd.Series(runs.rows["gradients_per_step"][rows], dtype=float).fillna(1)
    counts = {*map(int, column.unique())}
    most = max(counts, default=1)
    if most == 1:
        return []
    which = "each step takes" if counts == {most} else "steps of some of its trials take"
    return [Note("gradients", steps=which, n=most, unit=example_unit)]


def _censored(points: Sequence[Point]) -> list[Note]:
    """Notes on batch sizes where nothing or too little reached the target, or all did before the
    first step."""
    missed = [point for point in points if point.censored and point.minimum is None]
    mostly = [point.batch_size for point in missed if point.hits]
    partly = [point.batch_size for point in points if point.runs and point.hits < point.trials]
    missed = [point for point in missed if not point.hits]
    return [
        *note_at("runs_mostly_missed", mostly),
        *note_at("runs_missed", partly),
        *note_at("dominated", [point.batch_size for point in missed if not point.exact]),
        *note_at("censored", [point.batch_size for point in missed if point.exact]),
        *note_at("met_at_start", [point.batch_size for point in points if point.steps == 0]),
    ]
