"""How a trial ends, look by look."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.plan import Pack, WorkloadRef
from experiments.training import loop, stopping
from experiments.training.evaluation_grid import evaluation_steps
from experiments.training.pack_training import Training
from tests.problems import measurements, outcomes, study, train, trials
from workloads import WorkloadError

ROOT = Path(__file__).parents[2]


def test_how_a_trial_is_trained_is_read_in_one_sitting() -> None:
    """The loop's docstring names the files to read: four at most, this one the last."""
    names = re.findall(r"``(experiments/\S+\.py)``: ", loop.__doc__ or "")
    files = [ROOT / name for name in names]
    assert 1 < len(files) <= 4
    assert files[-1] == Path(loop.__file__)
    assert sum(len(file.read_text().splitlines()) for file in files) <= 660
    imports = [line for f in files for line in f.read_text().splitlines() if "import" in line]
    for other in ("pack_training", "snapshot"):
        assert not any(other in line for line in imports)


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
        rules = stopping.stopping_rules(of, stopping.StudyHits((9,)))
        reasons = [rule.reason(evaluation) for rule in rules]
        assert [r for r in reasons if r is not None] == [
            r for r in order[order.index(reason) :] if r != "dominated" or of.keep
        ]


def test_a_pack_ends_every_trial_once_with_its_bracket() -> None:
    of = study(optimizer="adam", budget_steps=400, keep=None)
    some = trials(of, 6)
    events = train(of, some, "stacked")
    ended = outcomes(events)
    assert set(ended) == {t.id for t in some}
    grid = evaluation_steps(1.05, 400)
    for trial in some:
        seen = [m for m in measurements(events) if m.trial == trial.id]
        end = ended[trial.id]
        assert tuple(m.step for m in seen) == grid[: len(seen)]
        errors = [m.metrics["validation_error"] for m in seen]
        if end.stop_reason == "target":
            assert end.steps_to_target == seen[-1].step == end.steps_run
            assert end.last_miss == (seen[-2].step if len(seen) > 1 else 0)
            assert errors[-1] < 0.04 <= min(errors[:-1])
        else:
            assert (end.stop_reason, end.steps_run) == ("budget", 400)
            assert min(errors) >= 0.04
    assert {"target", "budget"} == {e.stop_reason for e in ended.values()}


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


def test_what_other_packs_reached_dominates_too() -> None:
    of = study(optimizer="adam", budget_steps=300, keep=2)
    some = trials(of, 4)
    ended = outcomes(train(of, some, known=(5, 9)))
    assert {e.stop_reason for e in ended.values()} == {"dominated"}
    assert {e.steps_run for e in ended.values()} == {9}
    training = Training(Pack(id="p", study=of, trials=some, engine="module"))
    events = []
    for look in training.run():
        events += look
        if training.step == 20:
            training.know([3, 4])
    assert {e.steps_run for e in outcomes(events).values()} == {21}


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
from tests.problems import TinyData
from workloads import Classification

class Late(Classification):
    target = "validation_error < 0.2"
    at: int = 7
    calls = 0

    def data(self): return TinyData.splits()
    def model(self): return TinyData.model()

    def loss(self, output, batch):
        if torch.is_grad_enabled():
            type(self).calls += 1
            if type(self).calls == self.at: raise ValueError("my own bug")
        return super().loss(output, batch)

class Spike(Classification):
    target = "validation_error < 0.001"
    def data(self): return TinyData.splits()
    def model(self): return TinyData.model()
    def loss(self, output, batch):
        per_example = super().loss(output, batch)
        bad = (batch[0][:, 0] > 2.0).to(per_example.dtype)
        huge = bad / (1 - bad)
        return per_example + (huge - huge).detach().nan_to_num(nan=float("inf"))

class Mean(Classification):
    target = "validation_error < 0.2"
    def data(self): return TinyData.splits()
    def model(self): return TinyData.model()
    def loss(self, output, batch): return super().loss(output, batch).mean()
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


def test_a_mean_is_refused_before_anything_is_trained(own) -> None:
    of = study(workload=own("Mean"), batch_size=8)
    for kind in ("module", "stacked", "auto"):
        with pytest.raises(WorkloadError, match=r"returned one number \(a mean\?\)"):
            train(of, trials(of, 2), kind)
