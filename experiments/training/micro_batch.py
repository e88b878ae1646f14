"""How many examples one forward pass may hold: bytes saved for the backward pass, measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from experiments.convolutions import narrow
from experiments.errors import ExperimentError
from experiments.training.study_context import StudyContext
from workloads import Batch, Workload
from workloads.ghost import has_batch_norm

_CHUNK_BYTES = {"cpu": 2**29, "cuda": 2**32}
"""Most bytes of activations of one forward pass, when the study names no micro-batch. On an H200 16
ResNet-8 trained 1.4 and were evaluated 3.5 times as fast with 2^32 as with 2^29 bytes."""
_CACHED_BYTES = 20 * 2**20
"""The same for convolutions on a CPU: from 10 to 40 MiB make no difference beyond 5 per cent for
cifar10-resnet8 (``benchmarks/images.py``). Other models and stacks gain less from any size."""


def chunk_size(
    context: StudyContext, model: nn.Module, models: int, *, divisible: bool = True
) -> int:
    """Examples of one model that one forward may hold, ``models`` models at a time.

    The number does not depend on how many models are in the pack at hand, so that a trial's bits
    do not either.

    Args:
        divisible: whether a batch may be divided although its activations fit into memory.
    """
    cached = divisible and models == 1 and narrow(model, context.device)
    unit = context.ghost_batch or (32 if has_batch_norm(model) else 1)
    most = _CACHED_BYTES if cached else _CHUNK_BYTES.get(context.device.type, _CHUNK_BYTES["cuda"])
    examples = most // (models * saved_bytes(context.workload, model, context.small_batch()))
    return max(unit, examples // unit * unit)


def micro_batch(
    context: StudyContext, model: nn.Module, models: int, *, divisible: bool = True
) -> int:
    """Examples of one model in one training forward: as the study says, else at most
    ``chunk_size``.

    Args:
        divisible: see ``chunk_size``.

    Raises:
        ExperimentError: a technique cuts batches in parts, and the batch size is not a multiple.
    """
    stated = context.study.layout.micro_batch
    most = stated or chunk_size(context, model, models, divisible=divisible)
    if stated is None and models == 1 and narrow(model, context.device):
        # Parts alike: a small last one would take its share of time for little.
        unit, largest = context.ghost_batch or 1, context.study.batches.largest
        examples = -(-largest // -(-largest // most))
        most = -(-examples // unit) * unit
    part = equal_parts(
        context.techniques.micro_batches, context.study.batch_size, context.ghost_batch
    )
    return most if part is None else min(most, part)


def equal_parts(parts: int | None, examples: int, ghost_batch: int | None) -> int | None:
    """Examples of each of so many ``parts`` of a batch; ``None`` of parts is ``None``.

    Raises:
        ExperimentError: the batch size is not a multiple.
    """
    if parts is None:
        return None
    if examples % (parts * (ghost_batch or 1)):
        raise ExperimentError(
            f"batch size {examples} cannot be accumulated in {parts} equal micro-batches"
            + (f" of whole ghost batches of {ghost_batch}" if ghost_batch else ""),
            hint="a divisor of the batch size, or leave that batch size out",
        )
    return examples // parts


def saved_bytes(workload: Workload, model: nn.Module, batch: Batch) -> int:
    """Bytes that autograd saves for the backward pass of ``model``, an example (at least 1).

    Measured on one forward of ``batch``; the weights, which are saved too, are left out.
    """
    weights = {p.data_ptr() for p in model.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in weights:
            saved[pointer] = tensor.untyped_storage().nbytes()
        return tensor

    was_training = model.training
    saving = torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x)
    with torch.random.fork_rng(), buffers_kept(model), saving:
        workload.loss(workload.forward(model.train(), batch), batch)
    model.train(was_training)
    return max(1, sum(saved.values()) // len(batch[0]))


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Behind it, the model's buffers are as they were."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    yield
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
