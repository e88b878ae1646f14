"""``python -m validation rules``: what a learning rate costs that a rule derives at another batch
size, of the packaged sweeps ``rules-*`` beside those of ``atlas-*``, where it is tuned.

Both sides are trials with fresh seeds: of a rule all, of the tuned rate the repeats of the best
trials, so that no best trial's luck is in the ratio. A trial that does not reach its target counts
as its whole budget. docs/findings/questions.md was written before they were trained.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.fit.interval import Interval
from analysis.fit.random_effects import mean
from analysis.techniques.pooled import LEAST
from results.reader import open as open_results
from validation.page import ROOT, interval, table
from validation.page import times as text_of

PAGE = ROOT / "docs" / "findings" / "rules.md"
RULES = ("none", "sqrt", "linear")
HALF_LIFE = "half-life of beta2"
CHEAP = 1.1
"""A rule holds where it takes at most so many times the tuned steps."""
BETWEEN_EVALUATIONS = float(np.log(1.05) / np.sqrt(12))
"""The standard deviation of log steps that evaluations at a ratio of 1.05 leave open."""
_RULE = re.compile(r"learning_rate (\w+)(, beta2 half_life)?, from (\d+)")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one rule on one workload at one batch size."""

    workload: str
    optimizer: str
    rule: str
    """That of the learning rate."""
    half_life: bool
    """Whether beta2 follows one too."""
    times: float
    """The batch size over that of the base."""
    log_steps: tuple[float, float]
    """The mean log of the rule's steps, and its standard error."""
    log_ratio: float
    """Of the rule's steps over the tuned ones, geometric means of the seeds."""
    error: float
    missed: bool
    """Whether seeds of the rule missed the target: the ratio is a lower bound."""
    tuned_missed: bool
    """Whether seeds of the tuned rate did: an upper bound."""


def costs(source: Any = "own") -> list[Cost]:
    """Of every rule, workload and batch size that is trained, and tuned in the atlas."""
    trials = open_results(source).trials
    trials = trials.assign(rule=[json.loads(each).get("rule") for each in trials["technique"]])
    tuned = trials[trials["experiment"].str.startswith("atlas-") & (trials["role"] == "repeat")]
    by_rule = trials[trials["experiment"].str.startswith("rules-")]
    keys = ["workload", "dataset", "optimizer", "batch_size"]
    known = {tuple(key): rows for key, rows in tuned.groupby(keys)}
    made = []
    for names, rows in by_rule.groupby([*keys, "rule"], sort=False):
        *key, rule = names
        parts = _RULE.fullmatch(str(rule))
        if parts is None or tuple(key) not in known:
            continue
        reference = known[tuple(key)]
        ruled, best = _mean(rows), _mean(reference)
        made.append(
            Cost(
                workload=" ".join(map(str, key[:2])),
                optimizer=str(key[2]),
                rule=parts[1],
                half_life=parts[2] is not None,
                times=int(rows["batch_size"].iloc[0]) / int(parts[3]),
                log_steps=ruled,
                log_ratio=ruled[0] - best[0],
                error=float(np.hypot(ruled[1], best[1])),
                missed=bool(rows["steps_to_target"].isna().any()),
                tuned_missed=bool(reference["steps_to_target"].isna().any()),
            )
        )
    return made


def _mean(rows: pd.DataFrame) -> tuple[float, float]:
    """The mean log of the steps and its standard error, with that of the steps between evaluations.

    Several searches have learning rates of their own: their means scatter more than their seeds do.
    """
    steps = rows["steps_to_target"].fillna(rows["budget_steps"])
    logs = pd.Series(np.log(steps.to_numpy(dtype=float)), rows.index)
    error = logs.std(ddof=1) / np.sqrt(len(logs))
    searches = logs.groupby(rows["replicate"].fillna(0)).mean()
    if len(searches) > 1:
        error = max(error, searches.std(ddof=1) / np.sqrt(len(searches)))
    return float(logs.mean()), float(np.hypot(error, BETWEEN_EVALUATIONS))


def pooled(given: Sequence[Cost]) -> Interval:
    """The mean ratio over workloads, of one rule at one factor; a bound alone where seeds missed
    the target, since nothing says how many steps more they need."""
    if len(given) < LEAST:
        return Interval()
    ratios = np.array([each.log_ratio for each in given])
    made = Interval.of_logs(*mean(ratios, np.array([each.error for each in given])))
    if any(each.missed for each in given):
        made = Interval(low=made.low)
    return Interval(high=made.high) if any(each.tuned_missed for each in given) else made


def half_lives(given: Sequence[Cost]) -> list[Cost]:
    """Of each rule with a half-life of beta2 over the same rule with a fixed beta2: both begin at
    one learning rate, and the tuned rate with its error is in neither."""

    def key(each: Cost) -> tuple[object, ...]:
        return each.workload, each.optimizer, each.rule, each.times

    fixed = {key(each): each for each in given if not each.half_life}
    return [
        replace(
            each,
            log_ratio=each.log_steps[0] - other.log_steps[0],
            error=float(np.hypot(each.log_steps[1], other.log_steps[1])),
            tuned_missed=other.missed,
        )
        for each in given
        if each.half_life and (other := fixed.get(key(each))) is not None
    ]


def reach(means: dict[float, Interval]) -> tuple[float, float]:
    """Up to which factor above 1, in a row, the mean ratio is at most ``CHEAP``: as far as its
    upper end is, and as far as its lower end is. 1 where it is not at twice the base."""
    ends = []
    for end in ("high", "low"):
        furthest = 1.0
        for times in sorted(times for times in means if times > 1):
            value = getattr(means[times], end)
            if value is None or value > CHEAP:
                break
            furthest = times
        ends.append(furthest)
    return ends[0], ends[1]


def reach_text(means: dict[float, Interval]) -> str:
    """``1 to 8``; ``1 to ≥ 8`` where 8 is the last factor, or the next has no lower end."""
    surely, perhaps = reach(means)
    above = [times for times in means if times > perhaps]
    unknown = not above or means[min(above)].low is None
    return f"{surely:g} to {'≥ ' if unknown else ''}{perhaps:g}"


def tables(source: Any = "own") -> dict[str, str]:
    """What docs/findings/rules.md has."""
    given = costs(source)
    return {
        "pooled": _pooled(given),
        "half-lives": _half_lives(half_lives(given)),
        "workloads": _workloads(given),
    }


def _pooled(given: Sequence[Cost]) -> str:
    """A row an optimizer and rule, a column a factor of the batch size."""
    times = _factors(given)

    def rows() -> Iterator[list[object]]:
        for (optimizer, half_life, rule), own in _groups(given):
            means = _means(own, times)
            yield [
                f"`{optimizer}`", _name(rule, half_life=half_life),
                *(interval(means[t]) for t in times), reach_text(means),
            ]  # fmt: skip

    return table(("optimizer", "rule", *map(text_of, times), "within 10 % up to"), rows())


def _half_lives(given: Sequence[Cost]) -> str:
    """A row a rule of the learning rate."""
    times = _factors(given)
    rows = (
        [rule, *map(interval, _means(own, times).values())] for (_, _, rule), own in _groups(given)
    )
    return table(("learning rate", *map(text_of, times)), rows)


def _means(given: Sequence[Cost], times: Sequence[float]) -> dict[float, Interval]:
    return {t: pooled([each for each in given if each.times == t]) for t in times}


def _workloads(given: Sequence[Cost]) -> str:
    """The ratios themselves: a row a workload, optimizer and rule."""
    times = _factors(given)

    def rows() -> Iterator[list[object]]:
        for (optimizer, half_life, rule), own in _groups(given):
            for workload in dict.fromkeys(each.workload for each in own):
                cells = {each.times: each for each in own if each.workload == workload}
                yield [
                    workload, f"`{optimizer}`", _name(rule, half_life=half_life),
                    *(_cell(cells[t]) if t in cells else "–" for t in times),
                ]  # fmt: skip

    return table(("workload", "optimizer", "rule", *map(text_of, times)), rows())


def _groups(given: Sequence[Cost]) -> Iterator[tuple[tuple[str, bool, str], list[Cost]]]:
    for optimizer in sorted({each.optimizer for each in given}):
        for half_life in (False, True):
            for rule in RULES:
                own = [
                    each for each in given
                    if (each.optimizer, each.half_life, each.rule) == (optimizer, half_life, rule)
                ]  # fmt: skip
                if own:
                    yield (optimizer, half_life, rule), own


def _factors(given: Sequence[Cost]) -> list[float]:
    return sorted({each.times for each in given})


def _name(rule: str, *, half_life: bool) -> str:
    return f"{rule}, {HALF_LIFE}" if half_life else rule


def _cell(cost: Cost) -> str:
    """``1.3``; ``≥ 2.4`` where seeds missed the target, ``≤ 2.4`` where seeds of the tuned rate
    did, ``? 2.4`` where both."""
    bound = {(True, False): "≥ ", (False, True): "≤ ", (True, True): "? "}
    return f"{bound.get((cost.missed, cost.tuned_missed), '')}{np.exp(cost.log_ratio):.2f}"
