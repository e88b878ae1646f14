"""Steps per second of both engines against a bare hand-written PyTorch loop of the same model.

The bare loop is code written by hand for one model: index the batch, forward, backward,
``optimizer.step()``. Ratios are taken in turn within one run, since machines are noisy; the median
of the pairs is reported, with its quartiles, beside what the arithmetic allows (``floor``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.floor import Rates, most, product_seconds
from experiments.engines import make_engine
from experiments.plan import Study, Trial, WorkloadRef
from experiments.training.study_context import StudyContext
from results.targets.target import Target
from workloads import load

PAIRS = 41
SECONDS = 0.2


def study(workload: str, batch_size: int, trials: int) -> Study:
    """A study that trains ``workload`` with SGD."""
    return Study(
        id="benchmark",
        experiment="benchmark",
        workload=WorkloadRef(spec=workload),
        optimizer="sgd",
        schedule="constant",
        batch_size=batch_size,
        trials=trials,
        budget_steps=10**9,
        targets=(Target.parse("validation_error < 0.001"),),
    )


def trial(index: int) -> Trial:
    """A trial that trains normally, without divergence or a plateau."""
    return Trial(
        id=f"trial-{index}", index=index, seed=index, metaparameters={"learning_rate": 0.01}
    )


def bare_loop(workload: str, batch_size: int) -> Callable[[int], None]:
    """A hand-written function that trains one model for a number of steps."""
    loaded = load(workload)
    split = loaded.data()["train"]
    assert isinstance(split, tuple)
    x, y = split
    model = loaded.model().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    order, position = torch.randperm(len(x)), 0

    def train(steps: int) -> None:
        nonlocal order, position
        for _ in range(steps):
            if position + batch_size > len(x):
                order, position = torch.randperm(len(x)), 0
            chosen = order[position : position + batch_size]
            position += batch_size
            batch = loaded.transform((x[chosen], y[chosen]), training=True)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
            loss.backward()
            optimizer.step()

    return train


def rate(advance: Callable[[int], None], steps: int) -> float:
    """Steps per second over ``steps`` steps."""
    began = time.perf_counter()
    advance(steps)
    return steps / (time.perf_counter() - began)


def calibrate(advance: Callable[[int], None]) -> int:
    """Steps that take about ``SECONDS``."""
    steps = 1
    while steps / rate(advance, steps) < SECONDS / 4:
        steps *= 2
    return max(1, int(rate(advance, steps) * SECONDS))


def ratio(kind: str, context: StudyContext, models: int) -> dict[str, float]:
    """Models · steps per second of an engine over the bare loop's: median of the pairs."""
    workload, batch_size = context.study.workload.spec, context.study.batch_size
    engine = make_engine(kind, context, tuple(trial(i) for i in range(models)))
    bare = bare_loop(workload, batch_size)
    ours, theirs = calibrate(engine.advance), calibrate(bare)
    pairs = [(rate(engine.advance, ours) * models, rate(bare, theirs)) for _ in range(PAIRS)]
    return {
        "products": product_seconds(engine.advance) / models,
        "ours": statistics.median(p[0] for p in pairs),
        "bare": statistics.median(p[1] for p in pairs),
        "ratio": statistics.median(p[0] / p[1] for p in pairs),
        "low": statistics.quantiles([p[0] / p[1] for p in pairs])[0],
        "high": statistics.quantiles([p[0] / p[1] for p in pairs])[2],
    }


CASES = [
    ("module", "digits-mlp", 8, 1, 0.95),
    ("module", "digits-mlp", 256, 1, 0.95),
    ("stacked", "digits-mlp", 8, 64, 20.0),
    ("stacked", "digits-mlp", 64, 64, 8.0),
    ("stacked", "digits-mlp", 256, 64, None),
    ("stacked", "digits-softmax", 8, 64, None),
    ("auto", "mnist-simple-cnn", 16, 16, 2.0),
]


def rows() -> list[dict[str, object]]:
    """One row a case, for the table in docs/."""
    torch.set_num_threads(1)
    rates = Rates.measured()
    table: list[dict[str, object]] = []
    for kind, workload, batch_size, models, wanted in CASES:
        context = StudyContext.load(study(workload, batch_size, models))
        measured = ratio(kind, context, models)
        table.append(
            {
                "what": f"{kind} engine, {workload}, batch {batch_size}, {models} model(s)",
                "measured": f"{measured['ratio']:.2f}× the bare loop's models · steps/s "
                f"({measured['low']:.2f} … {measured['high']:.2f}); "
                f"{most(context, 1 / measured['bare'], rates, measured['products'])}",
                "wanted": f"≥ {wanted}×" if wanted else "",
            }
        )
        print(table[-1], flush=True)
    return table


if __name__ == "__main__":
    rows()
