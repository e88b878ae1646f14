"""``python -m validation half-life``: is a small-batch penalty of AdamW an artefact of beta2? Of
the packaged sweeps ``half-life-*``, in which beta2 is fixed or has a fixed half-life in examples.

Examples at the smallest batch size over those at the base of the half-life, where both train alike;
by the fitted curve, which has slopes below -1 where the data ask for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.figure_data import FigureData, Query
from analysis.fit.interval import Interval
from analysis.fit.locate import Located
from validation.page import ROOT, interval, number, table

PAGE = ROOT / "docs" / "findings" / "half-life.md"
WHERE = "experiment LIKE 'half-life-%'"
FIXED, HALF_LIFE = "fixed", "half-life"
LEVEL = 0.9


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One text and one kind of beta2."""

    text: str
    beta2: str
    penalty: Interval
    """Examples at the smallest batch size over those at the base."""
    examples: dict[int, float]
    """By batch size, as measured."""


def arms(source: Any = "own", where: str = WHERE) -> list[Arm]:
    """Of every text; a fixed beta2 first.

    Raises:
        ResultsError: the source cannot be read, or has no such trial.
    """
    pairs = FigureData(Query(sources=(source,), where=where)).pairs
    rules = [json.loads(curve.group["technique"]).get("rule") for curve, _ in pairs]
    (base,) = {int(at[1]) for rule in rules if (at := re.search(r"from (\d+)", rule or ""))}
    made = [
        Arm(
            text=str(curve.group["dataset"]),
            beta2=FIXED if rule is None else HALF_LIFE,
            penalty=penalty(fit.located, base),
            examples={p.batch_size: p.batch_size * p.steps for p in curve.points if p.steps},
        )
        for rule, (curve, fit) in zip(rules, pairs, strict=True)
        if fit is not None
    ]
    return sorted(made, key=lambda arm: (arm.text, arm.beta2))


def penalty(located: Located, base: int) -> Interval:
    """Examples at the smallest tested batch size over those at ``base``."""
    first, other = located.points.span[0], float(np.log(base))
    ends = located.steps_ratio(first, other, LEVEL)
    value, low, high = (end + first - other if np.isfinite(end) else None for end in ends)
    if value is None or low is None or high is None:
        return Interval()
    return Interval.of_logs(value, low, high)


def verdict(fixed: Interval, half_life: Interval) -> str:
    """By the rule that docs/findings/questions.md set before: what the two penalties say."""
    if fixed.low is None or half_life.high is None or fixed.value is None:
        return "not known"
    if fixed.low <= 1:
        return "not known" if fixed.high is None or fixed.high > 1 else "no penalty to explain"
    return "an artefact" if half_life.high < fixed.value else "not shown to be one"


def tables(source: Any = "own") -> dict[str, str]:
    """What docs/findings/half-life.md has."""
    given = arms(source)
    return {"penalties": _penalties(given), "examples": _examples(given)}


def _penalties(given: Sequence[Arm]) -> str:
    """A row a text."""

    def rows() -> Iterator[list[object]]:
        for text in dict.fromkeys(each.text for each in given):
            by_beta2 = {each.beta2: each.penalty for each in given if each.text == text}
            fixed, half_life = (by_beta2.get(kind, Interval()) for kind in (FIXED, HALF_LIFE))
            yield [text, interval(fixed), interval(half_life), verdict(fixed, half_life)]

    return table(("text", "beta2 fixed", "half-life fixed", "the penalty is"), rows())


def _examples(given: Sequence[Arm]) -> str:
    """Examples to the target: a row an arm, a column a batch size."""
    sizes = sorted({size for each in given for size in each.examples})
    return table(
        ("text", "beta2", *map(str, sizes)),
        (
            [each.text, each.beta2,
             *(number(each.examples[size]) if size in each.examples else "–" for size in sizes)]
            for each in given
        ),
    )  # fmt: skip
