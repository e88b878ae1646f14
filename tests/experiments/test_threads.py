"""How torch computes while trials train."""

from __future__ import annotations

import torch

from experiments.training.threads import single_thread


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
