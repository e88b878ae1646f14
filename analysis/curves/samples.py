"""Which trials are the sample of a study: those of its present search, and the first n of each.

A study whose range was narrowed, whose method or whose seed was changed has trials of several
searches (``results.searches``). A pool of them is not a search of any space: the least, the N and
the order statistics are those of the present search alone, which the study's latest row names. Of a
study that several experiments search in unlike ways each experiment has a sample of its own.

A study may still be searched several times on purpose (with a ``search_seed`` or a ``search_id``
each), and its space may be enlarged: rows of a later ``enlargement`` lie in a slab beside the space
as it was, drawn at its density, so that all of a search's rows are one search of the larger space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.estimators import MEDIAN
from analysis.curves.groups import label
from analysis.curves.runs import Rows, Runs, number
from analysis.notes import Note
from results.errors import ResultsError
from results.searches import belongs, rows_of
from results.storage.rows import by_age

PRESENT, ALL = SCOPES = ("present", "all")

_NAMES = ["study", "experiment", "search_id", "search_seed"]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Trials that count, and the number in each study that do not."""

    trials: pd.DataFrame
    left_out: Mapping[str, int]

    def notes(self, studies: Sequence[str]) -> list[Note]:
        """On the trials of ``studies`` that do not count."""
        trials = sum(self.left_out.get(study, 0) for study in studies)
        return [Note("other_searches", n=trials)] if trials else []


def sample(
    trials: pd.DataFrame,
    studies: pd.DataFrame | None = None,
    *,
    scope: str = PRESENT,
    estimator: str | None = None,
) -> Sample:
    """The trials of each study's present search.

    Args:
        trials: with a column for each that ``analysis.curves.groups.COLUMNS`` names.
        studies: their studies' latest rows, which name the present searches; without, and where
            they name none, a study's latest trial does.
        scope: ``all``: every recorded trial of any search.
        estimator: the estimator of a batch size, unless the trials name it. For the median of
            searches those that differ in their seed alone count too.

    Raises:
        ResultsError: no such scope.
    """
    if scope not in SCOPES:
        raise ResultsError(
            f"no searches are called {scope!r}",
            hint="present (the latest search of each study) or all (a pool of all of them)",
        )
    seeds = trials["search_seed"].groupby(trials["study"], dropna=True).nunique()
    single_search = trials["search_id"].isna().all() and seeds.le(1).all()
    if scope == ALL or single_search:
        return Sample(trials=trials, left_out={})
    named = {name for name in trials["estimator"] if isinstance(name, str)}
    every_seed = (estimator or (named.pop() if len(named) == 1 else None)) == MEDIAN
    present = _present(trials, studies)
    parts: list[pd.DataFrame] = []
    left_out: dict[str, int] = {}
    for study, rows in trials.groupby("study", sort=False, dropna=False):
        searches = present.get(str(study), ())
        if not searches:
            parts.append(rows)
            continue
        masks = [
            belongs(rows, each.search_id, None if every_seed else each.search_seed)
            for each in searches
        ]
        parts += [
            _of_search(rows[mask], each, several=len(searches) > 1)
            for mask, each in zip(masks, searches, strict=True)
        ]
        others = int((~np.any(masks, axis=0)).sum())
        if others:
            left_out[str(study)] = others
    kept = pd.concat(parts) if parts else trials
    order: Rows = np.argsort(kept.index.to_numpy(), kind="stable")
    return Sample(trials=kept.iloc[order].reset_index(drop=True), left_out=left_out)


def _present(trials: pd.DataFrame, studies: pd.DataFrame | None) -> dict[str, list[Any]]:
    """By study its present searches, as tuples of ``_NAMES``, where any null is not known.
    Experiments that search it alike are one."""
    named = trials.iloc[:0]
    if studies is not None and {"search_id", "search_seed"} <= {*studies.columns}:
        named = studies[studies["search_id"].notna()]
        named = named.drop_duplicates(["experiment", "study"], keep="last")
    rest = trials[~trials["study"].isin(named["study"])]
    search_rows = rest[rest["role"].ne("repeat")]
    latest = by_age(search_rows if len(search_rows) else rest).drop_duplicates("study", keep="last")
    rows = pd.concat([each[_NAMES].astype(object) for each in (named, latest)])
    unlike = ~rows.astype(str).duplicated(["study", "search_id", "search_seed"])
    by_study = rows[unlike].groupby("study", sort=False)
    return {str(study): list(each.itertuples(index=False)) for study, each in by_study}


def _of_search(rows: pd.DataFrame, search: Any, *, several: bool) -> pd.DataFrame:
    """``rows`` in the order of this search's table; where the study's searches are several, as
    trials of the experiment that searches so."""
    changed: dict[str, Any] = {}
    further = rows["search_id"].ne(search.search_id) & rows["other_searches"].notna()
    name = search.search_id
    if isinstance(name, str) and further.any():
        places = rows.loc[further, "other_searches"].map(lambda text: rows_of(text)[name])
        index = rows["index"].astype(object)
        index.loc[places.index] = places
        changed |= {"index": pd.to_numeric(index), "search_id": name}
    if isinstance(name, str):
        changed["other_searches"] = None
    if several:
        changed["experiment"] = search.experiment
    return rows.assign(**changed) if changed else rows


Searches = dict[int, dict[str, list["Search"]]]
"""By batch size, and by training algorithm where several are minimized over."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """The trials of one search, each part in its sequence's order."""

    rows: Rows
    """All of them, ended or not."""
    original: Rows
    """Trials that ended in the original space, infeasible ones too."""
    slabs: tuple[Rows, ...]
    """Trials that ended in each enlargement."""
    infeasible: Rows
    """The infeasible ones of both. A trial that diverged after the last exact order statistic would
    have been stopped before, had it been trained later: it counts as feasible."""

    @classmethod
    def of(cls, runs: Runs, rows: Rows) -> Search:
        """The search that ``rows`` (of one study and one seed) are."""
        rows = rows[np.argsort(runs.index[rows], kind="stable")]
        ended = rows[runs.ended[rows]]
        times = runs.enlargement[ended]
        exact = np.nan_to_num(runs.steps_run[ended]) <= runs.cutoff(ended, runs.kept(rows))
        return cls(
            rows=rows,
            original=ended[times == 0],
            slabs=tuple(ended[times == each] for each in np.unique(times[times > 0])),
            infeasible=ended[runs.diverged[ended] & exact],
        )

    def feasible(self, rows: Rows) -> Rows:
        """Those of the search's ``rows`` that count towards N."""
        return rows[~np.isin(rows, self.infeasible)]

    @property
    def available(self) -> int:
        """Feasible trials of the space as it was first given."""
        return len(self.feasible(self.original))

    def first(self, n: int) -> tuple[Rows, Rows]:
        """What a search that stopped at the ``n``-th feasible trial would have drawn: the rows of
        the space as it was first given, and of its slabs.

        Of the first they end with the ``n``-th feasible one. Of each slab, at the same density,
        they are the first n / N of its rows, N the feasible trials of the first (to the nearest
        whole row).
        """
        feasible = self.feasible(self.original)
        if n >= len(feasible):
            return self.original, np.concatenate([*self.slabs, self.original[:0]])
        upto = int(np.flatnonzero(self.original == feasible[n - 1])[0]) + 1 if n > 0 else 0
        shares = [slab[: int(len(slab) * n / len(feasible) + 0.5)] for slab in self.slabs]
        return self.original[:upto], np.concatenate([*shares, self.original[:0]])


def searches(runs: Runs, rows: Rows, over: Sequence[str]) -> Searches:
    """Divide the ``rows`` of a curve: by batch size, by the training algorithms ``over`` that are
    minimized over, and by search."""

    def texts(name: str) -> list[str]:
        return [each if isinstance(each, str) else "" for each in runs.rows[name][rows]]

    seeds = pd.Series([number(seed) for seed in runs.rows["search_seed"][rows]], dtype=float)
    # Rows without a seed (of files that had no such column) belong to the least of their study's.
    least = seeds.groupby(texts("study")).transform("min").fillna(0.0)
    keys = [
        runs.rows["batch_size"][rows].astype(np.int64),
        [label({name: runs.rows[name][row] for name in over}, over) for row in rows],
        texts("search_id"),
        seeds.fillna(least).to_numpy(),
    ]
    parts: Searches = {}
    key: Any
    for key, each in pd.Series(rows).groupby(keys):
        size, algorithm, *_ = key
        of_algorithm = parts.setdefault(int(size), {}).setdefault(algorithm, [])
        of_algorithm.append(Search.of(runs, each.to_numpy()))
    return parts


def shared(parts: Searches) -> tuple[int, int]:
    """How many searches a study, and how many feasible trials of each, all batch sizes have.

    The pair with the most trials in all; a batch size without any feasible trial is not counted.
    """
    counts = [
        sorted((search.available for search in each), reverse=True)
        for algorithms in parts.values()
        for each in algorithms.values()
    ]
    counts = [each for each in counts if each[0]]
    best = (1, 0)
    for many in range(1, max((len(each) for each in counts), default=0) + 1):
        n = min(each[many - 1] if len(each) >= many else 0 for each in counts)
        if many * n > best[0] * best[1]:
            best = (many, n)
    return best


def largest(searches: Sequence[Search], count: int) -> list[Search]:
    """The ``count`` searches that have the most feasible trials, in their order."""
    places = sorted(range(len(searches)), key=lambda i: -searches[i].available)[:count]
    return [searches[i] for i in sorted(places)]
