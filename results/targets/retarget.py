"""Steps to another target, computed again from the measurements.

An easier target on the same metric is always exact. A trial stopped at its own target has reached
an easier one before. A trial that was dominated at step c, and had not reached the easier target by
c, ranks behind at least ``keep`` trials of its study: those reached the recorded target, and so the
easier one, before c. It is censored at c and the first ``keep`` order statistics stand.

Evaluations that ended after a part of their split leave some targets open: brackets are wider then,
and ``undecided_evaluations`` counts them (``Evaluations.brackets``).

Any other target would depend on training after the stop, and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from results.counts import agreeing, count
from results.errors import ResultsError, nearest
from results.searches import belongs, current
from results.storage.tables import Tables
from results.targets.evaluations import Evaluations
from results.targets.target import Target

_TARGET = ["target_metric", "target_value", "lower_is_better"]
_RECORDED = ["trial", "status", "stop_reason", "target_metric", "target_value", "lower_is_better"]
_STEPS = ["steps_to_target", "last_miss", "undecided_evaluations"]
_RECORDED += ["stop_at_target", *_STEPS]


def measured_steps(results: Tables, trials: Iterable[str], target: Target) -> pd.DataFrame:
    """The first step of each of ``trials`` whose metric is strictly better, from the measurements:
    ``steps_to_target``, ``last_miss`` (``Evaluations.brackets``; NaN for one that never reached it)
    and ``undecided_evaluations``, by trial."""
    names = pd.Index(sorted(set(trials)), name="trial")
    brackets = _brackets(results, [*names], target).set_axis(names)
    return brackets[["hit", "miss", "undecided"]].set_axis(_STEPS, axis="columns")


def _brackets(results: Tables, trials: Sequence[str], target: Target) -> pd.DataFrame:
    lower = [target.lower_is_better] * len(trials)
    columns = {"trial": trials, "goal": [target.value] * len(trials), "lower_is_better": lower}
    return Evaluations([results]).brackets(columns, target.metric)


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
    """Trial rows at the other targets that trials of their experiment were trained to, or at which
    other experiments have their studies.

    Where a part of an experiment was trained to another target, its trials have their steps to the
    target of the rest as well: those trained to a harder one always have, those trained to another
    metric where no trial of their study was stopped before it. So have those that an experiment
    shares with another one, which trained them last. Experiments of one target, and others' data,
    have none.
    """
    rows = results.trial_rows
    names = ["experiment", "study", "source", "search_id", "search_seed", "other_searches"]
    trials = rows.select([*names, *_TARGET]).to_pandas()
    swept = trials["source"].isna() & trials["target_metric"].notna()
    named = trials.loc[swept, ["experiment", *_TARGET]].drop_duplicates()
    several = named[named.duplicated("experiment", keep=False)]
    wanted: dict[Target, Any] = {}
    for experiment, metric, value, lower in several.itertuples(index=False):
        target = Target(metric=metric, value=value, lower_is_better=bool(lower))
        wanted[target] = wanted.get(target, False) | trials["experiment"].eq(experiment)
    for study in _shared(results, trials[swept]).itertuples():
        target = Target.parse(json.loads(str(study.targets))[-1])
        theirs = trials["study"].eq(study.study) & trials["experiment"].ne(study.experiment)
        drawn = belongs(trials, study.search_id, study.search_seed)
        wanted[target] = wanted.get(target, False) | theirs & drawn
    parts: list[pa.Table] = []
    for target, mask in wanted.items():
        harder = trials["target_metric"].ne(target.metric) | target.hits(trials["target_value"])
        others = rows.filter(pa.array(swept & harder & mask))
        parts += _known(results.with_trials(others), target)
    return parts


def _shared(results: Tables, trials: pd.DataFrame) -> pd.DataFrame:
    """The studies of each experiment that have trials of other experiments."""
    studies = results.table("studies").to_pandas()
    studies = studies[current(studies) & studies["targets"].fillna("[]").ne("[]")]
    if results.experiments is not None:
        studies = studies[studies["experiment"].isin(results.experiments)]
    trained = trials[["study", "experiment"]].drop_duplicates().rename(columns={"experiment": "by"})
    pairs = studies.merge(trained, on="study")
    return pairs[pairs["experiment"].ne(pairs["by"])].drop_duplicates(["experiment", "study"])


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


def _recompute(
    results: Tables, trials: pd.DataFrame, recorded: pd.Series, same: pd.Series, target: Target
) -> pd.DataFrame:
    brackets = _brackets(results, trials["trial"].tolist(), target)
    measured, undecided = brackets["measured"].to_numpy(), brackets["undecided"].to_numpy()
    if not measured.any():
        names = Evaluations([results]).metrics()
        if names and target.metric not in names:
            raise ResultsError(
                f"no measurement has the metric {target.metric!r}",
                hint=nearest(target.metric, names, f"measured: {', '.join(names)}"),
            )
    _refuse_unmeasured(results, trials[~recorded & ~measured], (~recorded).sum(), target)
    rows = results.trial_rows  # of packaged ones, those that batchscale trained have both
    trained = pc.and_(rows["seed"].is_valid(), rows["metaparameters"].is_valid())
    foreign = pc.and_(rows["source"].is_valid(), pc.invert(trained)).to_numpy()
    excluded = foreign & trials["status"].isin(("INFEASIBLE", "INCOMPLETE")).to_numpy()
    steps, miss = (np.where(excluded, np.nan, brackets[name]) for name in ("hit", "miss"))
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
            recorded, np.where(excluded | (undecided == 0), np.nan, undecided)
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
