"""An experiment's studies with their rows and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import workloads
from experiments.config.compile import Experiment
from experiments.config.study_plan import StudyPlan
from experiments.plan import Study
from experiments.records.rows import git_commit, layout_columns, study_columns
from results.schema import json_text
from results.searches import PART
from results.store import Store


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The studies of an experiment; all sequences are in its order."""

    plans: Sequence[StudyPlan]
    columns: Sequence[Mapping[str, Any]]
    """The columns that each study's row and its trials' rows share."""
    rows: Sequence[Mapping[str, Any]]
    """Rows of the studies table."""
    labels: Sequence[str]
    """A label that distinguishes each study from the others."""

    @property
    def studies(self) -> list[Study]:
        return [plan.study for plan in self.plans]

    def new_rows(self, store: Store) -> list[Mapping[str, Any]]:
        """The rows that the store does not hold in this form: the last row of a study names its
        present search."""
        before = store.studies(self.studies[0].experiment)
        names = ["study", "search_id", "experiment_yaml"]
        have = set(before[names].itertuples(index=False, name=None))
        return [row for row in self.rows if tuple(row[name] for name in names) not in have]


def planned(
    experiment: Experiment, source: str | None = None, known: Mapping[str, int] | None = None
) -> Planned:
    """Plan an experiment.

    Args:
        source: hash of earlier code of the workload to go by (``Experiment.plans``).
        known: steps to target of baselines, by study.
    """
    plans = experiment.plans(source, (known or {}).get)
    text = f"{PART}\n{experiment.to_yaml()}" if experiment.part else experiment.to_yaml()
    commit = git_commit(experiment.base or None)
    columns, rows = [], []
    for plan in plans:
        study, ref = plan.study, plan.study.workload
        shared = study_columns(study, workloads.load(ref.spec, ref.fields, ref.base))
        version = plan.identity["workload"]
        shared["workload_version"] = version.get("source") or version.get("version")
        columns.append({**shared, "commit": commit})
        rows.append(
            {
                **shared,
                "targets": [str(target) for target in study.targets],
                "search_space": plan.search_space,
                "search_id": study.search_id,
                "search_seed": study.search_seed,
                "dimensions": len(plan.space),
                "repeats": study.repeats or None,
                "baseline": list(plan.baseline) or None,
                "budget": str(experiment.budget),
                "engine": study.engine,
                "layout": layout_columns(study.layout),
                "experiment_yaml": text,
            }
        )
    return Planned(plans=plans, columns=columns, rows=rows, labels=_labels(columns))


def _labels(columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """The optimizer, whatever else differs, and the batch size: ``adam, width 64, batch 32``."""
    flat = [{**row["technique"], **row["fields"], "schedule": row["schedule"]} for row in columns]
    names = list(dict.fromkeys(name for row in flat for name in row))
    differ = [n for n in names if len({json_text([row.get(n)]) for row in flat}) > 1]
    return [
        ", ".join(
            [
                str(shared["optimizer"]),
                *(f"{name} {row[name]}" for name in differ if name in row),
                f"batch {shared['batch_size']}",
            ]
        )
        for shared, row in zip(columns, flat, strict=True)
    ]
