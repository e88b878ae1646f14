"""Twins agree to rounding: stacked and module, fused and plain, over the first steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.plan import WorkloadRef
from tests.problems import OPTIMIZERS, SCHEDULES, engine, largest_difference, study, tensors, trials

# Over 20 steps float32 twins differ by rounding alone; Adam's first steps divide by |g|, which
# magnifies it where a gradient is all rounding.
TOLERANCE = {"float32": 2e-3, "float64": 1e-8}
STEPS = {"float32": 20, "float64": 200}


NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)]


def _compare(of, some, steps: int, tolerance: float, device: str = "cpu") -> None:
    module, stacked = engine("module", of, some, device), engine("stacked", of, some, device)
    module.advance(steps)
    stacked.advance(steps)
    moved = engine("module", of, some, device)
    for row in range(len(some)):
        assert largest_difference(module.weights(row), stacked.weights(row)) < tolerance
        assert largest_difference(module.weights(row), moved.weights(row)) > 10 * tolerance
    for a, b in zip(module.evaluate("validation"), stacked.evaluate("validation"), strict=True):
        assert a["cross_entropy"] == pytest.approx(b["cross_entropy"], rel=1e-3)


# A factor that is small at first, or has its minima in the first 20 steps, moves the weights by
# less than float32 twins may differ.
FLOAT64_ONLY = ("one-cycle", "cyclical", "sgdr")
PRECISIONS = [(s, p) for s in SCHEDULES for p in STEPS if p == "float64" or s not in FLOAT64_ONLY]
# A schedule's factor multiplies the rate before any optimizer reads it: each optimizer with two
# schedules, and each schedule with two optimizers; all pairs are slow.
QUICK = [
    (optimizer, schedule, precision)
    for schedule, precision in PRECISIONS
    for optimizer in OPTIMIZERS
    if schedule == ("constant" if precision == "float32" else "cosine")
    or optimizer == ("adam" if precision == "float32" else "nesterov")
]


@pytest.mark.parametrize(
    ("optimizer", "schedule", "precision"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
        for case in ((o, s, p) for o in OPTIMIZERS for s, p in PRECISIONS)
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_engines_agree(device: str, optimizer: str, schedule: str, precision: str) -> None:
    of = study(optimizer=optimizer, schedule=schedule, precision=precision, batch_size=32)
    _compare(of, trials(of, 3), STEPS[precision], TOLERANCE[precision], device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_engines_agree_on_a_network(precision: str, device: str) -> None:
    of = study(workload="digits-mlp", optimizer="momentum", precision=precision, batch_size=16)
    _compare(of, trials(of, 3), STEPS[precision], TOLERANCE[precision], device)


OWN = """
import torch

class Lion(torch.optim.Optimizer):
    space = {"learning_rate": {"log": [1e-4, 1e-1]}}

    def __init__(self, params, lr=1e-3, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                p.sub_(torch.tanh(50 * m), alpha=group["lr"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["RMSprop", "Adagrad", "lion.py:Lion"])
def test_any_torch_optimizer_updates_a_stack(optimizer: str, tmp_path: Path) -> None:
    (tmp_path / "lion.py").write_text(OWN)
    of = study(
        workload=WorkloadRef(spec="digits-softmax", base=str(tmp_path)),
        optimizer=optimizer,
        schedule="linear",
        precision="float64",
    )
    some = trials(of, 5)
    module, stacked = engine("module", of, some), engine("stacked", of, some)
    for one in (module, stacked):
        one.advance(10)
        one.keep([0, 2])  # the stack is squeezed; each model's own state goes with it
        one.advance(10)
    for row in range(2):
        assert largest_difference(module.weights(row), stacked.weights(row)) < 1e-8


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_module_engine_is_torch_itself(optimizer: str) -> None:
    """A bare loop, written out, gives the module engine's weights bit for bit."""
    from experiments.seeds import derive
    from experiments.training.batch_order import BatchOrder
    from workloads import load

    of = study(optimizer=optimizer, batch_size=50)
    trial = trials(of, 1)[0]
    ours = engine("module", of, (trial,))
    ours.advance(40)

    workload = load("digits-softmax")
    x, y = tensors(workload.data()["train"])
    with torch.random.fork_rng():
        torch.manual_seed(derive(trial.seed, "init"))
        model = workload.model()
    m: dict[str, Any] = {**trial.metaparameters}
    bare: torch.optim.Optimizer
    if optimizer.startswith("adam"):
        kind = torch.optim.AdamW if optimizer == "adamw" else torch.optim.Adam
        bare = kind(
            model.parameters(),
            lr=m["learning_rate"],
            betas=(m["beta1"], m["beta2"]),
            weight_decay=m["weight_decay"],
        )
    else:
        bare = torch.optim.SGD(
            model.parameters(),
            lr=m["learning_rate"],
            momentum=m.get("momentum", 0.0),
            weight_decay=m["weight_decay"],
            nesterov=optimizer == "nesterov",
        )
    order = BatchOrder(trial.seed, len(x), 50)
    for step in range(40):
        batch = order.batches(step, 1)[0]
        bare.zero_grad()
        (
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch], reduction="sum") / 50
        ).backward()
        bare.step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, ours.weights(0)[name])
