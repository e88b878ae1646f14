"""An experiment's studies with their rows and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import workloads
from experiments.config.compile import Experiment
from experiments.plan import Study
from experiments.records.rows import git_commit, layout_columns, study_columns
from results.schema import json_text
from results.searches import PART, current
from results.store import Store


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A study of an experiment."""

    study: Study
    columns: Mapping[str, Any]
    """The columns that its row and its trials' rows share."""
    row: Mapping[str, Any]
    """Its row of the studies table."""
    label: str
    """What distinguishes it from the other studies: ``adam, width 64, batch 32``."""


def planned(
    experiment: Experiment, source: str | None = None, known: Mapping[str, int] | None = None
) -> list[Planned]:
    """Plan an experiment: its studies, in its order.

    Args:
        source: hash of earlier code of the workload to go by (``Experiment.studies``).
        known: steps to target of baselines, by study.
    """
    studies = experiment.studies(source, (known or {}).get)
    text = f"{PART}\n{experiment.to_yaml()}" if experiment.part else experiment.to_yaml()
    commit = git_commit(experiment.base or None)
    every = [_shared(study) for study in studies]
    return [
        Planned(
            study=study,
            columns={**shared, "commit": commit},
            row={
                **shared,
                "targets": [str(target) for target in study.targets],
                "search_space": study.notation(),
                "search_id": study.search.id,
                "search_seed": study.search.seed,
                "dimensions": len(study.search.space),
                "repeats": study.search.repeats or None,
                "baseline": list(study.baseline) or None,
                "budget": str(experiment.budget),
                "engine": study.engine,
                "layout": layout_columns(study.layout),
                "experiment_yaml": text,
            },
            label=label,
        )
        for study, shared, label in zip(studies, every, _labels(every), strict=True)
    ]


def new_rows(store: Store, studies: Sequence[Planned]) -> list[Mapping[str, Any]]:
    """The rows that the store does not hold in this form: the last row of a study names its present
    search. One that another version of the experiment has left out since is written again."""
    before = store.studies(studies[0].study.experiment)
    before = before[current(before)]
    names = ["study", "search_id", "experiment_yaml"]
    have = set(before[names].itertuples(index=False, name=None))
    return [each.row for each in studies if tuple(each.row[name] for name in names) not in have]


def _shared(study: Study) -> dict[str, Any]:
    ref, version = study.workload, study.identity["workload"]
    columns = study_columns(study, workloads.load(ref.spec, ref.fields, ref.base))
    return {**columns, "workload_version": version.get("source") or version.get("version")}


def _labels(columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """The optimizer, whatever else differs, and the batch size."""
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
