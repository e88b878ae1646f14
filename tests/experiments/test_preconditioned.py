"""Shampoo and SOAP: the library's steps, by the module engine."""

from __future__ import annotations

from typing import Any

import pytest
import pytorch_optimizer
import torch

from batchscale.names import listed
from experiments.engines.selection import choose, preferred
from experiments.seeds import derive
from experiments.training.batch_order import BatchOrder
from experiments.training.study_context import StudyContext
from tests.problems import engine, largest_difference, study, tensors, trials
from workloads import load

NAMES = {"shampoo": pytorch_optimizer.Shampoo, "soap": pytorch_optimizer.SOAP}


@pytest.mark.parametrize("name", NAMES)
def test_the_module_engine_takes_the_librarys_steps(name: str) -> None:
    of = study(optimizer=name, batch_size=50)
    (trial,) = trials(of, 1)
    ours = engine("module", of, (trial,))
    ours.advance(14)  # over a refresh of the eigenbases
    x, y = tensors(load("digits-softmax").data()["train"])
    with torch.random.fork_rng():
        torch.manual_seed(derive(trial.seed, "init"))
        model = load("digits-softmax").model()
    m: dict[str, Any] = {**trial.metaparameters}
    given: dict[str, Any] = {"lr": m["learning_rate"], "weight_decay": m["weight_decay"]}
    given |= {"betas": (m["beta1"], m["beta2"])} if name == "soap" else {"momentum": m["momentum"]}
    theirs = NAMES[name](model.parameters(), **given)
    order = BatchOrder(trial.seed, len(x), 50)
    for step in range(14):
        batch = order.batches(step, 1)[0]
        theirs.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch], reduction="sum")
        (loss / 50).backward()
        theirs.step()
    for parameter, value in model.state_dict().items():
        assert torch.equal(value, ours.weights(0)[parameter])


@pytest.mark.parametrize("name", NAMES)
def test_a_stack_has_an_optimizer_for_each_model(name: str) -> None:
    """SOAP's QR is in float32, whatever the precision."""
    of = study(optimizer=name, precision="float64")
    pack = trials(of, 3)
    module, stacked = engine("module", of, pack), engine("stacked", of, pack)
    for trained in (module, stacked):
        trained.advance(12)
    for row in range(3):
        assert largest_difference(module.weights(row), stacked.weights(row)) < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_the_module_engine_is_chosen_and_listed(name: str) -> None:
    of = study(optimizer=name, batch_size=8)
    pack = trials(of, 8)
    assert choose(StudyContext.load(of), pack) == "module"
    other = StudyContext.load(study(optimizer="adamw", batch_size=8))
    assert preferred(other, pack[0]) == "stacked"
    assert "; trains by the module engine: no gain from stacking" in listed("optimizers")[name]
    assert "module engine" not in listed("optimizers")["muon"]
