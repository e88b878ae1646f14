"""Gradient compression: what the data ranks of one model send to each other, in fewer bits.

By torch's communication hooks, ``torch.distributed.algorithms.ddp_comm_hooks``: halves of 16 bits,
or PowerSGD (Vogels, Karimireddy & Jaggi 2019, arXiv:1905.13727), which sends each matrix M as P Qᵀ
of low rank, and adds what that leaves out to the next step's gradient of the same rank (error
feedback). Each rank's own share of the gradient is rounded, so that the trajectory depends on how
many ranks there are: they are an argument, and in the identity.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor

from experiments.errors import ExperimentError
from experiments.plan import Layout
from experiments.techniques.base import Communication, Technique

_TWO_GRADIENTS = "what PowerSGD leaves out of its first gradient would be added to the second"


class Compress(Technique):
    """Send gradients between data ranks as ``fp16`` or ``bf16``, or by PowerSGD of a rank."""

    name = "compress"
    order = 400
    stacks = False
    why_not_stacked = "it changes what the ranks of one model send to each other"

    to: Literal["fp16", "bf16"] | None = None
    """The type in which each gradient is sent and added."""
    powersgd: Annotated[int, Field(ge=1)] | None = None
    """The rank of each matrix that is sent; what has fewer than two dimensions is sent as it is."""
    ranks: Annotated[int, Field(ge=2)] | None = None
    """Data ranks: those of the layout."""
    exact_steps: Annotated[int, Field(ge=2)] = 2
    """Steps that PowerSGD begins after."""

    def __post_init__(self) -> None:
        if (self.to is None) == (self.powersgd is None):
            raise ValueError("give one of fp16, bf16 and {powersgd: RANK}")
        if self.powersgd is None and self.exact_steps != 2:
            raise ValueError("exact_steps are those of powersgd")

    @property
    def excludes(self) -> dict[str, str]:  # type: ignore[override]
        """Of PowerSGD, which keeps something of each gradient, what takes two in a step."""
        return {"sam": _TWO_GRADIENTS} if self.powersgd is not None else {}

    def in_layout(self, layout: Layout) -> Technique:
        if layout.name is not None or layout.dimensions:
            raise ExperimentError(
                f"technique {self.label} needs data parallelism alone: other layouts add gradients "
                "by themselves",
                hint="workers: 2 or more, without another layout",
            )
        if layout.workers == 1:
            raise ExperimentError(
                f"technique {self.label} changes what data ranks send to each other, and a single "
                "worker sends nothing",
                hint="workers: 2 or more; or leave it out",
            )
        if self.ranks not in (None, layout.workers):
            raise ExperimentError(
                f"technique {self.label} is of {self.ranks} data ranks, and there are "
                f"{layout.workers}",
                hint=f"workers: {self.ranks}, or leave ranks out",
            )
        return self.with_arguments({"ranks": layout.workers})

    def communication(self) -> Communication:
        if self.powersgd is not None:
            return _PowerSGD(self.label, self.ranks, self.powersgd, self.exact_steps)
        return _Cast(self.label, self.ranks, self.to)


class _Compressed(Communication):
    """
    Args:
        expected: data ranks of the study.
    """

    def __init__(self, technique: str, expected: int | None) -> None:
        self.technique, self._expected = technique, expected

    def join(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._ranks, self._rank = dist.get_world_size(group), dist.get_rank(group)
        if self._expected not in (None, self._ranks):
            raise ExperimentError(
                f"technique {self.technique} is of {self._expected} data ranks, and there are "
                f"{self._ranks}",
                hint=f"workers: {self._expected}",
            )


class _Cast(_Compressed):
    """Gradients are rounded, then added in the same type."""

    def __init__(self, technique: str, expected: int | None, to: str | None) -> None:
        super().__init__(technique, expected)
        self.to = to

    def hook(
        self, group: dist.ProcessGroup | None, bucket: dist.GradBucket
    ) -> torch.futures.Future[Tensor]:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks

        hook = hooks.fp16_compress_hook if self.to == "fp16" else hooks.bf16_compress_hook
        return _times(hook(group, bucket), self._ranks)  # type: ignore[arg-type]


class _PowerSGD(_Compressed):
    """With error feedback and warm start, as in the paper."""

    def __init__(self, technique: str, expected: int | None, rank: int, exact_steps: int) -> None:
        super().__init__(technique, expected)
        self.rank, self.exact_steps = rank, exact_steps

    def join(self, group: dist.ProcessGroup | None) -> None:
        super().join(group)
        self._begin()

    def _begin(self) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

        self._kept = PowerSGDState(
            self._group,
            matrix_approximation_rank=self.rank,
            start_powerSGD_iter=self.exact_steps,
        )

    def hook(
        self, group: dist.ProcessGroup | None, bucket: dist.GradBucket
    ) -> torch.futures.Future[Tensor]:
        del group  # in the state
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import powerSGD_hook

        if any(not gradient.dim() for gradient in bucket.gradients()):
            raise ExperimentError(
                f"technique {self.technique}: PowerSGD cannot send a parameter without dimensions",
                hint="give it the shape (1,), or compress: fp16",
            )
        mean = powerSGD_hook(self._kept, bucket)
        # Its second and third message are sent by callbacks, in threads of Gloo. Waiting for them
        # keeps all ranks' messages in one order; on a GPU the host does not wait here.
        mean.wait()
        return _times(mean, self._ranks)

    def state(self) -> dict[str, Any]:
        kept = self._kept
        gathered = self._all(kept.error_dict)
        errors = [{i: parts[rank] for i, parts in gathered.items()} for rank in range(self._ranks)]
        kind, values, *rest = kept.rng.get_state(legacy=True)
        return {
            "iteration": kept.iter,
            "errors": errors,
            "factors": dict(kept.q_memory_dict),
            "workspace": {index: p.numel() for index, p in kept.p_memory_dict.items()},
            "generator": [str(kind), torch.from_numpy(np.array(values, np.int64)), *rest],
        }

    def _all(self, tensors: dict[int, Tensor]) -> dict[int, list[Tensor]]:
        """Of all ranks."""
        gathered = {}
        for index, local in tensors.items():
            gathered[index] = [torch.empty_like(local) for _ in range(self._ranks)]
            dist.all_gather(gathered[index], local.contiguous(), group=self._group)
        return gathered

    def load(self, state: dict[str, Any]) -> None:
        self._begin()
        if not state:
            return
        if len(state["errors"]) != self._ranks:
            raise ValueError(f"errors of {len(state['errors'])} ranks, and there are {self._ranks}")
        kept = self._kept
        kept.iter = state["iteration"]
        kept.error_dict = {i: t.clone() for i, t in state["errors"][self._rank].items()}
        kept.q_memory_dict = {i: t.clone() for i, t in state["factors"].items()}
        kept.p_memory_dict = {
            i: kept.q_memory_dict[i].new_empty(size) for i, size in state["workspace"].items()
        }
        kind, values, *rest = state["generator"]
        kept.rng.set_state((kind, values.numpy().astype(np.uint32), *rest))


def _times(mean: torch.futures.Future[Tensor], ranks: int) -> torch.futures.Future[Tensor]:
    """torch's hooks give the mean over the ranks; the gradient is their sum."""
    return mean.then(lambda done: done.value().mul_(ranks))
