"""Final losses at several budgets: the least at each batch size and budget, over learning rates.

A run counts with its last evaluation, and with the examples that it was trained on until then: its
budget D. Runs that ended before their budget (at a target, dominated, diverged) do not count; a
configuration of which a run diverged counts only where there is no other. Budgets that differ by
rounding alone, as whole numbers of steps at several batch sizes do, are one.

With a constant schedule a run of a large budget is also the run of each smaller one: its losses at
given budgets are interpolated between its evaluations, linearly in log D. An evaluation of a part
of a split gives no value, and there is none between it and its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.curves.curve import prepared
from analysis.curves.groups import grouping, labels
from analysis.curves.limits import Limit, grows
from analysis.curves.points import SEARCH_ROLES
from analysis.curves.runs import number, numeric
from analysis.curves.samples import sample
from analysis.curves.units import EXAMPLES, TOKENS, tokens_of
from analysis.formatting import unit
from analysis.notes import Note
from results.errors import ResultsError
from results.targets.evaluations import Evaluations
from results.targets.target import Target
from results.user_tables.trials import TABLE

Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]

SAME = 1.02
"""Budgets up to this factor above the least of them are one budget."""
CONSTANT = "constant"
"""The schedule with which a run is also that of each smaller budget."""
FINAL = "final"
"""How a query reads final losses; and the role of runs that were measured at their end alone."""

_AROUND = """
SELECT row, max(step) FILTER (step <= upto) AS before, min(step) FILTER (step > upto) AS after,
    arg_max(whole, step) FILTER (step <= upto) AS there,
    arg_min(whole, step) FILTER (step > upto) AS beyond
FROM (SELECT *, if(partial, 'nan', value) AS whole FROM evaluations WHERE value IS NOT NULL)
GROUP BY row"""


@dataclass(frozen=True, kw_only=True)
class FinalLoss:
    """The best final value at one batch size and budget."""

    batch_size: int
    budget: float
    """The budget that it belongs to in examples: the median over batch sizes."""
    examples: float
    """The examples of these runs themselves."""
    value: float
    """The least loss over metaparameters; of several seeds of one configuration their mean."""
    configurations: int
    """The number of configurations (learning rates) that it is the best of."""
    learning_rate: float | None = None
    edge: bool = False
    """Whether that learning rate is the least or the largest of three or more."""
    runs: tuple[float, ...] = ()
    """The final value of each run of that configuration, those that repeat a search's best trial
    too."""


@dataclass(frozen=True, kw_only=True)
class FinalLosses:
    """The final losses of one workload and training algorithm, over batch sizes and budgets."""

    group: Mapping[str, Any]
    label: str
    metric: str
    lower_is_better: bool
    points: tuple[FinalLoss, ...]
    """By budget, then by batch size."""
    example_unit: str = "example"
    failed: Mapping[tuple[int, float], int] = field(default_factory=dict)
    """Where each configuration had runs without a final value (NaN, infinite, diverged): how many
    of the best one, by batch size and budget."""
    studies: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def budgets(self) -> list[float]:
        return sorted({point.budget for point in self.points})

    @property
    def batch_sizes(self) -> list[int]:
        return sorted({point.batch_size for point in self.points})

    def cost(self, value: float) -> float:
        """The value with the sign for which less is better."""
        return value if self.lower_is_better else -value


def final_losses(
    trials: pd.DataFrame,
    evaluations: Evaluations,
    goal: Target,
    *,
    studies: pd.DataFrame | None = None,
    by: Sequence[str] | None = None,
    search: str = "present",
    under: Sequence[Limit] = (),
) -> list[FinalLosses]:
    """The final losses of each curve of ``trials``.

    Args:
        trials: rows with the columns of the trials table, whatever targets they record. A trial may
            have several rows, of sources that trained it to several budgets.
        evaluations: their measurements.
        goal: names the metric and its better direction; its value is not used.
        studies, by, search: as of ``analysis.curves.curves``.
        under: read the runs at these budgets, in examples or tokens, instead of at their end.

    Raises:
        ResultsError: no run ended at its budget with a value of the metric; or budgets ``under``
            which these runs cannot be read.
    """
    if trials.empty:
        raise ResultsError("no trials to read final losses of", hint="see batchscale status")
    # Sources that trained one trial to several budgets have a row of it each.
    wide, notes = prepared(trials, by, apart=() if under else ("steps_run",))
    frame = wide.frame.assign(
        target_metric=goal.metric, target_value=goal.value, lower_is_better=goal.lower_is_better
    )
    frame = sample(frame, studies, scope=search).trials.reset_index(drop=True)
    # Of a design's baseline one search: as many runs as the others have. A table has seeds instead.
    first = frame["replicate"].isna() | frame["replicate"].eq(0) | frame["search"].eq(TABLE)
    frame = frame[first].reset_index(drop=True)
    frame["search"] = None  # several search methods of one batch size are one set of runs here
    at = _read_at(frame, under)
    frame = pd.concat([frame] * max(len(under), 1), ignore_index=True)
    wide = type(wide)(frame=frame, fields=wide.fields, technique=wide.technique)
    run, budget_steps = (numeric(frame, name) for name in ("steps_run", "budget_steps"))
    # At a budget a run has its loss there, whatever ended it later.
    ended = _ended(frame) | ((SAME * run >= at) & bool(under))
    last, value = _values(
        frame["trial"].tolist(), at, evaluations, goal.metric, between=bool(under)
    )
    counted = ended & np.isfinite(value) & (last > 0)
    if not counted.any():
        raise _nothing(frame, ended, goal)
    groups = grouping(wide, by)
    parts = [(group, rows) for group, rows in groups.split(frame) if counted[rows].any()]
    texts = labels([group for group, _ in parts])
    whole = numeric(frame, "examples_run")
    size = frame["batch_size"].to_numpy(dtype=float)
    examples = np.where((run == last) & (whole > 0), whole, last * size)
    # A run that diverged has the budget that it was to have, and no value.
    upto = at if under else budget_steps
    lost = frame["stop_reason"].eq("diverged").to_numpy(dtype=bool) & ~counted
    lost &= ~(upto > SAME * budget_steps)
    examples = np.where(lost, np.where(upto > 0, upto * size, whole), examples)
    value = np.where(lost, np.nan, value)
    settings = [frame[name].map(str) for name in ("metaparameters", *groups.over)]
    frame["configuration"] = [" ".join(each) for each in zip(*settings, strict=True)]
    kept = counted | (lost & (examples > 0))
    if left_out := int((~counted).sum()):
        notes.append(Note("no_final", n=left_out, of=len(frame)))
    if stopped := int((~ended & frame["stop_reason"].eq("target").to_numpy(dtype=bool)).sum()):
        notes.append(Note("ended_at_target", n=stopped))
    if frame.loc[counted, "trial"].duplicated().any():
        notes.append(Note("shared_runs"))
    return [
        _of_group(frame, rows[kept[rows]], examples, value, group, text, goal, tuple(notes))
        for (group, rows), text in zip(parts, texts, strict=True)
    ]


def _ended(trials: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether each trial was trained to its budget."""
    ran_on = trials.get("stop_at_target", pd.Series(None, trials.index, object)).isin([False])
    at_target = trials["stop_reason"].eq("target") & ~ran_on
    cut = trials["stop_reason"].isin(["dominated", "diverged", "error", "interrupted"]) | at_target
    ended: NDArray[np.bool_] = (trials["status"].eq("COMPLETE") & ~cut).to_numpy(dtype=bool)
    return ended


def _read_at(trials: pd.DataFrame, under: Sequence[Limit]) -> Numbers:
    """The step, not always a whole one, at which each row is read, one budget after the other;
    infinite: at its end. (n · budgets,)"""
    if not under:
        # Of a trial that several sources have, each row ends where that source ended it.
        run = trials["steps_run"].to_numpy(dtype=float, na_value=np.inf)
        several = trials["trial"].duplicated(keep=False).to_numpy(dtype=bool)
        return np.where(several, run, np.inf)
    names = sorted({str(name) for name in trials["schedule"].dropna()} - {CONSTANT})
    if names:
        raise ResultsError(
            f"schedule {', '.join(names)}: the loss at a smaller budget is not that of a run with "
            "this budget, whose learning rate would have ended there",
            hint="sweep with each budget, and read them without --under; or "
            f"--where \"schedule = '{CONSTANT}'\"",
        )
    if grows(trials):
        raise ResultsError(
            "the batch size of some of these runs grows during training: they have no losses at "
            "smaller budgets",
            hint='leave them out: --where "ramp IS NULL"',
        )
    size = trials["batch_size"].to_numpy(dtype=float)
    parts = []
    for limit in under:
        if limit.unit not in (EXAMPLES, TOKENS):
            message = f"{limit}: budgets at which final losses are read are in examples or tokens"
            raise ResultsError(message, hint='for example: --under "1e6 examples"')
        per = np.ones(len(trials))
        if limit.unit == TOKENS:
            per = tokens_of(trials).to_numpy(dtype=float, na_value=np.nan)
            if np.isnan(per).any():
                message = f"{limit}: some of these runs are recorded without tokens_per_example"
                raise ResultsError(message, hint='give it in examples: --under "1e6 examples"')
        parts.append(float(limit.amount) / (size * per))
    return np.concatenate(parts)


def _values(
    trials: list[str], at: Numbers, evaluations: Evaluations, metric: str, *, between: bool
) -> tuple[Numbers, Numbers]:
    """The step and the metric of each row at its last evaluation up to ``at``; -1 and NaN without
    one, NaN where a part of the split was evaluated.

    Args:
        between: interpolate between that and the next one, where there is one; of a run that ended
            earlier there is no value, but for rounding.
    """
    around = evaluations.select(_AROUND, {"trial": trials, "upto": at}, metric)
    around = around.set_index("row").reindex(range(len(trials))).astype(float)
    before, value, after, next_value = (
        around[name].to_numpy() for name in ("before", "there", "after", "beyond")
    )
    if between:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.log(at / before) / np.log(after / before)
        interpolated = np.where(before == at, value, value + share * (next_value - value))
        inside = (before > 0) & (after > before)
        ended_there = (before == at) | (SAME * before >= at)
        value = np.where(inside, interpolated, np.where(ended_there, value, np.nan))
        before = np.where(inside, at, before)
    return np.nan_to_num(before, nan=-1.0), value


def _nothing(trials: pd.DataFrame, ended: NDArray[np.bool_], goal: Target) -> ResultsError:
    if not ended.any() and trials["stop_reason"].eq("target").any():
        return ResultsError(
            "these runs ended at their target, not at a budget: they have no final losses",
            hint="sweep with stop_at_target: false, at several budgets",
        )
    return ResultsError(
        f"no run that ended at its budget has a value of {goal.metric}",
        hint="name the metric that was measured in --target",
    )


def _of_group(
    frame: pd.DataFrame,
    rows: Rows,
    examples: Numbers,
    value: Numbers,
    group: dict[str, Any],
    text: str,
    goal: Target,
    notes: tuple[Note, ...],
) -> FinalLosses:
    # The repeats of a search's best trial are selected runs: they are not minimized over.
    # Like runs of one configuration they show the scatter of its losses.
    search = frame["role"].isin(SEARCH_ROLES).to_numpy(dtype=bool)[rows]
    of_search = np.isfinite(value[rows[search]]).any()
    candidate = search if of_search else np.ones_like(search)
    cells = frame.loc[rows, ["batch_size", "configuration", "learning_rate"]].assign(
        examples=examples[rows], value=value[rows], candidate=candidate,
        budget=_budgets(examples[rows], np.isfinite(value[rows]) & candidate),
    )  # fmt: skip
    sign = 1.0 if goal.lower_is_better else -1.0
    points = []
    failed: dict[tuple[int, float], int] = {}
    for _, cell in cells.groupby(["budget", "batch_size"], sort=True):
        size, budget = int(cell["batch_size"].iloc[0]), float(cell["budget"].iloc[0])
        each = cell[cell["candidate"]].groupby("configuration", sort=True, as_index=False).agg(
            value=("value", "mean"), examples=("examples", "median"),
            learning_rate=("learning_rate", "first"), runs=("value", "count"), of=("value", "size"),
        )  # fmt: skip
        if each.empty:
            continue
        lost = (each["of"] - each["runs"]).to_numpy()
        if lost.all():
            failed[size, budget] = int(lost.min())
        each = each[(each["runs"] > 0) & ((lost == 0) | lost.all())]
        if each.empty:
            continue
        best = each.iloc[int((sign * each["value"]).to_numpy().argmin())]
        if lost.all():
            failed[size, budget] = int(best["of"] - best["runs"])
        runs = cell.loc[cell["configuration"].eq(best["configuration"]), "value"].dropna()
        rates = pd.to_numeric(each["learning_rate"]).dropna().unique()
        rate = number(best["learning_rate"])
        points.append(
            FinalLoss(
                batch_size=size,
                budget=budget,
                examples=float(best["examples"]),
                value=float(best["value"]),
                configurations=len(each),
                learning_rate=rate,
                edge=len(rates) > 2 and rate is not None and rate in (min(rates), max(rates)),
                runs=tuple(map(float, runs)),
            )
        )
    edges = sum(point.edge for point in points)
    return FinalLosses(
        group=group,
        label=text if text != "steps to target" else goal.metric,
        metric=goal.metric,
        lower_is_better=goal.lower_is_better,
        points=tuple(points),
        failed=failed,
        example_unit=unit(frame["example_unit"].to_numpy(object)[rows]),
        studies=tuple(dict.fromkeys(s for s in frame.loc[rows, "study"] if isinstance(s, str))),
        notes=(*notes, *([Note("rate_edge", n=edges)] if edges else [])),
    )


def _budgets(examples: Numbers, counted: NDArray[np.bool_]) -> Numbers:
    """The budget that each run belongs to: that of the nearest among the ``counted``; NaN of a run
    that is far from all of several; (n,)."""
    budgets = np.unique(same_budgets(examples[counted]))
    off = np.abs(np.log(examples[:, None] / budgets))
    near = (off.min(axis=1) <= np.log(SAME)) | (len(budgets) == 1)
    return np.where(near, budgets[off.argmin(axis=1)], np.nan)


def same_budgets(examples: Numbers) -> Numbers:
    """The budget that each number of examples belongs to: the median of those alike; (n,)."""
    order = np.argsort(examples, kind="stable")
    budgets = np.empty_like(examples)
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or examples[order[end]] > SAME * examples[order[start]]:
            budgets[order[start:end]] = np.median(examples[order[start:end]])
            start = end
    return budgets
