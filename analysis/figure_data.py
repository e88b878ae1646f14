"""What figures and the report are made of: results as they were asked for, and what follows from
them, each computed when it is first asked for.

A figure asks for what it shows: ``material.curves`` and their ``regimes``, the same ``at`` another
target, the ``trials`` and ``looks`` beneath them, and the ``published`` curves beside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.curves.curve import Curve, curves
from analysis.curves.groups import COLUMNS
from analysis.curves.limits import Limit, within
from analysis.curves.samples import PRESENT, sample
from analysis.fit.regimes import Regimes, TooFewBatchSizesError, regimes
from analysis.progress import each
from results.errors import ResultsError
from results.reader import Results
from results.reader import open as open_results
from results.targets.evaluations import Evaluations
from results.targets.target import Target

_OF_A_TARGET = ("target", "status", "stop_reason", "last_miss", "lower_is_better")
"""In the names of the columns that another target changes."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """How results are divided into curves: see ``analysis.curves``."""

    target: str | None = None
    """Instead of the recorded ones."""
    where: str | None = None
    """An SQL condition over the columns of trials."""
    by: tuple[str, ...] | None = None
    baseline: str | None = None
    estimator: str | None = None
    search: str = PRESENT
    """Which searches of a study count: ``analysis.curves.samples``."""
    tolerance: float = 0.2
    under: tuple[Limit, ...] = ()
    """Budgets: what a figure makes of several is its own; a curve of steps holds to all."""


class FigureData:
    """Results, and what is made of them."""

    def __init__(self, sources: Sequence[Results], asked: Query | None = None) -> None:
        self.sources = tuple(sources)
        self.asked = asked or Query()

    @classmethod
    def of(
        cls,
        found: Sequence[Curve],
        located: Sequence[Regimes | None] | None = None,
        *,
        tolerance: float = 0.2,
    ) -> FigureData:
        """Of curves alone: there are no trials to ask."""
        made = cls((), Query(tolerance=tolerance))
        made.curves = list(found)
        if located is not None:
            made.regimes = list(located)
        return made

    @cached_property
    def opened(self) -> tuple[Results, ...]:
        """The sources' trials as they were asked for: at the target, and where."""
        return tuple(_opened(each, self.asked.target, self.asked.where) for each in self.sources)

    @cached_property
    def studies(self) -> pd.DataFrame:
        """One row a study of all sources."""
        return _together(one.studies for one in self.opened)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial of all sources that counts, as their experiments list the studies.

        Raises:
            ResultsError: no trial is left.
        """
        asked, trials = self.asked, self.recorded
        missing = {name: None for name in COLUMNS if name not in trials}
        return sample(
            trials.assign(**missing), self.studies, scope=asked.search, estimator=asked.estimator
        ).trials

    @cached_property
    def recorded(self) -> pd.DataFrame:
        """The same, with trials of other searches of their studies.

        Raises:
            ResultsError: no trial is left.
        """
        found = _in_order(_together(one.trials for one in self.opened), self.studies)
        if found.empty and self.asked.where is not None:
            raise ResultsError(f"no trial of {self.sources[0].root} has {self.asked.where}")
        return found

    @property
    def looks(self) -> Evaluations:
        """The measurements of all sources."""
        return Evaluations(self.opened)

    @cached_property
    def curves(self) -> list[Curve]:
        """Steps to target over batch sizes: see ``analysis.curves``."""
        return self._curves(self.looks)

    @cached_property
    def trials_of_curves(self) -> list[Curve]:
        """The curves without what measurements add to them, which regimes alone need."""
        return self.curves if "curves" in self.__dict__ else self._curves(None)

    def _curves(self, looks: Evaluations | None) -> list[Curve]:
        asked = self.asked
        if not self.sources:
            raise ResultsError("no curve to draw")
        return curves(
            within(self.recorded, asked.under),
            studies=self.studies,
            measurements=looks,
            by=asked.by,
            baseline=asked.baseline,
            estimator=asked.estimator,
            search=asked.search,
        )

    @cached_property
    def regimes(self) -> list[Regimes | None]:
        """Those of each curve; None for one of too few batch sizes."""
        return [self._located(curve) for curve in each(self.curves, "curves fitted")]

    @cached_property
    def goals(self) -> list[Target]:
        """The targets that the studies name or trials were held to, easiest first by metric."""
        texts: list[str] = self.studies["targets"].dropna().tolist()
        named = [Target.parse(text) for each in texts for text in json.loads(each)]
        known = [curve.target for curve in self.curves if curve.target is not None]
        found = list(dict.fromkeys([*named, *known]))
        return sorted(found, key=lambda t: (t.metric, -t.value if t.lower_is_better else t.value))

    def at(self, target: str | Target) -> FigureData:
        """The same results at another target.

        What it is asked for raises ResultsError where trials were stopped before that target.
        """
        return FigureData(self.sources, replace(self.asked, target=str(target)))

    def only(self, where: str) -> FigureData:
        """The trials for which an SQL condition holds too."""
        both = where if self.asked.where is None else f"({self.asked.where}) AND ({where})"
        return FigureData(self.sources, replace(self.asked, where=both))

    def under(self, *limits: Limit) -> FigureData:
        """The same results under these budgets instead."""
        return self._asked(replace(self.asked, under=limits))

    def each_by(self, by: Sequence[str] | None) -> FigureData:
        """The same results, with these columns a curve each instead."""
        return self._asked(replace(self.asked, by=None if by is None else tuple(by)))

    def _asked(self, asked: Query) -> FigureData:
        """The same trials, divided otherwise: what was read is not read again."""
        other = FigureData(self.sources, asked)
        for name in ("opened", "studies", "recorded", "trials", "published"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    @cached_property
    def published(self) -> list[Curve]:
        """The packaged curves of other authors, those among the sources left out."""
        if any(source.root == "published" for source in self.sources):
            return []
        packaged = open_results("published").at_goals()
        return curves(packaged.trials, studies=packaged.studies)

    def _located(self, curve: Curve) -> Regimes | None:
        try:
            return regimes(curve, tolerance=self.asked.tolerance)
        except TooFewBatchSizesError:
            return None


def _opened(found: Results, target: str | Mapping[str, str] | None, where: str | None) -> Results:
    first = where is not None and not any(name in where.lower() for name in _OF_A_TARGET)
    if first and where is not None:
        # The same rows either way, and trials that are left out need not have the metric.
        found = found.where(where)
    found = found.at_goals() if target is None else found.with_target(target)
    return found if first or where is None else found.where(where)


def _together(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    held = list(frames)
    some = [frame for frame in held if len(frame)]
    return pd.concat(some, ignore_index=True) if len(some) > 1 else (some or held)[0]


def _in_order(trials: pd.DataFrame, studies: pd.DataFrame) -> pd.DataFrame:
    """Trials as their experiments list the studies, not as they happened to end."""
    places: dict[Any, int] = {study: place for place, study in enumerate(studies["study"])}
    order = trials["study"].map(places).fillna(len(places))
    return trials.loc[order.sort_values(kind="stable").index].reset_index(drop=True)
