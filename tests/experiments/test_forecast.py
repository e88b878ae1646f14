"""What a sweep costs at most is estimated from probes: their sum is bounded, their law is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.compile import load
from experiments.execution import forecast as module
from experiments.execution.forecast import PROBE_SECONDS, Forecast, forecast, packs
from experiments.training.evaluation.parts import SplitParts
from experiments.training.evaluation_grid import evaluation_steps
from tests.problems import study


class Machine:
    """A machine of known speed, whose clock only the probes move."""

    def __init__(self, pack: float, model: float, example: float, evaluation: float) -> None:
        self.pack, self.model, self.example, self.evaluation = pack, model, example, evaluation
        self.now = 0.0
        self.probes: list[tuple[int, int]] = []

    def step(self, engine: str, batch_size: int, models: int) -> float:
        together = self.pack if engine == "stacked" else 0.0
        return together + models * (self.model + self.example * batch_size)

    def probe(self, part: Any, costs: Any, batch_size: int, models: int, *_: int) -> None:
        self.probes.append((batch_size, models))
        step = self.step(part.engine, batch_size, models)
        costs.steps.append((batch_size, models, step))
        costs.evaluations.append((models, models * self.evaluation))
        self.now += 3 * step + 2 * models * self.evaluation


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(pack=2e-4, model=1e-5, example=2e-6, evaluation=1e-4)
    monkeypatch.setattr(module._Part, "_probe", lambda *given: found.probe(*given))
    monkeypatch.setattr(module.time, "perf_counter", lambda: found.now)
    return found


def _forecasts(*changes: str) -> dict[int, tuple[Any, Forecast]]:
    plans = load("digits", ["grid.optimizer=[sgd]", *changes]).plans()
    found = forecast(plans, "cpu")
    return {plan.study.batch_size: (plan.study, found[plan.study.id]) for plan in plans}


def test_each_batch_size_takes_what_the_machine_takes(machine: Machine) -> None:
    found = _forecasts("grid.batch_size=1..1024")
    assert 2 <= len(machine.probes) <= 4
    for size, (of, cost) in found.items():
        count = len(evaluation_steps(1.05, of.budget_steps))
        evaluations = sum(count * models * machine.evaluation for models in (16, 16, 32))
        steps = sum(of.budget_steps * machine.step("stacked", size, m) for m in (16, 16, 32))
        assert cost.evaluation_seconds == pytest.approx(evaluations)
        assert cost.seconds == pytest.approx(steps + evaluations)
        assert cost.evaluation_share == pytest.approx(evaluations / (steps + evaluations))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("engine", ["module", "stacked"])
def test_evaluations_that_end_early_read_a_part(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten of a trial's evaluations read 6,000 examples, the others 300; a stack reads on for each
    of its models."""
    settings = "grid.batch_size=8", f"engine={engine}"
    of, whole = _forecasts(*settings)[8]
    monkeypatch.setattr(module, "parts_of", lambda _: SplitParts.of(6000))
    part = _forecasts(*settings)[8][1]
    count = len(evaluation_steps(1.05, of.budget_steps))
    share = (10 + (count - 10) / 20) / count
    assert part.evaluation_seconds == pytest.approx(
        whole.evaluation_seconds * (share if engine == "module" else 1)
    )
    less = whole.evaluation_seconds - part.evaluation_seconds
    assert whole.seconds - part.seconds == pytest.approx(less)


@pytest.mark.parametrize("slower", [1, 100, 10_000])
def test_probes_take_no_longer_than_they_may(machine: Machine, slower: int) -> None:
    """On a machine so slow that the large batch sizes are out of reach they are extrapolated."""
    machine.model *= slower
    machine.example *= slower
    found = _forecasts("grid.batch_size=1..1024", "engine=module")
    smallest = machine.step("module", 1, 1)
    assert machine.now <= max(1.1 * PROBE_SECONDS, 4 * smallest)
    for size, (of, cost) in found.items():
        steps = of.budget_steps * 64 * machine.step("module", size, 1)
        assert 2 / 3 < (cost.seconds - cost.evaluation_seconds) / steps < 1.5


def test_several_optimizers_share_the_time(machine: Machine) -> None:
    machine.example *= 10_000
    plans = load("digits", ["engine=module"]).plans()
    assert len(forecast(plans, "cpu")) == 36
    assert machine.now <= 1.5 * PROBE_SECONDS


@given(st.integers(1, 1000))
def test_a_pack_a_round(trials: int) -> None:
    sizes = packs(study(trials=trials))
    assert sum(sizes) == trials
    assert max(sizes) <= 64
    assert sizes[0] == min(trials, 16)


def test_the_law_is_found_from_any_probes() -> None:
    law = np.array([3e-4, 2e-5, 1e-7])
    places = [(8, 32), (512, 32), (8, 16), (64, 32)]
    rows = [np.array([1.0, models, models * size]) for size, models in places]
    assert module._fit(rows, [float(row @ law) for row in rows]) == pytest.approx(law)
    noisy = [float(row @ law) * f for row, f in zip(rows, (1.1, 0.95, 0.9, 1.05), strict=True)]
    found = module._fit(rows, noisy)
    assert (found >= 0).all()
    assert [float(row @ found) for row in rows] == pytest.approx(
        [float(row @ law) for row in rows], rel=0.2
    )
    one = module._fit(rows[:1], [float(rows[0] @ law)])
    assert float(rows[0] @ one) == pytest.approx(float(rows[0] @ law))


@pytest.mark.parametrize("engine", ["module", "stacked", "auto"])
def test_a_real_probe(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    timed = module._seconds

    def watched(one: Any) -> float:
        threads.append(torch.get_num_threads())
        return timed(one)

    monkeypatch.setattr(module, "_seconds", watched)
    monkeypatch.setattr(module, "_TIMED", 0.01)
    before = torch.get_num_threads()
    plans = load("digits-small", [f"engine={engine}", "grid.batch_size=[64]"]).plans()
    found = forecast(plans, "cpu")
    assert set(threads) == {1}
    assert torch.get_num_threads() == before
    assert {f.engine for f in found.values()} == {"stacked" if engine == "auto" else engine}
    assert all(0 < f.evaluation_seconds < f.seconds for f in found.values())
    sgd, momentum = (found[plan.study.id].memory for plan in plans)
    weights = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert sgd > 8 * 2 * weights + 1797 * 64 * 4  # weights, gradients and the data
    assert momentum - sgd >= 8 * weights  # one more tensor a model
    assert momentum < 2**25


def test_an_evaluation_of_a_part_stands_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []
    monkeypatch.setattr(module, "_EXAMPLES", 100)
    monkeypatch.setattr(module, "_TIMED", 0.001)
    plain = module._evaluate
    monkeypatch.setattr(
        module,
        "_evaluate",
        lambda engine: (
            evaluated.append(len(engine.context.splits["validation"])),
            plain(engine),
        ),
    )
    plans = load("digits-small", ["grid.batch_size=[64]", "grid.optimizer=[sgd]"]).plans()
    (cost,) = forecast(plans, "cpu").values()
    assert set(evaluated) == {100}
    assert cost.evaluation_seconds > 0


def test_a_step_of_a_ghost_batch_is_a_whole_one(machine: Machine) -> None:
    machine.example *= 1e6
    part = next(iter(module._parts(load("digits").plans()[:1], "cpu")))
    study = replace(part.context.study, technique={"ghost_batch": 24}, batch_size=96)
    context = replace(part.context, study=study)
    part = replace(part, context=context)
    costs = module._Costs(engine="module", context=context, state=0, saved=1, at_once=1)
    assert part._affordable(costs, 96, 1, work=1e12, allowed=0.1) == 24
    assert part._affordable(costs, 96, 1, work=1.0, allowed=0.1) == 96
