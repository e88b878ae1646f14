"""Losses at several budgets of the same runs: of several sources, and by ``under``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchscale as bs
import results
from analysis.curves.final_losses import FinalLosses
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData, Query
from batchscale.output import optimal_batch_table
from results.errors import ResultsError
from results.store import Store
from tests.analysis import loss_surfaces as surfaces

SIZES = [2**i for i in range(6, 14)]
BUDGETS = [2**i for i in range(20, 25)]
METRIC = "validation_cross_entropy"
GOAL = f"{METRIC} < {surfaces.parabola(2.0**22, 1024)}"


def write(
    root: Path, budget: int, grid: list[int], schedule: str = "constant", **more: Any
) -> results.reader.Results:
    """A sweep to ``budget`` examples, evaluated after ``grid`` examples; the trials' ids do not
    depend on the budget, as those of a constant schedule."""
    store = Store(root)
    trials, points = [], []
    for size in SIZES:
        for rate in (1e-3, 2e-3):
            name = {"trial": f"{size}-{rate}", "study": f"{size}"}
            for examples in grid:
                loss = surfaces.parabola(examples, size) + (0.05 if rate < 2e-3 else 0.0)
                points.append({**name, "step": examples // size, "metrics": {METRIC: loss}})
            trials.append(
                {
                    **name, "workload": "w", "dataset": "d", "optimizer": "sgd",
                    "schedule": schedule, "batch_size": size, "role": "search", "seed": 0,
                    "learning_rate": rate, "metaparameters": json.dumps({"learning_rate": rate}),
                    "status": "COMPLETE", "stop_reason": "budget", "stop_at_target": False,
                    "target_metric": METRIC, "target_value": 0.1, "lower_is_better": True,
                    "steps_run": budget // size, "examples_run": budget,
                    "budget_steps": budget // size, "tokens_per_example": 4.0, **more,
                }
            )  # fmt: skip
    store.commit("e", measurements=points, trials=trials)
    return results.open(root)


def losses(*sources: Any, under: tuple[str, ...] = (), unit: str | None = None) -> FinalLosses:
    limits = [Limit.parse(text) for text in under]
    (final,) = FigureData(Query(sources=sources, under=limits, unit=unit)).final_losses
    return final


def values(final: FinalLosses) -> dict[tuple[float, int], float]:
    return {(point.budget, point.batch_size): point.value for point in final.points}


TRUE = {(float(d), size): surfaces.parabola(d, size) for d in BUDGETS for size in SIZES}


def test_each_source_gives_its_budget_of_one_trial(tmp_path: Path) -> None:
    """The longer runs have evaluations at the smaller budgets too, and beyond them."""
    sources = [
        write(tmp_path / str(budget), budget, [each for each in BUDGETS if each <= budget])
        for budget in BUDGETS
    ]
    final = losses(*sources)
    assert values(final) == pytest.approx(TRUE)
    assert {point.learning_rate for point in final.points} == {2e-3}
    assert any("not independent" in note for note in final.notes)
    assert values(losses(*reversed(sources))) == pytest.approx(TRUE)
    assert not losses(sources[0]).notes


def test_one_run_is_read_at_several_budgets(tmp_path: Path) -> None:
    source = write(tmp_path, BUDGETS[-1], BUDGETS)
    under = tuple(f"{each} examples" for each in BUDGETS)
    assert values(losses(source, under=under)) == pytest.approx(TRUE)
    in_tokens = losses(source, under=tuple(f"{4 * each} tokens" for each in BUDGETS), unit="tokens")
    assert values(in_tokens) == pytest.approx(
        {(4 * d, 4 * b): loss for (d, b), loss in TRUE.items()}
    )
    without_unit = losses(source, under=tuple(f"{4 * each} tokens" for each in BUDGETS))
    assert values(without_unit) == pytest.approx(TRUE)


def test_between_evaluations_the_loss_is_interpolated(tmp_path: Path) -> None:
    source = write(tmp_path, BUDGETS[-1], BUDGETS)
    middle = float(np.sqrt(BUDGETS[0] * BUDGETS[1]))
    final = losses(source, under=(f"{middle:.6f} examples",))
    for point in final.points:
        ends = [TRUE[float(budget), point.batch_size] for budget in BUDGETS[:2]]
        assert point.value == pytest.approx(np.mean(ends), rel=1e-6)
        assert point.examples == pytest.approx(middle)


def test_budgets_beyond_the_run_and_before_its_first_evaluation_have_no_loss(
    tmp_path: Path,
) -> None:
    source = write(tmp_path, BUDGETS[-1], BUDGETS)
    limits = (
        f"{BUDGETS[0]} examples",
        f"{BUDGETS[0] // 2} examples",
        f"{BUDGETS[-1] * 2} examples",
    )
    final = losses(source, under=limits)
    assert final.budgets == [BUDGETS[0]]
    assert f"{4 * len(SIZES)} of {6 * len(SIZES)} runs have no final value: left out" in final.notes
    with pytest.raises(ResultsError, match="no run that ended at its budget"):
        losses(source, under=limits[1:])


@pytest.mark.parametrize(
    ("under", "more", "says"),
    [
        ("8 examples", {"schedule": "cosine"}, "schedule cosine: the loss at a smaller budget"),
        ("8 steps", {}, "8 steps: budgets at which final losses are read are in examples"),
        ("8 tokens", {"tokens_per_example": None}, "recorded without tokens_per_example"),
    ],
)
def test_runs_that_cannot_be_read_at_a_budget(
    tmp_path: Path, under: str, more: dict[str, Any], says: str
) -> None:
    source = write(tmp_path, BUDGETS[0], BUDGETS[:1], **more)
    with pytest.raises(ResultsError, match=says) as caught:
        losses(source, under=(under,))
    assert caught.value.hint


def test_runs_that_ended_at_a_target_are_named(tmp_path: Path) -> None:
    at_target: dict[str, Any] = {"stop_reason": "target", "stop_at_target": True}
    stopped = write(tmp_path / "a", BUDGETS[1], BUDGETS[:2], **at_target)
    final = losses(stopped, write(tmp_path / "b", BUDGETS[0], BUDGETS[:1]))
    assert final.budgets == [BUDGETS[0]]
    named = f"{2 * len(SIZES)} runs ended at a target, and may have been the best"
    assert any(named in note for note in final.notes)


def test_the_law_in_python_and_as_a_table(tmp_path: Path) -> None:
    write(tmp_path, BUDGETS[-1], BUDGETS)
    source = bs.open(tmp_path)
    under = [f"{each} examples" for each in BUDGETS]
    (answer,) = bs.optimal_batch(source, under=under)
    assert answer["exponent"]["value"] == pytest.approx(surfaces.EXPONENT, abs=1e-6)
    assert answer["coefficient"]["value"] == pytest.approx(surfaces.COEFFICIENT, rel=1e-4)
    for optimum in answer["optima"]:
        true = surfaces.COEFFICIENT * optimum["budget"] ** surfaces.EXPONENT
        assert optimum["optimal_batch_size"]["value"] == pytest.approx(true, rel=1e-6)
        assert optimum["law"]["value"] == pytest.approx(true, rel=1e-4)
    assert json.loads(optimal_batch_table.optimal_batch([answer], "json")) == [answer]
    table = optimal_batch_table.optimal_batch([answer], "table")
    assert "Optimal batch size = 0.5" in table
    assert "tokens^0.45" not in table
    assert "examples^0.45" in table
    rows = optimal_batch_table.optimal_batch([answer], "csv").splitlines()
    assert len(rows) == 1 + len(BUDGETS)
    assert {"optimal_batch_size_low", "exponent_high", "law"} <= {*rows[0].split(",")}


@pytest.mark.slow
def test_regimes_at_equal_loss_of_one_sweep(tmp_path: Path) -> None:
    write(tmp_path, BUDGETS[-1], BUDGETS)
    query = Query(sources=[tmp_path], read="final", target=GOAL)
    limits = [Limit.parse(f"{each} examples") for each in BUDGETS]
    with pytest.raises(ResultsError, match="on both sides"):
        _ = FigureData(query).curves
    (curve,) = FigureData(replace(query, under=limits)).curves
    (by_api,) = bs.regimes(
        tmp_path, read="final", target=GOAL, under=[f"{each} examples" for each in BUDGETS]
    )
    assert [p["steps"] for p in by_api["points"]] == [point.steps for point in curve.points]
    assert len(curve.points) >= 5
