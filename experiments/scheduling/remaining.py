"""How long the rest of a sweep will take: one estimate, for its driver and for ``status``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.scheduling import rounds
from experiments.scheduling.rounds import Record

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Rest:
    """What one study lacks, and what its trials have cost."""

    left: int
    """Feasible trials that lack."""
    seconds: float | None
    """Of a worker, for each feasible trial so far; ``None`` before the first."""
    size: float | None
    """See ``size``; ``None`` where the study's row does not say."""


def rest(left: int, feasible: int, spent: Mapping[str, float], size: float | None) -> Rest:
    """Of a study that has so many ``feasible`` trials, whose packs have taken ``spent`` seconds."""
    known = feasible and spent
    return Rest(left=left, seconds=sum(spent.values()) / feasible if known else None, size=size)


def lacking(records: Sequence[Record], wanted: int, keep: int | None) -> int:
    """Feasible trials of a search that lack, of ``wanted``, after those of ``records``.

    Args:
        records: of its recorded trials, failed ones too, which are tried again.
        keep: as in ``rounds.bar``.
    """
    limit = rounds.bar((record.steps_to_target for record in records), keep)
    failed = sum(record.stop_reason == "error" for record in records)
    return max(0, wanted - (rounds.feasible(records, limit) - failed))


def spent(trials: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Seconds that the packs of each study have taken so far, from rows of the trials table."""
    total = trials[["train_seconds", "evaluation_seconds", "other_seconds"]].sum(axis=1)
    by_pack = total.groupby([trials["study"], trials["pack"]]).max()
    found: dict[str, dict[str, float]] = {}
    places = by_pack.index.to_frame(index=False)
    for study, pack, taken in zip(places["study"], places["pack"], by_pack, strict=True):
        found.setdefault(study, {})[pack] = float(taken)
    return found


def size(budget_steps: int, batch_size: int) -> float:
    """A study's longest trial, in steps, each as dear as a base and its examples."""
    return budget_steps * (1 + batch_size / 50)


def work(rests: Iterable[Rest]) -> float | None:
    """Seconds that one worker would take for all that is left.

    A study's trials cost what its own have cost; those of a study without any cost by their size,
    at the median rate of the others. ``None`` where no trial has ended at all, or for want of such
    a size.
    """
    every = list(rests)
    open_ = [rest for rest in every if rest.left]
    rates = [rest.seconds / rest.size for rest in every if rest.seconds is not None and rest.size]
    usual = statistics.median(rates) if rates else None
    total = 0.0
    for rest in open_:
        seconds = rest.seconds
        if seconds is None and usual is not None and rest.size is not None:
            seconds = usual * rest.size
        if seconds is None:
            return None
        total += rest.left * seconds
    return total


def seconds(rests: Iterable[Rest], packs: int) -> float | None:
    """Until all is done, with so many packs training at once; ``None``: cannot be told."""
    whole = work(rests)
    return whole / packs if packs and whole is not None else None
