"""``layout: {data: N, zero1: true}``: each rank updates some of the parameters, and has their state
alone. The gates of all layouts are in ``test_layouts_gates``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments import optimizers
from experiments.config.compile import load
from experiments.engines import make_engine
from experiments.engines.module import ModuleEngine
from experiments.errors import ExperimentError
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Layout, Study, WorkloadRef
from experiments.training.study_context import StudyContext
from tests.experiments.rank_groups import on_ranks
from tests.experiments.test_layouts_gates import ZERO1, Gate, check, of_user, user
from tests.experiments.test_layouts_state import engine_of
from tests.problems import STACKABLE, study, trials

__all__ = ["user"]

OF_TORCH = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop",
)  # fmt: skip
OWN = """
import torch
from torch import nn
from tests.problems import TinyData
from workloads import Classification


class One(Classification):
    # A single parameter: a second rank has none. It is square, and its gradient has full rank, for
    # the sake of SOAP's bases.
    target = "validation_error < 0.2"
    def data(self): return TinyData.splits()
    def model(self): return nn.Linear(6, 6, bias=False)

    def loss(self, output, batch):
        return (output - nn.functional.one_hot(batch[1], 6)).square().sum(1)


class Joint(torch.optim.Optimizer):
    # The step has the length lr over all parameters.
    def __init__(self, params, lr): super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        parameters = [p for group in self.param_groups for p in group["params"]]
        length = sum(p.grad.square().sum() for p in parameters).sqrt()
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad / length * group["lr"])


class Single(torch.optim.Optimizer):
    # The step of each parameter has the length lr; steps are counted in the groups that have any.
    per_parameter = True

    def __init__(self, params, lr): super().__init__(params, {"lr": lr, "k": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad / p.grad.norm() * group["lr"] / (1 + group["k"]))
            group["k"] += bool(group["params"])
"""


@pytest.fixture
def own(user: str) -> str:
    Path(user, "own.py").write_text(OWN)
    return user


def of_own(own: str, optimizer: str) -> Study:
    ref = WorkloadRef(spec="own.py:One", base=own)
    return study(workload=ref, optimizer=optimizer, precision="float64", batch_size=24)


def held(ranks: Ranks, of: Study) -> tuple[set[str], int, int]:
    """Names of the parameters whose state this rank has, the numbers in it, and those that it would
    have of all parameters."""
    engine = engine_of(ranks, of, ZERO1)
    engine.advance(2)
    (run,) = engine.runs
    optimizer: Any = run.optimizer
    order = [id(p) for group in optimizer.param_groups for p in group["params"]]
    names = [name for name, p in run.model.named_parameters() if p.requires_grad]
    assert not optimizer.state
    mine = {names[order.index(id(p))] for p in optimizer.optim.state}
    return mine, _numbers(optimizer.optim.state), _numbers(optimizer.state_dict()["state"])


def _numbers(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel()
    values = value.values() if isinstance(value, dict) else value
    return sum(map(_numbers, values)) if isinstance(value, dict | list | tuple) else 0


@pytest.mark.slow
def test_no_two_ranks_have_the_state_of_a_parameter(user: str, tmp_path: Path) -> None:
    names = ["adam", "Adagrad", "soap"]
    of = [of_user(user, "Cut", optimizer=name) for name in names]
    first, second = on_ranks(2, held, [(each,) for each in of], tmp_path)
    for (mine, numbers, whole), (others, of_other, _) in zip(first, second, strict=True):
        assert not mine & others
        assert mine | others == {"0.weight", "1.weight", "1.bias", "4.weight", "4.bias"}
        assert numbers + of_other == whole


@pytest.mark.slow
def test_every_optimizer_of_torch(user: str, tmp_path: Path) -> None:
    assert all(optimizers.get(name).per_parameter for name in OF_TORCH)
    check(2, [(of_user(user, "Cut", optimizer=name), ZERO1, 12) for name in OF_TORCH], tmp_path)


@pytest.mark.slow
def test_a_rank_without_any_parameter(own: str, tmp_path: Path) -> None:
    names = [name for name in STACKABLE if name != "muon"]  # its hidden matrices: there are none
    check(2, [(of_own(own, name), ZERO1, 12) for name in names], tmp_path)


@pytest.mark.slow
def test_groups_schedules_and_techniques(own: str, tmp_path: Path) -> None:
    """Each group has its rate, which a schedule changes at every step; techniques have whole
    gradients and weights."""
    gates: list[Gate] = []
    for optimizer in ("adamw", "schedule-free-adamw", "muon", "own.py:Single"):
        technique = {"layer_rates": 0.5, "clip": 0.5, "sam": 0.05, "lookahead": {"every": 3}}
        of = of_user(own, "Cut", optimizer=optimizer, schedule="cosine", technique=technique)
        gates.append((of, ZERO1, 20))
    check(2, gates, tmp_path)


@pytest.mark.slow
def test_steps_that_a_group_counts_are_those_of_a_rank_that_has_it(
    own: str, tmp_path: Path
) -> None:
    """A second rank has no parameter, and there no step is counted."""
    states = on_ranks(2, groups, [(of_own(own, "own.py:Single"),)], tmp_path)
    assert states[0] == states[1]
    assert [group["k"] for group in states[0][0]] == [2]


def groups(ranks: Ranks, of: Study) -> list[dict[str, Any]]:
    engine = engine_of(ranks, of, ZERO1)
    engine.advance(2)
    state: list[dict[str, Any]] = engine.runs[0].copy()["optimizer"]["param_groups"]
    return state


def test_an_optimizer_that_may_need_all_parameters_is_refused(own: str) -> None:
    path = Path(own, "my.yaml")
    text = "workload: cut.py:Cut\ngrid: {{batch_size: 32, optimizer: own.py:{}}}\nlayout: {}\n"
    path.write_text(text.format("Joint", "{data: 2, zero1: true}"))
    with pytest.raises(ExperimentError, match=r"my.yaml:3: layout: zero1 gives .* Joint") as error:
        load(path).plans()
    assert "per_parameter = True" in (error.value.hint or "")
    path.write_text(text.format("Joint", "{data: 2}"))
    assert load(path).plans()
    path.write_text(text.format("Single", "{data: 2, zero1: true}"))
    (plan,) = load(path).plans()
    assert plan.study.layout.dimensions == ZERO1
    of = of_own(own, "own.py:Joint")
    context = StudyContext.load(of)
    assert ModuleEngine(context, trials(of, 1)).kind == "module"
    cut = Layout(workers=2, dimensions=ZERO1)  # as ``layout: auto`` tries it
    with pytest.raises(ExperimentError, match="may need all of them"):
        make_engine("module", replace(context, study=replace(of, layout=cut)), trials(of, 1))


def test_a_single_rank_has_the_plain_optimizer(own: str) -> None:
    engine = engine_of(SOLO, of_own(own, "adam"), ZERO1)
    engine.advance(2)
    assert type(engine.runs[0].optimizer) is torch.optim.Adam
