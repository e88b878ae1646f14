"""What an experiment file says of batch sizes that grow."""

from __future__ import annotations

from pathlib import Path

from experiments.config.compile import Experiment, parse
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
