"""The noise scale on several ranks: gradients before and after they are averaged."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
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


def end_step(noise: batchscale.NoiseScale, optimizer: torch.optim.Optimizer) -> None:
    noise.step()
    optimizer.step()
    optimizer.zero_grad()


def distributed(_: Any, count: int, per_example: bool, by_hand: bool, norm: str) -> Rows:
    """The terms of three steps, on this rank."""
    plain = model()
    trained: Any = (
        plain if by_hand else DistributedDataParallel(plain, gradient_as_bucket_view=count == 3)
    )
    group = dist.group.WORLD if by_hand else None
    noise = batchscale.NoiseScale(trained, per_example=per_example, group=group, norm=norm)
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
        end_step(noise, optimizer)
    return list(noise._rows)


def in_a_process(count: int, per_example: bool, norm: str) -> Rows:
    """The same batches as micro-batches of one process."""
    trained = model()
    noise = batchscale.NoiseScale(trained, per_example=per_example, norm=norm)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for step in range(3):
        for part in micro_batches(step, 0, count) + micro_batches(step, 1, count):
            with noise.micro_batch(len(part), scale=0.5):
                (trained(part).square().mean() / 2).backward()
        end_step(noise, optimizer)
    return list(noise._rows)


def sharded(_: Any, count: int, adam: bool) -> tuple[Rows, list[Any]]:
    """The terms of three steps of a model that is sharded in two groups, and its weights."""
    trained: Any = model()
    fully_shard(trained[0])
    fully_shard(trained)
    optimizer = trained_by(trained, adam)
    noise = batchscale.NoiseScale(trained, optimizer=optimizer if adam else None)
    for step in range(3):
        for part in micro_batches(step, dist.get_rank(), count):
            with noise.micro_batch(len(part)):
                trained(part).square().mean().backward()
        end_step(noise, optimizer)
    return list(noise._rows), [p.full_tensor().tolist() for p in trained.parameters()]


def unsharded(count: int, adam: bool) -> tuple[Rows, list[Any]]:
    """The same in one process. The mean of the means of 2 and of 3 examples has the noise of 4.8,
    since 1 / 4.8 = (1/2 + 1/3) / 4."""
    trained = model()
    optimizer = trained_by(trained, adam)
    noise = batchscale.NoiseScale(trained, optimizer=optimizer if adam else None)
    for step in range(3):
        for two in zip(*(micro_batches(step, rank, count) for rank in (0, 1)), strict=True):
            with noise.micro_batch(4.8):  # type: ignore[arg-type]
                torch.stack([trained(part).square().mean() for part in two]).mean().backward()
        end_step(noise, optimizer)
    return list(noise._rows), [p.tolist() for p in trained.parameters()]


def trained_by(trained: nn.Module, adam: bool) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if adam else torch.optim.SGD
    return kind(trained.parameters(), lr=0.1)


class FullyShardedDataParallel(nn.Module):
    """As FSDP1 names its own, which needs an accelerator."""


def test_fsdp1_is_refused() -> None:
    with pytest.raises(ValueError, match="FSDP1 is not measured: shard the model with fully_shard"):
        batchscale.NoiseScale(nn.Sequential(nn.Linear(1, 1), FullyShardedDataParallel()))


def refused(_: Any) -> str:
    with pytest.raises(ValueError, match="several processes") as error:
        batchscale.NoiseScale(model())
    partly, whole = model(), model()
    fully_shard(partly[0])  # type: ignore[index]
    fully_shard(whole)
    copied = fully_shard(model(), mesh=init_device_mesh("cpu", (1, 2), mesh_dim_names=("r", "s")))
    for wrong in (partly, copied):
        with pytest.raises(ValueError, match="if fully_shard alone shards all of them"):
            batchscale.NoiseScale(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per_example: not of sharded parameters"):
        batchscale.NoiseScale(whole, per_example=True)
    with pytest.raises(ValueError, match="norm=sign: without per_example, optimizer and sharded"):
        batchscale.NoiseScale(whole, norm="sign")
    noise = batchscale.NoiseScale(whole)
    part = torch.ones(2, 4, dtype=torch.float64)
    whole.set_requires_gradient_sync(False)  # type: ignore[operator]
    with pytest.raises(ValueError, match="told not to reduce"), noise.micro_batch(2):
        whole(part).square().mean().backward()
    whole.set_requires_gradient_sync(True)  # type: ignore[operator]
    losses = [whole(part).square().mean() for _ in range(2)]
    with pytest.raises(ValueError, match="a second gradient"), noise.micro_batch(2):
        [loss.backward() for loss in losses]
    return str(error.value)


PLAIN = [(1, False, False), (3, False, False), (2, True, False), (2, False, True)]
DUAL = [(1, False, False, "sign"), (3, False, False, "spectral"), (3, False, True, "sign")]
"""With an even number of micro-batches a rank's halves are not those of one process."""
CASES = [*((*case, "euclidean") for case in PLAIN), *DUAL]


@pytest.mark.slow
def test_ranks_are_parts_of_a_batch(tmp_path: Path) -> None:
    by_rank = on_ranks(2, distributed, CASES, tmp_path)
    for case, (first, second) in zip(CASES, zip(*by_rank, strict=True), strict=True):
        count, per_example, _, norm = case
        expected = torch.tensor(in_a_process(count, per_example, norm), dtype=torch.float64)
        assert torch.allclose(torch.tensor(first, dtype=torch.float64), expected)
        assert torch.equal(torch.tensor(first), torch.tensor(second))


@pytest.mark.slow
@pytest.mark.parametrize("adam", [False, True])
def test_shards_have_the_terms_of_a_process(adam: bool, tmp_path: Path) -> None:
    first, second = (each for (each,) in on_ranks(2, sharded, [(3, adam)], tmp_path))
    rows, weights = unsharded(3, adam)
    assert [len(row) for row in rows] == [len(row) for row in first[0]]
    for expected, seen in zip(rows, first[0], strict=True):
        assert torch.allclose(torch.tensor(seen), torch.tensor(expected), rtol=1e-9, atol=1e-12)
    assert first[0] == second[0]
    for one, other in zip(weights, first[1], strict=True):
        assert torch.allclose(torch.tensor(one), torch.tensor(other), rtol=1e-9)


@pytest.mark.slow
def test_ranks_that_are_not_named_and_shards_are_refused(tmp_path: Path) -> None:
    ((said,), _) = on_ranks(2, refused, [()], tmp_path)
    assert said == "several processes: give the DistributedDataParallel itself, or group="
