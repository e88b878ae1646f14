"""Both engines against a bare hand-written PyTorch loop of the same model, and which one is chosen
by the rule of ``experiments.engines.selection``.

The bare loop is code written by hand for one model: index the batch, forward, backward,
``optimizer.step()``. All three take turns on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.harness import Model, Row, in_turn, ratio, steps_for, trials
from experiments import optimizers
from experiments.engines import make_engine
from experiments.engines.selection import choose
from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread

ROUNDS = 21
SECONDS = 0.2
"""Of one turn, about."""


@dataclass(frozen=True, kw_only=True)
class Compared(Model):
    """A model, and how many times the bare loop's speed is wanted."""

    models: int = 64
    """Of a stack."""
    stacked: float | None = None
    module: float = 0.95


TEXT = {"validation_tokens": 8192}
CASES = (
    Compared(workload="digits-mlp", batch_size=8, stacked=20.0),
    Compared(workload="digits-mlp", batch_size=64, stacked=8.0),
    Compared(workload="digits-mlp", batch_size=256),
    Compared(workload="digits-softmax", batch_size=8),
    Compared(workload="digits-fc", batch_size=32, fields={"widths": [1024]}, models=16),
    Compared(workload="digits-fc", batch_size=128, fields={"widths": [1024]}, models=16),
    Compared(workload="mnist-simple-cnn", batch_size=16, models=16),
    Compared(workload="cifar10-resnet8", batch_size=8, models=16),
    Compared(workload="lm-transformer", batch_size=4, optimizer="adamw", fields=TEXT, models=16),
    Compared(workload="lm-transformer", batch_size=16, optimizer="adamw", fields=TEXT, models=16),
    Compared(workload="lm-transformer", batch_size=16, optimizer="muon", fields=TEXT, models=16),
)
"""Small models, whose stack is faster, and models on either side of the rule's limits."""


def bare_loop(context: StudyContext, learning_rate: float = 0.01) -> Callable[[int], None]:
    """A hand-written function that trains one model for a number of steps."""
    workload, batch_size = context.workload, context.study.batch_size
    split = workload.data()["train"]
    model = workload.model().train()
    named, values = list(model.named_parameters()), {"learning_rate": learning_rate}
    optimizer = optimizers.get(context.study.optimizer).module(named, values)
    order, position = torch.randperm(len(context.train)), 0

    def train(steps: int) -> None:
        nonlocal order, position
        for _ in range(steps):
            if position + batch_size > len(order):
                order, position = torch.randperm(len(order)), 0
            chosen = order[position : position + batch_size]
            position += batch_size
            if isinstance(split, tuple):
                batch = workload.transform((split[0][chosen], split[1][chosen]), training=True)
            else:
                batch = context.train.fetch(chosen, training=True)
            optimizer.zero_grad()
            workload.loss(workload.forward(model, batch), batch).mean().backward()
            optimizer.step()

    return train


def compared(case: Compared) -> Iterator[Row]:
    """A row an engine; the one that is chosen says so, and how it compares with the other."""
    context, pack = StudyContext.load(case.study()), trials(case.models, 1e-3)
    advance: dict[str, Callable[[int], object]] = {
        "module": make_engine("module", context, pack[:1]).advance,
        "stacked": make_engine("stacked", context, pack).advance,
        "bare": bare_loop(context, 1e-3),
    }
    models = {"module": 1, "stacked": case.models, "bare": 1}
    steps = {name: steps_for(each, SECONDS) for name, each in advance.items()}
    turns = {name: partial(each, steps[name]) for name, each in advance.items()}
    used = in_turn(turns, ROUNDS)
    rates = {
        name: ratio(used[name], used["bare"], models[name] * steps[name] / steps["bare"])
        for name in ("module", "stacked")
    }
    chosen = choose(context, pack)
    better = max(value for value, _ in rates.values())
    for name, wanted in (("module", case.module), ("stacked", case.stacked)):
        what = f"{case.workload}, {case.optimizer}, batch {case.batch_size}"
        if case.fields and case.fields is not TEXT:
            what += f", {case.fields}"
        said = f"{rates[name][1]} of the bare loop's models · steps/s"
        said += f"; chosen: {rates[name][0] / better:.2f} of the faster" if name == chosen else ""
        wants = [f"≥ {wanted}×"] if wanted else []
        wants += ["chosen: ≥ 0.95"] if name == chosen else []
        which = f"a stack of {case.models}" if name == "stacked" else "module engine"
        yield Row(f"{what}: {which}", said, "; ".join(wants))


def rows() -> list[Row]:
    """Two rows a case, for the table in docs/."""
    table: list[Row] = []
    with single_thread():
        for case in CASES:
            table += compared(case)
            print(*table[-2:], sep="\n", flush=True)
    return table
