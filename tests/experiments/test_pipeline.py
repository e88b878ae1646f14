"""Pipelines: stages on several ranks give what the whole model gives in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from experiments import parallel
from experiments.config.compile import from_keywords
from experiments.engines import make_engine
from experiments.engines.randomness import RandomDraws
from experiments.errors import ExperimentError
from experiments.parallel import ForwardPass
from experiments.parallel.stages.partition import partition, stage, units
from experiments.parallel.stages.stages import _Given, _input
from experiments.plan import Layout, Study, WorkloadRef
from experiments.records.rows import layout_columns
from experiments.training.study_context import StudyContext
from tests.experiments.layout_workloads import FILE
from tests.problems import study, trials
from workloads import LayoutPlan, WorkloadError
from workloads.ghost import convert_batch_norm
from workloads.images.networks import RESIDUAL_PLAN, residual_network, vgg11, vgg11_plan
from workloads.resnet8 import CIFAR10ResNet8

# How a model is cut


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 2)
    )


def test_the_largest_stage_is_as_small_as_it_can_be() -> None:
    parts = partition(model(), ("*",), 2)
    assert [[name for (name,) in part] for part in parts] == [["0", "1"], ["2", "3", "4"]]
    assert [len(part) for part in partition(model(), ("*",), 3)] == [2, 2, 1]


NETWORKS: dict[str, tuple[Callable[[], nn.Module], LayoutPlan, tuple[int, ...]]] = {
    "dense": (model, LayoutPlan(pipeline=("*",)), (4,)),
    "ResNet-18": (lambda: residual_network(18, 4, 3, small=True), RESIDUAL_PLAN, (3, 16, 16)),
    "ResNet-50": (lambda: residual_network(50, 2, 3), RESIDUAL_PLAN, (3, 64, 64)),
    "ResNet-8": (
        lambda: CIFAR10ResNet8(width=4).model(), CIFAR10ResNet8(width=4).layout_plan(), (3, 16, 16)
    ),
    "VGG-11": (lambda: vgg11(2, 3, small=True), vgg11_plan(2, small=True), (3, 32, 32)),
    "VGG-11 with dropout": (lambda: vgg11(1, 3), vgg11_plan(1), (3, 32, 32)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_the_stages_together_are_the_model(name: str) -> None:
    """Also of the packaged image networks, with ghost batch norm; modules keep their names."""
    make, plan, shape = NETWORKS[name]
    torch.manual_seed(0)
    whole = convert_batch_norm(make(), 4).eval()
    parts = partition(whole, plan.pipeline, 3 if name == "dense" else 4)
    cut = {name for part in parts for unit in part for name in unit}
    stages = [stage(whole, {n for unit in part for n in unit}, cut) for part in parts]
    held = [n for each in stages for n, _ in each.named_parameters()]
    assert held == [n for n, _ in whole.named_parameters()]
    first = [next(m for m in each.modules() if not list(m.children())) for each in stages]
    assert not any(isinstance(m, nn.ReLU) for m in first[1:])  # it would change what it is sent
    x = y = torch.randn(16, *shape)
    with torch.no_grad():
        for each in stages:
            y = each(y)
        assert torch.equal(y, whole(x))


def test_a_model_of_fewer_layers_than_stages_is_refused() -> None:
    with pytest.raises(ExperimentError, match="3 layers with parameters cannot be cut into 4"):
        partition(model(), ("*",), 4)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (("0", "1", "2", "3"), r"parameter 4.weight is in none of the modules"),
        (("*", "layers"), "the model has no module 'layers'"),
    ],
)
def test_a_plan_that_does_not_fit_its_model_is_refused(plan: Any, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        units(model(), plan)


# What an experiment says, and what is refused


def planned(layout: Any, workload: str = "digits-mlp") -> Study:
    given: dict[str, Any] = {"optimizer": "sgd", "batch_size": 8, "name": "test", "trials": 2}
    return from_keywords(workload=workload, layout=layout, **given).studies()[0]


def test_an_experiment_names_stages_schedule_and_micro_batches() -> None:
    assert planned({"pipeline": 2}).layout == Layout(workers=2, dimensions=(("pipeline", 2),))
    options = {"stages": 2, "schedule": "gpipe", "micro_batches": 4}
    of = planned({"data": 2, "pipeline": options})
    assert of.layout.workers == 4
    assert of.layout.pipeline == (("schedule", "gpipe"), ("micro_batches", 4))
    assert layout_columns(of.layout)["pipeline"] == {"schedule": "gpipe", "micro_batches": 4}
    assert "pipeline" not in layout_columns(Layout())
    assert of.id == planned(None).id
    made = parallel.of(of.layout)
    assert made.dimensions[0].micro_batch(24, 100, 2, {"pipeline": 2}) == 6  # type: ignore[attr-defined]
    assert made.dimensions[0].micro_batch(24, 5, 2, {"pipeline": 2}) == 4  # type: ignore[attr-defined]
    assert made.dimensions[0].micro_batch(3, 100, 2, {"pipeline": 2}) == 2  # type: ignore[attr-defined]


def test_what_needs_the_whole_model_is_refused() -> None:
    given = _Given(lambda x: 2 * x)
    assert given(torch.ones(1)) == 2
    with pytest.raises(ExperimentError, match="parameters of the model is used in the workload's"):
        given.parameters()
    with pytest.raises(ExperimentError, match="calls the model with one tensor"):
        given(torch.ones(1), torch.ones(1))


def test_the_first_stage_gets_what_forward_gives_to_the_model() -> None:
    def forward(model: Any) -> torch.Tensor:
        result: torch.Tensor = model(torch.full((3,), 5.0)) + 1
        return result

    def silent(model: Any) -> torch.Tensor:
        del model
        return torch.ones(3)

    common: dict[str, Any] = {"batch": (torch.ones(3),), "drawing": None, "weights": None}
    each = ForwardPass(loss=forward, sums=True, **common)
    assert torch.equal(_input(each), torch.full((3,), 5.0))
    with pytest.raises(ExperimentError, match="forward does not call the model"):
        _input(ForwardPass(loss=silent, sums=True, **common))


def test_random_numbers_begin_where_a_stage_begins_and_a_loss_draws_none(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(FILE)
    ref = WorkloadRef(spec="deep.py:Deep", base=str(tmp_path))
    of = study(workload=ref, batch_size=24, technique={"ghost_batch": 2})
    context = StudyContext.load(of)
    draws = RandomDraws.of(context, context.model(trials(of, 1)[0]))
    assert (len(draws.draws), draws.in_model) == (2, 2)
    assert [draws.first_of(names) for names in ((), ("", "0"), ("4", "5"), ("9",))] == [0, 0, 1, 2]
    draws.refuse_stages(context)
    with pytest.raises(WorkloadError, match="or a technique's, draws random numbers"):
        replace(draws, in_model=1).refuse_stages(context)


def test_a_pipeline_does_not_average_a_model_with_batch_norm(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(FILE)
    ref = WorkloadRef(spec="deep.py:Deep", base=str(tmp_path))
    technique = {"ghost_batch": 4, "ema": 0.5}
    of = study(workload=ref, batch_size=24, technique=technique)
    context = StudyContext.load(of)
    context.layout.staged = True
    with pytest.raises(ExperimentError, match="which a pipeline does not take"):
        make_engine("module", context, trials(of, 1))
