"""Which trials make one curve: the columns that group, and those over which the best is taken."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from results.errors import ResultsError, escaped, nearest
from results.schema import STUDIES, TRIALS
from results.storage.values import parsed
from results.targets.target import Target

ALGORITHM = ("optimizer", "schedule", "technique")
"""The training algorithm: each groups unless ``by`` leaves it out."""

_ALWAYS = ("source", "workload", "dataset", "model")
_TARGET = ("target_metric", "target_value", "lower_is_better")


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """``always`` and ``by`` name the columns of a curve's ``group``; ``over`` names the others."""

    always: tuple[str, ...]
    by: tuple[str, ...]
    over: tuple[str, ...]

    def split(self, trials: pd.DataFrame) -> Iterator[tuple[dict[str, Any], NDArray[np.intp]]]:
        """Each curve's group and the places of its rows, in order of first appearance."""
        columns = (*self.always, *self.by)
        codes = np.zeros(len(trials), dtype=np.int64)
        for name in (*columns, *_TARGET):
            code, names = pd.factorize(trials[name], use_na_sentinel=False)
            codes = pd.factorize(codes * max(len(names), 1) + code)[0]
        for each in range(int(codes.max(initial=-1)) + 1):
            rows = np.flatnonzero(codes == each)
            first = {name: _plain(trials[name].iloc[rows[0]]) for name in columns}
            yield first, rows


def target(columns: Mapping[str, Any], rows: NDArray[np.intp]) -> Target | None:
    """The one target of ``rows``; None where no metric is recorded (steps from a file)."""
    metric, value, lower = (_plain(columns[name][rows[0]]) for name in _TARGET)
    if metric is None or value is None:
        return None
    return Target(metric=metric, value=value, lower_is_better=lower is None or bool(lower))


@dataclass(frozen=True, kw_only=True)
class Wide:
    """Trials or studies with a column for each workload field and each key of ``technique``."""

    frame: pd.DataFrame
    fields: tuple[str, ...]
    technique: tuple[str, ...]


def grouping(wide: Wide, by: Sequence[str] | None) -> Grouping:
    """How the trials of ``wide`` divide into curves.

    Workload, data set, target, source, unequal evaluation grids and workload fields that vary
    always group. ``by`` may name columns of the training algorithm, keys of ``technique``, workload
    fields and any other column of trials.

    Raises:
        ResultsError: ``by`` names none of these.
    """
    trials = wide.frame
    used = [name for name in ALGORITHM if trials[name].notna().any()]
    always = [name for name in _ALWAYS if trials[name].notna().any()]
    if _unequal_evaluations(trials):
        always.append("evaluation_ratio")
    fields = [
        name for name in wide.fields if len({json.dumps(_plain(cell)) for cell in trials[name]}) > 1
    ]
    # Experiments with different batch sizes make one curve; two searches of one batch size are two
    # results, and a pool of them would be neither.
    first = trials["replicate"].isna() | trials["replicate"].eq(0)
    search_trials = trials[first & trials["role"].ne("repeat") & trials["study"].notna()]
    cells = (search_trials[name] for name in ("study", "search_id", "search_seed"))
    search_trials = search_trials.assign(sample=[str(each) for each in zip(*cells, strict=True)])
    columns = [*always, *fields, *used, *_TARGET, "batch_size"]
    if _several(search_trials, columns, ["sample", "experiment"]):
        used.append("experiment")
        columns.append("experiment")
    # So are searches of one batch size by several methods.
    search_trials = trials[trials["role"].isin(("search", "extension")) & trials["search"].notna()]
    if _several(search_trials, columns, ["search"]):
        used.append("search")
    if by is None:
        return Grouping(always=(*always, *fields), by=tuple(used), over=())
    example = f"for example: {', '.join(used)}"
    for name in by:
        if name not in trials.columns or name in _NOT_GROUPS:
            raise ResultsError(
                f"no column {name!r} to group by",
                hint=example if name in _NOT_GROUPS else nearest(name, trials.columns, example),
            )
    rest = [name for name in by if name not in always and name not in fields]
    over = [name for name in used if name not in by]
    if any(name in wide.technique or f"technique.{name}" in wide.technique for name in by):
        over = [name for name in over if name != "technique"]
    return Grouping(always=(*always, *fields), by=tuple(dict.fromkeys(rest)), over=tuple(over))


def _unequal_evaluations(trials: pd.DataFrame) -> bool:
    """Whether trials of one workload and data set were evaluated on unequal grids: a finer one
    finds earlier hits, so that their steps to target are of different quantities."""
    keys = [trials["workload"], trials["dataset"]]
    ratios = pd.to_numeric(trials["evaluation_ratio"]).astype(float).round(12)
    return bool((ratios.groupby(keys, dropna=False).nunique() > 1).any())


def _several(trials: pd.DataFrame, columns: Sequence[str], names: list[str]) -> bool:
    """Whether somewhere trials that are equal in ``columns`` have several values of each of
    ``names``."""
    keys = [trials[name].astype(str) for name in columns]
    counts = trials.groupby(keys, sort=False, dropna=False)[names].nunique()
    return bool((counts > 1).all(axis=1).any())


_NOT_GROUPS = {
    *("batch_size", "steps_to_target", "last_miss", "undecided_evaluations", "relative_error"),
    *("metaparameters", "fields"),
}


def widen(trials: pd.DataFrame, *, apart: Sequence[str] = ()) -> Wide:
    """``trials`` with every column that the analysis reads, and one for each workload field and
    each key of ``technique``; a trial that is in several experiments with one target, and with
    equal values of the columns ``apart``, is taken once."""
    trials = trials.reset_index(drop=True)
    if "batch_size" in trials and trials["batch_size"].isna().any():
        message = "a trial or study without a batch size belongs to no curve"
        raise ResultsError(message, hint="leave it out: --where 'batch_size IS NOT NULL'")
    missing = {name: None for name in COLUMNS if name not in trials}
    trials = trials.assign(**missing) if missing else trials
    # Among several rows of a trial, one that ended well is preferred to an interrupted one.
    interrupted = trials["status"].eq("INCOMPLETE") & trials["stop_reason"].ne("dominated")
    columns = ["source", "trial", *_TARGET[:2], *apart]
    in_order = trials.loc[interrupted.sort_values(kind="stable").index, columns]
    repeated = in_order.duplicated() & in_order["trial"].notna()
    if repeated.any():
        trials = trials.drop(index=repeated[repeated].index).reset_index(drop=True)
    names: dict[str, list[str]] = {}
    taken = {*TRIALS.names, *STUDIES.names} & {*trials.columns}
    for column in ("fields", "technique"):
        texts = trials[column].map(_mapping_text)
        parsed = {text: json.loads(text) for text in texts.unique()}
        trials = trials.copy(deep=False)  # not assign: a field may be called `self`
        trials[column] = texts.where(texts != "{}", None)
        names[column] = []
        for name in dict.fromkeys(name for each in parsed.values() for name in each):
            # A field with the name of a column of trials or studies gets its table's name. Field
            # columns that the reader has added already are the same.
            column_name = name if name not in taken else f"{column}.{name}"
            taken.add(column_name)
            values = {text: _plain(each.get(name)) for text, each in parsed.items()}
            trials[column_name] = texts.map(values).astype(object)
            names[column].append(column_name)
    return Wide(frame=trials, fields=tuple(names["fields"]), technique=tuple(names["technique"]))


COLUMNS = (
    *_ALWAYS, *ALGORITHM, *_TARGET,
    "study", "trial", "index", "role", "search", "search_id", "search_seed", "other_searches",
    "enlargement", "estimator", "replicate", "experiment", "workload_version", "time",
    "revision",
    "batch_size", "fields", "metaparameters", "learning_rate", "momentum",
    "effective_learning_rate", "status", "stop_reason", "steps_to_target", "last_miss",
    "undecided_evaluations", "relative_error", "acts_from",
    "steps_run", "keep", "evaluation_ratio", "budget_steps", "batch_sizes", "example_unit",
    "tokens_per_example", "gradients_per_step", "error",
)  # fmt: skip
"""Columns of trials that the analysis reads; one that is absent is all null."""


def label(group: Mapping[str, Any], names: Iterable[str], *, full: bool = False) -> str:
    """A curve's values of ``names``, with the names of those that are numbers; ``full``: of all,
    and all digits."""
    parts = []
    for name in names:
        value, short_name = group.get(name), name.rpartition(".")[2]
        if value is None:
            continue
        if not isinstance(value, str):
            short = f"{value:g}"
            cut = float(short) != value and (full or value % 1 == 0)  # 1281167, not 1.28117e+06
            parts.append(f"{short_name} {f'{value:.15g}' if cut else short}")
        elif name == "technique":  # {"precision":"bfloat16"} as precision bfloat16
            parts.append(", ".join(f"{key} {each}" for key, each in json.loads(value).items()))
        else:
            parts.append(f"{short_name} {value}" if full else value)
    return escaped(", ".join(filter(None, parts)))


def labels(groups: Sequence[Mapping[str, Any]], extra: Sequence[str] = ()) -> list[str]:
    """The values that distinguish curves of these group columns; ``extra`` has a further one a
    curve (its target).

    Beside curves with a ``source`` those without are ``OWN``. A curve that has none of what
    distinguishes the others is called by its training algorithm or workload.
    """
    groups = _without_common_parts(groups)
    names = dict.fromkeys(name for group in groups for name in group)
    table = pd.DataFrame([{name: str(group.get(name)) for name in names} for group in groups])
    varying = [name for name in names if table[name].nunique() > 1]
    for name in varying.copy():
        # Leave out columns that only a sweep records, unless they are needed.
        often_empty = name in _OFTEN_EMPTY or name.startswith("fields.")
        if often_empty and len({*table[name]} - {"None"}) < 2:
            fewer = [other for other in varying if other != name]
            if fewer and len(table[fewer].value_counts()) == len(table[varying].value_counts()):
                varying = fewer
    if "source" in varying:
        groups = [{**group, "source": group.get("source") or OWN} for group in groups]
    further = list(extra) if len(set(extra)) > 1 else [""] * len(groups)
    usual = [name for name in names if name in ("optimizer", "workload")][-1:]
    texts = [label(group, varying) or label(group, usual) for group in groups]
    unlike = Counter(text for text, _ in {*zip(texts, map(str, groups), strict=True)})
    texts = [
        label(group, varying, full=True) if unlike[text] > 1 else text
        for group, text in zip(groups, texts, strict=True)
    ]
    return [
        ", ".join(filter(None, pair)) or "steps to target"
        for pair in zip(texts, further, strict=True)
    ]


def _without_common_parts(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``groups`` without the parts of a technique that all of several have."""
    parts = [json.loads(_mapping_text(group.get("technique"))) for group in groups]
    if len(groups) > 1:
        common = [item for item in parts[0].items() if all(item in p.items() for p in parts)]
        parts = [{k: v for k, v in part.items() if (k, v) not in common} for part in parts]
    return [
        {**group, "technique": json.dumps(part)} if group.get("technique") else dict(group)
        for group, part in zip(groups, parts, strict=True)
    ]


OWN = "own"
"""The source of a curve that has none."""
_OFTEN_EMPTY = ("dataset", "model", "schedule", "technique")
"""Columns that others' data often leaves empty; and fields named as columns of trials."""


def _mapping_text(value: Any) -> str:
    """JSON text, a mapping or Arrow's list of pairs as canonical JSON text; null is ``{}``."""
    if isinstance(value, str):
        value = parsed(value, "fields or technique") if value else {}
    elif isinstance(value, (list, tuple)):
        value = dict(value)
    return json.dumps(value if isinstance(value, Mapping) else {}, sort_keys=True)


def _plain(value: Any) -> Any:
    """A Python value; None for any null; a list (a ``widths`` field) as JSON text."""
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, sort_keys=True)
    if value is None or value is pd.NaT or value is pd.NA or value != value:
        return None
    return value.item() if hasattr(value, "item") else value
