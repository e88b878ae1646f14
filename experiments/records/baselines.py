"""Steps to target of baselines, of which other studies' lengths are shares.

The first complete baseline decides: its steps are recorded with the studies that are planned by
them, and these go on with the recorded number whatever further trials of the baseline find.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from results.counts import count
from results.storage.rows import by_age
from results.targets.target import Target

if TYPE_CHECKING:
    from experiments.plan import Study
    from experiments.scheduling.study_state import StudyState

WAITS = "waits for the baseline's steps to target"
UNREACHED = "is not trained: the baseline did not reach the target"
_PLURAL = {WAITS: WAITS.replace("waits", "wait"), UNREACHED: UNREACHED.replace("is", "are", 1)}
_SIZES = 4


def recorded(studies: pd.DataFrame, target: Target) -> dict[str, int]:
    """The steps to a target that studies were planned by, by the id of the baseline's study.

    Args:
        studies: of one experiment, with the columns baseline, baseline_steps, targets,
            revision and time.
        target: the hardest of the experiment.
    """
    rows = studies[studies["baseline_steps"].notna() & studies["baseline"].notna()]
    steps: dict[str, int] = {}
    for _, row in by_age(rows).iterrows():
        if json.loads(row["targets"])[-1] == str(target):
            steps.setdefault(json.loads(row["baseline"])[0], int(row["baseline_steps"]))
    return steps


def baseline_steps(studies: Sequence[StudyState]) -> int | None:
    """The steps to target of a baseline at one batch size: the geometric mean of the least of each
    of its studies.

    Args:
        studies: complete ones.

    Returns:
        ``None`` where one of them did not reach the target.
    """
    least = [state.hits()[0] for state in studies if state.hits()]
    if not least or len(least) < len(studies):
        return None
    return round(math.exp(sum(map(math.log, least)) / len(least)))


def known(waiting: Iterable[Study], states: Iterable[StudyState]) -> dict[str, int]:
    """The steps that ``waiting`` studies wait for and that complete ``states`` have, by the id of
    the baseline's study."""
    by_id = {state.study.id: state for state in states}
    steps: dict[str, int] = {}
    for study in waiting:
        studies = [by_id[name] for name in study.baseline]
        if all(state.wave() is None for state in studies):
            number = baseline_steps(studies)
            if number is not None:
                steps[study.baseline[0]] = number
    return steps


def lines(reason: str, waiting: Iterable[Study]) -> list[str]:
    """As ``line``, of studies; none where there are none."""
    sizes = [study.batch_size for study in waiting]
    return [line(reason, sizes)] if sizes else []


def line(reason: str, sizes: Sequence[int]) -> str:
    """Why studies of these batch sizes are not trained (yet).

    Args:
        reason: ``WAITS`` or ``UNREACHED``.
    """
    verb = reason if len(sizes) == 1 else _PLURAL[reason]
    return f"{count(len(sizes), 'study')} {verb} at batch {_listed(sorted({*sizes}))}."


def _listed(sizes: Sequence[int]) -> str:
    texts = [str(size) for size in sizes]
    if len(texts) > _SIZES:
        texts = [*texts[: _SIZES - 2], "…", texts[-1]]
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
