"""A study in the making: its plan, what is known of its trials, and what of it is out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from experiments.driver import rounds
from experiments.driver.rounds import Record
from experiments.plan import Study, Trial


class Plan(Protocol):
    """What is needed of ``experiments.config.file.StudyPlan``."""

    @property
    def study(self) -> Study: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def search_space(self) -> Mapping[str, Any]: ...
    def trials(self, start: int, stop: int) -> Sequence[Trial]: ...


@dataclass
class StudyState:
    """A study in the making."""

    plan: Plan
    columns: Mapping[str, Any]
    label: str
    records: dict[str, Record] = field(default_factory=dict)
    engine: str | None = None
    """What trains it: as the experiment says, else as its first pack has chosen."""
    seconds: float | None = None
    """What a pack of it took last."""
    rows: list[Trial] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    """Trials in packs that are out."""
    _wave: rounds.Wave | None = None
    _fresh: bool = False

    def __post_init__(self) -> None:
        if self.study.engine != "auto":  # said in the experiment
            self.engine = self.study.engine

    @property
    def study(self) -> Study:
        return self.plan.study

    def wave(self) -> rounds.Wave | None:
        """The open wave; ``None`` when the study is complete."""
        if not self._fresh:
            self._wave = rounds.wave(
                self.study, self._rows, self.plan.max_rows, self._lookup, self.reached()
            )
            self._fresh = True
        return self._wave

    def _rows(self, start: int, stop: int) -> Sequence[Trial]:
        if stop > len(self.rows):
            self.rows.extend(self.plan.trials(len(self.rows), stop))
        return self.rows[start:stop]

    def _lookup(self, trial: Trial) -> Record | None:
        return self.records.get(trial.id)

    def put(self, trial: str, record: Record) -> None:
        """Take in how a trial ended; it counts as the last one found."""
        self.records.pop(trial, None)
        self.records[trial] = record
        self._fresh = False

    def find(self, ids: Sequence[str]) -> list[Trial]:
        """Those of the trials that are rows of the search table."""
        self._rows(0, self.plan.max_rows)
        rows = {trial.id: trial for trial in self.rows}
        return [rows[trial] for trial in ids if trial in rows]

    def reached(self, but: Iterable[str] = ()) -> list[int]:
        """Steps to target of its trials, but for some, in the order they were found."""
        left_out = set(but)
        return [
            record.steps_to_target
            for trial, record in self.records.items()
            if record.steps_to_target is not None and trial not in left_out
        ]

    def need(self, trial: str) -> bool:
        """Whether a trial of this study is still to be trained."""
        limit = rounds.bar(self.reached(), self.study.keep)
        return not rounds.settled(self.study, self.records.get(trial), limit)

    def shape(self) -> str:
        """Studies of one shape differ in batch size and budget alone: they run the same code."""
        study = self.study
        parts = (study.workload, study.optimizer, study.schedule, study.technique, study.layout)
        return repr(parts)

    def cost(self) -> float:
        """Steps of its longest trial, each as dear as a base and its examples."""
        return self.study.budget_steps * (1 + self.study.batch_size / 50)
