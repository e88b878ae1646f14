"""Muon for hidden matrices, AdamW for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import _muon

from experiments import optimizers
from experiments.optimizers.base import HIDDEN
from experiments.optimizers.muon import orthogonalized
from experiments.plan import WorkloadRef
from experiments.seeds import derive
from experiments.training.batch_order import BatchOrder
from tests.problems import engine, study, tensors, trials
from workloads import load

FILE = """
import torch
from workloads.digits import DigitsMLP, DigitsSoftmax


class Grouped(DigitsMLP):
    '''The last layer is no hidden one; biases have no decay, the first layer its own options.'''

    target = "validation_error < 0.1"

    def parameter_groups(self, named_parameters):
        return {
            "*.bias": {"weight_decay": 0.0},
            "2.weight": {"hidden": False, "beta1": 0.3},
            "0.weight": {"momentum": 0.5, "learning_rate_factor": 0.5, "ns_steps": 3},
        }


class Deep(DigitsMLP):
    '''Tall, wide and square matrices, some of one shape.'''

    target = "validation_error < 0.1"

    def model(self):
        sizes = [64, 24, 24, 24, 64, 24, 10]
        layers = [torch.nn.Linear(*pair) for pair in zip(sizes, sizes[1:])]
        both = [part for layer in layers for part in (layer, torch.nn.Tanh())]
        return torch.nn.Sequential(*both[:-1])
"""


@pytest.mark.parametrize("shape", [(64, 64), (16, 48), (32, 256), (10, 24), (9, 12), (1, 5)])
def test_the_iteration_is_torchs(shape: tuple[int, int]) -> None:
    """But for the last bit of single entries, where a shape is ragged."""
    rows, size = shape
    matrices = torch.randn(6, 4, rows, size, generator=torch.Generator().manual_seed(1))
    steps = torch.full((6, 4), 5)
    steps[2] = 3
    ours = orthogonalized(matrices.to(torch.bfloat16), steps, 3, 5)
    for model, its_steps in zip(range(6), steps[:, 0].tolist(), strict=True):
        for each in range(4):
            coefficients = _muon.DEFAULT_A, _muon.DEFAULT_B, _muon.DEFAULT_C
            theirs = _muon._zeropower_via_newtonschulz(
                matrices[model, each], coefficients, its_steps, _muon.EPS
            )
            difference = (ours[model, each].float() - theirs.float()).abs()
            assert float(difference.max()) < 0.03
            assert float((difference > 0).float().mean()) < 0.1


def test_the_module_engine_is_torchs_muon_and_adamw(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    ref = WorkloadRef(spec="mine.py:Grouped", base=str(tmp_path))
    a_study = study(workload=ref, optimizer="muon", batch_size=50)
    (trial,) = trials(a_study, 1)
    ours = engine("module", a_study, (trial,), steps=20)
    x, y = tensors(load("digits-mlp").data()["train"])
    with torch.random.fork_rng():
        torch.manual_seed(derive(trial.seed, "init"))
        model = load("digits-mlp").model()
    m: dict[str, Any] = {**trial.metaparameters}
    first, first_bias, last, last_bias = model.parameters()
    muon = torch.optim.Muon(
        [first],
        lr=0.5 * m["learning_rate"],
        momentum=0.5,
        weight_decay=m["weight_decay"],
        ns_steps=3,
        adjust_lr_fn="match_rms_adamw",
    )
    groups: list[dict[str, Any]] = [
        {"params": [first_bias, last_bias], "weight_decay": 0.0},
        {"params": [last], "betas": (0.3, m["beta2"])},
    ]
    adamw = torch.optim.AdamW(
        groups,
        lr=m["learning_rate"],
        betas=(m["beta1"], m["beta2"]),
        weight_decay=m["weight_decay"],
    )
    order = BatchOrder(trial.seed, len(x), 50)
    for step in range(20):
        batch = order.batches(step, 1)[0]
        model.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch], reduction="sum")
        (loss / 50).backward()
        muon.step()
        adamw.step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, ours.weights(0)[name])


@pytest.mark.parametrize("name", ["module", "stacked"])
def test_the_last_matrix_is_the_output_layers_unless_the_workload_says(name: str) -> None:
    """AdamW's first step moves each of its entries alike; Muon's is an orthogonal factor."""
    a_study = study(workload="digits-mlp", optimizer="muon")
    (trial,) = trials(a_study, 1)
    with torch.random.fork_rng():
        torch.manual_seed(derive(trial.seed, "init"))
        model = load("digits-mlp").model()
    after = engine(name, a_study, (trial,), steps=1).weights(0)
    for layer, is_hidden in (("0", True), ("2", False)):
        before = model.get_parameter(f"{layer}.weight").detach()
        moved = (after[f"{layer}.weight"].detach() - before).abs()
        assert (float(moved.max()) > 2 * float(moved.median())) == is_hidden


@pytest.mark.parametrize(
    ("model", "options", "hidden", "rest"),
    [
        # Convolution kernels and vectors go to AdamW.
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(2, 3)), {}, ["1.weight"],
         ["0.weight", "0.bias", "1.bias"]),
        # What a workload calls not hidden, too; a stage of a pipeline may have no other.
        (nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2, bias=False)), {"0.weight": {HIDDEN: 0.0}},
         ["1.weight"], ["0.weight", "0.bias"]),
        (nn.Sequential(nn.Embedding(5, 2)), {"0.weight": {HIDDEN: 0.0}}, [], ["0.weight"]),
    ],
)  # fmt: skip
def test_hidden_matrices_go_to_muon(
    model: nn.Module, options: Any, hidden: list[str], rest: list[str]
) -> None:
    named = dict(model.named_parameters())
    made: Any = optimizers.get("muon").module(named.items(), {"learning_rate": 0.1}, options)
    names = {id(parameter): name for name, parameter in named.items()}
    parts = {
        type(part): {names[id(p)] for group in part.param_groups for p in group["params"]}
        for part in made.parts
    }
    expected = {torch.optim.Muon: {*hidden}, torch.optim.AdamW: {*rest}}
    assert parts == {kind: taken for kind, taken in expected.items() if taken}


def test_adamw_has_a_rate_and_a_decay_of_its_own() -> None:
    named = [("a", torch.nn.Parameter(torch.ones(2, 2))), ("b", torch.nn.Parameter(torch.ones(2)))]
    own: dict[str, Any] = {"adamw.learning_rate": 0.2, "adamw.weight_decay": 0.3, "beta1": 0.5}
    made: Any = optimizers.get("muon").module(named, {"learning_rate": 0.1, **own})
    matrices, rest = made.param_groups
    assert (matrices["lr"], matrices["weight_decay"]) == (0.1, 0.1)
    assert (rest["lr"], rest["weight_decay"], rest["betas"]) == (0.2, 0.3, (0.5, 0.999))
