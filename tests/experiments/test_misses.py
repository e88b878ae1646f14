"""Evaluations that end when a miss of the target is certain: the rule, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from experiments.plan import Pack, Study, WorkloadRef
from experiments.training.evaluation import misses
from experiments.training.evaluation.evaluator import Evaluator
from experiments.training.evaluation.misses import MissTest, Values
from experiments.training.evaluation.parts import FIRST, split_parts
from results.targets.target import Target
from tests.problems import (
    engine,
    measurements,
    outcomes,
    said,
    study,
    train,
    train_in_pieces,
    trials,
)
from tests.thread_ranks import ranks, together

pytestmark = pytest.mark.usefixtures("one_thread")

ERROR, ACCURACY = Target.parse("validation_error < 0.1"), Target.parse("validation_accuracy > 0.9")
LOSS = Target.parse("validation_loss < 1")


def ended_at(values: Values, target: Target | None) -> tuple[int, MissTest]:
    """How many of the values are read, in the parts of a split of their number."""
    test, read = MissTest(target, len(values)), 0
    for part in split_parts(len(values)):
        order = part.numpy()
        test.read(values[order], len(order))
        read += len(order)
        if test.ended:
            break
    return read, test


@pytest.mark.parametrize("examples", [1000, 1001, 5000, 50_000])
def test_parts_hold_each_example_once_in_one_order(examples: int) -> None:
    parts = split_parts(examples)
    assert torch.equal(torch.cat(parts).sort()[0], torch.arange(examples))
    assert [len(part) for part in parts[:3]] == [FIRST, FIRST, 2 * FIRST]
    assert all(map(torch.equal, parts, split_parts(examples)))
    assert not torch.equal(parts[0].sort()[0], torch.arange(FIRST))


@pytest.mark.parametrize(("read", "total", "examples"), [(10, 4, 30), (128, 500, 5000), (7, 0, 9)])
def test_the_tail_is_the_hypergeometric_one(read: int, total: int, examples: int) -> None:
    for ones in range(read + 1):
        expected = stats.hypergeom.sf(ones - 1, examples, total, read)
        assert misses.at_least(ones, read, total, examples) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("ones", "read", "examples"), [(0, 128, 1000), (60, 128, 1000), (3, 3, 9)])
def test_the_interval_of_errors_holds_all_that_is_not_excluded(
    ones: int, read: int, examples: int
) -> None:
    """Against every number of errors, one by one."""
    values = np.array([1.0] * ones + [0.0] * (read - ones))
    low, high = misses.interval(values, examples, ERROR)
    possible = [
        total
        for total in range(examples + 1)
        if stats.hypergeom.sf(ones - 1, examples, total, read) >= misses.PROBABILITY
        and stats.hypergeom.cdf(ones, examples, total, read) >= misses.PROBABILITY
    ]
    assert (low, high) == (possible[0] / examples, possible[-1] / examples)


def test_what_the_rest_cannot_reach_is_a_miss_whatever_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nine of ten losses read: the other one may be zero."""
    monkeypatch.setattr(misses, "PROBABILITY", 1e-300)
    assert misses.excludes(np.full(9, 1.12), 10, 1.0)
    assert not misses.excludes(np.full(9, 1.11), 10, 1.0)


def test_a_miss_is_strict() -> None:
    """100 errors of 1,000 are not < 0.1, and 99 are."""
    for errors, missed in ((100, True), (99, False)):
        values = np.array([1.0] * errors + [0.0] * (999 - errors))
        assert misses.certain_miss(values, 1000, ERROR) is missed
        assert misses.certain_miss(1 - values, 1000, ACCURACY) is missed


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: (rng.random(n) < 0.3).astype(float),
        lambda rng, n: rng.exponential(size=n),
        lambda rng, n: rng.lognormal(sigma=2.0, size=n),
        lambda rng, n: rng.pareto(1.1, n),
        lambda rng, n: 3.0 + 0.2 * rng.standard_normal(n),
        lambda rng, n: np.where(rng.random(n) < 0.01, 100.0, rng.random(n)),
    ],
    ids=["binary", "exponential", "lognormal", "pareto", "narrow", "outliers"],
)
def test_a_hit_is_hardly_ever_taken_for_a_miss(
    draw: Callable[[np.random.Generator, int], Values], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 0.05 for 1e-9, so that a simulation sees it; the mean lies just below the target."""
    monkeypatch.setattr(misses, "PROBABILITY", 0.05)
    misses._most_excluded.cache_clear()
    rng, wrong, early, runs = np.random.default_rng(3), 0, 0, 300
    for _ in range(runs):
        values = draw(rng, 2000)
        mean = float(values.mean())
        hit = Target(metric="validation_x", value=math.nextafter(mean, math.inf))
        missed = replace(hit, value=mean * 0.3)
        wrong += ended_at(values, hit)[1].sample is not None
        early += ended_at(values, missed)[1].sample is not None
    misses._most_excluded.cache_clear()
    parts = len(split_parts(2000))
    # The hypergeometric test is made once a part, the bet counts all of them.
    most = 0.05 * (parts if set(values) <= {0.0, 1.0} else 1)
    assert wrong <= runs * most + 3 * math.sqrt(runs * most)
    assert early >= runs / 3


def test_values_of_which_nothing_is_known_are_read_to_the_end() -> None:
    rng = np.random.default_rng(0)
    negative = rng.standard_normal(2000) + 9
    negative[split_parts(2000)[0][5]] = -1.0
    broken = np.full(2000, 9.0)
    broken[split_parts(2000)[0][5]] = np.nan
    above = rng.random(2000) * 0.1
    above[split_parts(2000)[0][5]] = 2.0
    for values, target in ((negative, LOSS), (broken, LOSS), (above, ACCURACY)):
        read, test = ended_at(values, target)
        assert (read, test.sample) == (2000, None)
    assert ended_at(np.full(2000, 9.0), None)[0] == 2000
    whole = MissTest(LOSS, 2000)
    whole.read(None, 1000)
    assert not whole.ended
    whole.read(None, 1000)
    assert (whole.ended, whole.sample) == (True, None)


def test_the_sample_says_where_the_whole_lies() -> None:
    rng = np.random.default_rng(1)
    for target, values in (
        (ERROR, (rng.random(5000) < 0.3).astype(float)),
        (ACCURACY, (rng.random(5000) < 0.6).astype(float)),
        (ACCURACY, rng.random(5000)),
        (LOSS, rng.exponential(3.0, 5000)),
    ):
        read, test = ended_at(values, target)
        sample = test.sample
        assert sample is not None
        assert sample.evaluated_examples == read < 5000
        assert sample.interval_low <= values.mean() <= sample.interval_high
        better = sample.interval_low if target.lower_is_better else sample.interval_high
        assert not target.hit(better)
        seen = values[torch.cat(split_parts(5000))[:read].numpy()]
        expected = stats.tstd(seen) * math.sqrt((1 - read / 5000) / read)
        assert sample.standard_error == pytest.approx(expected)
        assert abs(seen.mean() - values.mean()) < 6 * sample.standard_error
        assert (sample.interval_high == math.inf) is (target is LOSS)  # whatever was seen


def test_a_thousand_learning_curves_reach_their_target_at_the_same_step() -> None:
    """Errors and losses that fall, rise, stay and oscillate, on splits of several lengths."""
    rng, early = np.random.default_rng(7), 0
    for number in range(1000):
        examples = int(rng.choice([1000, 1500, 3000]))
        difficulty = rng.random(examples)
        target = replace(LOSS if number % 2 else ERROR, value=float(rng.uniform(0.05, 0.5)))
        level = np.geomspace(1.5, rng.uniform(0.02, 1.0), 12) * rng.lognormal(0, 0.2, 12)
        first: dict[str, int | None] = {"whole": None, "parts": None}
        for step, at in enumerate(level):
            values = (
                at * -np.log(difficulty) * rng.lognormal(0, 0.3, examples)
                if number % 2
                else (difficulty < at).astype(float)
            )
            hit = target.hit(float(values.sum()) / examples)
            read, test = ended_at(values, target)
            early += read < examples
            if hit and first["whole"] is None:
                first["whole"] = step
            if test.sample is None and hit and first["parts"] is None:
                first["parts"] = step
            if hit:
                break
        assert first["parts"] == first["whole"]
    assert early > 3000


LANGUAGE = WorkloadRef(
    spec="lm-transformer",
    fields={"text": "stdlib", "context": 8, "layers": 1, "width": 16, "validation_tokens": 9600},
)
CASES = {
    "teacher": ("teacher", "validation_excess_loss < 0.2", 150),
    "markov": ("markov", "validation_excess_loss < 0.1", 60),
    "text": (LANGUAGE, "validation_cross_entropy < 3.1", 100),
}


def case(name: str, **changes: object) -> Study:
    workload, target, steps = CASES[name]
    given = {"optimizer": "adam", "batch_size": 32, "keep": None, "budget_steps": steps, **changes}
    return study(workload=workload, target=target, **given)


def bound(events: list[object]) -> dict[str, tuple[object, ...]]:
    ended = outcomes(events)
    return {t: (o.steps_to_target, o.last_miss, o.stop_reason) for t, o in ended.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_trials_end_as_with_full_evaluations(name: str, kind: str) -> None:
    of = case(name)
    some = trials(of, 4)
    parts, full = train(of, some, kind), train(replace(of, evaluate="full"), some, kind)
    assert bound(parts) == bound(full)
    assert any(o.steps_to_target for o in outcomes(parts).values())
    assert all(m.evaluated_examples is None for m in measurements(full))
    metric = of.targets[-1].metric
    whole = {(m.trial, m.step): m.metrics[metric] for m in measurements(full)}
    read = [m for m in measurements(parts) if m.evaluated_examples is not None]
    assert len(read) > len(whole) / 4
    for m in measurements(parts):
        value = whole[m.trial, m.step]
        if m.evaluated_examples is None:
            assert m.metrics[metric] == pytest.approx(value, rel=1e-12)
            continue
        assert m.interval_metric == metric
        assert m.interval_low is not None
        assert m.interval_high is not None
        assert of.targets[-1].value <= m.interval_low <= value <= m.interval_high
    last = {m.trial: m for m in measurements(parts)}
    assert all(m.evaluated_examples is None for m in last.values())


def test_a_trials_evaluations_do_not_depend_on_its_pack() -> None:
    of = case("text")
    some = trials(of, 5)
    together_ = measurements(train(of, some, "stacked"))
    for trial in some[:2]:
        alone = measurements(train(of, (trial,), "stacked"))
        assert alone == [
            replace(m, train_seconds=a.train_seconds)
            for m, a in zip((m for m in together_ if m.trial == trial.id), alone, strict=True)
        ]


def test_ranks_decide_alike() -> None:
    of = case("teacher", workers=2)
    some = trials(of, 3)
    targets = [of.targets[-1], Target.parse("validation_excess_loss < 99"), None]
    alone = engine("module", replace(of, layout=replace(of.layout, workers=1)), some)
    group = ranks(2)
    of_ranks = [engine("module", of, some, group=rank) for rank in group]
    expected = Evaluator(alone)(range(3), targets)
    measured = together([lambda e=e: Evaluator(e)(range(3), targets) for e in of_ranks])  # type: ignore[misc]
    assert [m.sample is None for m in expected] == [False, True, True]
    for of_rank in measured:
        assert [m.sample and m.sample.evaluated_examples for m in of_rank] == [
            m.sample and m.sample.evaluated_examples for m in expected
        ]
        for m, e in zip(of_rank, expected, strict=True):
            assert m.metrics == pytest.approx(e.metrics, rel=1e-6)
    assert measured[0] == measured[1]


def test_an_easier_target_is_decided_first() -> None:
    """With two targets the evaluations before the first hit ask for the easier one."""
    of = case("text")
    easy = Target.parse("validation_cross_entropy < 3.4")
    both = replace(of, targets=(easy, *of.targets))
    some = trials(of, 4)
    for target in both.targets:
        alone = train(replace(of, targets=(target,)), some)
        first = {t: o.steps_to_target for t, o in outcomes(alone).items()}
        events = measurements(train(both, some))
        for trial in first:
            rows = [m for m in events if m.trial == trial]
            hits = [
                m.step
                for m in rows
                if m.evaluated_examples is None and target.hit(m.metrics[target.metric])
            ]
            assert (hits[0] if hits else None) == first[trial]


@pytest.mark.parametrize(
    "changes", [{"evaluate": "full"}, {"stop_at_target": False}], ids=["full", "trains on"]
)
def test_where_whole_splits_are_evaluated(changes: dict[str, object]) -> None:
    of = case("text", **changes)
    assert Evaluator(engine("module", of, trials(of, 1)))._parts is None
    of = case("text")
    assert Evaluator(engine("module", of, trials(of, 1)))._parts is not None
    small = study()
    assert Evaluator(engine("module", small, trials(small, 1)))._parts is None


def test_a_snapshot_knows_which_targets_are_reached() -> None:
    easy = Target.parse("validation_cross_entropy < 3.6")
    of = replace(case("text"), targets=(easy, *case("text").targets))
    some = trials(of, 3)
    pack = Pack(id="pack", study=of, trials=some, engine="module")
    assert said(train_in_pieces(pack)) == said(train(of, some))
