"""The gradient of half of a batch, which techniques may observe beside that of all of it
(``Technique.observe``): what ``Hooks`` of ``step.py`` have for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from experiments.techniques import Techniques


def half_of(size: int, ranks: int) -> int:
    """Examples of a batch when each rank takes half of its share, rounded down."""
    each, more = divmod(size, ranks)
    return ranks * (each // 2) + (more if each % 2 else 0)


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
