"""The dispatcher: decides what is trained next, and follows how far each study is.

Executors ask it for packs. Nothing here does I/O: what other drivers do comes in through ``merge``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Literal

from experiments.plan import Outcome
from experiments.scheduling import rounds
from experiments.scheduling.failures import Divide, Failures, failed_outcome
from experiments.scheduling.messages import (
    Assignment,
    Begun,
    Ended,
    Failure,
    Message,
    Note,
    Observer,
    Over,
    Progress,
    Round,
    SnapshotHeader,
    Taken,
)
from experiments.scheduling.packs import Running, assign, choose, pick
from experiments.scheduling.rounds import Record, Remaining
from experiments.scheduling.study_state import StudyState

LARGEST_PACK = 64
_PROOF_STEPS = 20
"""A shape counts as running after this many steps of a pack; then its other packs may start."""
_JOIN = 8
"""Trials join once an eighth of a pack has ended: it is cheaper if several join."""

Answer = Assignment | Literal["wait"] | None


class Dispatcher:
    """Hands out packs and takes in their results. Safe to call from several threads.

    Args:
        states: the studies, in the order of the experiment.
        slots: packs that can be trained at once.
        resumable: headers of snapshots, tried before anything else of their study.
        on_round: called with each round that ends; what it returns stops the sweep.
        stop: whether somebody asks to stop.
        left: seconds of the time allowed that are left; a round that does not fit is not begun.
        reproduce: the command that trains a recorded trial again.
        divide: divides a pack's snapshot (``scheduling.failures``).
        record: writes the row of a trial whose worker could not, and returns its ``run``.

    A pack that is out may be assigned more: workers ask ``assigned``, or an executor brings them
    the ``news``.
    """

    def __init__(
        self,
        states: Sequence[StudyState],
        *,
        slots: int = 1,
        device: str = "cpu",
        pack_size: int | None = None,
        resumable: Sequence[SnapshotHeader] = (),
        observer: Observer,
        on_round: Callable[[int], Exception | None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
        left: Callable[[], float | None] = lambda: None,
        reproduce: Callable[[str], str] = lambda trial: f"batchscale trial --from {trial}",
        divide: Divide = lambda *_: (),
        record: Callable[[Assignment, Outcome], str | None] = lambda *_: None,
    ) -> None:
        self.states = list(states)
        self._slots, self._device = slots, device
        self._size = min(pack_size or LARGEST_PACK, LARGEST_PACK)
        self._observer = observer
        self._reproduce = reproduce
        self._lock = threading.RLock()
        self._by_study = {state.study.id: state for state in states}
        self._out: dict[str, Running] = {}
        self.failures, self._record = Failures(divide, list(resumable)), record
        self._elsewhere: set[str] = set()
        self._noted: set[tuple[str, str]] = set()
        for state in states:
            if any(record.stop_reason != "error" for record in state.records.values()):
                self.failures.succeed(state.shape)
        self._on_round, self._left = on_round, left
        self._goals = rounds.goals(max((s.study.trials for s in states), default=0))
        self._ended_rounds = self._rounds_done()
        self._begun = min(self._open_rounds(), default=0)
        """The last round that has been begun; the first that is open is begun in any case."""
        self.refused: int | None = None
        """The round that did not fit the time left; nothing of it or of a later one is begun."""
        self._stopped, self._stop_requested = False, stop
        self.error: Exception | None = None
        self._trained: set[str] = set()
        self._reproducible = False
        """Whether the command that reproduces a failure has been noted."""

    def note(self, text: str) -> None:
        """Hand the observer a sentence of the executor's."""
        with self._lock:
            self._observer(Note(text=text))

    # The next pack

    def next(self) -> Answer:
        """A pack to train now; ``"wait"``: none until a pack in training ends; ``None``: no
        more."""
        with self._lock:
            if self.stopped:
                return None
            assignment = self._waiting() or self._pack()
            if assignment is not None:
                state = self._by_study[assignment.pack.study.id]
                state.busy |= assignment.wanted
                self._out[assignment.pack.id] = Running(assignment, state, set(assignment.wanted))
                return assignment
            return None if self.finished else "wait"

    def assigned(self, before: Assignment) -> Assignment:
        """An assignment as it is by now; that of a pack which is not out is unchanged."""
        with self._lock:
            out = self._out.get(before.pack.id)
            return replace(out.assignment if out else before, stop=self.stopped)

    def news(self) -> list[Assignment]:
        """What packs that are out have been assigned since the last call."""
        with self._lock:
            news = []
            for out in self._out.values():
                if out.before_news is not None:
                    news.append(out.assignment.after(out.before_news))
                    out.before_news = None
            return news

    def stop(self) -> None:
        """Hand out no more packs."""
        with self._lock:
            self._stopped = True

    def fail(self, error: Exception) -> None:
        """Hand out no more packs, for an error that the sweep raises."""
        with self._lock:
            self.error, self._stopped = self.error or error, True

    @property
    def stopped(self) -> bool:
        """Whether no more packs are handed out, and those that are out are to stop."""
        return self._stopped or self._stop_requested()

    @property
    def finished(self) -> bool:
        """Whether every study is complete, or no more packs may be handed out."""
        with self._lock:
            if self.stopped or self._out:
                return self.stopped
            return not any(self._fits(number) for number in self._open_rounds())

    @property
    def trained(self) -> int:
        """Trials that this run has recorded."""
        return len(self._trained)

    def remaining(self) -> list[Remaining]:
        """What is missing of each study, in their order."""
        with self._lock:
            return [state.remaining() for state in self.states]

    @property
    def out(self) -> Set[str]:
        """The packs that workers have."""
        with self._lock:
            return frozenset(self._out)

    def shares_with(self, claimed: Iterable[str]) -> bool:
        """Whether other drivers train some of the ``claimed`` trials, or did at the last ``merge``:
        their results may stop ours."""
        with self._lock:
            return bool(self._elsewhere or set(claimed).difference(*self._ours()))

    def merge(self, records: Mapping[str, Mapping[str, Record]], claimed: Iterable[str]) -> None:
        """Take in the dataset's present records by study and trial, and the claims of other
        drivers."""
        with self._lock:
            self._elsewhere = set(claimed).difference(*self._ours())
            for study, trials in records.items():
                state = self._by_study[study]
                for trial, record in trials.items():
                    new = trial not in state.busy and state.records.get(trial) != record
                    if new and state.need(trial):
                        state.put(trial, record)
                        if trial in state:
                            self._share_hits(state, [record.steps_to_target])
            self._rounds_end()

    def _ours(self) -> list[frozenset[str]]:
        return [out.assignment.wanted for out in self._out.values()]

    def _waiting(self) -> Assignment | None:
        """A pack that an interrupted run or a failed pack has left."""
        left = self.failures.next_waiting(self._by_study, self._may_start, self._elsewhere)
        if left is None:
            return None
        state, wave, trials, wanted, header = left
        state.engine = state.engine or header.engine
        size = None if self.failures.suspected(header.pack) else len(wanted)
        return assign(
            state, wave, trials, device=self._device, wanted=wanted, pack=header.pack, size=size
        )

    def _pack(self) -> Assignment | None:
        choice = choose(
            self.states,
            may_start=lambda s, wave: self._may_start(s) and self._fits(wave.round),
            proven=self.failures.proven,
            taken=self._taken(),
            slots=self._slots,
            size=self._size,
        )
        if choice is None:
            return None
        state, wave, trials = choice
        trials = trials[: self.failures.largest(state.study.id, len(trials))]
        return assign(state, wave, trials, device=self._device, size=len(trials))

    def _taken(self) -> set[str]:
        """Trials that are not to be handed out again, besides those in training."""
        return self.failures.waiting_trials() | self._elsewhere

    def _let_join(self, out: Running) -> None:
        """Assign trials of the open wave to a pack of which others have ended."""
        state, assignment, size = out.state, out.assignment, out.assignment.size or 0
        places = size - len(out.active)
        if self.stopped or not out.active or places < max(1, size // _JOIN):
            return
        wave = state.wave()
        if wave is None or wave.round != assignment.round or not self._fits(wave.round):
            return
        taken = self._taken().union(trial.id for trial in assignment.pack.trials)  # none twice
        trials = pick(state, wave, self.states, taken=taken, count=places)
        if trials:
            new = assign(state, wave, trials, device=self._device)
            out.active |= new.wanted
            state.busy |= new.wanted
            out.change(assignment.joined_by(replace(new, hits=assignment.hits)))

    def _may_start(self, state: StudyState) -> bool:
        """One pack at a time until its shape has trained at all."""
        out = (pack.state.shape for pack in self._out.values())
        return state.shape in self.failures.proven or state.shape not in out

    # Results

    def receive(self, message: Message) -> None:
        """Take in a worker's message; ignored if its pack is not in training (any more)."""
        with self._lock:
            out = self._out.get(message.pack or "")
            if out is None:
                return
            state = out.state
            match message:
                case Begun():
                    out.begin(message.engine)
                    self._observer(message)
                case Progress():
                    out.step = message.step
                    self.failures.progress(message.pack, message.step)
                    if message.metric is not None and message.step >= _PROOF_STEPS:
                        self.failures.proven.add(state.shape)
                    self._observer(message)
                case Ended():
                    self._ended(out, message)
                    self._let_join(out)
                case Taken():
                    out.assignment = out.assignment.without(message.trials)
                    for trials in (out.active, state.busy):
                        trials.difference_update(message.trials)
                    self._elsewhere.update(message.trials)
                case Note():
                    if not (message.once and (state.shape, message.text) in self._noted):
                        self._observer(replace(message, text=f"{state.label}: {message.text}"))
                    self._noted.add((state.shape, message.text))
                case Over():
                    self._over(out, replace(message, study=state.study.id))

    def _ended(self, out: Running, message: Ended) -> None:
        state = out.state
        out.active.difference_update(outcome.trial for outcome in message.outcomes)
        records = ((o.trial, state.records.get(o.trial)) for o in message.outcomes)
        dominated = (t for t, record in records if record and record.stop_reason == "dominated")
        self._observer(replace(message, resumed=frozenset(dominated)))
        if message.run is None:  # not recorded yet
            return
        for outcome in message.outcomes:
            self._trained.add(outcome.trial)
            if outcome.stop_reason != "error":
                self.failures.succeed(state.shape)
            state.end(outcome, message.pack, message.run)
        hits = [o.steps_to_target for o in message.outcomes if o.trial in state]
        self._share_hits(state, hits, but=message.pack)
        self._rounds_end()

    def _share_hits(self, state: StudyState, steps: Sequence[int | None], but: str = "") -> None:
        """Hand steps to target of a study to its packs in training."""
        hits = [step for step in steps if step is not None]
        for pack, out in self._out.items() if hits else ():
            if out.state is state and pack != but:
                out.change(replace(out.assignment, hits=(*out.assignment.hits, *hits)))

    def _over(self, out: Running, message: Over) -> None:
        del self._out[message.pack]
        out.state.busy -= out.assignment.wanted
        if message.end == "taken":
            self._elsewhere |= out.assignment.wanted
        elif message.failure is not None:
            self._failed(out, message.failure)
        self._observer(message)

    def _failed(self, out: Running, failure: Failure) -> None:
        """Let the trials of a failed pack wait, record the one that is the cause, or end."""
        state, assignment = out.state, out.assignment
        wanted = [trial for trial in assignment.pack.trials if trial.id in assignment.wanted]
        left = [trial for trial in wanted if state.need(trial.id)]
        after = self.failures.after(assignment, state.shape, failure, left, out.step)
        if after.note:
            self._observer(Note(text=f"{state.label}: {after.note}"))
        if after.culprit is not None:  # whose worker could not record it
            failure = replace(failure, trial=after.culprit.id)
            outcome = failed_outcome(state.study, after.culprit.id, failure, out.step)
            self._trained.add(outcome.trial)
            run = self._record(assignment, outcome)
            state.put(outcome.trial, Record.of(outcome, run))
            self._observer(assignment.ended([outcome]))
            if run is not None:
                self._observer(assignment.ended([outcome], run))
        if failure.trial or after.ends:
            self.failures.last = failure
        if after.ends:
            self.error, self._stopped = self._error(failure), True
        elif failure.trial and not self._reproducible:
            self._reproducible = True
            self._observer(Note(text=f"the same again: {self._reproduce(failure.trial)}"))

    def hopeless(self) -> Exception | None:
        """The error of a sweep in which nothing trained and something failed."""
        return self._error(failure) if (failure := self.failures.hopeless()) else None

    def _error(self, failure: Failure) -> Exception:
        return failure.error(self._reproduce(failure.trial) if failure.trial else None)

    # Rounds

    def _open_rounds(self) -> list[int]:
        return [wave.round for state in self.states if (wave := state.wave()) is not None]

    def _rounds_done(self) -> int:
        """Rounds of the search that every study has behind it."""
        open_rounds = self._open_rounds()
        most = max((len(rounds.goals(state.trials)) for state in self.states), default=1)
        return min([most, *open_rounds])

    def _rounds_end(self) -> None:
        """Report the rounds that have ended since the last call; one of them may stop all."""
        done = self._rounds_done()
        while self._ended_rounds < done and not self._stopped:
            number, self._ended_rounds = self._ended_rounds, self._ended_rounds + 1
            self._observer(
                Round(
                    round=number,
                    trials=self._goals[number],
                    reached=sum(1 for state in self.states if state.hits()),
                    studies=len(self.states),
                )
            )
            error = self._on_round(number)
            if error is not None:
                self.error, self._stopped = error, True

    def _fits(self, number: int) -> bool:
        """Whether a pack of round ``number`` may start: a round is begun if all of it fits.

        A trial is expected to take what its study's trials have taken so far; usually it takes
        less, since more trials dominate it.
        """
        if self.refused is None and number > self._begun:
            waves = [(state, wave) for state in self.states if (wave := state.wave()) is not None]
            open_ = [replace(s.remaining(), trials=len(wave.trials)) for s, wave in waves]
            left, expected = self._left(), rounds.seconds_left(open_, self._slots)
            if left is not None and expected is not None and expected > left:
                self.refused = number
            else:
                self._begun = number
        return self.refused is None or number < self.refused
