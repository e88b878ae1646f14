"""a log: a file or a folder of CSV, JSON lines, Parquet, W&B, TensorBoard, Transformers and others

Which format it is, and which of its columns is what, is found by ``user_tables``, as ``--map`` says
otherwise. Each point keeps the row that it is of, as the file has it, in ``as_published``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from results.counts import count
from results.errors import ResultsError, escaped
from results.extensions import Option
from results.imports import Imported, commit_import
from results.schema import METRIC_COLUMNS
from results.storage.location import Location
from results.storage.masking import masked
from results.storage.names import experiment_name
from results.user_tables.curves import read_table
from results.user_tables.log import Log, read_log
from results.user_tables.names import is_environment, short
from results.user_tables.table_file import unzipped

_RESERVED = ("experiment", "study", "trial")
_NAMED = 6
"""Values, or columns, that a line names."""


def import_log(
    path: Path,
    results: str | Path | Location,
    *,
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            help="What a column is called there, or how it is computed: --map batch_size=bs --map "
            "batch_size=per_device*accumulate*8 --map val_loss=val/nll.",
            flag="--map",
            metavar="NAME=THEIRS",
        ),
    ] = None,
    complete: Annotated[
        bool | None, "Histories are complete, though their steps are irregular."
    ] = None,
    name: Annotated[
        str | None, "The experiment that the rows become, and their source; the file's name."
    ] = None,
    citation: Annotated[str | None, "Whose data it is, for the sources."] = None,
    licence: Annotated[str | None, "What may be done with it, for the sources."] = None,
) -> Imported:
    """Import a log into ``results`` as the experiment ``name``.

    Raises:
        ResultsError: what cannot be told, or a row that cannot be placed, with its line; nothing is
            written.
    """
    log = read_log(path, columns, complete=bool(complete))
    for column in _RESERVED:
        if log.table.has(column):
            raise ResultsError(
                f"{path} has a column {column!r}, a name that the import uses itself",
                hint=f"give it another name: --map {column}_there={column}",
            )
    try:
        experiment = experiment_name(name or unzipped(path.absolute()).stem)
    except ResultsError as error:
        error.hint = f"give it another: --name NAME ({error.hint})"
        raise
    memory = read_table(replace(log.table, called=experiment))
    studies, trials, measurements = (
        memory.table(each).to_pylist() for each in ("studies", "trials", "measurements")
    )
    published = _published(log, experiment)
    for trial in trials:
        trial["source"] = trial["source"] or experiment
        trial["as_published"] = published.get(str(trial["trial"]))
    sources = {trial["study"]: trial["source"] for trial in trials}
    digest = hashlib.sha256(repr(sorted((columns or {}).items())).encode())
    digest.update(repr(log.original.columns).encode())
    renamed = ", ".join(f"{new} is its {old}" for new, old in log.table.means.items() if new != old)
    about = {"citation": citation, "licence": licence, "notes": renamed or None}
    facts = {
        **{key: text and escaped(masked(text)) for key, text in about.items()},
        "address": escaped(masked(str(path.absolute()))),
        "checksum": f"sha256:{digest.hexdigest()}",
    }
    done = commit_import(
        results,
        experiment=experiment,
        sources=[{"source": each, **facts} for each in dict.fromkeys(sources.values())],
        studies=[{**study, "source": sources[study["study"]]} for study in studies],
        trials=trials,
        measurements=measurements,
    )
    notes = dict.fromkeys(n for study in studies for n in json.loads(study["notes"] or "[]"))
    done.said = [*said(log, trials, measurements), *notes]
    return done


def _published(log: Log, experiment: str) -> dict[str, dict[str, Any]]:
    """The row of each point by the name of its trial."""
    if log.table.has("step"):
        return {}
    names, rows = log.original.columns, zip(*log.original.columns.values(), strict=True)
    return {
        f"{experiment}/{place.replace(' ', '-')}": dict(zip(names, row, strict=True))
        for place, row in zip(log.original.places, rows, strict=True)
    }


def said(
    log: Log, trials: Sequence[Mapping[str, Any]], measurements: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What was taken for what, in lines."""
    table, means = log.table, log.table.means
    what = next((each for each in ("steps", "step", "tokens") if table.has(each)), "examples")
    kinds = {"step": "evaluations at", "steps": "steps to a target:"}
    sizes = _list(sorted({trial["batch_size"] for trial in trials}))
    measured = {n for row in measurements for n in METRIC_COLUMNS if row[n] is not None}
    measured |= {n for row in measurements for n in json.loads(row["metrics"] or "{}")}
    metrics = [name for name in table.columns if name in measured]
    named = [f"{n} ({means[n]})" if means.get(n, n) != n else n for n in metrics]
    values: dict[str, set[Any]] = {}
    for trial in trials:
        for key, value in json.loads(trial["metaparameters"] or "{}").items():
            values.setdefault(key, set()).add(value)
    settings = [
        f"{key} ({count(len(each), 'value')})" for key, each in values.items() if len(each) > 1
    ]
    unused = [
        name
        for name, cells in log.original.columns.items()
        if not table.has(name) and is_environment(short(name, log.original), cells)
    ]
    ramps = [str(trial["trial"]) for trial in trials if trial["batch_sizes"]]
    lines = {
        "batch size": f"{means.get('batch_size', 'batch_size')}, {sizes}",
        kinds.get(what, "final losses at"): means.get(what, what),
        "metrics": _list(named),
        "settings, over which the best counts": _list(settings),
        "a curve for each": _list(sorted({*table.columns["name"]} if "name" in means else ())),
        "not used": _list(unused),
        "curves of their own, for their batch size changes": _list(ramps),
    }
    first = f"read {count(log.parts, 'file')} as {log.format}: {count(len(trials), 'run')}"
    return [first, *(f"{k.rstrip(':')}: {text}" for k, text in lines.items() if text)]


def _list(values: Sequence[Any]) -> str:
    texts = [f"{each:,}" if isinstance(each, int) else str(each) for each in values]
    if len(texts) > _NAMED:
        texts = [*texts[: _NAMED - 2], "…", texts[-1]]
    return ", ".join(texts)
