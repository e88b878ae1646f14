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
    Begun,
    Ended,
    Failure,
    Job,
    Message,
    More,
    Note,
    Observer,
    Offer,
    Over,
    Progress,
    Refused,
    Round,
    SnapshotHeader,
)
from experiments.scheduling.packs import AssignedPack, choose, make_job, pick
from experiments.scheduling.rounds import Record, Remaining
from experiments.scheduling.study_state import StudyState

LARGEST_PACK = 64
_PROOF_STEPS = 20
"""A shape counts as running after this many steps of a pack; then its other packs may start."""

Answer = Job | Literal["wait"] | None


class Dispatcher:
    """Hands out packs and takes in their results. Safe to call from several threads.

    Args:
        states: the studies, in the order of the experiment.
        slots: packs that can be trained at once.
        resumable: headers of snapshots, tried before anything else of their study.
        on_round: called with each round that ends; what it returns stops the sweep.
        left: seconds of the time allowed that are left; a round that does not fit is not begun.
        reproduce: the command that trains a recorded trial again.
        divide: divides a pack's snapshot (``scheduling.failures``).
        record: writes the row of a trial whose worker could not, and returns its ``run``.

    An executor sets ``share`` and ``give``: the first hands steps to target to a pack that is out
    (pack id, all of its study's since it was sent out), the second the answer to an offer (pack id,
    trials). Without ``give`` no pack is refilled.
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
        left: Callable[[], float | None] = lambda: None,
        reproduce: Callable[[str], str] = lambda trial: f"batchscale trial --from {trial}",
        divide: Divide = lambda *_: (),
        record: Callable[[Job, Outcome], str | None] = lambda *_: None,
    ) -> None:
        self.states = list(states)
        self._slots, self._device = slots, device
        self.share: Callable[[str, tuple[int, ...]], None] = lambda *_: None
        self.give: Callable[[str, More], None] | None = None
        self._size = min(pack_size or LARGEST_PACK, LARGEST_PACK)
        self._observer = observer
        self._reproduce = reproduce
        self._lock = threading.RLock()
        self._by_study = {state.study.id: state for state in states}
        self._out: dict[str, AssignedPack] = {}
        self._failures, self._record = Failures(divide, list(resumable)), record
        self._elsewhere: set[str] = set()
        self._noted: set[tuple[str, str]] = set()
        for state in states:
            if any(record.stop_reason != "error" for record in state.records.values()):
                self._failures.succeed(state.shape)
        self._on_round, self._left = on_round, left
        self._goals = rounds.goals(max((s.study.trials for s in states), default=0))
        self._ended_rounds = self._rounds_done()
        self._begun = min(self._open_rounds(), default=0)
        """The last round that has been begun; the first that is open is begun in any case."""
        self.refused: int | None = None
        """The round that did not fit the time left; nothing of it or of a later one is begun."""
        self.stopped = False
        """Whether no more packs are handed out."""
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
            job = self._waiting() or self._pack()
            if job is not None:
                state = self._by_study[job.pack.study.id]
                state.busy |= job.wanted
                self._out[job.pack.id] = AssignedPack(job=job, state=state)
                return job
            return None if self.finished else "wait"

    def stop(self) -> None:
        """Hand out no more packs."""
        with self._lock:
            self.stopped = True

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

    def deaths(self, pack: str) -> int:
        """How often the workers of a pack's trials have died in a row."""
        return self._failures.deaths(pack)

    @property
    def out(self) -> Set[str]:
        """The packs that workers have."""
        with self._lock:
            return frozenset(self._out)

    def shares_with(self, claimed: Iterable[str]) -> bool:
        """Whether other drivers train some of the ``claimed`` trials, or did at the last ``merge``:
        their results may stop ours."""
        with self._lock:
            ours: set[str] = set().union(*(out.job.wanted for out in self._out.values()))
            return bool(self._elsewhere or set(claimed) - ours)

    def merge(self, records: Mapping[str, Mapping[str, Record]], claimed: Iterable[str]) -> None:
        """Take in the dataset's present records by study and trial, and the claims of other
        drivers."""
        with self._lock:
            self._elsewhere = set(claimed)
            self._elsewhere.difference_update(*(out.job.wanted for out in self._out.values()))
            for study, trials in records.items():
                state = self._by_study[study]
                for trial, record in trials.items():
                    new = trial not in state.busy and state.records.get(trial) != record
                    if new and state.need(trial):
                        state.put(trial, record)
                        if trial in state:
                            self._share_hits(state, [record.steps_to_target])
            self._rounds_end()

    def _waiting(self) -> Job | None:
        """A pack that an interrupted run or a failed pack has left."""
        left = self._failures.next_waiting(self._by_study, self._may_start, self._elsewhere)
        if left is None:
            return None
        state, wave, trials, wanted, header = left
        state.engine = state.engine or header.engine
        joined = self.give and not self._failures.suspected(header.pack)
        size = len(wanted) if joined else None
        return make_job(
            state, wave, trials, device=self._device, wanted=wanted, pack=header.pack, size=size
        )

    def _pack(self) -> Job | None:
        choice = choose(
            self.states,
            may_start=lambda s, wave: self._may_start(s) and self._fits(wave.round),
            proven=self._failures.proven,
            taken=self._taken(),
            slots=self._slots,
            size=self._size,
        )
        if choice is None:
            return None
        state, wave, trials = choice
        trials = trials[: self._failures.largest(state.study.id, len(trials))]
        size = len(trials) if self.give else None
        return make_job(state, wave, trials, device=self._device, size=size)

    def _taken(self) -> set[str]:
        """Trials that are not to be handed out again, besides those in training."""
        return self._failures.waiting_trials() | self._elsewhere

    def _more(self, out: AssignedPack, places: int) -> More:
        """Trials of the open wave for a pack that can hold more of it; perhaps none."""
        state = out.state
        wave = None if self.stopped else state.wave()
        if wave is None or wave.round != out.job.round or not self._fits(wave.round):
            return More()
        trials = pick(state, wave, self.states, taken=self._taken(), count=places)
        new = make_job(state, wave, trials, device=self._device)
        more = More(trials=new.pack.trials, before=new.before)
        out.job = out.job.joined_by(more)
        state.busy |= new.wanted
        return more

    def _may_start(self, state: StudyState) -> bool:
        """One pack at a time until its shape has trained at all."""
        out = (pack.state.shape for pack in self._out.values())
        return state.shape in self._failures.proven or state.shape not in out

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
                    state.engine = message.engine
                    self._observer(message)
                case Progress():
                    out.step = message.step
                    self._failures.progress(message.pack, message.step)
                    if message.metric is not None and message.step >= _PROOF_STEPS:
                        self._failures.proven.add(state.shape)
                    self._observer(message)
                case Ended():
                    self._ended(out, message)
                case Offer():
                    if self.give:
                        self.give(message.pack, self._more(out, message.places))
                case Refused():  # another driver trains them
                    refused = frozenset(message.trials)
                    out.job = replace(out.job, wanted=out.job.wanted - refused)
                    state.busy -= refused
                    self._elsewhere |= refused
                case Note():
                    if not (message.once and (state.shape, message.text) in self._noted):
                        self._observer(replace(message, text=f"{state.label}: {message.text}"))
                    self._noted.add((state.shape, message.text))
                case Over():
                    self._over(out, replace(message, study=state.study.id))

    def _ended(self, out: AssignedPack, message: Ended) -> None:
        state = out.state
        records = ((o.trial, state.records.get(o.trial)) for o in message.outcomes)
        dominated = (t for t, record in records if record and record.stop_reason == "dominated")
        self._observer(replace(message, resumed=frozenset(dominated)))
        if message.run is None:  # not recorded yet
            return
        for outcome in message.outcomes:
            self._trained.add(outcome.trial)
            if outcome.stop_reason != "error":
                self._failures.succeed(state.shape)
            taken = outcome.train_seconds + outcome.evaluation_seconds + outcome.other_seconds
            before_it = state.pack_seconds.get(message.pack, 0.0)
            state.pack_seconds[message.pack] = max(taken, before_it)
            state.busy.discard(outcome.trial)
            state.put(outcome.trial, Record.of(outcome, message.run))
        hits = [o.steps_to_target for o in message.outcomes if o.trial in state]
        self._share_hits(state, hits, but=out)
        self._rounds_end()

    def _share_hits(
        self, state: StudyState, steps: Sequence[int | None], but: AssignedPack | None = None
    ) -> None:
        """Hand steps to target of a study to its packs in training."""
        hits = [step for step in steps if step is not None]
        for other in self._out.values() if hits else ():
            if other.state is state and other is not but:
                other.hits += hits
                self.share(other.job.pack.id, tuple(other.hits))

    def _over(self, out: AssignedPack, message: Over) -> None:
        del self._out[message.pack]
        out.state.busy -= out.job.wanted
        if message.end == "taken":
            self._elsewhere |= out.job.wanted
        elif message.failure is not None:
            self._failed(out, message.failure)
        self._observer(message)

    def _failed(self, out: AssignedPack, failure: Failure) -> None:
        """Let the trials of a failed pack wait, record the one that is the cause, or end."""
        state = out.state
        left = [t for t in out.job.pack.trials if t.id in out.job.wanted and state.need(t.id)]
        after = self._failures.after(out, failure, left)
        if after.note:
            self._observer(Note(text=f"{state.label}: {after.note}"))
        if after.culprit is not None:  # whose worker could not record it
            failure = replace(failure, trial=after.culprit.id)
            outcome = failed_outcome(state.study, after.culprit.id, failure, out.step)
            self._trained.add(outcome.trial)
            state.put(outcome.trial, Record.of(outcome, self._record(out.job, outcome)))
            self._observer(out.job.ended([outcome]))
        if failure.trial or after.ends:
            self._failures.last = failure
        if after.ends:
            self.error, self.stopped = self._error(failure), True
        elif failure.trial and not self._reproducible:
            self._reproducible = True
            self._observer(Note(text=f"the same again: {self._reproduce(failure.trial)}"))

    def hopeless(self) -> Exception | None:
        """The error of a sweep in which nothing trained and something failed."""
        failure = self._failures.hopeless()
        return self._error(failure) if failure else None

    def _error(self, failure: Failure) -> Exception:
        return failure.error(self._reproduce(failure.trial) if failure.trial else None)

    # Rounds

    def _open_rounds(self) -> list[int]:
        return [wave.round for state in self.states if (wave := state.wave()) is not None]

    def _rounds_done(self) -> int:
        """Rounds of the search that every study has behind it."""
        return min([len(self._goals), *self._open_rounds()])

    def _rounds_end(self) -> None:
        """Report the rounds that have ended since the last call; one of them may stop all."""
        done = self._rounds_done()
        while self._ended_rounds < done and not self.stopped:
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
                self.error, self.stopped = error, True

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
