"""What the arithmetic of training needs on this machine, at least.

The floor of a part is its floating-point operations over the measured rate of matrix products, or
its bytes over that of memory, whichever takes longer. Operations are counted by torch in the model
of one trial; bytes are those of the weights, the gradient and the optimizer's state in an update,
and of the examples of a batch, each read or written once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread

STATES = {"sgd": 0, "momentum": 1, "nesterov": 1, "lion": 1, "muon": 1, "adam": 2, "adamw": 2}
"""Tensors as large as the weights that an optimizer keeps."""
NUMBER = 4
"""Bytes of a float32."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one core does in a second."""

    operations: float
    """Floating-point operations, in products of 512 × 512 matrices."""
    memory: float
    """Bytes, in copies of more than the caches hold."""

    @classmethod
    def measured(cls) -> Rates:
        """The best of several timings: other work of the machine can only lengthen one."""
        with single_thread():
            a = torch.randn(512, 512)
            large, copy = torch.ones(2**25), torch.ones(2**25)
            return cls(
                operations=_best_rate(2 * 512**3, lambda: a @ a),
                memory=_best_rate(2 * NUMBER * large.numel(), lambda: copy.copy_(large)),
            )

    def seconds(self, operations: float, moved: float) -> float:
        """The least seconds of so many operations beside so many moved bytes."""
        return max(operations / self.operations, moved / self.memory)


def _best_rate(work: float, run: Callable[[], object], times: int = 25) -> float:
    seconds = []
    for _ in range(times):
        began = time.process_time()
        run()
        seconds.append(time.process_time() - began)
    return work / min(seconds)


def operations_of_example(context: StudyContext) -> tuple[float, float]:
    """Floating-point operations of an example: in training, and in an evaluation."""
    batch = context.small_batch()
    model, count = context.workload.model(), len(batch[0])
    # torch counts attention in the form that is written out in products.
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as training:
            context.workload.loss(context.workload.forward(model, batch), batch).sum().backward()
        with FlopCounterMode(display=False) as evaluation, torch.no_grad():
            context.workload.forward(model, batch)
    return training.get_total_flops() / count, evaluation.get_total_flops() / count


def operations_of_update(context: StudyContext) -> float:
    """Floating-point operations of matrix products in an update of one model, as Muon has them."""
    named = list(context.workload.model().named_parameters())
    for _, parameter in named:
        parameter.grad = torch.randn_like(parameter)
    optimizer = context.optimizer.module(named, {"learning_rate": 1e-3})
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    return float(counter.get_total_flops())


def update_bytes(optimizer: str, size: int) -> int:
    """Bytes that the update of ``size`` weights reads and writes: weights and each state, both
    ways, and the gradient."""
    return (3 + 2 * STATES[optimizer]) * size * NUMBER


def update_seconds(context: StudyContext, rates: Rates) -> float:
    """The least seconds of an update of one model on one core."""
    size = sum(p.numel() for p in context.workload.model().parameters())
    moved = update_bytes(context.study.optimizer, size)
    return rates.seconds(operations_of_update(context), moved)


def step_seconds(context: StudyContext, rates: Rates) -> float:
    """The least seconds of one step of one model on one core."""
    examples = context.study.batch_size
    size = sum(p.numel() for p in context.workload.model().parameters())
    of_example = sum(x[0].nbytes for x in context.small_batch())
    return rates.seconds(
        examples * operations_of_example(context)[0] + operations_of_update(context),
        update_bytes(context.study.optimizer, size) + examples * of_example,
    )


def product_seconds(step: Callable[[int], object]) -> float:
    """The seconds of torch's matrix products, convolutions and attention in one ``step``, as they
    run in it: what no other order or fusion of the rest can save."""
    return min(_product_seconds(step) for _ in range(7))


def _product_seconds(step: Callable[[int], object]) -> float:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step(1)
    kernels = profiled.key_averages()
    return sum(k.self_cpu_time_total for k in kernels if _PRODUCT.search(k.key)) / 1e6


_PRODUCT = re.compile(r"mm$|conv|attention")
"""In the names of kernels."""


def most(context: StudyContext, seconds: float, rates: Rates, products: float) -> str:
    """How many times as fast as ``seconds`` a step of one model can be at most, in words.

    ``products``: ``product_seconds`` of it.
    """
    return (
        f"at most {seconds / step_seconds(context, rates):.1f}× by its arithmetic, "
        f"{seconds / products:.1f}× by its products"
    )
