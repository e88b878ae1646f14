"""Which optimizers amplify rounding: a batch in micro-batches takes another trajectory by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import batchscale as bs
from experiments import optimizers
from experiments.plan import Trial
from tests.marks import quick
from tests.problems import engine, largest_difference, outcomes, study, train, trials

STEPS = 60
_FIRST = ("soap", "muon", "shampoo", "sgd", "adamw")
NAMES = [*_FIRST, *(name for name in optimizers.names() if name not in _FIRST)]


def point(name: str) -> Trial:
    """The middle of the optimizer's search space."""
    values: dict[str, Any] = {}
    for argument, entry in optimizers.get(name).space.items():
        ((scale, (low, high)),) = entry.items()
        values[argument] = (low * high) ** 0.5 if scale == "log" else 0.9
    return Trial(id="trial", index=0, seed=5, metaparameters=values)


def apart(name: str) -> float:
    """How far the weights are apart of a batch of 64, whole and as four micro-batches."""
    of, some = {"workload": "digits-mlp", "optimizer": name}, (point(name),)
    whole, parts = (
        engine("module", study(**of, **more), some) for more in ({}, {"micro_batch": 16})
    )
    for each in (whole, parts):
        each.advance(STEPS)
    return largest_difference(whole.weights(0), parts.weights(0))


@pytest.mark.parametrize("name", quick(NAMES, len(_FIRST)))
def test_the_flag_says_which_optimizers_amplify_rounding(name: str) -> None:
    difference = apart(name)
    if optimizers.get(name).amplifies_rounding:
        assert difference > 1e-3
    else:
        assert difference < (1e-6 if name == "sgd" else 1e-4)


def test_the_list_and_the_table_of_optimizers_say_so() -> None:
    flagged = {name for name in NAMES if optimizers.get(name).amplifies_rounding}
    assert flagged == {"muon", "shampoo", "soap"}
    listed = bs.list("optimizers")
    assert {name for name in NAMES if "; amplifies rounding" in listed[name]} == flagged
    page = Path(__file__).parents[2].joinpath("docs/optimizers.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.endswith("; amplifies rounding |")]
    assert {row.split("`")[1] for row in rows} == flagged


@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize(("stated", "recorded"), [(None, 64), (24, 24), (100, 64)])
def test_outcomes_have_the_micro_batch_that_was_trained(
    kind: str, stated: int | None, recorded: int
) -> None:
    of = study(budget_steps=3, micro_batch=stated)
    ended = outcomes(train(of, trials(of, 2), kind))
    assert {outcome.micro_batch for outcome in ended.values()} == {recorded}


TEXT = """\
workload: digits-softmax
grid:
  batch_size: 32
  optimizer: soap
search: {learning_rate: 0.01, weight_decay: 0}
trials: 1
budget: 3 steps
engine: module
target: validation_error < 0.001
"""


def test_rows_have_the_micro_batch_that_no_file_states(tmp_path: Path) -> None:
    (tmp_path / "soap.yaml").write_text(TEXT)
    run = bs.sweep(tmp_path / "soap.yaml", results=tmp_path / "runs", address="none")
    assert run.trials["micro_batch"].tolist() == [32]
