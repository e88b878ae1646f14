"""``python -m validation optimizers``: which optimizers extend perfect scaling, of those studies of
the atlas that are packaged. docs/findings/questions.md was written before they were trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData, Query
from analysis.fit.comparisons import ratio_text
from analysis.fit.interval import Interval
from analysis.fit.knee_form import critical_within
from analysis.fit.random_effects import mean
from analysis.fit.regimes import Regimes
from analysis.techniques.pooled import LEAST, Pooled, PooledTable, pooled
from analysis.techniques.table import Table, p_text
from analysis.techniques.table import table as compared
from validation.page import ROOT, interval, table

PAGE = ROOT / "docs" / "findings" / "optimizers.md"
WHERE = "experiment LIKE 'atlas-%'"
BASELINE = "momentum"
TARGETS = ("targets-shakespeare", "targets-wikitext2")
"""Sweeps with two targets, whose baseline is AdamW."""
BOTH_ENDS = {
    "published": "workload = 'mnist-simple-cnn' AND optimizer IN ('momentum', 'sgd')",
    "own": "experiment LIKE 'cnn-%'",
}
"""Curves of SGD and momentum that reach to both ends, by source."""
FIRST = "critical_batch_size"
QUANTITIES = {
    FIRST: "critical batch size",
    "min_steps": "least steps",
    "min_examples": "fewest examples",
}


def tables(source: Any = "own") -> dict[str, str]:
    """What docs/findings/optimizers.md has."""
    data = _data(source)
    made, first = compared(data, quantities=list(QUANTITIES)), compared(data, quantities=[FIRST])
    return {
        "pooled": pooled_table("optimizer", made, first),
        "workloads": _workloads(made, data.curves),
        "knee": _knees(data.pairs),
        "targets": _by_target(source),
        "ends": _both_ends(),
    }


def ratios(source: Any = "own") -> Table:
    """Of each optimizer on each workload, to the baseline."""
    return compared(_data(source), quantities=list(QUANTITIES))


def _data(source: Any) -> FigureData:
    return FigureData(Query(sources=(source,), where=WHERE, baseline=BASELINE))


def pooled_table(what: str, made: Table, first: Table) -> str:
    """A row an optimizer or technique (``what``) of ``made``, the ratios of all quantities; p of
    those of ``first``, the first quantity alone, which is what is tested."""
    if len({_workload(row.curve) for row in made.rows}) < LEAST:
        return f"Fewer than {LEAST} workloads are trained yet: nothing is pooled.\n"
    means, tested = pooled(made), pooled(first)
    ratios = (text for name in QUANTITIES.values() for text in (name, "another workload"))
    head = (what, "workloads", *ratios, "corrected p")
    return table(head, _means(means, tested))


def _means(means: PooledTable, tested: PooledTable) -> Iterator[list[object]]:
    for name, row in means.rows.items():
        cells: list[object] = [f"`{name}`", len(row[FIRST].workloads)]
        for quantity in QUANTITIES:
            cells += _cells(row[quantity])
        yield [*cells, p_text(tested.rows[name][FIRST].ratio.corrected)]


def _cells(each: Pooled) -> list[str]:
    return [ratio_text(each.ratio.interval), ratio_text(_range(each.prediction))]


def _range(interval: Interval) -> Interval:
    """Its ends alone."""
    return Interval(low=interval.low, high=interval.high)


def _workloads(made: Table, curves: Sequence[Curve]) -> str:
    """Critical batch sizes: a row an optimizer, a column a workload; marked where a best learning
    rate lies at an edge of its range."""
    workloads = list(dict.fromkeys(_workload(row.curve) for row in made.rows))
    plain = [curve for curve in curves if curve.group["optimizer"] == BASELINE]
    cells = {BASELINE: {_workload(curve): f"1{_mark(curve)}" for curve in plain}}
    for row in made.rows:
        ratio = ratio_text(row.ratios[FIRST].interval)
        cells.setdefault(row.name, {})[_workload(row.curve)] = f"{ratio}{_mark(row.curve)}"
    return table(
        ("optimizer", *workloads),
        ([f"`{name}`", *(row.get(each, "–") for each in workloads)] for name, row in cells.items()),
    )


def _knees(pairs: Sequence[tuple[Curve, Regimes | None]]) -> str:
    """The mean ratio of the knees' critical batch sizes: a row an optimizer, over the workloads
    where both knees have one within the tested batch sizes."""
    logs: dict[str, dict[str, tuple[float, float]]] = {}
    for curve, fit in pairs:
        if fit is not None and (made := _knee(fit)) is not None:
            logs.setdefault(str(curve.group["optimizer"]), {})[_workload(curve)] = made
    plain = logs.pop(BASELINE, {})

    def rows() -> Iterator[list[object]]:
        for name, own in logs.items():
            shared = [(own[each], plain[each]) for each in own if each in plain]
            if len(shared) < LEAST:
                yield [f"`{name}`", len(shared), "open"]
                continue
            y = np.array([own_knee[0] - base[0] for own_knee, base in shared])
            deviation = np.array([np.hypot(own_knee[1], base[1]) for own_knee, base in shared])
            ends = Interval.of_logs(*mean(y, deviation))
            yield [f"`{name}`", len(shared), ratio_text(ends)]

    return table(("optimizer", "workloads", "critical batch size by the knee"), rows())


def _knee(fit: Regimes) -> tuple[float, float] | None:
    """Log critical batch size of the knee and its standard error."""
    value, low, high = critical_within(fit).ends
    if value is None or low is None or high is None:
        return None
    return float(np.log(value)), float(np.log(high / low) / (2 * ndtri(0.95)))


def _by_target(source: Any) -> str:
    """Ratios of critical batch sizes to AdamW's at the easier and the harder target of a sweep."""

    def rows() -> Iterator[list[object]]:
        for experiment in TARGETS:
            query = Query(sources=(source,), where=f"experiment = '{experiment}'", baseline="adamw")
            goals = [str(goal) for goal in FigureData(query).goals]
            made = [
                compared(FigureData(replace(query, target=goal)), quantities=[FIRST]).rows
                for goal in goals
            ]
            for same in zip(*made, strict=True):
                name, at = f"`{same[0].name}`", [row.ratios[FIRST].interval for row in same]
                verdict = "yes" if _apart(*at) else "not known"
                texts = [ratio_text(ratio) for ratio in at]
                yield [_workload(same[0].curve), name, " and ".join(goals), *texts, verdict]

    head = ("workload", "optimizer", "targets", "at the easier", "at the harder", "depends on it")
    return table(head, rows())


def _both_ends() -> str:
    """The regimes of SGD and of momentum, and the ratio of their critical batch sizes."""

    def rows() -> Iterator[list[object]]:
        for source, where in BOTH_ENDS.items():
            data = FigureData(Query(sources=(source,), where=where, baseline="sgd"))
            ratios = {
                _workload(row.curve): ratio_text(row.ratios[FIRST].interval)
                for row in compared(data, quantities=[FIRST]).rows
            }
            for curve, fit in data.pairs:
                name, workload = curve.group["optimizer"], _workload(curve)
                if fit is not None:
                    at = (fit.perfect_scaling_until, fit.critical_batch_size)
                    ends = map(interval, (*at, fit.maximal_parallelism_from))
                    over = ratios[workload] if name == "momentum" else "1"
                    yield [source, f"{workload}{_mark(curve)}", f"`{name}`", *ends, over]

    regimes = ("perfect scaling until", "critical batch size", "maximal parallelism from")
    return table(("curves", "workload", "optimizer", *regimes, "over SGD's"), rows())


def _apart(easier: Interval, harder: Interval) -> bool:
    """Whether no value lies in both."""
    return any(
        above.low is not None and below.high is not None and above.low > below.high
        for above, below in ((easier, harder), (harder, easier))
    )


def _workload(curve: Curve) -> str:
    return " ".join(str(curve.group[name]) for name in ("workload", "dataset"))


def _mark(curve: Curve) -> str:
    return " †" if any(e.verdict == "edge" for p in curve.points for e in p.edges) else ""
