"""Published curves, and the regimes that their authors report.

A golden is one statement of authors about their curves, our result for the same points, and the
rule by which the two agree. The statements are from the facts that the packaged data comes with;
**(r)** marks what is remembered of a paper's text and could not be read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

import results
from analysis import curves, regimes
from analysis.curves.curve import Curve
from analysis.fit.comparisons import ratio, ratio_text
from analysis.fit.laws import laws
from analysis.fit.regimes import Regimes, TooFewBatchSizesError
from validation.page import interval

SHALLUE, ZHANG = "shallue_2019_digitized", "zhang_2024"
FLOOR = 1.5
"""Two nearly equal optimizers, searched separately, differ by up to this factor (Shallue et al.'s
protocol, single-seed minima of about 100 trials)."""
THEIRS = {"85m": 745.32, "151m": 955.16, "604m": 1888.52}
"""Critical batch sizes of Zhang et al. 2024, by their model sizes."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What authors say of their curves."""

    quantity: str
    theirs: str
    place: str
    """Where they do."""
    rule: str
    """When ours agrees."""


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A statement, and our result for one curve."""

    statement: Statement
    curve: str
    ours: str
    agrees: bool | None
    """None where an end of the curve that is not level leaves a bound, which cannot say."""
    why: str = ""
    """Of a bound: what leaves it open."""


@cache
def located(source: str, workload: str = "", definition: str | None = None) -> tuple[
    tuple[Curve, Regimes], ...
]:  # fmt: skip
    """The published curves of a source (and workload) with their regimes; those of too few batch
    sizes are left out."""
    opened = results.open("published")
    rows, studies = opened.trials, opened.studies
    rows = rows[(rows["source"] == source) & (rows["workload"].eq(workload) | (not workload))]
    pairs = []
    for curve in curves(rows, studies=studies[studies["source"] == source]):
        try:
            pairs.append((curve, regimes(curve, definition=definition)))
        except TooFewBatchSizesError:
            continue
    return tuple(pairs)


def goldens() -> list[Golden]:
    """All of them, in the order of the page."""
    return [*_zhang(), _zhang_law(), *_momentum(), *_everywhere(), _models()]


def tables() -> dict[str, str]:
    """A paragraph a statement, with a line of its curves."""
    every = goldens()
    bounded = [golden for golden in every if golden.agrees is None]
    agreeing = sum(bool(golden.agrees) for golden in every)
    parts = [f"{agreeing} of {len(every)} agree; {len(bounded)} cannot be said.\n"]
    for said in dict.fromkeys(golden.statement for golden in every):
        parts.append(
            f"- **{said.quantity[0].upper()}{said.quantity[1:]}**: {said.theirs} ({said.place}). "
            f"Agrees if {said.rule}."
        )
        for golden in every:
            if golden.statement == said:
                verdict = {True: "agrees", False: "**does not agree**", None: "bounded"}
                why = f", since {golden.why}" if golden.why and golden.agrees is None else ""
                parts.append(f"  - {golden.curve}: {golden.ours}; {verdict[golden.agrees]}{why}")
    return {"goldens": "\n".join(parts)}


def named(curve: Curve) -> str:
    """The label of a published curve: its workload and training algorithm."""
    return ", ".join(str(curve.group[name]) for name in ("workload", "optimizer"))


def _zhang() -> Iterator[Golden]:
    statement = Statement(
        quantity="critical batch size by their definition",
        theirs=", ".join(f"{value:,.2f}" for value in THEIRS.values()),
        place="Zhang et al. 2024, the authors' answer",
        rule="it is 0.01 apart at most, from the steps that they fitted",
    )
    for curve, fitted in located(ZHANG, definition="zhang2024"):
        theirs = THEIRS[str(curve.group["model"]).rpartition("-")[2]]
        ours = fitted.defined
        assert ours is not None
        yield Golden(
            statement=statement,
            curve=named(curve),
            ours=interval(ours) + ("" if ours.value is None else f", exactly {ours.value:,.2f}"),
            agrees=ours.value is not None and abs(ours.value - theirs) <= 0.01,
        )


def _zhang_law() -> Golden:
    made, fits = zip(*located(ZHANG, definition="zhang2024"), strict=True)
    millions = {str(curve.group["model"]): curve.group["parameters"] / 1e6 for curve in made}
    ((law, _),) = laws(made, fits, "model", sizes=millions)
    power, factor = law.exponent, law.coefficient
    assert power.value is not None
    return Golden(
        statement=Statement(
            quantity="its law over model size N in millions",
            theirs="93.2 · N^0.47",
            place="Zhang et al. 2024",
            rule="the exponent is theirs to two digits, and both numbers lie in the intervals",
        ),
        curve="the three of c4",
        ours=f"{interval(factor)} · N^{interval(power)}",
        agrees=round(power.value, 2) == 0.47 and factor.holds(93.2) and power.holds(0.47),
    )


def _momentum() -> Iterator[Golden]:
    """SGD against momentum and Nesterov, on each workload that has both."""
    place = "Shallue et al. 2019, 4.4 and figure 4 (r)"
    extends = Statement(
        quantity="critical batch size over SGD's",
        theirs="momentum extends perfect scaling to larger batch sizes",
        place=place,
        rule="the whole interval of the ratio lies above 1",
    )
    matches = Statement(
        quantity="examples to target at small batches, over SGD's",
        theirs="momentum matches plain SGD at small batch sizes",
        place=place,
        rule=f"the interval meets 1/{FLOOR:g} to {FLOOR:g}, what separate searches of one "
        "optimizer differ by",
    )
    for workload in ("mnist-simple-cnn", "cifar10-resnet8"):
        by = {c.group["optimizer"]: (c, r) for c, r in located(SHALLUE, workload)}
        base = by.pop("sgd")[1]
        for curve, fitted in by.values():
            longer = ratio(fitted.critical_batch_size, base.critical_batch_size)
            agrees = longer.low is not None and longer.low > 1
            yield _golden(extends, curve, ratio_text(longer), agrees)
            same = ratio(fitted.min_examples, base.min_examples)
            agrees = same.low is not None and same.high is not None
            agrees = agrees and (same.low or 0) < FLOOR and (same.high or 0) > 1 / FLOOR
            yield _golden(matches, curve, ratio_text(same), agrees)


def _golden(statement: Statement, curve: Curve, ours: str, agrees: bool) -> Golden:
    return Golden(statement=statement, curve=named(curve), ours=ours, agrees=agrees)


def _everywhere() -> Iterator[Golden]:
    """Perfect scaling, then diminishing returns, then maximal data parallelism."""
    statement = Statement(
        quantity="the three regimes",
        theirs="perfect scaling at the smallest batch sizes, diminishing returns, then none",
        place="Shallue et al. 2019, 4.1 and figure 1 (r)",
        rule="perfect scaling's end and maximal parallelism's beginning have both ends",
    )
    for curve, fitted in located(SHALLUE):
        perfect, maximal = fitted.perfect_scaling_until, fitted.maximal_parallelism_from
        bounded = not (fitted.small_level and fitted.large_level)
        yield Golden(
            statement=statement,
            curve=named(curve),
            ours=f"perfect until {interval(perfect)}, maximal from {interval(maximal)}",
            agrees=(perfect.reached and maximal.reached) or (None if bounded else False),
            why=_start(curve),
        )


def _start(curve: Curve) -> str:
    """The evidence of the two smallest batch sizes alone, where the small end is not level."""
    (small, most), (large, least) = ((p.batch_size, p.steps or np.nan) for p in curve.points[:2])
    return (
        f"its digitized points begin at {small} and {large}, where {large / small:.0f} times the "
        f"batch size takes {most / least:.1f} times fewer steps, and smaller ones are not there"
    )


def _models() -> Golden:
    """The Transformer against the LSTM."""
    (_, long), (_, short) = (
        located(SHALLUE, workload)[0] for workload in ("lm1b-transformer-base", "lm1b-lstm")
    )
    over = ratio(long.critical_batch_size, short.critical_batch_size)
    return Golden(
        statement=Statement(
            quantity="critical batch size of the Transformer over the LSTM's",
            theirs="some models can exploit much larger batch sizes than others",
            place="Shallue et al. 2019, 4.3 and figure 3 (r)",
            rule="the whole interval of the ratio lies above 1",
        ),
        curve="lm1b",
        ours=ratio_text(over),
        agrees=(over.low or 0) > 1,
    )
