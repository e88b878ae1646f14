"""The release of Shallue et al. 2019 as a results dataset: 454 studies, 194,399 trials.

Trials keep their authors' status. Their steps to a target are not recorded: ``with_target`` finds
them in the measurements. ``round`` is 0 for the trials up to the N-th COMPLETE one by id
(``trials_wanted``), the ones that the paper is made of, and 1 for those after it.

Each workload is an experiment, so that reading one leaves the others' files alone. The trials of a
commit are a few hundred, and each commit is whole: killed at any moment, the same call does the
rest. A trial is known by its folder's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.counts import count
from results.errors import ResultsError
from results.imports import shallue_facts as facts
from results.imports.shallue_points import points
from results.imports.shallue_tree import (
    Passed,
    StudyFolder,
    TrialFolder,
    read_trial,
    root_of,
    studies,
    trial_ids,
)
from results.run_state.claims import Claim, Claims
from results.schema import TRIALS
from results.storage.location import Location
from results.store import Store

_BYTES = 24 << 20
"""Of measurements.csv files in one commit, about 350,000 rows."""
_TRIALS = 4096


@dataclass
class Imported:
    """What an import has done, and what it left."""

    results: str = ""
    studies: int = 0
    added: int = 0
    """Trials that this import wrote."""
    known: int = 0
    """Trials that were there before."""
    measurements: int = 0
    """Of the trials that this import wrote."""
    passed: Passed = field(default_factory=Passed)
    experiment: str = f"{facts.SOURCE}-*"
    """Each workload is one."""

    @property
    def trials(self) -> int:
        """All that are there now."""
        return self.added + self.known

    @property
    def fresh(self) -> bool:
        """Whether this import wrote anything."""
        return self.added > 0

    @property
    def refused(self) -> list[tuple[str, str]]:
        """Name and reason of each study and trial that cannot be placed."""
        return self.passed.refused

    @property
    def ignored(self) -> list[str]:
        """Files and folders that are none of the release's."""
        return self.passed.ignored


def take_in(
    path: str | Path,
    results: str | Path | Location,
    progress: Callable[[Imported], None] | None = None,
) -> Imported:
    """Import the release unpacked in ``path``, without what ``results`` holds of it already.

    ``progress`` is called after each commit with what has been done so far. Memory is bounded by
    the commit, not by the release.

    Raises:
        ResultsError: no study in the release's layout, another import under way in ``results``, or
            a disk that refuses.
    """
    root = root_of(path)
    store = Store(results)
    done = Imported(results=store.root)
    with _alone(store) as claim, ThreadPoolExecutor(1) as writer:
        found = studies(root, done.passed)
        done.studies = len(found)
        workloads = groupby(found, key=lambda study: study.workload)
        pending: Future[_Written] | None = None
        for commit in chain.from_iterable(_commits(store, [*own], done) for _, own in workloads):
            # One is written while the next is read: two in memory, never more.
            if pending is not None:
                _take(done, pending.result(), progress, claim)
            pending = writer.submit(_write, store, commit)
        if pending is not None:
            _take(done, pending.result(), progress, claim)
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


@dataclass(frozen=True)
class _Written:
    trials: int
    measurements: int
    refused: list[tuple[str, str]]


def _take(
    done: Imported,
    written: _Written,
    progress: Callable[[Imported], None] | None,
    claim: Claim,
) -> None:
    done.added += written.trials
    done.measurements += written.measurements
    done.passed.refused += written.refused
    if progress is not None:
        progress(done)
    if not claim.renew({}):
        raise ResultsError(
            f"another process took over this import: {count(done.added, 'trial', 'are')} written",
            hint="give the same command again when it has ended",
        )


@contextmanager
def _alone(store: Store) -> Iterator[Claim]:
    claim = Claims(store.location).take(f"import-{facts.SOURCE}", [])
    if claim is None:
        raise ResultsError(
            f"another import of {facts.SOURCE} into {store.root} is under way",
            hint="wait for its end; one that died is forgotten after two minutes",
        )
    try:
        yield claim
    finally:
        claim.release()


def _commits(store: Store, own: list[StudyFolder], done: Imported) -> Iterator[_Commit]:
    """The trials of a workload that the store lacks, a commit's worth at a time."""
    experiment = f"{facts.SOURCE}-{own[0].workload}"
    rows = {study.name: study_row(study, experiment) for study in own}
    before = set(store.studies(experiment)["study"])
    if not before:
        store.add_sources([{**facts.ABOUT, "experiment": experiment}])
    new = [row for row in rows.values() if row["study"] not in before]
    if new:
        store.add_studies(new)
    recorded = store.trials(experiment, ["trial", "status"])
    known = dict(zip(recorded["trial"], recorded["status"], strict=True))
    commit = _Commit(experiment, [], [])
    for study in own:
        group = {name: value for name, value in rows[study.name].items() if name in TRIALS.names}
        complete = 0
        for trial_id in trial_ids(study, done.passed):
            turn = int(complete >= group["trials_wanted"])
            status = known.get(_id(f"{study.name}/{trial_id}"))
            if status is not None:
                done.known += 1
            else:
                trial = read_trial(study, trial_id, done.passed)
                if trial is None:
                    continue
                try:
                    commit.add({**group, **trial_row(study, trial), "round": turn}, trial)
                except ValueError as error:
                    done.passed.refused.append((trial.name, str(error)))
                    continue
                status = trial.status
            complete += status == "COMPLETE"
            if commit.full:
                yield commit
                commit = _Commit(experiment, [], [])
    if commit.rows:
        yield commit


def _write(store: Store, commit: _Commit) -> _Written:
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
    why = [(commit.trials[at].name, reason) for at, reason in sorted(refused.items())]
    return _Written(len(kept), table.num_rows, why)


def study_row(study: StudyFolder, experiment: str) -> dict[str, Any]:
    """The row of ``studies``; its columns that trials have too are those of its trials."""
    dataset, model = facts.plain_name(study.dataset), facts.plain_name(study.model)
    goal = None if study.collection else facts.goal(study.dataset, study.model)
    examples = None if study.collection else facts.TRAIN_EXAMPLES.get(study.dataset)
    space = search_space(study)
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
        "budget_steps": study.train_steps or None,
        "train_examples": examples,
        "stop_at_target": False,
        "search": "quasi_random",
        "targets": [goal] if goal else None,
        "search_space": space,
        "dimensions": len([one for one in space.values() if isinstance(one, Mapping)]),
        "budget": _budget(study.train_steps),
    }


def _budget(steps: int | None) -> str:
    if not steps:
        return "a time budget"
    return f"{steps} {'step' if steps == 1 else 'steps'}"


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
    """What the row of ``trials`` has beside the study's columns.

    Raises:
        ValueError: a metaparameter that its column cannot hold.
    """
    used = {facts.METAPARAMETERS.get(name, name): v for name, v in trial.parameters.items()}
    own = {name: _own(name, value) for name, value in used.items() if name in _OWN}
    return {
        **own,
        "trial": _id(trial.name),
        "index": trial.trial_id,
        "role": "search",
        "effective_learning_rate": _effective(study.optimizer, own),
        "metaparameters": used,
        "status": trial.status,
        "stop_reason": facts.STOP_REASONS[trial.status],
        "steps_run": trial.steps,
        "examples_run": trial.steps * study.batch_size,
    }


_OWN = (
    *("learning_rate", "momentum", "weight_decay", "label_smoothing"),
    *("decay_steps", "end_factor", "warmup_steps"),
)

_WHOLE = {name for name in _OWN if pa.types.is_integer(TRIALS.field(name).type)}


def _own(name: str, value: float | int | str | bool) -> float | int:
    whole = name in _WHOLE
    if isinstance(value, (str, bool)) or (whole and value % 1):
        raise ValueError(
            f"metadata.json: {name} is {value!r}, no {'whole ' if whole else ''}number"
        )
    return int(value) if whole else float(value)


def _effective(optimizer: str, own: Mapping[str, Any]) -> float | None:
    """learning rate / (1 - momentum)."""
    rate, momentum = own.get("learning_rate"), own.get("momentum")
    if optimizer == "sgd":
        momentum = 0.0
    if rate is None or momentum is None or momentum >= 1:
        return None
    return float(rate / (1 - momentum))


def _id(name: str) -> str:
    return f"{facts.SOURCE}/{name}"
