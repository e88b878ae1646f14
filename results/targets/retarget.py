"""Steps to another target, found again in the measurements.

Easier on the same metric is always exact. A trial stopped at its own target has reached an easier
one before. A trial that was dominated at step c, and had not reached the easier target by c, ranks
behind at least ``keep`` trials of its study: those reached the recorded target, and so the easier
one, before c. It is censored at c and the first ``keep`` order statistics stand.

Anything else asks what a trial would have done after it was stopped, and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from results.counts import agreeing, count
from results.dataset import reading, retrying
from results.errors import ResultsError, nearest
from results.schema import METRIC_COLUMNS
from results.targets.first_hits import FirstHits, column_of, first_hits, measured_metrics
from results.targets.target import Target

if TYPE_CHECKING:
    from results.reader import Results

_RECORDED = ["trial", "status", "stop_reason", "target_metric", "target_value", "lower_is_better"]
_RECORDED += ["stop_at_target", "steps_to_target", "last_miss"]


def steps_to_target(measurements: pd.DataFrame, target: str | Target) -> pd.DataFrame:
    """The first step of each trial whose metric is strictly better, and the last miss before it.

    ``measurements`` has the columns trial, step and the target's metric (or ``metrics``, JSON
    text). Returns a frame indexed by trial with float64 ``steps_to_target`` and ``last_miss`` (the
    step looked at just before, 0 if there was none), both NaN for a trial that never got there.
    A look without a value of the metric is no look.

    Raises:
        ResultsError: no such metric.
    """
    target = Target.parse(target) if isinstance(target, str) else target
    trials = pd.Index(measurements["trial"].unique(), name="trial")
    looks = measurements[["trial", "step"]].assign(value=metric(measurements, target.metric))
    looks = looks[looks["value"].notna()].sort_values(["trial", "step"], kind="stable")
    value = looks["value"]
    hit = value < target.value if target.lower_is_better else value > target.value
    first = looks["trial"].ne(looks["trial"].shift())
    found = pd.DataFrame(
        {
            "trial": looks["trial"],
            "steps_to_target": looks["step"].astype(float),
            "last_miss": looks["step"].shift().where(~first, 0.0).astype(float),
        }
    )
    return found[hit].drop_duplicates("trial", keep="first").set_index("trial").reindex(trials)


def metric(measurements: pd.DataFrame, name: str) -> pd.Series:
    """A metric of each measurement, from its own column or out of ``metrics``, as float64.

    Raises:
        ResultsError: none of the measurements has it; the nearest that some have is named.
    """
    if name in measurements:
        values = measurements[name].astype(float)
    elif "metrics" in measurements:
        parsed = measurements["metrics"].map(json.loads, na_action="ignore")
        values = parsed.map(lambda found: float(found.get(name, np.nan)), na_action="ignore")
        values = values.astype(float)
    else:
        values = pd.Series(np.nan, index=measurements.index)
    if values.notna().any() or not len(values):
        return values
    known = [
        key for key in METRIC_COLUMNS if key in measurements and measurements[key].notna().any()
    ]
    if "metrics" in measurements:
        texts = measurements["metrics"].dropna().drop_duplicates()
        known += sorted({key for text in texts for key in json.loads(text)})
    raise _no_metric(name, known)


def _no_metric(name: str, known: Sequence[str]) -> ResultsError:
    near = nearest(name, known)
    return ResultsError(
        f"no measurement has the metric {name!r}",
        hint=f"did you mean {near}?" if near else f"measured: {', '.join(known) or 'nothing'}",
    )


def retarget(results: Results, target: str | Target | Mapping[str, str | Target]) -> pa.Table:
    """The trial rows of ``results`` with their steps to ``target``, or to their experiment's.

    A trial that reached it is COMPLETE, stopped by ``target``; one that did not keeps its status.
    A trial that others published as INFEASIBLE or INCOMPLETE stays so and has no steps: they train
    on after their goal, and count the trials that came to their end.

    Raises:
        ResultsError: trials were stopped before it, lie on the other side of the metric, or have
            no measurements.
    """
    if isinstance(target, Mapping):
        return _retarget_each(results, target)
    target = Target.parse(target) if isinstance(target, str) else target
    table = results.trial_rows
    trials = table.select(_RECORDED).to_pandas()
    same_metric = trials["target_metric"] == target.metric
    _refuse_other_side(trials[same_metric], target)
    recorded = same_metric & (trials["target_value"] == target.value)
    if not recorded.all():
        trials = _recompute(results, trials, recorded, same_metric, target)
    trials["target_metric"] = target.metric
    trials["target_value"] = target.value
    trials["lower_is_better"] = target.lower_is_better
    for name in _RECORDED[1:]:
        field = table.schema.field(name)
        column = pa.array(trials[name], type=field.type, from_pandas=True)
        table = table.set_column(table.column_names.index(name), field, column)
    return table


def _retarget_each(results: Results, targets: Mapping[str, str | Target]) -> pa.Table:
    rows = results.trial_rows
    experiment = rows["experiment"]
    unknown = set(targets) - set(pc.unique(experiment).to_pylist())
    if unknown:
        name = min(unknown)
        near = nearest(name, pc.unique(experiment).drop_null().to_pylist())
        raise ResultsError(
            f"{results.root} has no trial of an experiment {name!r}",
            hint=f"did you mean {near}?" if near else None,
        )
    shared: dict[Target, list[str]] = {}
    for name, one in targets.items():
        shared.setdefault(Target.parse(one) if isinstance(one, str) else one, []).append(name)
    masks = [pc.is_in(experiment, pa.array(names)) for names in shared.values()]
    parts = [
        retarget(results.with_trials(rows.filter(mask)), one)
        for one, mask in zip(shared, masks, strict=True)
    ]
    places = np.concatenate([np.flatnonzero(mask) for mask in masks] or [np.zeros(0, np.int64)])
    return pa.concat_tables(parts or [rows.slice(0, 0)]).take(pa.array(np.argsort(places)))


def at_goals(results: Results) -> pa.Table:
    """The trial rows of ``results``, those of experiments that record no target at the goal that
    their studies name (the hardest), as where somebody else published whole curves.

    Raises:
        ResultsError: trials have no measurements of it.
    """
    rows = results.trial_rows
    bare = pc.and_(pc.is_null(rows["target_metric"]), pc.is_null(rows["steps_to_target"]))
    own = rows.select(["experiment"]).append_column("bare", bare).group_by("experiment")
    every = own.aggregate([("bare", "all")]).filter(pc.field("bare_all"))["experiment"]
    if not len(every):
        return rows
    studies = results.table("studies").select(["experiment", "targets"])
    named: dict[str, set[str | None]] = {}
    for study in studies.filter(pc.is_in(studies["experiment"], every)).to_pylist():
        named.setdefault(study["experiment"], set()).add(study["targets"])
    goals = {
        name: json.loads(next(iter(texts)) or "[]")[-1:]
        for name, texts in named.items()
        if len(texts) == 1
    }
    goals = {name: goal[0] for name, goal in goals.items() if goal}
    if not goals:
        return rows
    mask = pc.is_in(rows["experiment"], pa.array(list(goals)))
    some = _retarget_each(results.with_trials(rows.filter(mask)), goals)
    mask = mask.to_numpy()
    places = np.argsort(np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)]))
    return pa.concat_tables([some, rows.filter(pa.array(~mask))]).take(pa.array(places))


def _crossings(results: Results, target: Target) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First hit, last miss and whether it was measured, of each trial row; (n,) each.

    Raises:
        ResultsError: no such metric.
    """
    trials = results.trial_rows["trial"].to_pylist()
    column = column_of(target.metric)

    def search() -> FirstHits:
        files, runs = results.measured(coded=["trial", "run"])
        with reading(f"{results.root}/measurements"):
            batches = files.to_batches(columns=["trial", "run", "step", column])
            return first_hits(batches, trials, runs.to_pylist(), target)

    def metrics() -> list[str]:
        files = results.source.measurements(results.experiments)
        with reading(f"{results.root}/measurements"):
            return measured_metrics(files.to_batches(columns=[*METRIC_COLUMNS, "metrics"]))

    all_ = retrying(search)
    if not all_.measured.any():
        known = retrying(metrics)
        if known and target.metric not in known:
            raise _no_metric(target.metric, known)
    first, miss = all_.first, all_.last_miss
    if all_.scattered.any():
        some = results.with_trials(results.trial_rows.filter(pa.array(all_.scattered)))
        plain = steps_to_target(some.read_measurements(["trial", "step", column]), target)
        plain = plain.reindex(some.trial_rows["trial"].to_pylist())
        first[all_.scattered] = plain["steps_to_target"].to_numpy()
        miss[all_.scattered] = plain["last_miss"].to_numpy()
    return first, miss, all_.measured


def _recompute(
    results: Results, trials: pd.DataFrame, recorded: pd.Series, same: pd.Series, target: Target
) -> pd.DataFrame:
    steps, miss, measured = _crossings(results, target)
    _refuse_unmeasured(results, trials[~recorded & ~measured], len(trials[~recorded]), target)
    foreign = results.trial_rows["source"].is_valid().to_numpy()
    apart = foreign & trials["status"].isin(("INFEASIBLE", "INCOMPLETE")).to_numpy()
    steps, miss = np.where(apart, np.nan, steps), np.where(apart, np.nan, miss)
    hit = ~np.isnan(steps)
    worse = trials["target_value"] <= target.value
    easier = same & (worse if target.lower_is_better else trials["target_value"] >= target.value)
    at_target = (trials["stop_reason"] == "target") & ~trials["stop_at_target"].isin([False])
    dominated = trials["stop_reason"] == "dominated"
    cut = ~hit & ~recorded & (at_target | (dominated & ~easier))
    if cut.any():
        _refuse_cut(trials[cut], len(trials), target)
    changed = trials.copy()
    changed["steps_to_target"] = trials["steps_to_target"].where(recorded, steps)
    changed["last_miss"] = trials["last_miss"].where(recorded, miss)
    reached = hit & ~recorded
    changed["status"] = trials["status"].mask(reached, "COMPLETE")
    ran_on = ~hit & ~recorded & (trials["stop_reason"] == "target")
    reason = trials["stop_reason"].mask(reached, "target").mask(ran_on, "budget")
    changed["stop_reason"] = reason
    return changed


def _refuse_other_side(trials: pd.DataFrame, target: Target) -> None:
    other = trials[trials["lower_is_better"] != target.lower_is_better]
    if len(other):
        raise ResultsError(
            f"target {target} goes the wrong way: {target.metric} is better when "
            f"{'higher' if target.lower_is_better else 'lower'} in these results",
            hint=f"recorded: {_target(other.iloc[0])}",
        )


def _refuse_unmeasured(results: Results, trials: pd.DataFrame, total: int, target: Target) -> None:
    bare = trials[~trials["stop_reason"].isin(["error", "diverged"])]
    if len(bare):
        raise ResultsError(
            f"{results.root}: {len(bare):,} of {count(total, 'trial')} "
            f"{agreeing(len(bare), 'have')} no measurement of {target.metric}, so their steps to "
            f"{target} are not known",
            hint="leave out --target, or leave those trials out with --where",
        )


def _refuse_cut(cut: pd.DataFrame, total: int, target: Target) -> None:
    was = ", ".join(sorted({_target(row) for _, row in cut.iterrows()})[:3])
    raise ResultsError(
        f"target {target}: {len(cut):,} of {count(total, 'trial')} "
        f"{agreeing(len(cut), 'were')} stopped at {was}, before it",
        hint=f"ask for {was} or an easier one; or sweep again with this target in the experiment, "
        "which goes on with the trials that were stopped short",
    )


def _target(row: pd.Series) -> str:
    lower = bool(row["lower_is_better"])
    value = float(row["target_value"])
    return str(Target(metric=row["target_metric"], value=value, lower_is_better=lower))
