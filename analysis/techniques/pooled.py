"""What a technique or optimizer changes over several workloads: ratios to the plain one, pooled.

Of each quantity the log ratios of the workloads are estimates of one mean, with the errors of their
intervals and a scatter of their own (``analysis.fit.random_effects``): workloads differ. The mean's
interval says what holds on average, the prediction interval what to expect of another workload like
these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analysis.curves.groups import ALGORITHM
from analysis.fit.interval import Interval
from analysis.fit.random_effects import predicted, solve
from analysis.techniques.corrections import Correction, corrected, named
from analysis.techniques.table import Ratio, Row, Table
from results.counts import count
from results.errors import ResultsError

LEAST = 3
"""Workloads below which nothing is pooled: scatter needs degrees of freedom."""


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A quantity of one technique over the baseline's, over all workloads that tested it."""

    ratio: Ratio
    """The geometric mean, and p of "it is 1"."""
    prediction: Interval = field(default_factory=Interval)
    """Where the ratio of another workload is expected, at the same level."""
    scatter: float | None = None
    """The standard deviation of log ratios between workloads, beyond their errors."""
    workloads: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Those whose ratio has an open end, or in which the technique did not act."""

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.ratio.to_dict(),
            "prediction": self.prediction.to_dict(),
            "scatter": self.scatter,
            "workloads": list(self.workloads),
            "left_out": list(self.left_out),
        }


@dataclass(frozen=True, kw_only=True)
class PooledTable:
    """By technique and quantity, in the order of the rows that were pooled."""

    rows: Mapping[str, Mapping[str, Pooled]]
    correction: Correction
    compared: int
    level: float

    def to_dicts(self) -> list[dict[str, Any]]:
        """As ``techniques --pool --json`` prints it."""
        shared = {"level": self.level, "correction": self.correction.name}
        return [
            {"name": name, "ratios": {q: each.to_dict() for q, each in row.items()}, **shared}
            for name, row in self.rows.items()
        ]


def pooled(table: Table) -> PooledTable:
    """Pool the rows of each name over their workloads. p-values are corrected by the table's
    method, for as many means as there are; Dunnett's, which knows of one baseline, becomes Holm's.

    Raises:
        ResultsError: two rows of a technique in one workload, or fewer than ``LEAST`` workloads.
    """
    by_name: dict[str, dict[str, Row]] = {}
    for row, workload in zip(table.rows, _workloads(table.rows), strict=True):
        rows = by_name.setdefault(row.name, {})
        if workload in rows:
            raise ResultsError(
                f"{workload} has several ratios of {row.name}, which are no independent workloads",
                hint="choose one target, baseline and setting of each by --where or --target",
            )
        rows[workload] = row
    if max(len(rows) for rows in by_name.values()) < LEAST:
        raise ResultsError(
            f"no technique has ratios in {count(LEAST, 'workload')}, which is the least to pool",
            hint="leave --pool out, or name more sources",
        )
    quantities = list(table.rows[0].ratios)
    means = {
        (name, quantity): _mean(rows, quantity, table.level)
        for name, rows in by_name.items()
        for quantity in quantities
    }
    method = named("holm") if table.correction.name == "dunnett" else table.correction
    adjusted = corrected([each.ratio.p for each in means.values()], method)
    made: dict[str, dict[str, Pooled]] = {name: {} for name in by_name}
    for (name, quantity), p in zip(means, adjusted, strict=True):
        mean = means[name, quantity]
        made[name][quantity] = replace(mean, ratio=replace(mean.ratio, corrected=p))
    return PooledTable(rows=made, correction=method, compared=len(means), level=table.level)


def _workloads(rows: Sequence[Row]) -> list[str]:
    """What each row is of besides its algorithm, as far as rows of that workload differ in it:
    ``lm-transformer shakespeare``."""
    own = [{k: v for k, v in row.curve.group.items() if k not in ALGORITHM} for row in rows]
    names = []
    for each in own:
        alike = [other for other in own if other["workload"] == each["workload"]]
        varied = (k for k in each if len({str(other.get(k)) for other in alike}) > 1)
        names.append(" ".join([str(each["workload"]), *(str(each[k]) for k in varied)]))
    return names


def _mean(rows: Mapping[str, Row], quantity: str, level: float) -> Pooled:
    """Of one technique and quantity."""
    from scipy.special import ndtri, stdtr  # slow to import: not at start

    used = {
        workload: interval
        for workload, row in rows.items()
        if row.active.tested
        and (interval := row.ratios[quantity].interval).reached
        and interval.value is not None
    }
    left_out = tuple(workload for workload in rows if workload not in used)
    if len(used) < LEAST:
        unknown = Ratio(interval=Interval(), p=None)
        return Pooled(ratio=unknown, workloads=tuple(used), left_out=left_out)
    logs = np.log(np.array([each.ends for each in used.values()], dtype=np.float64))
    deviation = (logs[:, 2] - logs[:, 1]) / (2 * ndtri(0.5 + level / 2))
    made = solve(np.ones((len(used), 1)), logs[:, 0], deviation, level=level)
    mean, error, by = float(made.values[0]), float(made.errors[0]), float(made.by[0])
    low, high = predicted(logs[:, 0], deviation, level=level)
    return Pooled(
        ratio=Ratio(
            interval=Interval.of_logs(mean, mean - by, mean + by),
            p=float(2 * stdtr(len(used) - 1, -abs(mean) / error)),
        ),
        prediction=Interval.of_logs(mean, low, high),
        scatter=made.scatter,
        workloads=tuple(used),
        left_out=left_out,
    )
