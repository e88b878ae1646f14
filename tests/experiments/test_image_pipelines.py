"""Pipelines of the packaged image networks: stages are the whole model, and train as it does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import workloads
from experiments.parallel.stages.partition import partition, stage
from tests.experiments.image_pipelines import FILE, NAMES
from tests.problems import tensors
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
