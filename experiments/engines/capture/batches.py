"""What can be captured, and how a captured step gets its examples: by index on the device where
they lie there, else from a buffer that is filled before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from experiments.engines.capture import captured_step
from experiments.engines.capture.captured_step import StepInputs
from experiments.training.study_context import StudyContext
from workloads import Batch

_IN_STEPS = (
    *("before_step", "select", "perturbed", "gradient", "after_step"),
    *("communication", "optimizer"),
)
"""Hooks that are called in a step, besides those of the forward pass; they may do anything."""
_TABLE_BYTES = 2**22
_BATCH = "batch "


def capturable(context: StudyContext) -> bool:
    """Whether steps of a study may be captured: on this kind of device, by one worker, and without
    what the host decides in a step."""
    techniques = context.techniques
    return (
        context.device.type in captured_step.RECORDERS
        and context.layout.ranks.size == 1
        and context.layout.stacks
        and not context.splits["train"].iterable  # what is read of it cannot be read again
        and not context.precision.scales
        and not techniques.change_by_step
        and not techniques.define(*_IN_STEPS)
    )


def indexed(context: StudyContext) -> bool:
    """Whether a captured step gathers its examples by their indices."""
    return not context.splits["train"].random and not context.techniques.define("augment")


def most_steps(context: StudyContext, indices: int) -> int:
    """Steps whose inputs are filled at once; ``indices``: those of a step."""
    return max(1, min(256, _TABLE_BYTES // (8 * max(indices, 1)))) if indexed(context) else 1


def fetched(context: StudyContext, inputs: StepInputs) -> Batch:
    """The examples of the next step; a part of the captured step."""
    if not indexed(context):
        return tuple(inputs[name] for name in inputs.names if name.startswith(_BATCH))
    index = inputs["index"]
    batch = context.train.fetch(index.reshape(-1), training=True)
    return tuple(x.view(*index.shape, *x.shape[1:]) for x in batch)


def step_inputs(
    context: StudyContext,
    steps: int,
    most: int,
    indices: Callable[[int, int], Tensor],
    batches: Callable[[], Iterator[tuple[int, Batch]]],
    others: Callable[[int, int], Mapping[str, Tensor]],
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The inputs of the next ``steps``, at most ``most`` at once, with their number.

    Args:
        indices: of the examples of some steps, from the number of the first one and how many.
        batches: the batches of all steps, where examples are not gathered by index.
        others: what else those steps read, as ``indices``.
    """
    if indexed(context):
        for first in range(0, steps, most):
            count = min(most, steps - first)
            yield count, {"index": indices(first, count), **others(first, count)}
        return
    for first, (_, batch) in enumerate(batches()):
        named = {f"{_BATCH}{i}": x.unsqueeze(0) for i, x in enumerate(batch)}
        yield 1, {**named, **others(first, 1)}
