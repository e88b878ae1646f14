"""What a results folder already holds of an experiment's studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from experiments.config.study_plan import StudyPlan
from experiments.errors import ExperimentError
from experiments.identity import study_id
from experiments.plan import Study
from experiments.records.settings import settings_hash
from experiments.scheduling.remaining import spent
from experiments.scheduling.rounds import Record
from experiments.scheduling.saved import Header, unpack_snapshot
from results.counts import agreeing, count
from results.optimizers import class_name
from results.reader import Results
from results.reader import open as open_results
from results.run_state.checkpoints import Checkpoints
from results.schema import METRIC_COLUMNS, json_text
from results.searches import rows_of
from results.store import Store
from results.targets.retarget import steps_to_target

_COLUMNS = [
    "study",
    "trial",
    "status",
    "stop_reason",
    "steps_run",
    "steps_to_target",
    "target_metric",
    "target_value",
    "index",
    "search_id",
    "search_seed",
    "other_searches",
    "engine",
    "pack",
    "train_seconds",
    "evaluation_seconds",
    "other_seconds",
    "run",
    "time",
]


@dataclass(frozen=True, kw_only=True)
class Known:
    """The records of each study by trial, and the engine that trained it."""

    records: Mapping[str, Mapping[str, Record]]
    engines: Mapping[str, str]
    others: frozenset[str]
    """Trials that were recorded with another target."""
    spent: Mapping[str, Mapping[str, float]]
    """By study and pack: seconds of a worker."""
    searches: Mapping[str, Mapping[str, Mapping[str, int]]]
    """By study and trial, of those that are not of the study's present search alone: the searches
    that they belong to, and their rows there. Those written before searches had an id belong to
    ``""``."""


def known(store: Store, studies: Sequence[Study], since: datetime) -> Known:
    """Read what is there of ``studies``, in terms of their present target.

    A trial that was recorded with another target is looked up in its measurements.

    Args:
        since: when this run began: errors recorded before are tried again.
    """
    by_id = {study.id: study for study in studies}
    rows = store.trials(columns=_COLUMNS)
    rows = rows[rows["study"].isin(by_id.keys())]
    records: dict[str, dict[str, Record]] = {name: {} for name in by_id}
    others: set[str] = set()
    for name, group in rows.groupby("study", sort=False):
        target = by_id[str(name)].targets[-1]
        same = (group["target_metric"] == target.metric) & (group["target_value"] == target.value)
        steps = group["steps_to_target"]
        if not same.all():
            moved = group["trial"][~same]
            others.update(moved)
            looks = measured(store, target.metric, moved)
            again = steps_to_target(looks, target)["steps_to_target"]
            steps = steps.where(same, group["trial"].map(again))
        # A column at a time: of a hundred thousand trials a mapping each takes long.
        cells = (group[column].tolist() for column in _OF_RECORDS)
        fresh = (group["time"] >= since).tolist()
        for trial, status, reason, run, steps_run, found, new in zip(
            *cells, steps.tolist(), fresh, strict=True
        ):
            records[str(name)][trial] = Record(
                status=status,
                stop_reason=reason,
                steps_run=int(steps_run),
                steps_to_target=None if found != found else int(found),
                fresh=new,
                run=run,
            )
    searches: dict[str, dict[str, Mapping[str, int]]] = {name: {} for name in by_id}
    present = rows["study"].map({name: study.search_id for name, study in by_id.items()})
    seeds = rows["study"].map({name: study.search_seed for name, study in by_id.items()})
    reseeded = rows["search_seed"].notna() & rows["search_seed"].ne(seeds)
    odd = rows[rows["search_id"].ne(present) | rows["other_searches"].notna() | reseeded]
    cells = (odd[name].tolist() for name in _OF_SEARCHES)
    for study, trial, index, search, further, seed in zip(
        *cells, reseeded[odd.index].tolist(), strict=True
    ):
        # A trial of another seed is never drawn by this search, whatever its space.
        named = search if isinstance(search, str) and not seed else ""
        row = 0 if pd.isna(index) else int(index)
        searches[study][trial] = {named: row, **rows_of(further)}
    # A driver lives on for days: what only the reading took is given back.
    pa.default_memory_pool().release_unused()
    engines = rows[rows["stop_reason"] != "error"].dropna(subset=["engine"])
    return Known(
        records=records,
        engines=dict(zip(engines["study"], engines["engine"], strict=True)),
        others=frozenset(others),
        spent=spent(rows),
        searches=searches,
    )


_OF_SEARCHES = ("study", "trial", "index", "search_id", "other_searches")
_OF_RECORDS = ("trial", "status", "stop_reason", "run", "steps_run")


def measured(store: Store, metric: str, trials: Iterable[str]) -> pd.DataFrame:
    """Study, trial, step and a metric of all live measurements of some trials."""
    column = metric if metric in METRIC_COLUMNS else "metrics"
    return some(store, trials).read_measurements(["study", "trial", "step", column])


def some(store: Store, trials: Iterable[str]) -> Results:
    """The results of some trials alone."""
    found = open_results(store.location)
    chosen = pa.array(sorted(set(trials)), type=pa.string())
    return found.with_trials(found.trial_rows.filter(pc.is_in(found.trial_rows["trial"], chosen)))


def snapshots(store: Store, studies: Sequence[Study]) -> list[Header]:
    """The snapshots that can be continued from. Those of other settings are deleted."""
    checkpoints = Checkpoints(store.location)
    settings = {study.id: settings_hash(study) for study in studies}
    found = []
    for pack in checkpoints.list():
        data = checkpoints.load(pack)
        read = unpack_snapshot(data) if data is not None else None
        # What names another pack than its file could have that one deleted.
        if read is None or read[0].pack != pack or read[0].study not in settings:
            continue
        if read[0].settings == settings[read[0].study]:
            found.append(read[0])
        else:
            checkpoints.delete(pack)
    return found


def forget_snapshots(store: Store, studies: Sequence[Study]) -> None:
    """Delete the snapshots of studies that are complete, and what paused trials keep of them."""
    checkpoints = Checkpoints(store.location)
    checkpoints.drop_all(study.id for study in studies)
    for header in snapshots(store, studies):
        checkpoints.delete(header.pack)


@dataclass(frozen=True, kw_only=True)
class Changed:
    """Studies whose workload's code has changed, and nothing else."""

    version: str
    """The code that the recorded trials were trained with."""
    trials: int
    studies: int


def changed(
    store: Store, plans: Sequence[StudyPlan], rows: Sequence[Mapping[str, object]]
) -> Changed | None:
    """Whether recorded studies differ from planned ones in the workload's code alone.

    Args:
        rows: the planned studies' rows, in the order of ``plans``.
    """
    before = store.studies()
    recorded = set(before["study"])
    versions: dict[tuple[object, ...], tuple[str, str]] = {}
    by_id: dict[str, tuple[str, str]] = {}
    for row in _dicts(before.sort_values("time")):
        held = (str(row["workload_version"]), str(row["study"]))
        versions[description(row)] = by_id[held[1]] = held
    hashes = dict.fromkeys(version for version, _ in by_id.values())
    touched, version = set(), ""
    for plan, planned in zip(plans, rows, strict=True):
        if "source" not in plan.identity["workload"]:
            continue
        # Where the optimizer was called otherwise, the study that this one is of earlier code.
        earlier = [by_id[name] for name in _earlier(plan, hashes) if name in by_id]
        old = versions.get(description(planned), earlier[-1] if earlier else None)
        own = plan.study.id not in recorded
        if own and old and old[0] != planned["workload_version"]:
            version = old[0]
            touched.add(old[1])
    if not touched:
        return None
    trials = store.trials(columns=["study"])["study"].isin(touched).sum()
    return Changed(version=version, trials=int(trials), studies=len(touched))


def _earlier(plan: StudyPlan, sources: Iterable[str]) -> list[str]:
    """The ids that a study has with the workload's code of these hashes."""
    workload = plan.identity["workload"]
    return [
        study_id({**plan.identity, "workload": {**workload, "source": source}})
        for source in sources
    ]


def _dicts(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def description(row: Mapping[str, object]) -> tuple[object, ...]:
    """What a study is, but for its code: of a row of the studies or of the trials."""
    names = ("workload", "fields", "optimizer", "schedule", "technique", "batch_size")
    row = {**row, "optimizer": class_name(str(row["optimizer"]))}
    values = [row[name] for name in (*names, "evaluation_ratio")]
    return tuple(json_text(v) if isinstance(v, Mapping) else v for v in values)


def refuse_changed(found: Changed, workload: str) -> ExperimentError:
    """The error that asks what to do."""
    return ExperimentError(
        f"{workload} has changed since {count(found.trials, 'trial')} of "
        f"{count(found.studies, 'study')} {agreeing(found.trials, 'were')} trained with it",
        hint="--keep-old counts them as this experiment's; --retrain trains them again",
    )
