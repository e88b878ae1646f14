"""Optimizers of users' own, those of the documentation, and groups of parameters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from experiments.config.compile import load
from experiments.engines import stacking_refusal
from experiments.errors import ExperimentError
from experiments.optimizers import get
from experiments.optimizers.base import RATE_FACTOR
from experiments.optimizers.groups import parameter_options
from experiments.plan import Study, WorkloadRef
from experiments.training.study_context import StudyContext
from tests.batchscale.blocks import blocks
from tests.problems import engine, largest_difference, study, trials

KINDS = ["module", "stacked"]

RULES = """
import torch


class Split(torch.optim.SGD):
    \"\"\"Groups of its own making, with a rate each.\"\"\"

    def __init__(self, params, lr=0.1, ratio=0.25, momentum=0.9):
        params = list(params)
        groups = [
            {"params": [p for p in params if p.ndim == 2]},
            {"params": [p for p in params if p.ndim < 2], "lr": lr * ratio},
        ]
        super().__init__(groups, lr=lr, momentum=momentum)


class Named(torch.optim.SGD):
    def __init__(self, named_parameters, lr=0.1):
        self.seen = [name for name, p in named_parameters if isinstance(p, torch.nn.Parameter)]
        super().__init__(named_parameters, lr=lr)
        assert self.param_groups[0]["param_names"] == self.seen


class Further(torch.optim.SGD):
    def __init__(self, params, lr=0.1, *, named_parameters=()):
        pairs = dict(named_parameters)
        assert [id(p) for p in params] == [id(p) for p in pairs.values()]
        self.seen = list(pairs)
        super().__init__(params, lr=lr)


class Inner(torch.optim.Optimizer):
    \"\"\"Two of torch's inside: matrices to one, the rest to the other.\"\"\"

    def __init__(self, params, lr=0.1, adam_lr=0.01):
        params = list(params)
        super().__init__(params, {"lr": lr})
        matrices = [p for p in params if p.ndim == 2]
        rest = [p for p in params if p.ndim < 2]
        self.parts = [torch.optim.SGD(matrices, lr=lr, momentum=0.9)]
        self.parts += [torch.optim.Adam(rest, lr=adam_lr)]
        self._share()

    def _share(self):
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure=None):
        for part in self.parts:
            part.step()

    def state_dict(self):
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state):
        for part, held in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(held)
        self._share()


class Flat(torch.optim.SGD):
    \"\"\"It wants each parameter's memory for itself, which a view of a stack has not.\"\"\"

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.untyped_storage().nbytes() != p.nbytes:
                raise ValueError("a parameter shares its memory")
        return super().step()


class Broken(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)

    def step(self, closure=None):
        raise KeyError("rho")


class Forgetful(Inner):
    \"\"\"Its parts keep what they know, and it does not save them.\"\"\"

    def state_dict(self):
        return torch.optim.Optimizer.state_dict(self)

    def load_state_dict(self, state):
        torch.optim.Optimizer.load_state_dict(self, state)


class Holding(torch.optim.SGD):
    \"\"\"It moves the memory that its parameters had when it was made.\"\"\"

    def __init__(self, params, lr=0.1):
        params = list(params)
        super().__init__(params, lr=lr)
        self.held = [p.data for p in params]

    def step(self, closure=None):
        for p, data in zip(self.param_groups[0]["params"], self.held):
            data.sub_(p.grad, alpha=self.param_groups[0]["lr"])


class Rateless(torch.optim.Optimizer):
    space = {"size": {"log": [0.01, 0.1]}}

    def __init__(self, params, size=0.1):
        super().__init__(params, {"size": size})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["size"])


class Needy(torch.optim.SGD):
    def __init__(self, params, rho, lr=0.1):
        super().__init__(params, lr=lr)
"""
OURS = [f"rules.py:{name}" for name in ("Split", "Named", "Further", "Inner")]
DOCUMENTED = ["my_opt.py:Lion", "muon.py:MuonAdamW"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with these optimizers and with those of the documentation."""
    (tmp_path / "rules.py").write_text(RULES)
    for block in blocks("docs/optimizers.md"):
        if block.language == "python":
            (tmp_path / block.title).write_text(block.text)
    return tmp_path


def of(folder: Path, optimizer: str, **changes: Any) -> Study:
    workload = WorkloadRef(spec="digits-mlp", base=str(folder))
    return study(workload=workload, optimizer=optimizer, **{"batch_size": 16, **changes})


@pytest.mark.parametrize("optimizer", ["rules.py:Named", "rules.py:Further"])
def test_names_in_both_engines(folder: Path, optimizer: str) -> None:
    a_study = of(folder, optimizer)
    pack = trials(a_study, 1)
    module, stacked = engine("module", a_study, pack), engine("stacked", a_study, pack)
    names = [name for name, _ in module.context.model(pack[0]).named_parameters()]
    assert len(names) == 4
    assert module.runs[0].optimizer.seen == names  # type: ignore[attr-defined]
    assert stacked.update.models[0].torch.seen == names  # type: ignore[attr-defined]
    assert "named_parameters" not in get(optimizer, str(folder)).arguments


def test_an_optimizer_that_no_stack_suits(folder: Path) -> None:
    a_study = of(folder, "rules.py:Flat")
    pack = trials(a_study, 2)
    with pytest.raises(ExperimentError) as caught:
        engine("stacked", a_study, pack)
    says = "optimizer rules.py:Flat cannot be stacked: a parameter shares its memory"
    assert str(caught.value) == says
    assert "engine: module" in str(caught.value.hint)
    reason = stacking_refusal(StudyContext.load(a_study), pack)
    assert reason == "optimizer rules.py:Flat: a parameter shares its memory"
    engine("auto", a_study, pack).advance(2)


def test_an_optimizer_that_holds_on_to_memory(folder: Path) -> None:
    """The rows of a stack move: it would train weights that nobody reads any more."""
    a_study = of(folder, "rules.py:Holding")
    pack = trials(a_study, 2)
    reason = r"its steps differ from those of a single model \(parameters change their place"
    with pytest.raises(ExperimentError, match=f"cannot be stacked: {reason}"):
        engine("stacked", a_study, pack)
    engine("module", a_study, pack).advance(1)


@pytest.mark.parametrize("kind", ["stacked", "auto"])
def test_an_optimizer_that_fails_anyway_raises_its_own_error(folder: Path, kind: str) -> None:
    a_study = of(folder, "rules.py:Broken")
    with pytest.raises(KeyError, match="rho") as caught:
        engine(kind, a_study, trials(a_study, 2)).advance(1)
    assert Path(caught.traceback[-1].path) == folder / "rules.py"


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimizer_without_a_learning_rate(folder: Path, kind: str) -> None:
    a_study = of(folder, "rules.py:Rateless", precision="float64")
    pack = trials(a_study, 2, size=0.05)
    plain = of(folder, "sgd", precision="float64")
    twins = trials(plain, 2, learning_rate=0.05, weight_decay=0.0)
    trained, other = engine(kind, a_study, pack), engine(kind, plain, twins)
    for each in (trained, other):
        each.advance(8)
    assert largest_difference(trained.weights(0), other.weights(0)) < 1e-12
    decaying = of(folder, "rules.py:Rateless", schedule="linear")
    with pytest.raises(ExperimentError, match=r"rules.py:Rateless keeps no 'lr' in its parameter"):
        engine(kind, decaying, trials(decaying, 2)).advance(8)


def test_the_documentations_adamw_is_torchs() -> None:
    """Of a model without matrices; its Muon moves by half-orthogonal steps, as torch's does."""
    scope: dict[str, Any] = {}
    (block,) = [b for b in blocks("docs/optimizers.md") if b.title == "muon.py"]
    exec(block.text, scope)

    def both_step(times: int) -> None:
        for step in range(times):
            for p in (first, second):
                p.grad = torch.sin(p.detach() * (step + 1))
            ours.step()
            theirs.step()

    first, second = (torch.nn.Parameter(torch.linspace(-1, 1, 9)) for _ in range(2))
    ours = scope["MuonAdamW"]([("bias", first)], adamw_lr=0.1)
    theirs: torch.optim.Optimizer = torch.optim.AdamW([second], lr=0.1, betas=(0.9, 0.95))
    both_step(20)
    assert torch.allclose(first, second, atol=1e-6)
    first, second = (torch.nn.Parameter(torch.randn(6, 4).cumsum(0)) for _ in range(2))
    second.data.copy_(first.data)
    ours = scope["MuonAdamW"]([("weight", first)], lr=0.1)
    theirs = torch.optim.Muon([second], lr=0.1, momentum=0.95, weight_decay=0.0)
    both_step(5)
    assert torch.allclose(first, second, atol=0.05)  # torch's orthogonalizes in bfloat16
    embedding = torch.nn.Parameter(torch.randn(6, 4))
    made = scope["MuonAdamW"]([("embedding.weight", embedding), ("weight", first)])
    assert [group["matrices"] for group in made.param_groups] == [True, False]
    assert made.param_groups[1]["params"] == [embedding]


EXPERIMENT = """\
workload: digits-mlp
grid:
  batch_size: 16
  optimizer:
    - sgd
    - {}
trials: 1
budget: 10 steps
"""


@pytest.mark.parametrize("optimizer", [*OURS, *DOCUMENTED, "rules.py:Rateless", "NAdam"])
def test_who_needs_nothing_passes(folder: Path, optimizer: str) -> None:
    file = folder / "mine.yaml"
    file.write_text(EXPERIMENT.format(optimizer))
    assert len(load(file).studies()) == 2


def test_what_a_users_constructor_raises_is_raised_before_training(folder: Path) -> None:
    raising = RULES.replace("params = list(params)", "raise LookupError('no such group')")
    (folder / "rules.py").write_text(raising)
    file = folder / "mine.yaml"
    file.write_text(EXPERIMENT.format("rules.py:Split"))
    with pytest.raises(LookupError, match="no such group") as caught:
        load(file).studies()
    assert Path(caught.traceback[-1].path) == folder / "rules.py"


GROUPED = """
import torch
from batchscale import Technique
from workloads.digits import DigitsMLP


class Grouped(DigitsMLP):
    '''No decay for biases; the last layer at half the rate, with averages of its own.'''

    target = "validation_error < 0.1"

    def parameter_groups(self, named_parameters):
        assert {p.ndim for p in named_parameters.values()} == {1, 2}
        return {
            "*.bias": {"weight_decay": 0.0},
            "2.*": {"learning_rate_factor": 0.5, "momentum": 0.3, "beta1": 0.2},
        }


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
    (tmp_path / "own.py").write_text(GROUPED)
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
