"""What rules for learning rates cost, of sweeps whose cost is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import results
from analysis.fit.interval import Interval
from results.store import Store
from tests.results import synthetic
from validation import rules
from validation.page import ROOT
from validation.rules import Cost, costs, half_lives, pooled, reach, reach_text

SEEDS = 7


def cost(log_ratio: float, error: float, *, times: float = 2.0) -> Cost:
    return Cost(
        workload="digits-mlp digits", optimizer="sgd", rule="sqrt", half_life=False, times=times,
        log_steps=(0.0, 0.0), log_ratio=log_ratio, error=error, missed=False, tuned_missed=False,
    )  # fmt: skip


def rows(logs: np.ndarray, searches: int = 1) -> pd.DataFrame:
    steps = {"steps_to_target": np.exp(logs), "budget_steps": 1000}
    return pd.DataFrame({**steps, "replicate": np.arange(len(logs)) % searches})


@pytest.mark.parametrize("between", [0.0, 0.15])
def test_intervals_hold_the_mean_cost(between: float) -> None:
    """Five workloads, steps of seven seeds over those of three searches, whose learning rates
    differ."""
    rng, held = np.random.default_rng(43), 0
    for _ in range(500):
        given = []
        for truth in rng.normal(np.log(1.2), between, 5):
            ruled = rules._mean(rows(rng.normal(truth, 0.1, SEEDS)))
            rates = np.tile(rng.normal(0.0, 0.1, 3), SEEDS)
            tuned = rules._mean(rows(rng.normal(rates, 0.1), searches=3))
            given.append(cost(ruled[0] - tuned[0], float(np.hypot(ruled[1], tuned[1]))))
        made = pooled(given)
        assert made.low is not None
        assert made.high is not None
        held += made.low <= 1.2 <= made.high
    assert held / 500 >= 0.87


def test_two_workloads_are_not_pooled() -> None:
    assert pooled([cost(0.1, 0.1), cost(0.1, 0.1)]) == Interval()


def test_seeds_that_miss_leave_a_bound() -> None:
    given = [cost(0.1, 0.1), cost(0.2, 0.1), cost(0.3, 0.1)]
    whole = pooled(given)
    missed = replace(given[0], missed=True)
    of_tuned = replace(given[1], tuned_missed=True)
    assert pooled([missed, *given[1:]]) == Interval(low=whole.low)
    assert pooled([given[0], of_tuned, given[2]]) == Interval(high=whole.high)
    assert pooled([missed, of_tuned, given[2]]) == Interval()
    cells = [rules._cell(each) for each in (given[0], missed, of_tuned)]
    assert cells == ["1.11", "≥ 1.11", "≤ 1.22"]
    assert rules._cell(replace(missed, tuned_missed=True)) == "? 1.11"


def test_a_rule_reaches_as_far_as_it_is_cheap_in_a_row() -> None:
    means = {
        0.5: Interval(value=2.0, low=1.9, high=2.1),
        1.0: Interval(value=1.0, low=0.9, high=1.1),
        2.0: Interval(value=1.0, low=0.95, high=1.05),
        4.0: Interval(value=1.1, low=1.0, high=1.2),
        8.0: Interval(value=1.3, low=1.2, high=1.4),
        16.0: Interval(value=1.0, low=0.9, high=1.05),
    }
    assert reach(means) == (2.0, 4.0)
    assert reach({2.0: Interval(value=1.5, low=1.4, high=1.6)}) == (1.0, 1.0)
    assert reach({2.0: Interval()}) == (1.0, 1.0)
    assert reach_text(means) == "2 to 4"
    last = {2.0: means[2.0], 4.0: Interval(low=0.7)}
    assert reach_text(last) == "2 to ≥ 4"  # the last factor, whose upper end is not known
    assert reach_text({**last, 8.0: Interval(high=3.0)}) == "2 to ≥ 4"
    assert reach_text({**last, 8.0: Interval(low=1.5)}) == "2 to 4"


def test_a_trial_that_misses_counts_as_its_budget(tmp_path: Path) -> None:
    """Of made rows, beside the same by hand."""
    store = Store(tmp_path)
    for experiment, technique, role, by_size in (
        ("rules-made", {"rule": "learning_rate sqrt, from 8"}, "search",
         {8: (100, 110, None), 16: (50, 60, 70)}),
        ("rules-half", {"rule": "learning_rate sqrt, beta2 half_life, from 8"}, "search",
         {8: (110, 120), 16: (None, 40)}),
        ("atlas-made", {}, "repeat", {8: (90, 100), 16: (55, 65)}),
    ):  # fmt: skip
        rows = [
            {
                **synthetic.trial_row("digits-mlp", "sgd", size, index),
                **{
                    "technique": technique,
                    "role": role,
                    "steps_to_target": steps,
                    "budget_steps": 200,
                },
                "trial": f"{experiment}-{size}-{index}",
            }
            for size, each in by_size.items()
            for index, steps in enumerate(each)
        ]
        made = [
            {**row, "experiment": experiment, "study": f"{experiment}-{row['study']}"}
            for row in rows
        ]
        store.commit(experiment, measurements=[], trials=made)
    made_costs = costs(tmp_path)
    first, second = (each for each in made_costs if not each.half_life)
    assert (first.times, second.times, first.rule, first.half_life) == (1, 2, "sqrt", False)
    log = np.log
    expected = (log(100) + log(110) + log(200)) / 3 - (log(90) + log(100)) / 2
    assert first.log_ratio == pytest.approx(expected)
    assert (first.missed, second.missed, first.tuned_missed) == (True, False, False)
    assert f"≥ {np.exp(expected):.2f}" in rules.tables(tmp_path)["workloads"]
    at_base, above = half_lives(made_costs)
    over_fixed = (log(110) + log(120)) / 2 - (log(100) + log(110) + log(200)) / 3
    assert at_base.log_ratio == pytest.approx(over_fixed)
    assert at_base.error == pytest.approx(np.hypot(at_base.log_steps[1], first.log_steps[1]))
    assert (at_base.missed, at_base.tuned_missed) == (False, True)
    assert above.log_ratio == pytest.approx((log(200 * 40) / 2) - log(50 * 60 * 70) / 3)
    assert (above.missed, above.tuned_missed) == (True, False)


@pytest.mark.parametrize("workload", ["digits", "markov", "mnist", "stdlib", "teacher"])
def test_the_rate_of_the_base_is_that_of_the_fewest_steps(workload: str) -> None:
    """Of all its searches in the atlas, and of ties the geometric mean."""
    file = ROOT / "results" / "own" / "experiments" / f"rules-{workload}.yaml"
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    (base,) = {rule["from"] for rule in written["grid"]["rule"]}
    best: pd.DataFrame = results.open("own").query(f"""
        WITH reached AS (FROM trials WHERE role != 'repeat' AND steps_to_target IS NOT NULL
          AND experiment = 'atlas-{workload}' AND batch_size = {base}),
          least AS (SELECT optimizer, min(steps_to_target) AS steps FROM reached GROUP BY ALL)
        SELECT optimizer, exp(avg(ln(learning_rate))) AS rate
        FROM reached JOIN least USING (optimizer) WHERE steps_to_target = steps GROUP BY ALL""")
    rates = dict(zip(best["optimizer"], best["rate"], strict=True))
    for optimizer, given in written["search"].items():
        assert given["learning_rate"] == pytest.approx(rates[optimizer], rel=5e-3)


@pytest.mark.slow
def test_a_cost_is_that_of_a_query() -> None:
    """Written again in SQL."""
    sql = """
    WITH logs AS (SELECT *, ln(coalesce(steps_to_target, budget_steps)) AS log FROM trials),
      ruled AS (SELECT optimizer, batch_size, technique->>'rule' AS rule, avg(log) AS mean
       FROM logs WHERE experiment = 'rules-digits' GROUP BY ALL),
      tuned AS (SELECT optimizer, batch_size, avg(log) AS mean
       FROM logs WHERE experiment = 'atlas-digits' AND role = 'repeat' GROUP BY ALL)
    SELECT optimizer, batch_size, rule, exp(ruled.mean - tuned.mean) AS ratio
    FROM ruled JOIN tuned USING (optimizer, batch_size)"""
    answer: pd.DataFrame = results.open("own").query(sql)
    by_query = {
        (row["optimizer"], row["batch_size"] / 32, row["rule"].split()[1].strip(",")): row["ratio"]
        for row in answer.to_dict("records")
    }
    made = {
        (each.optimizer, each.times, each.rule): np.exp(each.log_ratio)
        for each in costs("own")
        if each.workload == "digits-mlp digits" and not each.half_life
    }
    assert made == pytest.approx(by_query)
    assert len(made) == 81
