"""Techniques: hooks of training, alone and composed, on one model and on a stack of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import yaml

from experiments import techniques
from experiments.config import sources
from experiments.engines import choose, stackable
from experiments.engines.module import ModuleEngine
from experiments.errors import ExperimentError
from experiments.plan import Study, Trial, WorkloadRef
from experiments.training.study_context import StudyContext
from tests import problems
from tests.marks import quick
from tests.problems import engine, largest_difference, study, train, trials

KINDS = ["module", "stacked"]


def weights(of: Study, pack: tuple[Trial, ...], kind: str, steps: int) -> list[dict[str, Any]]:
    one = engine(kind, of, pack)
    one.advance(steps)
    return [one.weights(row) for row in range(len(pack))]


# What there is


def test_an_experiment_sweeps_each_technique_on_and_off() -> None:
    swept: set[str] = set()
    for name in sources.names():
        if name.startswith("techniques-"):
            listed = yaml.safe_load(sources.packaged_text(name))["grid"].get("technique", [])
            assert not listed or "none" in listed
            for entry in listed:
                swept |= {entry} if isinstance(entry, str) else set(entry)
    assert swept - {"none"} == set(techniques.names())


def test_the_order_is_fixed_and_documented(user_techniques: WorkloadRef) -> None:
    written = {"ema": 0.9, "my.py:Everything": 0.1, "clip": 1.0}
    loaded = techniques.load(written, user_techniques.base)
    assert list(loaded.parts) == ["my.py:Everything", "clip", "ema"]
    from experiments.techniques import base

    for name in techniques.names():
        order = techniques.TECHNIQUES.get_class(name).order
        assert order == 500 or f"| {order} | ``{name}``" in (base.__doc__ or "")


# clip


@pytest.mark.parametrize("kind", quick(KINDS, 1))
@pytest.mark.parametrize("precision", quick(["float32", "float64"], 1))
def test_clip_bounds_the_norm_and_leaves_a_smaller_gradient(kind: str, precision: str) -> None:
    common = {"workload": "digits-mlp", "precision": precision}
    pack = tuple(
        replace(t, metaparameters={"learning_rate": 1.0}) for t in trials(study(**common), 3)
    )
    start = weights(study(**common), pack, kind, 0)
    free = weights(study(**common), pack, kind, 1)
    norms = []
    for bound in (1e-3, 1e6):
        of = study(**common, technique={"clip": bound})
        after = weights(of, pack, kind, 1)
        for row in range(3):  # at learning rate 1 a step of SGD is the gradient
            step = [after[row][name] - start[row][name] for name in after[row]]
            norm = float(torch.stack([s.square().sum() for s in step]).sum().sqrt())
            norms.append(norm)
            assert norm <= bound
            if bound > 1:
                assert all(torch.equal(after[row][n], free[row][n]) for n in after[row])
    assert min(norms[:3]) > 0.99e-3


def test_clip_is_torchs() -> None:
    drawn = torch.randn(23, generator=torch.Generator().manual_seed(0))
    gradients = {"a": drawn[:20].view(4, 5), "b": drawn[20:]}
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients.values()]
    for parameter, gradient in zip(parameters, gradients.values(), strict=True):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(parameters, 0.7)
    clip = techniques.load({"clip": 0.7}, None).parts["clip"]
    clipped = clip.gradient(gradients, gradients, {}, torch.tensor(0))
    for parameter, value in zip(parameters, clipped.values(), strict=True):
        torch.testing.assert_close(parameter.grad, value)


# ema


def test_ema_is_torchs() -> None:
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    of = study(technique={"ema": 0.8}, precision="float64")
    one = engine("module", of, trials(of, 1))
    assert isinstance(one, ModuleEngine)
    averaged = AveragedModel(one.runs[0].model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    for _ in range(7):
        one.advance(1)
        averaged.update_parameters(one.runs[0].model)
    metrics = one.evaluate("validation")[0]
    for name, parameter in averaged.module.named_parameters():
        torch.testing.assert_close(
            one.runs[0].hooks.state["ema"][name],
            parameter.detach(),
        )
    with torch.no_grad():
        one.runs[0].model.load_state_dict(averaged.module.state_dict())
    one.runs[0].hooks.state["ema"] = dict(averaged.module.named_parameters())
    assert one.evaluate("validation")[0] == pytest.approx(metrics, rel=1e-9)


@pytest.mark.parametrize("kind", quick(KINDS, 1))
def test_ema_is_evaluated_and_training_does_not_see_it(kind: str) -> None:
    common = {"workload": "digits-mlp", "batch_size": 16}
    pack = trials(study(**common), 3)
    engines = {
        decay: engine(kind, study(**common, technique={"ema": decay} if decay >= 0 else {}), pack)
        for decay in (-1, 0.0, 0.95)
    }
    for one in engines.values():
        one.advance(30)
    plain_metrics = engines[-1].evaluate("validation")
    assert engines[0.0].evaluate("validation") == plain_metrics
    averaged = engines[0.95].evaluate("validation")
    assert all(a != b for a, b in zip(averaged, plain_metrics, strict=True))
    assert engines[0.95].evaluate("validation", [2, 0]) == [averaged[2], averaged[0]]
    for one in engines.values():
        one.advance(5)  # evaluating changes nothing either
        for row in range(3):
            for name, value in one.weights(row).items():
                assert torch.equal(value, engines[-1].weights(row)[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_trial_diverges_with_its_trained_weights(kind: str) -> None:
    of = study(workload="digits-mlp", technique={"ema": 0.999999}, budget_steps=60)
    pack = trials(of, 2, learning_rate=1e30)
    ended = problems.outcomes(train(of, pack, kind))
    assert {outcome.stop_reason for outcome in ended.values()} == {"diverged"}


# Twins


@pytest.mark.parametrize("kind", KINDS)
def test_each_model_has_its_own_argument(kind: str) -> None:
    """An argument among a trial's metaparameters is that of the trial alone."""
    common = {"workload": "digits-mlp", "precision": "float64"}
    of = study(**common, technique={"clip": 1.0, "ema": 0.5})
    pack = tuple(
        replace(t, metaparameters={**t.metaparameters, "clip.norm": norm})
        for t, norm in zip(trials(of, 3), (0.01, 0.1, 10.0), strict=True)
    )
    together = engine(kind, of, pack)
    together.advance(10)
    together.keep([0, 2])
    together.add(trials(of, 1, seed=1, **{"clip.norm": 0.3}))
    together.advance(10)
    for row, (trial, norm, steps) in enumerate(
        [(pack[0], 0.01, 20), (pack[2], 10.0, 20), (together.trials[2], 0.3, 10)]
    ):
        values = {k: v for k, v in trial.metaparameters.items() if k != "clip.norm"}
        fixed = study(**common, technique={"clip": norm, "ema": 0.5})
        alone = engine("module", fixed, (replace(trial, metaparameters=values),))
        alone.advance(steps)
        assert largest_difference(alone.weights(0), together.weights(row)) < 1e-9
        a, b = alone.evaluate("validation")[0], together.evaluate("validation", [row])[0]
        assert a["cross_entropy"] == pytest.approx(b["cross_entropy"], rel=1e-9)


# A user's file


def test_one_that_does_not_stack_is_trained_by_the_module_engine(
    user_techniques: WorkloadRef,
) -> None:
    of = study(workload=user_techniques, technique={"my.py:Scaled": 0.5, "clip": 0.05})
    pack = trials(of, 8)
    context = StudyContext.load(of)
    assert (
        choose(StudyContext.load(replace(of, technique={"clip": 0.05, "ema": 0.9})), pack)
        == "stacked"
    )
    assert choose(context, pack) == "module"
    assert stackable(context, pack) == "technique Scaled: a test says so"
    with pytest.raises(ExperimentError, match=r"technique Scaled: a test says so$"):
        engine("stacked", of, pack)
    one, bare = pack[:1], {"weight_decay": 0.0}
    one = (replace(one[0], metaparameters={**one[0].metaparameters, **bare}),)
    clipped = weights(replace(of, technique={"clip": 0.05}), one, "module", 1)
    for factor in (0.0, 0.5):  # the first step is not scaled; the second is, before it is clipped
        both = replace(of, technique={"my.py:Scaled": factor, "clip": 0.05})
        moved = largest_difference(weights(both, one, "module", 2)[0], clipped[0])
        assert (moved == 0) == (factor == 0)


@pytest.mark.slow
def test_tuned_arguments_of_what_changes_the_loss_do_not_stack(
    user_techniques: WorkloadRef,
) -> None:
    of = study(workload=user_techniques, technique={"my.py:Everything": 0.5})
    fixed: dict[str, Any] = {"Everything.strength": 0.1}
    pack = trials(of, 8, **fixed)
    assert stackable(StudyContext.load(of), pack) == (
        "technique Everything: one of its arguments is tuned"
    )
    assert stackable(StudyContext.load(of), trials(of, 8)) is None


def test_random_numbers_after_the_forward_pass_are_refused(user_techniques: WorkloadRef) -> None:
    of = study(workload=user_techniques, technique={"my.py:Random": True, "clip": 1.0})
    pack = trials(of, 4)
    assert "randomness" in str(stackable(StudyContext.load(of), pack))
    with pytest.raises(ExperimentError, match="technique Random, clip draws random numbers in"):
        weights(of, pack, "module", 1)
