"""How much a training step holds: bytes saved for the backward pass, an example."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workloads import Batch, Workload


def saved_bytes(workload: Workload, model: nn.Module, batch: Batch) -> int:
    """Bytes that autograd saves for the backward pass of ``model``, an example (at least 1).

    Measured on one forward of ``batch``; the weights, which are saved too, are left out.
    """
    weights = {p.data_ptr() for p in model.parameters()}
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in weights:
            seen[pointer] = tensor.untyped_storage().nbytes()
        return tensor

    was_training = model.training
    buffers = {k: v.clone() for k, v in model.named_buffers()}
    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        workload.loss(workload.forward(model.train(), batch), batch)
    model.train(was_training)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    return max(1, sum(seen.values()) // len(batch[0]))
