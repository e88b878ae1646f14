"""A results dataset with everything one does to it: ``bs.open(...)``, ``bs.sweep(...)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from experiments.execution.sweep import Summary
    from results.exports import Exported
    from results.reader import Results


class Run:
    """What was measured. Frames are read once, when first used.

    ``summary`` is what a sweep of this process did; ``None`` for results that were opened.
    """

    def __init__(self, results: Results, summary: Summary | None = None) -> None:
        self.results = results
        self.summary = summary

    @property
    def root(self) -> str:
        """What it was opened from."""
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
        """One row a source of what was not measured here."""
        return self.results.sources

    def query(self, sql: str) -> pd.DataFrame:
        """The answer to one SELECT over studies, trials, measurements and sources."""
        return self.results.query(sql)

    def where(self, condition: str) -> Run:
        """The trials for which an SQL condition holds: ``run.where("width = 64")``."""
        return Run(self.results.where(condition), self.summary)

    def with_target(self, target: str | Mapping[str, str]) -> Run:
        """The same trials with their steps to another target, found again in the measurements;
        a mapping has one for each experiment, and leaves the others out."""
        return Run(self.results.with_target(target), self.summary)

    def regimes(
        self,
        *,
        target: str | None = None,
        where: str | None = None,
        by: Sequence[str] | None = None,
        baseline: str | None = None,
        tolerance: float = 0.2,
        estimator: str | None = None,
        search: str = "present",
        definition: str | None = None,
        law: str | None = None,
    ) -> list[dict[str, Any]]:
        """The three regimes of each curve with their intervals: see `batchscale.regimes`."""
        from batchscale import api

        return api.regimes(
            self,
            target=target,
            where=where,
            by=by,
            baseline=baseline,
            tolerance=tolerance,
            estimator=estimator,
            search=search,
            definition=definition,
            law=law,
        )

    def plot(
        self,
        figure: str = "steps",
        *,
        target: str | None = None,
        where: str | None = None,
        by: Sequence[str] | None = None,
        baseline: str | None = None,
        tolerance: float = 0.2,
        estimator: str | None = None,
        search: str = "present",
        under: Sequence[str] | None = None,
        width: str | float | None = None,
        style: str | Path | None = None,
        output: str | Path | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw a figure: see `batchscale.plot`."""
        from batchscale import figures

        return figures.plot(
            figure, self, target=target, where=where, by=by, baseline=baseline,
            tolerance=tolerance, estimator=estimator, search=search, under=under, width=width,
            style=style, output=output, ax=ax,
        )  # fmt: skip

    def export(
        self, kind: str, *, output: str | Path, where: str | None = None, **options: Any
    ) -> Exported:
        """Write it in the form that another program reads: see `batchscale.export`."""
        from batchscale import exchange

        return exchange.export(kind, self.results, output=output, where=where, **options)

    def report(
        self,
        output: str | Path = "report.html",
        *,
        target: str | None = None,
        where: str | None = None,
        by: Sequence[str] | None = None,
        baseline: str | None = None,
        tolerance: float = 0.2,
        estimator: str | None = None,
        search: str = "present",
        title: str | None = None,
    ) -> Path:
        """Write a page of these results: see `batchscale.report`."""
        from batchscale import figures

        return figures.report(
            self, target=target, where=where, by=by, baseline=baseline, tolerance=tolerance,
            estimator=estimator, search=search, title=title, output=output,
        )  # fmt: skip

    def __repr__(self) -> str:
        from results.counts import count

        trials = self.trials
        reached = int(trials.steps_to_target.notna().sum())
        return (
            f"<batchscale Run {self.root}: {count(trials.study.nunique(), 'study')}, "
            f"{count(len(trials), 'trial')}, {reached:,} reached the target>"
        )
