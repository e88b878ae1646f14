"""How every simulation counts: replicates of cells, what is estimated of each, and what covers.

A ``Scenario`` names what is simulated, what is true of it, the estimator, and how many replicates
there are; ``scenarios`` lists them. A row depends on nothing but its cell, so that it is the same
on any number of processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd

from analysis.fit.interval import QUANTITIES
from analysis.fit.locate import Located
from validation.page import PAGE, keep, renew, share

TOLERANCE, LEVEL = 0.2, 0.9
Counts = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Something simulated whose answer is known. Functions are those of a module."""

    name: str
    """Its counts are docs/findings/truth/NAME.csv."""
    cells: Sequence[Any]
    """What is simulated: frozen records, a row each, or one for each block."""
    key: Callable[[Any], Counts]
    """The first columns of a cell's row."""
    seed: Callable[[Any], list[int]]
    """That of a cell's generator; the number of the block is appended, if there are several."""
    truth: Callable[[Any], Any]
    """What is true of a cell; computed once."""
    simulate: Callable[[Any, Any, np.random.Generator, int], list[tuple[Any, Any]]]
    """From a cell, its truth, a generator and a number: so many measurements, each with what is
    true of it."""
    estimate: Callable[[Any], Any]
    """What the analysis says of a measurement."""
    count: Callable[[Any, list[Any], list[Any]], Counts]
    """From a cell, the estimates and what is true of each: the other columns of a row."""
    replicates: int
    """Measurements of a block."""
    blocks: int = 1
    tables: Callable[[pd.DataFrame], dict[str, str]]
    """The parts of docs/findings/truth.md that are made of the counts, by name."""

    def row(self, cell: Any, truth: Any = None, block: int = 0, replicates: int = 0) -> Counts:
        """The counts of a block; ``truth`` and ``replicates``: those of the scenario unless
        given."""
        true = self.truth(cell) if truth is None else truth
        several = self.blocks > 1
        rng = np.random.default_rng([*self.seed(cell), *([block] if several else [])])
        pairs = self.simulate(cell, true, rng, replicates or self.replicates)
        estimates = [self.estimate(measured) for measured, _ in pairs]
        counts = self.count(cell, estimates, [each for _, each in pairs])
        return {**self.key(cell), **({"block": block} if several else {}), **counts}

    def run(self, processes: int | None = None, replicates: int = 0) -> None:
        """Count all cells on ``processes`` (None: one a core); renew the counts and the page."""
        workers = len(os.sched_getaffinity(0)) if processes is None else processes
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            truths = list(pool.map(self.truth, self.cells))
            tasks = [
                (cell, true, block)
                for cell, true in zip(self.cells, truths, strict=True)
                for block in range(self.blocks)
            ]
            made = pool.map(partial(_row, self, replicates), tasks)
            rows = list(_with_progress(made, len(tasks), self.name))
        renew(self.tables(keep(self.name, rows)), PAGE)


def _row(scenario: Scenario, replicates: int, task: tuple[Any, Any, int]) -> Counts:
    return scenario.row(*task, replicates=replicates)


def _with_progress(made: Iterable[Counts], count: int, name: str) -> Iterator[Counts]:
    """The rows, and how many are there: on a terminal each, in a log every tenth of them."""
    terminal = sys.stderr.isatty()
    for done, row in enumerate(made, 1):
        if terminal or done == count or done % max(1, count // 10) == 0:
            text = f"{name}: {done}/{count}"
            end = "\n" if done == count or not terminal else ""
            print(f"\r{text}" if terminal else text, end=end, file=sys.stderr, flush=True)
        yield row


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


def coverage(total: pd.Series) -> list[str]:
    """Coverage of each quantity in per cent, the share of open intervals in brackets."""
    return [
        f"{share(total[f'covered:{name}'], total['curves'])} "
        f"({round(100 * total[f'open:{name}'] / total['curves'])})"
        for name in QUANTITIES
    ]


def groups(
    frame: pd.DataFrame, by: list[str]
) -> Iterator[tuple[list[str], pd.DataFrame, pd.Series]]:
    """The rows of each key in their order: the key as cells of a table (noise in per cent), the
    rows, and the sums of their numbers."""
    for key, group in frame.groupby(by, sort=False):
        named = [
            f"{100 * value:g} %" if name == "noise" and isinstance(value, float) else f"{value}"
            for name, value in zip(by, key, strict=True)
        ]
        yield named, group, group.sum(numeric_only=True)
