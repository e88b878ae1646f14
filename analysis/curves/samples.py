"""Which trials are the sample of a study: those of its present search.

A study whose range was narrowed, whose method or whose seed was changed has trials of several
searches (``results.searches``). A pool of them is no search of any space: the least, the N and the
order statistics are those of the present search alone, which the study's latest row names. Of a
study that several experiments search in unlike ways each experiment has a sample of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from results.errors import ResultsError
from results.searches import belongs, rows_of

PRESENT, ALL = SCOPES = ("present", "all")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Trials that count, and how many of each study do not."""

    trials: pd.DataFrame
    left_out: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The present search of a study in one experiment; any null: not known."""

    experiment: Any
    id: Any
    seed: Any

    @property
    def key(self) -> tuple[str, str]:
        return str(self.id), str(self.seed)


def check(scope: str) -> str:
    """``scope``, if it is one.

    Raises:
        ResultsError: it is not.
    """
    if scope not in SCOPES:
        raise ResultsError(
            f"no searches are called {scope!r}",
            hint="present (the latest search of each study) or all (a pool of all of them)",
        )
    return scope


def sample(
    trials: pd.DataFrame,
    studies: pd.DataFrame | None = None,
    *,
    scope: str = PRESENT,
    every_seed: bool = False,
) -> Sample:
    """The trials of each study's present search.

    Args:
        trials: with a column for each that ``analysis.curves.groups.COLUMNS`` names.
        studies: their studies' latest rows, which name the present searches; without, and where
            they name none, a study's latest trial does.
        scope: ``all``: every recorded trial, whatever searched for it.
        every_seed: searches that differ in their seed alone count too, as the median of searches
            asks for.
    """
    several = trials["search_id"].notna().any() or _reseeded(trials)
    if scope == ALL or not several:
        return Sample(trials=trials, left_out={})
    present = _present(trials, studies)
    parts: list[pd.DataFrame] = []
    left_out: dict[str, int] = {}
    for study, rows in trials.groupby("study", sort=False, dropna=False):
        found = present.get(str(study), ())
        masks = [belongs(rows, one.id, None if every_seed else one.seed) for one in found]
        own = len({one.key for one in found}) > 1
        parts += [
            _of_search(rows[mask], one, own) for mask, one in zip(masks, found, strict=True)
        ] or [rows]
        lost = int((~np.any(masks, axis=0)).sum()) if masks else 0
        if lost:
            left_out[str(study)] = lost
    kept = pd.concat(parts) if parts else trials
    order: NDArray[np.intp] = np.argsort(kept.index.to_numpy(), kind="stable")
    return Sample(trials=kept.iloc[order].reset_index(drop=True), left_out=left_out)


def note(left_out: Mapping[str, int], studies: Sequence[str]) -> str | None:
    """What to say of the trials of ``studies`` that do not count."""
    lost = sum(left_out.get(study, 0) for study in studies)
    if not lost:
        return None
    belong = "trial belongs" if lost == 1 else "trials belong"
    return (
        f"{lost:,} recorded {belong} to other searches of these studies (another space, method or "
        "seed) and not to this sample: --search all counts them"
    )


def _reseeded(trials: pd.DataFrame) -> bool:
    seeds = trials["search_seed"]
    if not seeds.notna().any():
        return False
    return bool(seeds.groupby(trials["study"], dropna=True).nunique().gt(1).any())


def _present(trials: pd.DataFrame, studies: pd.DataFrame | None) -> dict[str, tuple[_Search, ...]]:
    """By study. Experiments that search it alike are one."""
    found: dict[str, dict[tuple[str, str], _Search]] = {}
    named = {"search_id", "search_seed"} <= set(() if studies is None else studies.columns)
    if studies is not None and named:
        rows = studies[studies["search_id"].notna()]
        rows = rows.drop_duplicates(["experiment", "study"], keep="last")
        for study, experiment, search, seed in rows[_NAMES].itertuples(index=False):
            one = _Search(experiment=experiment, id=search, seed=seed)
            found.setdefault(str(study), {}).setdefault(one.key, one)
    rest = trials[~trials["study"].astype(str).isin(found.keys())]
    searched = rest[rest["role"].ne("repeat")]
    latest = (searched if len(searched) else rest).sort_values("time", kind="stable")
    for study, experiment, search, seed in latest.drop_duplicates("study", keep="last")[
        _NAMES
    ].itertuples(index=False):
        one = _Search(experiment=experiment, id=search, seed=seed)
        found.setdefault(str(study), {})[one.key] = one
    return {study: tuple(each.values()) for study, each in found.items()}


_NAMES = ["study", "experiment", "search_id", "search_seed"]


def _of_search(rows: pd.DataFrame, search: _Search, own: bool) -> pd.DataFrame:
    """``rows`` in the order of this search's table; where the study's searches are several, as
    trials of the experiment that searches so."""
    changed: dict[str, Any] = {}
    further = rows["search_id"].ne(search.id) & rows["other_searches"].notna()
    if isinstance(search.id, str) and further.any():
        places = rows.loc[further, "other_searches"].map(lambda text: rows_of(text)[search.id])
        index = rows["index"].astype(object)
        index.loc[places.index] = places
        changed |= {"index": pd.to_numeric(index), "search_id": search.id}
    if isinstance(search.id, str):
        changed["other_searches"] = None
    if own:
        changed["experiment"] = search.experiment
    return rows.assign(**changed) if changed else rows
