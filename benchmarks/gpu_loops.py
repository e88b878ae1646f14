"""Loops that ``benchmarks.gpu`` times: packs of ours, and one model by hand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.harness import study, trials
from experiments.engines import Engine, make_engine
from experiments.training.study_context import StudyContext
from workloads import load

MINUTES = 8.5
"""Of a call of the group ``sweep``."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How groups are run."""

    device: torch.device
    out: Path
    small: bool
    minutes: float = MINUTES

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def seconds(advance: Callable[[int], object], steps: int, settings: Settings) -> float:
    """Seconds of so many steps, the median of five times, after a first one."""
    spent = []
    for _ in range(2 if settings.small else 6):
        settings.wait()
        began = time.perf_counter()
        advance(steps)
        settings.wait()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent[1:])


def steps_for(advance: Callable[[int], object], settings: Settings) -> int:
    """Steps that take about a second, after those before recordings."""
    if settings.small:
        return 2
    advance(20)
    settings.wait()
    began = time.perf_counter()
    advance(10)
    settings.wait()
    return max(5, int(10 / (time.perf_counter() - began)))


def pack(
    kind: str, workload: str, size: int, models: int, settings: Settings, **technique: Any
) -> Engine:
    """A pack in one engine."""
    of = study(workload, size, models, technique=technique, optimizer="nesterov")
    values = {"learning_rate": 0.01, "momentum": 0.9}
    given = tuple(replace(each, metaparameters=values) for each in trials(models))
    return make_engine(kind, StudyContext.load(of, str(settings.device)), given)


def eager_loop(
    workload: str, size: int, settings: Settings, *, tuned: bool = False
) -> Callable[[int], None]:
    """A loop by hand for one model, in bfloat16, its data on the device.

    Args:
        tuned: as someone would write it who wants it fast: channels last, a fused optimizer, the
            whole step in a CUDA graph, and torch's batch norm over the whole batch.
    """
    loaded, device = load(workload), settings.device
    split = loaded.data()["train"]
    assert isinstance(split, tuple)
    x, y = (each.to(device) for each in split)
    model: nn.Module = loaded.model().train().to(device)
    if tuned:
        model = model.to(memory_format=torch.channels_last)
    fused = {"fused": True} if tuned else {}
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, **fused)
    chosen = torch.zeros(size, dtype=torch.int64, device=device)

    def step() -> None:
        batch = loaded.transform((x[chosen], y[chosen]), training=True)
        images = batch[0].contiguous(memory_format=torch.channels_last) if tuned else batch[0]
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            output = model(images)
        nn.functional.cross_entropy(output.float(), batch[1]).backward()
        optimizer.step()

    run = _captured(step) if tuned and device.type == "cuda" else step
    order, position = torch.randperm(len(x), device=device), 0

    def train(steps: int) -> None:
        nonlocal order, position
        for _ in range(steps):
            if position + size > len(x):
                order, position = torch.randperm(len(x), device=device), 0
            chosen.copy_(order[position : position + size])
            position += size
            run()

    return train


def _captured(step: Callable[[], None]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
