"""How torch computes on a CPU while trials train: on one thread, without denormal numbers, and in
memory that it keeps.

One thread, as every worker has: bits and timings do not depend on the machine then. Denormal
numbers (below 1e-38 in float32) are taken for 0: momentum that decays where no gradient comes any
more ends among them, and arithmetic with them is some ten times as slow. Freed memory goes back to
the system, but for as much as a few operations need: what they free in a step they ask for in the
next, and its pages would have to be fetched again, which takes longer than to fill them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

KEPT = 2**30
"""Most free bytes that are kept: more than a forward pass of the most activations, and its backward
pass, leave (``micro_batch``)."""
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Of glibc's ``malloc.h``."""


def use_single_thread() -> None:
    """Compute so on the calling thread from now on: for a process that only trains."""
    _use(1)


def _use(count: int) -> None:
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    _keep_memory()


@lru_cache
def _keep_memory() -> None:
    """For the whole process, and from now on: glibc has no way back. Other libraries have no such
    function."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, KEPT)


@contextmanager
def single_thread() -> Iterator[None]:
    """Within, compute so."""
    with threads(1):
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within, compute so on ``count`` threads."""
    before, flushes = torch.get_num_threads(), not float(torch.tensor([1e-39]).mul_(1))
    _use(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(flushes)
