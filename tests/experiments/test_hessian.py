"""Optimizers that take estimates of the Hessian's diagonal: Sophia, and users' own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_optimizer
import torch
from torch import Tensor, nn

from batchscale.names import listed
from experiments import optimizers
from experiments.config.compile import load as load_file
from experiments.engines import make_engine
from experiments.engines.module import ModuleEngine
from experiments.engines.selection import choose, stackable
from experiments.errors import ExperimentError
from experiments.plan import Study, Trial, WorkloadRef
from experiments.seeds import derive
from experiments.training.batch_order import BatchOrder
from experiments.training.study_context import StudyContext
from tests.problems import engine, largest_difference, study, tensors, trials
from tests.thread_ranks import ranks, together
from workloads import load

STEPS = 12
"""Two estimates: before the first step and before the eleventh."""


def softmax(trial: Trial) -> nn.Module:
    """The trial's model as the engine initializes it, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(derive(trial.seed, "init"))
        model: nn.Module = load("digits-softmax").model()
    return model.double()


def draws(trial: Trial, step: int, model: nn.Module) -> list[Tensor]:
    generator = torch.Generator().manual_seed(derive(trial.seed, "hessian", step))
    return [torch.randn(p.shape, generator=generator).double() for p in model.parameters()]


def exact_products(model: nn.Module, x: Tensor, z: list[Tensor]) -> list[Tensor]:
    """H z with the whole Hessian of softmax regression, written out: the gradient with respect to
    the logits of an example has the derivative diag(p) - p pᵀ."""
    with torch.no_grad():
        p = model(x).softmax(1)
        inputs = x.flatten(1)
        hessian = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        ones = torch.cat([inputs, torch.ones(len(x), 1, dtype=x.dtype)], 1)
        direction = torch.cat([z[0], z[1][:, None]], 1)
        moved = torch.einsum("bij,jk,bk->bi", hessian, direction, ones)
        product = torch.einsum("bi,bk->ik", moved, ones) / len(x)
    return [product[:, :-1], product[:, -1]]


@pytest.mark.parametrize("micro_batch", [pytest.param(None, marks=pytest.mark.slow), 13])
def test_sophia_takes_the_librarys_steps_with_the_exact_hessian(micro_batch: int | None) -> None:
    """In float64 over 12 steps, in one batch and in micro-batches of 13, 13, 13 and 11."""
    of = study(optimizer="sophia", batch_size=50, precision="float64", micro_batch=micro_batch)
    (trial,) = trials(of, 1, learning_rate=1.0, rho=0.05)
    ours = engine("module", of, (trial,))
    ours.advance(STEPS)
    x, y = tensors(load("digits-softmax").data()["train"])
    transformed = load("digits-softmax").transform((x, y), training=True)[0].double()
    model, m = softmax(trial), {**trial.metaparameters}
    betas: Any = (m["beta1"], m["beta2"])
    theirs = pytorch_optimizer.SophiaH(
        model.parameters(), lr=1.0, betas=betas, weight_decay=float(m["weight_decay"]), p=0.05
    )
    clipped = []
    order = BatchOrder(trial.seed, len(x), 50)
    for step in range(STEPS):
        batch = order.batches(step, 1)[0]
        theirs.zero_grad()
        nn.functional.cross_entropy(model(transformed[batch]), y[batch]).backward()
        given = None
        if step % 10 == 0:
            z = draws(trial, step, model)
            products = exact_products(model, transformed[batch], z)
            given = [a * b for a, b in zip(z, products, strict=True)]
        before = [p.detach().clone() for p in model.parameters()]
        theirs.step(hessian=given)
        pairs = zip(model.parameters(), before, strict=True)
        moved = torch.cat([(p - start).abs().flatten() for p, start in pairs])
        clipped.append(float((moved > 0.049).double().mean()))
    assert largest_difference(dict(model.state_dict()), ours.weights(0)) < 1e-9
    assert 0.1 < np.mean(clipped) < 0.95, "some entries are clipped, and some are not"


def test_the_estimates_mean_is_the_diagonal() -> None:
    """Of a softmax regression, over 400 draws: every entry within its own scatter."""
    of = study(optimizer="sophia", batch_size=50, precision="float64")
    (trial,) = trials(of, 1)
    ours = engine("module", of, (trial,))
    assert isinstance(ours, ModuleEngine)
    run = ours.runs[0]
    hessian = run.gradient.hessian
    assert hessian is not None
    batch = run.context.train.fetch(torch.arange(50), training=True)
    estimates = []
    for draw in range(400):
        found = hessian.of(10 * draw, lambda: run.gradient.passes.of(batch, 0))
        assert found is not None
        estimates.append(found[1])
    assert hessian.of(5, lambda: run.gradient.passes.of(batch, 0)) is None
    p = run.model(batch[0]).softmax(1)
    exact = (p * (1 - p)).mean(0).detach()
    scatter = torch.stack(estimates)
    error = (scatter.mean(0) - exact) / (scatter.std(0) / 20)
    assert error.abs().max() < 4
    assert float((exact / scatter.std(0)).min()) > 0.05, "400 draws tell the diagonal from 0"


@pytest.mark.parametrize("count", [2, 3])
def test_data_ranks_take_the_steps_of_one(count: int) -> None:
    of = study(optimizer="sophia", batch_size=50, precision="float64")
    pack = trials(of, 2)
    alone = engine("module", of, pack)
    alone.advance(STEPS)

    # One after the other: a model is initialized by torch's global generator.
    apart = [engine("module", of, pack, group=rank) for rank in ranks(count)]
    together([partial(one.advance, STEPS) for one in apart])
    for weights in together([partial(one.weights, 1) for one in apart]):
        assert largest_difference(weights, alone.weights(1)) < 1e-9


FIELDS = {"text": "file:text.txt", "width": 8, "context": 8}
MODELS: dict[str, dict[str, Any]] = {
    "lm-transformer": {"layers": 1, "heads": 2, "dropout": 0.1},
    "lm-lstm": {"layers": 2},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    letters = np.cumsum(np.random.default_rng(0).integers(1, 4, size=2000)) % 11
    (tmp_path / "text.txt").write_bytes(bytes(97 + letters.astype(np.uint8)))
    return tmp_path


@pytest.mark.parametrize("name", MODELS)
def test_attention_and_lstms_have_second_derivatives(folder: Path, name: str) -> None:
    """Torch's fused kernels have none; H z against a difference of gradients, dropout included, and
    the same in micro-batches."""
    ref = WorkloadRef(spec=name, fields={**FIELDS, **MODELS[name]}, base=str(folder))
    of = study(
        workload=ref, optimizer="sophia", batch_size=6, precision="float64",
        target="validation_cross_entropy < 1",
    )  # fmt: skip
    (trial,) = trials(of, 1)
    ours = engine("module", of, (trial,))
    assert isinstance(ours, ModuleEngine)
    run = ours.runs[0]
    hessian = run.gradient.hessian
    assert hessian is not None
    batch = run.context.train.fetch(torch.arange(6), training=True)
    found = hessian.of(0, lambda: run.gradient.passes.of(batch, 0))
    assert found is not None
    named = list(zip(run.model.parameters(), draws(trial, 0, run.model), strict=True))
    parameters = hessian.order  # in two groups: those with and without weight decay
    z = [next(draw for p, draw in named if p is parameter) for parameter in parameters]

    def gradient(scale: float) -> list[Tensor]:
        """At w + scale z, with the random numbers of step 0."""
        with torch.no_grad():
            for p, draw in zip(parameters, z, strict=True):
                p.add_(draw, alpha=scale)
        run.gradient._gradient(batch, 0, None)
        with torch.no_grad():
            for p, draw in zip(parameters, z, strict=True):
                p.sub_(draw, alpha=scale)
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]

    for draw, up, down, ours_ in zip(z, gradient(1e-5), gradient(-1e-5), found, strict=True):
        torch.testing.assert_close(ours_, draw * (up - down) / 2e-5, rtol=1e-4, atol=1e-6)
    run.gradient.passes.micro_batch = 4
    run.gradient.passes._divided.clear()
    parts = hessian.of(0, lambda: run.gradient.passes.of(batch, 0))
    assert parts is not None
    for one, other in zip(found, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


USERS = """
import torch
class Curved(torch.optim.SGD):
    stacks = True
    def __init__(self, params, lr=0.1, update_period=3):
        super().__init__(params, lr=lr)
        self.seen = []
    @torch.no_grad()
    def step(self, closure=None, hessian=None):
        self.seen.append(hessian is not None)
        for group in self.param_groups:
            for i, p in enumerate(group["params"]):
                state = self.state[p]
                if hessian is not None:
                    state["curvature"] = hessian[i].abs()
                p.sub_(group["lr"] * p.grad / (state["curvature"] + 1))
class Ada(__import__("pytorch_optimizer").AdaHessian):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)
"""


def test_an_optimizer_of_ones_own_gets_estimates(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS)
    ref = WorkloadRef(spec="digits-softmax", base=str(tmp_path))
    of = study(workload=ref, optimizer="mine.py:Curved", batch_size=50)
    pack = trials(of, 2)
    ours = engine("module", of, pack)
    assert isinstance(ours, ModuleEngine)
    ours.advance(7)
    run: Any = ours.runs[0]
    assert run.optimizer.seen == [True, False, False, True, False, False, True]
    context = StudyContext.load(of)
    assert "Hessian-vector products" in str(stackable(context, pack))
    assert choose(context, pack) == "module"
    file = tmp_path / "mine.yaml"
    file.write_text(
        "workload: digits-softmax\ngrid: {batch_size: 64, optimizer: ['mine.py:Curved', "
        "'mine.py:Ada', {'*.weight': sophia, '*': adamw}]}\ntrials: 2\nbudget: 10 steps\n"
    )
    assert len(load_file(file).plans()) == 3
    ada = study(workload=ref, optimizer="mine.py:Ada", batch_size=50)
    other = engine("module", ada, trials(ada, 1))
    start = other.weights(0)
    other.advance(3)
    assert largest_difference(start, other.weights(0)) > 1e-4


def test_a_part_of_a_model_may_have_it(tmp_path: Path) -> None:
    mapping = '{"*weight": sophia, "*": sgd}'
    of = study(optimizer=mapping, batch_size=50, precision="float64")
    (trial,) = trials(of, 1, learning_rate=0.1)
    ours = engine("module", of, (trial,))
    assert isinstance(ours, ModuleEngine)
    ours.advance(11)
    whole = study(optimizer="sophia", batch_size=50, precision="float64")
    other = engine("module", whole, (trial,))
    other.advance(1)
    again = engine("module", of, (trial,))
    again.advance(1)
    names = [n for n in again.weights(0) if n.endswith("weight")]
    for name in names:
        assert torch.equal(again.weights(0)[name], other.weights(0)[name])
    assert largest_difference(again.weights(0), ours.weights(0)) > 1e-4
    (tmp_path / "mine.py").write_text(USERS)
    both = optimizers.get('{"*weight": sophia, "*": "mine.py:Curved"}', str(tmp_path))
    with pytest.raises(ExperimentError, match="after different numbers of steps"):
        both.hessian_period({"Curved.update_period": 3})
    assert both.hessian_period({}) == 10, "a shared default is that of the first"
    assert both.hessian_period({"update_period": 5}) == 5


def test_a_stopped_trial_continues_exactly() -> None:
    of = study(optimizer="sophia", batch_size=50)
    pack = trials(of, 2)
    whole, first = engine("module", of, pack), engine("module", of, pack)
    whole.advance(25)
    first.advance(13)
    second = engine("module", of, pack)
    second.load(first.state())
    second.advance(12)
    for name, value in whole.weights(1).items():
        assert torch.equal(value, second.weights(1)[name])


@pytest.mark.parametrize(
    ("changes", "says", "hint"),
    [
        ({"precision": "float16"}, "scales the loss", "bfloat16"),
        pytest.param(
            {"technique": {"compile": {"backend": "aot_eager"}}},
            "differentiated again",
            "leave such an operation",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_has_no_second_derivative_is_refused(
    changes: dict[str, Any], says: str, hint: str
) -> None:
    of = study(optimizer="sophia", batch_size=16, workload="digits-mlp", **changes)
    with pytest.raises(ExperimentError, match=says) as caught:
        engine("module", of, trials(of, 1)).advance(1)
    assert hint in str(caught.value.hint)


def test_a_stack_is_refused_and_the_list_says_why() -> None:
    of: Study = study(optimizer="sophia", batch_size=8)
    pack = trials(of, 8)
    context = StudyContext.load(of)
    assert choose(context, pack) == "module"
    assert "sophia: it needs Hessian-vector products" in str(stackable(context, pack))
    assert listed("optimizers")["sophia"].endswith("module engine: Hessian-vector products")


@pytest.mark.parametrize(
    ("line", "says", "hint"),
    [
        ("layout: {shard: 2}", "optimizer sophia needs Hessian-vector products, which take", "N"),
        ("layout: auto", "optimizer sophia needs Hessian-vector products, which take", "N"),
        ("precision: float16", "optimizer sophia needs .*float16 scales the loss", "bfloat16"),
        ("engine: stacked", None, ""),
    ],
)
def test_a_file_whose_training_cannot_have_estimates(
    tmp_path: Path, line: str, says: str | None, hint: str
) -> None:
    file = tmp_path / "my.yaml"
    text = (
        "workload: digits-softmax\ngrid: {batch_size: 64, optimizer: [adamw, sophia]}\ntrials: 2\n"
        f"budget: 10 steps\n{line}\n"
    )
    file.write_text(text)
    if says is not None:
        with pytest.raises(ExperimentError, match=rf"my.yaml:5: {says}") as caught:
            load_file(file).plans()
        assert hint in str(caught.value.hint)
        file.write_text(text.replace(", sophia", ""))
        assert load_file(file).plans()
        return
    _, plan = load_file(file).plans()
    with pytest.raises(ExperimentError, match="sophia cannot be stacked: it needs Hess"):
        make_engine(plan.study.engine, StudyContext.load(plan.study), plan.trials(0, 2))
