"""Intervals compared with known answers, on many processes: coverage, open intervals, ratios."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import numpy as np
import pandas as pd

from analysis.fit.interval import QUANTITIES
from analysis.fit.locate import Located
from validation.page import share

Task = TypeVar("Task")
Answer = TypeVar("Answer")

TOLERANCE, LEVEL = 0.2, 0.9


def covers(located: Located, name: str, true: float) -> bool:
    """Whether the interval of a quantity holds the true logarithm; an open end is infinite."""
    _, low, high = located.ends(name, LEVEL)
    return not (low > true or high < true)


def bounded(located: Located, name: str) -> bool:
    """Whether an end of the interval is open."""
    return not np.isfinite(located.ends(name, LEVEL)[1:]).all()


def tally(located: Sequence[Located], truths: Sequence[Mapping[str, float]]) -> dict[str, int]:
    """Counts: ``curves``; for each quantity ``covered:…`` and ``open:…``, at either end."""
    counts = {"curves": len(located)}
    pairs = list(zip(located, truths, strict=True))
    for name in QUANTITIES:
        counts[f"covered:{name}"] = sum(covers(each, name, true[name]) for each, true in pairs)
        counts[f"open:{name}"] = sum(bounded(each, name) for each in located)
    return counts


def estimates(located: Sequence[Located], truth: Mapping[str, float]) -> dict[str, float]:
    """``true:…`` and ``ratio:…``: each quantity of curves with one truth, and the median of the
    estimates over the tested range over it."""
    columns: dict[str, float] = {}
    for name in QUANTITIES:
        values = [each.profiles[name][0].value for each in located]
        columns[f"true:{name}"] = float(f"{np.exp(truth[name]):.6g}")
        columns[f"ratio:{name}"] = round(float(np.exp(np.median(values) - truth[name])), 4)
    return columns


def coverage_cells(total: pd.Series) -> list[str]:
    """Coverage of each quantity in per cent, the share of open intervals in brackets."""
    return [
        f"{share(total[f'covered:{name}'], total['curves'])} "
        f"({round(100 * total[f'open:{name}'] / total['curves'])})"
        for name in QUANTITIES
    ]


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
