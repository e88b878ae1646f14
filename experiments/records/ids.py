"""Whether recorded ids follow from what is recorded: planned again, do they come out the same?

Of packaged workloads alone: another's code would have to be run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from experiments.config.compile import parse
from experiments.errors import ExperimentError
from experiments.plan import Study
from results.counts import count
from results.fsck import Defect
from results.reader import Results
from workloads.errors import WorkloadError

_DO = "a row was edited, or written by another version of batchscale: move its file away, and give "
_DO += "the sweep's command again"


def wrong_ids(results: Results) -> tuple[list[Defect], list[str]]:
    """Studies and trials whose ids do not follow from their rows, and what could not be checked."""
    studies, trials = results.studies, results.trials
    planned = studies[studies["experiment_yaml"].notna() & studies["workload_version"].notna()]
    defects: list[Defect] = []
    unchecked: list[str] = []
    groups = planned.groupby(["experiment", "experiment_yaml", "workload_version"], sort=False)
    for (name, text, version), rows in groups:
        try:
            by_id = _studies(str(text), str(name), str(version), rows)
        except (ExperimentError, WorkloadError) as error:
            unchecked.append(f"{name}: ids are not checked: {error}")
            continue
        wrong = set(rows["study"]) - by_id.keys()
        defects += _defects(str(name), "study", wrong, "experiment")
        of_search = trials[trials["study"].isin(by_id.keys()) & trials["role"].eq("search")]
        odd = [
            trial
            for trial, study, index, search, seed, enlarged in of_search[
                ["trial", "study", "index", "search_id", "search_seed", "enlargement"]
            ].itertuples(index=False)
            if not (enlarged == enlarged and enlarged)
            and _other(by_id[study], trial, index, search, seed)
        ]
        defects += _defects(str(name), "trial", odd, "row of the search's table")
    return defects, unchecked


def _defects(name: str, noun: str, ids: Collection[str], origin: str) -> list[Defect]:
    """That these ids of an experiment do not follow from what they come from; none without any."""
    if not ids:
        return []
    what = f"{name}: {count(len(ids), noun)} ({min(ids)} …) whose id does not follow from the "
    return [Defect(what=what + origin, do=_DO)]


def _studies(text: str, name: str, version: str, rows: pd.DataFrame) -> Mapping[str, Study]:
    """The studies of a recorded experiment, by id.

    Raises:
        ExperimentError: it names a file, or cannot be planned here.
        WorkloadError: its data are not here.
    """
    if ".py" in text:
        raise ExperimentError("it names a Python file, which is not run")
    known = rows["baseline_steps"].dropna()
    steps = int(known.iloc[0]) if len(known) else None
    return {study.id: study for study in parse(text, name).studies(version, lambda _: steps)}


def _other(study: Study, trial: str, index: float, search: str, seed: float) -> bool:
    """Whether a row of this study's search is another trial."""
    if study.search.id != search or study.search.seed != seed:
        return False
    return not 0 <= index < study.max_rows or study.trial(int(index)).id != trial
