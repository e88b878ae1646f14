"""Enlarged search spaces, repeats of a trial, and what of a study is sent."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import identity
from experiments.config.compile import load
from experiments.enlarged import Enlarged, enlarge
from experiments.plan import Search, Study, Trial
from experiments.scheduling.study_state import RangeEnd
from experiments.search.space import Dimension
from tests.experiments.fakes import study
from tests.experiments.files import EXPERIMENT, own

SPACE = {
    "learning_rate": Dimension.parse("log", [1e-3, 1]),
    "momentum": Dimension.parse("reverse_log", [0.5, 0.99]),
    "weight_decay": Dimension.parse("linear", [0.1, 0.3]),
}
SIDES = st.lists(
    st.tuples(st.sampled_from(sorted(SPACE)), st.sampled_from(["low", "high"])), max_size=4
)


def tuned(
    space: Mapping[str, Dimension] = SPACE, *, repeats: int = 0, fixed: Any = None, **changes: Any
) -> Study:
    return study(
        optimizer="momentum",
        identity=identity.study_identity(
            workload={"name": "digits-softmax"},
            optimizer={"name": "momentum"},
            schedule="constant",
            technique={},
            batch_size=64,
            evaluation_ratio=1.2,
        ),
        search=Search(
            seed=3, space=dict(sorted(space.items())), fixed=fixed or {}, repeats=repeats
        ),
        **changes,
    )


def enlarged(of: Study, sides: Sequence[RangeEnd], number: int = 1) -> Enlarged:
    """The study's own space with these ends moved, which can be."""
    found = enlarge(of, of.search.space, sides, number)
    assert found is not None
    return found


def outside(box: Mapping[str, Dimension], trial: Trial) -> bool:
    return any(not d.holds(trial.metaparameters[name]) for name, d in box.items())


def volume(box: Mapping[str, Dimension]) -> float:
    found = 1.0
    for name, dimension in box.items():
        found *= dimension.extent / SPACE[name].extent
    return found


@given(SIDES, SIDES, st.integers(1, 40))
def test_what_is_added_lies_outside_and_is_as_dense(once, again, trials):
    of = tuned(trials=trials)
    before, density = dict(SPACE), trials
    for number, sides in ((1, once), (2, again)):
        found = enlarge(of, before, sides, number)
        if found is None:
            return
        added = volume(found.space) - volume(before)
        assert len(found.trials) == pytest.approx(min(density * added, 4 * trials), abs=1)
        for trial in found.trials:
            assert outside(before, trial)
            assert not outside(found.space, trial)
            assert (trial.role, trial.enlargement) == ("extension", number)
        for name, dimension in found.space.items():
            ends = zip(("low", "high"), dimension.bounds, before[name].bounds, strict=True)
            assert {(name, end) for end, now, then in ends if now != then} <= set(sides)
        before = dict(found.space)


def test_a_learning_rate_of_three_decades_gets_three_more():
    of = tuned({"learning_rate": SPACE["learning_rate"]})
    found = enlarged(of, [("learning_rate", "low")])
    assert of.notation(found.space) == {"learning_rate": {"log": [1e-6, 1]}}
    assert len(found.trials) == 20
    rates = sorted(float(t.metaparameters["learning_rate"]) for t in found.trials)
    assert rates[0] < 3e-6
    assert 5e-4 < rates[-1] < 1e-3
    more = enlarge(of, found.space, [("learning_rate", "high")], 2)  # six decades again
    assert more is not None
    assert more.space["learning_rate"].bounds == pytest.approx((1e-6, 1e6))
    assert len(more.trials) == 40


def test_both_ends_are_moved_by_the_ranges_own_size():
    rate = {"learning_rate": SPACE["learning_rate"]}
    found = enlarged(tuned(rate), [("learning_rate", "low"), ("learning_rate", "high")])
    assert found.space["learning_rate"].bounds == pytest.approx((1e-6, 1e3))
    assert len(found.trials) == 40


def test_four_times_the_trials_are_added_at_most():
    sides: list[Any] = [(name, side) for name in SPACE for side in ("low", "high")]
    found = enlarged(tuned(), sides)
    assert len(found.trials) == 80


def test_ends_that_cannot_be_moved():
    space = {
        "momentum": Dimension.parse("linear", [0, 0.9999]),
        "nesterov": Dimension.parse("discrete", [0, 1]),
    }
    sides: list[RangeEnd] = [("momentum", "low"), ("momentum", "high"), ("nesterov", "high")]
    assert enlarge(tuned(space), space, sides) is None
    assert enlarge(tuned(), SPACE, []) is None
    found = enlarged(tuned(), [("momentum", "low"), ("learning_rate", "low")])
    assert found.space["momentum"].bounds == (0, 0.99)
    with pytest.raises(KeyError):
        enlarged(tuned(), [("epsilon", "low")])


def test_ids_and_indices_are_no_others_and_do_not_move_with_the_trials():
    sides: list[RangeEnd] = [("learning_rate", "low")]
    few, many = tuned(trials=8), tuned(trials=32)
    blocks = [few.draw(0, 32), *(enlarged(p, sides).trials for p in (few, many))]
    assert [t.id for t in blocks[1]] == [t.id for t in blocks[2]][: len(blocks[1])]
    assert [t.index for t in blocks[1]] == [t.index for t in blocks[2]][: len(blocks[1])]
    second = enlarge(few, enlarged(few, sides).space, [("learning_rate", "high")], 2)
    assert second is not None
    everything = [*blocks[0], *blocks[1], *second.trials]
    assert len({t.id for t in everything}) == len({t.index for t in everything}) == len(everything)
    assert len({t.seed for t in everything}) == len(everything)
    assert enlarged(few, sides).trials == enlarged(few, sides).trials
    assert enlarged(few, sides, 2).trials != enlarged(few, sides).trials


def test_points_that_fall_together_once_resolved_are_other_trials():
    """Shares of ten steps: many shares are one number of steps."""
    space = {"decay": Dimension.parse("linear", [0.5, 1])}
    of = tuned(space, fixed={"learning_rate": 0.1}, budget_steps=10, schedule="linear")
    found = enlarged(of, [("decay", "low")])
    steps = {trial.metaparameters["decay_steps"] for trial in of.draw(0, 80)}
    assert 5 in steps & {trial.metaparameters["decay_steps"] for trial in found.trials}
    ids = [trial.id for trial in (*of.draw(0, 80), *found.trials)]
    assert len(set(ids)) == len(ids)


def test_a_field_of_the_workload_stays_what_it_may_be(tmp_path):
    text = EXPERIMENT.replace("  width: [4, 8]\n", "")
    search = "search:\n  learning_rate: 0.1\n  width: {integer: [4, 7]}\n"
    of = own(tmp_path, text + search).studies()[0]
    found = enlarged(of, [("width", "low"), ("width", "high")])
    assert found.space["width"].bounds == (1, 11)
    assert all(t.metaparameters["width"] not in range(4, 8) for t in found.trials)
    smoothing = {
        "workload": "digits-mlp",
        "grid": {"batch_size": 8, "optimizer": "sgd"},
        "search": {"label_smoothing": {"linear": [0.1, 0.3]}, "learning_rate": 0.1},
    }
    (of,) = load(smoothing).studies()
    assert enlarged(of, [("label_smoothing", "high")]).space["label_smoothing"].bounds == (0.1, 0.5)


def test_repeats_have_fresh_seeds_and_collide_with_nothing():
    space = {"learning_rate": Dimension.parse("discrete", [0.1, 0.2])}
    of = tuned(space, repeats=3)
    searched = of.draw(0, 80)  # each point forty times
    first, again = of.repeats(searched[0]), of.repeats(searched[1])
    assert [trial.role for trial in first] == ["repeat"] * 3
    assert all(trial.metaparameters == searched[0].metaparameters for trial in first)
    ids = [trial.id for trial in (*searched, *first)]
    assert len(set(ids)) == len(ids)
    assert len({trial.seed for trial in (*searched, *first)}) == len(ids)
    indices = [trial.index for trial in (*searched, *first, *again)]
    assert len(set(indices)) == len(indices)
    more = tuned(space, repeats=5).repeats(searched[0])
    assert more[:3] == first
    assert tuned(space).repeats(searched[0]) == []


def test_repeats_of_a_trial_beyond_the_first_space():
    of = tuned(repeats=2)
    trial = enlarged(of, [("momentum", "high")]).trials[5]
    for copy in of.repeats(trial):
        assert (copy.enlargement, copy.role) == (1, "repeat")
        assert copy.metaparameters == trial.metaparameters


def test_a_study_is_sent_without_what_it_has_drawn():
    of = tuned()
    sent = pickle.dumps(of)
    trials = of.draw(0, 80)
    assert pickle.dumps(of) == sent
    assert pickle.loads(sent) == of
    assert pickle.loads(sent).draw(0, 80) == trials
