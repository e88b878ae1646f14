"""What ``batchscale new`` writes runs as it stands."""

from __future__ import annotations

import pytest
import torch
import yaml

from tests.problems import tensors
from workloads import identity, load
from workloads.checks import check_metrics, check_per_example, check_splits
from workloads.template import template


@pytest.mark.parametrize(
    ("name", "file", "cls"),
    [
        ("my_model.py", "my_model.py", "MyModel"),
        ("some/where/net2.py", "net2.py", "Net2"),
        ("a-b c", "a-b c.py", "ABC"),
        ("8bit.py", "8bit.py", "My8bit"),
        ("none.py", "none.py", "MyNone"),
    ],
)
def test_the_files_run(tmp_path, name, file, cls) -> None:
    code, experiment = template(name)
    (tmp_path / file).write_text(code)
    spec = yaml.safe_load(experiment)["workload"]
    assert spec == f"{file}:{cls}"
    workload = load(spec, {"width": 8}, tmp_path)
    splits = check_splits(workload.data(), workload)
    assert len(splits["validation"][0]) == 500
    batch = workload.transform(tuple(t[:16] for t in tensors(splits["train"])), training=True)
    output = workload.forward(workload.model(), batch)
    check_per_example(workload.loss(output, batch), 16, "loss", workload)
    check_metrics(workload.metrics(output, batch), 16, workload)
    assert identity(workload)["source"]


def test_the_workload_can_reach_its_target(tmp_path) -> None:
    (tmp_path / "my_model.py").write_text(template("my_model.py")[0])
    workload = load("my_model.py:MyModel", base=tmp_path)
    train, held = (tensors(workload.data()[name]) for name in ("train", "validation"))
    torch.manual_seed(0)
    model = workload.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for _ in range(150):
        optimizer.zero_grad()
        workload.loss(model(train[0]), train).mean().backward()
        optimizer.step()
    error = workload.metrics(model(held[0]), held)["error"]
    assert isinstance(error, torch.Tensor)
    assert float(error.double().mean()) < 0.05
    assert "@" not in "".join(template("my_model.py"))
