"""Data parallelism: every rank has the whole model and trains a share of each global batch."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.errors import ExperimentError
from experiments.parallel.base import ForwardPass, ParallelLayout
from experiments.parallel.ranks import TorchRanks
from experiments.techniques.communication import Communication


class DataParallel(ParallelLayout):
    """One model at a time: torch's ``DistributedDataParallel`` sums gradients in buckets while the
    backward pass goes on. A stack of models: in one message."""

    name = "data"
    summary = "every rank has the whole model and trains a share of each global batch"
    stacks = True

    def __init__(self) -> None:
        self._reducers: weakref.WeakKeyDictionary[nn.Module, _Reducer] = weakref.WeakKeyDictionary()

    def communicate(self, model: nn.Module, how: Communication | None) -> None:
        if how is None:
            return
        if self.ranks.size == 1 or not isinstance(self.ranks, TorchRanks):
            super().communicate(model, how)
        else:
            self._reducers[model] = _Reducer(model, self.ranks.group, how)

    def accumulate(self, model: nn.Module, passes: Iterable[ForwardPass], losses: Tensor) -> None:
        reducer = self._reducer(model)
        if reducer is None:
            super().accumulate(model, passes, losses)
        else:
            reducer.accumulate(passes, losses)

    def finish_gradient(self, model: nn.Module) -> None:
        reducer = self._reducer(model)
        if self.ranks.size == 1 or (reducer is not None and reducer.done):
            return
        if reducer is not None and reducer.how is not None:
            raise ExperimentError(
                f"technique {reducer.how.technique}: a batch has fewer examples, or ghost batches, "
                f"than there are data ranks, {self.ranks.size}",
                hint="a larger batch size, or fewer workers",
            )
        # A parameter that no example used has no gradient, as on one rank: not one of zeros.
        trained = [p for p in model.parameters() if p.requires_grad]
        used = self.all_reduce(trained[0].new_tensor([p.grad is not None for p in trained]))
        super().finish_gradient(model)
        for p, count in zip(trained, used.tolist(), strict=True):
            p.grad = p.grad if count else None

    def reduce_gradients(self, gradients: Sequence[Tensor]) -> None:
        if self.ranks.size > 1:
            flat = self.ranks.all_reduce_(torch.cat([g.reshape(-1) for g in gradients]))
            parts = flat.split([g.numel() for g in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def all_reduce(self, sums: Tensor) -> Tensor:
        return self.ranks.all_reduce_(sums)

    def communication_state(self, model: nn.Module) -> dict[str, Any]:
        reducer = self._reducers.get(model)
        return reducer.how.state() if reducer is not None and reducer.how is not None else {}

    def load_communication(self, model: nn.Module, state: dict[str, Any]) -> None:
        reducer = self._reducers.get(model)
        if reducer is not None and reducer.how is not None:
            reducer.how.load(state)

    def _reducer(self, model: nn.Module) -> _Reducer | None:
        """``None``: there is nothing to sum, or the ranks are not torch's."""
        if self.ranks.size == 1 or not isinstance(self.ranks, TorchRanks):
            return None
        if model not in self._reducers:
            self._reducers[model] = _Reducer(model, self.ranks.group, None)
        return self._reducers[model]


class _Losses(nn.Module):
    """A micro-batch's losses as the output of a module, so that a workload's ``forward`` and a
    technique's ``loss`` may use the model as they like: it keeps its class and its names."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.trained = nn.ParameterList(p for p in model.parameters() if p.requires_grad)
        # torch is to find out which parameters a pass uses, and where those are all it says that
        # this was in vain. Another one, which is never used, keeps it quiet.
        self.unused = nn.Parameter(self.trained[0].new_zeros(1))
        self._model = weakref.ref(model)

    def forward(self, each: ForwardPass) -> Tensor:
        return each.loss(self._model())


class _Reducer:
    """Sums the gradient of one model over the data ranks."""

    def __init__(
        self, model: nn.Module, group: dist.ProcessGroup | None, how: Communication | None
    ) -> None:
        from torch.nn.parallel import DistributedDataParallel

        self.how = how
        self.done = False
        """Whether the present gradient has been summed."""
        # Every rank has made the same model, and buffers are not its business: running statistics
        # of batch norm are brought up to date once a step, by ``finish_step``.
        self.module = DistributedDataParallel(
            _Losses(model), process_group=group, find_unused_parameters=True, init_sync=False
        )
        if how is not None:
            how.join(group)
        hook = how.hook if how is not None else _summed
        # torch compares the annotations of a hook with classes, and ours are text.
        self.module.register_comm_hook(group, lambda state, bucket: hook(state, bucket))

    def accumulate(self, passes: Iterable[ForwardPass], losses: Tensor) -> None:
        self.done = False
        for each in passes:
            # Both passes of an inner micro-batch are inside, or torch sums after each of them.
            with contextlib.nullcontext() if each.sums else self.module.no_sync():
                loss = self.module(each)
                loss.backward(each.weights(loss.dtype))
            losses.add_(loss.detach().sum())
            self.done = each.sums


def _summed(
    group: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[Tensor]:
    """A bucket's sum over the ranks, where torch's default is the mean: each example's loss has
    its weight in the global batch already."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
