"""``python -m validation wrong-size``: what a batch size other than the critical one costs, of all
packaged curves.

Of each curve the steps at a multiple of its critical batch size over those at it, by the fit that
assumes no form (``analysis.fit.locate``), where both lie within the tested batch sizes. The
critical batch size is that of the regimes, or where they have only a bound, that of the knee.
Curves of one workload are not independent: medians have intervals by resampling workloads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.figure_data import FigureData, Query
from analysis.fit.interval import Interval
from analysis.fit.knee_form import by_knee
from analysis.fit.regimes import Regimes
from validation.page import ROOT, interval, share, table
from validation.page import times as text_of

PAGE = ROOT / "docs" / "findings" / "wrong-batch-size.md"
TIMES = (1 / 8, 1 / 4, 1 / 2, 2.0, 4.0, 8.0)
LATER = ("arms", "atlas", "cnn", "growth", "half-life", "resnet8", "rules", "targets")
"""Experiments of questions.md, which the page had not seen: those of the atlas are asked apart."""
BEFORE = " AND ".join(f"experiment NOT LIKE '{name}-%'" for name in LATER)
SOURCES = {"own": f"schedule = 'constant' AND {BEFORE}", "published": None}
"""What each has of plain training."""
ATLAS = {"own": "experiment LIKE 'atlas-%'"}
LEAVES_TRAINING_AS_IT_IS = {"precision", "noise_scale"}
FEW = 5
"""Curves of an optimizer below which it has no row of its own."""
LEAST = 3
"""The same of curves that are newer than the page's tables."""
RESAMPLES = 2000
Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Of one curve."""

    workload: str
    optimizer: str
    critical: float
    form_free: bool
    """Whether the critical batch size is that of the regimes."""
    steps: Array
    """At each of ``TIMES`` the critical batch size, over those at it; NaN beyond the tested."""


def costs(sources: Mapping[str, str | None] = SOURCES) -> list[Costs]:
    """Of every curve of plain training that has a critical batch size within the tested ones."""
    return [
        made
        for source, where in sources.items()
        for curve, fit in FigureData(Query(sources=(source,), where=where)).pairs
        if fit is not None
        and _plain(curve.group.get("technique"))
        and (made := _costs(source, curve.group, fit)) is not None
    ]


def _plain(technique: object) -> bool:
    keys = json.loads(technique) if isinstance(technique, str) else {}
    return set(keys) <= LEAVES_TRAINING_AS_IT_IS


def _costs(source: str, group: Mapping[str, Any], fit: Regimes) -> Costs | None:
    critical = fit.critical_batch_size.value
    form_free = critical is not None
    if critical is None:
        critical = by_knee(fit)[0]["critical_batch_size"].value
    low, high = fit.batch_sizes[0], fit.batch_sizes[-1]
    if critical is None or not low <= critical <= high:
        return None
    at = np.log(critical)
    steps = [
        np.exp(fit.located.steps_ratio(at + np.log(times), at, 0.9)[0])
        if low <= times * critical <= high
        else np.nan
        for times in TIMES
    ]
    return Costs(
        workload=f"{source} {group['workload']}",
        optimizer=str(group["optimizer"] or "not given"),
        critical=critical,
        form_free=form_free,
        steps=np.array(steps, dtype=np.float64),
    )


def median(given: Sequence[Costs], place: int) -> tuple[Interval, Array, int]:
    """The median over curves with its 90 % interval, the range of 80 % of them, and how many."""
    values = np.array([each.steps[place] for each in given])
    known = np.isfinite(values)
    values, names = values[known], np.array([each.workload for each in given])[known]
    blocks = [values[names == name] for name in dict.fromkeys(names)]
    rng = np.random.default_rng(41)
    picked = rng.integers(0, len(blocks), (RESAMPLES, len(blocks)))
    medians = [np.median(np.concatenate([blocks[i] for i in row])) for row in picked]
    low, high = map(float, np.quantile(medians, (0.05, 0.95)))
    made = Interval(value=float(np.median(values)), low=low, high=high)
    return made, np.quantile(values, (0.1, 0.9)), len(values)


def tables() -> dict[str, str]:
    """What docs/findings/wrong-batch-size.md has."""
    given = costs()
    form_free = [each for each in given if each.form_free]
    return {
        "all": _all(given),
        "form-free": _all(form_free),
        "optimizers": _optimizers(given),
        "atlas": _atlas(given, costs(ATLAS)),
    }


def _all(given: Sequence[Costs]) -> str:
    """A row a multiple of the critical batch size."""

    def rows() -> Iterator[list[object]]:
        for place, times in enumerate(TIMES):
            steps, (low, high), count = median(given, place)
            ends = zip(("value", "low", "high"), steps.ends, strict=True)
            compute = Interval(**{end: times * value for end, value in ends if value is not None})
            yield [
                text_of(times), count, interval(steps), f"{low:.2f} to {high:.2f}",
                interval(compute), f"{times * low:.2f} to {times * high:.2f}",
                f"{(1 + 1 / times) / 2:.3g}",
            ]  # fmt: skip

    return table(
        (
            *("batch size", "curves", "steps", "80 % of curves", "examples", "80 % of curves"),
            "steps by S ∝ 1 + B_crit/B",
        ),
        rows(),
    )


def _optimizers(given: Sequence[Costs]) -> str:
    """A row an optimizer: the steps."""
    rows: list[list[object]] = []
    for name in dict.fromkeys(each.optimizer for each in given):
        own = [each for each in given if each.optimizer == name]
        if len(own) < FEW:
            continue
        cells: list[object] = []
        for place in range(len(TIMES)):
            known = [float(each.steps[place]) for each in own if np.isfinite(each.steps[place])]
            few = len(known) < FEW
            cells.append("–" if few else f"{np.median(known):.3g} of {len(known)}")
        rows.append([name, len(own), *cells])
    return table(("optimizer", "curves", *map(text_of, TIMES)), rows)


def _atlas(before: Sequence[Costs], later: Sequence[Costs]) -> str:
    """A row an optimizer of curves that are newer than the table: their medians, and whether these
    lie within 80 % of the curves before; those of workloads that are not among these; all of them,
    and how many single ones do."""
    ranges = [median(before, place)[1] for place in range(len(TIMES))]
    known_before = {each.workload for each in before}

    def medians(own: Sequence[Costs]) -> Iterator[str]:
        for place, (low, high) in enumerate(ranges):
            known = [float(each.steps[place]) for each in own if np.isfinite(each.steps[place])]
            if len(known) < LEAST:
                yield "–"
                continue
            middle = float(np.median(known))
            outside = "" if low <= middle <= high else " ‡"
            yield f"{middle:.3g} of {len(known)}{outside}"

    def rows() -> Iterator[list[object]]:
        for name in sorted({each.optimizer for each in later}):
            own = [each for each in later if each.optimizer == name]
            yield [f"`{name}`", len(own), *medians(own)]
        new = [each for each in later if each.workload not in known_before]
        yield ["all, of new workloads", len(new), *medians(new)]
        of_all = [median(later, place) for place in range(len(TIMES))]
        yield ["all", len(later), *(f"{interval(made)} of {count}" for made, _, count in of_all)]
        inside = []
        for place, (low, high) in enumerate(ranges):
            single = np.array([each.steps[place] for each in later])
            single = single[np.isfinite(single)]
            inside.append(f"{share(np.sum((low <= single) & (single <= high)), len(single))} %")
        yield ["single curves within", len(later), *inside]

    return table(("optimizer", "curves", *map(text_of, TIMES)), rows())
