"""What a worker needs of a trainer: ``Training``, or a substitute in tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from experiments.plan import Measurement, Outcome, Pack, Trial


class Trainer(Protocol):
    """Trains a pack: ``Training``, or a substitute in tests."""

    engine: str
    paused: dict[str, bytes]
    not_kept: str | None

    @property
    def step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def active(self) -> tuple[str, ...]: ...
    @property
    def current(self) -> str | None: ...
    def know(self, steps_to_target: Iterable[int]) -> None: ...
    def keep(self, trials: Collection[str]) -> None: ...
    def add(self, trials: Sequence[Trial]) -> None: ...
    def resume(self, paused: Mapping[str, bytes]) -> Collection[str]: ...
    def run(self, should_stop: Callable[[], bool]) -> Iterator[list[Measurement | Outcome]]: ...
    def snapshot(self) -> bytes | None: ...


MakeTrainer = Callable[..., Trainer]
"""``(pack, *, device, group, snapshot) -> Trainer``"""


def training(pack: Pack, **how: Any) -> Trainer:
    """The real trainer (torch is imported here, not before)."""
    from experiments.training.pack_training import Training

    return Training(pack, **how)
