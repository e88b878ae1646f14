"""What a worker needs of a trainer: ``Training``, or a substitute in tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from experiments.parallel.ranks import Ranks
from experiments.plan import Measurement, Outcome, Pack, Trial
from experiments.scheduling.messages import Assignment


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
    if pack.study.workload.program is not None:
        from experiments.programs.training import ProgramTraining

        return ProgramTraining(pack, **how)
    from experiments.training.pack_training import Training

    return Training(pack, **how)


def in_chosen_layout(assignment: Assignment, group: Ranks) -> Assignment:
    """The assignment in a layout that is chosen by measurement, where the experiment leaves it
    open; all ranks of ``group`` call it together.

    Raises:
        ExperimentError: no layout fits into the memory.
    """
    if not assignment.pack.study.layout.auto:
        return assignment
    from experiments.training.auto_layout.probe import choose

    choice = choose(assignment.pack, assignment.device, group)
    study = replace(assignment.pack.study, layout=choice.layout)
    columns = {**assignment.columns, "layout_choice": choice.columns()}
    return replace(assignment, pack=replace(assignment.pack, study=study), columns=columns)
