"""The columns of the four tables: the same full typed schema in every file of a table.

Without one fixed schema pandas, pyarrow and DuckDB silently drop the columns that the first file
happens to lack. Columns are only ever added (with a higher ``SCHEMA_VERSION``); one that a file
lacks is null.

Types: counts and steps are int64; a mean, a rate or a number of seconds is float64; text is
UTF-8; values without a fixed shape are JSON text. ``steps_to_target`` and ``last_miss`` are
float64, because steps taken from a published curve need not be whole, and because pandas keeps a
missing one as NaN in the same type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from results.errors import ResultsError, nearest

SCHEMA_VERSION = 11
VERSION_KEY = b"batchscale.schema"
TABLE_KEY = b"batchscale.table"
REPLACES_KEY = b"batchscale.replaces"
"""In a compacted file: JSON list of the files beside it whose rows it holds."""

SPLITS = ("train", "validation", "test")
METRICS = ("error", "cross_entropy", "loss")
METRIC_COLUMNS = tuple(f"{split}_{metric}" for split in SPLITS for metric in METRICS)
"""Metrics that have a column; all others are in ``metrics`` (JSON text)."""

_TEXT, _COUNT, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")

_GROUP: dict[str, pa.DataType] = {
    "experiment": _TEXT,
    "study": _TEXT,
    "source": _TEXT,  # null for a sweep of batchscale, else a row of `sources`
    "workload": _TEXT,
    "workload_version": _TEXT,  # sha256 of its source, or the version it pins
    "dataset": _TEXT,
    "model": _TEXT,
    "optimizer": _TEXT,
    "schedule": _TEXT,
    "technique": _TEXT,  # JSON: precision, ghost batch, regularization
    "batch_size": _COUNT,
    "example_unit": _TEXT,
    "tokens_per_example": _COUNT,
    "fields": _TEXT,  # JSON: the workload's fields
}

_PLAN: dict[str, pa.DataType] = {
    "trials_wanted": _COUNT,
    "budget_steps": _COUNT,
    "batch_sizes": _TEXT,  # JSON: phases of a ramp (results.batch_phases); null: one for all steps
    "train_examples": _COUNT,  # size of the training split: an epoch
    "evaluation_ratio": _NUMBER,
    "keep": _COUNT,
    "stop_at_target": _FLAG,
    "search": _TEXT,  # how points are drawn: sobol, random, grid, points
    "replicate": _COUNT,  # of a design's baseline: searches 0, 1 … of one study; null: 0
    "estimator": _TEXT,  # represents a batch size: minimum, best_of_10, median_of_searches
    "baseline_steps": _COUNT,  # to target, of which lengths are shares; null: of none, or unknown
    "engine": _TEXT,
    "layout": _TEXT,  # JSON
}

_METAPARAMETERS: dict[str, pa.DataType] = {
    **dict.fromkeys(("learning_rate", "momentum", "effective_learning_rate"), _NUMBER),
    **dict.fromkeys(("beta1", "beta2", "epsilon", "weight_decay"), _NUMBER),
    **dict.fromkeys(("warmup_steps", "decay_steps"), _COUNT),
    **dict.fromkeys(("end_factor", "label_smoothing"), _NUMBER),
}

_COMMIT: dict[str, pa.DataType] = {
    "revision": _COUNT,  # above that of all rows its writer had read; null: none
    "time": _TIME,
}

_STUDIES: dict[str, pa.DataType] = {
    **_GROUP,
    "targets": _TEXT,  # JSON: ["validation_error < 0.05", …], easiest first
    "search_space": _TEXT,  # JSON: {name: range} of the tuned metaparameters
    "enlargements": _TEXT,  # JSON: ids of the trials that each enlargement of it adds
    "search_id": _TEXT,  # of the search: its space as first given, what is fixed, its method
    "search_seed": _COUNT,
    "dimensions": _COUNT,  # how many are tuned
    "budget": _TEXT,  # as written: "50 epochs + 2000 steps"
    **_PLAN,
    "experiment_yaml": _TEXT,  # the resolved file; it can be run again
    "repeats": _COUNT,  # of the best trial, that follow the search; null: none
    "baseline": _TEXT,  # JSON: the studies of whose steps to target lengths are shares
    "notes": _TEXT,  # JSON: sentences for its curve's notes
    **_COMMIT,
}

_TRIALS: dict[str, pa.DataType] = {
    **_GROUP,
    "trial": _TEXT,
    "run": _TEXT,  # the commit that wrote the row; its measurements carry the same
    "index": _COUNT,
    "seed": _COUNT,
    "search_id": _TEXT,  # the search that drew it; null: written before searches had an id
    "search_seed": _COUNT,  # of the table that `index` is a row of: a study may be searched again
    "other_searches": _TEXT,  # JSON: {search_id: index} of searches that drew the same trial
    "enlargement": _COUNT,  # times the search space had been enlarged when the row was drawn
    "role": _TEXT,
    "round": _COUNT,
    "branch_of": _TEXT,  # the trial that this one goes on from, from the second of `batch_sizes` on
    **_METAPARAMETERS,
    "metaparameters": _TEXT,  # JSON: all of them
    "status": _TEXT,
    "stop_reason": _TEXT,
    "target_metric": _TEXT,
    "target_value": _NUMBER,
    "lower_is_better": _FLAG,
    "steps_to_target": _NUMBER,
    "last_miss": _NUMBER,
    "undecided_evaluations": _COUNT,  # that ended early and may have passed the target; null: none
    "relative_error": _NUMBER,  # of steps_to_target, where it was read off a figure; null: none
    "acts_from": _TEXT,  # JSON: {part of the training algorithm: updates before it acts}, if any
    "steps_run": _COUNT,
    "examples_run": _COUNT,
    "gradients_per_step": _COUNT,  # of the whole batch; null: 1
    "skipped_steps": _COUNT,  # steps without an update, whose gradient overflowed; null: unscaled
    "train_seconds": _NUMBER,
    "evaluation_seconds": _NUMBER,
    "other_seconds": _NUMBER,
    "pack": _TEXT,
    "pack_models": _COUNT,
    "device": _TEXT,
    "world_size": _COUNT,
    "precision": _TEXT,
    "micro_batch": _COUNT,  # most examples of a model in one forward pass of training, on a rank
    "layout_choice": _TEXT,  # JSON: the layouts that were measured, where it was left open
    "error": _TEXT,
    "versions": _TEXT,  # JSON: {"torch": "2.11.0", …}
    "commit": _TEXT,  # of git
    "as_published": _TEXT,  # JSON: as in its source, in the source's units
    **_PLAN,
    **_COMMIT,
}

_INTERVAL: dict[str, pa.DataType] = {
    "interval_metric": _TEXT,  # that the next three are about; null: the whole split was read
    "interval_low": _NUMBER,  # the metric on the whole split is not below, but for a chance of 1e-9
    "interval_high": _NUMBER,  # nor above
    "standard_error": _NUMBER,  # of the mean of that metric, drawn without replacement
}

_MEASUREMENTS: dict[str, pa.DataType] = {
    "experiment": _TEXT,
    "study": _TEXT,
    "trial": _TEXT,
    "run": _TEXT,
    "step": _COUNT,
    "examples": _COUNT,
    "train_seconds": _NUMBER,
    **dict.fromkeys(METRIC_COLUMNS, _NUMBER),
    "metrics": _TEXT,  # JSON: {"<split>_<metric>": value} of any other
    "evaluated_examples": _COUNT,  # of each evaluated split that were read; null: all of them
    **_INTERVAL,
}

_SOURCES: dict[str, pa.DataType] = {
    **dict.fromkeys(("experiment", "source", "citation", "licence", "address"), _TEXT),
    **dict.fromkeys(("checksum", "notes"), _TEXT),
    **_COMMIT,
}


def _schema(table: str, columns: Mapping[str, pa.DataType]) -> pa.Schema:
    metadata = {VERSION_KEY: str(SCHEMA_VERSION).encode(), TABLE_KEY: table.encode()}
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()], metadata=metadata)


SCHEMAS: Mapping[str, pa.Schema] = {
    "studies": _schema("studies", _STUDIES),
    "trials": _schema("trials", _TRIALS),
    "measurements": _schema("measurements", _MEASUREMENTS),
    "sources": _schema("sources", _SOURCES),
}
STUDIES, TRIALS = SCHEMAS["studies"], SCHEMAS["trials"]
GROUP_COLUMNS = tuple(_GROUP)
INTERVAL_COLUMNS = tuple(_INTERVAL)
"""What is known of the whole split where an evaluation ended after a part of it."""
METAPARAMETERS = tuple(_METAPARAMETERS)
"""Metaparameters that have a column; all of a trial's are in ``metaparameters``."""


def json_text(value: Any) -> str:
    """Canonical JSON text, keys sorted. NaN and infinities become "nan", "inf", "-inf"."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of the full schema of ``name``.

    A missing key is null; a mapping or a list in a text column becomes JSON text. In measurements
    ``metrics`` may be a mapping of all metrics: those that have a column go there.

    Raises:
        ResultsError: an unknown key, or a value that its column cannot hold.
    """
    schema = SCHEMAS[name]
    if name == "measurements":
        rows = [_lift_metrics(row) for row in rows]
    given = set().union(*rows)
    for key in sorted(given.difference(schema.names)):
        hint = nearest(key, schema.names, f"columns: {', '.join(schema.names)}")
        raise ResultsError(f"{name} have no column {key!r}", hint=hint)
    columns = [
        _column(name, field, [row.get(field.name) for row in rows])
        if field.name in given
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _column(name: str, field: pa.Field, values: list[Any]) -> pa.Array:
    if field.type == _TEXT:
        kinds = (Mapping, list, tuple)
        values = [v if type(v) is str or not isinstance(v, kinds) else json_text(v) for v in values]
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ResultsError(
            f"column {field.name} of {name} holds {field.type} values: {error}"
        ) from error


def _lift_metrics(row: Mapping[str, Any]) -> Mapping[str, Any]:
    metrics = row.get("metrics")
    if not isinstance(metrics, Mapping):
        return row
    columns = {key: value for key, value in metrics.items() if key in METRIC_COLUMNS}
    rest = {key: value for key, value in metrics.items() if key not in columns}
    return {**row, **columns, "metrics": json_text(rest) if rest else None}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a numpy number
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
