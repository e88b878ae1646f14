"""From which step on techniques, schedules and ramps act: as trained, as recorded, as derived."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from experiments import schedules, techniques
from experiments.batch_sizes import BatchSizes
from experiments.execution.worker import trial_row
from experiments.plan import Outcome, Study, Trial
from results.acts_from import acts_from
from tests.conformance.cases import ON_DIGITS
from tests.problems import engine, largest_difference, study, trials

BUDGET = 40
LATE: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"technique": {"swa": 0.25}}, {"swa": 10}),
    ({"technique": {"swa": {"begin": 0.5, "every": 2}, "clip": 1.0}}, {"swa": 20}),
    ({"schedule": "wsd"}, {"schedule": 3 + 11 + 1}),
    ({"schedule": "step"}, {"schedule": 3 + 6}),
]
PRUNED: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"technique": {"prune": {"sparsity": 0.8, "until": 0.5}}}, {"prune": 19}),
    ({"technique": {"prune": {"sparsity": 0.8, "until": 0.5, "begin": 0.25}}}, {"prune": 19}),
    ({"technique": {"prune": 0.8}}, {}),
]
LENGTHS = {"warmup_steps": 3, "stable_steps": 11, "decay_steps": 12, "drops": 2}


def of(**changes: Any) -> tuple[Study, Trial]:
    """A study of digits-mlp and a trial of it."""
    described = study(workload="digits-mlp", budget_steps=BUDGET, **changes)
    trial = trials(described, 1)[0]
    if described.schedule == "constant":
        return described, trial
    lengths = schedules.get(described.schedule).arguments & LENGTHS.keys()
    values = {**trial.metaparameters, "learning_rate": 0.1}
    return described, replace(trial, metaparameters=values | {n: LENGTHS[n] for n in lengths})


def row(described: Study, trial: Trial, **changes: Any) -> dict[str, Any]:
    """The columns of results that say when it acts."""
    ended: dict[str, Any] = {"status": "COMPLETE", "stop_reason": "budget", **changes}
    outcome = Outcome(trial=trial.id, steps_run=1, examples_run=1, **ended)
    columns = {"technique": described.technique_by_label, "schedule": described.schedule}
    return trial_row(columns | {"budget_steps": BUDGET}, described, trial, outcome)


def evaluated(described: Study, trial: Trial, steps: int) -> dict[str, torch.Tensor]:
    """The weights that evaluations measure after so many steps."""
    one = engine("module", described, (trial,), steps=steps)
    return one.measured(0)


@pytest.mark.parametrize(("changes", "begins"), LATE)
def test_it_acts_in_the_next_step_and_not_before(
    changes: dict[str, Any], begins: dict[str, int]
) -> None:
    described, trial = of(**changes)
    branch = replace(described, budget_steps=30, recorded_budget_steps=BUDGET)
    assert row(described, trial)["acts_from"] == row(branch, trial)["acts_from"] == begins
    plain, constant = of()
    if "schedule" in changes:
        warmup = {"warmup_steps": 3, "learning_rate": 0.1}
        values = {**constant.metaparameters, **warmup}
        constant = replace(constant, seed=trial.seed, metaparameters=values)
    rest = {n: a for n, a in changes.get("technique", {}).items() if n not in begins}
    without = replace(plain, technique={**plain.technique, **rest})
    (begin,) = begins.values()
    for steps, acts in ((begin, False), (begin + 1, True)):
        both = evaluated(described, trial, steps), evaluated(without, constant, steps)
        assert (largest_difference(*both) > 1e-6) == acts, steps


def test_gradual_pruning_acts_once_the_model_is_as_sparse() -> None:
    for changes, begins in PRUNED:
        described, trial = of(**changes)
        assert row(described, trial)["acts_from"] == begins
        end = begins.get("prune", 0) + 1
        # The last of its stages change next to nothing.
        for steps, acts in ((end - 5, False), (end, True)):
            if steps > 0:
                weight = evaluated(described, trial, steps)["0.weight"]
                assert (int((weight == 0).sum()) == round(0.8 * weight.numel())) == acts, steps


def test_rows_without_the_column_say_the_same() -> None:
    """Of all packaged techniques and schedules: results of older versions."""
    cases: list[dict[str, Any]] = [{"technique": each} for each in ON_DIGITS]
    cases += [{"schedule": n} for n in schedules.names()]
    cases += [changes for changes, _ in LATE + PRUNED]
    for changes in cases:
        recorded = row(*of(**changes))
        assert acts_from({**recorded, "acts_from": None}) == recorded["acts_from"], changes
    assert acts_from({"acts_from": '{"swa":3}', "technique": '{"swa":0.75}'}) == {"swa": 3}
    assert acts_from({"technique": '{"swa":0.75}', "budget_steps": float("nan")}) == {}


def test_a_ramp_and_a_schedule_in_its_steps() -> None:
    described, trial = of(schedule="step")
    ramp = BatchSizes.growing(64, BUDGET, [(4, 128)])
    assert ramp.starts == (0, 4)
    recorded = row(replace(described, ramp=ramp), trial)
    # After 4 steps each has as many examples as two: the 9th step's are seen after 4 + ⌈5 / 2⌉.
    assert recorded["acts_from"] == {"ramp": 4, "schedule": 7}
    phases = {"starts": ramp.starts, "sizes": ramp.sizes, "schedule_steps": BUDGET}
    assert acts_from({"batch_sizes": phases, "technique": None}) == {"ramp": 4}


def test_a_tuned_argument_and_a_failed_trial() -> None:
    described, trial = of(technique={"swa": 0.25})
    tuned = replace(trial, metaparameters={**trial.metaparameters, "swa.begin": 0.5})
    assert row(described, tuned)["acts_from"] == {"swa": 20}
    assert row(described, trial, error="it failed")["acts_from"] is None


def test_every_technique_that_uses_the_budget_says_when() -> None:
    """All but ``resize``, whose images are small from the first step on."""
    kinds = {name: techniques.TECHNIQUES.get_class(name) for name in techniques.names()}
    base = techniques.Technique.acts_from
    silent = {name for name, kind in kinds.items() if kind.uses_budget and kind.acts_from is base}
    assert silent == {"resize"}
