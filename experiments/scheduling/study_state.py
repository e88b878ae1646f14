"""A study in the making: its plan, what is known of its trials, and what of it is out.

A study goes through up to three phases: its search; where its optimum sits on the edge of the
space, the slabs by which the space is enlarged, one after the other; then repeats of its best
trial. What a later phase holds is decided when the one before it is settled, from settled trials
alone, so that a restart decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from experiments.plan import Study, Trial
from experiments.scheduling import remaining, rounds
from experiments.scheduling.events import StudyPlanned
from experiments.scheduling.rounds import Record
from experiments.search import History, block

Side = tuple[str, Literal["low", "high"]]
"""A tuned dimension and the end of its range to move."""


class Block(Protocol):
    """What is needed of ``experiments.config.study_plan.Enlarged``."""

    @property
    def trials(self) -> Sequence[Trial]: ...
    @property
    def search_space(self) -> Mapping[str, Any]: ...
    def enlarged(self, sides: Sequence[Side]) -> Block | None: ...


class Plan(Protocol):
    """What is needed of ``experiments.config.study_plan.StudyPlan``."""

    @property
    def study(self) -> Study: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def search_space(self) -> Mapping[str, Any]: ...
    def trials(self, start: int, stop: int, history: History = ()) -> Sequence[Trial]: ...
    def enlarged(self, sides: Sequence[Side]) -> Block | None: ...
    def repeats(self, trial: Trial) -> Sequence[Trial]: ...


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
    edges: Callable[[StudyState], Sequence[Side]] = lambda _: ()
    """On which sides the optimum of what is settled has no room."""
    on_enlarged: Callable[[StudyState, Sequence[Side]], None] = lambda *_: None
    """Called once with each enlargement."""
    blocks: list[Block] = field(default_factory=list)
    """The enlargements so far."""
    searches: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Of recorded trials that are not of the present search alone: the searches they belong to,
    and the rows they are of their tables."""
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds that each of its packs has taken, as its last commit says."""
    _left: int | None = None
    _roomy: bool = False
    _own: dict[str, Trial] = field(default_factory=dict)
    _reached: list[int] | None = None
    _wave: rounds.Wave | None = None
    _fresh: bool = False

    def __post_init__(self) -> None:
        if self.study.engine != "auto":  # said in the experiment
            self.engine = self.study.engine

    @property
    def study(self) -> Study:
        return self.plan.study

    @property
    def search_space(self) -> Mapping[str, Any]:
        """The space that has been searched, enlargements and all."""
        return (self.blocks[-1] if self.blocks else self.plan).search_space

    def wave(self) -> rounds.Wave | None:
        """The open wave; ``None`` when the study is complete."""
        if not self._fresh:
            self._wave = self._search() or self._enlarge() or self._repeat()
            self._fresh = True
        return self._wave

    def _search(self) -> rounds.Wave | None:
        return rounds.wave(self.study, self._rows, self.plan.max_rows, self._lookup)

    def _enlarge(self) -> rounds.Wave | None:
        """The slabs of the enlarged space, as long as the optimum has no room."""
        first = len(rounds.goals(self.study.trials))
        for number in range(self.study.extend):
            if number == len(self.blocks) and not self._grow():
                return None
            missing = [t for t in self.blocks[number].trials if self.need(t.id)]
            if missing:
                keep = self.study.keep
                return rounds.Wave(round=first + number, trials=tuple(missing), keep=keep)
        return None

    def _grow(self) -> bool:
        """Decide on the next enlargement; whether there is one."""
        sides = () if self._roomy else self.edges(self)
        block = (self.blocks[-1] if self.blocks else self.plan).enlarged(sides) if sides else None
        if block is None or not block.trials:
            self._roomy = True
            return False
        self.blocks.append(block)
        self._draw(block.trials)
        self.on_enlarged(self, sides)
        return True

    def _repeat(self) -> rounds.Wave | None:
        """The best trial again, with fresh seeds."""
        best = self.best() if self.study.repeats else None
        if best is None:
            return None
        missing = [t for t in self.plan.repeats(best) if self.need(t.id)]
        last = len(rounds.goals(self.study.trials)) + self.study.extend
        # None is stopped for being worse than the best, else their median would be too low.
        return rounds.Wave(round=last, trials=tuple(missing), keep=None) if missing else None

    def _rows(self, start: int, stop: int) -> Sequence[Trial]:
        if stop > len(self.rows):
            more = self.plan.trials(len(self.rows), stop, self._history())
            self.rows.extend(more)
            self._draw(more)
        return self.rows[start:stop]

    def _history(self) -> History:
        """What an adaptive search learns from."""
        if block(self.study.search) is None:
            return ()
        return rounds.history(self.study, [self._lookup(trial) for trial in self.rows])

    def _draw(self, trials: Iterable[Trial]) -> None:
        self._own.update((trial.id, trial) for trial in trials)
        self._reached, self._left = None, None

    def _lookup(self, trial: Trial) -> Record | None:
        return self.records.get(trial.id)

    def put(self, trial: str, record: Record) -> None:
        """Take in how a trial ended; it counts as the last one found."""
        self.records.pop(trial, None)
        self.records[trial] = record
        self._fresh, self._reached, self._left = False, None, None

    def searches_of(self, trial: str) -> Mapping[str, int]:
        """The searches that a recorded trial belongs to."""
        return self.searches.get(trial, {self.study.search_id: 0})

    def join(self, trial: str, search: str, index: int) -> None:
        """A recorded trial belongs to a further search."""
        self.searches[trial] = {**self.searches.get(trial, {}), search: index}

    def recorded(self) -> Iterator[tuple[str, Record]]:
        """The records of the present search's trials, its repeats too."""
        best = self.best() if self.study.repeats else None
        for trial in (*self.searched(), *(self.plan.repeats(best) if best else ())):
            if trial.id in self.records:
                yield trial.id, self.records[trial.id]

    def foreseen(self) -> Sequence[Trial]:
        """All rows that the search may draw, where they are known beforehand."""
        return () if block(self.study.search) else self.plan.trials(0, self.plan.max_rows)

    def searched(self) -> Collection[Trial]:
        """The trials of the search and of its enlargements that have been drawn, in that order.

        What else the dataset may hold of the study, of another search, a wider one or of repeats,
        neither is its best nor stops anything.
        """
        return self._own.values()

    def __contains__(self, trial: str) -> bool:
        """Whether it is one of ``searched``."""
        return trial in self._own

    def best(self) -> Trial | None:
        """The trial of the least steps to target, the first of several; ``None``: none has hit."""
        hits = [
            (record.steps_to_target, i, trial)
            for i, trial in enumerate(self.searched())
            if (record := self.records.get(trial.id)) and record.steps_to_target is not None
        ]
        return min(hits)[2] if hits else None

    def find(self, ids: Sequence[str]) -> list[Trial]:
        """Those of the trials that the study has come to."""
        self.wave()
        best = self.best() if self.study.repeats else None
        again = self.plan.repeats(best) if best else ()
        rows = {trial.id: trial for trial in (*self.searched(), *again)}
        return [rows[trial] for trial in ids if trial in rows]

    def reached(self, but: Iterable[str] = ()) -> list[int]:
        """Steps to target of the search's trials, but for some, the least first."""
        left_out = set(but)
        if left_out:
            return sorted(steps for trial, steps in self._hits() if trial not in left_out)
        if self._reached is None:
            self._reached = sorted(steps for _, steps in self._hits())
        return self._reached

    def _hits(self) -> Iterator[tuple[str, int]]:
        for trial in self._own:
            record = self.records.get(trial)
            if record is not None and record.steps_to_target is not None:
                yield trial, record.steps_to_target

    def need(self, trial: str) -> bool:
        """Whether a trial of this study is still to be trained."""
        record = self.records.get(trial)
        limit = rounds.bar(self.reached(), self.study.keep) if trial in self._own else None
        return not rounds.settled(self.study, record, limit)

    def planned(self) -> StudyPlanned:
        """What an observer is told of the study before it trains."""
        self.wave()
        # What was dominated counts until it goes on, if it ever does.
        done = [
            record
            for trial, record in self.recorded()
            if record.stop_reason == "dominated" or not self.need(trial)
        ]
        return StudyPlanned(
            study=self.study.id,
            label=self.label,
            trials=self.study.trials,
            done=len(done),
            reached=sum(record.steps_to_target is not None for record in done),
            infeasible=sum(record.status == "INFEASIBLE" for record in done),
            dominated=sum(record.stop_reason == "dominated" for record in done),
            budget_steps=self.study.budget_steps,
            batch_size=self.study.batch_size,
            example_unit=self.columns["example_unit"],
            tokens_per_example=self.columns["tokens_per_example"],
        )

    def cost(self) -> float:
        """What its longest trial takes, up to a factor."""
        return remaining.size(self.study.budget_steps, self.study.batch_size)

    def rest(self) -> remaining.Rest:
        """What its search lacks, and what its trials have cost so far."""
        if self._left is None:
            found = [self.records[trial.id] for trial in self.rows if trial.id in self.records]
            keep = self.study.keep if self.study.stop_at_target else None
            self._left = remaining.lacking(found, self.study.trials, keep)
        there = self.study.trials - self._left
        return remaining.rest(self._left, there, self.spent, self.cost())
