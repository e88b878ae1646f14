"""The noise scale on several ranks: gradients before and after they are averaged."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import batchscale
from tests.experiments.rank_groups import on_ranks

Rows = list[Any]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def micro_batches(step: int, rank: int, count: int) -> list[torch.Tensor]:
    """Of 2 examples on rank 0, of 3 on rank 1."""
    generator = torch.Generator().manual_seed(100 * step + 10 * rank)
    shape = (count, 2 + rank, 4)
    return list(torch.randn(shape, generator=generator, dtype=torch.float64))


def distributed(_: Any, count: int, per_example: bool, by_hand: bool) -> Rows:
    """The terms of three steps, on this rank."""
    plain = model()
    trained: Any = (
        plain if by_hand else DistributedDataParallel(plain, gradient_as_bucket_view=count == 3)
    )
    group = dist.group.WORLD if by_hand else None
    noise = batchscale.NoiseScale(trained, per_example=per_example, group=group)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for step in range(3):
        parts = micro_batches(step, dist.get_rank(), count)
        for i, part in enumerate(parts):
            waits = i < count - 1 and not by_hand
            with trained.no_sync() if waits else nullcontext(), noise.micro_batch(len(part)):
                trained(part).square().mean().backward()
        for parameter in plain.parameters():
            if by_hand and parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= 2
        noise.step()
        optimizer.step()
        optimizer.zero_grad()
    return list(noise._rows)


def in_a_process(count: int, per_example: bool) -> Rows:
    """The same batches as micro-batches of one process."""
    trained = model()
    noise = batchscale.NoiseScale(trained, per_example=per_example)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for step in range(3):
        for part in micro_batches(step, 0, count) + micro_batches(step, 1, count):
            with noise.micro_batch(len(part), scale=0.5):
                (trained(part).square().mean() / 2).backward()
        noise.step()
        optimizer.step()
        optimizer.zero_grad()
    return list(noise._rows)


def refused(_: Any) -> str:
    with pytest.raises(ValueError, match="several processes") as error:
        batchscale.NoiseScale(model())
    sharded: Any = fully_shard(model())
    with pytest.raises(ValueError, match="FSDP: sharded parameters are not measured"):
        batchscale.NoiseScale(sharded, group=dist.group.WORLD)
    return str(error.value)


CASES = [(1, False, False), (3, False, False), (2, True, False), (2, False, True)]


@pytest.mark.slow
def test_ranks_are_parts_of_a_batch(tmp_path: Path) -> None:
    by_rank = on_ranks(2, distributed, CASES, tmp_path)
    for case, (first, second) in zip(CASES, zip(*by_rank, strict=True), strict=True):
        count, per_example, _ = case
        expected = torch.tensor(in_a_process(count, per_example), dtype=torch.float64)
        assert torch.allclose(torch.tensor(first, dtype=torch.float64), expected)
        assert torch.equal(torch.tensor(first), torch.tensor(second))


@pytest.mark.slow
def test_ranks_that_are_not_named_and_shards_are_refused(tmp_path: Path) -> None:
    ((said,), _) = on_ranks(2, refused, [()], tmp_path)
    assert said == "several processes: give the DistributedDataParallel itself, or group="
