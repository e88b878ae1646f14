"""The events of a running sweep, for its observers: a display, a log, a test.

An observer is any callable that takes one event. It is called on the driver, one event at a time,
and must be quick: a slow one slows the sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.plan import Outcome, Study
from experiments.scheduling import jobs
from results.storage.location import Location
from results.storage.masking import masked


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
class PackStarted:
    """A worker has begun to train a pack; ``engine`` is the one that it chose."""

    pack: str
    study: str
    trials: int
    engine: str
    round: int
    step: int = 0
    """The step from which it continues; 0 at its beginning."""

    @classmethod
    def of(cls, job: jobs.Job, message: jobs.Started) -> PackStarted:
        return cls(
            pack=message.pack,
            study=job.pack.study.id,
            trials=len(job.wanted),
            engine=message.engine,
            round=job.round,
            step=message.step,
        )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a pack, about once a second."""

    pack: str
    study: str
    step: int
    steps: int
    """Steps of all its trials together, since its ``PackStarted``."""
    active: int
    """Trials still training."""
    metric: float | None
    """Best value of the target's metric among them at their last evaluation."""

    @classmethod
    def of(cls, study: Study, message: jobs.Step) -> Progress:
        values = [value for value in message.values if value is not None]
        best = min if study.targets[-1].lower_is_better else max
        return cls(
            pack=message.pack,
            study=study.id,
            step=message.step,
            steps=message.steps,
            active=len(message.values),
            metric=best(values) if values else None,
        )


@dataclass(frozen=True, kw_only=True)
class TrialFinished:
    """A trial has ended."""

    study: str
    outcome: Outcome
    resumed: bool = False
    """Whether it had ended as dominated before, and has continued since."""


@dataclass(frozen=True, kw_only=True)
class PackFinished:
    """A pack has ended; ``error`` is the last line of what its own code raised."""

    pack: str
    study: str
    seconds: float
    error: str | None = None

    @classmethod
    def of(cls, study: Study, message: jobs.PackEnd) -> PackFinished:
        return cls(
            pack=message.pack,
            study=study.id,
            seconds=message.seconds,
            error=message.failure.message if message.failure else None,
        )


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """Seconds until every study has what it wants, with the packs that train now, of any driver."""

    seconds: float | None
    """``None``: cannot be estimated yet."""


@dataclass(frozen=True, kw_only=True)
class RoundFinished:
    """Every study has its trials of this round."""

    round: int
    trials: int
    """Trials a study has by now, at least."""
    reached: int
    """Studies in which a trial has reached the target."""
    studies: int


@dataclass(frozen=True, kw_only=True)
class Note:
    """A sentence that a person should read; keys in an address that it quotes are masked."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", masked(self.text))


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


Event = (
    Stage
    | StudyPlanned
    | PackStarted
    | Progress
    | TrialFinished
    | PackFinished
    | TimeLeft
    | RoundFinished
    | Note
)
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The observer of a sweep without a display."""
    del event
