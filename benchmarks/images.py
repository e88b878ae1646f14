"""Steps and evaluations of cifar10-resnet8 against a loop that is written for this processor, and
the images that a sweep trains.

The loop by hand keeps channels last (its weights too), takes as many examples at a time as are
fastest, and no memory from the system: what a careful user would write for one model. Ratios are
taken in turn within one run, of the process's seconds of one thread. Page faults and the kernel's
share are those of ours, after ten steps.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness import Row, in_turn, measured, ratio, study, trials
from experiments.engines import make_engine
from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread
from workloads import Batch, load

WORKLOAD, BATCH, EVALUATED = "cifar10-resnet8", 256, 2048
BY_HAND = 64
"""Examples of a forward pass of the loop by hand: the fastest number."""
ROUNDS, STEPS = 9, 3
SWEPT = [
    f"grid.batch_size=[{BATCH}]", "grid.optimizer=[momentum]",
    "trials=2", "budget=20 steps", "extend=0",
]  # fmt: skip
"""What is changed of the packaged experiment for the sweep."""


class Loop:
    """One model by hand."""

    def __init__(self) -> None:
        self.workload = load(WORKLOAD)
        splits: Any = self.workload.data()
        self.train: Batch = splits["train"]
        self.validation: Batch = splits["validation"]
        self.model: nn.Module = self.workload.model().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.order, self.position = torch.randperm(len(self.train[0])), 0

    def batch(self, split: Batch, chosen: Tensor, *, training: bool) -> Batch:
        """The examples ``chosen`` of a split."""
        x, y = self.workload.transform((split[0][chosen], split[1][chosen]), training=training)
        return x.contiguous(memory_format=torch.channels_last), y

    def steps(self, count: int) -> None:
        """Train."""
        self.model.train()
        for _ in range(count):
            if self.position + BATCH > len(self.order):
                self.order, self.position = torch.randperm(len(self.order)), 0
            chosen = self.order[self.position : self.position + BATCH]
            x, y = self.batch(self.train, chosen, training=True)
            self.position += BATCH
            self.optimizer.zero_grad()
            for part, labels in zip(x.split(BY_HAND), y.split(BY_HAND), strict=True):
                loss = nn.functional.cross_entropy(self.model(part), labels, reduction="sum")
                (loss / BATCH).backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, count: int) -> tuple[float, float]:
        """The mean loss and the error of the first ``count`` examples."""
        self.model.eval()
        wrong, losses = torch.zeros(()), torch.zeros(())
        for chosen in torch.arange(count).split(BY_HAND):
            x, y = self.batch(self.validation, chosen, training=False)
            output = self.model(x)
            losses += nn.functional.cross_entropy(output, y, reduction="sum")
            wrong += (output.argmax(1) != y).sum()
        return float(losses) / count, float(wrong) / count


def against_loop() -> list[Row]:
    """Our steps and evaluations over those of the loop by hand, and what the system did."""
    context = StudyContext.load(study(WORKLOAD, BATCH, 1))
    parts = {**context.splits, "validation": context.splits["validation"].head(EVALUATED)}
    engine = make_engine("module", replace(context, splits=parts), trials(1))
    loop = Loop()
    engine.advance(10)
    loop.steps(3)
    steps = in_turn(
        {"ours": lambda: engine.advance(STEPS), "by hand": lambda: loop.steps(STEPS)}, ROUNDS
    )
    evaluations = in_turn(
        {
            "ours": lambda: engine.evaluate("validation"),
            "by hand": lambda: loop.evaluate(EVALUATED),
        },
        ROUNDS,
    )
    table, faults, kernel = list[Row](), list[float](), list[float]()
    for name, used, count, passes in (
        (f"a step at batch {BATCH}", steps, STEPS * BATCH, STEPS),
        (f"an evaluation of {EVALUATED:,} examples", evaluations, EVALUATED, 1),
    ):
        rate = statistics.median(count / each.seconds for each in used["ours"])
        said = f"{ratio(used['ours'], used['by hand'])[1]} the rate of a loop by hand"
        said += f", {rate:,.0f} images a processor second"
        table.append(Row(f"{WORKLOAD}, {name}", said, "≥ 0.9×"))
        faults += [each.faults / passes for each in used["ours"]]
        kernel += [each.kernel / each.seconds for each in used["ours"]]
    most, share = f"{max(faults):,.0f}", f"{statistics.mean(kernel):.1%}"
    return [
        *table,
        Row("… page faults of a step or an evaluation, the most", most, "< 1,000"),
        Row("… the kernel's share of the processor's seconds", share, "≤ 5 %"),
    ]


def sweep() -> int:
    """A short sweep in this process; the images that its steps took."""
    from experiments.config.compile import load as load_experiment
    from experiments.execution.sweep import sweep as run
    from results import open as open_results

    with tempfile.TemporaryDirectory() as folder:
        run(load_experiment(WORKLOAD, SWEPT), results=folder, address="none")
        return int(open_results(folder).trials["examples_run"].sum())


def rows() -> list[Row]:
    """One row a number, for the table in docs/."""
    with single_thread():
        table = against_loop()
    cost = measured(sweep)
    said = f"{cost.value / cost.processor:,.0f} trained images a processor second"
    return [*table, Row(f"{WORKLOAD}, a sweep of two trials, all of it", said)]
