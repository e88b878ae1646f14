"""Packs of mixed batch sizes: their joint steps are, to rounding, the steps of each by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from experiments.engines.capture import captured_step
from experiments.joint import groups as joint
from experiments.joint.groups import JointMember
from experiments.plan import Study, Trial
from tests.experiments.recorded_graph import RecordedGraph
from tests.marks import quick
from tests.problems import engine, largest_difference, study, trials

pytestmark = pytest.mark.usefixtures("one_thread", "recorded")

SIZES = (4, 16, 10)


def _studies(**changes: Any) -> list[Study]:
    given = {"workload": "digits-mlp", "precision": "float64", **changes}
    return [study(**given, id=f"study-{size}", batch_size=size) for size in SIZES]


def _pairs(studies: list[Study]) -> list[tuple[Study, tuple[Trial, ...]]]:
    return [
        (of, trials(of, count, seed=of.batch_size))
        for of, count in zip(studies, (3, 5, 2), strict=True)
    ]


CASES: dict[str, dict[str, Any]] = {
    "nesterov": {"optimizer": "nesterov", "schedule": "cosine"},
    "adamw": {"optimizer": "adamw"},
    "muon": {"optimizer": "muon", "schedule": "linear"},
    "lamb": {"optimizer": "lamb"},
    "schedule-free": {"optimizer": "schedule-free-adamw"},
    "dropout": {"optimizer": "momentum", "technique": {"dropout": 0.2}},
    "label smoothing": {"optimizer": "nesterov", "technique": {"label_smoothing": 0.1}},
}


@pytest.mark.parametrize("case", quick(CASES, 1))
def test_joint_steps_are_those_of_each_pack(case: str) -> None:
    """Over 200 steps in float64, while trials leave and join."""
    pairs = _pairs(_studies(**CASES[case]))
    together = [engine("stacked", of, some) for of, some in pairs]
    apart = [engine("stacked", of, some) for of, some in pairs]
    members = [JointMember(each) for each in together]
    ((*group,),) = joint.groups(members)
    assert [member.size for member in group] == sorted(SIZES)

    def both(steps: int) -> None:
        assert joint.advance(group, steps)
        for each in apart:
            each.advance(steps)

    both(1)
    both(39)
    for each in (together, apart):
        each[1].keep([0, 2, 4])
        each[2].add(trials(pairs[2][0], 1, seed=99))
    both(60)
    both(100)
    assert RecordedGraph.replays > 100
    for one, other in zip(together, apart, strict=True):
        assert one.steps == other.steps
        assert one.finite() == other.finite() == [True] * len(one.trials)
        for row in range(len(one.trials)):
            assert largest_difference(one.weights(row), other.weights(row)) <= 1e-9
        for a, b in zip(one.evaluate("validation"), other.evaluate("validation"), strict=True):
            assert a == pytest.approx(b, rel=1e-9)


def test_in_float32_over_twenty_steps() -> None:
    pairs = _pairs(_studies(precision="float32", optimizer="adamw", schedule="cosine"))
    together = [engine("stacked", of, some) for of, some in pairs]
    apart = [engine("stacked", of, some) for of, some in pairs]
    assert joint.advance([JointMember(each) for each in together], 20)
    for one, other in zip(together, apart, strict=True):
        other.advance(20)
        for row in range(len(one.trials)):
            assert largest_difference(one.weights(row), other.weights(row)) <= 1e-4


def test_one_program_serves_groups_of_about_one_size() -> None:
    """Trials that leave, and other packs of no larger batch size, need no other recording."""
    pairs = _pairs(_studies(optimizer="momentum"))
    group = [JointMember(engine("stacked", of, some)) for of, some in pairs]
    assert joint.advance(group, 20)
    programs, made = list(captured_step._programs), RecordedGraph.made
    group[0].engine.keep([0, 2])
    assert joint.advance(group, 20)
    swapped = [group[1], JointMember(engine("stacked", pairs[0][0], trials(pairs[0][0], 6)))]
    assert joint.advance(swapped, 20)
    assert list(captured_step._programs) == programs
    assert RecordedGraph.made == made


def test_a_diverging_trial_harms_no_other() -> None:
    pairs = _pairs(_studies(optimizer="sgd"))
    of, some = pairs[0]
    wild = [replace(some[0], metaparameters={"learning_rate": 1e300}), *some[1:]]
    together = [engine("stacked", of, tuple(wild)), engine("stacked", *pairs[1])]
    assert joint.advance([JointMember(each) for each in together], 30)
    assert together[0].finite() == [False, True, True]
    assert together[1].finite() == [True] * 5


def test_what_is_large_or_of_another_kind_stays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def members(*studies: Study) -> list[JointMember]:
        return [JointMember(engine("stacked", of, trials(of, 2))) for of in studies]

    small = _studies(optimizer="adamw")
    assert len(joint.groups(members(*small))) == 1
    of_adam = study(workload="digits-mlp", precision="float64", optimizer="adam", batch_size=8)
    clipped = study(
        workload="digits-mlp", precision="float64", optimizer="adamw", technique={"clip": 1.0}
    )
    in_parts = study(
        workload="digits-mlp", precision="float64", optimizer="adamw", batch_size=8, micro_batch=4
    )
    for other in (of_adam, clipped, in_parts):
        assert joint.groups(members(small[0], other)) == []
    module = JointMember(engine("module", small[1], trials(small[1], 2)))
    assert joint.groups([*members(small[0]), module]) == []

    a, b, c = members(*small)
    assert joint.can_grow([a, b, c])
    assert not joint.can_grow([a, module])
    monkeypatch.setattr(joint, "EXAMPLES", 4 * 12)  # of widths of the ladder
    assert [[m.size for m in group] for group in joint.groups([a, b, c])] == [[4, 10]]
    assert not joint.can_grow([a, c])
    monkeypatch.setattr(joint, "EXAMPLES", 2**16)
    monkeypatch.setattr(joint, "MULTIPLY_ADDS", a.multiply_adds * (4 * 12 - 1))
    assert joint.groups([a, b, c]) == []


def test_without_graphs_no_steps_are_joint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(captured_step.RECORDERS, "cpu")
    members = [JointMember(engine("stacked", of, some)) for of, some in _pairs(_studies())]
    assert joint.groups(members) == []
    assert not joint.can_grow(members)
    assert torch.cuda.is_available() or "cpu" not in captured_step.RECORDERS
