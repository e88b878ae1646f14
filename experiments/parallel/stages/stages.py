"""The stages of a model that a pipeline rank has: they train and evaluate by the schedules of
``torch.distributed.pipelining``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.errors import ExperimentError
from experiments.parallel.base import ForwardPass
from experiments.parallel.stages.partition import Unit, partition, stage
from workloads import WorkloadError

if TYPE_CHECKING:
    from torch.distributed.pipelining import PipelineStage

SCHEDULES = ("gpipe", "1f1b", "interleaved")
_STAGES_A_RANK = {"interleaved": 2}
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
_MOST_DIMENSIONS = 8


class Stages:
    """The stages of one model that this rank has, of a pipeline over a process group."""

    def __init__(
        self,
        model: nn.Module,
        plan: Sequence[str | Unit],
        *,
        group: dist.ProcessGroup,
        device: torch.device,
        schedule: str,
        micro_batches: int,
    ) -> None:
        """
        Args:
            plan: ``LayoutPlan.pipeline``.
            schedule: one of ``SCHEDULES``.
            micro_batches: of a batch in evaluation.

        Raises:
            ExperimentError: the model cannot be cut into as many stages.
        """
        self.group, self.device = group, device
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.schedule, self.micro_batches = schedule, micro_batches
        self.count = self.ranks * _STAGES_A_RANK.get(schedule, 1)
        parts = partition(model, plan, self.count)
        cut = {name for part in parts for unit in part for name in unit}
        kept = [list(dict.fromkeys(n for unit in part for n in unit)) for part in parts]
        of_rank = range(self.rank, self.count, self.ranks)
        self.modules = {i: stage(model, kept[i], cut) for i in of_rank}
        earlier = [{name for part in kept[:i] for name in part} for i in range(self.count)]
        self._begins = {i: tuple(n for n in kept[i] if n not in earlier[i]) for i in of_rank}
        if self.rank == 0:
            self._begins[0] = ("", *self._begins[0])
        self.model = stage(model, {n for i in of_rank for n in kept[i]}, cut)
        """What this rank has of the model."""
        self.trained = {n: p.shape for n, p in model.named_parameters() if p.requires_grad}
        """Shapes of the parameters of all ranks, in the model's order."""
        self.holders = self._holders(model, kept)
        """The ranks that have each parameter and buffer, in the model's order."""
        self.facts = {
            name: (tensor.shape, tensor.dtype)
            for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
        self._schedules: dict[Any, Any] = {}

    def _holders(self, model: nn.Module, kept: list[list[str]]) -> dict[str, tuple[int, ...]]:
        names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
        return {
            name: tuple(
                sorted(
                    {
                        i % self.ranks
                        for i, modules in enumerate(kept)
                        if any(name.startswith(f"{module}.") for module in modules)
                    }
                )
            )
            or tuple(range(self.ranks))  # in a module without parameters that every stage has
            for name in names
        }

    def accumulate(self, passes: Sequence[ForwardPass], losses: Tensor) -> None:
        """Add the gradient of this rank's share to ``.grad`` of its parameters, and on the last
        rank the losses, weighted, to ``losses``.

        Raises:
            ExperimentError: a technique's or the workload's use of the model, which no rank has.
        """
        sizes = [len(each.batch[0]) for each in passes]
        low = 0
        for size, same in itertools.groupby(sizes):
            for count in self._counts(len(list(same))):
                self._run(list(passes[low : low + count]), size, losses)
                low += count

    def _counts(self, passes: int) -> Iterator[int]:
        """Numbers of micro-batches that the schedule can take at once."""
        rest = passes % self.ranks if self.schedule == "interleaved" else 0
        yield from (count for count in (passes - rest, rest) if count)

    def _run(self, passes: list[ForwardPass], size: int, losses: Tensor) -> None:
        schedule, stages = self._schedule(len(passes), size, training=True)
        for index, made in stages.items():
            self.modules[index].train()
            _draw_within(made, passes, self._begins[index])
        weighted: list[Tensor] = []
        self._passes = passes
        arguments: dict[str, Any] = {"kwarg_mbs": [{} for _ in passes], "losses": weighted}
        if 0 in stages:
            arguments["arg_mbs"] = [(_input(each),) for each in passes]
        if self.count - 1 in stages:
            arguments["target_mbs"] = [torch.tensor(i) for i in range(len(passes))]
        with _plain_errors():
            schedule.step(**arguments, return_outputs=False)
        for loss in weighted:
            losses.add_(loss.detach())

    def _loss(self, output: Any, which: Tensor) -> Tensor:
        """The sum of a micro-batch's weighted losses, on the last stage."""
        each = self._passes[int(which)]
        losses = each.loss(_Given(lambda *_: output))
        return losses @ each.weights(losses.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The model's output for a batch that every rank has, on every rank; without gradients."""
        if self.model.training:
            raise ExperimentError("layout: a pipeline trains by its schedule alone")
        if not len(x):
            return self.forward(x.new_zeros(1, *x.shape[1:]))[:0]
        size = -(-len(x) // self.micro_batches)
        parts, outputs = list(x.split(size)), []
        for length, same in itertools.groupby(parts, len):
            group = list(same)
            for count in self._counts(len(group)):
                outputs.append(self._evaluate(group[:count], length))
                group = group[count:]
        has_last = self.count - 1 in self.modules
        whole = torch.cat([o for o in outputs if o is not None]) if has_last else None
        return self._shared(whole)

    def _evaluate(self, parts: list[Tensor], size: int) -> Tensor | None:
        schedule, stages = self._schedule(len(parts), size, training=False)
        for index in stages:
            self.modules[index].eval()
        arguments: dict[str, Any] = {"kwarg_mbs": [{} for _ in parts]}
        if 0 in stages:
            arguments["arg_mbs"] = [(part,) for part in parts]
        with _plain_errors():
            output: Tensor | None = schedule.eval(**arguments)
        return output

    def _shared(self, output: Tensor | None) -> Tensor:
        """The last rank's ``output``, on every rank."""
        header = torch.zeros(_MOST_DIMENSIONS + 2, dtype=torch.int64, device=self.device)
        if output is not None:
            if output.dim() > _MOST_DIMENSIONS or output.dtype not in _DTYPES:
                raise ExperimentError(f"layout: a pipeline cannot send a {output.dtype} output")
            values = [_DTYPES.index(output.dtype), output.dim(), *output.shape]
            header[: len(values)] = torch.tensor(values)
        dist.broadcast(header, group=self.group, group_src=self.ranks - 1)
        dtype, dims, *shape = header.tolist()
        if output is None:
            output = torch.empty(shape[:dims], dtype=_DTYPES[dtype], device=self.device)
        output = output.contiguous()
        dist.broadcast(output, group=self.group, group_src=self.ranks - 1)
        return output

    def _schedule(
        self, count: int, size: int, *, training: bool
    ) -> tuple[Any, dict[int, PipelineStage]]:
        """The schedule of so many micro-batches of one size, with this rank's stages: both keep
        the shapes that they first meet."""
        key = (count, size, training)
        if key not in self._schedules:
            from torch.distributed import pipelining

            stages = {
                i: pipelining.PipelineStage(module, i, self.count, self.device, group=self.group)
                for i, module in self.modules.items()
            }
            kind: Any = pipelining.ScheduleGPipe
            if self.schedule == "interleaved":
                kind = pipelining.ScheduleInterleaved1F1B
            elif self.schedule == "1f1b" and training and count >= self.count:
                kind = pipelining.Schedule1F1B
            given: Any = list(stages.values())
            made = kind(
                given if self.schedule == "interleaved" else given[0],
                count,
                loss_fn=self._loss if training else None,
                scale_grads=False,
            )
            self._schedules[key] = made, stages
        schedule, stages = self._schedules[key]
        return schedule, stages

    @torch.no_grad()
    def add_shared(self, gradients: Mapping[str, Tensor]) -> None:
        """Sum, in place, gradients of the parameters that several ranks have, over these."""
        for name, ranks in self.holders.items():
            if len(ranks) == 1 or self.rank not in ranks or name not in gradients:
                continue
            local = gradients[name].contiguous()
            parts = {r: local.clone() if r == self.rank else torch.empty_like(local) for r in ranks}
            operations = []
            for other in ranks:
                if other != self.rank:
                    for function, tensor in ((dist.isend, local), (dist.irecv, parts[other])):
                        operations.append(
                            dist.P2POp(function, tensor, group=self.group, group_peer=other)
                        )
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            total = parts[ranks[0]]
            for r in ranks[1:]:
                total = total + parts[r]
            gradients[name].copy_(total)

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of all ranks, in the model's order, on every rank; each is its first holder's."""
        present = torch.tensor([name in tensors for name in self.holders], device=self.device)
        flags = present.to(torch.int32)
        dist.all_reduce(flags, group=self.group)
        whole: dict[str, Tensor] = {}
        for (name, ranks), count in zip(self.holders.items(), flags.tolist(), strict=True):
            if not count:
                continue
            if name in tensors:
                # What this rank has is equal to what it is sent.
                whole[name] = tensors[name]
                sent = tensors[name].detach().clone()
            else:
                shape, dtype = self.facts[name]
                whole[name] = sent = torch.empty(shape, dtype=dtype, device=self.device)
            dist.broadcast(sent, group=self.group, group_src=ranks[0])
        return whole

    def gather_objects(self, value: Any) -> list[Any]:
        """Each rank's ``value``, on every rank."""
        values: list[Any] = [None] * self.ranks
        dist.all_gather_object(values, value, group=self.group)
        return values


class _Input(Exception):  # noqa: N818 - carries a value
    """Ends a workload's ``forward`` where it calls the model."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


class _Given:
    """Takes the place of the model: ``call`` gives its output. A rank has a part of the model, so
    that nothing else of it can be used."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if named or len(inputs) != 1 or not isinstance(inputs[0], Tensor):
            raise ExperimentError(
                "layout: in a pipeline a workload's forward calls the model with one tensor",
                hint="layout: {data: …} or {shard: …} fit any model",
            )
        return self._call(*inputs)

    def __getattr__(self, name: str) -> Any:
        raise ExperimentError(
            f"layout: {name} of the model is used in the workload's forward or a technique's loss, "
            "and in a pipeline no rank has the whole model",
            hint="layout: {data: …} or {shard: …} fit any model",
        )


def _input(each: ForwardPass) -> Tensor:
    """What the workload's ``forward`` gives to the model: the input of the first stage."""

    def stop(x: Tensor) -> Any:
        raise _Input(x)

    try:
        each.loss(_Given(stop))
    except _Input as reached:
        return reached.x
    raise ExperimentError("layout: the workload's forward does not call the model")


def _draw_within(made: Any, passes: Sequence[ForwardPass], modules: tuple[str, ...]) -> None:
    """Let a ``PipelineStage`` that begins with these modules draw each micro-batch's own random
    numbers.

    torch 2.15 has ``register_forward_context`` for this; earlier releases have the method alone.
    """
    forward = type(made).forward_one_chunk

    def drawing(index: int, *arguments: Any, **named: Any) -> Any:
        with passes[index].drawing(modules):
            return forward(made, index, *arguments, **named)

    vars(made)[forward.__name__] = drawing


class _plain_errors(nullcontext[None]):  # noqa: N801 - a context
    """Errors of ours and of the device, which torch wraps in its own with all arguments."""

    def __exit__(self, *raised: Any) -> None:
        error = cause = raised[1]
        while cause is not None:
            if isinstance(cause, (ExperimentError, WorkloadError, torch.OutOfMemoryError)):
                if cause is not error:
                    raise cause
                return
            cause = cause.__cause__
