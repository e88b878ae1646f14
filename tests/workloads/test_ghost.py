"""Ghost batch norm: the same objective and statistics however a batch is laid out."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from workloads import WorkloadError
from workloads.ghost import GhostBatchNorm, convert_batch_norm, finish_step, has_batch_norm

GHOST = 4


def network(**options) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, **options), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5)
    )
    return made.double()


def images(count: int) -> torch.Tensor:
    return torch.randn(
        count, 2, 4, 4, generator=torch.Generator().manual_seed(count), dtype=torch.float64
    )


def norm_of(model: nn.Module) -> nn.Module:
    """The first normalization of ``network()``."""
    return model.get_submodule("1")


def test_conversion_keeps_parameters_names_and_mode() -> None:
    model = network()
    parameters, state = list(model.parameters()), list(model.state_dict())
    assert has_batch_norm(model)
    converted = convert_batch_norm(model, GHOST)
    assert has_batch_norm(converted)
    assert [id(p) for p in converted.parameters()] == [id(p) for p in parameters]
    assert list(converted.state_dict()) == state
    assert norm_of(convert_batch_norm(converted, GHOST)) is norm_of(converted)
    assert isinstance(convert_batch_norm(nn.BatchNorm1d(3), 2), GhostBatchNorm)
    assert not convert_batch_norm(nn.BatchNorm1d(3).eval(), 2).training
    assert not has_batch_norm(nn.Linear(2, 2))
    assert "ghost_batch=4" in repr(converted)


def test_a_module_in_two_places_stays_one() -> None:
    shared = nn.BatchNorm1d(3)
    holder = nn.Module()
    holder.first, holder.second = shared, shared
    convert_batch_norm(holder, 2)
    assert holder.first is holder.second
    assert isinstance(holder.second, GhostBatchNorm)


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None}, {"eps": 1e-2}])
@pytest.mark.parametrize("shape", [(GHOST, 3), (GHOST, 3, 5), (GHOST, 3, 2, 2)])
def test_one_ghost_batch_is_the_module_it_replaced(options, shape) -> None:
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    plain = kind(3, **options).double()
    ghost = convert_batch_norm(copy.deepcopy(plain), GHOST)
    for seed in range(3):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        torch.testing.assert_close(ghost(x), plain(x))
        finish_step(ghost)
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(dict(ghost.named_buffers())[name], buffer)
    x = torch.randn(7, *shape[1:], dtype=torch.float64)
    torch.testing.assert_close(ghost.eval()(x), plain.eval()(x))


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 6), max_size=4), start=st.integers(1, 3))
def test_layout_changes_neither_gradients_nor_statistics(cuts, start) -> None:
    """Any micro-batches of whole ghost batches, in two steps, against the whole batch at once."""
    count = 6 * GHOST
    whole = convert_batch_norm(network(), GHOST)
    parts = copy.deepcopy(whole)
    edges = sorted({0, count, *(cut * GHOST for cut in cuts)})
    for step in range(2):
        x = images(count) * (start + step)
        whole(x).square().sum(-1).sum().backward()
        finish_step(whole)
        for low, high in itertools.pairwise(edges):
            parts(x[low:high]).square().sum(-1).sum().backward()
        finish_step(parts)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for one, other in zip(whole.buffers(), parts.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_workers_that_share_a_batch_keep_the_statistics_of_one() -> None:
    whole = convert_batch_norm(network(), GHOST)
    workers = [copy.deepcopy(whole) for _ in range(2)]
    x = images(6 * GHOST)
    whole(x)
    for worker, share in zip(workers, (x[: 2 * GHOST], x[2 * GHOST :]), strict=True):
        worker(share)  # unequal shares: counts are summed too
    finish_step(whole)
    norms = [norm_of(worker) for worker in workers]
    total = [torch.stack([n.get_buffer(name) for n in norms]).sum(0) for name in SUMS]
    for worker in workers:
        sums = iter(total)
        finish_step(worker, partial(_put_next, sums))
        for a, b in zip(whole.buffers(), worker.buffers(), strict=True):
            torch.testing.assert_close(a, b)


def _put_next(values: Iterator[torch.Tensor], tensor: torch.Tensor) -> None:
    tensor.copy_(next(values))


SUMS = ("mean_sum", "variance_sum", "ghosts")


def test_the_loss_of_an_example_does_not_move_with_the_batch() -> None:
    model = convert_batch_norm(network(), GHOST)
    x = images(4 * GHOST)
    torch.testing.assert_close(model(x)[:GHOST], model(x[:GHOST]))
    plain = network()
    assert not torch.allclose(plain(x)[:GHOST], plain(x[:GHOST]))


def test_evaluation_adds_nothing_and_a_step_without_forward_changes_nothing() -> None:
    model = convert_batch_norm(network(), GHOST).eval()
    before = [b.clone() for b in model.buffers() if b.is_floating_point()]
    model(images(5))
    finish_step(model)
    after = [b for b in model.buffers() if b.is_floating_point()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_bfloat16_batches_are_normalized_in_the_statistics_precision() -> None:
    norm = convert_batch_norm(nn.BatchNorm1d(3), 8)
    x = (torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) + 100).bfloat16()
    y = norm(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(norm.mean_sum, x.float().mean(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: convert_batch_norm(network(), 0), "ghost_batch is 0"),
        (lambda: convert_batch_norm(nn.LazyBatchNorm1d(), 4), "has no size yet"),
        (lambda: convert_batch_norm(network(track_running_stats=False), 4), "running statistics"),
        (
            lambda: convert_batch_norm(network(), 4)(images(6)),
            "6 cannot be divided into ghost batches of 4",
        ),
        (lambda: convert_batch_norm(nn.BatchNorm1d(3), 1)(torch.zeros(2, 3)), "no variance"),
    ],
)
def test_what_cannot_be_is_said(make, message) -> None:
    with pytest.raises(WorkloadError, match=message):
        make()
