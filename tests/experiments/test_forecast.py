"""What a sweep costs at most is estimated from probes: their sum is bounded, their law is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.config.compile import load
from experiments.execution import forecast as module
from experiments.execution.forecast import PROBE_SECONDS, Forecast, _Probe, forecast, packs
from experiments.training.evaluation.parts import split_parts
from experiments.training.evaluation_grid import evaluation_steps
from tests.problems import study


class Machine:
    """A machine of known speed, whose clock only the probes move."""

    def __init__(self, model: float, example: float, evaluation: float) -> None:
        self.model, self.example, self.evaluation = model, example, evaluation
        self.now = 0.0
        self.probes: list[int] = []

    def step(self, batch_size: float) -> float:
        return self.model + self.example * batch_size

    def probe(self, engine: str, plan: Any, context: Any) -> _Probe:
        size, models = plan.batch_size, 16 if engine == "stacked" else 1
        self.probes.append(size)
        step, evaluation = models * self.step(size), models * self.evaluation
        taken = step + max(module._TIMED, step) + 2 * evaluation
        self.now += taken
        return _Probe(
            context=context,
            engine=engine,
            models=models,
            step=step,
            evaluation=evaluation,
            state=0.0,
            saved=1,
            at_once=1,
            seconds=taken,
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(model=1e-5, example=2e-6, evaluation=1e-4)
    monkeypatch.setattr(module, "_probe", found.probe)
    monkeypatch.setattr(module.time, "perf_counter", lambda: found.now)
    return found


def _forecasts(*changes: str) -> dict[int, tuple[Any, Forecast]]:
    plans = load("digits", ["grid.optimizer=[sgd]", *changes]).studies()
    found = forecast(plans, "cpu")
    return {plan.batch_size: (plan, found[plan.id]) for plan in plans}


def test_each_batch_size_takes_what_the_machine_takes(machine: Machine) -> None:
    found = _forecasts("grid.batch_size=1..1024")
    assert machine.probes == [1, 1024]
    for size, (of, cost) in found.items():
        count = len(evaluation_steps(1.05, of.budget_steps))
        evaluations = 64 * count * machine.evaluation
        steps = 64 * of.budget_steps * machine.step(size)
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
    monkeypatch.setattr(module, "parts_of", lambda _: split_parts(6000))
    part = _forecasts(*settings)[8][1]
    count = len(evaluation_steps(1.05, of.budget_steps))
    share = (10 + (count - 10) / 20) / count
    assert part.evaluation_seconds == pytest.approx(
        whole.evaluation_seconds * (share if engine == "module" else min(1, 16 * share))
    )
    less = whole.evaluation_seconds - part.evaluation_seconds
    assert whole.seconds - part.seconds == pytest.approx(less)


@pytest.mark.parametrize(
    ("slower", "probed"),
    [(1, [1, 1024]), (1000, [1, 128, 1024]), (10_000, [1, 16, 64]), (1_000_000, [1])],
)
def test_probes_take_no_longer_than_they_may(
    machine: Machine, slower: int, probed: list[int]
) -> None:
    """Steps at batch sizes between two that are probed are interpolated, and beyond the largest,
    where a machine is that slow, they are rather too long."""
    machine.model *= slower
    machine.example *= slower
    found = _forecasts("grid.batch_size=1..1024", "engine=module")
    assert machine.probes == probed
    assert machine.now <= max(PROBE_SECONDS, 2 * machine.step(1) + 1)
    for size, (of, cost) in found.items():
        steps = of.budget_steps * 64 * machine.step(size)
        last = probed[-1]
        most = 1.0 if size <= last else machine.step(last) / last / machine.example
        assert 0.999 < (cost.seconds - cost.evaluation_seconds) / steps < 1.001 * most


def test_several_optimizers_share_the_time(machine: Machine) -> None:
    machine.example *= 10_000
    plans = load("digits", ["engine=module"]).studies()
    assert len(forecast(plans, "cpu")) == 36
    assert machine.now <= PROBE_SECONDS
    assert machine.probes == [1, 32, 1, 32, 1, 64]


@given(st.integers(1, 1000))
def test_a_pack_a_round(trials: int) -> None:
    sizes = packs(study(trials=trials))
    assert sum(sizes) == trials
    assert max(sizes) <= 64
    assert sizes[0] == min(trials, 16)


@pytest.mark.parametrize("engine", ["module", "stacked", "auto"])
def test_a_real_probe(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 examples of the validation split, on one thread."""
    evaluated, threads = set(), set()
    plain = module._evaluate

    def watched(one: Any) -> None:
        evaluated.add(len(one.context.splits["validation"]))
        threads.add(torch.get_num_threads())
        plain(one)

    monkeypatch.setattr(module, "_evaluate", watched)
    monkeypatch.setattr(module, "_EXAMPLES", 100)
    monkeypatch.setattr(module, "_TIMED", 0.01)
    before = torch.get_num_threads()
    plans = load("digits-small", [f"engine={engine}", "grid.batch_size=[64]"]).studies()
    found = forecast(plans, "cpu")
    assert (evaluated, threads) == ({100}, {1})
    assert torch.get_num_threads() == before
    assert {f.engine for f in found.values()} == {"stacked" if engine == "auto" else engine}
    assert all(0 < f.evaluation_seconds < f.seconds for f in found.values())
    sgd, momentum = (found[plan.id].memory for plan in plans)
    weights = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert sgd > 8 * 2 * weights + 1797 * 64 * 4  # weights, gradients and the data
    assert momentum - sgd >= 8 * weights  # one more tensor a model
    assert momentum < 2**25
