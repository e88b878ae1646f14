"""The recorded trials of an experiment's studies, and whether the code has changed since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from experiments.errors import ExperimentError
from experiments.identity import study_id
from experiments.plan import Study
from experiments.records.present_targets import at_present_targets
from experiments.scheduling.rounds import Record, pack_seconds
from results.counts import agreeing, count
from results.optimizers import class_name
from results.reader import Results
from results.reader import open as open_results
from results.schema import json_text
from results.searches import rows_of
from results.storage.rows import by_age
from results.store import Store
from results.targets.evaluations import Evaluations
from results.targets.target import Target

if TYPE_CHECKING:
    from experiments.records.planned import Planned

_COLUMNS = [
    *("study", "trial", "status", "stop_reason", "steps_run"),
    *("steps_to_target", "target_metric", "target_value", "index", "search_id"),
    *("search_seed", "other_searches", "engine", "pack", "train_seconds"),
    *("evaluation_seconds", "other_seconds", "run", "revision"),
]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The records of each study by trial, and the engine that trained it."""

    records: dict[str, dict[str, Record]]
    engines: Mapping[str, str]
    others: frozenset[str]
    """Trials that were recorded with another target."""
    pack_seconds: dict[str, dict[str, float]]
    """By study and pack: seconds of a worker."""
    searches: dict[str, dict[str, Mapping[str, int]]]
    """By study and trial, of those that are not of the study's present search alone: the searches
    that they belong to, and their rows there. Those written before searches had an id belong to
    ``""``."""


def read_recorded(
    store: Store, studies: Sequence[Study], since: int, passed_over: Collection[str] = ()
) -> Recorded:
    """Read the recorded trials of ``studies``, in terms of their present target.

    Args:
        since: the greatest revision when this run began: errors up to it are tried again.
        passed_over: trials whose errors are not.
    """
    by_id = {study.id: study for study in studies}
    rows = store.trials(columns=_COLUMNS)
    targets = {name: study.targets[-1] for name, study in by_id.items()}
    rows = at_present_targets(
        rows[rows["study"].isin(by_id.keys())], targets, lambda: open_results(store.location)
    )
    records: dict[str, dict[str, Record]] = {name: {} for name in by_id}
    # A column at a time: of a hundred thousand trials a mapping each takes long.
    cells = (rows[column].tolist() for column in _OF_RECORDS)
    recent = ((rows["revision"] > since) | rows["trial"].isin(passed_over)).tolist()
    for study, trial, status, reason, run, steps_run, hit, fresh in zip(
        *cells, recent, strict=True
    ):
        records[study][trial] = Record(
            status=status,
            stop_reason=reason,
            steps_run=int(steps_run),
            steps_to_target=None if hit != hit else int(hit),
            fresh=fresh,
            run=run,
        )
    searches: dict[str, dict[str, Mapping[str, int]]] = {name: {} for name in by_id}
    present = rows["study"].map({name: study.search.id for name, study in by_id.items()})
    seeds = rows["study"].map({name: study.search.seed for name, study in by_id.items()})
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
    # A driver may run for days: free the memory that only the reading needed.
    pa.default_memory_pool().release_unused()
    engines = rows[rows["stop_reason"] != "error"].dropna(subset=["engine"])
    return Recorded(
        records=records,
        engines=dict(zip(engines["study"], engines["engine"], strict=True)),
        others=frozenset(rows["trial"][rows["moved"]]),
        pack_seconds=pack_seconds(rows),
        searches=searches,
    )


_OF_SEARCHES = ("study", "trial", "index", "search_id", "other_searches")
_OF_RECORDS = ("study", "trial", "status", "stop_reason", "run", "steps_run", "steps_to_target")


def best_values(
    store: Store, target: Target, trials: Iterable[str], by: Literal["study", "trial"]
) -> pd.Series:
    """The best value of the target's metric in some trials, by trial or by study, of evaluations of
    the whole split: the best of means over parts of it would be one of luck."""
    results = of_trials(store, trials)
    least = "min" if target.lower_is_better else "max"
    columns = {name: results.trial_rows[name].to_pylist() for name in ("trial", "study")}
    sql = f"SELECT {by}, {least}(value) AS best FROM evaluations WHERE NOT partial GROUP BY ALL"
    best = Evaluations([results]).select(sql, columns, target.metric)
    return best.set_index(by)["best"].dropna().sort_index()


def of_trials(store: Store, trials: Iterable[str]) -> Results:
    """The results of some trials alone."""
    results = open_results(store.location)
    rows, ids = results.trial_rows, pa.array(sorted(set(trials)), type=pa.string())
    return results.with_trials(rows.filter(pc.is_in(rows["trial"], ids)))


@dataclass(frozen=True, kw_only=True)
class Changed:
    """Studies in which only the workload's code has changed."""

    version: str
    """The code that the recorded trials were trained with."""
    trials: int
    studies: int


def changed(store: Store, studies: Sequence[Planned]) -> Changed | None:
    """Whether recorded studies differ from planned ones in the workload's code alone."""
    before = store.studies()
    recorded = set(before["study"])
    versions: dict[tuple[object, ...], tuple[str, str]] = {}
    by_id: dict[str, tuple[str, str]] = {}
    for row in by_age(before).to_dict("records"):
        study = (str(row["workload_version"]), str(row["study"]))
        versions[description({str(name): value for name, value in row.items()})] = study
        by_id[study[1]] = study
    hashes = dict.fromkeys(version for version, _ in by_id.values())
    touched, version = set(), ""
    for each in studies:
        identity = each.study.identity
        workload = identity["workload"]
        if "source" not in workload:
            continue
        # If the optimizer had another name: the study that this one was with the earlier code.
        before_it = ({**identity, "workload": {**workload, "source": code}} for code in hashes)
        earlier = [by_id[name] for name in map(study_id, before_it) if name in by_id]
        old = versions.get(description(each.row), earlier[-1] if earlier else None)
        new = each.study.id not in recorded
        if new and old and old[0] != each.row["workload_version"]:
            version = old[0]
            touched.add(old[1])
    if not touched:
        return None
    trials = store.trials(columns=["study"])["study"].isin(touched).sum()
    return Changed(version=version, trials=int(trials), studies=len(touched))


def description(row: Mapping[str, object]) -> tuple[object, ...]:
    """The description of a study without its code, from a row of studies or of trials."""
    names = ("workload", "fields", "optimizer", "schedule", "technique", "batch_size")
    row = {**row, "optimizer": class_name(str(row["optimizer"]))}
    values = [row[name] for name in (*names, "evaluation_ratio")]
    replicate: Any = row.get("replicate")
    values.append(0 if pd.isna(replicate) else int(replicate))
    return tuple(json_text(v) if isinstance(v, Mapping) else v for v in values)


def refuse_changed(change: Changed, workload: str) -> ExperimentError:
    """The error that asks what to do."""
    return ExperimentError(
        f"{workload} has changed since {count(change.trials, 'trial')} of "
        f"{count(change.studies, 'study')} {agreeing(change.trials, 'were')} trained with it",
        hint="--keep-old counts them as this experiment's; --retrain trains them again",
    )
