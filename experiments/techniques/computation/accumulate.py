"""Gradient accumulation: a batch in several forward and backward passes, one update."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from experiments.techniques.base import Technique


class Accumulate(Technique):
    """Take each gradient in ``parts`` equal micro-batches, which add up to that of the whole batch.

    The sums are exact, not means of means; ``micro_batch`` of the layout is the same without being
    part of a trial's identity.
    """

    name = "accumulate"
    example = "4"

    parts: Annotated[int, Field(ge=2)]

    @property
    def micro_batches(self) -> int:
        return self.parts
