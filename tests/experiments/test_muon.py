"""Muon for hidden matrices, AdamW for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path


def of(folder: Path, name: str, **changes: Any) -> Any:
    workload = WorkloadRef(spec=f"mine.py:{name}", base=str(folder))
    return study(workload=workload, optimizer="muon", **{"batch_size": 16, **changes})


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


def test_the_module_engine_is_torchs_muon_and_adamw(folder: Path) -> None:
    a_study = of(folder, "Grouped", batch_size=50)
    (trial,) = trials(a_study, 1)
    ours = engine("module", a_study, (trial,))
    ours.advance(20)
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


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("shape", [(64, 64), (17, 40), (1, 9), (48, 192), (10, 7)])
def test_a_matrix_does_not_depend_on_its_batch(shape: tuple[int, int]) -> None:
    """At every width of the ladder, and at every place in it."""
    rows, size = sorted(shape)
    draw = torch.Generator().manual_seed(3)
    matrices = torch.randn(24, 2, rows, size, generator=draw).to(torch.bfloat16)
    steps = torch.full((24, 2), 5)
    whole = orthogonalized(matrices, steps, 5, 5)
    for width in (2, 3, 4, 6, 8, 12, 16):
        assert torch.equal(orthogonalized(matrices[:width], steps[:width], 5, 5), whole[:width])
    order = torch.randperm(24, generator=draw)
    assert torch.equal(orthogonalized(matrices[order], steps, 5, 5), whole[order])


def test_a_separate_rate(folder: Path) -> None:
    """``adamw.learning_rate`` moves the vectors alone."""
    a_study = of(folder, "Deep", precision="float64")
    rates: dict[str, Any] = {"learning_rate": 0.01, "adamw.learning_rate": 0.002}
    separate = engine("module", a_study, trials(a_study, 1, **rates))
    shared = engine("module", a_study, trials(a_study, 1, learning_rate=0.01))
    for each in (separate, shared):
        each.advance(1)
    for name, value in separate.weights(0).items():
        assert torch.equal(value, shared.weights(0)[name]) == name.endswith("weight")


def test_convolution_kernels_and_vectors_go_to_adamw() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Linear(2, 3, bias=False))
    made: Any = optimizers.get("muon").module(model.named_parameters(), {"learning_rate": 0.1})
    muon, adamw = made.parts
    assert isinstance(muon, torch.optim.Muon)
    assert isinstance(adamw, torch.optim.AdamW)
    sizes = [
        [p.ndim for group in part.param_groups for p in group["params"]] for part in made.parts
    ]
    assert sizes == [[2], [4, 1]]


def test_a_stage_of_a_pipeline_may_have_no_hidden_matrix() -> None:
    embedding = [("0.weight", torch.nn.Parameter(torch.ones(5, 2)))]
    made: Any = optimizers.get("muon").module(
        embedding, {"learning_rate": 0.1}, {"0.weight": {"hidden": 0.0}}
    )
    (adamw,) = made.parts
    assert isinstance(adamw, torch.optim.AdamW)


def test_adamw_has_a_rate_and_a_decay_of_its_own() -> None:
    named = [("a", torch.nn.Parameter(torch.ones(2, 2))), ("b", torch.nn.Parameter(torch.ones(2)))]
    own: dict[str, Any] = {"adamw.learning_rate": 0.2, "adamw.weight_decay": 0.3, "beta1": 0.5}
    made: Any = optimizers.get("muon").module(named, {"learning_rate": 0.1, **own})
    matrices, rest = made.param_groups
    assert (matrices["lr"], matrices["weight_decay"]) == (0.1, 0.1)
    assert (rest["lr"], rest["weight_decay"], rest["betas"]) == (0.2, 0.3, (0.5, 0.999))


def test_options_name_what_is_not_hidden() -> None:
    weights = {"a.weight": torch.zeros(3, 2), "b.weight": torch.zeros(2, 3)}
    named = [(name, torch.nn.Parameter(value)) for name, value in weights.items()]
    made: Any = optimizers.get("muon").module(
        named, {"learning_rate": 0.1}, {"a.weight": {HIDDEN: 0.0}}
    )
    assert [len(part.param_groups[0]["params"]) for part in made.parts] == [1, 1]
    assert made.parts[1].param_groups[0]["params"][0] is named[0][1]
