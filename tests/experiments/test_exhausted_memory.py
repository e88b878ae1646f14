"""Which exceptions say that memory is exhausted, and what a worker does of a real one."""

from __future__ import annotations

import pytest
import torch

from experiments.execution.failures import describe
from tests.forked import SERVER


def raised(error: Exception) -> str:
    try:
        raise error
    except Exception as caught:
        return describe(caught).cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), "memory"),
        (RuntimeError("std::bad_alloc"), "memory"),
        (RuntimeError("shapes do not match"), "raised"),
        (ValueError("can't allocate memory"), "raised"),
    ],
)
def test_the_cause_of_an_exception(error: Exception, cause: str) -> None:
    assert raised(error) == cause


def allocate(queue: object) -> None:
    import resource

    free = 256 * 2**20
    with open("/proc/self/statm") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + free, used + free))
    try:
        torch.zeros(2**30)
    except Exception as error:
        queue.put(describe(error).cause)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_an_allocation_that_the_system_refuses() -> None:
    queue = SERVER.Queue()
    process = SERVER.Process(target=allocate, args=(queue,))
    process.start()
    assert queue.get(timeout=120) == "memory"
    process.join(60)
