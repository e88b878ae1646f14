"""Reading a streamed split: in this process, or ahead of the device in worker processes.

What an example is depends on its index and on its seed alone, so the bits of a batch are the same
for any number of worker processes, in any layout, and after a resume: a worker changes only *when*
an example is read. A batch is read in small tasks, so that all processes share even a single batch;
the tasks of the next batches are submitted while the device trains on this one.

Processes are forked and inherit the Dataset. They do not read one that holds an open file, since
processes that share one share its position too; nor is anything read ahead where an example costs
less than its way between two processes.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from experiments.seeds import derive, seed_torch
from experiments.training.batch_order import BatchOrder, SequentialOrder
from experiments.training.streams import collate
from workloads import Batch, WorkloadError

TASK = 16
"""Examples that a worker process reads at a time."""
AHEAD = 4
"""Tasks for each worker process that are submitted beyond the batch in use."""
MOST_WORKERS = 32
_LEAST_EXAMPLES = 64
"""A smaller Dataset is read in this process."""
_LEAST_SECONDS = 3e-4
"""An example that is read faster than this is read in this process."""
_PROBED = 4
_FAILURES = 3
"""Tasks that may fail in a worker process alone, before all are read in this process."""
_PARENT_SECONDS = 1.0

_CPU = torch.device("cpu")

Key = TypeVar("Key")


@dataclass(frozen=True)
class Task:
    """Examples to read, each after torch's generator is seeded; without seeds for evaluation."""

    indices: Sequence[int]
    seeds: Sequence[int] | None = None


class Reader:
    """Reads the raw examples of a map-style Dataset, put together and on the device."""

    def __init__(self, data: Any, device: torch.device, name: str = "the data set") -> None:
        """``name``: what errors call the Dataset."""
        self._data, self._device, self._name = data, device, name
        self._workers: int | None = None
        self._failures = 0
        self._pool: ProcessPoolExecutor | None = None
        self._streams: WeakKeyDictionary[BatchOrder | SequentialOrder, _Stream] = (
            WeakKeyDictionary()
        )

    @property
    def workers(self) -> int:
        """Worker processes that read ahead; determined when it is first read."""
        if self._workers is None:
            self._workers = worker_count(self._data, self._device)
        return self._workers

    def fetch(self, indices: Tensor) -> Batch:
        """The examples ``indices``, read in this process."""
        return self._here([Task(indices.tolist())])

    def training(
        self, order: BatchOrder | SequentialOrder, part: slice, seed: int, step: int
    ) -> Batch:
        """``part`` of a trial's global batch at ``step``.

        Raises:
            WorkloadError: a worker process has ended. What the Dataset raises passes through.
        """
        if not self.workers or not order.has(step):  # a step that does not exist raises an error
            return self._here(training_tasks(order, part, seed, step))
        stream = self._streams.get(order)
        if stream is None or (stream.step, stream.part, stream.seed) != (step, part, seed):
            if stream is not None:
                stream.batches.close()
            steps = itertools.takewhile(order.has, itertools.count(step))
            jobs = ((at, training_tasks(order, part, seed, at)) for at in steps)
            stream = _Stream(part=part, seed=seed, step=step, batches=self._ahead(jobs))
            self._streams[order] = stream
        stream.step += 1
        return next(stream.batches)[1]

    def evaluation(self, parts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Batch]]:
        """Each of ``parts``, index tensors, with its examples."""
        if not self.workers:
            for indices in parts:
                yield indices, self.fetch(indices)
            return
        jobs = ((indices, _cut(indices.tolist())) for indices in parts)
        with contextlib.closing(self._ahead(jobs)) as batches:
            yield from batches

    def close(self) -> None:
        """End the worker processes; reading again starts new ones."""
        for stream in list(self._streams.values()):
            stream.batches.close()
        self._streams.clear()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def _ahead(self, jobs: Iterator[tuple[Key, list[Task]]]) -> Generator[tuple[Key, Batch]]:
        """Each job's examples, while the tasks of the following jobs are being read."""
        waiting: deque[tuple[Key, list[tuple[Task, Future[Batch]]]]] = deque()
        submitted = 0
        try:
            while True:
                ahead = max(1, AHEAD * self.workers // max(1, len(self._streams)))
                while not waiting or max(submitted - len(waiting[0][1]), len(waiting)) <= ahead:
                    job = next(jobs, None)
                    if job is None:
                        break
                    waiting.append((job[0], [(task, self._submit(task)) for task in job[1]]))
                    submitted += len(job[1])
                if not waiting:
                    return
                key, tasks = waiting.popleft()
                submitted -= len(tasks)
                yield key, self._gathered(tasks)
        finally:
            for _, tasks in waiting:
                for _, future in tasks:
                    future.cancel()

    def _submit(self, task: Task) -> Future[Batch]:
        if self._pool is None:
            self._pool = _new_pool(self._data, self.workers)
        try:
            return self._pool.submit(_read_in_worker, task)
        except BrokenProcessPool as error:
            raise self._ended() from error

    def _gathered(self, tasks: list[tuple[Task, Future[Batch]]]) -> Batch:
        if not tasks:
            return self._here([])
        parts = []
        for task, future in tasks:
            try:
                parts.append(future.result())
            except BrokenProcessPool as error:
                raise self._ended() from error
            # Read here, it fails with the traceback of the user's own code; or it does not, where
            # the error came of the process (a handle that it cannot share, an unstable disk).
            except Exception:
                parts.append(collate(_read(self._data, task), self._name))
                self._failures += 1
                if self._failures >= _FAILURES:
                    self._workers = 0
        if len({tuple(x.shape[1:] for x in part) for part in parts}) > 1:
            return self._here([task for task, _ in tasks])  # which says so
        return self._on_device(parts)

    def _here(self, tasks: Sequence[Task]) -> Batch:
        if not tasks or not tasks[0].indices:  # a rank without examples has their shapes
            first = _read(self._data, Task([0], [0]))
            return tuple(x[:0].to(self._device) for x in collate(first, self._name))
        examples = [x for task in tasks for x in _read(self._data, task, self._device)]
        return tuple(x.to(self._device) for x in collate(examples, self._name))

    def _on_device(self, parts: list[Batch]) -> Batch:
        """Parts of a batch as one, copied to a GPU from pinned memory, without waiting for it."""
        cuda = self._device.type == "cuda"
        whole = []
        for tensors in zip(*parts, strict=True):
            shape = (sum(len(x) for x in tensors), *tensors[0].shape[1:])
            joined = torch.empty(shape, dtype=tensors[0].dtype, pin_memory=cuda)
            torch.cat(tensors, out=joined)
            whole.append(joined.to(self._device, non_blocking=cuda))
        return tuple(whole)

    def _ended(self) -> WorkloadError:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        return WorkloadError(
            "a process that read examples has ended unexpectedly",
            hint="the usual cause is too little memory, or too little shared memory (/dev/shm)",
        )


@dataclass(kw_only=True)
class _Stream:
    """The batches of one trial from ``step`` on."""

    part: slice
    seed: int
    step: int
    batches: Generator[tuple[int, Batch]]


def training_tasks(
    order: BatchOrder | SequentialOrder, part: slice, seed: int, step: int
) -> list[Task]:
    """``part`` of the global batch at ``step``: each example's seed is that of its place there."""
    indices = order.batches(step, 1)[0][part].tolist()
    first = part.start or 0
    seeds = [derive(seed, "augment", step, first + i) for i in range(len(indices))]
    return _cut(indices, seeds)


def _cut(indices: Sequence[int], seeds: Sequence[int] | None = None) -> list[Task]:
    return [
        Task(indices[low : low + TASK], None if seeds is None else seeds[low : low + TASK])
        for low in range(0, len(indices), TASK)
    ]


def _read(data: Any, task: Task, device: torch.device = _CPU) -> list[Any]:
    """The examples of a task, which may draw from the generators of the CPU and of ``device``."""
    if task.seeds is None:
        return [data[i] for i in task.indices]
    examples = []
    with torch.random.fork_rng(devices=[]):
        for index, seed in zip(task.indices, task.seeds, strict=True):
            seed_torch(seed, device)
            examples.append(data[index])
    return examples


def worker_count(data: Any, device: torch.device) -> int:
    """How many processes read a Dataset ahead: the cores of this worker but one, or none.

    None where there is a single core, where the Dataset is small, cheap to read or not to be
    shared between processes, and where processes are not forked by default (outside of Linux).
    """
    workers = min(available_cores(device) - 1, MOST_WORKERS, -(-len(data) // TASK))
    if workers < 1 or sys.platform != "linux" or len(data) < _LEAST_EXAMPLES:
        return 0
    if _seconds(data) < _LEAST_SECONDS or not can_be_shared(data):
        return 0
    return workers


def available_cores(device: torch.device) -> int:
    """Processor cores for this worker: what Ray gave it, or its share of the machine's.

    A machine's cores are shared by its GPUs, whatever Ray reserved: a worker on a GPU uses them,
    and one on a part of a GPU that part of them.
    """
    ray, assigned = sys.modules.get("ray"), None
    if ray is not None and ray.is_initialized():
        assigned = ray.get_runtime_context().get_assigned_resources()
    if device.type == "cuda":
        listed = Path("/proc/driver/nvidia/gpus")
        gpus = len(list(listed.iterdir())) if listed.is_dir() else torch.cuda.device_count()
        part = min(1.0, (assigned or {}).get("GPU", 1.0))
        return max(1, int(_cores() // max(1, gpus) * part))
    return _cores() if assigned is None else max(1, int(assigned.get("CPU", 1)))


def _cores() -> int:
    """Cores that the kernel gives this process: its affinity, and its control group's quota."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = max(1, min(cores, int(quota) // int(period)))  # "max": no quota, no number
    return cores


def _seconds(data: Any) -> float:
    """The least seconds in which one of a few examples is read."""
    seconds = []
    with torch.random.fork_rng(devices=[]):
        for index in range(_PROBED):
            began = time.perf_counter()
            data[index]
            seconds.append(time.perf_counter() - began)
    return min(seconds)


def can_be_shared(data: Any) -> bool:
    """Whether forked processes may read a Dataset: an open file, which cannot be pickled, has one
    position for all of them."""
    try:
        _Probe(_Nowhere()).dump(data)
    # Whatever an object raises that does not want to be pickled.
    except Exception:
        return False
    return True


class _Nowhere(io.RawIOBase):
    def write(self, data: Any, /) -> int:
        return len(data)


class _Probe(pickle.Pickler):
    """Passes over what needs no pickling, since a forked process has it: code and arrays."""

    def persistent_id(self, value: Any) -> int | None:
        plain = isinstance(
            value, (Tensor, np.ndarray, type, ModuleType, FunctionType, BuiltinFunctionType)
        )
        return 0 if plain else None


_data: Any = None
"""In a worker process, the Dataset that it reads."""


def _new_pool(data: Any, workers: int) -> ProcessPoolExecutor:
    """Processes that have inherited ``data``; all are forked by the first task."""
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("fork"), _begin, (data, os.getpid())
    )
    with warnings.catch_warnings():  # from Python 3.12 on: this process has threads (Ray, Arrow)
        warnings.simplefilter("ignore", DeprecationWarning)
        pool.submit(os.getpid)
    return pool


def _begin(data: Any, parent: int) -> None:
    """What a worker process does first."""
    global _data
    _data = data
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when the parent has been killed."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)


def _read_in_worker(task: Task) -> Batch:
    return collate(_read(_data, task), "")
