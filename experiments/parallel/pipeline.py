"""Pipeline parallelism: each rank has consecutive layers, and micro-batches flow through them.

Schedules: ``gpipe`` (Huang et al. 2019, arXiv:1811.06965), ``1f1b`` (Narayanan et al. 2019,
doi:10.1145/3341301.3359646), and ``interleaved`` 1F1B with two stages on each rank (Narayanan et
al. 2021, arXiv:2104.04473).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from torch import nn

from experiments.parallel.dimension import Dimension
from experiments.parallel.pieces import Pieces
from experiments.parallel.stages.stages import Stages
from experiments.plan import Layout
from workloads import LayoutPlan

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

DEFAULT_SCHEDULE = "1f1b"


class Pipeline(Dimension):
    """Activations go from rank to rank, gradients back."""

    name = "pipeline"
    summary = "each rank holds consecutive layers, through which micro-batches flow"
    order = 30

    def __init__(self, schedule: str = DEFAULT_SCHEDULE, micro_batches: int | None = None) -> None:
        self.schedule, self.micro_batches = schedule, micro_batches

    @classmethod
    def of(cls, layout: Layout) -> Self:
        return cls(**dict(layout.pipeline))

    @classmethod
    def refusal(cls, sizes: Mapping[str, int], plan: LayoutPlan | None) -> tuple[str, str] | None:
        if plan is None or not plan.pipeline:
            hint = "layout: {shard: …} and data fit any model"
            return "its layout_plan names no layers for a pipeline", hint
        for other in ("shard", "tensor", "sequence"):
            if other in sizes:
                return (
                    f"a pipeline cannot be combined with {other}",
                    "layout: {data: 2, pipeline: 2}",
                )
        return None

    def micro_batch(self, examples: int, most: int, unit: int, sizes: Mapping[str, int]) -> int:
        count = self.micro_batches or 2 * sizes[self.name]
        size = -(-examples // (unit * count)) * unit
        return max(unit, min(size, most // unit * unit))

    def apply(
        self, model: nn.Module, plan: LayoutPlan | None, mesh: DeviceMesh, pieces: Pieces
    ) -> nn.Module:
        assert plan is not None
        pieces.stages = stages = Stages(
            model,
            plan.pipeline,
            group=mesh[self.name].get_group(),
            device=next(model.parameters()).device,
            schedule=self.schedule,
            micro_batches=self.micro_batches or 2 * mesh[self.name].size(),
        )
        of_rank = stages.model
        of_rank.forward = stages.forward
        return of_rank
