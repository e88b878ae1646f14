"""the release of Shallue et al. 2019, unpacked; what is done is not done again

It becomes a results dataset of 454 studies and 194,399 trials. Trials keep their authors' status.
Their steps to a target are not recorded: ``with_target`` computes them from the measurements.
``round`` is 0 for the trials up to the N-th COMPLETE one by id (``trials_wanted``), on which the
paper rests, and 1 for those after it.

Each workload is an experiment, so that reading one opens no file of another. The trials of a commit
are a few hundred, and each commit is whole: after a kill at any moment, the same call continues the
import. The name of a trial's folder identifies it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.counts import count
from results.errors import ResultsError
from results.imports import Imported
from results.imports.support import shallue_facts as facts
from results.imports.support.shallue_points import points
from results.imports.support.shallue_tree import (
    StudyFolder,
    TrialFolder,
    read_trial,
    root_of,
    studies,
    trial_ids,
)
from results.run_state.claims import Claim, Claims
from results.schema import METAPARAMETERS, TRIALS
from results.storage.location import Location
from results.store import Store

_BYTES = 24 << 20
"""Bytes of measurements.csv files in one commit, about 350,000 rows."""
_TRIALS = 4096


def import_shallue(
    path: str | Path,
    results: str | Path | Location,
    progress: Callable[[Imported], None] | None = None,
) -> Imported:
    """Import the release unpacked in ``path``, except the trials that ``results`` holds already.

    ``progress`` is called after each commit with the progress so far. Memory is bounded by
    the commit, not by the release.

    Raises:
        ResultsError: no study in the release's layout, another import under way in ``results``, or
            the disk cannot be written.
    """
    root = root_of(path)
    store = Store(results)
    done = Imported(f"{facts.SOURCE}-*", store.root)  # each workload is an experiment

    with _claimed(store) as claim:
        folders = studies(root, done)
        done.studies = len(folders)
        for _, of_workload in groupby(folders, key=lambda study: study.workload):
            for commit in _commits(store, [*of_workload], done):
                _write(store, commit, done)
                if progress is not None:
                    progress(done)
                if not claim.renew({}):
                    raise ResultsError(
                        "another process took over this import: "
                        f"{count(done.added, 'trial', 'are')} written",
                        hint="give the same command again when it has ended",
                    )
    return done


@dataclass
class _Commit:
    experiment: str
    rows: list[dict[str, Any]]
    trials: list[TrialFolder]
    bytes: int = 0

    def add(self, row: dict[str, Any], trial: TrialFolder) -> None:
        self.rows.append(row)
        self.trials.append(trial)
        self.bytes += len(trial.measurements)

    @property
    def full(self) -> bool:
        return self.bytes >= _BYTES or len(self.rows) >= _TRIALS


@contextmanager
def _claimed(store: Store) -> Iterator[Claim]:
    claim = Claims(store.location).take(f"import-{facts.SOURCE}", [])
    if claim is None:
        raise ResultsError(
            f"another import of {facts.SOURCE} into {store.root} is under way",
            hint="wait until it has ended; one that died is ignored after two minutes",
        )
    try:
        yield claim
    finally:
        claim.release()


def _commits(store: Store, folders: list[StudyFolder], done: Imported) -> Iterator[_Commit]:
    """The trials of a workload that the store lacks, a commit's worth at a time."""
    experiment = f"{facts.SOURCE}-{folders[0].workload}"
    rows = {study.name: study_row(study, experiment) for study in folders}
    before = set(store.studies(experiment)["study"])
    if not before:
        store.add_sources([{**facts.ABOUT, "experiment": experiment}])
    store.add_studies([row for row in rows.values() if row["study"] not in before])
    recorded = store.trials(experiment, ["trial", "status"])
    statuses = dict(zip(recorded["trial"], recorded["status"], strict=True))
    commit = _Commit(experiment, [], [])
    for study in folders:
        group = {name: value for name, value in rows[study.name].items() if name in TRIALS.names}
        complete = 0
        for trial_id in trial_ids(study, done):
            status = statuses.get(_id(f"{study.name}/{trial_id}"))
            if status is not None:
                done.recorded += 1
            else:
                trial = read_trial(study, trial_id, done)
                if trial is None:
                    continue
                turn = int(complete >= group["trials_wanted"])
                try:
                    commit.add({**group, **trial_row(study, trial), "round": turn}, trial)
                except ValueError as error:
                    done.refused.append((trial.name, str(error)))
                    continue
                status = trial.status
            complete += status == "COMPLETE"
            if commit.full:
                yield commit
                commit = _Commit(experiment, [], [])
    if commit.rows:
        yield commit


def _write(store: Store, commit: _Commit, done: Imported) -> None:
    table, refused = points(commit.trials)
    names = pa.array([row["trial"] for row in commit.rows])
    of_study = pa.array([row["study"] for row in commit.rows]).dictionary_encode()
    sizes = np.array([row["batch_size"] for row in commit.rows], np.int64)
    place = table["trial"].combine_chunks()
    study = of_study.indices.take(place)
    step = table["step"].combine_chunks()
    measured = {
        "trial": pa.DictionaryArray.from_arrays(place, names),
        "study": pa.DictionaryArray.from_arrays(study, of_study.dictionary),
        "step": step,
        "examples": pc.multiply(step, pa.array(sizes[place.to_numpy()])),
        **{name: table[name] for name in table.column_names if name not in {"trial", "step"}},
    }
    kept = [row for at, row in enumerate(commit.rows) if at not in refused]
    store.commit_columns(commit.experiment, measurements=pa.table(measured), trials=kept)
    done.added += len(kept)
    done.measurements += table.num_rows
    done.refused += [(commit.trials[at].name, reason) for at, reason in sorted(refused.items())]


def study_row(study: StudyFolder, experiment: str) -> dict[str, Any]:
    """The row of ``studies``; its columns that trials have too are those of its trials."""
    dataset, model = facts.plain_name(study.dataset), facts.plain_name(study.model)
    goal = None if study.collection else facts.goal(study.dataset, study.model)
    examples = None if study.collection else facts.TRAIN_EXAMPLES.get(study.dataset)
    space, steps = search_space(study), study.train_steps
    decays = any(name in space for name in ("decay", "decay_steps"))
    return {
        "experiment": experiment,
        "study": _id(study.name),
        "source": facts.SOURCE,
        "workload": f"{dataset}-{model}",
        "dataset": dataset,
        "model": model,
        "optimizer": facts.OPTIMIZERS[study.optimizer],
        "schedule": "linear" if decays else "constant",
        "batch_size": study.batch_size,
        "fields": {"collection": study.collection} if study.collection else None,
        "trials_wanted": facts.trials_wanted(study.dataset, study.model, study.optimizer),
        "budget_steps": steps or None,
        "train_examples": examples,
        "stop_at_target": False,
        "search": "quasi_random",
        "targets": [goal] if goal else None,
        "search_space": space,
        "dimensions": sum(isinstance(domain, Mapping) for domain in space.values()),
        "budget": f"{steps} {'step' if steps == 1 else 'steps'}" if steps else "a time budget",
    }


def search_space(study: StudyFolder) -> dict[str, Any]:
    """The tuned ranges as an experiment file writes them: ``{"learning_rate": {"log": [a, b]}}``.

    A decay length is a share of the budget there, where a study has one in steps. A configuration
    of another shape is left out.
    """
    space: dict[str, Any] = {}
    for key, config in study.parameters.items():
        name = facts.METAPARAMETERS.get(key, key)
        low, high = config.get("min_value"), config.get("max_value")
        choices = config.get("feasible_points")
        if config.get("type") == "DISCRETE" and isinstance(choices, list) and choices:
            space[name] = {"discrete": choices} if len(choices) > 1 else choices[0]
        elif not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
            continue
        elif low == high:
            space[name] = low
        elif name == "decay_steps" and study.train_steps:
            space["decay"] = {"linear": [low / study.train_steps, high / study.train_steps]}
        elif config.get("type") == "INTEGER":
            space[name] = {"integer": [low, high]}
        else:
            space[name] = {facts.SCALES.get(config.get("scale", ""), "linear"): [low, high]}
    return space


def trial_row(study: StudyFolder, trial: TrialFolder) -> dict[str, Any]:
    """The columns of a row of ``trials`` besides those of its study.

    Raises:
        ValueError: a metaparameter that its column cannot hold.
    """
    used = {facts.METAPARAMETERS.get(name, name): v for name, v in trial.parameters.items()}
    columns = {name: _number(name, value) for name, value in used.items() if name in METAPARAMETERS}
    return {
        **columns,
        "trial": _id(trial.name),
        "index": trial.trial_id,
        "role": "search",
        "effective_learning_rate": _effective(study.optimizer, columns),
        "metaparameters": used,
        "status": trial.status,
        "stop_reason": facts.STOP_REASONS[trial.status],
        "steps_run": trial.steps,
        "examples_run": trial.steps * study.batch_size,
    }


def _number(name: str, value: float | int | str | bool) -> float | int:
    whole = pa.types.is_integer(TRIALS.field(name).type)
    if isinstance(value, (str, bool)) or (whole and value % 1):
        raise ValueError(
            f"metadata.json: {name} is {value!r}, not a {'whole ' if whole else ''}number"
        )
    return int(value) if whole else float(value)


def _effective(optimizer: str, columns: Mapping[str, Any]) -> float | None:
    """learning rate / (1 - momentum)."""
    rate, momentum = columns.get("learning_rate"), columns.get("momentum")
    if optimizer == "sgd":
        momentum = 0.0
    if rate is None or momentum is None or momentum >= 1:
        return None
    return float(rate / (1 - momentum))


def _id(name: str) -> str:
    return f"{facts.SOURCE}/{name}"
