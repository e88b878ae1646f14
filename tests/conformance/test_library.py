"""An optimizer in the module engine is the library's class in a bare loop, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytorch_optimizer
import torch

import workloads
from experiments import optimizers, schedules
from experiments.optimizers.groups import parameter_options
from experiments.plan import Study, Trial, WorkloadRef
from experiments.seeds import derive
from experiments.training.batch_order import BatchOrder
from tests.problems import engine, study, tensors, trials

Values = Mapping[str, Any]
GROUPS: dict[str, dict[str, float]] = {
    "0.weight": {},
    "0.bias": {"weight_decay": 0.0},
    "2.weight": {"momentum": 0.3, "beta1": 0.2, "factor": 0.5},
    "2.bias": {"weight_decay": 0.0},
}
"""What ``Grouped`` of the users' file says of each parameter."""


def _sgd(m: Values) -> dict[str, Any]:
    return {"momentum": m.get("momentum", 0.0)}


def _adam(m: Values) -> dict[str, Any]:
    return {"betas": (m["beta1"], m["beta2"])}


BY_HAND: dict[str, tuple[type[torch.optim.Optimizer], Callable[[Values], dict[str, Any]]]] = {
    "sgd": (torch.optim.SGD, lambda _: {}),
    "momentum": (torch.optim.SGD, _sgd),
    "nesterov": (torch.optim.SGD, lambda m: {**_sgd(m), "nesterov": True}),
    "adam": (torch.optim.Adam, _adam),
    "adamw": (torch.optim.AdamW, _adam),
    "nadam": (torch.optim.NAdam, _adam),
    "shampoo": (pytorch_optimizer.Shampoo, lambda _: {}),
    "soap": (pytorch_optimizer.SOAP, _adam),
}
"""Classes and arguments written out; of other optimizers, ``Optimizer.module`` makes them."""


def bare(of: Study, trial: Trial, made: torch.optim.Optimizer, model: Any, steps: int) -> Any:
    """The weights after a loop as anybody writes it."""
    x, y = tensors(workloads.load("digits-mlp").data()["train"])
    order = BatchOrder(trial.seed, len(x), of.batch_size)
    factors = schedules.get(of.schedule).factor_of(trial.metaparameters)
    rates = [group["lr"] for group in made.param_groups]
    for step in range(steps):
        (batch,) = order.batches(step, 1)
        for group, rate in zip(made.param_groups, rates, strict=True):
            group["lr"] = rate * factors(step)
        made.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch], reduction="sum")
        (loss / of.batch_size).backward()
        made.step()
    return model.state_dict()


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("optimizer", optimizers.names())
def test_the_module_engine_is_the_librarys_class(base: Path, optimizer: str, grouped: bool) -> None:
    ref = WorkloadRef(spec="grouped.py:Grouped" if grouped else "digits-mlp", base=str(base))
    number = list(BY_HAND).index(optimizer) + 5 * grouped if optimizer in BY_HAND else 0
    schedule = schedules.names()[number % len(schedules.names())]
    of = study(workload=ref, optimizer=optimizer, schedule=schedule, batch_size=50)
    (trial,) = trials(of, 1)
    ours = engine("module", of, (trial,))
    ours.advance(14)  # over a refresh of SOAP's eigenbases
    with torch.random.fork_rng():
        torch.manual_seed(derive(trial.seed, "init"))
        model = workloads.load("digits-mlp").model()
    named = dict(model.named_parameters())
    m = trial.metaparameters
    if optimizer in BY_HAND:
        kind, arguments = BY_HAND[optimizer]
        groups = []
        for name, parameter in named.items():
            values: dict[str, Any] = {**m, **(GROUPS[name] if grouped else {})}
            rate = values["learning_rate"] * values.pop("factor", 1.0)
            group = {"lr": rate, "weight_decay": values["weight_decay"], **arguments(values)}
            groups.append({"params": [parameter], **group})
        made = kind(groups, **{k: v for k, v in groups[0].items() if k != "params"})
    else:
        workload = ours.context.workload
        options = parameter_options(optimizers.get(optimizer), workload, named)
        made = optimizers.get(optimizer).module(named.items(), m, options)
    for name, value in bare(of, trial, made, model, 14).items():
        assert torch.equal(value, ours.weights(0)[name]), name
