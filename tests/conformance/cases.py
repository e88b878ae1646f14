"""What the conformance suite trains: a small study of each entry of each registry and user file.

An optimizer, a schedule, a technique or a workload that is added has a case by being in its folder;
``EXAMPLES``, ``SETTINGS`` and ``SMALL`` say what an entry needs that its defaults do not give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import batchscale as bs
import workloads
from experiments import optimizers, schedules, techniques
from experiments.batch_sizes import BatchSizes
from experiments.plan import Study, Trial, WorkloadRef
from tests import problems
from tests.conformance.user_files import FILES, STREAMS
from tests.workloads import test_packaged

KINDS = ("module", "stacked")
BUDGET = 60
"""Steps; what begins or ends at a share of the budget does so in the steps that are trained."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A study, and trials of it."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """As ``tests.problems.study`` takes them."""
    spec: str = "digits-mlp"
    fields: Mapping[str, Any] = field(default_factory=dict)
    tuned: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """More metaparameters: their values, of which each trial takes the next one."""
    stacks: bool = True
    precision: str = "float64"
    """In which a trial's bits are compared."""
    divided: int | None = 8
    """Examples of a micro-batch; None: a batch is trained whole."""
    changes_training: bool = True
    """Whether the weights are others without its technique."""
    close: float = 1e-9
    """How near the engines are in float64, relative to a tensor's largest weight."""
    slow: bool = False

    def study(self, base: Path, precision: str, **changes: Any) -> Study:
        given = {"batch_size": 16, "budget_steps": BUDGET, "keep": None, **self.changes, **changes}
        ref = WorkloadRef(spec=self.spec, fields=dict(self.fields), base=str(base))
        loaded = workloads.load(self.spec, self.fields, base)
        target = given.pop("target", loaded.target)
        return problems.study(workload=ref, precision=precision, target=target, **given)

    def trials(self, of: Study, count: int) -> tuple[Trial, ...]:
        made = problems.trials(of, count, seed=4)
        return tuple(
            replace(
                trial,
                metaparameters={
                    **trial.metaparameters,
                    **{name: values[i % len(values)] for name, values in self.tuned.items()},
                },
            )
            for i, trial in enumerate(made)
        )


# Optimizers, each with some schedule; schedules, each with some optimizer

USERS_OPTIMIZERS = (
    "RMSprop", "Adadelta", "rules.py:Split", "rules.py:Named", "rules.py:Inner", "my_opt.py:Lion",
    "muon.py:MuonAdamW", "grouped.py:Signed",
)  # fmt: skip
OWN_CASE: dict[str, dict[str, Any]] = {
    # Its QR is in float32, whatever the precision, and follows rounding where a gradient is zero.
    "soap": {"spec": "digits-softmax", "close": 1e-5}
}


def optimizer_cases() -> Iterator[Case]:
    names, plans = [*optimizers.names(), *USERS_OPTIMIZERS], schedules.names()
    for i in range(max(len(names), len(plans))):
        optimizer, schedule = names[i % len(names)], plans[i % len(plans)]
        of = {"optimizer": optimizer, "schedule": schedule}
        kept: dict[str, Any] = {"precision": "float32", **OWN_CASE.get(optimizer, {})}
        if optimizers.get(optimizer if ":" not in optimizer else "sgd").amplifies_rounding:
            kept["divided"] = None
        yield Case(name=f"{optimizer} {schedule}", changes=of, **kept)
    for optimizer in ("adamw", "muon", "momentum", "RMSprop", "lamb", "grouped.py:Signed"):
        yield Case(name=f"{optimizer} in groups", spec="grouped.py:Grouped",
                   changes={"optimizer": optimizer, "schedule": "linear"}, precision="float32",
                   slow=optimizer not in ("adamw", "muon"))  # fmt: skip
    for optimizer in ("adamw", "sgd", "momentum", "rmsprop", "lion", "lars", "muon"):
        # No trial that a pack begins with has decay; some that join it have.
        yield Case(name=f"{optimizer}, decay joins", changes={"optimizer": optimizer},
                   tuned={"weight_decay": (0.0, 0.0, 0.0, 0.0, 0.01)}, precision="float32",
                   slow=optimizer not in ("adamw", "momentum"))  # fmt: skip
    for optimizer in ("adam", "nesterov"):
        shared = (0.8, 0.8, 0.8, 0.8, 0.6)
        yield Case(name=f"{optimizer}, values that most share", precision="float32",
                   changes={"optimizer": optimizer},
                   tuned={"beta1": shared, "momentum": shared, "weight_decay": (0.01,)},
                   slow=optimizer != "adam")  # fmt: skip
    ways = {"nesterov": (True, False), "ns_steps": (4, 5), "adamw.learning_rate": (2e-3,)}
    yield Case(name="ways of Muon", spec="hidden.py:Deep", changes={"optimizer": "muon"},
               tuned=ways, precision="float32")  # fmt: skip


# Techniques

EXAMPLES: dict[str, Any] = {
    "accumulate": 4,
    "attention": "math",
    "augment": 0.25,
    "checkpoint": "2",
    "clip": 0.05,
    "compile": "eager",
    "cutmix": 1.0,
    "distill": "first.safetensors",
    "dropout": 0.2,
    "ema": 0.9,
    "fine_tune": "first.safetensors",
    "freeze": "0.*",
    "gradient_noise": 0.01,
    "label_smoothing": 0.1,
    "lookahead": 3,
    "lora": 2,
    "mixup": 0.4,
    "noise_scale": 3,
    "prune": 0.8,
    "quantize": 8,
    "rand_augment": 9,
    "resize": 0.5,
    "sam": 0.05,
    "select": 0.5,
    "stochastic_depth": {"rate": 0.2, "branches": ("2",)},
    "swa": 0.05,
    "weight_decay": 0.01,
}
"""Arguments with which a technique tells in a few steps; without: its defaults."""
SETTINGS: dict[str, dict[str, Any]] = {
    "accumulate": {"changes_training": False, "divided": None},
    "attention": {"spec": "attending.py:Attending", "stacks": False, "changes_training": False},
    "augment": {"spec": "images.py:Images"},
    "channels_last": {"spec": "images.py:Images", "stacks": False, "changes_training": False},
    "checkpoint": {"stacks": False, "changes_training": False},
    "compile": {"stacks": False, "changes_training": False, "slow": True},
    "cutmix": {"spec": "images.py:Images"},
    "fused": {"stacks": False, "changes_training": False},
    "noise_scale": {"changes_training": False},
    "rand_augment": {"spec": "images.py:Images"},
    "resize": {"spec": "images.py:Images", "stacks": False},
}
"""What its study needs, and what is not so of it that is so of the others."""
OF_SEVERAL_RANKS = ("compress",)
"""Techniques that a single process refuses."""
VARIANTS: tuple[dict[str, Any], ...] = (
    {"clip": {"value": 0.001}},
    {"clip": {"norm": 0.05, "value": 0.001}},
    {"weight_decay": {"rate": 0.01, "kind": "coupled"}},
    {"weight_decay": {"rate": 0.01, "of": "all"}},
    {"prune": {"sparsity": 0.5, "by": "random"}},
    {"prune": {"sparsity": 0.9, "by": "gradient"}},
    {"prune": {"sparsity": 0.9, "by": "gradient", "scope": "layer"}},
    {"prune": {"sparsity": 0.8, "until": 0.08, "stages": 6}},
    {"prune": {"sparsity": 0.8, "by": "random", "until": 0.08}},
    {"prune": {"sparsity": 0.5, "structure": "units"}},
    {"prune": {"sparsity": 0.5, "structure": "units", "until": 0.08}},
    {"quantize": {"bits": 4, "activations": 8}},
    {"quantize": {"bits": 4, "when": "after"}},
    {"sam": {"rho": 0.3, "adaptive": True}},
    {"freeze": {"parameters": "*", "trained": ("2.weight", "*.bias")}},
    {"fine_tune": "first.safetensors", "lora": {"rank": 1, "trained": "2.*"}},
    {"prune": {"sparsity": 0.9, "until": 0.08}, "ema": 0.9},
    {"prune": {"sparsity": 0.9, "until": 0.08}, "lookahead": 3},
    {"clip": 0.05, "gradient_noise": 0.01, "weight_decay": 0.01, "dropout": 0.2, "swa": 0.05},
    {"my.py:Everything": 0.1},
    {"my.py:Everything": 0.1, "clip": 0.05, "ema": 0.9},
    {"hooks.py:Partners": True},
    {"hooks.py:Hardest": True},
    {"hooks.py:Ahead": True},
    {"hooks.py:Begin": True},
    {"hooks.py:Outer": True, "hooks.py:Inner": True},
    {"prepared.py:MeanInput": True},
    {"dropout": 0.3, "mixup": 0.4, "select": 0.5, "sam": 0.05},
)
"""Other arguments, compositions, and techniques of users' files."""
QUICK_VARIANTS = ("my.py:Everything, clip, ema", "hooks.py:Partners", "hooks.py:Hardest")


def example(name: str) -> Any:
    """Arguments of a packaged technique."""
    return EXAMPLES.get(name, True)


ON_DIGITS: tuple[dict[str, Any], ...] = tuple(
    each
    for each in (*({name: example(name)} for name in techniques.names()), *VARIANTS)
    if not any(
        name in OF_SEVERAL_RANKS or ".py" in name or SETTINGS.get(name) or "first" in str(value)
        for name, value in each.items()
    )
)
"""Packaged ones that any model takes and that need no file."""


def technique_cases() -> Iterator[Case]:
    common = {"optimizer": "momentum", "schedule": "cosine"}
    for name in techniques.names():
        if name not in OF_SEVERAL_RANKS:
            changes = {**common, "technique": {name: example(name)}}
            if name == "fused":
                changes["optimizer"] = "adamw"
            yield Case(name=name, changes=changes, **SETTINGS.get(name, {}))
    seen = set(techniques.names())
    for technique in VARIANTS:
        name = ", ".join(technique)
        yield Case(
            name=name if name not in seen else str(technique),
            changes={**common, "technique": technique},
            slow=name not in QUICK_VARIANTS,
            changes_training="when" not in str(technique),
        )
        seen.add(name)
    yield Case(
        name="an argument for each trial",
        changes={"technique": {"clip": 1.0, "lookahead": 3}},
        tuned={"clip.norm": (0.01, 0.1, 10.0, 0.3), "lookahead.every": (2, 3, 4)},
    )


# Workloads

SMALL: dict[str, dict[str, Any]] = {
    **test_packaged.SMALL,
    "cifar10-resnet8": {"augmented": True, "width": 2},
    "cifar10-vgg11": {"augmented": True, "width": 1},
    "cifar100-vgg11": {"augmented": True, "width": 1},
    "multilabel-mlp": {"widths": [8], "labels": 5},
    "teacher": {"width": 8},
    "markov": {"width": 8},
    "lm-transformer": {"text": "file:text.txt", "layers": 1, "width": 8, "heads": 2, "context": 6},
    "lm-lstm": {"text": "file:text.txt", "width": 6, "context": 4},
}
"""Fields with which a workload trains in a moment."""
NORMED = ("cifar10-resnet18", "cifar100-resnet18", "imagenet-resnet50", "imagenet-resnet18")
"""Those with batch norm, which keeps running statistics and is trained in ghost batches."""
LARGE = ("mnist", "fashion", "cifar", "imagenet")


def made_up(workload: Any) -> dict[str, tuple[torch.Tensor, ...]]:
    """Random splits in the place of data that may be absent."""
    shape, dtype = test_packaged.STORED[workload.dataset]
    draw = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (64, *shape), generator=draw)
    x = x.to(dtype) if dtype == torch.uint8 else x / 255
    return dict.fromkeys(("train", "validation", "test"), (x, torch.arange(64) % 10))


def workload_cases() -> Iterator[Case]:
    for name in workloads.names():
        kept: dict[str, Any]
        changes: dict[str, Any]
        if name in NORMED:
            # Norms over a few pixels of such small images amplify rounding.
            divided = None if name.startswith("imagenet") else 8
            kept = {"stacks": False, "divided": divided, "close": 1e-6}
            changes = {"technique": {"ghost_batch": 4}}
        else:
            kept, changes = {}, {}
        yield Case(
            name=name, spec=name, fields=SMALL.get(name, {}), changes=changes,
            slow=name.startswith(LARGE), **kept,
        )  # fmt: skip
    adamw = {"optimizer": "adamw"}
    transformer, lstm = SMALL["lm-transformer"], SMALL["lm-lstm"]
    for spec, fields in (
        ("lm-transformer", {**transformer, "tied": False, "positions": "rotary"}),
        ("lm-transformer", {**transformer, "layers": 2, "dropout": 0.2}),
        ("lm-lstm", {**lstm, "tied": True, "dropout": 0.2}),
    ):
        name = f"{spec} {[*fields.values()][5:]}"
        yield Case(name=name, spec=spec, fields=fields, changes=adamw, slow="lstm" not in spec)
    for optimizer in ("muon", "lamb", "lars", "schedule-free-adamw"):
        yield Case(name=f"{optimizer} on text", spec="lm-transformer", fields=transformer,
                   changes={"optimizer": optimizer, "schedule": "wsd"}, divided=None,
                   slow=True)  # fmt: skip
    for name in STREAMS:
        small = {"batch_size": 8, "optimizer": "momentum"}
        yield Case(name=f"stream {name}", spec="streams.py:Stream", fields={"data_set": name},
                   changes=small, divided=4, slow=name not in ("Random", "Stateful"))  # fmt: skip
    for spec in (
        "randomly.py:Noisy", "randomly.py:Streamed", "randomly.py:Dropped", "drops.py:Everything",
        "streams.py:Augmented", "named.py:Named", "named.py:Streamed", "named.py:Listed",
        "tied.py:Tied", "counted.py:Counted", "spread.py:Own", "generated.py:Parabola",
        "padded.py:Padded", "randomly.py:NoisyStreamed",
    ):  # fmt: skip
        slow = spec in ("drops.py:Everything", "named.py:Streamed", "named.py:Listed")
        yield Case(name=spec, spec=spec, slow=slow)
    yield Case(name="batch norm", spec="randomly.py:Normed", stacks=False, divided=8, close=1e-8,
               changes={"technique": {"ghost_batch": 4}})  # fmt: skip
    yield Case(name="averaged batch norm", spec="randomly.py:Normed", stacks=False, close=1e-8,
               changes={"technique": {"ghost_batch": 4, "ema": 0.9}})  # fmt: skip
    yield Case(name="layers at random", spec="drops.py:Skipping", stacks=False)
    yield Case(name="a tuned field", spec="drops.py:Dropped", stacks=False,
               tuned={"rate": (0.0, 0.3, 0.9)})  # fmt: skip


# Batch sizes


def batch_size_cases() -> Iterator[Case]:
    for size in (1, 300, 1297):
        yield Case(name=f"batches of {size}", slow=size != 300, precision="float32",
                   divided=None if size == 1 else 150,
                   changes={"batch_size": size, "optimizer": "adam"})  # fmt: skip
    growing = BatchSizes.growing(16, BUDGET, [(3, 24), (8, 40)])
    for optimizer, technique in (("adam", {"clip": 0.5, "ema": 0.9}), ("RMSprop", {})):
        ramp = {"ramp": growing, "budget_steps": growing.budget_steps, "schedule": "linear"}
        yield Case(name=f"growing batches, {optimizer}", slow=optimizer != "adam",
                   precision="float32",
                   changes={**ramp, "optimizer": optimizer, "technique": technique})  # fmt: skip


QUICK_PACKS = (
    "an argument for each trial", "batch norm", "digits-softmax", "dropout", "ema",
    "gradient_noise", "lm-lstm", "lookahead", "mixup", "my.py:Everything, clip, ema",
    "randomly.py:Noisy", "stream Stateful", "teacher", "tied.py:Tied",
)  # fmt: skip
"""Of techniques and workloads, each of which takes traces of its own: those with a state, random
numbers, buffers or an order of their own, whose bits the quick tests compare."""
CASES = (*optimizer_cases(), *technique_cases(), *workload_cases(), *batch_size_cases())


def folder(base: Path) -> Path:
    """A folder with the users' files, a text, and the weights of a trial."""
    for name, text in FILES.items():
        (base / name).write_text(text)
    letters = np.cumsum(np.random.default_rng(0).integers(1, 4, size=4000)) % 11
    (base / "text.txt").write_bytes(bytes(97 + letters.astype(np.uint8)))
    bs.trial(
        "digits-mlp", batch_size=64, learning_rate=0.3, budget="60 steps",
        save=base / "first.safetensors",
    )  # fmt: skip
    return base
