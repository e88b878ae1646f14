"""The state of a study: the records of its trials, and which of them are being trained.

A study goes through up to three phases: its search; where its optimum sits on the edge of the
space, the slabs by which the space is enlarged, one after the other; then repeats of its best
trial. What a later phase holds is decided when the one before it is settled, from settled trials
alone, so that a restart decides the same.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from experiments.enlarged import Enlarged, enlarge
from experiments.plan import Outcome, Study, Trial
from experiments.scheduling import rounds
from experiments.scheduling.interim import InterimAnalyses
from experiments.scheduling.messages import StudyPlanned
from experiments.scheduling.rounds import Counts, Record, Remaining
from experiments.search.base import Space

RangeEnd = tuple[str, Literal["low", "high"]]
"""A tuned dimension and the end of its range to move."""


@dataclass
class StudyState:
    """The state of a study."""

    study: Study
    columns: Mapping[str, Any]
    label: str
    records: dict[str, Record] = field(default_factory=dict)
    engine: str | None = None
    """The engine that trains it: the experiment's, or else the choice of its first pack."""
    rows: list[Trial] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    """Trials in packs that are in training."""
    edges: Callable[[StudyState], Sequence[RangeEnd]] = lambda _: ()
    """On which sides the best of the settled trials lie on the edge of the space."""
    on_enlarged: Callable[[StudyState, Sequence[RangeEnd]], None] = lambda *_: None
    """Called once with each enlargement."""
    interim: InterimAnalyses | None = None
    """The analyses that may stop the sweep; ``None``: it trains all trials."""
    blocks: list[Enlarged] = field(default_factory=list)
    """The enlargements so far."""
    searches: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Of recorded trials that are not of the present search alone: the searches they belong to,
    and the rows they are of their tables."""
    pack_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds that each of its packs has taken, as its last commit says."""
    version: int = 0
    """Grows with every record and every row."""
    evidence: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """What its ended trials say of others (``packs``), by the space of these, with its version."""
    _counts: Counts | None = None
    _inside: bool = False
    _drawn: dict[str, Trial] = field(default_factory=dict)
    _sorted_hits: list[int] | None = None
    _wave: rounds.Wave | None = None
    _wave_is_current: bool = False
    _analyses_made: int = 0

    def __post_init__(self) -> None:
        if self.study.engine != "auto":  # set in the experiment
            self.engine = self.study.engine

    @property
    def space(self) -> Space:
        """The search space, enlargements included."""
        return self.blocks[-1].space if self.blocks else self.study.search.space

    @property
    def search_space(self) -> Mapping[str, Any]:
        """The same, as an experiment file writes it."""
        return self.study.notation(self.space)

    def wave(self) -> rounds.Wave | None:
        """The open wave; ``None`` when the study is complete, or waits for others to be judged with
        it."""
        made = self.interim.advance() if self.interim else 0
        if not self._wave_is_current or made != self._analyses_made:
            self._wave = self._search(self.interim.opens if self.interim else lambda _: True)
            if self._wave is None and (self.interim is None or self.interim.over):
                self._wave = self._enlarge() or self._repeat()
            self._wave_is_current, self._analyses_made, self._counts = True, made, None
        return self._wave

    def _search(self, opens: Callable[[int], bool]) -> rounds.Wave | None:
        return rounds.wave(self.study, self._rows, self.study.max_rows, self._lookup, opens)

    def has_behind(self, number: int) -> bool:
        """Whether its search has the rounds up to ``number`` behind it."""
        return self._search(lambda each: each <= number) is None

    @property
    def trials(self) -> int:
        """Feasible trials that it wants by now: fewer than its study once the sweep has stopped."""
        if self.interim is None or not self.interim.stopped:
            return self.study.trials
        return rounds.goals(self.study.trials)[: self.interim.made][-1]

    def _enlarge(self) -> rounds.Wave | None:
        """The slabs of the enlarged space, as long as the optimum lies on an edge."""
        first = len(rounds.goals(self.study.trials))
        for number in range(self.study.search.extend):
            if number == len(self.blocks) and not self._grow():
                return None
            missing = [t for t in self.blocks[number].trials if self.need(t.id)]
            if missing:
                keep = self.study.keep
                return rounds.Wave(round=first + number, trials=tuple(missing), keep=keep)
        return None

    def _grow(self) -> bool:
        """Decide on the next enlargement; whether there is one."""
        sides = () if self._inside else self.edges(self)
        number = len(self.blocks) + 1
        block = enlarge(self.study, self.space, sides, number) if sides else None
        if block is None or not block.trials:
            self._inside = True
            return False
        self.blocks.append(block)
        self._draw(block.trials)
        self.on_enlarged(self, sides)
        return True

    def _repeat(self) -> rounds.Wave | None:
        missing = [t for t in self.repeats() if self.need(t.id)]
        last = len(rounds.goals(self.study.trials)) + self.study.search.extend
        # No repeat is stopped as dominated, else the median would be too low.
        return rounds.Wave(round=last, trials=tuple(missing), keep=None) if missing else None

    def repeats(self) -> Sequence[Trial]:
        """The best trial again, the first of several, with fresh seeds, where the study asks for
        it."""
        if not self.study.search.repeats:
            return ()
        hits = [
            (record.steps_to_target, i, trial)
            for i, trial in enumerate(self.drawn())
            if (record := self.records.get(trial.id)) and record.steps_to_target is not None
        ]
        return self.study.repeats(min(hits)[2]) if hits else ()

    def _rows(self, start: int, stop: int) -> Sequence[Trial]:
        if stop > len(self.rows):
            more = self.study.draw(len(self.rows), stop)
            self.rows.extend(more)
            self._draw(more)
        return self.rows[start:stop]

    def _draw(self, trials: Iterable[Trial]) -> None:
        self._drawn.update((trial.id, trial) for trial in trials)
        self._sorted_hits, self._counts = None, None
        self.version += 1

    def _lookup(self, trial: Trial) -> Record | None:
        return self.records.get(trial.id)

    def put(self, trial: str, record: Record) -> None:
        """Take in how a trial ended; it counts as the latest record."""
        before = self.records.pop(trial, None)
        self.records[trial] = record
        self._wave_is_current, self._counts = False, None
        self.version += 1
        if self._sorted_hits is not None and trial in self._drawn:
            if before is not None and before.steps_to_target is not None:
                del self._sorted_hits[bisect_left(self._sorted_hits, before.steps_to_target)]
            if record.steps_to_target is not None:
                insort(self._sorted_hits, record.steps_to_target)

    def end(self, outcome: Outcome, pack: str, run: str) -> None:
        """Take in what a pack of ours has recorded."""
        seconds = outcome.train_seconds + outcome.evaluation_seconds + outcome.other_seconds
        self.pack_seconds[pack] = max(seconds, self.pack_seconds.get(pack, 0.0))
        self.busy.discard(outcome.trial)
        self.put(outcome.trial, Record.of(outcome, run))

    def searches_of(self, trial: str) -> Mapping[str, int]:
        """The searches that a recorded trial belongs to."""
        return self.searches.get(trial, {self.study.search.id: 0})

    def join(self, trial: str, search: str, index: int) -> None:
        """A recorded trial belongs to a further search."""
        self.searches[trial] = {**self.searches.get(trial, {}), search: index}

    def recorded(self) -> Iterator[tuple[Trial, Record]]:
        """The recorded trials among those that the search has drawn, its repeats too."""
        for trial in (*self.drawn(), *self.repeats()):
            if trial.id in self.records:
                yield trial, self.records[trial.id]

    def drawn(self) -> Collection[Trial]:
        """The trials of the search and of its enlargements that have been drawn, in that order.

        What else the dataset may hold of the study, of another search, a wider one or of repeats,
        neither is its best nor stops anything.
        """
        return self._drawn.values()

    def __contains__(self, trial: str) -> bool:
        """Whether it is one of ``drawn``."""
        return trial in self._drawn

    def find(self, ids: Sequence[str]) -> list[Trial]:
        """Those of the trials that the study has drawn."""
        self.wave()
        rows = {trial.id: trial for trial in (*self.drawn(), *self.repeats())}
        return [rows[trial] for trial in ids if trial in rows]

    def hits(self, but: Iterable[str] = ()) -> list[int]:
        """Steps to target of the search's trials without ``but``, the least first."""
        if self._sorted_hits is None:
            records = (self.records.get(trial) for trial in self._drawn)
            steps = (record.steps_to_target for record in records if record is not None)
            self._sorted_hits = sorted(hit for hit in steps if hit is not None)
        hits = self._sorted_hits
        for trial in set(but):
            record = self.records.get(trial) if trial in self._drawn else None
            if record is not None and record.steps_to_target is not None:
                hits = list(hits)
                hits.remove(record.steps_to_target)
        return hits

    def need(self, trial: str) -> bool:
        """Whether a trial of this study is still to be trained."""
        record = self.records.get(trial)
        limit = rounds.cutoff(self.hits(), self.study.keep) if trial in self._drawn else None
        return not rounds.settled(self.study, record, limit)

    def planned(self) -> StudyPlanned:
        """The event that describes the study before it trains."""
        self.wave()
        # A dominated trial counts until it continues, if ever.
        done = [
            record
            for trial, record in self.recorded()
            if record.stop_reason == "dominated" or not self.need(trial.id)
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
            batch_size=round(self.study.mean_batch_size),
            example_unit=self.columns["example_unit"],
            tokens_per_example=self.columns["tokens_per_example"],
        )

    @cached_property
    def shape(self) -> str:
        """``Study.shape``, which is long to write."""
        return self.study.shape

    @cached_property
    def cost(self) -> float:
        """The cost of its longest trial, up to a factor."""
        return rounds.trial_cost(self.study.budget_steps, self.study.mean_batch_size)

    def counts(self) -> Counts:
        """What is wanted by now and missing: see ``rounds.counts``."""
        self.wave()  # decides what follows the search
        if self._counts is None:
            # An earlier run may have recorded rows that this one has not drawn yet.
            beyond = not self.records.keys() <= self._drawn.keys()
            added = [trial for block in self.blocks for trial in block.trials]
            most = self.study.max_rows

            def lookup(row: int) -> Record | None:
                if row >= most:
                    return self._lookup(added[row - most])
                if row < len(self.rows):
                    return self._lookup(self.rows[row])
                return self._lookup(self.study.trial(row)) if beyond else None

            self._counts = rounds.counts(
                replace(self.study, trials=self.trials),
                most,
                lookup,
                len(added),
                lambda _: [self._lookup(trial) for trial in self.repeats()],
            )
        return self._counts

    def remaining(self) -> Remaining:
        """The trials that this run is to train, and what its trials have cost so far."""
        counts = self.counts()
        missing = counts.left + counts.retried
        return Remaining.of(missing, counts.wanted - missing, self.pack_seconds, self.cost)
