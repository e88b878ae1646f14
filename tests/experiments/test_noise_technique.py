"""The technique ``noise_scale``: what it records is what the formulas say, and training goes on as
without it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from experiments import techniques
from experiments.engines.half_batch import half_of
from experiments.errors import ExperimentError
from experiments.parallel.ranks import Ranks
from experiments.plan import Layout, Study, Trial
from experiments.techniques import Step
from experiments.training.batch_order import BatchOrder
from experiments.training.study_context import StudyContext
from tests.experiments.rank_groups import on_ranks
from tests.problems import engine, largest_difference, restore, saved, study, train, trials

KINDS = ["module", "stacked"]
SUMS = ("noise_steps", "noise_gradient", "noise_variance")


def noisy(**changes: Any) -> Study:
    return study(precision="float64", technique={"noise_scale": changes.pop("every", 3)}, **changes)


def of_examples(context: StudyContext, weights: dict[str, Tensor], batch: Any) -> Tensor:
    """The gradient of each example, (examples, parameters), by another way: vmap of grad."""
    model = context.workload.model().double()

    def loss(weights: Any, *example: Tensor) -> Tensor:
        one = tuple(x[None] for x in example)
        output = functional_call(model, weights, (one[0],))
        return context.workload.loss(output, one).sum()

    gradients = vmap(grad(loss), in_dims=(None, *[0] * len(batch)))(weights, *batch)
    return torch.cat([g.flatten(1) for g in gradients.values()], dim=1)


def order_of(context: StudyContext, trial: Trial) -> BatchOrder:
    order = context.order(trial)
    assert isinstance(order, BatchOrder)
    return order


def terms(half: Tensor, rest: Tensor, context: StudyContext) -> Tensor:
    """What a step adds, from the gradients of the examples of two halves."""
    first, second = half.mean(0), rest.mean(0)
    variance = (first - second).square().sum() / (1 / len(half) + 1 / len(rest))
    gradient = (first * second).sum() + variance / len(context.splits["train"])
    return torch.stack([torch.ones(()), gradient, variance])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [10, 25])
def test_the_sums_are_those_of_the_gradients_of_single_examples(kind: str, size: int) -> None:
    """Two trials, of which one joins later: each is measured in its own steps 0, 3, 6."""
    of = noisy(batch_size=size)
    pack = trials(of, 2)
    run = engine(kind, of, pack[:1], steps=1)
    run.add(pack[1:])
    run.advance(7)  # the first has taken 8 then, and was measured as often
    plain = engine("module", replace(of, technique={"precision": "float64"}), pack)
    context = plain.context
    expected = torch.zeros(2, 3, dtype=torch.float64)
    for step in range(7):
        if step % 3 == 0:
            for row, trial in enumerate(pack):
                indices = order_of(context, trial).batches(step, 1)[0]
                batch = context.splits["train"].fetch(indices, training=True)
                each = of_examples(context, plain.weights(row), batch)
                expected[row] += terms(each[: size // 2], each[size // 2 :], context)
        plain.advance(1)
    given = run.recorded([0, 1])
    values = torch.tensor([[of_row[name] for name in SUMS] for of_row in given])
    assert torch.allclose(values.double(), expected, rtol=1e-6)


def test_both_terms_are_unbiased_also_where_a_batch_is_most_of_the_set() -> None:
    """Over all batches of a small set, each as likely: the covariance has the divisor N - 1."""
    draw = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 3, generator=draw, dtype=torch.float64) + 0.3
    (part,) = techniques.load({"noise_scale": 1}, None)
    finite = part.with_arguments({"_of": 6.0})
    step = Step(torch.tensor(0), torch.tensor(0.1), torch.tensor(0))
    state = part.start({"w": gradients[0]})
    generator = torch.Generator().manual_seed(1)
    count = 20_000
    for _ in range(count):
        order = torch.randperm(6, generator=generator)[:5]
        half, whole = gradients[order[:2]].mean(0), gradients[order].mean(0)
        finite.observe({"w": half}, {"w": whole}, (2, 5), state, step)
    mean = gradients.mean(0)
    assert float(state["noise_steps"]) == count
    assert float(state["noise_gradient"]) / count == pytest.approx(float(mean @ mean), rel=0.03)
    trace = float((gradients - mean).square().sum() / 5)
    assert float(state["noise_variance"]) / count == pytest.approx(trace, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_its_evaluations_are_what_they_are_without_it(kind: str) -> None:
    of = noisy(every=2, budget_steps=40, keep=None, target="validation_error < 0.01")
    plain = replace(of, technique={"precision": "float64"})
    pack = trials(of, 3)
    measured, expected = train(of, pack, kind), train(plain, pack, kind)
    assert len(measured) == len(expected)
    for ours, theirs in zip(measured, expected, strict=True):
        if hasattr(theirs, "metrics"):
            recorded = {n for n in ours.metrics if n.startswith("train_noise_")}
            assert recorded == {f"train_{name}" for name in SUMS}
            kept = {name: v for name, v in ours.metrics.items() if name not in recorded}
            assert (ours.trial, ours.step, kept) == (theirs.trial, theirs.step, theirs.metrics)
        else:
            assert (ours.trial, ours.steps_run) == (theirs.trial, theirs.steps_run)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sums_go_on_from_a_snapshot(kind: str) -> None:
    of = noisy(batch_size=12)
    pack = trials(of, 2)
    whole = engine(kind, of, pack, steps=12)
    parts = engine(kind, of, pack, steps=5)
    again = engine(kind, of, pack)
    restore(again, saved(parts))
    again.advance(7)
    assert again.recorded([1, 0]) == whole.recorded([1, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_one_example_is_not_measured(kind: str) -> None:
    of = noisy(batch_size=1, every=1)
    run = engine(kind, of, trials(of, 1), steps=3)
    assert run.recorded([0]) == [dict.fromkeys(SUMS, 0.0)]


def test_half_a_batch_is_half_of_each_ranks_share() -> None:
    for size in range(1, 70):
        for ranks in range(1, 9):
            ends = [size * i // ranks for i in range(ranks + 1)]
            halves = [(high - low) // 2 for low, high in pairwise(ends)]
            half = half_of(size, ranks)
            assert half == sum(halves)
            own = [half * i // ranks for i in range(ranks + 1)]
            assert [high - low for low, high in pairwise(own)] == halves


def on_a_rank(group: Ranks, of: Study, pack: tuple[Trial, ...]) -> Any:
    """What a rank records, and its weights."""
    run = engine("stacked", of, pack, group=group, steps=7)
    return run.recorded([0, 1]), run.weights(0)


@pytest.mark.slow
def test_two_ranks_measure_the_halves_of_their_shares(tmp_path: Path) -> None:
    """The first and the third quarter of the batch beside the others."""
    of = replace(noisy(batch_size=24), layout=Layout(workers=2))
    pack = trials(of, 2)
    [(recorded, weights)], [(other, _)] = on_ranks(2, on_a_rank, [(of, pack)], tmp_path)
    assert recorded == other
    one = engine("module", replace(of, layout=Layout()), pack)
    expected = torch.zeros(3, dtype=torch.float64)
    for step in range(7):
        if step % 3 == 0:
            indices = order_of(one.context, pack[0]).batches(step, 1)[0]
            batch = one.context.splits["train"].fetch(indices, training=True)
            each = of_examples(one.context, one.weights(0), batch).view(4, 6, -1)
            expected += terms(each[::2].flatten(0, 1), each[1::2].flatten(0, 1), one.context)
        one.advance(1)
    assert [recorded[0][name] for name in SUMS] == pytest.approx(expected.tolist())
    assert largest_difference(weights, one.weights(0)) < 1e-9


@pytest.mark.parametrize(
    ("technique", "message"),
    [
        ({"mixup": 0.4}, "noise_scale and mixup cannot be together: it mixes examples"),
        ({"select": 0.5}, "noise_scale needs batches whose examples are not selected"),
        ({"compress": "fp16"}, "noise_scale and compress cannot be together"),
        ({"precision": "float16"}, "noise_scale needs the gradient before it is scaled back"),
    ],
)
def test_what_would_falsify_it_is_refused(technique: dict[str, Any], message: str) -> None:
    of = study(technique={"noise_scale": 2, **technique})
    with pytest.raises(ExperimentError, match=message):
        engine("module", of, trials(of, 1))


def test_batch_normalization_is_refused() -> None:
    (part,) = techniques.load({"noise_scale": 2}, None)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    with pytest.raises(ExperimentError, match="batch normalization makes each depend"):
        part.check(None, model, (torch.zeros(2, 2),))
