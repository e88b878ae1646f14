"""A small language model: both engines against a bare loop, the optimizer's update alone, and the
share of a pack's seconds that evaluations take, each beside what the arithmetic allows (``floor``).

Each case is timed in turn with what it is compared with, in processor seconds of one thread, and
the least of several timings counts: other work of the machine can only lengthen a timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.floor import Rates, most, operations_of_example, product_seconds, update_seconds
from experiments.engines.module import ModuleEngine
from experiments.engines.selection import choose
from experiments.engines.stacked import StackedEngine
from experiments.optimizers import get
from experiments.plan import Measurement, Outcome, Pack, Study, Trial, WorkloadRef
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from results.targets.target import Target

MODELS = 16
TURNS = 9
SECONDS = 0.15
WORKLOAD = "lm-transformer"
WANTED = {
    ("adamw", 1): 4.0,
    ("adamw", 4): 2.5,
    ("adamw", 16): 1.3,
    ("muon", 1): 2.0,
    ("muon", 4): 2.0,
}
UPDATES = {"adamw": 5.0, "lion": 5.0, "muon": 2.0}


def study(optimizer: str, batch_size: int, **changes: Any) -> Study:
    """A study of the packaged Transformer: 121,000 parameters, 64 tokens, bytes."""
    # The validation split of lm-tiny, whose evaluations are measured.
    workload = WorkloadRef(spec=WORKLOAD, fields={"validation_tokens": 8192})
    values: dict[str, Any] = {"budget_steps": 10**9, "workload": workload, **changes}
    values.setdefault("targets", (Target.parse("validation_cross_entropy < 0.001"),))
    return Study(
        id="benchmark",
        experiment="benchmark",
        optimizer=optimizer,
        schedule="constant",
        batch_size=batch_size,
        trials=MODELS,
        **values,
    )


def trial(index: int) -> Trial:
    """A trial that trains normally."""
    return Trial(
        id=f"trial-{index}", index=index, seed=index, metaparameters={"learning_rate": 1e-3}
    )


def bare_loop(context: StudyContext) -> Callable[[int], None]:
    """One model in a hand-written loop, with the optimizer that a user would construct."""
    workload, batch_size = context.workload, context.study.batch_size
    model = workload.model().train()
    named = list(model.named_parameters())
    optimizer = get(context.study.optimizer).module(named, {"learning_rate": 1e-3})
    order, position = torch.randperm(len(context.train)), 0

    def train(steps: int) -> None:
        nonlocal order, position
        for _ in range(steps):
            if position + batch_size > len(order):
                order, position = torch.randperm(len(order)), 0
            batch = context.train.fetch(order[position : position + batch_size], training=True)
            position += batch_size
            optimizer.zero_grad()
            workload.loss(workload.forward(model, batch), batch).mean().backward()
            optimizer.step()

    return train


def least_seconds(timed: Mapping[str, Callable[[int], None]]) -> dict[str, float]:
    """The least processor seconds of one call of each with 1, timed in turn."""
    counts, least = {}, dict.fromkeys(timed, float("inf"))
    for name, function in timed.items():
        function(2)
        counts[name] = max(1, int(SECONDS / _seconds(function, 2)))
    for _ in range(TURNS):
        for name, function in timed.items():
            least[name] = min(least[name], _seconds(function, counts[name]))
    return least


def _seconds(function: Callable[[int], None], count: int) -> float:
    began = time.process_time()
    function(count)
    return (time.process_time() - began) / count


def engine_rows(optimizer: str, batch_size: int, rates: Rates) -> list[dict[str, object]]:
    """A pack in the stacked engine, and one model in the module engine, against the bare loop."""
    context = StudyContext.load(study(optimizer, batch_size))
    trials = [trial(i) for i in range(MODELS)]
    stack = StackedEngine(context, trials)
    least = least_seconds(
        {
            "stacked": stack.advance,
            "module": ModuleEngine(context, trials[:1]).advance,
            "bare": bare_loop(context),
        }
    )
    wanted = WANTED.get((optimizer, batch_size))
    stacked, module = MODELS * least["bare"] / least["stacked"], least["bare"] / least["module"]
    what = f"{WORKLOAD}, {optimizer}, batch {batch_size}"
    return [
        {
            "what": f"{what}: a pack of {MODELS} in the stacked engine",
            "measured": f"{stacked:.2f}× the bare loop's models · steps/s; "
            f"{most(context, least['bare'], rates, product_seconds(stack.advance) / MODELS)}",
            "wanted": f"≥ {wanted}×" if wanted else "",
        },
        {
            "what": f"{what}: module engine",
            "measured": f"{module:.2f}×; {'stacked' if stacked > module else 'module'} is faster",
            "wanted": f"≥ 0.97×; chosen: {choose(context, trials)}",
        },
    ]


def update_row(optimizer: str, wanted: float, rates: Rates) -> dict[str, object]:
    """The update alone, of all models of a pack: stacked against one optimizer a model."""
    context = StudyContext.load(study(optimizer, 1))
    trials = [trial(i) for i in range(MODELS)]
    stacked, module = StackedEngine(context, trials), ModuleEngine(context, trials)
    for engine in (stacked, module):
        engine.advance(2)
    gradient: Tensor = stacked.stack.gradient.clone()
    learning_rates = torch.full((MODELS, 1), 1e-3, dtype=torch.float64)

    def restore(count: int) -> None:
        for _ in range(count):
            stacked.stack.gradient.copy_(gradient)

    @torch.no_grad()
    def update(count: int) -> None:
        for _ in range(count):
            stacked.stack.gradient.copy_(gradient)
            stacked.update.step(learning_rates)

    def separate(count: int) -> None:
        for _ in range(count):
            for run in module.runs:
                run.optimizer.step()

    least = least_seconds({"restore": restore, "update": update, "separate": separate})
    ratio = least["separate"] / (least["update"] - least["restore"])
    shortest = MODELS * update_seconds(context, rates)
    return {
        "what": f"{WORKLOAD}, {optimizer}: the update alone, {MODELS} models",
        "measured": f"stacked {ratio:.2f}× as fast as {MODELS} optimizers; at most "
        f"{least['separate'] / shortest:.1f}× by its arithmetic",
        "wanted": f"≥ {wanted}×",
    }


def evaluation_row(workload: str, batch_size: int, budget_steps: int) -> dict[str, object]:
    """The share of evaluations in a pack that trains to its budget on the usual grid."""
    changes: dict[str, Any] = {}
    if workload != WORKLOAD:
        target = Target.parse("validation_error < 0.0001")
        changes = {"workload": WorkloadRef(spec=workload), "targets": (target,)}
    of = study("adamw", batch_size, budget_steps=budget_steps, **changes)
    pack = Pack(id="pack", study=of, trials=tuple(trial(i) for i in range(MODELS)), engine="auto")
    events = [event for each in Training(pack).run() for event in each]
    end = [event for event in events if isinstance(event, Outcome)][-1]
    share = end.evaluation_seconds / (
        end.train_seconds + end.evaluation_seconds + end.other_seconds
    )
    context = StudyContext.load(of)
    training, evaluation = operations_of_example(context)
    evaluations = sum(isinstance(event, Measurement) for event in events) // MODELS
    examples = sum(len(context.splits[name]) for name in context.evaluated)
    evaluated = evaluations * examples * evaluation
    of_operations = evaluated / (evaluated + budget_steps * batch_size * training)
    return {
        "what": f"{workload}, batch {batch_size}, {budget_steps} steps: evaluations' share of a "
        "pack's seconds",
        "measured": f"{share:.0%}; of the operations {of_operations:.0%}",
        "wanted": "≤ 15 %",
    }


def rows() -> list[dict[str, object]]:
    """One row a case, for the table in docs/."""
    torch.set_num_threads(1)
    table: list[dict[str, object]] = []
    torch.set_flush_denormal(True)  # as the training loop does
    rates = Rates.measured()
    for optimizer, sizes in {"adamw": (1, 4, 8, 16), "muon": (1, 4, 8, 16)}.items():
        for batch_size in sizes:
            table += engine_rows(optimizer, batch_size, rates)
            print(*table[-2:], sep="\n", flush=True)
    for optimizer, wanted in UPDATES.items():
        table.append(update_row(optimizer, wanted, rates))
        print(table[-1], flush=True)
    torch.set_flush_denormal(False)
    for case in ((WORKLOAD, 4, 250), ("digits-mlp", 8, 4000), ("digits-mlp", 64, 2000)):
        table.append(evaluation_row(*case))
        print(table[-1], flush=True)
    return table


if __name__ == "__main__":
    rows()
