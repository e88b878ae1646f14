"""The gradient of half of a batch, which techniques may observe beside that of all of it
(``Technique.observe``): what ``Models`` and ``Hooks`` of ``step.py`` have for that."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import Tensor

from experiments.techniques import Techniques
from experiments.training.study_context import StudyContext
from workloads import Batch


def half_of(size: int, ranks: int) -> int:
    """Examples of a batch when each rank takes half of its share, rounded down."""
    each, more = divmod(size, ranks)
    return ranks * (each // 2) + (more if each % 2 else 0)


class HalfGradients(abc.ABC):
    """Models of which ``half_gradient`` is taken."""

    stacked: ClassVar[bool]
    context: StudyContext
    size: int
    """Examples of the global batch of the present steps."""
    share: slice
    """This rank's examples of it."""

    @abc.abstractmethod
    def take_gradient(self, batch: Batch, examples: Tensor | None) -> None: ...

    @abc.abstractmethod
    def gradients(self) -> dict[str, Tensor]: ...

    @abc.abstractmethod
    def buffers_kept(self) -> contextlib.AbstractContextManager[None]: ...

    @abc.abstractmethod
    def loss_sums(self) -> Tensor:
        """The running sum of all losses, of each model: once not finite, it never is again."""

    def half_gradient(self, batch: Batch) -> dict[str, Tensor]:
        """The gradient of the mean loss over the first half of each rank's examples."""
        size, share, layout = self.size, self.share, self.context.layout
        self.size = half_of(size, layout.data_ranks)
        part = layout.share(self.size)
        count = part.stop - part.start
        self.share = slice(share.start, share.start + count)
        losses = self.loss_sums().clone()
        with self.buffers_kept():
            self.take_gradient(tuple(x.narrow(int(self.stacked), 0, count) for x in batch), None)
        # Where models are at different steps, it is not due in all of them.
        self.loss_sums().copy_(losses)
        self.size, self.share = size, share
        return {name: gradient.clone() for name, gradient in self.gradients().items()}


class Observers:
    """Techniques that observe it, with their states."""

    models: Any
    techniques: Techniques
    defined: set[str]
    state: dict[str, Any]
    _due: Mapping[str, bool]
    _each: Callable[..., Any]
    _in_step: Callable[..., Any]

    def observes(self) -> bool:
        """Whether a technique observes the gradient of half of this step's batch, which has some
        examples."""
        if "observe" not in self.defined or not self._sizes()[0]:
            return False
        parts = self.techniques.parts.items()
        return any(self._due[name] for name, part in parts if part.defines("observe"))

    def observe(self, half: Mapping[str, Tensor]) -> None:
        """Let techniques observe ``half``, the gradient of half of the batch, beside its own."""
        sizes = self._sizes()

        def observed(techniques: Techniques, steps: Any, half: Any, whole: Any, state: Any) -> Any:
            techniques.observe(half, whole, sizes, state=state, steps=steps)
            return state

        self.state = self._in_step(observed, half, self.models.gradients(), self.state)

    def recorded(self) -> dict[str, Tensor]:
        """What an evaluation records of the techniques: a number of one model, or those of all."""
        numbers: dict[str, Tensor] = {}
        if self.techniques.define("recorded"):
            numbers = self._each(Techniques.recorded, self.state)
        return numbers

    def _sizes(self) -> tuple[int, int]:
        """Examples of half of the batch, and of the batch."""
        size = self.models.size
        return half_of(size, self.models.context.layout.data_ranks), size
