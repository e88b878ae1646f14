"""What is done, running and left of the experiments in a results folder.

From the studies, the trials and the claims alone: whoever asks needs neither the experiment file,
nor its workload, nor the machine that trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.driver.rounds import Record, bar, feasible
from results.claims import Claims
from results.location import Location
from results.reader import Results
from results.reader import open as open_results

_COLUMNS = [
    "study",
    "trial",
    "role",
    "enlargement",
    "status",
    "stop_reason",
    "steps_run",
    "steps_to_target",
    "train_seconds",
    "evaluation_seconds",
    "other_seconds",
    "pack",
    "pack_models",
]


@dataclass(frozen=True, kw_only=True)
class Status:
    """Where the experiments of a results folder stand."""

    studies: pd.DataFrame
    """A row a study: experiment, study, workload, optimizer, schedule, batch_size, ``wanted``
    (feasible trials), ``done`` (recorded trials), ``reached``, ``infeasible``, ``dominated``,
    ``failed``, ``running``, ``left`` (feasible trials of the search that lack, running ones among
    them; neither of an enlarged space nor repeats),
    ``trial_seconds`` (of a worker, what a trial has cost so far; NaN before the first)."""
    packs: pd.DataFrame
    """A row a running pack: pack, experiment, study, machine, ``trials``, ``step`` (of those that
    train), ``best`` (lowest last value of their metric; the highest where more is better),
    ``silent`` (seconds since its last word)."""
    work_seconds: float | None
    """Seconds that one worker would take for the rest; ``None`` before any trial has ended."""

    @property
    def algorithms(self) -> pd.DataFrame:
        """``studies`` added up: a row an experiment, workload and optimizer."""
        groups = ["experiment", "workload", "optimizer"]
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
        """Feasible trials that lack."""
        return int(self.studies["left"].sum())

    @property
    def seconds(self) -> float | None:
        """Until all is done, with the packs that run now; ``None`` if none runs."""
        running = len(self.packs)
        return self.work_seconds / running if running and self.work_seconds is not None else None


def status(source: str | Path | Location | Results) -> Status:
    """Read where the experiments of a results folder or URI stand; of results that were opened
    before, what runs now.

    Raises:
        ResultsError: it is none.
    """
    run = source if isinstance(source, Results) else open_results(source)
    planned = run.studies.drop_duplicates(["experiment", "study"], keep="last")
    planned = planned[planned["experiment_yaml"].notna() & planned["trials_wanted"].notna()]
    trials = run.trials[_COLUMNS]
    claims = [] if run.location is None else Claims(run.location).live()
    running: dict[str, int] = {}
    for claim in claims:
        study = claim["info"].get("study")
        running[study] = running.get(study, 0) + len(claim["trials"])
    by_study = dict(tuple(trials.groupby("study")))
    rows = [
        _study(dict(row), by_study.get(row["study"], trials.iloc[:0]), running.get(row["study"], 0))
        for _, row in planned.iterrows()
    ]
    studies = pd.DataFrame(rows, columns=_STUDY_COLUMNS)
    lower = dict(zip(planned["study"], planned["targets"].str.contains("<"), strict=True))
    return Status(
        studies=studies,
        packs=pd.DataFrame([_pack(claim, lower) for claim in claims], columns=_PACK_COLUMNS),
        work_seconds=_work(studies),
    )


_SHOWN = ["experiment", "study", "workload", "optimizer", "schedule", "batch_size"]
_COUNTS = ["wanted", "done", "reached", "infeasible", "dominated", "failed", "running", "left"]
_STUDY_COLUMNS = [*_SHOWN, *_COUNTS, "trial_seconds"]
_PACK_COLUMNS = ["pack", "experiment", "study", "machine", "trials", "step", "best", "silent"]


def _study(row: Mapping[str, Any], trials: pd.DataFrame, running: int) -> dict[str, Any]:
    searched = trials["role"].ne("repeat") & ~trials["enlargement"].gt(0)
    table = trials[searched]
    records = [
        Record(
            status=str(status),
            stop_reason=str(reason),
            steps_run=0 if pd.isna(run) else int(run),
            steps_to_target=None if pd.isna(steps) else int(steps),
        )
        for status, reason, run, steps in zip(
            table["status"],
            table["stop_reason"],
            table["steps_run"],
            table["steps_to_target"],
            strict=True,
        )
    ]
    keep = None if pd.isna(row["keep"]) or row["stop_at_target"] is False else int(row["keep"])
    wanted = int(row["trials_wanted"])
    count = feasible(records, bar((r.steps_to_target for r in records), keep))
    failed = sum(r.stop_reason == "error" for r in records)
    packs = trials.drop_duplicates("pack", keep="last")
    spent = packs[["train_seconds", "evaluation_seconds", "other_seconds"]].sum(axis=1).sum()
    models = packs["pack_models"].sum()
    return {
        **{name: row[name] for name in _SHOWN},
        "wanted": wanted,
        "done": int(trials["stop_reason"].ne("error").sum()),
        "reached": int(trials["steps_to_target"].notna().sum()),
        "infeasible": int(trials["status"].eq("INFEASIBLE").sum()),
        "dominated": int(trials["stop_reason"].eq("dominated").sum()),
        "failed": int(trials["stop_reason"].eq("error").sum()),
        "running": running,
        "left": max(0, wanted - (count - failed)),
        "trial_seconds": spent / models if models else float("nan"),
    }


def _pack(claim: Mapping[str, Any], lower: Mapping[str, bool]) -> dict[str, Any]:
    progress = claim["progress"].values()
    values = [value for _, value in progress if value is not None]
    study = claim["info"].get("study")
    best = min if lower.get(study, True) else max
    return {
        "pack": claim["pack"],
        "experiment": claim["info"].get("experiment"),
        "study": study,
        "machine": claim["holder"]["machine"].split("/")[0],
        "trials": len(claim["trials"]),
        "step": max((step for step, _ in progress), default=0),
        "best": best(values) if values else None,
        "silent": claim["silent"],
    }


def _work(studies: pd.DataFrame) -> float | None:
    """Seconds of one worker: a study's trials cost what its own have cost, else the usual."""
    cost = studies["trial_seconds"]
    if not studies["left"].sum():
        return 0.0
    if cost.isna().all():
        return None
    return float((studies["left"] * cost.fillna(cost.median())).sum())
