"""What the driver gives its workers, what they say, and the events of a sweep for its observers: a
display, a log, a test.

Observers get the messages of workers as they are, and what the driver says besides. An observer is
any callable that takes one event. It is called on the driver, one event at a time, and must be
quick: a slow one slows the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from experiments.errors import ExperimentError, TrainingError
from results.storage.masking import masked

if TYPE_CHECKING:  # errors on the terminal describe a Failure, and load nothing heavy
    from experiments.plan import Outcome, Pack
    from results.storage.location import Location

End = Literal["done", "stopped", "taken", "failed"]
"""``done``: every trial is recorded. ``stopped``: asked to; a snapshot is kept. ``taken``: another
driver has the claim. ``failed``: the pack's own code raised; of a pack of one, the failure is
recorded."""
Cause = Literal["raised", "memory", "hung", "died", "lost"]
"""``raised``: an exception. ``memory``: one that says that there is not enough. ``hung``: no
progress for too long. ``died``: its worker's process ended. ``lost``: with its node, or ended from
outside; this says nothing of the trials."""


# What workers say


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A worker has claimed a pack and set it up; ``engine`` is the one that it chose."""

    pack: str
    study: str
    trials: int
    engine: str
    round: int
    step: int = 0
    """The step from which it continues; 0 at its beginning."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a pack, about once a second."""

    pack: str
    study: str
    step: int
    steps: int
    """Steps of all its trials together, since its ``Begun``."""
    active: int
    """Trials still training."""
    metric: float | None
    """Best value of the target's metric among them at their last evaluation."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Trials that have ended: said at once, and again when their rows are safe, under ``run``."""

    pack: str
    study: str
    outcomes: tuple[Outcome, ...]
    run: str | None = None
    resumed: frozenset[str] = frozenset()
    """Those that had ended as dominated before, and have continued since; the dispatcher knows."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """A sentence that a person should read; keys in an address that it quotes are masked."""

    text: str
    pack: str | None = None
    """The pack of the worker that says it, and trains on."""
    once: bool = False
    """Whether observers get it once for all studies that run the same code."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", masked(self.text))


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a pack failed, as text."""

    message: str
    """Its last line: ``ValueError: its message``, or the message of a clear error."""
    hint: str | None = None
    traceback: str = ""
    """The traceback from the first frame of the user's code on; all of it if there is none."""
    clear: bool = False
    """Whether it is a clear error of ours: every other pack of its kind would raise the same."""
    trial: str | None = None
    """The trial that raised it, where that is known: it is recorded."""
    cause: Cause = "raised"
    deaths: int = 1
    """Of one that died: deaths in a row that it stands for."""

    def error(self, reproduce: str | None = None) -> ExperimentError:
        """The exception to raise in the sweep."""
        if self.clear:
            return ExperimentError(self.message, hint=self.hint)
        hint = f"the same again: {reproduce}" if reproduce else self.hint
        return TrainingError(self.message, hint=hint, traceback=self.traceback, reproduce=reproduce)


@dataclass(frozen=True, kw_only=True)
class Over:
    """A worker is done with a pack, or is lost with it."""

    pack: str
    study: str = ""
    """The dispatcher knows it where the sender does not."""
    end: End
    seconds: float = 0.0
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Trials that the pack was assigned and does not train: another driver has them."""

    pack: str
    trials: tuple[str, ...]


Message = Begun | Progress | Ended | Note | Taken | Over


# What the driver gives


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What a worker is to train: a pack and, as its trials end, further trials that join it.

    A worker gets it at its start and asks for it again and again. In the meantime it only grows.
    """

    pack: Pack
    """Its trials are in the order in which they were assigned."""
    round: int
    columns: Mapping[str, Any]
    """Columns of the trials table that all trials of the study share."""
    wanted: frozenset[str]
    """Trials to record. A resumed pack may hold others, recorded since its snapshot."""
    before: Mapping[str, str] = field(default_factory=dict)
    """Commits that had recorded trials of it when they were assigned, to be superseded."""
    size: int | None = None
    """Trials that may train at once; others join as they end. ``None``: none join."""
    hits: tuple[int, ...] = ()
    """Steps to target of the study that were recorded since the pack was assigned, in order."""
    stop: bool = False
    """Whether the driver asks to stop."""
    device: str = "cpu"
    moved: tuple[str, str] | None = None
    """The folder of the user's files on this worker, and the original one."""

    def after(self, heard: int) -> Assignment:
        """What has come since the first ``heard`` trials were assigned."""
        if not heard:
            return self
        trials = self.pack.trials[heard:]
        ids = [trial.id for trial in trials]
        return replace(
            self,
            pack=replace(self.pack, trials=trials, known=()),
            wanted=self.wanted.intersection(ids),
            before={trial: self.before[trial] for trial in ids if trial in self.before},
        )

    def joined_by(self, news: Assignment) -> Assignment:
        """The same with what has come since."""
        return replace(
            self,
            pack=replace(self.pack, trials=(*self.pack.trials, *news.pack.trials)),
            wanted=self.wanted | news.wanted,
            before={**self.before, **news.before},
            hits=news.hits,
            stop=news.stop,
        )

    def without(self, trials: Iterable[str]) -> Assignment:
        """The same where these are another driver's."""
        return replace(self, wanted=self.wanted.difference(trials))

    def without_state(
        self, pack: str, trials: Sequence[str], active: Sequence[str], settings: str = ""
    ) -> SnapshotHeader:
        """The header of a pack of these trials of it, of which no state is kept: the ``active``
        ones begin anew."""
        return SnapshotHeader(
            pack=pack,
            study=self.pack.study.id,
            settings=settings,
            trials=tuple(trials),
            active=tuple(active),
            engine=self.pack.engine,  # type: ignore[arg-type]  # perhaps not chosen yet
            round=self.round,
        )

    def begun(self, engine: str, step: int = 0) -> Begun:
        """What a worker says that has set it up."""
        return Begun(
            pack=self.pack.id,
            study=self.pack.study.id,
            trials=len(self.wanted),
            engine=engine,
            round=self.round,
            step=step,
        )

    def progress(self, step: int, steps: int, values: Collection[float | None]) -> Progress:
        """What a worker says meanwhile; ``values``: the last of the target's metric of each trial
        still training."""
        study, metrics = self.pack.study, [value for value in values if value is not None]
        best = min if study.targets[-1].lower_is_better else max
        return Progress(
            pack=self.pack.id,
            study=study.id,
            step=step,
            steps=steps,
            active=len(values),
            metric=best(metrics) if metrics else None,
        )

    def ended(self, outcomes: Sequence[Outcome], run: str | None = None) -> Ended:
        """What a worker says when trials of it have ended."""
        pack, study = self.pack.id, self.pack.study.id
        return Ended(pack=pack, study=study, outcomes=tuple(outcomes), run=run)

    def over(self, end: End, failure: Failure | None = None) -> Over:
        """What a worker says at its end."""
        return Over(pack=self.pack.id, study=self.pack.study.id, end=end, failure=failure)


@dataclass
class Channel:
    """A worker's connection to the driver. Both calls are cheap; ``ask`` is called about twice a
    second, beside the training."""

    send: Callable[[Message], None]
    ask: Callable[[Assignment], Assignment]
    """The assignment as it is by now, from how it was."""
    cause: Callable[[BaseException], Cause | None] = lambda _: None
    """What an exception of a rank says of the other ranks of its group."""


@dataclass(frozen=True, kw_only=True)
class SnapshotHeader:
    """The part of a pack's snapshot that the driver reads, to send the pack out again.

    Trials of which no state is kept have a header too: they begin anew, together.
    """

    pack: str
    study: str
    settings: str
    """Hash of the study's settings: a snapshot of other ones, as another budget, is not used."""
    trials: tuple[str, ...]
    """All trials of the pack, in order."""
    active: tuple[str, ...]
    """Those to train on. One that the state does not hold begins; others that it holds are left
    out."""
    engine: Literal["module", "stacked"]
    round: int


# What the driver says besides


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What the sweep does before its first pack trains, and while none does."""

    text: str


@dataclass(frozen=True, kw_only=True)
class StudyPlanned:
    """A study of the sweep, and what earlier runs have left to do in it."""

    study: str
    label: str
    """A label that distinguishes it from the other studies: ``sgd, batch 64``."""
    trials: int
    """Feasible trials wanted."""
    done: int
    """Trials that earlier runs have finished."""
    reached: int
    infeasible: int
    dominated: int
    budget_steps: int = 0
    batch_size: int = 1
    example_unit: str = "example"
    """The unit of a batch: ``example``, ``token`` …"""
    tokens_per_example: int | None = None


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """Seconds until every study has what it wants, with the packs that train now, of any driver."""

    seconds: float | None
    """``None``: cannot be estimated yet."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """Every study has its trials of this round."""

    round: int
    trials: int
    """Trials a study has by now, at least."""
    reached: int
    """Studies in which a trial has reached the target."""
    studies: int


Event = Begun | Progress | Ended | Note | Over | Stage | StudyPlanned | TimeLeft | Round
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The observer of a sweep without a display."""
    del event


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a sweep did."""

    experiment: str
    location: Location
    """The address that opens the results again."""
    studies: int
    trials: int
    """Trials of the experiment that the dataset holds by now, without failed ones."""
    trained: int
    """Trials that this run recorded."""
    failed: int
    """Trials whose own code raised; the next run tries them once more."""
    reached: int
    """Studies in which a trial has reached the target."""
    seconds: float
    left: int
    """Trials that are missing, without failed ones."""

    @property
    def complete(self) -> bool:
        """Whether all studies are complete."""
        return not self.left

    @property
    def path(self) -> str:
        """The results folder or URI, for display: keys in it are masked."""
        return self.location.root
