"""Estimates compared with known answers, on many processes: coverage, open intervals, claims."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeVar

import numpy as np
import pandas as pd

from analysis.fit.estimate import Estimate, estimate
from analysis.fit.knee import BATCH_SIZES, QUANTITIES, Array
from validation.page import SHORT, share, table

Task = TypeVar("Task")
Answer = TypeVar("Answer")

TOLERANCE, LEVEL = 0.2, 0.9

REGIMES = BATCH_SIZES[:2]
"""The quantities whose being reached is a claim: the ends of the two outer regimes."""

FAR = 6
"""Doublings beyond a regime's end from which they are counted together."""

ENOUGH = 3
"""Doublings that a grid must go beyond a regime's end, to either side, to be said to hold it."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Measured curves, one per row, and the truth about them."""

    x: Array
    """Log batch sizes, log steps, and weights 0 or 1, (R, n) each."""
    y: Array
    weight: Array
    truth: Mapping[str, Array]
    """Each quantity in natural logs, (R,); -inf: at no batch size, however small."""
    margin: Mapping[str, Array]
    """For each of ``REGIMES`` by how many doublings the tested batch sizes go beyond its end, on
    the side where they go least; negative where the end does not lie among them. (R,)"""


def analyse(drawn: Drawn) -> Estimate:
    return estimate(drawn.x, drawn.y, drawn.weight, tolerance=TOLERANCE, level=LEVEL)


def tally(estimate: Estimate, drawn: Drawn) -> dict[str, int]:
    """Counts: ``curves``; for each quantity ``covered:…``, ``open:…`` (at either end) and
    ``shut:…`` (covered with both ends given); for each regime ``absent:…``, those where it is not
    among the tested batch sizes, and ``false:…``, those of them that claim it; ``there:…:m`` and
    ``claimed:…:m`` likewise where the grid goes m to m + 1 doublings beyond it."""
    counts = {"curves": len(drawn.x)}
    for name in QUANTITIES:
        low, high, true = estimate.low[name], estimate.high[name], drawn.truth[name]
        covered, both = ~(low > true) & ~(high < true), np.isfinite(low) & np.isfinite(high)
        counts[f"covered:{name}"] = int(covered.sum())
        counts[f"open:{name}"] = int((~both).sum())
        counts[f"shut:{name}"] = int((covered & both).sum())
        if name in REGIMES:
            whole = np.floor(np.clip(drawn.margin[name], -1, FAR)).astype(int)
            counts[f"absent:{name}"] = int((whole < 0).sum())
            counts[f"false:{name}"] = int((both & (whole < 0)).sum())
            for m in range(FAR + 1):
                counts[f"there:{name}:{m}"] = int((whole == m).sum())
                counts[f"claimed:{name}:{m}"] = int((both & (whole == m)).sum())
    return counts


def estimates(estimate: Estimate, drawn: Drawn) -> dict[str, float | None]:
    """``true:…`` and ``ratio:…``: each quantity of curves with one truth, and the median of the
    estimates, wherever they lie, over it; None where there is none."""
    columns: dict[str, float | None] = {}
    for name in QUANTITIES:
        true = float(drawn.truth[name][0])
        off = np.median(estimate.fitted.value(name)) - true
        columns[f"true:{name}"] = float(f"{np.exp(true):.6g}")
        columns[f"ratio:{name}"] = round(float(np.exp(off)), 4) if np.isfinite(true) else None
    return columns


def coverage_cells(total: pd.Series) -> list[str]:
    """Coverage of each quantity in per cent, the share of open intervals in brackets."""
    return [
        f"{share(total[f'covered:{name}'], total['curves'])} "
        f"({round(100 * total[f'open:{name}'] / total['curves'])})"
        for name in QUANTITIES
    ]


def claimed(counts: pd.DataFrame) -> list[str]:
    """How many curves claim each regime as reached, in per cent."""
    return [
        share(claims(counts, name, 0)[1] + counts[f"false:{name}"].sum(), counts["curves"].sum())
        for name in REGIMES
    ]


def coverage_table(frame: pd.DataFrame, by: list[str], heads: list[str]) -> str:
    """``coverage_cells``, a row a value of ``by``."""
    rows = []
    for key, group in frame.groupby(by, sort=False):
        total = group.sum(numeric_only=True)
        rows.append([*named(by, key), int(total["curves"]), *coverage_cells(total)])
    return table([*heads, "curves", *SHORT.values()], rows)


def claims(counts: pd.DataFrame, name: str, least: int) -> tuple[int, int]:
    """How many curves go at least ``least`` doublings beyond the end of a regime, and how many of
    them claim it."""
    each = range(least, FAR + 1)
    there = sum(int(counts[f"there:{name}:{m}"].sum()) for m in each)
    return there, sum(int(counts[f"claimed:{name}:{m}"].sum()) for m in each)


def claims_table(frame: pd.DataFrame, by: list[str], heads: list[str]) -> str:
    """False claims, and regimes that are there but not claimed, in per cent of such curves."""
    rows = []
    for key, group in frame.groupby(by, sort=False):
        cells = []
        for name in REGIMES:
            cells.append(share(group[f"false:{name}"].sum(), group[f"absent:{name}"].sum()))
            for least in (0, ENOUGH):
                there, claimed = claims(group, name, least)
                cells.append(share(there - claimed, there))
        rows.append([*named(by, key), *cells])
    kinds = ("falsely claimed", "missed, strictly", "missed, held")
    return table([*heads, *(f"{SHORT[name]}: {kind}" for name in REGIMES for kind in kinds)], rows)


def named(by: list[str], key: tuple[object, ...]) -> list[str]:
    """The key of a group as its cells: noise in per cent."""
    return [
        f"{100 * float(str(value)):g} %" if name == "noise" else f"{value}"
        for name, value in zip(by, key, strict=True)
    ]


def run(
    work: Callable[[Task], Answer], tasks: Sequence[Task], name: str, processes: int | None = None
) -> list[Answer]:
    """``work`` of each task, in the order of the tasks.

    ``work`` is a function of a module, and depends on nothing but its task: answers are the same
    on any number of ``processes`` (None: one a core).
    """
    workers = len(os.sched_getaffinity(0)) if processes is None else processes
    if workers == 1:
        return list(_with_progress(map(work, tasks), len(tasks), name))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(_with_progress(pool.map(work, tasks), len(tasks), name))


def _with_progress(answers: Iterable[Answer], count: int, name: str) -> Iterator[Answer]:
    """The answers, and how many are there: on a terminal each, in a log every tenth of them."""
    terminal = sys.stderr.isatty()
    for done, answer in enumerate(answers, 1):
        if terminal or done == count or done % max(1, count // 10) == 0:
            text = f"{name}: {done}/{count}"
            end = "\n" if done == count or not terminal else ""
            print(f"\r{text}" if terminal else text, end=end, file=sys.stderr, flush=True)
        yield answer
