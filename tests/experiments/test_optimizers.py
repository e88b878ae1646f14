"""The registry of optimizers, and users' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import optimizers
from experiments.errors import ExperimentError
from workloads import WorkloadError


@pytest.mark.parametrize("name", optimizers.names())
def test_every_registered_optimizer_has_a_default_space_of_its_arguments(name: str) -> None:
    one = optimizers.get(name)
    assert one.name == name
    assert "learning_rate" in one.space
    assert set(one.space) <= one.arguments
    assert one.arguments_in({"learning_rate": 1.0, "decay_steps": 3}) == {"learning_rate": 1.0}


@pytest.mark.parametrize("name", optimizers.names())
def test_decoupled_decay_shrinks_the_weights(name: str) -> None:
    """With the same gradients, a step with weight decay adds what one without adds, and multiplies
    by 1 - learning rate · weight decay before or after (soap) it; so it is nowhere else."""
    optimizer = optimizers.get(name)
    assert optimizer.decoupled_decay is not None
    rate, decay, steps = 0.01, 0.5, 5
    paths = []
    for given in (0.0, decay):
        torch.manual_seed(0)
        weights = torch.nn.Parameter(torch.randn(4, 4, dtype=torch.float64))
        start = weights.detach().clone()
        values = {"learning_rate": rate, "weight_decay": given, "momentum": 0.9, "epsilon": 1e-3}
        run: Any = optimizer.module(
            [("weight", weights)], {n: v for n, v in values.items() if n in optimizer.arguments}
        )
        path = [start]
        for _ in range(steps):
            weights.grad = torch.randn(4, 4, dtype=torch.float64)
            run.step()
            path.append(weights.detach().clone())
        paths.append(path)
    without, with_decay = paths
    shrink = 1 - rate * decay
    errors = []
    for t in range(1, steps):  # the first step of soap only fills its preconditioner
        added = without[t + 1] - without[t]
        before = with_decay[t] * shrink + added
        after = (with_decay[t] + added) * shrink
        errors.append(min(float((with_decay[t + 1] - w).abs().max()) for w in (before, after)))
    assert (max(errors) < 1e-12) == optimizer.decoupled_decay, errors


def test_effective_learning_rate() -> None:
    assert optimizers.get("sgd").effective_learning_rate({"learning_rate": 0.1}) == 0.1
    values = {"learning_rate": 0.1, "momentum": 0.9}
    for name in ("momentum", "nesterov"):
        found = optimizers.get(name).effective_learning_rate(values)
        assert found == pytest.approx(1.0)
    assert optimizers.get("adam").effective_learning_rate({"learning_rate": 0.1}) is None


def test_torchs_own_by_class_name() -> None:
    one = optimizers.get("RMSprop")
    assert {"learning_rate", "alpha", "epsilon", "momentum"} <= one.arguments
    parameter = torch.nn.Parameter(torch.zeros(1))
    made = one.module([("weight", parameter)], {"learning_rate": 0.5, "alpha": 0.7})
    assert (made.param_groups[0]["lr"], made.param_groups[0]["alpha"]) == (0.5, 0.7)
    nadam = optimizers.get("NAdam").module(
        [("weight", parameter)], {"learning_rate": 0.1, "beta2": 0.5}
    )
    assert nadam.param_groups[0]["betas"] == (0.9, 0.5)


def test_ones_own_file_brings_arguments_and_space(tmp_path: Path) -> None:
    (tmp_path / "my_opt.py").write_text(
        "import torch\n"
        "class Sophia(torch.optim.SGD):\n"
        "    space = {'learning_rate': {'log': [1e-3, 1]}}\n"
        "    def __init__(self, params, lr=0.1, rho=0.5):\n"
        "        super().__init__(params, lr=lr)\n"
    )
    one = optimizers.get("my_opt.py:Sophia", str(tmp_path))
    assert one.arguments == {"learning_rate", "rho"}
    assert one.space == {"learning_rate": {"log": [1e-3, 1]}}


def test_a_class_that_a_script_defines_below_its_sweep(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import batchscale as bs\n"
        "import torch\n"
        "class Above(torch.optim.SGD): ...\n"
        "bs.sweep('no-such')\n"
        "class Below(torch.optim.SGD): ...\n"
    )
    assert "learning_rate" in optimizers.get("script.py:Above", str(tmp_path)).arguments
    with pytest.raises(WorkloadError, match=r"script.py defines 'Below' only after line 4"):
        optimizers.get("script.py:Below", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("momentum", torch.optim.SGD),
        ("nesterov", torch.optim.SGD),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
    ],
)
def test_defaults_of_the_registered_are_torchs(
    name: str, kind: type[torch.optim.Optimizer]
) -> None:
    ours, theirs = optimizers.get(name), optimizers.get(kind.__name__)
    expected = {k: v for k, v in theirs.defaults.items() if k in ours.arguments}
    # torch's momentum of 0 is none, and no optimizer of that name: it has to be given.
    assert ours.defaults == {k: v for k, v in expected.items() if k != "momentum"}
    assert theirs.defaults["learning_rate"] == 1e-3
    given = ours.arguments_in({**ours.defaults, "momentum": 0.9})
    made = ours.module([("weight", torch.nn.Parameter(torch.zeros(1)))], given)
    constructor: Any = kind
    plain = constructor([torch.nn.Parameter(torch.zeros(1))])
    for argument in ("lr", "weight_decay", "betas", "eps"):
        assert made.param_groups[0].get(argument) == plain.param_groups[0].get(argument)


def test_defaults_are_those_of_the_constructor(tmp_path: Path) -> None:
    (tmp_path / "my_opt.py").write_text(
        "import torch\n"
        "class Mine(torch.optim.SGD):\n"
        "    def __init__(self, params, rho, lr=0.3, betas=(0.8, 0.99), eps=1e-7, kind='plain',\n"
        "                 rate=None, foreach=None, maximize=False):\n"
        "        super().__init__(params, lr=lr)\n"
        "        self.given = (rho, lr, betas, eps, kind, rate)\n"
    )
    mine = optimizers.get("my_opt.py:Mine", str(tmp_path))
    assert mine.defaults == {
        "learning_rate": 0.3,
        "beta1": 0.8,
        "beta2": 0.99,
        "epsilon": 1e-7,
        "kind": "plain",
    }
    weight = [("weight", torch.nn.Parameter(torch.zeros(1)))]
    made = mine.module(weight, {"rho": 2, "beta2": 0.9, "learning_rate": 1.0})
    assert made.given == (2, 1.0, (0.8, 0.9), 1e-7, "plain", None)  # type: ignore[attr-defined]
    with pytest.raises(ExperimentError, match=r"my_opt.py:Mine needs a value of rho") as caught:
        mine.module(weight, {"learning_rate": 1.0})
    assert "search: {rho: …}" in str(caught.value.hint)
