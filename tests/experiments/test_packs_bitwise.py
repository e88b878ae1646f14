"""On a CPU, with one thread, a trial is the same bit for bit whatever pack it is in."""

from __future__ import annotations

import pytest

from experiments import optimizers
from experiments.engines import stacked_batches
from experiments.engines.selection import Kind
from experiments.plan import Pack
from experiments.training.batch_order import SequentialOrder
from experiments.training.pack_training import Training
from tests.problems import OPTIMIZERS, engine, outcomes, study, train, trials

pytestmark = pytest.mark.usefixtures("one_thread")


def _fingerprint(one, row: int) -> list[bytes]:
    return [v.numpy().tobytes() for v in one.weights(row).values()]


# Batch sizes choose among matrix kernels, whatever the optimizer is; and in the module engine each
# model has an optimizer of its own, whichever it is.
MODULE = ["adam", "muon"]
STACKED = ["sgd", "adam", "lamb", "muon", "schedule-free-adamw"]
NAMES = dict.fromkeys(("module", "stacked"), optimizers.names())
CASES = [
    (kind, o, b) for kind in ("module", "stacked") for o in OPTIMIZERS for b in (1, 300, 1297)
] + [(k, o, 300) for k, names in NAMES.items() for o in names if o not in OPTIMIZERS]


def _quick(kind: str, optimizer: str, batch_size: int) -> bool:
    if batch_size != 300:
        return optimizer == "adam"
    return optimizer in (STACKED if kind == "stacked" else MODULE)


@pytest.mark.parametrize(
    ("kind", "optimizer", "batch_size"),
    [pytest.param(*case, marks=[] if _quick(*case) else pytest.mark.slow) for case in CASES],
)
def test_any_pack_gives_the_same_bits(kind: Kind, batch_size: int, optimizer: str) -> None:
    of = study(workload="digits-mlp", optimizer=optimizer, batch_size=batch_size)
    some = trials(of, 9)
    steps = 12
    whole = engine(kind, of, some)
    whole.advance(steps)
    metrics = whole.evaluate("validation")
    expected = {t.id: (_fingerprint(whole, i), metrics[i]) for i, t in enumerate(some)}
    for rows in ([4], [8, 0], [3, 1, 2, 7, 5]):
        part = engine(kind, of, tuple(some[i] for i in rows))
        part.advance(steps)
        found = part.evaluate("validation")
        for i, trial in enumerate(part.trials):
            assert (_fingerprint(part, i), found[i]) == expected[trial.id]


def test_the_full_training_set_is_read_once_as_it_is_for_each_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = study(workload="digits-mlp", optimizer="momentum", batch_size=1297)
    shared, gathered = (engine("stacked", of, trials(of, 5)) for _ in range(2))
    shared.advance(4)
    monkeypatch.setattr(
        stacked_batches, "BatchOrder", SequentialOrder
    )  # no order is known to be the same
    gathered.advance(4)
    for row in range(5):
        assert _fingerprint(shared, row) == _fingerprint(gathered, row)


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        pytest.param(kind, name, marks=[] if _quick(kind, name, 300) else pytest.mark.slow)
        for kind, names in NAMES.items()
        for name in [*names, "RMSprop"]
    ],
)
def test_leaving_a_pack_changes_nothing_for_the_others(kind: Kind, optimizer: str) -> None:
    of = study(workload="digits-mlp", optimizer=optimizer, batch_size=16)
    some = trials(of, 11)
    whole = engine(kind, of, some)
    whole.advance(24)
    shrinking = engine(kind, of, some)
    for rows in ([0, 2, 3, 4, 5, 7, 8, 9, 10], [1, 2, 5, 8], [3]):
        shrinking.advance(8)
        if rows != [3]:
            shrinking.keep(rows)
    assert [t.index for t in shrinking.trials] == [2, 3, 7, 10]
    for i, trial in enumerate(shrinking.trials):
        assert _fingerprint(shrinking, i) == _fingerprint(whole, trial.index)


def _plain(found) -> list[tuple]:
    return [
        (e.trial, e.step, dict(e.metrics))
        if hasattr(e, "metrics")
        else (e.trial, e.status, e.stop_reason, e.steps_run, e.steps_to_target, e.last_miss)
        for e in found
    ]


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        pytest.param("module", "momentum", marks=pytest.mark.slow),
        pytest.param("module", "RMSprop", marks=pytest.mark.slow),
        ("stacked", "adam"),
        pytest.param("stacked", "schedule-free-adamw", marks=pytest.mark.slow),
        pytest.param("module", "adam", marks=pytest.mark.slow),
        pytest.param("module", "schedule-free-adamw", marks=pytest.mark.slow),
        pytest.param("stacked", "momentum", marks=pytest.mark.slow),
        pytest.param("stacked", "RMSprop", marks=pytest.mark.slow),
    ],
)
def test_resuming_from_a_snapshot_continues_exactly(kind: Kind, optimizer: str) -> None:
    of = study(optimizer=optimizer, schedule="linear", budget_steps=120, keep=2)
    some = trials(of, 7)
    expected = _plain(train(of, some, kind))
    pack = Pack(id="pack", study=of, trials=some, engine=kind)
    for stop_after in (3, 17, 29):
        first = Training(pack)
        events = []
        for count, look in enumerate(first.run(), start=1):
            events += look
            if count == stop_after:
                break
        second = Training(pack, snapshot=first.snapshot())
        assert second.step == first.step
        events += [event for look in second.run() for event in look]
        assert _plain(events) == expected
        ends = outcomes(events)
        assert len(ends) == 7
        assert first.steps + second.steps == sum(end.steps_run for end in ends.values())
