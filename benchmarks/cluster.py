"""A simulated cluster: real Ray and Tune, workers that only sleep, and this project's driver.

How busy the workers are once all of them have had a pack, how long it takes until they have, and
what the driver's process costs. Ray believes in as many CPUs as are wanted; a worker has no torch
in it, shares what it imports with the others (``benchmarks.light_workers``), and answers as a
training worker does.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.light_workers import light_workers
from experiments.execution.executors.base import WorkerPool
from experiments.execution.executors.cluster import Cluster
from experiments.execution.ray.mailbox import Mailbox
from experiments.execution.ray.tune import RayTune
from experiments.execution.staging import staged
from experiments.plan import Layout, Outcome
from results.counts import count

SLOTS = (16, 256)
SECONDS = 60.0
_MEGABYTE = 2**20


class SleepingMailbox(Mailbox):
    """Speaks to workers in plain values, and remembers when each pack began and ended."""

    def __init__(self) -> None:
        super().__init__()
        self._times: dict[str, list[float]] = {}
        self._memory: dict[int, dict[str, int]] = {}

    def begin(self, pack: str) -> int:
        """A worker has the pack; how many trials it has."""
        assignment = super().ask(pack)
        self._times[pack] = [time.monotonic()]
        self.post(assignment.begun("module"))
        self.post(assignment.progress(25, 25, (0.5,)))
        return len(assignment.wanted)

    def progressed(self, pack: str, step: int) -> bool:
        """Progress of a pack; whether it is to stop."""
        self.post(self._assignments[pack].progress(step, step, (0.5,) * 16))
        return self._stop

    def end(self, pack: str, pid: int, memory: dict[str, int]) -> None:
        """The pack's trials have ended: one in its target, the others at their budgets.

        ``memory``: that of the worker's process, in kB by the kernel's names.
        """
        self._times[pack].append(time.monotonic())
        self._memory[pid] = memory
        assignment = self._assignments[pack]
        steps = assignment.pack.study.budget_steps
        outcomes = tuple(
            Outcome(
                trial=trial,
                status="COMPLETE",
                stop_reason="budget" if number else "target",
                steps_run=steps,
                examples_run=steps * assignment.pack.study.batch_size,
                steps_to_target=None if number else steps,
                train_seconds=1.0,
            )
            for number, trial in enumerate(sorted(assignment.wanted))
        )
        self.post(assignment.ended(outcomes))
        self.post(assignment.ended(outcomes, pack))
        self.post(assignment.over("done"))

    def measured(self) -> tuple[dict[str, list[float]], dict[int, dict[str, int]]]:
        """When packs began and ended, and the memory of the processes that trained them."""
        return self._times, self._memory


class SleepingTune(RayTune):
    """The packs of a cluster whose workers sleep."""

    mailbox = SleepingMailbox
    last: SleepingTune

    def trainable(self, worker: Mapping[str, float]) -> Callable[[dict[str, Any]], None]:
        del worker
        mailbox, seconds, ask = self._mailbox, _seconds(), self._context.pace.ask
        SleepingTune.last = self

        def sleep(config: dict[str, Any]) -> None:
            import os
            import time

            import ray

            pack = config["pack"]
            ray.get(mailbox.begin.remote(pack))
            until, step = time.monotonic() + seconds, 25
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, ask))
                step += 1
                if ray.get(mailbox.progressed.remote(pack, step)):
                    return
            with open("/proc/self/smaps_rollup") as file:
                rows = [line.split() for line in file.readlines()[1:]]
            memory = {name.rstrip(":"): int(kilobytes) for name, kilobytes, _ in rows}
            with open("/proc/meminfo") as file:
                (text,) = (line for line in file if line.startswith("MemAvailable:"))
            memory["available"] = int(text.split()[1])
            ray.get(mailbox.end.remote(pack, os.getpid(), memory))

        return sleep

    def measured(self) -> tuple[dict[str, list[float]], dict[int, dict[str, int]]]:
        import ray

        values: tuple[dict[str, list[float]], dict[int, dict[str, int]]] = ray.get(
            self._mailbox.measured.remote()
        )
        return values


class Simulated(Cluster):
    """The Ray that this process is connected to."""

    @contextmanager
    def connect(self, report: Callable[[str], None]) -> Iterator[Mapping[Layout, WorkerPool]]:
        from experiments.execution.ray.start import RaySession

        report("connected")
        with staged(None, (), (), ()) as files:
            yield self.pools(session=RaySession(single_machine=True, processes=()), staged=files)

    def pool(self, layout: Layout, **connection: Any) -> WorkerPool:
        return SleepingTune(self.context, layout, **connection)


def _seconds() -> float:
    return float(os.environ.get("SLEEP_SECONDS", SECONDS))


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one simulated sweep was like."""

    slots: int
    seconds: float
    """Of a pack."""
    packs: int
    trials: int
    busy: float
    """The part of the workers' time in which they had a pack, from when all had one until packs ran
    out."""
    first: float
    """Seconds from the sweep's beginning to its first pack: Tune's and one worker's start."""
    full: float | None
    """Seconds from then until every worker had a pack at once; ``None``: they never had."""
    lost: int
    """Processes that Ray started and that never reported to it, which it finds out after a minute
    (``worker_register_timeout_seconds``) and replaces."""
    gap: float
    """Mean seconds that a worker is without a pack, for each pack."""
    driver: float
    """Processor seconds of the driver's process, its start included."""
    memory: float
    """Median MB of a worker, where what workers share counts in equal parts."""
    private: float
    """Median MB that a worker shares with no other."""
    available: float
    """Least MB that the machine had left meanwhile."""
    complete: bool


def simulate(slots: int, packs_each: int) -> Run:
    """One sweep in this process: a Ray of ``slots`` CPUs, and ``packs_each`` packs for each."""
    from experiments.config.compile import load
    from experiments.execution import executors
    from experiments.execution.ray.start import import_ray
    from experiments.execution.sweep import sweep

    ray = import_ray("train", "tune")
    with (
        tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder,
        light_workers(Path(folder)),
    ):
        ray.init(
            num_cpus=slots, include_dashboard=False, log_to_driver=False, _temp_dir=folder,
            _node_ip_address="127.0.0.1", object_store_memory=2**27,
            # Else a process for each CPU would start at once, before any is wanted.
            _system_config={"prestart_worker_first_driver": False},
        )  # fmt: skip
        experiment = load(
            {
                "name": "simulated",
                "workload": "digits-softmax",
                "grid": {"batch_size": list(range(1, slots + 1)), "optimizer": ["sgd"]},
                # Rounds of 16, 16, 32, 64, 64 … trials: a pack each.
                "trials": {1: 16, 2: 32, 3: 64, 4: 128}.get(packs_each, 64 * (packs_each - 2)),
                "budget": "1000 steps",
                "keep": "off",
            }
        )
        began, spent = time.monotonic(), time.process_time()
        # Not by its file's name: workers would import that.
        executors.find = lambda _: Simulated  # type: ignore[assignment]
        did = sweep(experiment, results=Path(folder, "runs"), address="auto")
        spent = time.process_time() - spent
        times, memory = SleepingTune.last.measured()
        ray.shutdown()
        lost = lost_workers(Path(folder, "session_latest", "logs", "raylet.out"))
    intervals = sorted((start, end) for start, end in times.values())
    starts, ends = sorted(s for s, _ in intervals), sorted(e for _, e in intervals)
    full = full_at(intervals, slots=slots)
    since = starts[0] if full is None else full
    until = starts[-slots] if starts[-slots] > since else ends[-1]  # then packs run out
    busy = busy_share(intervals, slots=slots, since=since, until=until)
    return Run(
        slots=slots,
        seconds=_seconds(),
        packs=len(intervals),
        trials=did.trained,
        busy=busy,
        first=starts[0] - began,
        full=None if full is None else full - starts[0],
        lost=lost,
        gap=(1 / busy - 1) * _seconds(),
        driver=spent,
        memory=statistics.median(_megabytes(m, "Pss") for m in memory.values()),
        private=statistics.median(
            _megabytes(m, "Private_Dirty", "Private_Clean") for m in memory.values()
        ),
        available=min(_megabytes(m, "available") for m in memory.values()),
        complete=did.left == did.trained,  # no rows are written: the dataset holds none
    )


def full_at(intervals: list[tuple[float, float]], *, slots: int) -> float | None:
    """When so many packs first ran at once, each from a time to another; ``None``: never."""
    return next((s for s, _ in sorted(intervals) if _running(intervals, s) >= slots), None)


def lost_workers(log: Path) -> int:
    """Processes that a raylet has given up, by its log."""
    return log.read_text(errors="replace").count("have not registered within the timeout")


def busy_share(
    intervals: list[tuple[float, float]], *, slots: int, since: float, until: float
) -> float:
    """The part of the time of ``slots`` workers that packs take, each from a time to another."""
    taken = sum(max(0.0, min(end, until) - max(start, since)) for start, end in intervals)
    return taken / (slots * max(until - since, 1e-9))


def _megabytes(memory: Mapping[str, int], *names: str) -> float:
    return sum(memory[name] for name in names) * 1024 / _MEGABYTE


def _running(intervals: list[tuple[float, float]], at: float) -> int:
    return sum(start <= at < end for start, end in intervals)


def measure(slots: int, packs_each: int = 4, seconds: float = SECONDS) -> Run:
    """``simulate`` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cluster", str(slots), str(packs_each)],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "SLEEP_SECONDS": str(seconds)},
        text=True,
    )
    return Run(**json.loads(done.stdout.strip().splitlines()[-1]))


def until_full(run: Run) -> str:
    """How long it took, and why it took long."""
    full = "never" if run.full is None else f"{run.full:.0f} s"
    lost = f"; {count(run.lost, 'worker process')} did not start" if run.lost else ""
    return f"{full}; the first after {run.first:.0f} s{lost}"


def rows() -> list[dict[str, object]]:
    """One row a figure, for the table in docs/."""
    table: list[dict[str, object]] = []
    for slots in SLOTS:
        run = measure(slots)
        what = f"{slots} simulated workers, packs of {run.seconds:g} s"
        for name, value, wanted in (
            ("busy in steady state", f"{run.busy:.1%}", "≥ 95 %" if slots <= 16 else "≥ 90 %"),
            (
                "until all have a pack, after the first one has",
                until_full(run),
                "≤ 1.5 × one start + 10 s" if slots <= 16 else "",
            ),
            (
                "driver's processor time",
                f"{1e3 * run.driver / run.trials:.1f} ms a trial",
                "≤ 5 ms",
            ),
            (
                "a worker's memory",
                f"{run.memory:.0f} MB, {run.private:.0f} MB its own",
                "≤ 100 MB",
            ),
        ):
            table.append({"what": f"{what}: {name}", "measured": value, "wanted": wanted})
    return table


if __name__ == "__main__":
    print(json.dumps(simulate(int(sys.argv[1]), int(sys.argv[2])).__dict__))
