"""Which engine trains a study follows from its shapes, never from a clock."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn

from batchscale.names import listed
from experiments.engines import selection
from experiments.engines.selection import LIMITS, Arithmetic, choose, preferred, stacking_refusal
from experiments.plan import Pack, WorkloadRef
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from tests.problems import study, trials
from workloads.digits import DigitsSoftmax


def _choice(**changes) -> str:
    fields = changes.pop("fields", {"widths": [256]})
    of = study(workload=WorkloadRef(spec="digits-fc", fields=fields), **changes)
    return choose(StudyContext.load(of), trials(of, 1))


def test_the_products_of_an_example_are_counted() -> None:
    for widths, expected in (((64,), 64 * 64 + 64 * 10), ((256, 32), 64 * 256 + 256 * 32 + 320)):
        of = study(workload=WorkloadRef(spec="digits-fc", fields={"widths": widths}), batch_size=8)
        context = StudyContext.load(of)
        counted = Arithmetic.of(context, context.model(trials(of, 1)[0]))
        assert (counted.products, counted.multiply_adds) == (len(widths) + 1, expected)
    convolution = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3))
    counted = Arithmetic.of(context, convolution)
    assert (counted.products, counted.multiply_adds) == (1, 4 * 9 * 36)


def test_much_arithmetic_or_many_weights_are_not_stacked() -> None:
    most = 2 * LIMITS["cpu"].multiply_adds // (64 * 256 + 256 * 10)
    assert _choice(batch_size=most, fields={"widths": [256]}) == "stacked"
    assert _choice(batch_size=most + 1, fields={"widths": [256]}) == "module"
    wide = LIMITS["cpu"].parameters // 75  # 64 weights in, 10 out, and a bias
    assert _choice(batch_size=1, fields={"widths": [wide - 1]}) == "stacked"
    assert _choice(batch_size=1, fields={"widths": [wide + 1]}) == "module"


def test_few_trials_are_not_stacked_and_the_pack_at_hand_has_no_say() -> None:
    for wanted, kind in ((selection.LEAST_MODELS - 1, "module"), (32, "stacked")):
        of = study(batch_size=2, trials=wanted)
        assert Training(Pack(id="p", study=of, trials=trials(of, 1))).engine == kind


def test_a_busy_machine_chooses_as_an_idle_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [1, 64, 512, 1024]
    expected = [_choice(batch_size=size) for size in sizes]
    assert set(expected) == {"module", "stacked"}

    def no_clock() -> float:
        raise AssertionError("the choice asks for the time")

    selection._refusals.clear()
    for name in ("perf_counter", "monotonic", "time", "process_time"):
        monkeypatch.setattr(time, name, no_clock)
    assert [_choice(batch_size=size) for size in sizes] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "batch_size", "kind"),
    [
        ("adamw", 8, "stacked"),
        ("adamw", 16, "module"),
        ("muon", 16, "stacked"),
        ("muon", 32, "module"),
    ],
)
def test_language_models_are_stacked_up_to_larger_batches(
    optimizer: str, batch_size: int, kind: str
) -> None:
    """``python -m benchmarks transformer`` measures which is faster."""
    workload = WorkloadRef(spec="lm-transformer", fields={"validation_tokens": 512})
    target = "validation_cross_entropy < 1"
    of = study(
        workload=workload, optimizer=optimizer, batch_size=batch_size, target=target, trials=16
    )
    assert choose(StudyContext.load(of), trials(of, 1)) == kind


@pytest.mark.parametrize("name", ["calls", "mean"])
def test_what_remembers_its_calls_is_not_stacked(name: str, monkeypatch: Any) -> None:
    made = nn.Sequential(nn.Linear(64, 10))
    made.register_buffer("mean", torch.zeros(()))
    vars(made)["calls"] = 0
    made.register_forward_hook(lambda *_: setattr(made, name, getattr(made, name) + 1))
    monkeypatch.setattr(DigitsSoftmax, "model", lambda _: made)
    monkeypatch.setattr(selection, "_refusals", {})
    reason = stacking_refusal(StudyContext.load(study()), trials(study(), 2))
    assert reason == f"a forward pass changes {name} of its model"


@pytest.mark.parametrize("name", ["shampoo", "soap"])
def test_the_module_engine_is_chosen_and_listed(name: str) -> None:
    of = study(optimizer=name, batch_size=8)
    pack = trials(of, 8)
    assert choose(StudyContext.load(of), pack) == "module"
    other = StudyContext.load(study(optimizer="adamw", batch_size=8))
    assert preferred(other, pack[0]) == "stacked"
    assert "; trains by the module engine: no gain from stacking" in listed("optimizers")[name]
    assert "module engine" not in listed("optimizers")["muon"]
