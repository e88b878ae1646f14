"""MLPerf's reference convergence points as rows of the dataset, their units and errors handled.

A point is several runs of one benchmark at one batch size. Every run is a trial of role
``repeat``: none is minimized over. ``as_published`` keeps the number and its unit as they were.

The files of mlcommons/logging call every number "Epochs to converge". Its unit (samples, tokens,
steps or epochs) depends on the benchmark, and for two benchmarks also on the version. Sizes that
turn epochs and tokens into examples are not in those files: each names its source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, get_args

from results.counts import agreeing
from results.user_tables.trials import study_of

Unit = Literal["epoch", "sample", "token", "step"]
UNITS: tuple[Unit, ...] = get_args(Unit)

_COUNTS: Mapping[Unit, str] = {
    "sample": "bert deepseekv3_671b flux1 gpt_oss_20b llama2_70b_lora llama31_405b llama31_8b "
    "openfold qwen35_397b_grpo stable_diffusion unet3d",
    "epoch": "cosmoflow deepcam dlrm dlrm_dcnv2 gnn maskrcnn oc20 resnet retinanet rgat rnnt ssd",
    "token": "gpt3",
}
_UNITS = {name: unit for unit, names in _COUNTS.items() for name in names.split()}
_UNTIL: Mapping[str, tuple[tuple[int, ...], Unit]] = {
    "stable_diffusion": ((4, 0), "step"),
    "unet3d": ((3, 1), "epoch"),
}
"""Benchmarks that counted in another unit before a version."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many examples an epoch has, or how many tokens an example."""

    count: int
    remembered: bool
    """Whether it is from memory, not from a source that was read."""


_EXAMPLES: Mapping[str, Size] = {
    "resnet": Size(count=1_281_167, remembered=False),
    "retinanet": Size(count=1_170_301, remembered=True),
    "ssd": Size(count=1_170_301, remembered=True),
    "dlrm": Size(count=4_195_197_692, remembered=True),
    "dlrm_dcnv2": Size(count=4_195_197_692, remembered=True),
}
_TOKENS: Mapping[str, Size] = {"gpt3": Size(count=2_048, remembered=True)}
_SINCE: Mapping[str, tuple[int, ...]] = {"ssd": (2, 0)}
"""Benchmarks that have another data set, and so another size, from a version on."""


def unit_of(benchmark: str, version: tuple[int, ...]) -> Unit | None:
    """The unit of a benchmark's "Epochs to converge"; None where it is not known."""
    until, before = _UNTIL.get(benchmark, ((), None))
    return before if before is not None and version < until else _UNITS.get(benchmark)


def size_of(benchmark: str, unit: Unit, version: tuple[int, ...]) -> Size | None:
    """Examples an epoch, or tokens an example; None where it is not known or not needed."""
    if version < _SINCE.get(benchmark, ()):
        return None
    return {"epoch": _EXAMPLES, "token": _TOKENS}.get(unit, {}).get(benchmark)


OUTLIER = 5.0
"""A run above this many times the median of its batch size is an error in the file."""
_CHANGED = {"cosmoflow": (32, 64)}
"""Batch sizes that were run with changed hyperparameters: not comparable with the others."""
_CLOSE = 4.0

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Point:
    """The runs of one benchmark at one batch size, as they were published."""

    benchmark: str
    version: tuple[int, ...]
    batch_size: int
    unit: Unit
    values: tuple[float, ...]
    """Amounts in ``unit``, one per run."""
    name: str
    """Unique among the points of its source."""
    submitter: str | None = None
    """Who tuned and ran it: several do for one benchmark, and their runs are not comparable."""
    optimizer: str | None = None
    precision: str | None = None
    metaparameters: Mapping[str, Any] | None = None
    published: Mapping[str, Any]
    """Other facts from its source."""


def rows(source: str, points: Iterable[Point]) -> tuple[list[Row], list[Row]]:
    """Studies and trials of ``points``; experiment and source are called ``source``."""
    by_benchmark: dict[str, list[Point]] = {}
    for point in points:
        by_benchmark.setdefault(point.benchmark, []).append(point)
    studies, trials = {}, []
    for every in by_benchmark.values():
        for point in every:
            curve = [other for other in every if _fields(other) == _fields(point)]
            group = _group(source, point)
            study = study_of(group)
            studies[study] = {**group, "study": study, "notes": _notes(curve) or None}
            trials += [{**group, "study": study, **row} for row in _trials(source, point)]
    return list(studies.values()), trials


def steps_and_examples(value: float, point: Point) -> tuple[float, float | None]:
    """A run's steps to target, and its examples: None where the data set's size is not known.

    Steps are relative then: epochs / batch size.
    """
    size = size_of(point.benchmark, point.unit, point.version)
    if point.unit == "step":
        return value, value * point.batch_size
    if point.unit == "sample":
        return value / point.batch_size, value
    if size is None:
        return value / point.batch_size, None
    examples = value * size.count if point.unit == "epoch" else value / size.count
    return examples / point.batch_size, examples


def outliers(values: Sequence[float]) -> list[bool]:
    """Which runs are more than ``OUTLIER`` times the median of all."""
    return [value > OUTLIER * median(values) for value in values]


def _group(source: str, point: Point) -> Row:
    size = size_of(point.benchmark, point.unit, point.version)
    return {
        "experiment": source,
        "source": source,
        "workload": point.benchmark,
        "optimizer": point.optimizer,
        "batch_size": point.batch_size,
        "example_unit": "sample",
        "tokens_per_example": size.count if size and point.unit == "token" else None,
        "fields": _fields(point) or None,
    }


def _trials(source: str, point: Point) -> Iterable[Row]:
    for run, (value, wrong) in enumerate(zip(point.values, outliers(point.values), strict=True)):
        steps, examples = steps_and_examples(value, point)
        whole = None if examples is None else round(examples)
        row: Row = {
            "trial": f"{source}-{point.name}-{run}",
            "role": "repeat",
            "status": "COMPLETE",
            "stop_reason": "target",
            "steps_to_target": steps,
            "steps_run": None if whole is None else math.ceil(steps),
            "examples_run": whole,
            "precision": point.precision,
            "metaparameters": point.metaparameters or None,
            "as_published": {**point.published, "value": value, "unit": point.unit, "run": run},
        }
        if wrong:
            row |= dict.fromkeys(("steps_to_target", "steps_run", "examples_run"))
            row |= {"status": "INCOMPLETE", "stop_reason": "error"}
            row["error"] = f"more than {OUTLIER:g} times the median of its batch size: left out"
        yield row


def _fields(point: Point) -> dict[str, str]:
    """What always divides curves of one benchmark."""
    return {
        **({"submitter": point.submitter} if point.submitter else {}),
        **({"recipe": "changed"} if _changed(point) else {}),
    }


def _changed(point: Point) -> bool:
    return point.batch_size in _CHANGED.get(point.benchmark, ())


def _notes(points: Sequence[Point]) -> list[str]:
    """The notes of a curve of these points."""
    first = points[0]
    size = size_of(first.benchmark, first.unit, first.version)
    notes = [_relative(first.unit, size)] if first.unit in ("epoch", "token") else []
    if _changed(first):
        notes.append("these batch sizes were run with changed hyperparameters")
    wrong = {p.batch_size: sum(outliers(p.values)) for p in points if any(outliers(p.values))}
    notes += [
        f"{many} of the runs at batch size {at} {agreeing(many, 'are')} above {OUTLIER:g} times "
        f"their median, an error of the published file, and {agreeing(many, 'are')} left out"
        for at, many in wrong.items()
    ]
    tested = sorted({point.batch_size for point in points})
    if len(tested) == 3 and tested[-1] <= _CLOSE * tested[0]:
        notes.append(
            f"three batch sizes within a factor of {tested[-1] / tested[0]:.2g} are too few to say "
            "where a regime ends"
        )
    return [text for text in notes if text]


def _relative(unit: Unit, size: Size | None) -> str:
    if size is None:
        what = "examples an epoch" if unit == "epoch" else "tokens an example"
        return (
            f"the number of {what} is not known: steps are {unit}s / batch size, min_examples "
            f"counts {unit}s, and batch sizes alone can be compared with other curves"
        )
    if not size.remembered:
        return ""
    what = "examples an epoch" if unit == "epoch" else "tokens an example"
    return (
        f"{size.count:,} {what} is a number from memory: min_steps and min_examples scale with it, "
        "batch sizes do not"
    )
