"""How torch computes while trials train."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

import batchscale as bs
from batchscale.output.errors import CommandError
from experiments.execution.ray.start import ENVIRONMENT
from experiments.training.threads import KEPT, single_thread


def _small() -> float:
    return float(torch.full((64,), 1e-20).mul_(1e-20).sum())


def test_denormal_numbers_are_zero_within_and_only_there() -> None:
    threads = torch.get_num_threads()
    assert _small() > 0
    with single_thread():
        assert torch.get_num_threads() == 1
        assert _small() == 0
        with single_thread():
            assert _small() == 0
        assert _small() == 0
    assert _small() > 0
    assert torch.get_num_threads() == threads


def test_a_trial_has_the_threads_that_it_is_given() -> None:
    before = torch.get_num_threads()
    threads = []

    def note(*_: object) -> None:
        threads.append(torch.get_num_threads())

    of: Any = {"batch_size": 64, "learning_rate": 0.1, "budget": "4 steps", "on_measure": note}
    bs.trial("digits-softmax", **of)
    assert set(threads) == {1}
    bs.trial("digits-softmax", threads=2, **of)
    assert set(threads) == {1, 2}
    assert torch.get_num_threads() == before
    with pytest.raises(CommandError, match="threads 0 is below 1"):
        bs.trial("digits-softmax", threads=0, **of)


_FAULTS = """
import resource, torch
from experiments.training.threads import single_thread

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

with single_thread():
    counted = []
    for _ in range(21):
        before = faults()
        torch.ones(20_000_000)
        counted.append(faults() - before)
print(sorted(counted[10:])[5])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc has mallopt")
def test_memory_of_a_large_tensor_is_kept() -> None:
    """80 MB again and again: after a few times, which leave gaps, its pages are there."""
    did = subprocess.run(
        [sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True
    )
    assert int(did.stdout) < 200


def test_workers_keep_it_as_trials_do() -> None:
    assert ENVIRONMENT["MALLOC_MMAP_MAX_"] == "0"
    assert ENVIRONMENT["MALLOC_TRIM_THRESHOLD_"] == str(KEPT)
