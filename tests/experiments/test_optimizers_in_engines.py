"""Every packaged optimizer in each engine, and the weights that evaluations measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments import optimizers
from experiments.config.compile import load
from experiments.engines.module import ModuleEngine
from experiments.errors import ExperimentError
from experiments.optimizers.base import averages
from experiments.optimizers.schedule_free import evaluated_weights
from experiments.plan import WorkloadRef
from experiments.search.domains import DOMAINS, domain_of
from tests.problems import engine, largest_difference, study, trials
from workloads import load as load_workload

AVERAGING = ["schedule-free-sgd", "schedule-free-adamw"]
KINDS = ["module", "stacked"]

USERS = """
import pytorch_optimizer

class Averaged(pytorch_optimizer.ScheduleFreeSGD):
    def __init__(self, params, lr=1.0, momentum=0.9, weight_decay=0.0):
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay)
"""


TIED = """
import torch
from workloads import Classification

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("passing", torch.ones(1), persistent=False)

    def forward(self, x):
        return self.second(self.first(x).relu())[:, :10] * self.scale

class Tied(Classification):
    target = "validation_error < 0.04"

    def data(self):
        from workloads.digits import splits
        return splits()

    def model(self):
        return Net()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_a_whole_state_of_the_model(kind: str, tmp_path: Path) -> None:
    """Tied parameters under each of their names, so that what ``--save`` writes can be loaded."""
    (tmp_path / "tied.py").write_text(TIED)
    ref = WorkloadRef(spec="tied.py:Tied", base=str(tmp_path))
    of = study(workload=ref, precision="float64", technique={"ema": 0.5})
    trained = engine(kind, of, trials(of, 2))
    trained.advance(2)
    model = load_workload(ref.spec, base=tmp_path).model().double()
    for state in (trained.weights(1), trained.measured(1)):
        assert list(state) == list(model.state_dict())
        assert {"first.weight", "second.weight"} < state.keys()
        model.load_state_dict(state)
        assert torch.equal(state["first.weight"], model.state_dict()["second.weight"])


@pytest.mark.parametrize("name", optimizers.names())
def test_the_default_space_lies_in_the_legal_domains(name: str, tmp_path: Path) -> None:
    """Compiled as an experiment, and enlarged on every side, no value is outside of its domain."""
    optimizer = optimizers.get(name)
    usual = {argument.rpartition(".")[2] for argument in optimizer.arguments}  # adamw.learning_rate
    assert usual - {"nesterov"} <= DOMAINS.keys()
    assert optimizer.arguments.issuperset(optimizer.defaults)
    file = tmp_path / "my.yaml"
    file.write_text(
        f"workload: digits-softmax\ngrid: {{batch_size: 64, optimizer: {name}}}\ntrials: 8\n"
        "budget: 10 steps\n"
    )
    plan = load(file).plans()[0]
    assert plan.space.keys() == optimizer.space.keys()
    sides: Any = [(dimension, side) for dimension in plan.space for side in ("low", "high")]
    for number in range(1, 4):
        larger = plan.enlarged(sides, number)
        assert larger is not None
        assert larger.trials
        for trial in larger.trials:
            for argument, value in optimizer.arguments_in(trial.metaparameters).items():
                legal = domain_of(argument, 0, {**DOMAINS, **optimizer.domains})
                assert float(value) in legal
        plan = replace(plan, space=larger.space)


def test_an_interpolation_of_0_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    for argument, name in (("momentum", "schedule-free-sgd"), ("beta1", "schedule-free-adamw")):
        for line in (f"{argument}: 0", f"{name}: {{{argument}: {{discrete: [0, 0.9]}}}}"):
            file.write_text(
                "workload: digits-softmax\ngrid:\n  batch_size: 64\n"
                f"  optimizer: [sgd, adam, {name}]\nsearch:\n  {line}\n"
            )
            with pytest.raises(
                ExperimentError, match=rf"my.yaml:6: .*{argument}: 0 is outside \(0"
            ):
                load(file).plans()


@pytest.mark.parametrize("adaptive", [False, True])
def test_schedule_free_is_algorithm_1_of_the_paper(adaptive: bool) -> None:
    """Defazio et al. 2024 with a constant rate, written out with x, y and z, on a quadratic."""
    rate, share, beta2, decay, steps = 0.3, 0.8, 0.99, 0.02, 30
    values = {"learning_rate": rate, "weight_decay": decay, "epsilon": 1e-8, "beta2": beta2}
    values |= {"beta1": share, "momentum": share}
    optimizer = optimizers.get(AVERAGING[adaptive])
    curvature = torch.tensor([[1.0, 0.3, 0.01]], dtype=torch.float64)
    weights = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    x = y = z = weights.clone()
    form = optimizer.stacked([optimizer.arguments_in(values)], weights, {}, [])
    assert form is not None
    square = torch.zeros_like(weights)
    for step in range(1, steps + 1):
        form.step(weights, weights * curvature, torch.full((1, 1), rate, dtype=torch.float64))
        gradient = y * curvature
        if adaptive:
            square = beta2 * square + (1 - beta2) * gradient**2
            # 1e-15 is the library's.
            gradient = gradient / ((square / (1 - beta2**step) + 1e-15).sqrt() + 1e-8)
        z = z - rate * (gradient + decay * y)
        x = (1 - 1 / step) * x + z / step
        y = (1 - share) * z + share * x
        torch.testing.assert_close(weights, y, rtol=1e-11, atol=1e-12)
        measured = form.evaluated(weights)
        assert measured is not None
        torch.testing.assert_close(measured, x, rtol=1e-11, atol=1e-12)
    assert float((x - y).abs().max()) > 1e-3


@pytest.fixture
def users(tmp_path: Path) -> WorkloadRef:
    (tmp_path / "users.py").write_text(USERS)
    return WorkloadRef(spec="digits-softmax", base=str(tmp_path))


@pytest.mark.parametrize("optimizer", [*AVERAGING, "users.py:Averaged"])
def test_evaluations_measure_the_average(users: WorkloadRef, optimizer: str) -> None:
    of = study(workload=users, optimizer=optimizer, precision="float64", batch_size=32)
    pack = trials(of, 3)
    module, stacked = engine("module", of, pack), engine("stacked", of, pack)
    assert isinstance(module, ModuleEngine)
    module.advance(12)
    stacked.advance(12)
    split = module.context.splits["validation"]
    x, y = split.fetch(torch.arange(len(split)), training=False)

    def loss(weights: dict[str, Tensor], row: int) -> float:
        output = torch.func.functional_call(module.runs[row].model, weights, (x,))
        return float(torch.nn.functional.cross_entropy(output, y))

    for row, run in enumerate(module.runs):
        assert averages(run.optimizer)
        with evaluated_weights(run.optimizer):
            average = {n: p.detach().clone() for n, p in run.model.named_parameters()}
        expected = loss(average, row)
        assert expected != pytest.approx(loss(module.weights(row), row), rel=1e-4)
        for trained in (module, stacked):
            assert largest_difference(trained.measured(row), average) < 1e-9
            for rows in (None, [row]):
                measured = trained.evaluate("validation", rows)[row if rows is None else 0]
                assert measured["cross_entropy"] == pytest.approx(expected, rel=1e-9)


def test_no_other_optimizer_has_an_average() -> None:
    for name in optimizers.names():
        optimizer = optimizers.get(name)
        values = optimizer.arguments_in({"momentum": 0.9, **optimizer.defaults})
        made = optimizer.module([("w", torch.nn.Parameter(torch.ones(2, 2)))], values)
        assert averages(made) == (name in AVERAGING)


def test_the_documentation_lists_every_optimizer_with_its_arguments() -> None:
    page = Path(__file__, "../../../docs/optimizers.md").resolve().read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name in optimizers.names():
        (row,) = [row for row in rows if f"`{name}`" in row.split("|")[1]]
        written, space = row.split("|")[2:4]
        optimizer = optimizers.get(name)
        for argument in optimizer.arguments - {"learning_rate", "weight_decay"}:
            assert "." in argument or f"`{argument}`" in written  # adamw.learning_rate
        for argument, ends in optimizer.space.items():
            (low, high) = next(iter(ends.values()))
            part = space.partition(f"`{argument}` ")[2].partition(",")[0].split(" to ")
            assert [float(end) for end in part] == [low, high]
