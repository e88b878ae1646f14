"""Trials that leave a pack, or join it later: they train, and end, as they do alone.

That each entry of each registry does so is tested by ``tests/conformance``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from experiments.engines import Engine, batches
from experiments.engines.base import gather
from experiments.plan import Pack, Study, Trial
from experiments.training.batch_order import SequentialOrder
from experiments.training.pack_training import Training
from tests.marks import quick
from tests.problems import engine, largest_difference, outcomes, study, train, trials

KINDS = ["module", "stacked"]
pytestmark = pytest.mark.usefixtures("one_thread")


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
    whole = engine(kind, of, some)
    whole.advance(12)
    measured = whole.evaluate("validation")
    for rows in ([5], [0, 12], [1, 2, 3, 7, 11]):
        assert whole.evaluate("validation", rows) == [measured[row] for row in rows]
    one = engine(kind, of, some[:11])
    one.advance(4)
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
    one = engine(kind, of, some[:3], "cuda")
    one.advance(6)
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


def joining(of: Study, kind: str, some: tuple[Trial, ...], when: dict[int, int]) -> list[Any]:
    """A pack of the first trial that others join: trial ``i`` after ``when[i]`` looks."""
    pack = Pack(id="pack", study=of, trials=some[:1], engine=kind)  # type: ignore[arg-type]
    training, events, number = Training(pack), [], 0
    while len(training.pack.trials) < len(some) or training.active:
        if new := tuple(some[i] for i, at in when.items() if at == number):
            training.add(new)
        events += next(training.run(), [])
        number += 1
    return events


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_dominated_stopping_counts_each_trials_own_steps(kind: str) -> None:
    of = study(optimizer="momentum", budget_steps=150, target="validation_error < 0.08")
    some = trials(of, 8, seed=5)
    full = {t.id: outcomes(train(replace(of, keep=None), (t,), kind))[t.id] for t in some}
    reached = sorted(o.steps_to_target for o in full.values() if o.steps_to_target)
    for keep in (1, 2):
        when = {i: 3 * i for i in range(1, len(some))}
        ended = outcomes(joining(replace(of, keep=keep), kind, some, when))
        for trial, end in full.items():
            if end.steps_to_target and end.steps_to_target <= reached[keep - 1]:
                assert ended[trial].steps_to_target == end.steps_to_target
                assert ended[trial].last_miss == end.last_miss
            elif ended[trial].stop_reason == "dominated":
                assert ended[trial].steps_run >= reached[keep - 1]
        assert any(end.stop_reason == "dominated" for end in ended.values())
