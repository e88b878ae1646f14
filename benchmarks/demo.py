"""The demo as a user runs it: wall time, memory of the whole process tree, and its results.

Also ``batchscale --help``, and ``regimes`` on the demo's results.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Row

COMMAND = [sys.executable, "-m", "batchscale"]


def proportional_bytes(root: int) -> int:
    """Memory of process ``root`` and its descendants; a shared page is counted once (PSS)."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
            except (OSError, IndexError):
                continue  # it ended meanwhile
    tree = {root}
    while grown := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= grown
    total = 0
    for pid in tree:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def watched(command: list[str]) -> tuple[float, int]:
    """Wall seconds and peak bytes of a command's process tree, sampled every second."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    ended = threading.Event()

    def sample_memory() -> None:
        nonlocal peak
        while not ended.wait(1.0):
            peak = max(peak, proportional_bytes(process.pid))

    watcher = threading.Thread(target=sample_memory)
    watcher.start()
    status = process.wait()
    ended.set()
    watcher.join()
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return time.perf_counter() - began, peak


def output(command: list[str]) -> str:
    """What the command prints."""
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True
    ).stdout


def median_seconds(run: Callable[[], object], times: int) -> float:
    """Median wall seconds of ``run()`` after one warm-up."""
    run()
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def rows() -> list[Row]:
    """One row a number, for the table in docs/."""
    with tempfile.TemporaryDirectory() as folder:
        runs = os.path.join(folder, "runs")
        seconds, peak = watched([*COMMAND, "sweep", "digits", "--results", runs])
        regimes = [*COMMAND, "regimes", runs, "--json"]
        regimes_seconds = median_seconds(lambda: output(regimes), 5)
        curves = json.loads(output(regimes))
    help_seconds = median_seconds(lambda: output([*COMMAND, "--help"]), 9)
    table = [
        Row("the demo: 2,304 trials", f"{seconds:.0f} s", "≤ 300 s"),
        Row("the demo's peak memory, all processes", f"{peak / 2**30:.2f} GiB", "< 3 GB"),
        Row("`batchscale --help`", f"{help_seconds:.2f} s", "< 0.3 s"),
        Row("`batchscale regimes` on the demo's results", f"{regimes_seconds:.2f} s", "< 5 s"),
    ]
    for curve in curves:
        critical = curve["critical_batch_size"]
        value, low, high = (critical[name] for name in ("value", "low", "high"))
        said = f"≥ {low:.0f}" if low else "no end of its diminishing returns was seen"
        if value and low and high:
            said = f"{value:.0f} [{low:.0f}, {high:.0f}]: high/low {high / low:.1f}"
        what = f"the demo's critical batch size, {curve['optimizer']}"
        table.append(Row(what, said, "high/low ≤ 4"))
    return table
