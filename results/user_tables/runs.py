"""Which rows of a user's table are one run.

What varies within a run is a measurement; what is unique to each run is its identity; anything else
is a setting. A run's rows are in the order in which they were logged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from results.batch_phases import BatchPhases
from results.schema import json_text
from results.user_tables.table_file import TableFile, number

_IN_EPOCHS = "log the updates so far, or: --map examples=epoch*50000+step*batch_size"


def run_numbers(rows: pd.DataFrame, texts: Sequence[str], numbers: Sequence[str]) -> pd.Series:
    """The number of each row's run.

    A text distinguishes runs whose steps would overlap without it; a number only where they also
    repeat or go back, since a learning rate that is logged at each step does not.

    Args:
        rows: with columns ``batch_size`` and ``step``, ``run`` if the file has it, and the others,
            in which what a run has one value of is filled.
    """
    given = ["run"] if "run" in rows else []
    run = rows.groupby([*given, "batch_size"], dropna=False, sort=False).ngroup()
    # The coarsest first: once the runs are known, a time of day is different in each row of one.
    for name in sorted((*texts, *numbers), key=lambda name: rows[name].nunique(dropna=False)):
        rows[name] = _filled(rows[name], run)
        finer = rows.groupby([run, rows[name]], dropna=False, sort=False).ngroup()
        known = rows[name].notna()  # a learning rate is logged in rows of training alone
        parts = (each[known] for each in (rows["step"], run, finer))
        if finer.nunique() == run.nunique() or not _overlap(*parts):
            continue
        if name in texts or repeats(rows["step"], run) > repeats(rows["step"], finer):
            run = finer
    return run


def _filled(values: pd.Series, run: pd.Series) -> pd.Series:
    """With the one value of a run in each row of it: some tools log it in a part of them."""
    if not values.isna().any():
        return values
    groups = values.groupby(run)
    return values.mask(values.isna() & groups.transform("nunique").eq(1), groups.transform("first"))


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


def repeats(step: pd.Series, run: pd.Series) -> int:
    """How often a step of a run occurs again or goes back."""
    before = step.groupby(run).cummax().groupby(run).shift()
    return int((step <= before).sum())


def set_apart_ramps(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """``rows`` where a run whose batch size changes has that of its first step, the phases in
    ``batch_sizes``, and a ``technique`` that makes it a curve of its own.

    Args:
        names: columns that distinguish runs, one of which has a value for each run.
    """
    for name in names:
        for _, part in rows.groupby(name, sort=False):
            if not _changes(part):
                continue
            ordered = part.sort_values("step", kind="stable")
            sizes, steps = ordered["batch_size"].astype(int), ordered["step"].astype(int)
            changed = sizes.ne(sizes.shift())
            # A phase begins after the last evaluation of the one before.
            starts = [0, *steps.shift()[changed].iloc[1:].astype(int)]
            used = sizes[changed].tolist()
            phases = {"starts": starts, "sizes": used, "schedule_steps": int(steps.iloc[-1])}
            other = part["technique"].iloc[0] if "technique" in part else None
            technique = json.loads(other) if isinstance(other, str) else {}
            ramp = {**technique, "ramp": f"{used[0]} to {used[-1]}"}
            rows = rows.assign(**{n: rows.get(n) for n in ("batch_sizes", "technique")})
            rows[["batch_sizes", "technique"]] = rows[["batch_sizes", "technique"]].astype(object)
            rows.loc[part.index, "batch_sizes"] = json_text(phases)
            rows.loc[part.index, "technique"] = json_text(ramp)
            rows.loc[part.index, "batch_size"] = used[0]
    return rows


def _changes(part: pd.DataFrame) -> bool:
    """Whether the batch size changes in the course of one run: its steps go on where it does."""
    ends = part.groupby("batch_size", sort=False)["step"].agg(["min", "max"])
    if len(ends) < 2:
        return False
    apart = (ends["min"].to_numpy()[1:] > ends["max"].to_numpy()[:-1]).all()
    mixed = part.groupby("step")["batch_size"].nunique().gt(1).sum() >= len(ends)
    return bool(apart or (part["step"].is_monotonic_increasing and not mixed))


def phases_of(trial: Mapping[str, Any]) -> BatchPhases:
    """The batch sizes of a run, most often one."""
    size = int(trial["batch_size"])
    return BatchPhases.of(trial.get("batch_sizes")) or BatchPhases(
        starts=(0,), sizes=(size,), schedule_steps=1
    )


def surviving(
    file: TableFile,
    name: str,
    places: Sequence[int],
    steps: Sequence[int],
    measured: Sequence[Collection[str]],
) -> list[int]:
    """The rows of a run that count, of its ``places`` in the order in which they were logged.

    Where the step of a metric goes back, the run was started again from a checkpoint: what had been
    logged from there on belongs to a training that was lost.

    Args:
        measured: the metrics of each row.

    Raises:
        ResultsError: it goes back to its first step: another run, or the same once more.
    """
    kept: list[int] = []
    last: dict[str, int] = {}
    cells = file.columns.get("epoch", ())
    epochs = [number(cells[place]) or 0.0 for place in places] if cells else []
    for at, step in enumerate(steps):
        if any(last.get(metric, -1) > step for metric in measured[at]):
            if epochs and epochs[at] > max(epochs[:at]):
                message = f"step {step} of run {name} begins again with epoch {epochs[at]:g}"
                raise file.fail(places[at], message, _IN_EPOCHS)
            if step <= steps[0] and not file.logged:
                raise file.fail(
                    places[at],
                    f"run {name} begins again, at step {step}",
                    "distinguish the runs of a batch size by a column `run`, or remove the "
                    "earlier training",
                )
            kept = [each for each in kept if steps[each] < step]
            last = {metric: min(before, step) for metric, before in last.items()}
        kept.append(at)
        last |= dict.fromkeys(measured[at], step)
    return [places[at] for at in kept]
