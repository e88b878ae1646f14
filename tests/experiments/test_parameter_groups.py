"""Which parameters get which options: as torch's own parameter groups, in both engines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from experiments.errors import ExperimentError
from experiments.optimizers import get
from experiments.optimizers.base import RATE_FACTOR
from experiments.optimizers.groups import parameter_options
from experiments.plan import WorkloadRef
from experiments.training.study_context import StudyContext
from tests.problems import engine, largest_difference, study, trials

FILE = """
import torch
from batchscale import Technique
from workloads.digits import DigitsMLP


class Grouped(DigitsMLP):
    '''No decay for biases; the last layer at half the rate, with averages of its own.'''

    target = "validation_error < 0.1"

    def parameter_groups(self, named_parameters):
        assert [p.ndim for p in named_parameters.values()] == [2, 1, 2, 1]
        return {
            "*.bias": {"weight_decay": 0.0},
            "2.*": {"learning_rate_factor": 0.5, "momentum": 0.3, "beta1": 0.2},
        }


class Wrong(DigitsMLP):
    target = "validation_error < 0.1"
    pattern: str = "*.bias"
    option: str = "weight_decay"

    def parameter_groups(self, named_parameters):
        return {self.pattern: {self.option: 0.0}}


class Signed(torch.optim.Optimizer):
    '''Signs for matrices, plain steps for the rest.'''

    def __init__(self, params, lr=0.01, weight_decay=0.0, signed=1.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "signed": signed})

    @staticmethod
    def parameter_groups(named_parameters):
        return {n: {"signed": 0.0} for n, p in named_parameters.items() if p.ndim < 2}

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                update = torch.tanh(50 * p.grad) if group["signed"] else p.grad
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=group["lr"])


class Slow(Technique):
    '''Weights at a smaller rate.'''

    factor: float

    def parameter_groups(self, named_parameters):
        return {"*.weight": {"learning_rate_factor": self.factor}}
"""


@pytest.fixture
def own(tmp_path: Path) -> WorkloadRef:
    (tmp_path / "own.py").write_text(FILE)
    return WorkloadRef(spec="own.py:Grouped", base=str(tmp_path))


def test_a_techniques_factors_multiply_those_of_the_workload(own: WorkloadRef) -> None:
    of = study(workload=own, optimizer="adamw", technique={"own.py:Slow": 0.1})
    context, pack = StudyContext.load(of), trials(of, 2)
    named = dict(context.model(pack[0]).named_parameters())
    options = parameter_options(
        context.optimizer, context.workload, named, context.techniques, list(named)
    )
    factors = {name: given.get(RATE_FACTOR, 1.0) for name, given in options.items()}
    assert factors == {"0.weight": 0.1, "0.bias": 1.0, "2.weight": 0.05, "2.bias": 1.0}
    module, stacked = engine("module", of, pack), engine("stacked", of, pack)
    for one in (module, stacked):
        one.advance(10)
    assert largest_difference(module.weights(1), stacked.weights(1)) < 2e-3


def test_a_deep_models_parameters_are_listed_by_block() -> None:
    named = {f"blocks.{i}.{part}": torch.zeros(2) for i in range(7) for part in ("up", "down")}
    for pattern, hint in (("block.3.up", "'blocks.3.up'"), ("none", "known: blocks.*.up, blocks")):
        groups = {pattern: {"weight_decay": 0.0}}
        workload = SimpleNamespace(name="deep", parameter_groups=lambda _, groups=groups: groups)
        with pytest.raises(ExperimentError, match=f"no parameter is called '{pattern}'") as caught:
            parameter_options(get("sgd"), workload, named)
        assert hint in (caught.value.hint or "")


def test_an_option_that_an_optimizer_lacks_is_passed_over(own: WorkloadRef) -> None:
    ref = WorkloadRef(spec="own.py:Wrong", fields={"option": "beta2"}, base=own.base)
    of = study(workload=ref, optimizer="sgd")
    plain = study(workload="digits-mlp", optimizer="sgd")
    for kind in ("module", "stacked"):
        pair = [engine(kind, each, trials(of, 2)) for each in (of, plain)]
        for one in pair:
            one.advance(5)
        assert largest_difference(pair[0].weights(1), pair[1].weights(1)) == 0
