"""Pipelines of the packaged image networks: stages are the whole model, and train as it does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import workloads
from experiments.parallel.stages.partition import partition, stage
from experiments.plan import Study, WorkloadRef
from tests.experiments.image_pipelines import FILE, NAMES
from tests.experiments.rank_gates import Gate, check_against_plain, in_layout
from tests.problems import study, tensors, trials
from workloads.ghost import convert_batch_norm


@pytest.fixture
def base(tmp_path: Path) -> str:
    (tmp_path / "images.py").write_text(FILE)
    return str(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_stages_together_are_the_model(name: str, base: str) -> None:
    of = workloads.load(f"images.py:{name}", {}, base)
    torch.manual_seed(0)
    whole, plan = convert_batch_norm(of.model(), 4).eval(), of.layout_plan()
    assert plan is not None
    parts = partition(whole, plan.pipeline, 4)
    cut = {name for part in parts for unit in part for name in unit}
    stages = [stage(whole, {n for unit in part for n in unit}, cut) for part in parts]
    held = [n for each in stages for n, _ in each.named_parameters()]
    assert held == [n for n, _ in whole.named_parameters()]
    first = [next(m for m in each.modules() if not list(m.children())) for each in stages]
    assert not any(isinstance(m, nn.ReLU) for m in first[1:])  # it would change what it is sent
    x = y = tensors(of.data()["validation"])[0]
    with torch.no_grad():
        for each in stages:
            y = each(y)
        assert torch.equal(y, whole(x))


def gate(base: str, name: str, steps: int, ranks: int, **sizes: int) -> Gate:
    """With a learning rate and ghost batches at which rounding errors do not grow: a batch norm
    over two numbers makes them ten thousand times larger in a step."""
    of: Study = study(
        workload=WorkloadRef(spec=f"images.py:{name}", base=base),
        technique={"ghost_batch": 8},
        precision="float64",
        batch_size=32,
        optimizer="sgd",
    )
    made = trials(of, 1, learning_rate=1e-5 if name == "ResNet50" else 0.001)
    return Gate(study=in_layout(of, ranks, **sizes), trials=made, steps=steps)


@pytest.mark.slow
def test_stages_give_the_plain_run(base: str, tmp_path: Path) -> None:
    check_against_plain(2, [gate(base, name, 30, 2, pipeline=2) for name in NAMES], tmp_path)


@pytest.mark.slow
def test_data_ranks_of_stages_give_the_plain_run(base: str, tmp_path: Path) -> None:
    made = [gate(base, name, 10, 4, data=2, pipeline=2) for name in ("ResNet18", "LargeVGG11")]
    check_against_plain(4, made, tmp_path)
