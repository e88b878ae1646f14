"""Steps and evaluations of cifar10-resnet8 against a loop that is written for this processor.

The loop by hand keeps channels last (its weights too), takes as many examples at a time as are
fastest, and no memory from the system: what a careful user would write for one model. Ratios are
taken in turn within one run, of the process's seconds of one thread. Page faults and the kernel's
share are those of ours, after ten steps. Which sizes are fastest is measured of the loop, and
``experiments.training.micro_batch`` has the result.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engines import study, trial
from experiments.engines import make_engine
from experiments.training.micro_batch import saved_bytes
from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread
from workloads import Batch, load

WORKLOAD, BATCH, EVALUATED = "cifar10-resnet8", 256, 2048
SIZES = (8, 16, 32, 64, 128, 256)
"""Examples of a forward pass."""
BY_HAND = 64
"""Those of the loop by hand."""
PAIRS, STEPS = 9, 3


class Loop:
    """One model by hand."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        """Of a forward pass."""
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
            for part, labels in zip(x.split(self.examples), y.split(self.examples), strict=True):
                loss = nn.functional.cross_entropy(self.model(part), labels, reduction="sum")
                (loss / BATCH).backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, count: int) -> tuple[float, float]:
        """The mean loss and the error of the first ``count`` examples."""
        self.model.eval()
        wrong, losses = torch.zeros(()), torch.zeros(())
        for chosen in torch.arange(count).split(self.examples):
            x, y = self.batch(self.validation, chosen, training=False)
            output = self.model(x)
            losses += nn.functional.cross_entropy(output, y, reduction="sum")
            wrong += (output.argmax(1) != y).sum()
        return float(losses) / count, float(wrong) / count


class Used:
    """What this process used while a function ran."""

    def __init__(self, function: Callable[[], object]) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF)
        function()
        after = resource.getrusage(resource.RUSAGE_SELF)
        self.kernel = after.ru_stime - before.ru_stime
        self.seconds = self.kernel + after.ru_utime - before.ru_utime
        self.faults = after.ru_minflt - before.ru_minflt


def against_loop() -> list[dict[str, object]]:
    """Our steps and evaluations over those of the loop by hand, and what the system did."""
    context = StudyContext.load(study(WORKLOAD, BATCH, 1))
    parts = {**context.splits, "validation": context.splits["validation"].head(EVALUATED)}
    engine = make_engine("module", replace(context, splits=parts), (trial(0),))
    loop = Loop(BY_HAND)
    engine.advance(10)
    loop.steps(3)
    table: list[dict[str, object]] = []
    cases: list[tuple[str, int, Callable[[], object], Callable[[], object]]] = [
        (
            f"a step at batch {BATCH}",
            STEPS * BATCH,
            lambda: engine.advance(STEPS),
            lambda: loop.steps(STEPS),
        ),
        (
            f"an evaluation of {EVALUATED:,} examples",
            EVALUATED,
            lambda: engine.evaluate("validation"),
            lambda: loop.evaluate(EVALUATED),
        ),
    ]
    faults: list[float] = []
    kernel: list[float] = []
    for name, examples, ours, by_hand in cases:
        pairs = [(Used(ours), Used(by_hand)) for _ in range(PAIRS)][1:]
        ratios = [loop_used.seconds / used.seconds for used, loop_used in pairs]
        low, middle, high = statistics.quantiles(ratios)
        rate = statistics.median(examples / used.seconds for used, _ in pairs)
        table.append(
            {
                "what": f"{WORKLOAD}, {name}",
                "measured": f"{middle:.2f}× the rate of a loop by hand ({low:.2f} … {high:.2f}), "
                f"{rate:,.0f} images a processor second",
                "wanted": "≥ 0.9×",
            }
        )
        faults += [used.faults / (STEPS if examples != EVALUATED else 1) for used, _ in pairs]
        kernel += [used.kernel / used.seconds for used, _ in pairs]
    return [
        *table,
        {
            "what": "… page faults of a step or an evaluation, the most",
            "measured": f"{max(faults):,.0f}",
            "wanted": "< 1,000",
        },
        {
            "what": "… the kernel's share of the processor's seconds",
            "measured": f"{statistics.mean(kernel):.1%}",
            "wanted": "≤ 5 %",
        },
    ]


def fastest_sizes() -> list[dict[str, object]]:
    """The loop's rates for each size of a forward pass, over the best one's."""
    loops = {size: Loop(size) for size in SIZES}
    first = loops[SIZES[0]]
    batch = first.batch(first.train, torch.arange(32), training=True)
    each = saved_bytes(first.workload, first.model, batch)
    table: list[dict[str, object]] = []
    cases: dict[str, Callable[[Loop], object]] = {
        "steps": lambda loop: loop.steps(1),
        "evaluations": lambda loop: loop.evaluate(512),
    }
    for name, run in cases.items():
        spent: dict[int, list[float]] = {size: [] for size in SIZES}
        for _ in range(PAIRS):
            for size, loop in loops.items():
                spent[size].append(Used(partial(run, loop)).seconds)
        medians = {size: statistics.median(seconds[1:]) for size, seconds in spent.items()}
        best = min(medians.values())
        rates = ", ".join(
            f"{size} ({size * each / 2**20:.0f} MiB) {best / seconds:.2f}"
            for size, seconds in medians.items()
        )
        table.append(
            {
                "what": f"… by hand, {name}: examples of a forward pass (their activations), rate "
                "over the best",
                "measured": rates,
                "wanted": "",
            }
        )
    return table


def rows() -> list[dict[str, object]]:
    """One row a number, for the table in docs/."""
    with single_thread():
        return [*against_loop(), *fastest_sizes()]
