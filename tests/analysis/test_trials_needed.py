"""Was N enough: numbers that are known, and nothing beyond what is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis import curves, regimes
from analysis.curves.estimators import Budget, OrderStatistics, budget, budget_note
from analysis.notes import Note, codes

Make = Callable[..., pd.DataFrame]


def sample(steps: list[float], trials: int) -> OrderStatistics:
    found = np.array(sorted(steps))
    return OrderStatistics(
        trials=trials, hit=np.arange(len(steps)), steps=found, middles=found, cut=True
    )  # fmt: skip


def made(trials: int, known: int, half: float) -> Budget:
    """A budget check whose best of half as many takes ``half`` times the steps."""
    n = tuple(range(trials // 2, trials + 1))
    return Budget(
        trials=trials, known=known, n=n, expected=tuple(np.linspace(100 * half, 100, len(n)))
    )


@pytest.mark.parametrize(("known", "least"), [(1, 46), (4, 25), (10, 12), (48, 1)])
def test_what_48_trials_show(known: int, least: int) -> None:
    found = budget(sample([100.0 + i for i in range(known)], 48))
    assert found is not None
    assert found.n == tuple(range(least, 49))
    assert found.expected[-1] == 100
    assert found.fewest_ratio == found.expected[0] / 100
    assert (found.half_ratio is None) == (known == 1)
    if known == 10:
        assert found.half_ratio == found.expected[24 - 12] / 100
    assert budget(sample([], 48)) is None


def test_thousands_of_trials_are_shown_at_a_few_hundred_numbers() -> None:
    found = budget(sample([float(i + 1) for i in range(5000)], 5000))
    assert found is not None
    assert len(found.n) <= 256
    assert (found.n[0], found.n[-1]) == (1, 5000)
    # Of 1 … N the expected least of n is (N + 1) / (n + 1).
    assert found.expected == pytest.approx([5001 / (n + 1) for n in found.n])
    assert found.half_ratio == pytest.approx(5001 / 2501, rel=1e-3)


def test_the_rule_on_searches_whose_answer_is_known() -> None:
    """In d dimensions about a smooth optimum the excess of the best of n falls as n^(-2/d). So of
    64 trials that are enough an unlimited search could still take off about 2, 5 and 9 %."""
    rng = np.random.default_rng(8)
    for dimensions, height in ((1, 200.0), (2, 2.5), (3, 0.7)):
        found = []
        for size in range(200):
            far = np.square(rng.uniform(-1, 1, (64, dimensions))).sum(1)
            best = budget(sample(list(100 * (1 + height * far)), 64))
            assert best is not None
            found.append((size, best))
        left = np.mean([each.expected[-1] for _, each in found]) / 100 - 1
        half = np.mean([each.expected[31] for _, each in found]) / 100 - 1
        note = budget_note(found)
        assert note is not None
        assert half / left == pytest.approx(2 ** (2 / dimensions), rel=0.15)
        cost = (half - left) / (1 + left)
        assert (note.code == "enough_trials") == (cost <= 0.05), (dimensions, cost, note)


def test_the_sentence() -> None:
    enough = [(8, made(64, 4, 1.02)), (16, made(64, 4, 1.06))]
    assert budget_note(enough) == (
        "64 trials were enough: the best of half as many takes 4.0% more steps (at most 6%, at "
        "batch size 16)"
    )
    assert budget_note([(8, made(64, 4, 1.3))]) == Note("few_trials", n=64, half=0.3, most="")
    unknown = budget(sample([9.0], 48))
    assert unknown is not None
    note = budget_note([(8, unknown), (16, unknown)])
    assert note == Note("trials_unknown", n=48, known=1)
    assert budget_note([]) is None


def test_of_an_enlarged_space_the_first_part_is_counted() -> None:
    found = budget(replace(sample([100.0 + i for i in range(10)], 96), enlarged=72))
    assert found is not None
    assert (found.trials, found.first) == (96, 24)
    assert found.shares[-1] == 24
    assert found.shares[0] == found.n[0] / 4
    assert str(budget_note([(8, found)])).startswith("24 trials ")


def test_points_have_it_as_columns_and_regimes_as_a_note(search: Make) -> None:
    (curve,) = curves(search(n=48))
    frame = curve.to_frame()
    assert frame["fewest_trials"].max() == 25
    assert (frame["fewest_trials_ratio"] >= 1).all()
    four = frame["fewest_trials"] == 25
    assert (frame["half_trials_ratio"] == frame["fewest_trials_ratio"])[four].all()
    assert any(text.startswith("48 trials ") for text in regimes(curve).notes)
    known = [p.budget.known for p in curve.points if p.budget]
    assert min(known) >= 4  # ties at the fourth count too


def test_it_uses_nothing_beyond_what_dominated_stopping_keeps(search: Make) -> None:
    """Whatever happened beyond that: ``test_curves``."""
    off, kept = (curves(search(n=48, keep=keep))[0] for keep in (None, 4))
    for whole, part in zip(off.points, kept.points, strict=True):
        assert whole.budget is not None
        assert part.budget is not None
        exact = dict(zip(whole.budget.n, whole.budget.expected, strict=True))
        for n, value in zip(part.budget.n, part.budget.expected, strict=True):
            assert 0.93 * exact[n] <= value <= exact[n] * (1 + 1e-9)


def test_it_is_withheld_where_no_random_part_is_a_search(search: Make) -> None:
    both = pd.concat([search("sgd"), search("adam", seed=1)])
    (merged,) = curves(both, by=["schedule"])
    assert all(point.budget is None for point in merged.points)
    assert not {"enough_trials", "few_trials", "trials_unknown"} & {*codes(merged.notes)}
    (median,) = curves(search(), estimator="median_of_searches")
    assert all(point.budget is None for point in median.points)
