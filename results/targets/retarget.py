"""Steps to another target, computed again from the measurements.

An easier target on the same metric is always exact. A trial stopped at its own target has reached
an easier one before. A trial that was dominated at step c, and had not reached the easier target by
c, ranks behind at least ``keep`` trials of its study: those reached the recorded target, and so the
easier one, before c. It is censored at c and the first ``keep`` order statistics stand.

Evaluations that ended after a part of their split leave some targets open: brackets are wider then,
and ``undecided_evaluations`` counts them (``first_hits``).

Any other target would depend on training after the stop, and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from results.counts import agreeing, count
from results.errors import ResultsError, nearest
from results.schema import INTERVAL_COLUMNS, METRIC_COLUMNS
from results.storage.dataset import in_batches, reading, retrying
from results.storage.tables import Tables
from results.targets.evaluations import Batch, column_of, interval_of, measured_metrics
from results.targets.first_hits import FirstHits, first_hits
from results.targets.target import Target

_TARGET = ["target_metric", "target_value", "lower_is_better"]
_RECORDED = ["trial", "status", "stop_reason", "target_metric", "target_value", "lower_is_better"]
_STEPS = ["steps_to_target", "last_miss", "undecided_evaluations"]
_RECORDED += ["stop_at_target", *_STEPS]


def steps_to_target(measurements: pd.DataFrame, target: str | Target) -> pd.DataFrame:
    """The first step of each trial whose metric is strictly better, and the last miss before it.

    ``measurements`` has the columns trial, step and the target's metric (or ``metrics``, JSON
    text), and those of ``schema.INTERVAL_COLUMNS`` where evaluations ended after a part of a split.
    Returns a frame indexed by trial with float64 ``steps_to_target`` and ``last_miss`` (the
    step evaluated just before, 0 if there was none), both NaN for a trial that never reached it,
    and ``undecided_evaluations`` before these steps (``first_hits``). An evaluation without a value
    of the metric does not count.

    Raises:
        ResultsError: no such metric.
    """
    target = Target.parse(target) if isinstance(target, str) else target
    trials = pd.Index(measurements["trial"].unique(), name="trial")
    values = metric(measurements, target.metric).to_numpy(dtype=float)
    steps = measurements["step"].to_numpy(np.int64)
    known = interval_of(measurements, target.metric)
    every = Batch(np.arange(len(steps)), np.arange(len(steps)), steps, values, known)
    maybe, hit = every.decided(target)
    rows = pd.DataFrame({"trial": measurements["trial"].to_numpy(), "step": steps.astype(float)})
    rows = rows.assign(maybe=maybe, hit=hit)[~np.isnan(values)]
    rows = rows.sort_values(["trial", "step"], kind="stable")
    first = rows["trial"].ne(rows["trial"].shift())
    rows["before"] = rows["step"].shift().where(~first, 0.0)
    hits = rows[rows["hit"]].groupby("trial")["step"].first()
    undecided = rows[rows["maybe"] & ~rows["hit"]]
    reached = hits.reindex(undecided["trial"]).fillna(np.inf).to_numpy()
    undecided = undecided[undecided["step"].to_numpy() < reached]
    reached_at = pd.DataFrame(
        {
            "steps_to_target": hits,
            "last_miss": rows[rows["maybe"]].groupby("trial")["before"].first().reindex(hits.index),
        }
    ).reindex(trials)
    counts = undecided.groupby("trial").size().reindex(trials, fill_value=0)
    return reached_at.assign(undecided_evaluations=counts)


def measured_steps(results: Tables, trials: Iterable[str], target: Target) -> pd.DataFrame:
    """``steps_to_target`` of some trials, from their measurements. One without a value of the
    metric has not reached it."""
    rows, ids = results.trial_rows, pa.array(sorted(set(trials)), pa.string())
    part = results.with_trials(rows.filter(pc.is_in(rows["trial"], ids)))
    columns = ["trial", "step", column_of(target.metric), *INTERVAL_COLUMNS]
    measured = part.read_measurements(columns)
    try:
        return steps_to_target(measured, target)
    except ResultsError:  # none of them was measured by it
        return steps_to_target(measured.iloc[:0], target)


def metric(measurements: pd.DataFrame, name: str) -> pd.Series:
    """A metric of each measurement, from its own column or out of ``metrics``, as float64.

    Raises:
        ResultsError: none of the measurements has it; the nearest that some have is named.
    """
    if name in measurements:
        values = measurements[name].astype(float)
    elif "metrics" in measurements:
        parsed = measurements["metrics"].map(json.loads, na_action="ignore")
        values = parsed.map(lambda row: float(row.get(name, np.nan)), na_action="ignore")
        values = values.astype(float)
    else:
        values = pd.Series(np.nan, index=measurements.index)
    if values.notna().any() or not len(values):
        return values
    measured = [
        key for key in METRIC_COLUMNS if key in measurements and measurements[key].notna().any()
    ]
    if "metrics" in measurements:
        texts = measurements["metrics"].dropna().drop_duplicates()
        measured += sorted({key for text in texts for key in json.loads(text)})
    raise _no_metric(name, measured)


def _no_metric(name: str, measured: Sequence[str]) -> ResultsError:
    return ResultsError(
        f"no measurement has the metric {name!r}",
        hint=nearest(name, measured, f"measured: {', '.join(measured) or 'nothing'}"),
    )


def retarget(results: Tables, target: str | Target | Mapping[str, str | Target]) -> pa.Table:
    """The trial rows of ``results`` with their steps to ``target``, or to their experiment's.

    A trial that reached it is COMPLETE, stopped by ``target``; one that did not keeps its status.
    A trial that others published as INFEASIBLE or INCOMPLETE stays so and has no steps: these
    authors train on after the goal, and count the trials that came to their end.

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


def _retarget_each(results: Tables, targets: Mapping[str, str | Target]) -> pa.Table:
    rows = results.trial_rows
    experiment = rows["experiment"]
    unknown = set(targets) - set(pc.unique(experiment).to_pylist())
    if unknown:
        name = min(unknown)
        raise ResultsError(
            f"{results.root} has no trial of an experiment {name!r}",
            hint=nearest(name, pc.unique(experiment).drop_null().to_pylist()),
        )
    shared: dict[Target, list[str]] = {}
    for name, target in targets.items():
        parsed = Target.parse(target) if isinstance(target, str) else target
        shared.setdefault(parsed, []).append(name)
    parts, places = [rows.slice(0, 0)], [np.zeros(0, np.int64)]
    for target, names in shared.items():
        mask = pc.is_in(experiment, pa.array(names))
        parts.append(retarget(results.with_trials(rows.filter(mask)), target))
        places.append(np.flatnonzero(mask))
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))


def at_goals(results: Tables) -> pa.Table:
    """The trial rows of ``results``, those of experiments that record no target at the goal that
    their studies name (the hardest), as in published whole curves of other authors.

    Raises:
        ResultsError: trials have no measurements of it.
    """
    rows = results.trial_rows
    bare = pc.and_(pc.is_null(rows["target_metric"]), pc.is_null(rows["steps_to_target"]))
    groups = rows.select(["experiment"]).append_column("bare", bare).group_by("experiment")
    all_bare = groups.aggregate([("bare", "all")]).filter(pc.field("bare_all"))["experiment"]
    if not len(all_bare):
        return rows
    studies = results.table("studies").select(["experiment", "targets"])
    named: dict[str, set[str | None]] = {}
    for study in studies.filter(pc.is_in(studies["experiment"], all_bare)).to_pylist():
        named.setdefault(study["experiment"], set()).add(study["targets"])
    targets = {
        name: json.loads(texts.pop() or "[]") for name, texts in named.items() if len(texts) == 1
    }
    goals = {name: goals[-1] for name, goals in targets.items() if goals}
    if not goals:
        return rows
    mask = pc.is_in(rows["experiment"], pa.array(list(goals)))
    changed = _retarget_each(results.with_trials(rows.filter(mask)), goals)
    mask = mask.to_numpy()
    places = np.argsort(np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)]))
    return pa.concat_tables([changed, rows.filter(pa.array(~mask))]).take(pa.array(places))


def at_other_targets(results: Tables) -> list[pa.Table]:
    """Trial rows at the other targets that trials of their experiment were trained to.

    Where a part of an experiment was trained to another target, its trials have their steps to the
    target of the rest as well: those trained to a harder one always have, those trained to another
    metric where no trial of their study was stopped before it. Experiments of one target, and
    others' data, have none.
    """
    rows = results.trial_rows
    trials = rows.select(["experiment", "study", "source", *_TARGET]).to_pandas()
    swept = trials["source"].isna() & trials["target_metric"].notna()
    named = trials.loc[swept, ["experiment", *_TARGET]].drop_duplicates()
    parts: list[pa.Table] = []
    for experiment, metric, value, lower in named[
        named.duplicated("experiment", keep=False)
    ].itertuples(index=False):
        target = Target(metric=metric, value=value, lower_is_better=bool(lower))
        of_metric = trials["target_metric"].eq(metric)
        harder = ~of_metric | target.hits(trials["target_value"])
        others = swept & trials["experiment"].eq(experiment) & harder
        parts += _known(results.with_trials(rows.filter(pa.array(others))), target)
    return parts


def _known(results: Tables, target: Target) -> list[pa.Table]:
    """The rows at ``target`` of the studies of which no trial was stopped before it."""
    rows = results.trial_rows
    try:
        return [retarget(results, target)] if len(rows) else []
    except ResultsError:
        studies = pc.unique(rows["study"]).to_pylist()
        if len(studies) == 1:
            return []
    parts = [rows.filter(pc.equal(rows["study"], study)) for study in studies]
    return [known for part in parts for known in _known(results.with_trials(part), target)]


def _first_hits(results: Tables, target: Target) -> FirstHits:
    """The first hits of the trial rows, those of scattered trials by the twin that sorts.

    Raises:
        ResultsError: no such metric.
    """
    trials = results.trial_rows["trial"].to_pylist()
    column = column_of(target.metric)

    def search() -> FirstHits:
        files, runs = results.measured(coded=["trial", "run"])
        with reading(f"{results.root}/measurements"):
            batches = in_batches(files, ["trial", "run", "step", column], INTERVAL_COLUMNS)
            return first_hits(batches, trials, runs.to_pylist(), target)

    def metrics() -> list[str]:
        files = results.source.measurements(results.experiments)
        with reading(f"{results.root}/measurements"):
            return measured_metrics(files.to_batches(columns=[*METRIC_COLUMNS, "metrics"]))

    hits = retrying(search)
    if not hits.measured.any():
        measured = retrying(metrics)
        if measured and target.metric not in measured:
            raise _no_metric(target.metric, measured)
    if hits.scattered.any():
        scattered = results.with_trials(results.trial_rows.filter(pa.array(hits.scattered)))
        columns = ["trial", "step", column, *INTERVAL_COLUMNS]
        plain = steps_to_target(scattered.read_measurements(columns), target)
        plain = plain.reindex(scattered.trial_rows["trial"].to_pylist())
        for name, values in zip(_STEPS, (hits.first, hits.last_miss, hits.undecided), strict=True):
            values[hits.scattered] = plain[name].to_numpy()
    return hits


def _recompute(
    results: Tables, trials: pd.DataFrame, recorded: pd.Series, same: pd.Series, target: Target
) -> pd.DataFrame:
    hits = _first_hits(results, target)
    _refuse_unmeasured(results, trials[~recorded & ~hits.measured], (~recorded).sum(), target)
    foreign = results.trial_rows["source"].is_valid().to_numpy()
    excluded = foreign & trials["status"].isin(("INFEASIBLE", "INCOMPLETE")).to_numpy()
    steps, miss = (np.where(excluded, np.nan, each) for each in (hits.first, hits.last_miss))
    hit = ~np.isnan(steps)
    worse = trials["target_value"] <= target.value
    easier = same & (worse if target.lower_is_better else trials["target_value"] >= target.value)
    at_target = (trials["stop_reason"] == "target") & ~trials["stop_at_target"].isin([False])
    dominated = trials["stop_reason"] == "dominated"
    cut = ~hit & ~recorded & (at_target | (dominated & ~easier))
    if cut.any():
        _refuse_cut(trials[cut], len(trials), target)
    complete = hit & ~recorded
    ran_on = ~hit & ~recorded & (trials["stop_reason"] == "target")
    return trials.assign(
        steps_to_target=trials["steps_to_target"].where(recorded, steps),
        last_miss=trials["last_miss"].where(recorded, miss),
        undecided_evaluations=trials["undecided_evaluations"].where(
            recorded, np.where(excluded | (hits.undecided == 0), np.nan, hits.undecided)
        ),
        status=trials["status"].mask(complete, "COMPLETE"),
        stop_reason=trials["stop_reason"].mask(complete, "target").mask(ran_on, "budget"),
    )


def _refuse_other_side(trials: pd.DataFrame, target: Target) -> None:
    other = trials[trials["lower_is_better"] != target.lower_is_better]
    if len(other):
        raise ResultsError(
            f"target {target} has the wrong direction: {target.metric} is better when "
            f"{'higher' if target.lower_is_better else 'lower'} in these results",
            hint=f"recorded: {_target(other.iloc[0])}",
        )


def _refuse_unmeasured(results: Tables, trials: pd.DataFrame, total: int, target: Target) -> None:
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
        "which continues the trials that were stopped short",
    )


def _target(row: pd.Series) -> str:
    lower = bool(row["lower_is_better"])
    value = float(row["target_value"])
    return str(Target(metric=row["target_metric"], value=value, lower_is_better=lower))
