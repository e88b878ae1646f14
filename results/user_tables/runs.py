"""Which rows of a user's table are one run.

What varies within a run is a measurement; what is unique to each run is its identity; anything else
is a setting. A run's rows are in the order in which they were logged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from results.user_tables.table_file import TableFile


def run_numbers(
    file: TableFile, rows: pd.DataFrame, texts: Sequence[str], numbers: Sequence[str]
) -> pd.Series:
    """The number of each row's run.

    A text distinguishes runs whose steps would overlap without it; a number only where they also
    repeat or go back, since a learning rate that is logged at each step does not.

    Args:
        rows: with columns ``batch_size`` and ``step``, ``run`` if the file has it, and the others.

    Raises:
        ResultsError: the batch size grows within a run.
    """
    given = ["run"] if "run" in rows else []
    for name in (*given, *texts):
        _refuse_growing(file, rows, name)
    run = rows.groupby([*given, "batch_size"], dropna=False, sort=False).ngroup()
    # The coarsest first: once the runs are known, a time of day is different in each row of one.
    for name in sorted((*texts, *numbers), key=lambda name: rows[name].nunique(dropna=False)):
        finer = rows.groupby([run, rows[name]], dropna=False, sort=False).ngroup()
        if finer.nunique() == run.nunique() or not _overlap(rows["step"], run, finer):
            continue
        if name in texts or _repeats(rows["step"], run) > _repeats(rows["step"], finer):
            run = finer
    return run


def _overlap(step: pd.Series, run: pd.Series, finer: pd.Series) -> bool:
    """Whether parts of a run overlap in their steps, and are not mostly single rows of it."""
    if (
        2 * finer.nunique() > len(finer) >= 2 * run.nunique()
        and step.groupby(run).nunique().gt(1).any()
    ):
        return False
    parts = step.groupby(finer).agg(["min", "max"]).assign(run=run.groupby(finer).first())
    parts = parts.sort_values(["run", "min"], kind="stable")
    after = parts["min"] > parts.groupby("run")["max"].cummax().groupby(parts["run"]).shift()
    return bool((~after & parts["run"].duplicated()).any())


def _repeats(step: pd.Series, run: pd.Series) -> int:
    """How often a step of a run occurs again or goes back."""
    before = step.groupby(run).cummax().groupby(run).shift()
    return int((step <= before).sum())


def _refuse_growing(file: TableFile, rows: pd.DataFrame, name: str) -> None:
    """Larger batch sizes that follow on smaller ones in one run are no runs of their own."""
    for value, part in rows.groupby(name, sort=False):
        ends = part.groupby("batch_size")["step"].agg(["min", "max"])
        if len(ends) < 2 or not (ends["min"].to_numpy()[1:] > ends["max"].to_numpy()[:-1]).all():
            continue
        first, second = (int(size) for size in ends.index[:2])
        at = int(part.index[part["batch_size"] == second][0])
        raise file.fail(
            at,
            f"in {name} {value} the batch size grows from {first} to {second} at step "
            f"{int(rows['step'][at])}",
            "a run of one batch size is read; leave that run out",
        )


def surviving(file: TableFile, name: str, places: Sequence[int], steps: Sequence[int]) -> list[int]:
    """The rows of a run that count, of its ``places`` in the order in which they were logged.

    Where the step goes back, the run was started again from a checkpoint: what had been logged from
    there on belongs to a training that was lost.

    Raises:
        ResultsError: it goes back to its first step: another run, or the same once more.
    """
    kept: list[int] = []
    restart = math.inf  # the least step to which the run goes back later
    for at in reversed(range(len(places))):
        if steps[at] < restart:
            kept.append(places[at])
        if at and steps[at] < steps[at - 1]:
            if steps[at] <= steps[0]:
                raise file.fail(
                    places[at],
                    f"run {name} begins again, at step {steps[at]}",
                    "distinguish the runs of a batch size by a column `run`, or remove the "
                    "earlier training",
                )
            restart = min(restart, steps[at])
    return kept[::-1]
