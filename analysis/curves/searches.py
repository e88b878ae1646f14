"""Which rows are one search of one space, and its first n feasible trials.

A study may be searched several times (each with a ``search_seed`` or a ``search_id`` of its own:
``samples`` says which of them count), and its space may be enlarged: rows of a
later ``enlargement`` lie in a slab beside the space as it was, drawn at its density, so that all
of a search's rows are one search of the larger space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.groups import label
from analysis.curves.runs import Rows, Runs, number

Searches = dict[int, dict[str, list["Search"]]]
"""By batch size, and by training algorithm where several are minimized over."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """The trials of one search, each part in its sequence's order."""

    rows: Rows
    """All of them, ended or not."""
    original: Rows
    """Those that ended in the space as it was first given, infeasible ones too."""
    slabs: tuple[Rows, ...]
    """Likewise in what each enlargement added."""
    barren: Rows
    """The infeasible ones of both."""

    @classmethod
    def of(cls, runs: Runs, rows: Rows) -> Search:
        """The search that ``rows`` (of one study and one seed) are."""
        rows = rows[np.argsort(runs.index[rows], kind="stable")]
        ended = rows[runs.ended[rows]]
        times = runs.enlargement[ended]
        cutoff = runs.cutoff(ended, runs.kept(rows))
        return cls(
            rows=rows,
            original=ended[times == 0],
            slabs=tuple(ended[times == each] for each in np.unique(times[times > 0])),
            barren=ended[runs.infeasible(ended, cutoff)],
        )

    def feasible(self, rows: Rows) -> Rows:
        """Those of the search's ``rows`` that count towards N."""
        return rows[~np.isin(rows, self.barren)]

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
    parts: dict[int, dict[str, dict[Any, list[int]]]] = {}
    sizes, studies = runs.rows["batch_size"], runs.rows["study"]
    seeds, ids = _seeds(runs, rows), runs.rows["search_id"]
    for row in rows:
        algorithm = label({name: runs.rows[name][row] for name in over}, over)
        seed = seeds[_name(studies[row])][number(runs.rows["search_seed"][row])]
        key = (_name(ids[row]) or "", seed)
        here = parts.setdefault(int(sizes[row]), {}).setdefault(algorithm, {})
        here.setdefault(key, []).append(row)
    return {
        size: {
            name: [Search.of(runs, np.array(some)) for _, some in sorted(each.items())]
            for name, each in sorted(algorithms.items())
        }
        for size, algorithms in sorted(parts.items())
    }


def _seeds(runs: Runs, rows: Rows) -> Mapping[Any, Mapping[float | None, float]]:
    """Each study's search seeds; rows without one (of files that had no such column) belong to the
    least of those that the study has."""
    found: dict[Any, set[float]] = {}
    for study, seed in zip(runs.rows["study"][rows], runs.rows["search_seed"][rows], strict=True):
        known = number(seed)
        found.setdefault(_name(study), set()).update(() if known is None else (known,))
    return {
        study: {None: min(seeds, default=0.0), **{seed: seed for seed in seeds}}
        for study, seeds in found.items()
    }


def _name(study: Any) -> str | None:
    return study if isinstance(study, str) else None


def shared(parts: Searches) -> tuple[int, int]:
    """How many searches a study, and how many feasible trials of each, all batch sizes have.

    The pair with the most trials in all; a batch size without any feasible trial has no say.
    """
    counts = [
        sorted((search.available for search in some), reverse=True)
        for each in parts.values()
        for some in each.values()
    ]
    counts = [each for each in counts if each[0]]
    best = (1, 0)
    for many in range(1, max((len(each) for each in counts), default=0) + 1):
        n = min(each[many - 1] if len(each) >= many else 0 for each in counts)
        if many * n > best[0] * best[1]:
            best = (many, n)
    return best


def chosen(some: Sequence[Search], many: int) -> list[Search]:
    """The ``many`` searches that have the most feasible trials, in their order."""
    most = sorted(range(len(some)), key=lambda i: -some[i].available)[:many]
    return [some[i] for i in sorted(most)]
