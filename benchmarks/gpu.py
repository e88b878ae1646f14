"""On one CUDA GPU: ``python -m benchmarks.gpu [GROUP …]``, without Ray and without a network.

Each group ends within nine minutes. What has been measured is in ``gpu.json`` of ``--out``, beside
it as Markdown: a group that is there is not measured again (``--again``), and the group ``sweep``
goes on where its last call ended. ``python -m benchmarks merge gpu.json`` puts the tables into
docs/findings/benchmarks.md.

``$BATCHSCALE_DATA`` is the data root. ``--device cpu --small`` runs all of it in small, to see that
it works.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import batchscale as bs
from benchmarks.gpu_loops import MINUTES, Settings, eager_loop, pack, seconds, steps_for
from benchmarks.harness import PAGE, Row, study, trials
from experiments.engines import make_engine
from experiments.engines.capture import captured_step
from experiments.training.study_context import StudyContext
from validation.page import renew, table
from workloads import WorkloadError

NOT_MEASURED = "not measured: no GPU"
RESNET8 = ((64, 32), (1024, 32), (4096, 8))
"""Batch sizes of packs of ResNet-8, and their models."""
Measured = tuple[str, str]
"""What was measured, and its value in words."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Measurements of one call."""

    wanted: dict[str, str]
    """The rows, and what is wanted of each."""
    measure: Callable[[Settings], Iterator[Measured]]

    def rows(self, measured: dict[str, str]) -> list[Row]:
        """All rows, for a table."""
        listed = {**dict.fromkeys(self.wanted, NOT_MEASURED), **measured}
        return [Row(what, value, self.wanted.get(what, "")) for what, value in listed.items()]


def twins(settings: Settings) -> Iterator[Measured]:
    """Steps from a recording against the same ones without."""
    steps = 4 if settings.small else 200
    for optimizer in ("nesterov", "adam"):
        technique = {"precision": "float64", "dropout": 0.1}
        of = study("digits-mlp", 16, 3, optimizer=optimizer, schedule="cosine", technique=technique)
        values = {"learning_rate": 1e-3, "momentum": 0.9, "decay_steps": 150}
        values |= {"beta1": 0.9, "beta2": 0.99, "weight_decay": 1e-3}
        given = tuple(replace(each, metaparameters=values) for each in trials(3))
        weights, recordings = [], [captured_step.RECORDERS, {}]
        for captured_step.RECORDERS in recordings:
            captured_step.forget()
            engine = make_engine("stacked", StudyContext.load(of, str(settings.device)), given)
            engine.advance(steps)
            weights.append(engine.weights(2))
            if captured_step.RECORDERS:
                programs = list(captured_step._programs.values())
        captured_step.RECORDERS = recordings[0]
        differences = [float((w - weights[1][n]).abs().max()) for n, w in weights[0].items()]
        refused = [each.refusal for each in programs if each.refusal]
        yield (
            f"recorded against eager, {optimizer}, 200 steps in float64",
            f"differ by {max(differences):.1e}; {len(programs)} recorded, refused: {refused}",
        )


def demo(settings: Settings) -> Iterator[Measured]:
    """The packaged experiment ``digits`` in this process."""
    recording, began = captured_step.Program.seconds, time.perf_counter()
    less: list[str] = []
    if settings.small:
        less = ["grid.batch_size=[256]", "grid.optimizer=[sgd]", "budget=2 steps", "trials=2"]
    folder = settings.out / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    bs.sweep("digits", results=folder, address="none", overrides=less, seconds=500)
    spent = time.perf_counter() - began
    yield "the demo in this process", f"{spent:.1f} s"
    share = (captured_step.Program.seconds - recording) / spent
    yield "the demo: recording steps, of its time", f"{share:.1%}"


def digits(settings: Settings) -> Iterator[Measured]:
    """Packs of a small model."""
    for models in (64, 256, 1024)[: 1 if settings.small else 3]:
        count = 4 if settings.small else models
        advance = pack("stacked", "digits-mlp", 8, count, settings).advance
        steps = steps_for(advance, settings)
        rate = steps * count / seconds(advance, steps, settings)
        yield f"digits-mlp, pack of {models}, batch 8", f"{rate / 1e6:.3f} M model-steps/s"


def resnet8(settings: Settings) -> Iterator[Measured]:
    """A pack of convolutional networks in both engines, against a bare loop, in turn."""
    for size, models in RESNET8[: 1 if settings.small else 3]:
        examples, count = (8, 2) if settings.small else (size, models)
        bare = eager_loop("cifar10-resnet8", examples, settings)
        steps = steps_for(bare, settings)
        theirs = steps * examples / seconds(bare, steps, settings)
        for kind in ("stacked", "module"):
            advance = pack(
                kind, "cifar10-resnet8", examples, count, settings, precision="bfloat16"
            ).advance
            steps = steps_for(advance, settings)
            ours = steps * examples * count / seconds(advance, steps, settings)
            yield (
                f"cifar10-resnet8, pack of {models}, batch {size}, {kind} engine, bfloat16",
                f"{ours / 1e6:.3f} M images/s, {ours / theirs:.2f}× a bare eager loop",
            )
            del advance
            captured_step.forget()


def resnet18(settings: Settings) -> Iterator[Measured]:
    """One large model against a loop that is written to be fast."""
    examples = 32 if settings.small else 512
    technique = {"precision": "bfloat16", "channels_last": True, "ghost_batch": 32}
    advance = pack("module", "cifar10-resnet18", examples, 1, settings, **technique).advance
    tuned = eager_loop("cifar10-resnet18", examples, settings, tuned=True)
    rates = []
    for loop in (advance, tuned):
        steps = 1 if settings.small else steps_for(loop, settings)
        rates.append(steps * examples / seconds(loop, steps, settings))
    yield (
        "cifar10-resnet18, one model, batch 512, bfloat16",
        f"{rates[0]:,.0f} images/s, {rates[0] / rates[1]:.2f}× a hand-optimized loop",
    )


def sweep(settings: Settings) -> Iterator[Measured]:
    """ResNet-8 on CIFAR-10, small batches first, as far as a call gets; the next one goes on."""
    changes = [
        "precision=tf32",
        "target=[validation_error < 0.4, validation_error < 0.35, validation_error < 0.3]",
        "budget=1000000 examples + 2500 steps",
    ]
    sizes = ["[64, 128, 256]", "[512]", "[1024]", "[2048]", "[4096]"]
    if settings.small:
        changes, sizes = ["budget=3 steps", "trials=2"], ["[64]", "[128]"]
    known = settings.out / "sweep.json"
    recording, began = captured_step.Program.seconds, time.perf_counter()
    before = json.loads(known.read_text()) if known.exists() else {"seconds": 0.0, "recording": 0.0}
    for of_sizes in sizes:
        left = 60 * settings.minutes - (time.perf_counter() - began)
        if left <= 0:
            break
        run = bs.sweep(
            "cifar10-resnet8-momentum",
            results=settings.out / "sweep",
            address="none",
            overrides=[f"grid.batch_size={of_sizes}", *changes],
            seconds=left,
        )
        spent = before["seconds"] + time.perf_counter() - began
        recorded = before["recording"] + captured_step.Program.seconds - recording
        known.write_text(json.dumps({"seconds": spent, "recording": recorded}))
        trials = run.trials
        yield (
            "ResNet-8 on CIFAR-10, momentum, batch 64 to 4096, errors of 0.4, 0.35 and 0.3",
            f"{len(trials)} trials in {spent / 60:.1f} min, to batch {trials.batch_size.max()}",
        )
        rate = trials.examples_run.sum() / spent / 1e6
        yield "the sweep: images trained, all included", f"{rate:.3f} M a second"
        yield "the sweep: recording steps, of its time", f"{recorded / spent:.1%}"


GROUPS = {
    "twins": Group(
        wanted={
            f"recorded against eager, {optimizer}, 200 steps in float64": (
                "≤ 1e-8; 1 recorded, refused: []"
            )
            for optimizer in ("nesterov", "adam")
        },
        measure=twins,
    ),
    "demo": Group(
        wanted={
            "the demo in this process": "≤ 20 s",
            "the demo: recording steps, of its time": "≤ 10 %",
        },
        measure=demo,
    ),
    "digits": Group(
        wanted={
            f"digits-mlp, pack of {n}, batch 8": "≥ 2 M model-steps/s" for n in (64, 256, 1024)
        },
        measure=digits,
    ),
    "resnet8": Group(
        wanted={
            f"cifar10-resnet8, pack of {models}, batch {size}, {kind} engine, bfloat16": (
                "the faster engine ≥ 0.8 M images/s, ≥ 15×"
            )
            for size, models in RESNET8
            for kind in ("stacked", "module")
        },
        measure=resnet8,
    ),
    "resnet18": Group(
        wanted={"cifar10-resnet18, one model, batch 512, bfloat16": "≥ 0.97×"}, measure=resnet18
    ),
    "sweep": Group(
        wanted={
            "ResNet-8 on CIFAR-10, momentum, batch 64 to 4096, errors of 0.4, 0.35 and 0.3": "",
            "the sweep: images trained, all included": "≥ 0.5 M a second",
            "the sweep: recording steps, of its time": "≤ 10 %",
        },
        measure=sweep,
    ),
}


def rows(measured: dict[str, Any] | None = None) -> list[Row]:
    """All rows of all groups, those that were measured with their numbers."""
    known = measured or {}
    return [
        row
        for name, group in GROUPS.items()
        for row in group.rows(known.get(name, {}).get("rows", {}))
    ]


def section(measured: dict[str, Any]) -> str:
    """The text of a section: each machine's groups, and a table of all rows."""
    machines: dict[str, list[str]] = {}
    for name, group in measured.items():
        machines.setdefault(group["machine"], []).append(name)
    lines = [f"{machine} ({', '.join(names)})" for machine, names in machines.items()]
    text = table(("what", "measured", "wanted"), rows(measured))
    return "\n".join([*lines, "", text]).strip()


def merge(file: Path, page: Path = PAGE) -> None:
    """Put what a call has measured into the section ``gpu`` of the page.

    Raises:
        ValueError: it was measured in small.
    """
    measured = json.loads(file.read_text())
    small = [name for name, group in measured.items() if group["small"]]
    if small:
        raise ValueError(f"{file}: {', '.join(small)} ran with --small, whose numbers mean nothing")
    renew({"gpu": section(measured)}, page)


def main(arguments: Sequence[str]) -> None:
    """Measure the groups that are named, all of them if none is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="folder of the results")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="a few steps of everything")
    parser.add_argument("--again", action="store_true", help="measure what has been, too")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of a call of sweep")
    given = parser.parse_args(arguments)
    unknown = set(given.groups) - set(GROUPS)
    if unknown:
        parser.error(f"unknown group {unknown.pop()!r}; known: {', '.join(GROUPS)}")
    if given.device == "cuda" and not torch.cuda.is_available():
        print(NOT_MEASURED)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    device = torch.device(given.device)
    settings = Settings(device=device, out=given.out, small=given.small, minutes=given.minutes)
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "no GPU"
    machine = (
        f"{datetime.now(UTC):%Y-%m-%d}, {gpu}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, torch {torch.__version__}."
    )
    file = given.out / "gpu.json"
    measured: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name in given.groups or GROUPS:
        if name in measured and not given.again and name != "sweep":
            continue
        measured[name] = {"machine": machine, "small": given.small, "rows": {}}
        try:
            for what, value in GROUPS[name].measure(settings):
                measured[name]["rows"][what] = value
                print(f"{what}: {value}", flush=True)
                file.write_text(json.dumps(measured, indent=1))
        except (WorkloadError, torch.OutOfMemoryError) as error:
            print(f"{name}: {error}", flush=True)
            missing = [what for what in GROUPS[name].wanted if what not in measured[name]["rows"]]
            measured[name]["rows"] |= dict.fromkeys(missing, f"not measured: {error}")
            file.write_text(json.dumps(measured, indent=1))
    (given.out / "gpu.md").write_text(section(measured) + "\n")
    print(f"wrote {file}")


if __name__ == "__main__":
    main(sys.argv[1:])
