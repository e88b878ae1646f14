"""What the benchmarks share: rows of the page's tables, studies and trials, what is timed in turn,
and a function that runs in a process of its own."""

from __future__ import annotations

import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from validation.page import ROOT

PAGE = ROOT / "docs" / "findings" / "benchmarks.md"


class Row(NamedTuple):
    """A line of a table."""

    what: str
    measured: str
    wanted: str = ""


def study(workload: str, batch_size: int, trials: int, **changes: Any) -> Any:
    """A study that trains ``workload`` with SGD; ``fields``: those of the workload, ``changes``:
    those of the study."""
    from experiments.plan import Study, WorkloadRef
    from results.targets.target import Target

    values: dict[str, Any] = {
        "optimizer": "sgd",
        "schedule": "constant",
        "budget_steps": 10**9,
        "targets": (Target.parse("validation_error < 0.001"),),
        "workload": WorkloadRef(spec=workload, fields=changes.pop("fields", {})),
        **changes,
    }
    return Study(
        id="benchmark", experiment="benchmark", batch_size=batch_size, trials=trials, **values
    )


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is trained: ``models`` of a workload at a batch size."""

    workload: str
    batch_size: int
    optimizer: str = "sgd"
    fields: Mapping[str, Any] = field(default_factory=dict)
    models: int = 1

    def study(self, **changes: Any) -> Any:
        """As ``study``."""
        given = {"optimizer": self.optimizer, "fields": self.fields, **changes}
        return study(self.workload, self.batch_size, self.models, **given)


def trials(count: int, learning_rate: float = 0.01) -> tuple[Any, ...]:
    """Trials that train normally, without divergence or a plateau."""
    from experiments.plan import Trial

    values = {"learning_rate": learning_rate}
    return tuple(
        Trial(id=f"trial-{index}", index=index, seed=index, metaparameters=values)
        for index in range(count)
    )


class Used:
    """What this process used while a function ran: seconds of its processors, the kernel's part of
    them, and page faults."""

    def __init__(self, function: Callable[[], object]) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF)
        function()
        after = resource.getrusage(resource.RUSAGE_SELF)
        self.kernel = after.ru_stime - before.ru_stime
        self.seconds = self.kernel + after.ru_utime - before.ru_utime
        self.faults = after.ru_minflt - before.ru_minflt


def in_turn(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[Used]]:
    """What each function used in every round: other work on the machine is spread over them all."""
    for function in functions.values():
        function()
    used: dict[str, list[Used]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            used[name].append(Used(function))
    return used


def ratio(ours: Sequence[Used], theirs: Sequence[Used], each: float = 1.0) -> tuple[float, str]:
    """How many times as fast ours is, times ``each``: the median of the rounds, and in words with
    its quartiles."""
    ratios = [each * b.seconds / max(a.seconds, 1e-9) for a, b in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios)
    return middle, f"{middle:.2f}× ({low:.2f} … {high:.2f})"


def steps_for(advance: Callable[[int], object], seconds: float) -> int:
    """Steps that take about ``seconds``, after a few that compile and fill the caches."""
    advance(3)
    return max(1, round(seconds * 3 / max(Used(lambda: advance(3)).seconds, 1e-3)))


class Cost(NamedTuple):
    """Of a function in a process of its own."""

    seconds: float
    processor: float
    """Seconds of all its threads."""
    gigabytes: float
    """The process's peak."""
    value: Any
    """What the function returned."""


def measured(function: Callable[..., object], *arguments: object) -> Cost:
    """Call a function of a module in a fresh process; arguments and answer are plain values."""
    call = [function.__module__, function.__name__, *arguments]
    command = [sys.executable, "-m", "benchmarks.harness", json.dumps(call)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return Cost(*json.loads(done.stdout.strip().splitlines()[-1]))


def peak_gigabytes() -> float:
    """The most memory that this process has held, in GB.

    Not what ``getrusage`` says, if the system tells more: that of a program begins with what the
    process held that started it.
    """
    status = Path("/proc/self/status")
    if status.exists() and (peak := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(peak[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _main(module: str, name: str, *arguments: Any) -> None:
    function = getattr(import_module(module), name)
    processor, began = time.process_time(), time.perf_counter()
    value = function(*arguments)
    spent = time.perf_counter() - began, time.process_time() - processor
    print(json.dumps([*spent, peak_gigabytes(), value]))


if __name__ == "__main__":
    _main(*json.loads(sys.argv[1]))
