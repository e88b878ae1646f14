"""What an experiment file says of batch sizes that grow, and what it may not say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.config.compile import Experiment, parse
from experiments.errors import ExperimentError
from tests.experiments.files import own


def text_of(ramp: str, **changes: str) -> str:
    parts = {"sizes": "[16, 64]", "schedule": "constant", "search": "{}", "more": "", **changes}
    return f"""\
workload: digits-softmax
grid:
  batch_size:
    from: {parts["sizes"]}
    ramp: {ramp}
  optimizer: sgd
schedule: {parts["schedule"]}
search: {parts["search"]}
budget: 200 steps
trials: 4
{parts["more"]}
"""


def experiment(tmp_path: Path, ramp: str, **changes: str) -> Experiment:
    return own(tmp_path, text_of(ramp, **changes))


def test_a_ramp_is_a_factor_of_the_grid(tmp_path: Path) -> None:
    ramps = "[none, {double_at: [0.25, 0.5]}, {at: [[0.5, 3]]}]"
    file = experiment(tmp_path, ramps, schedule="linear")
    plans = file.plans()
    assert [(p.study.batch_size, p.study.technique.get("ramp")) for p in plans] == [
        (16, None), (64, None),
        (16, "2x at 0.25, 4x at 0.5"), (64, "2x at 0.25, 4x at 0.5"),
        (16, "3x at 0.5"), (64, "3x at 0.5"),
    ]  # fmt: skip
    assert [p.study.batches.sizes for p in plans[2:4]] == [(16, 32, 64), (64, 128, 256)]
    assert [p.study.budget_steps for p in plans[::2]] == [200, 50 + 25 + 25, 100 + 33]
    lengths = [int(p.trial(0).metaparameters["decay_steps"]) for p in plans]
    assert all(100 <= length <= 200 for length in lengths)  # shares of the budget's 200
    assert len({p.study.id for p in plans}) == 6
    again = parse(file.to_yaml(), base=tmp_path)
    assert [p.study for p in again.plans()] == [p.study for p in plans]


def test_a_ramp_that_never_grows_is_none(tmp_path: Path) -> None:
    plain, flat = (experiment(tmp_path, ramp).plans() for ramp in ("none", "{at: [[0.5, 1]]}"))
    text = text_of("none").replace("\n    from: [16, 64]\n    ramp: none\n", " [16, 64]\n")
    for plans in (flat, own(tmp_path, text).plans()):
        assert [p.trial(0) for p in plans] == [p.trial(0) for p in plain]
        assert all(p.study.ramp is None for p in plans)
    with pytest.raises(ExperimentError, match="is given twice"):
        experiment(tmp_path, "[none, {at: [[0.5, 1]]}]")


def test_another_budget_is_another_ramp(tmp_path: Path) -> None:
    """Its shares are of the budget, which identities of other trials do not hold."""
    ids = []
    for budget in ("200 steps", "400 steps"):
        text = text_of("{double_at: [0.5]}").replace("200 steps", budget)
        ids.append([plan.trial(0).id for plan in own(tmp_path, text).plans()])
    assert not {*ids[0]} & {*ids[1]}
    same_phases = text_of("{double_at: [0.25]}").replace("200 steps", "400 steps")
    longer = [plan.trial(0).id for plan in own(tmp_path, same_phases).plans()]
    assert longer == ids[0]


@pytest.mark.parametrize(
    ("ramp", "message"),
    [
        ("{at: [[0.5, 4], [0.7, 2]]}", "is not increasing: batch size 4 comes before 2"),
        ("{at: [[0.5, 0.5]]}", "is not increasing: batch size 1 comes before 0.5"),
        ("{at: [[0.5, 2], [0.5, 4]]}", "is not increasing: shares 0.5 comes before 0.5"),
        ("{double_at: [0.5, 0.25]}", "is not increasing: shares 0.5 comes before 0.25"),
        ("{at: [[1.5, 2]]}", "1.5 is not a share of the budget, over 0 and below 1"),
        ("{at: [[0.5]]}", "[0.5] is not a share of the budget and a factor"),
        ("{at: [[0.5, two]]}", "[0.5, 'two'] is not a share of the budget and a factor"),
        ("{at: 0.5}", "ramp at: 0.5 is not a list"),
        ("{at: []}", "ramp at: [] is not a list"),
        ("{att: [[0.5, 2]]}", "unknown ramp 'att'"),
        ("double", "ramp 'double' is not a batch-size schedule"),
        ("{instead_of_decay: 1}", "1 is not a whole number from 2 to 1024"),
        ("{instead_of_decay: 2.5}", "2.5 is not a whole number from 2 to 1024"),
        ("{at: [[0.5, 100]]}", "batch size 1600 is over the training set (1,297 examples)"),
        ("{at: [[0.5, 1.3]]}", "1.3 times batch size 16 is not a whole number"),
        ("{instead_of_decay: 8}", "schedule constant does not decay"),
    ],
)
def test_a_wrong_ramp_is_refused_with_its_line(tmp_path: Path, ramp: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=re.escape(message)) as caught:
        experiment(tmp_path, ramp).plans()
    assert "my.yaml:5:" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"more": "ghost_batch: 16"}, "ghost_batch 16 does not divide batch size 24"),
        ({"sizes": "[16, 40000]"}, "batch size 40000 is over the training set"),
        ({"sizes": "0"}, "grid.batch_size.from: batch size 0 is below 1"),
    ],
)
def test_other_batch_sizes_are_checked_too(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ExperimentError, match=re.escape(message)):
        experiment(tmp_path, "{at: [[0.5, 1.5]]}", **changes).plans()


@pytest.mark.parametrize(
    ("schedule", "search", "message"),
    [
        ("linear", "{}", "decay of schedule linear is tuned"),
        ("sgdr", "{cycle: 0.3}", "schedule sgdr raises the rate again"),
    ],
)
def test_a_ramp_instead_of_decay_needs_one_decay_for_all_trials(
    tmp_path: Path, schedule: str, search: str, message: str
) -> None:
    with pytest.raises(ExperimentError, match=message) as caught:
        experiment(tmp_path, "{instead_of_decay: 8}", schedule=schedule, search=search).plans()
    assert caught.value.hint


def test_keys_of_the_batch_size_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"unknown key .ramps. in grid\.batch_size") as caught:
        own(tmp_path, text_of("none").replace("ramp:", "ramps:"))
    assert caught.value.hint == "did you mean 'ramp'?"
    with pytest.raises(ExperimentError, match=r"grid\.batch_size has no from"):
        own(tmp_path, text_of("none").replace("    from: [16, 64]\n", ""))


def test_a_training_set_without_end_has_no_ramp(tmp_path: Path) -> None:
    text = text_of("{double_at: [0.5]}").replace("digits-softmax", "teacher")
    with pytest.raises(ExperimentError, match="read in sequence, or has no end") as caught:
        own(tmp_path, text).plans()
    assert "my.yaml:5:" in str(caught.value)
    assert caught.value.hint == "a batch size grows over a training set of known size alone"
