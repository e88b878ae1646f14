"""The hooks of techniques that change what a step is made of, in both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import techniques
from experiments.config.compile import load
from experiments.engines import stacking_refusal
from experiments.errors import ExperimentError
from experiments.plan import Study, WorkloadRef
from experiments.records.rows import trial_row
from experiments.training.study_context import StudyContext
from tests.problems import engine, largest_difference, outcomes, study, train, trials

KINDS = ["module", "stacked"]
FILE = '''
import torch
import batchscale as bs


class Partners(bs.Technique):
    """Mix each example with another one of the global batch."""

    share: float = 0.3

    def augment(self, batch, step):
        x, y = batch
        partner = torch.randperm(len(x))
        return (1 - self.share) * x + self.share * x[partner], y, y[partner]

    def criterion(self, compute, output, batch):
        x, y, other = batch
        mixed = compute(output, (x, other))
        return (1 - self.share) * compute(output, (x, y)) + self.share * mixed


class Outer(bs.Technique):
    """Add to the inputs, outside."""

    order = 100

    def forward(self, compute, model, batch):
        return compute(model, (batch[0] + 1.0, *batch[1:]))


class Inner(bs.Technique):
    """Multiply the inputs, inside."""

    order = 200

    def forward(self, compute, model, batch):
        return compute(model, (batch[0] * 0.5, *batch[1:]))


class Hardest(bs.Technique):
    """Train on the half of the examples whose loss is largest."""

    def select(self, losses, step):
        half = len(losses) // 2
        weights = torch.zeros_like(losses)
        return weights.scatter(0, losses.topk(half).indices, 1 / half)


class Ahead(bs.Technique):
    """The gradient of the weights after a step of gradient descent."""

    rate: float = 0.1

    def perturbed(self, weights, gradients, state, step):
        return {name: w - self.rate * gradients[name] for name, w in weights.items()}


class Again(Ahead):
    """A second one of that kind."""


class Begin(bs.Technique):
    """Begin each step from smaller weights."""

    def before_step(self, weights, state, step):
        return {name: w * 0.9 for name, w in weights.items()}


class Halfway(bs.Technique):
    """Scale the gradient from half of the budget on."""

    uses_budget = True
    factor: float = 0.0

    def gradient(self, gradients, weights, state, step):
        late = (step.number >= self.budget_steps // 2).float()
        return {name: g * (1 - late * (1 - self.factor)) for name, g in gradients.items()}


class Fewer(bs.Technique):
    """It leaves out an example."""

    def augment(self, batch, step):
        return tuple(x[1:] for x in batch)
'''


@pytest.fixture
def hooks(tmp_path: Path) -> WorkloadRef:
    (tmp_path / "hooks.py").write_text(FILE)
    return WorkloadRef(spec="digits-softmax", base=str(tmp_path))


def of(hooks: WorkloadRef, *names: str, **changes: Any) -> Study:
    technique = {f"hooks.py:{name}": True for name in names}
    return study(workload=hooks, precision="float64", technique=technique, **changes)


def first_step(described: Study, pack: Any) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """A model before its first step, the batch of that step, and the weights after it."""
    context = StudyContext.load(described)
    run = engine("module", described, pack)
    model = context.model(pack[0])
    batch = context.train.fetch_step(context.order(pack[0]), slice(0, 16), pack[0].seed, 0)
    run.advance(1)
    return model, batch, run.weights(0)


def stepped(model: Any, loss: torch.Tensor, rate: float) -> dict[str, torch.Tensor]:
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return {
        n: p.detach() - rate * g
        for (n, p), g in zip(model.named_parameters(), gradients, strict=True)
    }


def plain(described: Study) -> Any:
    """One trial without weight decay."""
    return trials(described, 1, learning_rate=0.5, weight_decay=0.0)


def test_select_trains_on_the_examples_of_its_weights(hooks: WorkloadRef) -> None:
    described = of(hooks, "Hardest", batch_size=16)
    model, (x, y), after = first_step(described, plain(described))
    losses = torch.nn.functional.cross_entropy(model(x), y.long(), reduction="none")
    expected = stepped(model, losses.topk(8).values.mean(), 0.5)
    assert largest_difference(expected, after) < 1e-12


def test_perturbed_takes_the_gradient_there_and_updates_here(hooks: WorkloadRef) -> None:
    described = of(hooks, "Ahead", batch_size=16)
    pack = plain(described)
    model, (x, y), after = first_step(described, pack)
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    loss = torch.nn.functional.cross_entropy(model(x), y.long())
    model.load_state_dict(stepped(model, loss, 0.1))
    there = {n: p.detach().clone() for n, p in model.named_parameters()}
    moved = stepped(model, torch.nn.functional.cross_entropy(model(x), y.long()), 0.5)
    expected = {n: start[n] + moved[n] - there[n] for n in start}
    assert largest_difference(expected, after) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_forward_hooks_are_composed_outermost_first(hooks: WorkloadRef, kind: str) -> None:
    described = of(hooks, "Outer", "Inner", batch_size=16)
    pack = plain(described)
    model, (x, y), _ = first_step(described, pack)
    run = engine(kind, described, pack, steps=1)
    loss = torch.nn.functional.cross_entropy(model((x + 1.0) * 0.5), y.long())
    assert largest_difference(stepped(model, loss, 0.5), run.weights(0)) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_the_budget_is_known_and_in_the_identity_of_what_uses_it(
    hooks: WorkloadRef, kind: str
) -> None:
    described = of(hooks, "Halfway", budget_steps=10)
    pack = plain(described)
    run = engine(kind, described, pack, steps=5)
    half = run.weights(0)
    run.advance(5)
    assert largest_difference(half, run.weights(0)) == 0
    base = Path(hooks.base or "")
    ids = {}
    for name in ("Halfway", "Ahead"):
        for budget in (40, 60):
            (base / "my.yaml").write_text(
                "workload: digits-softmax\ngrid: {batch_size: 16, optimizer: sgd}\n"
                f'technique: "hooks.py:{name}"\nbudget: {budget} steps\ntrials: 2\n'
                "target: validation_error < 0.2\n"
            )
            ids[name, budget] = load(base / "my.yaml").studies()[0].id
    assert ids["Halfway", 40] != ids["Halfway", 60]
    assert ids["Ahead", 40] == ids["Ahead", 60]


@pytest.mark.parametrize("kind", KINDS)
def test_two_gradients_a_step_are_counted(hooks: WorkloadRef, kind: str) -> None:
    for name, count in (("Ahead", 2), ("Begin", None)):
        described = of(hooks, name, budget_steps=3)
        pack = trials(described, 2)
        for outcome in outcomes(train(described, pack, kind)).values():
            row = trial_row({}, described, pack[0], outcome)
            assert (row["gradients_per_step"], row["skipped_steps"]) == (count, None)


def test_wrong_ones_are_refused(hooks: WorkloadRef) -> None:
    names = {f"hooks.py:{name}": True for name in ("Ahead", "Again")}
    with pytest.raises(ExperimentError, match="Again and Ahead both define perturbed"):
        techniques.load(names, hooks.base)
    described = of(hooks, "Fewer")
    with pytest.raises(
        ExperimentError, match="Fewer: augment changes the number of examples from 2 to 1"
    ):
        engine("module", described, trials(described, 1)).advance(1)
    fixed: dict[str, Any] = {"Partners.share": 0.2}
    with pytest.raises(ExperimentError, match="an argument cannot be called loss, which is a hook"):
        type("Shadow", (techniques.Technique,), {"__annotations__": {"loss": float}, "loss": 0.1})
    described = of(hooks, "Partners")
    assert "one of its arguments is tuned" in str(
        stacking_refusal(StudyContext.load(described), trials(described, 4, **fixed))
    )
