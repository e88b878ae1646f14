"""Hooks of techniques that are traced give the numbers of those that ``vmap`` calls."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.engines.tracing import hooks
from tests.conformance.cases import EXAMPLES, VARIANTS
from tests.marks import quick
from tests.problems import engine, study, trials

IN_STEPS = ("clip", "ema", "gradient_noise", "lookahead", "prune", "swa", "weight_decay")
CASES: list[dict[str, Any]] = [
    *({name: EXAMPLES[name]} for name in IN_STEPS),
    *(each for each in VARIANTS if {*each} & {*IN_STEPS}),
    {"freeze_out": 0.1},
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_traces", "_calls"):
        monkeypatch.setattr(hooks, name, type(getattr(hooks, name))())


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("technique", quick(CASES, 4), ids=str)
def test_the_numbers_are_the_same_to_the_last_bit(
    technique: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float32, with learning rates that change, a model that leaves, and one that comes."""
    of = study(workload="digits-mlp", optimizer="momentum", schedule="cosine", batch_size=16,
               technique=technique, budget_steps=40)  # fmt: skip
    pack = trials(of, 6)
    runs = []
    for calls in (0, 10**9):
        monkeypatch.setattr(hooks, "CALLS", calls)
        run = engine("stacked", of, pack[:5])
        run.advance(9)
        run.keep([0, 2, 3])
        run.add(pack[5:])
        run.advance(9)
        runs.append(run)
    assert hooks._traces
    traced, called = runs
    for row in range(4):
        for of_row in ("weights", "measured"):
            ours, theirs = getattr(traced, of_row)(row), getattr(called, of_row)(row)
            assert all(ours[name].equal(theirs[name]) for name in theirs)
    assert traced.evaluate("validation") == called.evaluate("validation")


def test_a_trace_is_made_after_many_calls_and_serves_other_packs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "CALLS", 20)
    of = study(workload="digits-mlp", technique={"clip": 0.05})
    engine("stacked", of, trials(of, 4)).advance(10)
    assert not hooks._traces
    engine("stacked", of, trials(of, 4)).advance(11)
    assert len(hooks._traces) == 1
    (key,) = hooks._traces
    other = study(workload="digits-mlp", technique={"clip": 0.06})
    engine("stacked", other, trials(other, 4)).advance(10)
    engine("stacked", of, trials(of, 4)).advance(3)
    assert [*hooks._traces] == [key]


def test_hooks_of_a_users_file_are_called_in_each_step(
    user_techniques: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "CALLS", 0)
    of = study(workload=user_techniques, technique={"my.py:Everything": 0.1, "clip": 1.0})
    engine("stacked", of, trials(of, 4)).advance(3)
    assert not hooks._traces
