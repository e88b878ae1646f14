"""Layouts of several dimensions on one mesh of ranks: ``layout: {data: 2, shard: 2, tensor: 2}``.

Ranks that are close to one another communicate most, so that the mesh has, from the dimension whose
ranks are farthest apart: data, shard, pipeline, tensor. A model is cut in the order tensor,
sequence, pipeline, shard (``Dimension.order``); what is left is copied over the data ranks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.errors import ExperimentError
from experiments.parallel.base import ForwardPass, MakeOptimizer, ParallelLayout
from experiments.parallel.data import DataParallel
from experiments.parallel.dimension import Dimension
from experiments.parallel.pieces import Pieces, is_distributed, local
from experiments.parallel.ranks import SOLO, Ranks, TorchRanks
from experiments.parallel.stages.merged_state import MergedState
from experiments.parallel.stages.stages import Stages
from experiments.parallel.updates.cut_optimizer import CutParameters
from workloads import LayoutPlan

MESH = ("data", "shard", "pipeline", "tensor")
"""Dimensions of the mesh, from the outermost."""


class Composed(ParallelLayout):
    """
    Args:
        sizes: ranks of each dimension; of a switch 1.
        dimensions: those of ``sizes`` other than data.
    """

    def __init__(self, sizes: Mapping[str, int], dimensions: Sequence[Dimension]) -> None:
        self.sizes = dict(sizes)
        self.name = " × ".join(f"{name} {size}" for name, size in sizes.items())
        self.dimensions = sorted(dimensions, key=lambda each: each.order)
        self._pieces: WeakKeyDictionary[nn.Module, Pieces] = WeakKeyDictionary()
        self._cut: WeakKeyDictionary[torch.optim.Optimizer, CutParameters] = WeakKeyDictionary()
        self._merged: WeakKeyDictionary[torch.optim.Optimizer, MergedState] = WeakKeyDictionary()

    def join(self, ranks: Ranks) -> Composed:
        """Make the mesh; on a single rank a model is whole.

        Raises:
            ExperimentError: there are other than the product of all dimensions' ranks.
        """
        self.ranks = self._copies = self._shard = self._tensor = ranks
        self._data = DataParallel()
        if ranks.size == 1:
            self.dimensions = []
            return self
        if ranks.size != math.prod(self.sizes.values()):
            product = math.prod(self.sizes.values())
            raise ExperimentError(
                f"layout {self.name} is for {product} ranks, and there are {ranks.size}"
            )
        device = getattr(ranks, "device", torch.device("cpu"))
        names = tuple(name for name in MESH if self.sizes.get(name, 1) > 1)
        self.mesh = _mesh(
            device.type, names, tuple(self.sizes[name] for name in names), dist.group.WORLD
        )

        def of(*wanted: str) -> Ranks:
            dims = tuple(name for name in names if name in wanted)
            if not dims:
                return SOLO
            mesh = self.mesh[dims] if len(dims) < len(names) else self.mesh
            mesh = mesh._flatten("_".join(dims)) if len(dims) > 1 else mesh
            return TorchRanks(str(device), mesh.get_group())

        self._copies, self._shard, self._tensor = of("data", "shard"), of("shard"), of("tensor")
        self._data = DataParallel().join(of("data"))
        self.model_ranks = ranks.size // self._copies.size
        self.activation_part = (self._tensor.rank, self._tensor.size)
        self.passes_together = any(each.passes_together for each in self.dimensions)
        self.staged = self.sizes.get("pipeline", 1) > 1
        return self

    @property
    def data_ranks(self) -> int:
        return self._copies.size

    def spread(self, model: nn.Module, plan: LayoutPlan | None) -> nn.Module:
        if not self.dimensions:
            return model
        pieces = Pieces(model, self._tensor, self._shard)
        if plan is not None and "sequence" not in self.sizes:
            plan = replace(plan, sequence=None)
        for dimension in self.dimensions:
            model = dimension.apply(model, plan, self.mesh, pieces)
        self._pieces[model] = pieces
        return model

    def micro_batch(self, examples: int, most: int, unit: int = 1) -> int:
        share = self.share(examples, unit)
        for dimension in self.dimensions:
            most = dimension.micro_batch(share.stop - share.start, most, unit, self.sizes)
        return most

    def accumulate(self, model: nn.Module, passes: Iterable[ForwardPass], losses: Tensor) -> None:
        stages = self._stages(model)
        if stages is None:
            super().accumulate(model, passes, losses)
        else:
            stages.accumulate(list(passes), losses)

    def _stages(self, model: nn.Module) -> Stages | None:
        return self._pieces[model].stages if self.dimensions else None

    def optimizer(
        self,
        model: nn.Module,
        make: MakeOptimizer,
        whole: Collection[str],
    ) -> torch.optim.Optimizer:
        if not self.dimensions:
            return super().optimizer(model, make, whole)
        cut = CutParameters(model, self._pieces[model], whole)
        optimizer = make(cut.named())
        optimizer.register_step_pre_hook(lambda *_: cut.take_gradients())
        optimizer.register_step_post_hook(lambda *_: cut.publish())
        self._cut[optimizer] = cut
        stages = self._stages(model)
        if stages is not None:
            self._merged[optimizer] = MergedState(make, stages.trained, stages.gather_objects)
        return optimizer

    def finish_gradient(self, model: nn.Module) -> None:
        if not self.dimensions:
            return
        pieces = self._pieces[model]
        gradients: dict[str, Tensor] = {}
        for name, p in model.named_parameters():
            if not p.requires_grad:
                continue
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            elif is_distributed(p.grad) and p.grad.placements != p.placements:  # type: ignore[attr-defined]
                # Of a norm whose ranks had different tokens: sums of each.
                p.grad = p.grad.redistribute(placements=p.placements)  # type: ignore[attr-defined]
            gradient = local(p.grad)
            if not pieces[name].sharded:
                self._shard.all_reduce_(gradient)
            gradients[name] = gradient
        if pieces.stages is not None:
            pieces.stages.add_shared(gradients)
        self._data.reduce_gradients(list(gradients.values()))

    def reduce_gradients(self, gradients: Sequence[Tensor]) -> None:
        self._data.reduce_gradients(gradients)

    def all_reduce(self, sums: Tensor) -> Tensor:
        return self._copies.all_reduce_(sums)

    def all_true(self, flags: Tensor) -> Tensor:
        return self.ranks.all_reduce_(flags.int()) == self.ranks.size

    def local(self, tensor: Tensor) -> Tensor:
        return local(tensor)

    def gather(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not self.dimensions:
            return dict(tensors)
        pieces = self._pieces[model]
        whole = {name: pieces.gather(name, local(tensor)) for name, tensor in tensors.items()}
        return whole if pieces.stages is None else pieces.stages.gather(whole)

    def part(self, model: nn.Module, name: str, whole: Tensor) -> Tensor:
        if not self.dimensions:
            return whole
        part = self._pieces[model].part(name, whole)
        like: Any = model.get_parameter(name)
        if not is_distributed(like):
            return part
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(
            part,
            like.device_mesh,
            like.placements,
            run_check=False,
            shape=like.shape,
            stride=like.stride(),
        )

    def publish(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer in self._cut:
            self._cut[optimizer].publish()

    @torch.no_grad()
    def state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        if optimizer not in self._cut:
            return super().state(model, optimizer)
        of_optimizer = self._cut[optimizer].whole_state(optimizer)
        if optimizer in self._merged:
            names = self._cut[optimizer].names(optimizer)
            of_optimizer = self._merged[optimizer].whole(of_optimizer, names)
        return {"model": self.gather(model, model.state_dict()), "optimizer": of_optimizer}

    @torch.no_grad()
    def load(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        if optimizer not in self._cut:
            super().load(model, optimizer, state)
            return
        present, whole = model.state_dict(), state["model"]
        if present.keys() - whole.keys() or (not self.staged and whole.keys() - present.keys()):
            raise ValueError(f"not the parameters of this model: {sorted(whole)[:3]} …")
        for name, tensor in present.items():
            local(tensor).copy_(self._pieces[model].part(name, whole[name]))
        of_optimizer = state["optimizer"]
        if optimizer in self._merged:
            names = self._cut[optimizer].names(optimizer)
            part = self._merged[optimizer].part
            of_optimizer = part(of_optimizer, optimizer.state_dict(), names)
        self._cut[optimizer].load(optimizer, of_optimizer)


@functools.cache
def _mesh(device: str, names: tuple[str, ...], sizes: tuple[int, ...], world: Any) -> Any:  # noqa: ARG001
    """The mesh of a process group, which is made once."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device, sizes, mesh_dim_names=names)


def forget_meshes() -> None:
    """Let go of the meshes of a process group that is to be closed, and so of its connections."""
    _mesh.cache_clear()
