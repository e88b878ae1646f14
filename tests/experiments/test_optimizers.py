"""Optimizers: their registry and users' own; spaces, measured averages, and the page of docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from batchscale.names import listed
from experiments import optimizers
from experiments.config.compile import load
from experiments.engines.module import ModuleEngine
from experiments.enlarged import enlarge
from experiments.errors import ExperimentError
from experiments.optimizers.base import averages
from experiments.optimizers.schedule_free import evaluated_weights
from experiments.plan import Trial, WorkloadRef
from experiments.search.domains import DOMAINS, domain_of
from tests.marks import quick
from tests.problems import (
    engine,
    largest_difference,
    outcomes,
    study,
    train,
    trials,
)  # fmt: skip
from workloads import load as load_workload

TORCHS = ("Adam", "AdamW", "Adamax", "ASGD", "Muon", "NAdam", "RAdam", "RMSprop", "SGD")


@pytest.mark.parametrize("name", [*optimizers.names(), *TORCHS])
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
        "    space = {'learning_rate': {'log': [1e-3, 1]}}\n"
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
    assert mine.space == {"learning_rate": {"log": [1e-3, 1]}}
    assert mine.arguments == {*mine.defaults, "rho", "rate", "foreach", "maximize"}
    weight = [("weight", torch.nn.Parameter(torch.zeros(1)))]
    made = mine.module(weight, {"rho": 2, "beta2": 0.9, "learning_rate": 1.0})
    assert made.given == (2, 1.0, (0.8, 0.9), 1e-7, "plain", None)  # type: ignore[attr-defined]
    with pytest.raises(ExperimentError, match=r"my_opt.py:Mine needs a value of rho") as caught:
        mine.module(weight, {"learning_rate": 1.0})
    assert "search: {rho: …}" in str(caught.value.hint)


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
from workloads.digits import DigitsMLP

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("passing", torch.ones(1), persistent=False)

    def forward(self, x):
        return self.second(self.first(x).relu())[:, :10] * self.scale

class Tied(DigitsMLP):
    def model(self):
        return Net()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_a_whole_state_of_the_model(kind: str, tmp_path: Path) -> None:
    """Tied parameters under each of their names, so that what ``--save`` writes can be loaded."""
    (tmp_path / "tied.py").write_text(TIED)
    ref = WorkloadRef(spec="tied.py:Tied", base=str(tmp_path))
    of = study(workload=ref, precision="float64", technique={"ema": 0.5})
    trained = engine(kind, of, trials(of, 2), steps=2)
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
    assert "learning_rate" in optimizer.space
    assert optimizer.arguments_in({"learning_rate": 1, "decay_steps": 3}) == {"learning_rate": 1}
    file = tmp_path / "my.yaml"
    file.write_text(
        f"workload: digits-mlp\ngrid: {{batch_size: 64, optimizer: {name}}}\ntrials: 8\n"
        "budget: 10 steps\n"
    )
    plan = load(file).studies()[0]
    space = plan.search.space
    assert space.keys() == optimizer.space.keys()
    sides: Any = [(dimension, side) for dimension in space for side in ("low", "high")]
    for number in range(1, 4):
        larger = enlarge(plan, space, sides, number)
        assert larger is not None
        assert larger.trials
        for trial in larger.trials:
            for argument, value in optimizer.arguments_in(trial.metaparameters).items():
                legal = domain_of(argument, 0, {**DOMAINS, **optimizer.domains})
                assert float(value) in legal
        space = larger.space


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
    stacked.keep([1, 2])  # one of two is evaluated as a stack of two
    assert stacked.evaluate("validation", [1])[0]["cross_entropy"] == pytest.approx(expected, 1e-9)


def test_no_other_optimizer_has_an_average() -> None:
    for name in optimizers.names():
        optimizer = optimizers.get(name)
        values = optimizer.arguments_in({"momentum": 0.9, **optimizer.defaults})
        made = optimizer.module([("w", torch.nn.Parameter(torch.ones(2, 2)))], values)
        assert averages(made) == (name in AVERAGING)


PAGE = Path(__file__).parents[2] / "docs" / "optimizers.md"
UNSAID = {"beta1": 0.9, "beta2": 0.999, "momentum": 0}
"""The defaults that the text above the table gives."""


def rows() -> dict[str, list[str]]:
    """The cells behind the name of each optimizer."""
    found: dict[str, list[str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        first, _, rest = line.removeprefix("| ").partition(" | ")
        names = re.findall(r"`([\w-]+)`", first)
        if line.startswith("| `") and {*names} <= {*optimizers.names()}:
            found |= dict.fromkeys(names, rest.split("|"))
    return found


def test_the_table_has_every_packaged_optimizer() -> None:
    assert rows().keys() == {*optimizers.names()}


@pytest.mark.parametrize("name", optimizers.names())
def test_arguments_defaults_and_space_are_those_of_the_optimizer(name: str) -> None:
    optimizer = optimizers.get(name)
    cell, space, source, *_ = rows()[name]
    arguments = re.findall(r"`(\w+)`(?: \(([^;:)]+)[^)]*\))?", cell)
    if name == "soap":  # one bracket for both
        arguments = [(n, "0.95" if n.startswith("beta") else given) for n, given in arguments]
    for argument, given in arguments:
        if given == "none":
            assert argument not in optimizer.defaults
        elif given == "true":
            assert optimizer.defaults[argument] is True
        else:
            assert optimizer.defaults[argument] == float(given or UNSAID[argument])
    known = {argument for argument in optimizer.arguments if "." not in argument}
    assert known - {"learning_rate", "weight_decay"} <= {argument for argument, _ in arguments}
    ranges = re.findall(r"`(\w+)` (\S+) to ([^\s,]+)", space)
    assert {argument: [float(low), float(high)] for argument, low, high in ranges} == {
        argument: list(ends)
        for argument, entry in optimizer.space.items()
        for ends in entry.values()
    }
    assert ("amplifies rounding" in source) == optimizer.amplifies_rounding


AMPLIFYING = ("soap", "muon", "shampoo")


@pytest.mark.parametrize(
    "name", quick([*AMPLIFYING, *(n for n in optimizers.names() if n not in AMPLIFYING)], 5)
)
def test_the_flag_says_which_optimizers_amplify_rounding(name: str) -> None:
    """A batch whole and as four micro-batches, for 60 steps from the middle of the search space."""
    values: dict[str, Any] = {}
    for argument, entry in optimizers.get(name).space.items():
        ((scale, (low, high)),) = entry.items()
        values[argument] = (low * high) ** 0.5 if scale == "log" else 0.9
    trial = Trial(id="trial", index=0, seed=5, metaparameters=values)
    common: dict[str, Any] = {"workload": "digits-mlp", "optimizer": name}
    whole, parts = (
        engine("module", study(**common, **more), (trial,), steps=60).weights(0)
        for more in ({}, {"micro_batch": 16})
    )
    difference = largest_difference(whole, parts)
    if optimizers.get(name).amplifies_rounding:
        assert difference > 1e-3
    else:
        assert difference < (1e-6 if name == "sgd" else 1e-4)
    assert optimizers.get(name).amplifies_rounding == (name in AMPLIFYING)
    assert optimizers.get(name).amplifies_rounding == ("; amplifies" in listed("optimizers")[name])


@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize(("stated", "recorded"), [(None, 64), (24, 24), (100, 64)])
def test_outcomes_have_the_micro_batch_that_was_trained(
    kind: str, stated: int | None, recorded: int
) -> None:
    of = study(budget_steps=3, micro_batch=stated)
    ended = outcomes(train(of, trials(of, 2), kind))
    assert {outcome.micro_batch for outcome in ended.values()} == {recorded}
