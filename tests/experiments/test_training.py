"""How a trial ends, look by look; in packs that others leave or join.

That each entry of each registry trains in any pack as alone is tested by ``tests/conformance``.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.engines import Engine, batches
from experiments.engines.base import gather
from experiments.plan import WorkloadRef
from experiments.training import stopping
from experiments.training.batch_order import SequentialOrder
from experiments.training.evaluation_grid import evaluation_steps, next_evaluation
from tests.marks import quick
from tests.problems import engine, largest_difference, measurements, outcomes, study, train, trials

ROOT = Path(__file__).parents[2]
KINDS = ["module", "stacked"]
pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_first_stopping_rule_that_gives_a_reason_decides() -> None:
    """Each reason against all that stand behind it in the documented order."""
    order = re.findall(r"^\d\. \*(\w+)\*", stopping.__doc__ or "", re.MULTILINE)
    assert len(order) == 4
    for reason in order:
        of = study(budget_steps=9, keep=None if reason == "budget" else 1)
        evaluation = stopping.Evaluation(
            row=0,
            trial=trials(of, 1)[0],
            step=9,
            progress=stopping.TrialProgress(next=9),
            finite=reason != "diverged",
            metrics={},
            hit=True,
            first_hit=reason in ("diverged", "target"),
        )
        reasons = [*stopping.stop_reasons(of, stopping.StudyHits((9,)), evaluation)]
        assert reasons == [r for r in order[order.index(reason) :] if r != "dominated" or of.keep]


def test_strictly_better_in_float64() -> None:
    """20 errors of 500 are 0.04, which is not < 0.04 (float32 says it is)."""
    of = study(optimizer="adam", budget_steps=300, keep=None, stop_at_target=False)
    events = train(of, trials(of, 6), "stacked")
    errors = [m.metrics["validation_error"] for m in measurements(events)]
    assert any(e == 20 / 500 for e in errors)
    for trial, end in outcomes(events).items():
        first = [
            m.step
            for m in measurements(events)
            if m.trial == trial and round(m.metrics["validation_error"] * 500) < 20
        ]
        assert end.steps_to_target == (first[0] if first else None)
        assert end.stop_reason == "budget"


@pytest.mark.parametrize("kind", ["stacked", pytest.param("module", marks=pytest.mark.slow)])
def test_dominated_stopping_keeps_the_smallest_exact(kind: str) -> None:
    of = study(optimizer="momentum", budget_steps=300, keep=None, target="validation_error < 0.08")
    some = trials(of, 10, seed=5)
    full = outcomes(train(of, some, kind))
    reached = sorted(o.steps_to_target for o in full.values() if o.steps_to_target)
    for keep in (1, 2, 4):
        cut = outcomes(train(replace(of, keep=keep), some, kind))
        assert len(reached) > keep
        border = reached[keep - 1]
        for trial, end in full.items():
            if end.steps_to_target and end.steps_to_target <= border:  # ties included
                assert (cut[trial].steps_to_target, cut[trial].last_miss) == (
                    end.steps_to_target,
                    end.last_miss,
                )
            else:
                assert cut[trial].stop_reason in ("dominated", "diverged")
                assert cut[trial].status != "COMPLETE"
                assert cut[trial].steps_run <= border


@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_diverged_is_infeasible_at_the_next_look(kind: str) -> None:
    of = study(workload="digits-mlp", precision="float32", budget_steps=100, keep=None)
    some = trials(of, 3)
    wild = replace(some[1], metaparameters={"learning_rate": 1e30})
    events = train(of, (some[0], wild, some[2]), kind)
    end = outcomes(events)[wild.id]
    assert (end.status, end.stop_reason, end.steps_to_target) == ("INFEASIBLE", "diverged", None)
    assert end.steps_run < 20
    others = {t: o.steps_run for t, o in outcomes(events).items() if t != wild.id}
    alone = outcomes(train(of, (some[0], some[2]), kind))
    assert others == {t: o.steps_run for t, o in alone.items()}


OWN = """
import torch
from tests.problems import Tiny

class Late(Tiny):
    at: int = 7
    calls = 0

    def loss(self, output, batch):
        if torch.is_grad_enabled():
            type(self).calls += 1
            if type(self).calls == self.at: raise ValueError("my own bug")
        return super().loss(output, batch)

class Spike(Tiny):
    target = "validation_error < 0.001"
    def loss(self, output, batch):
        per_example = super().loss(output, batch)
        bad = (batch[0][:, 0] > 2.0).to(per_example.dtype)
        huge = bad / (1 - bad)
        return per_example + (huge - huge).detach().nan_to_num(nan=float("inf"))
"""


@pytest.fixture
def own(tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN)
    return lambda name: WorkloadRef(spec=f"own.py:{name}", base=str(tmp_path))


def test_a_finite_update_after_an_infinite_loss_is_still_diverged(own) -> None:
    """The flag is sticky: the loss was infinite at one step only, and its gradient finite."""
    of = study(workload=own("Spike"), batch_size=4, budget_steps=60, keep=None)
    some = trials(of, 2)
    for kind in ("module", "stacked"):
        ended = outcomes(train(of, some, kind))
        assert {e.stop_reason for e in ended.values()} == {"diverged"}


def test_the_users_error_passes_through(own) -> None:
    of = study(workload=own("Late"), batch_size=8)
    with pytest.raises(ValueError, match="my own bug"):
        train(of, trials(of, 1), "module")


def bits(one: Engine, row: int) -> list[bytes]:
    """A trial's weights and its running sum of losses."""
    loss = one.copy([row])[0]["loss"]
    return [v.numpy().tobytes() for v in (loss, *one.weights(row).values())]


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [("stacked", "adam"), *quick([("module", "adam"), ("stacked", "muon"), ("module", "muon")], 0)],
)
def test_many_leave_a_pack_and_more_join(kind: str, optimizer: str) -> None:
    """Over several widths of the stack, until it is empty; a trial is what it is in any of them."""
    of = study(workload="digits-mlp", optimizer=optimizer, batch_size=16)
    some = trials(of, 13)
    whole = engine(kind, of, some, steps=12)
    measured = whole.evaluate("validation")
    for rows in ([5], [0, 12], [1, 2, 3, 7, 11]):
        assert whole.evaluate("validation", rows) == [measured[row] for row in rows]
    one = engine(kind, of, some[:11], steps=4)
    one.keep([0, 2, 3, 4, 5, 7, 8, 9, 10])
    one.advance(4)
    one.keep([1, 2, 5, 8])
    one.advance(4)
    assert [t.index for t in one.trials] == [2, 3, 7, 10]
    assert [bits(one, row) for row in range(4)] == [bits(whole, t.index) for t in one.trials]
    one.keep([])
    assert one.steps == []
    one.add(some[7:])
    one.advance(12)
    assert [bits(one, row) for row in range(6)] == [bits(whole, row) for row in range(7, 13)]


def test_the_full_training_set_is_read_once_as_it_is_for_each_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = study(workload="digits-mlp", optimizer="momentum", batch_size=1297)
    shared, gathered = (engine("stacked", of, trials(of, 5)) for _ in range(2))
    shared.advance(4)
    monkeypatch.setattr(batches, "BatchOrder", SequentialOrder)  # no order is known to be the same
    gathered.advance(4)
    for row in range(5):
        assert bits(shared, row) == bits(gathered, row)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "RMSprop"])
def test_on_a_gpu_joining_and_going_back_change_rounding_alone(kind: str, optimizer: str) -> None:
    of = study(optimizer=optimizer, schedule="linear", precision="float64", batch_size=32)
    some = trials(of, 5)
    one = engine(kind, of, some[:3], "cuda", steps=6)
    held = gather(one.copy([1]), torch.device("cpu"))  # as a snapshot has it
    one.add(some[3:])
    one.advance(4)
    one.restore(1, held[0])
    one.advance(3)
    assert one.steps == [13, 9, 13, 7, 7]
    for row, trial in enumerate(one.trials):
        alone = engine(kind, of, (trial,), "cuda")
        alone.advance(one.steps[row])
        assert largest_difference(one.weights(row), alone.weights(0)) < 1e-8
        metrics = one.evaluate("validation", [row])[0]
        assert metrics == pytest.approx(alone.evaluate("validation")[0], rel=1e-6)


@given(ratio=st.floats(1.001, 2), budget=st.integers(1, 20_000))
def test_the_grid_rises_geometrically_to_the_budget(ratio: float, budget: int) -> None:
    grid = evaluation_steps(ratio, budget)
    assert grid[0] == 1
    assert grid[-1] == budget
    for before, after in itertools.pairwise(grid):
        assert before < after <= max(before + 1, math.ceil(before * ratio))


@given(ratio=st.floats(1.01, 2), budget=st.integers(1, 5000), more=st.integers(1, 5000))
def test_raising_the_budget_moves_no_look(ratio: float, budget: int, more: int) -> None:
    assert (
        evaluation_steps(ratio, budget + more)[: len(evaluation_steps(ratio, budget)) - 1]
        == evaluation_steps(ratio, budget)[:-1]
    )


@given(ratio=st.floats(1.01, 2.0), budget=st.integers(1, 4000), step=st.integers(0, 3999))
def test_the_next_look_is_the_grids(ratio: float, budget: int, step: int) -> None:
    later = [look for look in evaluation_steps(ratio, budget) if look > step]
    assert next_evaluation(step, ratio, budget) == (later[0] if later else budget)


def test_about_one_look_every_five_percent() -> None:
    assert evaluation_steps(1.05, 30)[:22] == (*range(1, 22), 23)
    assert len(evaluation_steps(1.05, 65_000)) < 200
