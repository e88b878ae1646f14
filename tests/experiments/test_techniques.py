"""Techniques: hooks of training, alone and composed, on one model and on a stack of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import batchscale as bs
from experiments import techniques
from experiments.config import sources
from experiments.engines import choose, stackable
from experiments.engines.module import ModuleEngine
from experiments.errors import ExperimentError
from experiments.plan import Pack, Study, Trial, WorkloadRef
from experiments.training.study_context import StudyContext
from tests import problems
from tests.experiments.technique_file import ELSEWHERE, EXAMPLES, PACKAGED
from tests.experiments.test_packs_bitwise import _plain as plain
from tests.marks import quick
from tests.problems import engine, largest_difference, study, train, trials

ROOT = Path(__file__).parents[2]
KINDS = ["module", "stacked"]
SETS = [*({name: value} for name, value in PACKAGED.items()), PACKAGED]


def weights(of: Study, pack: tuple[Trial, ...], kind: str, steps: int) -> list[dict[str, Any]]:
    one = engine(kind, of, pack)
    one.advance(steps)
    return [one.weights(row) for row in range(len(pack))]


# What there is


def test_every_packaged_technique_is_tested_here_and_listed() -> None:
    assert set(techniques.names()) == {*EXAMPLES, *ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert name in (ROOT / file).read_text()
    listed = bs.list("techniques")
    assert set(listed) == {*EXAMPLES, *ELSEWHERE}
    for sentence in listed.values():
        assert " " in sentence
    for name in EXAMPLES:
        loaded = techniques.load({name: EXAMPLES[name]}, None).parts[name]
        assert (loaded.written, loaded.label) == (EXAMPLES[name], name)
        assert loaded.stacks


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


EVERYTHING = {"my.py:Everything": 0.1, **PACKAGED}


@pytest.mark.parametrize(
    ("precision", "technique"),
    quick(
        [
            *(("float32", technique) for technique in SETS),
            ("float64", EVERYTHING),
            pytest.param("float32", EVERYTHING, marks=pytest.mark.slow),
            *(pytest.param("float64", technique, marks=pytest.mark.slow) for technique in SETS),
        ],
        1,
    ),
    ids=str,
)
def test_engines_agree(
    user_techniques: WorkloadRef, technique: dict[str, Any], precision: str
) -> None:
    steps, tolerance = (20, 2e-3) if precision == "float32" else (200, 1e-8)
    of = study(
        workload=user_techniques,
        optimizer="momentum",
        precision=precision,
        batch_size=16,
        technique=technique,
    )
    pack = trials(of, 3)
    module, stacked = engine("module", of, pack), engine("stacked", of, pack)
    plain_one = engine("module", replace(of, technique={"precision": precision}), pack)
    for one in (module, stacked, plain_one):
        one.advance(steps)
    for row in range(3):
        assert largest_difference(module.weights(row), stacked.weights(row)) < tolerance
        if "clip" in technique:
            moved = largest_difference(module.weights(row), plain_one.weights(row))
            assert moved > 10 * tolerance
    for a, b in zip(module.evaluate("validation"), stacked.evaluate("validation"), strict=True):
        assert a["cross_entropy"] == pytest.approx(b["cross_entropy"], rel=1e-3)


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


# Packs, pausing, going back


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", quick(KINDS, 1))
def test_a_trial_is_the_same_in_any_pack(kind: str, user_techniques: WorkloadRef) -> None:
    technique = {"my.py:Everything": 0.1, **PACKAGED}
    of = study(workload=user_techniques, optimizer="adam", batch_size=16, technique=technique)
    pack = trials(of, 7)
    whole = engine(kind, of, pack)
    whole.advance(24)
    expected = dict(zip([t.id for t in pack], whole.evaluate("validation"), strict=True))
    changing = engine(kind, of, pack[:5])
    changing.advance(8)
    changing.keep([0, 2, 4])
    saved = changing.copy([1, 2])
    changing.advance(5)
    for row, state in zip([1, 2], saved, strict=True):
        changing.restore(row, state)
    assert changing.steps == [13, 8, 8]
    changing.keep([1, 2])
    changing.add(pack[5:])
    changing.advance(16)
    snapshot = changing.state()
    resumed = engine(kind, of, tuple(changing.trials))
    resumed.load(snapshot)
    for one in (changing, resumed):
        assert one.steps == [24, 24, 16, 16]
        metrics = one.evaluate("validation", [0, 1])
        assert metrics == [expected[pack[2].id], expected[pack[4].id]]
        one.advance(8)
        metrics = one.evaluate("validation", [2, 3])
        assert metrics == [expected[pack[5].id], expected[pack[6].id]]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", KINDS)
def test_resuming_a_snapshot_changes_nothing(kind: str) -> None:
    of = study(
        optimizer="adam", budget_steps=120, evaluation_ratio=1.4, keep=None, technique=PACKAGED,
        target="validation_error < 0.07", stop_at_target=False,
    )  # fmt: skip
    pack = trials(of, 5, learning_rate=0.05)
    expected = plain(train(of, pack, kind))
    described = Pack(id="pack", study=of, trials=pack, engine=kind)  # type: ignore[arg-type]
    first = problems.Training(described)
    events = []
    for count, measured in enumerate(first.run(), start=1):
        events += measured
        if count == 6:
            break
    second = problems.Training(described, snapshot=first.snapshot())
    events += [event for measured in second.run() for event in measured]
    assert plain(events) == expected


# A user's file


def test_one_that_does_not_stack_is_trained_by_the_module_engine(
    user_techniques: WorkloadRef,
) -> None:
    of = study(workload=user_techniques, technique={"my.py:Scaled": 0.5, "clip": 0.05})
    pack = trials(of, 8)
    context = StudyContext.load(of)
    assert choose(StudyContext.load(replace(of, technique=PACKAGED)), pack) == "stacked"
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


@pytest.mark.parametrize("kind", quick(KINDS, 1))
def test_random_numbers_of_a_batch_follow_the_examples(
    user_techniques: WorkloadRef, kind: str
) -> None:
    common = {
        "workload": user_techniques,
        "precision": "float64",
        "technique": {"my.py:Everything": 0.3},
    }
    pack = trials(study(**common), 2)
    whole = weights(study(**common), pack, kind, 15)
    parts = weights(study(**common, micro_batch=13), pack, kind, 15)
    for row in range(2):
        assert largest_difference(whole[row], parts[row]) < 1e-9


def test_random_numbers_after_the_forward_pass_are_refused(user_techniques: WorkloadRef) -> None:
    of = study(workload=user_techniques, technique={"my.py:Random": True, "clip": 1.0})
    pack = trials(of, 4)
    assert "randomness" in str(stackable(StudyContext.load(of), pack))
    with pytest.raises(ExperimentError, match="technique Random, clip draws random numbers in"):
        weights(of, pack, "module", 1)
