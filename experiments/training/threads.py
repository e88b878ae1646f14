"""How torch computes on a CPU while trials train: on one thread, and without denormal numbers.

One thread, as every worker has: bits and timings do not depend on the machine then. Denormal
numbers (below 1e-38 in float32) are taken for 0: momentum that decays where no gradient comes any
more ends among them, and arithmetic with them is some ten times as slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def use_single_thread() -> None:
    """Compute so on the calling thread from now on: for a process that only trains."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


@contextmanager
def single_thread() -> Iterator[None]:
    """Within, compute so."""
    threads, flushes = torch.get_num_threads(), not float(torch.tensor([1e-39]).mul_(1))
    use_single_thread()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushes)
