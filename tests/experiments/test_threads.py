"""How torch computes while trials train."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import batchscale as bs
from batchscale.output.errors import CommandError
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
