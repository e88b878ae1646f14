"""Experiments as commands name them, and what a sweep of one would train."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.output.errors import CommandError
from results.storage.location import default_results

if TYPE_CHECKING:
    import pandas as pd

    from experiments.config.compile import Experiment
    from experiments.plan import Study
    from experiments.scheduling.messages import Observer
    from results.storage.location import Location


def load(
    source: str | Path | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    overrides: Sequence[str],
) -> Experiment:
    """An experiment from a file, a name, a mapping, or keywords.

    Raises:
        CommandError: none of them, or two.
    """
    from experiments.config import compile as config

    if source is not None and settings:
        raise CommandError(
            f"sweep got an experiment and keywords: {', '.join(settings)}",
            hint='change a value of the file by overrides=["trials=8"]',
        )
    if source is not None:
        return config.load(source, overrides)
    if not settings:
        raise CommandError(
            "sweep needs an experiment", hint='bs.sweep("digits"), or keywords: workload=…'
        )
    return config.from_keywords(**settings)


def plan(
    source: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    results: str | Path | Location | None = None,
) -> pd.DataFrame:
    """A row a study of the trials that ``sweep`` would train, with what earlier runs have done of
    it; nothing is written.

    Columns: those that distinguish the studies, ``batch_size``, ``tuned`` (the metaparameters
    searched), ``trials`` wanted, ``recorded`` so far, ``budget_steps`` of each; and, if every trial
    ran its whole budget, the study's ``most_steps``, ``most_examples`` and ``worker_hours``, of
    which evaluations take ``evaluation_share``. These hours and the ``memory`` of a pack in bytes
    are estimated from probes on this machine. With ``layout: auto``, ``layout_choice`` is what the
    workers would choose here, as JSON text; null where this machine cannot have as many.
    """
    import pandas as pd
    import torch

    from experiments.config.dry_build import check_device
    from experiments.execution.forecast import forecast
    from experiments.records import baselines
    from experiments.records.planned import planned

    experiment = load(source, {}, overrides)
    results = results or default_results()
    every = planned(experiment, known=_baseline_steps(results, experiment))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check_device(experiment, experiment.combinations, device)
    studies = [each.study for each in every]
    costs = forecast(studies, device)
    trials = recorded(results, studies)
    choices = _layout_choices(studies, device)
    rows = []
    for each in every:
        study, columns, cost = each.study, each.columns, costs[each.study.id]
        rows.append(
            {
                "workload": columns["workload"],
                "optimizer": study.optimizer_label,
                "schedule": study.schedule_label,
                **study.technique_by_label,
                **{n: v for n, v in columns["fields"].items() if n in experiment.grid},
                "batch_size": study.batch_size,
                **({"replicate": study.replicate} if experiment.parsed_design.baseline > 1 else {}),
                "tuned": ", ".join(study.search.space),
                "trials": study.trials,
                "recorded": trials.get(study.id, 0),
                "budget_steps": study.budget_steps,
                "most_steps": study.trials * study.budget_steps,
                "most_examples": study.trials * study.batches.examples(study.budget_steps),
                "engine": cost.engine,
                "memory": cost.memory,
                "evaluation_share": cost.evaluation_share,
                "worker_hours": cost.seconds * study.layout.workers / 3600,
                **choices.get(study.id, {}),
            }
        )
    table = pd.DataFrame(rows)
    tokens = [each.columns["tokens_per_example"] for each in every]
    if all(tokens):
        for name, counted in (("batch_size", "batch_tokens"), ("most_examples", "most_tokens")):
            table.insert(list(table.columns).index(name) + 1, counted, table[name] * tokens)
    table.attrs["device"] = device
    waiting = [study for study in studies if study.waits]
    table.attrs["waits"] = baselines.lines(baselines.WAITS, waiting)
    table.attrs["example_unit"] = every[0].columns["example_unit"]
    return table


def _layout_choices(studies: Sequence[Study], device: str) -> dict[str, dict[str, Any]]:
    """The column ``layout_choice`` of each study that leaves its layout open, by study."""
    from experiments.execution.forecast import packs
    from experiments.plan import Pack
    from results.schema import json_text

    choosing = [study for study in studies if study.layout.auto]
    if not choosing:
        return {}
    from experiments.training.auto_layout.probe import local_choices

    largest = [
        Pack(id=study.id, study=study, trials=(*study.draw(0, max(packs(study))),))
        for study in choosing
    ]
    made = local_choices(largest, device)
    return {
        pack.study.id: {"layout_choice": json_text(made[i]) if made is not None else None}
        for i, pack in enumerate(largest)
    }


def _baseline_steps(results: str | Path | Location, experiment: Experiment) -> dict[str, int]:
    """The baselines' steps to target that a results folder holds; a missing folder holds none."""
    import results as dataset
    from experiments.records.baselines import recorded
    from results.storage.location import Location

    location = Location.of(results)
    if not location.files("studies", ".parquet"):
        return {}
    studies = dataset.open(location).studies
    of_experiment = studies[studies["experiment"] == experiment.name]
    return recorded(of_experiment, experiment.targets[-1])


def recorded(results: str | Path | Location, studies: Sequence[Study]) -> dict[str, int]:
    """Trials that a results folder holds of each study's present search; a missing folder holds
    none."""
    import results as dataset
    from results.searches import belongs
    from results.storage.location import Location

    location = Location.of(results)
    if not location.files("trials", ".parquet"):
        return {}
    trials = dataset.open(location).trials
    trials = trials[trials["stop_reason"] != "error"]
    present = {study.id: study.search for study in studies}
    return {
        str(study): int(belongs(rows, search.id, search.seed).sum())
        for study, rows in trials.groupby("study")
        if (search := present.get(str(study))) is not None
    }


def tracked(
    track: str | Sequence[str], results: str | Path | Location, experiment: str, observer: Observer
) -> AbstractContextManager[Observer]:
    """The observer of a sweep whose trials are also written to ``track``, inside ``with``.

    Raises:
        CommandError, ResultsError: as ``Tracking``.
    """
    specs = [track] if isinstance(track, str) else [*dict.fromkeys(track)]
    if not specs:
        return nullcontext(observer)
    from batchscale.tracking.observer import Tracking
    from results.storage.location import Location

    if not isinstance(results, Location):
        results = Location(os.path.expanduser(results))
    return Tracking(specs, results, experiment, observer)
