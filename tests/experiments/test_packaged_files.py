"""The experiment files that come along: the paper's workloads as its protocol has them."""

from __future__ import annotations

from typing import Any

import pytest

import workloads
from experiments.config.compile import load
from experiments.config.sources import names, packaged_text
from tests.marks import quick
from tests.problems import outcomes, train

DOUBLING = tuple(2**i for i in range(16))
PROTOCOL: dict[str, dict[str, Any]] = {
    "mnist-simple-cnn": {
        "sizes": (*DOUBLING, "full"), "optimizers": ["sgd", "momentum", "nesterov"],
        "target": "validation_error < 0.01", "schedule": "constant",
    },
    "fashion-mnist-simple-cnn": {
        "sizes": (*DOUBLING[1:], "full"), "optimizers": ["nesterov"],
        "target": "validation_error < 0.1", "schedule": "constant",
    },
    "mnist-fc": {
        "sizes": (*DOUBLING, "full"), "optimizers": ["sgd"],
        "target": "validation_error < 0.03", "schedule": "constant",
    },
    "cifar10-resnet8": {
        "sizes": DOUBLING[1:14], "optimizers": ["sgd", "nesterov"],
        "target": "validation_error < 0.3", "schedule": "linear",
    },
    "mnist-simple-cnn-narrow": {
        "sizes": (*DOUBLING, "full"), "optimizers": ["sgd", "momentum", "nesterov"],
        "target": "validation_error < 0.01", "schedule": "constant",
    },
    "fashion-mnist-simple-cnn-wide": {
        "sizes": (*DOUBLING[1:], "full"), "optimizers": ["nesterov"],
        "target": "validation_error < 0.1", "schedule": "constant",
    },
    "imagenet-resnet50": {
        "sizes": tuple(2**i for i in range(6, 17)), "optimizers": ["nesterov"],
        "target": "validation_error < 0.25", "schedule": "linear", "end": {"log": [1e-4, 0.1]},
    },
    "imagenet-vgg11": {
        "sizes": tuple(2**i for i in range(5, 17)), "optimizers": ["nesterov"],
        "target": "validation_error < 0.35", "schedule": "linear", "end": 1e-3,
    },
    **{
        name: {
            "sizes": DOUBLING[4:], "optimizers": optimizers,
            "target": "validation_cross_entropy < 3.9", "schedule": "constant",
        }
        for name, optimizers in {
            "lm-transformer": ["nesterov"],
            "lm-transformer-shallow": ["sgd", "momentum", "nesterov"],
            "lm-transformer-wide": ["nesterov"],
            "lm-transformer-narrow": ["nesterov"],
            "lm-lstm": ["nesterov"],
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PROTOCOL)
def test_the_papers_workloads_are_searched_as_it_says(name):
    """Shallue et al. 2019: batch sizes, optimizers, goals and schedules; N = 100; spaces whose
    optimum is on the edge are enlarged."""
    of, wanted = load(name), PROTOCOL[name]
    optimizers = of.grid["optimizer"]
    assert of.batch_sizes == wanted["sizes"]
    assert ([optimizers] if isinstance(optimizers, str) else optimizers) == wanted["optimizers"]
    assert [str(target) for target in of.targets] == [wanted["target"]]
    assert (of.schedule, of.trials, of.search_method) == (wanted["schedule"], 100, "sobol")
    assert of.extend > 0
    for combination in of.combinations:
        spaces = {n: d.notation() for n, d in combination.search.space.items()}
        assert spaces.pop("learning_rate") == {"log": [1e-4, 10]}
        if combination.optimizer.name != "sgd":
            assert spaces.pop("momentum") == {"reverse_log": [0.9, 0.9999]}
        if wanted["schedule"] == "linear":
            assert spaces.pop("decay") == {"linear": [0.5, 1]}
            end = spaces.pop("end_factor", combination.search.fixed.get("end_factor"))
            assert end == wanted.get("end", 0.01)
        if name == "imagenet-resnet50":
            assert spaces.pop("label_smoothing") == {"discrete": [0, 0.01, 0.1]}
        assert not spaces


@pytest.mark.parametrize("name", [name for name in names() if name.endswith("-small")])
def test_a_small_variant_says_only_how_it_differs(name):
    base = name.removesuffix("-small")
    assert f"extends: {base}\n" in packaged_text(name)
    small, whole = load(name), load(base)
    assert small.workload == whole.workload
    assert small.trials < whole.trials
    assert small.extend == 0
    assert small.notes == []
    assert small.name == name
    assert len(small.batch_sizes) >= 3, "regimes need three batch sizes"


@pytest.mark.parametrize("name", names())
def test_every_file_is_an_experiment(name):
    """With a summary and a small variant; its workload, fields, optimizers and spaces exist."""
    assert names()[name].endswith(".")
    small = name.endswith("-small") or "extends: digits-small\n" in packaged_text(name)
    assert small or f"{name}-small" in names()
    experiment = load(name)
    assert experiment.notes == []
    assert experiment.combinations
    for combination in experiment.combinations:
        assert combination.workload.name == experiment.workload
    assert load(name.removesuffix("-small")).workload == experiment.workload


@pytest.mark.parametrize("kind", ["narrow", "wide"])
@pytest.mark.parametrize("data", ["mnist", "fashion-mnist"])
def test_narrow_and_wide_models_have_half_and_twice_the_channels(data, kind):
    """Shallue et al. 2019: 16, 32 and 512, and 64, 128 and 2,048."""
    (combination, *_) = load(f"{data}-simple-cnn-{kind}").combinations
    model = combination.workload.model()
    outputs = [p.shape[0] for n, p in model.named_parameters() if n.endswith("weight")]
    assert outputs == ([16, 32, 512, 10] if kind == "narrow" else [64, 128, 2048, 10])


@pytest.mark.parametrize("name", quick(["multilabel-mlp-small", "digits-subsets-small"], 1))
def test_what_needs_no_data_set_is_trained(name):
    (study, *_) = load(name).studies()
    steps = max(e.step for e in train(study, tuple(study.draw(0, 2))) if hasattr(e, "step"))
    assert 0 < steps <= study.budget_steps


@pytest.mark.slow
@pytest.mark.parametrize("name", ["teacher", "markov"])
def test_generated_workloads_are_trained_without_epochs(name):
    whole = load(name)
    assert whole.batch_sizes == DOUBLING[3:13]
    assert whole.grid["optimizer"] == ["sgd", "momentum", "adam"]
    assert whole.parsed_budget.epochs == 0
    assert [str(t) for t in whole.targets] == [workloads.load(name).target]
    studies = whole.studies()
    assert {study.train_examples for study in studies} == {None}
    assert [study.budget_steps for study in studies[:10]] == [
        1500 + 300_000 // size for size in DOUBLING[3:13]
    ]
    small = load(f"{name}-small")
    study = small.studies()[0]
    ends = outcomes(train(study, tuple(study.draw(0, 4)), "stacked"))
    steps = [end.steps_to_target for end in ends.values() if end.steps_to_target]
    assert steps
    assert min(steps) > 10  # not so easy that it says nothing
