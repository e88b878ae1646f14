"""A user's rows, one a run, as trials: which are settings, and which are minimized over."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from results.schema import GROUP_COLUMNS, METAPARAMETERS, json_text, table
from results.storage.source import Memory
from results.targets.target import lower_is_better
from results.user_tables.names import is_metric, plain
from results.user_tables.table_file import TableFile, number

TABLE = "table"
"""The search whose trials are the rows of a user's table."""
_NOT_A_SETTING = (
    "{0} is taken for a measurement; if it is a setting to minimize over, call it learning_rate, "
    "or as another column of trials is called"
)
_IDENTITY = re.compile(r"seed|fold|repeat|replica|trial|index|(^|_)id$")
"""Names of numbers that tell runs apart, and are no settings."""
TARGET = ("target_metric", "target_value", "lower_is_better")


def described(runs: pd.DataFrame, others: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """What the columns of ``runs``, a row each, make of them: ``role``, ``search``, ``replicate``,
    ``metaparameters`` and ``fields`` of each, and ``notes`` for its study.

    Numbers that differ between runs of one curve and one batch size are settings, which are
    minimized over (``metaparameters``); repeated runs of each setting are searches of their own.
    Without settings each row is a run of its own (role ``repeat``).

    Args:
        runs: columns of the trials table.
        others: further columns, (n,) each, constant in each run. Texts that are not unique to each
            run distinguish curves, as numbers do that never differ (``fields``).
    """
    fields: dict[str, pd.Series] = {}
    settings = {name: runs[name] for name in METAPARAMETERS if name in runs}
    unique = []
    for name, cells in others.items():
        numbers = [None if cell is None else number(cell) for cell in cells]
        is_text = all(each is None for each in numbers) or any(
            cell is not None and each is None for cell, each in zip(cells, numbers, strict=True)
        )
        values = pd.Series(cells if is_text else numbers, index=runs.index)
        several = values.nunique() > 1
        measured = is_metric(plain(name).rpartition("_")[2])  # best_val_loss, and not loss_scale
        own = len(values) > 1 and values.notna().all() and values.is_unique  # of each run
        if several and (measured or own or _IDENTITY.search(name.lower())):
            unique += [name] if not is_text and (values % 1 != 0).any() else []
        elif is_text or not several:
            fields[name] = _plain(values)
        else:
            settings[name] = _plain(values)
    group = [name for name in (*GROUP_COLUMNS, *TARGET) if name in runs]
    keys = [*(runs[name] for name in group), *fields.values()]
    varied = {
        name: values
        for name, values in settings.items()
        if values.groupby(keys, dropna=False).nunique().gt(1).any()
    }
    used = {name: each for name, each in settings.items() if name in runs or name in varied}
    notes = [_NOT_A_SETTING.format(name) for name in unique]
    seeds = pd.to_numeric(runs["seed"]) if "seed" in runs else pd.Series(0, runs.index)
    repetitions = _repetitions(keys, [*varied.values()], seeds)
    return [
        {
            "role": "repeat" if repetition is None else "search",
            "search": TABLE if varied else None,
            "replicate": repetition or None,
            "metaparameters": _present({name: each[at] for name, each in used.items()}) or None,
            "fields": _present({name: each[at] for name, each in fields.items()}) or None,
            "notes": notes or None,
        }
        for at, repetition in zip(runs.index, repetitions, strict=True)
    ]


def trials(
    file: TableFile, rows: pd.DataFrame, names: Sequence[str], others: Sequence[str]
) -> list[dict[str, Any]]:
    """The trials of ``rows``, whose index is a row of the file each.

    Args:
        names: what distinguishes each trial from the others of the file.
        others: columns of the file that ``rows`` lacks, constant in each run.
    """
    cells = {name: [file.columns[name][at] for at in rows.index] for name in others}
    known = map(_present, rows.astype(object).to_dict("records"))
    made = []
    for name, row, more in zip(names, known, described(rows, cells), strict=True):
        notes = [*file.computed, *(more["notes"] or ())]
        made.append(_trial(file, name, {**row, **more, "notes": notes or None}))
    return made


def _trial(file: TableFile, name: str, row: dict[str, Any]) -> dict[str, Any]:
    trial = {"experiment": file.name, "workload": file.name, **row}
    metric = str(trial.get("target_metric", ""))
    if metric and "lower_is_better" not in trial:
        trial["lower_is_better"] = lower_is_better(metric)
    # No experiment has a slash in its name: gpt/small-0 is not gpt-small/0.
    more = {"trial": f"{file.name}/{name}", "run": file.name, "status": "COMPLETE"}
    return {**trial, "study": study_of(trial), **more}


def _present(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Without the empty cells."""
    return {str(name): value for name, value in values.items() if not pd.isna(value)}


def _plain(values: pd.Series) -> pd.Series:
    """Whole numbers as integers."""
    whole = [
        int(v) if isinstance(v, float) and v % 1 == 0 and abs(v) < 2**53 else v for v in values
    ]
    return pd.Series(whole, index=values.index, dtype=object)


def _repetitions(
    keys: Sequence[pd.Series], settings: Sequence[pd.Series], seeds: pd.Series
) -> list[int | None]:
    """Which repetition of its settings each run is, by its seed: rows may be sorted by steps. None
    without settings, and beyond the number that all of its batch size have (it was selected)."""
    if not settings:
        return [None] * len(keys[0])
    cell = pd.DataFrame(dict(enumerate(keys))).groupby([*keys], dropna=False).ngroup()
    configuration = [cell, *(each.astype(str) for each in settings)]
    number = seeds.groupby(configuration).rank("first", na_option="bottom") - 1
    least = cell.groupby(configuration).transform("size").groupby(cell).transform("min")
    return [int(n) if n < most else None for n, most in zip(number, least, strict=True)]


def study_of(trial: Mapping[str, Any]) -> str:
    """The study of a trial that was not trained here: a hash of its group columns and target."""
    group = {name: trial.get(name) for name in (*GROUP_COLUMNS, *TARGET) if name != "study"}
    return hashlib.sha256(json_text(group).encode()).hexdigest()[:16]


def memory(rows: list[dict[str, Any]], points: list[dict[str, Any]]) -> Memory:
    columns = (*GROUP_COLUMNS, "notes")
    studies = {row["study"]: {name: row.get(name) for name in columns} for row in rows}
    rows = [{name: value for name, value in row.items() if name != "notes"} for row in rows]
    return Memory(
        {
            "studies": table("studies", list(studies.values())),
            "trials": table("trials", rows),
            "measurements": table("measurements", points),
        }
    )
