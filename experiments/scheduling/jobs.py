"""Jobs for the workers, and their messages to the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from experiments.errors import ExperimentError, TrainingError
from experiments.plan import Outcome, Pack, Trial

End = Literal["done", "stopped", "taken", "failed"]
Cause = Literal["raised", "memory", "hung", "died", "lost"]
"""``raised``: an exception. ``memory``: one that says that there is not enough. ``hung``: no
progress for too long. ``died``: its worker's process ended. ``lost``: with its node, or ended from
outside; this says nothing of the trials."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A pack, and the parts of its rows that a worker does not know."""

    pack: Pack
    round: int
    columns: Mapping[str, Any]
    """Columns of the trials table that all trials of the study share."""
    wanted: frozenset[str]
    """Trials to record. A resumed pack may hold others, recorded since its snapshot."""
    before: Mapping[str, str] = field(default_factory=dict)
    """Commits that had recorded trials of it when it was sent out, to be superseded."""
    size: int | None = None
    """Trials that may train at once; as they end, their places are offered. ``None``: never."""
    device: str = "cpu"
    moved: tuple[str, str] | None = None
    """The folder of the user's files on this worker, and the original one."""

    def joined_by(self, more: More) -> Job:
        """The same pack with trials that have been given to it since."""
        return replace(
            self,
            pack=replace(self.pack, trials=(*self.pack.trials, *more.trials)),
            wanted=self.wanted | {trial.id for trial in more.trials},
            before={**self.before, **more.before},
        )

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


@dataclass(frozen=True, kw_only=True)
class More:
    """The answer to an ``Offer``: trials of the pack's study to train too, perhaps none."""

    trials: tuple[Trial, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)
    """As in ``Job``."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """The pack is claimed and set up."""

    pack: str
    engine: str
    step: int = 0
    """The step of the snapshot from which it continues."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The progress of the pack."""

    pack: str
    step: int
    steps: int
    """Steps of all its trials together, since this worker began to train it."""
    values: tuple[float | None, ...]
    """Last value of the target's metric of each trial still training."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Trials that have ended; ``committed``: their rows are safe, under ``run``."""

    pack: str
    outcomes: tuple[Outcome, ...]
    committed: bool
    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The pack can hold so many more trials. The driver answers each offer in ``Control.more``."""

    pack: str
    places: int


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Trials that the pack was given and does not train: another driver has them."""

    pack: str
    trials: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NotKept:
    """The pack trains, but the states of its trials cannot be saved; ``reason`` says why."""

    pack: str
    reason: str

    @property
    def sentence(self) -> str:
        """For the user."""
        return (
            f"its trials cannot be saved while they train: {self.reason}. They train on; those "
            "that an interruption cuts off begin again."
        )


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A sentence for the user about a pack that trains on."""

    pack: str
    text: str
    once: str | None = None
    """Remarks that name the same are noted once for the studies that run the same code."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a pack failed, as text."""

    message: str
    """Its last line: ``ValueError: its message``, or the message of a clear error."""
    hint: str | None
    traceback: str
    """The traceback from the first frame of the user's code on; all of it if there is none."""
    clear: bool
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
class PackEnd:
    """The pack's worker is done with it.

    ``done``: every trial is recorded. ``stopped``: asked to; a snapshot is kept. ``taken``:
    another driver has the claim. ``failed``: the pack's own code raised; of a pack of one, the
    failure is recorded.
    """

    pack: str
    end: End
    seconds: float = 0.0
    failure: Failure | None = None


Message = Started | Step | Ended | Offer | Refused | NotKept | Remark | PackEnd


@dataclass(frozen=True, kw_only=True)
class Control:
    """Control of a pack by the driver: stop, use the records of other packs, train more trials."""

    stop: bool = False
    hits: tuple[int, ...] = ()
    """All steps to target of the study recorded since the pack was sent out, in that order."""
    more: tuple[More, ...] = ()
    """The answers to all of the worker's offers, in their order."""


class RankLostError(Exception):
    """A rank of a worker group has died: its pack is not at fault, and goes on from its snapshot on
    another group."""


@dataclass
class Channel:
    """A worker's connection to the driver. Both calls are cheap; ``control`` is polled with the
    pack's id between steps."""

    send: Callable[[Message], None]
    control: Callable[[str], Control]
    cause: Callable[[Failure, BaseException], Failure] = lambda failure, _: failure
    """What has made a pack's code raise, which a rank of a group learns from the others. It raises
    ``RankLostError`` if one of them has died."""


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
