"""What is done, running and left of the experiments in a results folder.

From the studies, the trials and the claims alone: neither the experiment file, nor its workload,
nor the machine that trains is needed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd

from experiments.plan import REPEATS_FROM
from experiments.records.baselines import UNREACHED, WAITS
from experiments.records.present_targets import at_present_targets
from experiments.scheduling import rounds
from experiments.scheduling.rounds import Counts, Record, Remaining
from experiments.search import METHODS, max_rows
from results.batch_phases import BatchPhases
from results.counts import count
from results.failures import failures, last_line
from results.reader import Results
from results.reader import open as open_results
from results.run_state.claims import Claims
from results.searches import belongs, current, rows_of
from results.storage.location import Location
from results.targets.target import Target

_COLUMNS = [
    *("study", "trial", "index", "search_id", "search_seed", "other_searches"),
    *("role", "enlargement", "status", "stop_reason", "steps_run", "target_metric", "target_value"),
    *("steps_to_target", "train_seconds", "evaluation_seconds", "other_seconds", "pack"),
    *("pack_models", "error", "batch_size", "metaparameters"),
]


def how_far(left: int, failed: int) -> str:
    """Whether a sweep is complete, in words: at its end, in ``status`` and on the live page.

    Args:
        left: trials that are missing.
        failed: trials whose own code raised; the next run tries them once more.
    """
    if left:
        also = f", {failed:,} failed" if failed else ""
        return f"not complete, {count(left, 'trial')} left{also}"
    if failed:
        return (
            f"complete but for {count(failed, 'trial')} that failed: the same sweep tries "
            f"{'it' if failed == 1 else 'them'} once more"
        )
    return "complete"


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of the experiments in a results folder."""

    studies: pd.DataFrame
    """A row a study: experiment, study, workload, optimizer, schedule, batch_size, ``wanted``
    (feasible trials, what enlargements have added, repeats; 0 where the experiment, edited since,
    has the study no more), ``done`` (recorded trials of its present search), ``reached``,
    ``infeasible``, ``dominated``, ``failed``, ``running``, ``left`` (trials that are missing under
    its present target and budget, running ones among them; not failed ones: as the driver counts,
    by ``rounds.counts``), ``other_searches`` (recorded trials that belong to earlier
    searches of the study alone), ``waits`` (why it is not trained yet, where a length is of the
    baseline's steps to target; null else), ``trial_seconds`` (of a worker, for each feasible trial
    so far; NaN before the first)."""
    failed_trials: pd.DataFrame
    """A row a failed trial: experiment, optimizer, batch_size, trial, ``error`` (its last line)."""
    packs: pd.DataFrame
    """A row a running pack: pack, experiment, study, machine, ``trials``, ``step`` (of those that
    train; null before its first word), ``training`` (how many do), ``best`` (lowest last value of
    their metric; the highest where more is better), ``silent`` (seconds since its last word)."""
    work_seconds: float | None
    """Seconds that one worker would take for the rest; ``None`` before any trial has ended."""
    seconds: float | None
    """Seconds until all is done with the packs that run now, as the driver reports too; ``None`` if
    none runs."""
    evaluation_share: float | None = None
    """The part of the recorded packs' seconds that evaluations took, in [0, 1]; ``None`` before any
    trial has ended."""
    failures: tuple[str, ...] = ()
    """What failed trials say of themselves (``results.failures``)."""

    def added_up(self, *further: str) -> pd.DataFrame:
        """``studies`` added up: a row an experiment, workload and optimizer, and value of the
        ``further`` columns."""
        groups = ["experiment", "workload", "optimizer", *further]
        table = self.studies.groupby(groups, sort=False, dropna=False)
        rows = table[_COUNTS].sum()
        rows.insert(0, "studies", table.size())
        return rows.reset_index()

    @property
    def running(self) -> pd.DataFrame:
        """``packs`` with the optimizer and batch_size of their studies."""
        names = ["experiment", "study", "optimizer", "batch_size"]
        return self.packs.merge(self.studies[names], on=["experiment", "study"], how="left")

    @property
    def left(self) -> int:
        """Trials that are missing."""
        return int(self.studies["left"].sum())

    @property
    def failed(self) -> int:
        """Trials whose own code raised."""
        return int(self.studies["failed"].sum())


def status(source: str | Path | Location | Results) -> Status:
    """Read the state of the experiments in a results folder or URI, or in open results.

    Raises:
        ResultsError: it is not a results folder.
    """
    run = source if isinstance(source, Results) else open_results(source)
    planned = run.studies.drop_duplicates(["experiment", "study"], keep="last")
    planned = planned[planned["experiment_yaml"].notna() & planned["trials_wanted"].notna()]
    rows = [dict(row) for _, row in planned.iterrows()]
    named = [(_key(row), row["targets"]) for row in rows if isinstance(row["targets"], str)]
    goals = {key: json.loads(text) for key, text in named}
    targets = {key: Target.parse(texts[-1]) for key, texts in goals.items() if texts}
    trials = run.trials[_COLUMNS]
    by_study: dict[Any, pd.DataFrame] = {}  # experiments may have one study with a target each
    for name, ids in planned.groupby("experiment")["study"]:
        own = {study: target for (of, study), target in targets.items() if of == name}
        moved = at_present_targets(trials[trials["study"].isin(ids)], own, lambda: run)
        by_study |= {(name, study): part for study, part in moved.groupby("study")}
    claims = [] if run.location is None else Claims(run.location).live()
    claims = [claim for claim in claims if claim["info"].get("study")]
    running: Counter[Any] = Counter()
    for claim in claims:
        known = by_study.get(_key(claim["info"]), trials.iloc[:0].assign(moved=False))
        again = known["stop_reason"].eq("error") | known["moved"] & known["steps_to_target"].isna()
        recorded = {*known["trial"][~again]}  # among them trials of packs that still run
        claim["trials"] = [trial for trial in claim["trials"] if trial not in recorded]
        running[_key(claim["info"])] += len(claim["trials"])
    every: dict[Any, dict[str, Any]] = {}
    for row, is_current in zip(rows, current(planned), strict=True):
        of_study = by_study.get(_key(row), trials.iloc[:0])
        every[_key(row)] = _study(row, of_study, running[_key(row)], planned=bool(is_current))
    costs = rounds.pack_seconds(trials)
    remaining = []
    for row, counts in zip(rows, every.values(), strict=True):
        if counts["wanted"] and (waits := _waits(row, every)):
            counts["waits"] = waits
            if waits == UNREACHED:
                counts |= {"wanted": 0, "left": 0}
        packs, cost = costs.get(row["study"], {}), trial_cost(row)
        lacking = Remaining.of(counts["left"], counts["feasible"], packs, cost)
        counts["trial_seconds"] = lacking.seconds_per_trial
        remaining.append(lacking)
    studies = pd.DataFrame([*every.values()], columns=_STUDY_COLUMNS)
    live = pd.DataFrame([_pack(claim, targets) for claim in claims], columns=_PACK_COLUMNS)
    broken = trials[trials["stop_reason"].eq("error")]
    names = ["experiment", "study", "optimizer", "batch_size"]
    broken = broken[["study", "trial"]].assign(error=broken["error"].map(last_line))
    return Status(
        studies=studies.astype({"trial_seconds": float, "waits": object}),
        failed_trials=studies[names].merge(broken, on="study").drop(columns="study"),
        packs=live.astype({"step": "Int64"}),
        work_seconds=rounds.worker_seconds(remaining),
        seconds=rounds.seconds_left(remaining, len(claims)),
        evaluation_share=rounds.evaluation_share(trials),
        failures=tuple(failures(trials)),
    )


def _key(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get("experiment"), row["study"]


_KEYS = ["experiment", "study", "workload", "optimizer", "schedule", "batch_size"]
_COUNTS = ["wanted", "done", "reached", "infeasible", "dominated", "failed", "running", "left"]
_COUNTS += ["other_searches"]
_STUDY_COLUMNS = [*_KEYS, *_COUNTS, "waits", "trial_seconds"]
_PACK_COLUMNS = ["pack", "experiment", "study", "machine", "trials", "step", "training"]
_PACK_COLUMNS += ["best", "silent"]


def _waits(
    row: Mapping[str, Any], every: Mapping[tuple[str, str], Mapping[str, Any]]
) -> str | None:
    """Why a study that has lengths of the baseline's steps to target is not trained (yet)."""
    if not isinstance(row["baseline"], str) or not pd.isna(row["baseline_steps"]):
        return None
    names = [(row["experiment"], study) for study in json.loads(row["baseline"])]
    baseline = [every[name] for name in names if name in every]
    complete = not any(counts["left"] for counts in baseline)
    return UNREACHED if complete and not all(c["reached"] for c in baseline) else WAITS


def trial_cost(row: Mapping[str, Any]) -> float | None:
    """The cost of a study's longest trial, by the mean batch size where that grows; ``None`` where
    a row of an older version or of another writer lacks the budget."""
    if pd.isna(row["budget_steps"]) or pd.isna(row["batch_size"]):
        return None
    steps, size = int(row["budget_steps"]), int(row["batch_size"])
    phases = BatchPhases.of(row.get("batch_sizes"))
    return rounds.trial_cost(steps, phases.mean_size(steps) if phases else size)


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What a study's row asks for (``rounds.Wanted``). A row of an older version or of another
    writer that lacks the budget asks for none."""

    trials: int
    budget_steps: int
    stop_at_target: bool
    keep: int | None
    search: str
    repeats: int
    """Repeats of the best trial that follow the search."""
    stops_itself = False
    """If it has, its row wants as many trials as there are."""
    added: tuple[str, ...]
    """Ids of the trials that enlargements of the space have added so far."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        text = row["enlargements"]
        blocks = json.loads(text) if isinstance(text, str) else []
        return cls(
            trials=int(row["trials_wanted"]),
            budget_steps=0 if pd.isna(row["budget_steps"]) else int(row["budget_steps"]),
            stop_at_target=row["stop_at_target"] is not False,
            keep=None if pd.isna(row["keep"]) else int(row["keep"]),
            search=row["search"] if row["search"] in METHODS else "sobol",
            repeats=0 if pd.isna(row["repeats"]) else int(row["repeats"]),
            added=tuple(trial for block in blocks for trial in block),
        )


def _counts(row: Mapping[str, Any], trials: pd.DataFrame) -> Counts:
    """What a study wants by now and lacks. Failed trials are not tried again here.

    Args:
        row: the study's.
        trials: those of its present search.
    """
    study = _Wanted.of(row)
    most = max_rows(study.search, study.trials)
    again = trials["role"].eq("repeat")
    of_table = trials[~again & ~trials["enlargement"].gt(0)]
    by_id = dict(zip(trials["trial"], trials.index, strict=True))
    rows = dict(zip(_places(of_table, row["search_id"]), of_table.index, strict=True))
    rows |= {most + number: by_id.get(trial) for number, trial in enumerate(study.added)}
    names = ("status", "stop_reason", "steps_run", "steps_to_target")
    cells = zip(*(trials[name] for name in names), strict=True)
    records = {
        label: Record(
            status=str(status),
            stop_reason=str(reason),
            steps_run=0 if pd.isna(run) else int(run),
            steps_to_target=None if pd.isna(steps) else int(steps),
        )
        for label, (status, reason, run, steps) in zip(trials.index, cells, strict=True)
    }

    def repeats(best: int) -> list[Record | None]:
        points = trials["metaparameters"]
        same = trials[again & points.eq(points[rows[best]])]
        copies = dict(zip(same["index"] // REPEATS_FROM - 1, same.index, strict=True))
        return [records.get(copies.get(copy)) for copy in range(study.repeats)]

    return rounds.counts(
        study, most, lambda place: records.get(rows.get(place)), len(study.added), repeats
    )


def _places(table: pd.DataFrame, search: Any) -> list[int]:
    """The rows of the ``search``'s table that these trials are."""
    places = table["index"].astype(object)
    further = table["search_id"].ne(search) & table["other_searches"].notna()
    places[further] = [rows_of(text).get(search) for text in table["other_searches"][further]]
    if places.isna().any() or places.duplicated().any():  # of another writer
        return [*range(len(table))]
    return [int(place) for place in places]


def _study(
    row: Mapping[str, Any], every: pd.DataFrame, running: int, *, planned: bool
) -> dict[str, Any]:
    """Its counts, and how many ``feasible`` trials there are of those wanted."""
    trials = every[belongs(every, row["search_id"], row["search_seed"])]
    counts, planned = _counts(row, trials), planned or running > 0
    return {
        **{name: row[name] for name in _KEYS},
        "wanted": counts.wanted if planned else 0,
        "done": int(trials["stop_reason"].ne("error").sum()),
        "reached": int(trials["steps_to_target"].notna().sum()),
        "infeasible": int(trials["status"].eq("INFEASIBLE").sum()),
        "dominated": int(trials["stop_reason"].eq("dominated").sum()),
        "failed": counts.failed if planned else 0,
        "running": running,
        "left": counts.left if planned else 0,
        "feasible": counts.wanted - counts.left,
        "other_searches": len(every) - len(trials),
        "waits": None,
    }


def _pack(claim: Mapping[str, Any], targets: Mapping[Any, Target]) -> dict[str, Any]:
    progress = claim["progress"].values()
    values = [value for _, value in progress if value is not None]
    target = targets.get(_key(claim["info"]))
    best = min if target is None or target.lower_is_better else max
    return {
        "pack": claim["pack"],
        "experiment": claim["info"].get("experiment"),
        "study": claim["info"]["study"],
        "machine": claim["holder"]["machine"].split("/")[0],
        "trials": len(claim["trials"]),
        "step": max((step for step, _ in progress), default=None),
        "training": len(progress),
        "best": best(values) if values else None,
        "silent": claim["silent"],
    }
