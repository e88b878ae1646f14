"""The registry of optimizers, and users' own."""

from __future__ import annotations

from pathlib import Path

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
    assert one.own({"learning_rate": 1.0, "decay_steps": 3}) == {"learning_rate": 1.0}


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
    made = one.module([parameter], {"learning_rate": 0.5, "alpha": 0.7})
    assert (made.param_groups[0]["lr"], made.param_groups[0]["alpha"]) == (0.5, 0.7)
    nadam = optimizers.get("NAdam").module([parameter], {"learning_rate": 0.1, "beta2": 0.5})
    assert nadam.param_groups[0]["betas"] == (0.9, 0.5)


def test_ones_own_file_brings_arguments_and_space(tmp_path: Path) -> None:
    (tmp_path / "my_opt.py").write_text(
        "import torch\n"
        "class Sophia(torch.optim.SGD):\n"
        "    space = {'learning_rate': {'log': [1e-3, 1]}}\n"
        "    def __init__(self, params, lr=0.1, rho=0.5):\n"
        "        super().__init__(params, lr=lr)\n"
        "NotOne = 3\n"
    )
    one = optimizers.get("my_opt.py:Sophia", str(tmp_path))
    assert one.arguments == {"learning_rate", "rho"}
    assert one.space == {"learning_rate": {"log": [1e-3, 1]}}
    for name, message, hint in [
        ("my_opt.py:Sofia", "has no class 'Sofia'", "did you mean 'Sophia'?"),
        ("other.py:Sophia", "no file 'other.py'", "a path starts at its experiment file"),
        ("my_opt.py:NotOne", "is not a class of torch.optim.Optimizer", "subclass"),
        ("momentun", "unknown optimizer 'momentun'", "did you mean 'momentum'?"),
        ("LBFGS", "evaluates the loss several times a step", "first-order"),
    ]:
        with pytest.raises(ExperimentError, match=message) as caught:
            optimizers.get(name, str(tmp_path))
        assert hint in (caught.value.hint or "")


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
