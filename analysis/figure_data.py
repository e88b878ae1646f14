"""A user's selection of results (`Query`), and the data computed from it (`FigureData`).

Regimes, figures, the report and the live page are all made of one ``FigureData``: ``data.curves``
and their ``regimes``, the ``trials`` and ``evaluations`` that they rest on, the same ``at`` another
target, and the ``published`` curves of others. Each is computed when it is first used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow.compute as pc

from analysis.curves.curve import Curve, baseline_first, curves
from analysis.curves.final_losses import FINAL, FinalLosses, final_losses
from analysis.curves.groups import COLUMNS
from analysis.curves.iso_loss import iso_loss_curves
from analysis.curves.limits import Limit, check_limits, within
from analysis.curves.points import BRANCH
from analysis.curves.samples import PRESENT, sample
from analysis.curves.units import TOKENS, check_unit, in_unit, known_in_unit, tokens_of
from analysis.fit.regimes import Regimes, TooFewBatchSizesError, regimes_of
from results.errors import ResultsError, nearest
from results.reader import Results
from results.reader import open as open_results
from results.targets.evaluations import Evaluations
from results.targets.target import Target, lower_is_better
from results.user_tables.table_file import unzipped

T = TypeVar("T")
Progress = Callable[[str], object]
"""Is called with a line such as "12 of 35 curves fitted" each time that a part is done."""

_CHANGED_BY_A_TARGET = ("target", "status", "stop_reason", "last_miss", "lower_is", "undecided")
"""Parts of the names of columns that another target changes."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which trials are read, how they are divided into curves, and the quantities computed from
    them."""

    sources: Sequence[str | Path | Results] = ()
    """Results folders, URIs, names of packaged data, files of curves, or results that are open."""
    target: str | None = None
    """``"METRIC < VALUE"`` instead of the recorded targets."""
    where: str | None = None
    """An SQL condition over the columns of trials."""
    by: Sequence[str] | None = None
    """Columns of the training algorithm that get a curve for each value."""
    baseline: str | None = None
    """The curve that the others are compared with."""
    tolerance: float = 0.2
    estimator: str | None = None
    """The estimator of a batch size: ``analysis.curves.estimators``."""
    search: str = PRESENT
    """Which searches of a study count: ``analysis.curves.samples``."""
    definition: str | None = None
    """A further definition of the critical batch size: ``analysis.fit.definitions``."""
    under: Sequence[Limit] = ()
    """Budgets at which trials are cut; all of them apply to a curve of steps. Final losses are read
    at each of them."""
    unit: str | None = None
    """What batch sizes and data are counted in: ``analysis.curves.units``; ``None``: examples."""
    read: str | None = None
    """``final``: runs count with the loss at the end of their budget, and curves are those at equal
    loss, the target (``analysis.curves.iso_loss``). Else trials count with their steps to it."""


class FigureData:
    """The results that a query selects, and the quantities computed from them."""

    def __init__(self, query: Query, *, progress: Progress | None = None) -> None:
        check_unit(query.unit)
        check_limits(query.under, query.unit)
        self.query = query
        self.progress = progress
        self._computed: dict[Callable[[FigureData], Any], Any] = {}

    @classmethod
    def of(
        cls,
        curves: Sequence[Curve],
        regimes: Sequence[Regimes | None] | None = None,
        *,
        tolerance: float = 0.2,
    ) -> FigureData:
        """Data of curves alone, without their trials."""
        data = cls(Query(tolerance=tolerance))
        data.curves = list(curves)
        if regimes is not None:
            data.regimes = list(regimes)
        return data

    @cached_property
    def sources(self) -> tuple[Results, ...]:
        """The sources without branches of trials, which are no trials of a search."""
        opened = [s if isinstance(s, Results) else open_results(s) for s in self.query.sources]
        _refuse_namesakes([Path(each.root) for each in opened if each.location is None])
        return tuple(map(without_branches, opened))

    @cached_property
    def opened(self) -> tuple[Results, ...]:
        """The sources' trials, at the target and under the condition of the query."""
        return tuple(parts[0] for parts in self._parts)

    @cached_property
    def _parts(self) -> list[list[Results]]:
        """Of each source its trials, and those that belong to curves of other targets too."""
        return [_select(source, self.query) for source in self.sources]

    @cached_property
    def studies(self) -> pd.DataFrame:
        """One row a study of all sources, in the unit of the query."""
        return known_in_unit(_concatenate(s.studies for s in self.opened), self.query.unit)

    @cached_property
    def recorded(self) -> pd.DataFrame:
        """One row a trial of all sources, as their experiments list the studies, in the unit of the
        query.

        Raises:
            ResultsError: no trial is left, or one that does not have the unit.
        """
        return self._in_order(self.opened)

    @cached_property
    def _of_curves(self) -> pd.DataFrame:
        """``recorded``, with a row of a trial for each target of which it is on the curve."""
        if all(len(parts) == 1 for parts in self._parts):
            return self.recorded
        return self._in_order([each for parts in self._parts for each in parts])

    def _in_order(self, sources: Sequence[Results]) -> pd.DataFrame:
        """Their trials as the experiments list the studies, in the unit of the query."""
        trials = _concatenate(source.trials for source in sources)
        if trials.empty and self.query.where is not None:
            raise ResultsError(
                f"no trial of {self.sources[0].root} has {self.query.where}",
                hint=_recorded_elsewhere(self.sources, self.query.where),
            )
        places: dict[Any, int] = {study: i for i, study in enumerate(self.studies["study"])}
        order = trials["study"].map(places).fillna(len(places))
        if not order.is_monotonic_increasing:
            trials = trials.loc[order.sort_values(kind="stable").index].reset_index(drop=True)
        return in_unit(trials, self.query.unit)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The same, without trials of searches of their studies that do not count.

        Raises:
            ResultsError: no trial is left.
        """
        missing = {name: None for name in COLUMNS if name not in self.recorded}
        return sample(
            self.recorded.assign(**missing),
            self.studies,
            scope=self.query.search,
            estimator=self.query.estimator,
        ).trials

    @cached_property
    def final_losses(self) -> list[FinalLosses]:
        """The best final losses of each curve at each batch size and budget.

        Without a target in the query the metric is that of the recorded targets, or the only one.

        Raises:
            ResultsError: several metrics, and none is named; or no run that ended at its budget.
        """
        query = self.query
        where = query.where
        sources = [each if where is None else each.where(where) for each in self.sources]
        if not sources:
            raise ResultsError("no final loss to draw")
        trials = in_unit(_concatenate(source.trials for source in sources), query.unit)
        goal = _goal(trials, Evaluations(sources)) if query.target is None else query.target
        return final_losses(
            trials,
            Evaluations(sources),
            Target.parse(goal) if isinstance(goal, str) else goal,
            studies=known_in_unit(_concatenate(source.studies for source in sources), query.unit),
            by=query.by,
            search=query.search,
            under=query.under,
        )

    @property
    def evaluations(self) -> Evaluations:
        """The measurements of all sources."""
        return Evaluations(self.opened)

    @cached_property
    def curves(self) -> list[Curve]:
        """Steps to target over batch sizes: see ``analysis.curves``."""
        return self._curves(Evaluations(self.opened))

    @cached_property
    def trials_of_curves(self) -> list[Curve]:
        """The curves without the additions from measurements, which only regimes need."""
        return self._curves(None)

    def _curves(self, evaluations: Evaluations | None) -> list[Curve]:
        query = self.query
        if not query.sources:
            raise ResultsError("no curve to draw")
        if query.read is not None:
            return self._at_equal_loss()
        if len(self.recorded) and self.recorded["role"].eq(FINAL).all():
            raise ResultsError(
                "these are final losses, not steps to a target",
                hint="read them as such: --read final ranks the curves at each batch size; of "
                'several budgets, --target "METRIC < VALUE" gives the regimes',
            )
        return curves(
            within(self._of_curves, query.under),
            studies=self.studies,
            measurements=evaluations,
            by=query.by,
            baseline=query.baseline,
            estimator=query.estimator,
            search=query.search,
        )

    def _at_equal_loss(self) -> list[Curve]:
        query = self.query
        if query.read != FINAL:
            raise ResultsError(
                f"results cannot be read as {query.read!r}",
                hint=nearest(query.read or "", [FINAL], "--read final: losses at the end of runs"),
            )
        if query.target is None:
            values = [point.value for each in self.final_losses for point in each.points]
            metric = self.final_losses[0].metric
            raise ResultsError(
                "final losses need the loss at which batch sizes are compared",
                hint=f'--target "{metric} < VALUE": final values are {min(values):.4g} to '
                f"{max(values):.4g}; or rank the curves at each batch size: plot best-at-batch",
            )
        made = iso_loss_curves(self.final_losses, Target.parse(query.target))
        return baseline_first(made, query.baseline)

    @cached_property
    def fits(self) -> list[Regimes | TooFewBatchSizesError]:
        """The regimes of each curve, or why it has none."""
        query = self.query
        fits = regimes_of(self.curves, tolerance=query.tolerance, definition=query.definition)
        return list(self.each(fits, "curves fitted"))

    @cached_property
    def regimes(self) -> list[Regimes | None]:
        """The regimes of each curve; None for one of too few batch sizes."""
        return [fit if isinstance(fit, Regimes) else None for fit in self.fits]

    @property
    def pairs(self) -> list[tuple[Curve, Regimes | None]]:
        """Each curve with its regimes."""
        return list(zip(self.curves, self.regimes, strict=True))

    @cached_property
    def goals(self) -> list[Target]:
        """The targets that the studies name or trials were trained to, easiest first by metric."""
        lists: list[str] = self.studies["targets"].dropna().tolist()
        named = [Target.parse(text) for texts in lists for text in json.loads(texts)]
        recorded = [curve.target for curve in self.curves if curve.target is not None]
        return sorted(
            dict.fromkeys([*named, *recorded]),
            key=lambda goal: (goal.metric, -goal.value if goal.lower_is_better else goal.value),
        )

    @cached_property
    def published(self) -> list[Curve]:
        """The packaged curves of other authors, unless they are among the sources."""
        if any(source.root == "published" for source in self.sources):
            return []
        packaged = open_results("published").at_goals()
        unit = self.query.unit
        trials = packaged.trials
        if unit == TOKENS:  # of image models there are none
            trials = in_unit(trials[tokens_of(trials).notna()], unit)
        return curves(trials, studies=known_in_unit(packaged.studies, unit))

    def at(self, target: str | Target) -> FigureData:
        """The same results at another target.

        Its curves raise ResultsError where trials were stopped before that target.
        """
        return self._with(target=str(target))

    def only(self, where: str) -> FigureData:
        """The trials for which an SQL condition holds too."""
        before = self.query.where
        return self._with(where=where if before is None else f"({before}) AND ({where})")

    def under(self, *limits: Limit) -> FigureData:
        """The same trials under these budgets instead."""
        return self._with(under=limits)._sharing(self)

    def each_by(self, by: Sequence[str] | None) -> FigureData:
        """The same trials, with one curve for each value of these columns instead."""
        return self._with(by=by)._sharing(self)

    def _with(self, **changes: Any) -> FigureData:
        query = replace(self.query, sources=self.sources, **changes)
        return FigureData(query, progress=self.progress)

    def _sharing(self, other: FigureData) -> FigureData:
        """This data with the tables of another query of the same trials, not read again."""
        self._parts, self._of_curves = other._parts, other._of_curves
        self.opened, self.studies, self.recorded = other.opened, other.studies, other.recorded
        return self

    def each(self, items: Collection[T], text: str) -> Iterator[T]:
        """Go through ``items`` and report how many are done: ``12 of 35`` and ``text``."""
        for done, item in enumerate(items, start=1):
            yield item
            if self.progress is not None:
                self.progress(f"{done:,} of {len(items):,} {text}")

    def computed(self, make: Callable[[FigureData], T]) -> T:
        """``make`` of this data, computed once: a figure and its numbers share it."""
        if make not in self._computed:
            self._computed[make] = make(self)
        value: T = self._computed[make]
        return value


def _goal(trials: pd.DataFrame, evaluations: Evaluations) -> Target:
    """The metric of final losses, with a value that is not used."""
    recorded = trials[["target_metric", "lower_is_better"]].dropna().drop_duplicates()
    if len(recorded) == 1:
        metric, lower = recorded.iloc[0]
        return Target(metric=str(metric), value=0.0, lower_is_better=bool(lower))
    measured = [str(name) for name in recorded["target_metric"]] or evaluations.metrics()
    if len(measured) != 1:
        raise ResultsError(
            f"these runs have {'several metrics' if measured else 'no measurements'}",
            hint=f"name one in --target: {', '.join(measured)}" if measured else None,
        )
    return Target(metric=measured[0], value=0.0, lower_is_better=lower_is_better(measured[0]))


def without_branches(source: Results) -> Results:
    """The same trials but those of role branch."""
    rows = source.trial_rows
    others = pc.fill_null(pc.not_equal(rows["role"], BRANCH), True)
    return source if pc.all(others).as_py() else source.with_trials(rows.filter(others))


def _select(source: Results, query: Query) -> list[Results]:
    where, target = query.where, query.target
    if query.read is not None:
        return [source if where is None else source.where(where)]
    names = re.sub("'[^']*'", "", where.lower()) if where else ""  # and not what it compares with
    first = where is not None and not any(name in names for name in _CHANGED_BY_A_TARGET)
    if first and where is not None:
        # The same rows either way, and trials that are left out need not have the metric.
        source = source.where(where)
    parts = source.at_targets() if target is None else [source.with_target(target)]
    return parts if first or where is None else [part.where(where) for part in parts]


def _refuse_namesakes(files: Sequence[Path]) -> None:
    """Refuse two logs of one name, by which their trials are known."""
    for first, other in combinations(files, 2):
        if unzipped(first).stem == unzipped(other).stem and first.resolve() != other.resolve():
            hint = "rename one of them, or import both: batchscale import PATH --name NAME"
            raise ResultsError(f"{first} and {other} have the same name", hint=hint)


def _recorded_elsewhere(sources: Sequence[Results], where: str) -> str | None:
    """A hint where ``where`` names an experiment without trials, since another one had trained them
    all before."""
    for source in sources:
        owners = source.trials.drop_duplicates("study").set_index("study")["experiment"]
        without = source.studies[~source.studies["experiment"].isin(owners)]
        for experiment, studies in without.groupby("experiment")["study"]:
            having = sorted(owners.reindex(studies).dropna().unique())
            if having and str(experiment) in where:
                return (
                    f"the trials of {experiment} were trained by {having[0]} before, and are "
                    f"recorded once: experiment = '{having[0]}'"
                )
    return None


def _concatenate(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    tables = list(frames)
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if len(filled) > 1 else (filled or tables)[0]
