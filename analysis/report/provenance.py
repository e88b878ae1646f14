"""Where the numbers of a report come from: experiment files, environment, sources."""

from __future__ import annotations

import json
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pandas as pd

from analysis.figure_data import FigureData
from results.counts import count
from results.schema import SCHEMA_VERSION
from results.storage.masking import masked

_COLUMNS = {
    "engine": "engine",
    "device": "device",
    "world_size": "devices a model",
    "precision": "precision",
    "evaluation_ratio": "evaluation grid, ratio",
    "search": "search",
    "commit": "git commit",
}
_CITED = ("source", "citation", "licence", "address", "notes")
_MOST = 6
"""Most values of a column that are listed."""


def program() -> str:
    """The version that makes the report."""
    try:
        return version("batchscale")
    except PackageNotFoundError:
        return "unknown"


def experiments(data: FigureData) -> list[dict[str, str]]:
    """Each experiment file once, as it was resolved; under a condition, those of its trials."""
    files = data.studies[["experiment", "experiment_yaml"]].dropna(subset="experiment_yaml")
    if data.query.where is not None:
        files = files[files["experiment"].isin(data.trials["experiment"])]
    return [
        {"name": str(name), "yaml": masked(str(text))}
        for name, text in files.drop_duplicates().itertuples(index=False)
    ]


def environment(data: FigureData) -> list[dict[str, str]]:
    """The environment of the trials, a line each; several values with their numbers of trials."""
    trials = data.trials
    rows = [
        {"name": name, "text": text}
        for column, name in _COLUMNS.items()
        if column in trials and (text := _values(trials[column]))
    ]
    packages: dict[str, Counter[str]] = {}
    for versions, many in trials["versions"].dropna().value_counts().items():
        for package, number in json.loads(str(versions)).items():
            packages.setdefault(package, Counter())[str(number)] += int(many)
    rows += [{"name": package, "text": _counted(counts)} for package, counts in packages.items()]
    rows.append({"name": "results schema", "text": f"version {SCHEMA_VERSION}"})
    rows.append({"name": "this report", "text": f"batchscale {program()}"})
    return rows


def sources(data: FigureData) -> list[dict[str, Any]]:
    """The rows of ``sources`` of the experiments and sources that trials of the report are of,
    equal ones once."""
    pairs = data.trials[["experiment", "source"]].dropna(subset="source").drop_duplicates()
    used = {*pairs.itertuples(index=False, name=None)}
    cited = [
        {name: _text(row.get(name)) for name in _CITED}
        for opened in data.opened
        for row in opened.sources.to_dict("records")
        if (row.get("experiment"), row["source"]) in used
    ]
    return [row for i, row in enumerate(cited) if row not in cited[:i]]


def _text(value: Any) -> str | None:
    return masked(value) if isinstance(value, str) and value else None


def _values(cells: pd.Series) -> str:
    counts: Counter[str] = Counter()
    for value, trials in cells.dropna().value_counts().items():
        text = f"{value:g}" if isinstance(value, (int, float)) else str(value)
        counts[text] += int(trials)
    return _counted(counts)


def _counted(counts: Counter[str]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    usual = counts.most_common(_MOST)
    texts = [f"{value} ({count(trials, 'trial')})" for value, trials in usual]
    more = len(counts) - len(usual)
    return ", ".join([*texts, f"and {more} more"] if more else texts)
