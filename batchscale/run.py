"""A results dataset with all its operations: ``bs.open(...)``, ``bs.sweep(...)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from matplotlib.axes import Axes

    from batchscale.analysis import QueryOptions, RegimeOptions, TechniqueOptions
    from experiments.execution.sweep import Summary
    from results.exports import Exported
    from results.reader import Results


def _best_table(results: Results) -> pa.Table:
    from analysis.best import best_table

    return best_table(results)


class Run:
    """The results of a folder or file. Frames are read once, when first used.

    ``summary`` is what a sweep of this process did; ``None`` for results that were opened.
    """

    def __init__(self, results: Results, summary: Summary | None = None) -> None:
        self.results = results
        self.summary = summary

    @property
    def root(self) -> str:
        """The address that it was opened from."""
        return self.results.root

    @property
    def trials(self) -> pd.DataFrame:
        """One row a training run, workload fields as columns."""
        return self.results.trials

    @property
    def studies(self) -> pd.DataFrame:
        """One row a metaparameter search."""
        return self.results.studies

    @property
    def measurements(self) -> pd.DataFrame:
        """One row an evaluation of a trial."""
        return self.results.measurements

    @property
    def sources(self) -> pd.DataFrame:
        """One row a source of data that was not measured here."""
        return self.results.sources

    @cached_property
    def best(self) -> pd.DataFrame:
        """One row a batch size of each curve: its best counted trial, the steps to target and N, as
        ``regimes`` takes them. A minimum over ``trials`` mixes searches of unlike spaces."""
        from analysis.best import best

        return best(self.results)

    def query(self, sql: str) -> pd.DataFrame:
        """The answer to one SELECT over studies, trials, measurements, sources, and ``best``."""
        return self.results.query(sql, {"best": _best_table})

    def where(self, condition: str) -> Run:
        """The trials for which an SQL condition holds: ``run.where("width = 64")``."""
        return Run(self.results.where(condition), self.summary)

    def with_target(self, target: str | Mapping[str, str]) -> Run:
        """The same trials with their steps to another target, computed from the measurements;
        a mapping has one for each experiment, and leaves the others out."""
        return Run(self.results.with_target(target), self.summary)

    def regimes(self, **options: Unpack[RegimeOptions]) -> list[dict[str, Any]]:
        """The three regimes of each curve with their intervals: see `batchscale.regimes`."""
        from batchscale import analysis

        return analysis.regimes(self, **options)

    def techniques(self, **options: Unpack[TechniqueOptions]) -> list[dict[str, Any]]:
        """Every technique and optimizer against the plain one: see `batchscale.techniques`."""
        from batchscale import analysis

        return analysis.techniques(self, **options)

    def plot(self, figure: str | Callable[..., Any] = "steps", **options: Any) -> Axes:
        """Draw a figure: see `batchscale.plot`."""
        from batchscale import analysis

        return analysis.plot(figure, self, **options)

    def report(
        self,
        output: str | Path = "report.html",
        title: str | None = None,
        **options: Unpack[QueryOptions],
    ) -> Path:
        """Write a page of these results: see `batchscale.report`."""
        from batchscale import analysis

        return analysis.report(self, output=output, title=title, **options)

    def export(
        self, kind: str, *, output: str | Path, where: str | None = None, **options: Any
    ) -> Exported:
        """Write it in the form that another program reads: see `batchscale.export`."""
        from batchscale import exchange

        return exchange.export(kind, self.results, output=output, where=where, **options)

    def __repr__(self) -> str:
        from results.counts import count

        trials = self.trials
        reached = int(trials.steps_to_target.notna().sum())
        return (
            f"<batchscale Run {self.root}: {count(trials.study.nunique(), 'study')}, "
            f"{count(len(trials), 'trial')}, {reached:,} reached the target>"
        )
