"""Speed of training with a technique, relative to plain training of the same models.

The plain study and the one with the technique take turns, a few steps each, within one run. Ratios
are of processor time, which waiting for a core does not change. On a GPU those of kernels are
others: these say what they cost or save on this processor.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.harness import Model, Row, in_turn, ratio, steps_for, trials
from experiments.engines import Engine, make_engine
from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread

ROUNDS = 9
SECONDS = 0.15
"""Of one turn, about."""
BUDGET = 2_000
WANTED = 0.7
"""Of the plain speed, of the first ones."""


STACK = Model(workload="digits-mlp", batch_size=64, models=64)
TRANSFORMER = Model(
    workload="lm-transformer", batch_size=16, optimizer="adamw",
    fields={"text": "stdlib", "context": 64, "layers": 2, "width": 64, "heads": 2},
)  # fmt: skip
CNN = Model(workload="mnist-simple-cnn", batch_size=16)
RESNET = Model(workload="cifar10-resnet8", batch_size=32)
CASES: dict[str, tuple[Model, dict[str, Any]]] = {
    "clip": (STACK, {"clip": 1.0}),
    "clip, by value": (STACK, {"clip": {"value": 0.01}}),
    "ema": (STACK, {"ema": 0.99}),
    "weight_decay": (STACK, {"weight_decay": 1e-4}),
    "weight_decay, coupled": (STACK, {"weight_decay": {"rate": 1e-4, "kind": "coupled"}}),
    "label_smoothing": (STACK, {"label_smoothing": 0.1}),
    "dropout": (STACK, {"dropout": 0.1}),
    "gradient_noise": (STACK, {"gradient_noise": 1e-4}),
    "swa": (STACK, {"swa": {"begin": 0.5}}),
    "lookahead": (STACK, {"lookahead": 5}),
    "prune": (STACK, {"prune": 0.9}),
    "prune, by gradient": (STACK, {"prune": {"sparsity": 0.9, "by": "gradient"}}),
    "prune, gradually": (STACK, {"prune": {"sparsity": 0.9, "until": 0.8}}),
    "quantize": (STACK, {"quantize": 8}),
    "distill": (STACK, {"distill": "mnist8-fc"}),
    "noise_scale": (STACK, {"noise_scale": True}),
    "noise_scale, Transformer": (TRANSFORMER, {"noise_scale": True}),
    "noise_scale, CNN": (CNN, {"noise_scale": True}),
    "fused, adamw": (Model(workload="mnist-fc", batch_size=64, optimizer="adamw"), {"fused": True}),
    "channels_last": (RESNET, {"channels_last": True}),
    "channels_last, CNN": (CNN, {"channels_last": True}),
    "attention: math": (TRANSFORMER, {"attention": "math"}),
    "attention: flash": (TRANSFORMER, {"attention": "flash"}),
    "compile: inductor": (TRANSFORMER, {"compile": True}),
    "compile: inductor, CNN": (CNN, {"compile": True}),
    "compile: inductor, ResNet": (RESNET, {"compile": True}),
    "checkpoint": (TRANSFORMER, {"checkpoint": True}),
    "bfloat16": (TRANSFORMER, {"precision": "bfloat16"}),
}
"""The model and its technique."""


def engine(model: Model, technique: dict[str, Any]) -> Engine:
    """A stack, or one model in the module engine, that trains with ``technique``."""
    of = model.study(technique=technique, budget_steps=BUDGET)
    kind = "module" if model.models == 1 else "stacked"
    return make_engine(kind, StudyContext.load(of), trials(model.models))


def rows() -> list[Row]:
    """One row a technique, for the table in docs/."""
    table: list[Row] = []
    with single_thread():
        for name, (model, technique) in CASES.items():
            advance = {
                "plain": engine(model, {}).advance,
                "changed": engine(model, technique).advance,
            }
            steps = steps_for(advance["plain"], SECONDS)
            advance["changed"](3)  # compiles
            used = in_turn({key: partial(each, steps) for key, each in advance.items()}, ROUNDS)
            _, said = ratio(used["changed"], used["plain"])
            what = f"{name}, {model.workload}, batch {model.batch_size}"
            wanted = f"≥ {WANTED}×" if model is STACK else ""
            table.append(Row(what, f"{said} the plain speed", wanted))
            print(table[-1], flush=True)
    return table
