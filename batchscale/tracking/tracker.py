"""What writes a sweep's trials as runs of another tool: ``wandb:PROJECT``, ``mlflow:URI`` …"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from batchscale.output.errors import CommandError
from results.errors import nearest
from results.exports import tensorboard as runs
from results.targets.target import Target

_TOOLS = ("wandb", "mlflow", "tensorboard", "trackio")
_FORMS = "wandb:PROJECT, mlflow:URI, tensorboard:DIR or trackio:PROJECT"


@dataclass(frozen=True, kw_only=True)
class TrialRun:
    """A recorded trial as a run of a tool."""

    row: Mapping[str, Any]
    """Of the trials table."""
    began: float
    """Seconds since the epoch."""

    @property
    def id(self) -> str:
        """The trial's, by which its run is found again."""
        return str(self.row["trial"])

    @property
    def name(self) -> str:
        """``digits/momentum-b00064/003-1f0c2a9e``."""
        return runs.run_name(self.row)

    @property
    def config(self) -> dict[str, Any]:
        """Study, trial, seed, target, training algorithm, batch size, fields, metaparameters."""
        own = {name: self.row[name] for name in ("study", "trial", "seed")}
        if (metric := self.row["target_metric"]) is not None:
            value, lower = self.row["target_value"], self.row["lower_is_better"]
            own["target"] = str(Target(metric=metric, value=value, lower_is_better=lower))
        return {**own, **runs.settings(self.row)}

    @property
    def outcome(self) -> dict[str, Any]:
        """Status, stop reason, steps run, and steps to target where it was reached."""
        names = ("status", "stop_reason", "steps_run", runs.STEPS)
        return {name: self.row[name] for name in names if self.row[name] is not None}

    @property
    def failed(self) -> bool:
        """Whether it diverged, or its own code raised."""
        return runs.failed(self.row)


class Tracker(Protocol):
    """Writes one run after the other, from one thread. An exception turns it off."""

    def start(self, run: TrialRun) -> int:
        """Open the run, or open it again: a trial that was stopped early may have gone on.

        Returns:
            The last step of an evaluation that the tool has of it; -1 if none. Later ones follow.
        """

    def measure(self, step: int, time: float, metrics: Mapping[str, float]) -> None:
        """An evaluation; ``time`` in seconds since the epoch, metrics as ``validation/error``."""

    def end(self, run: TrialRun, time: float) -> None:
        """Write the outcome, and close the run."""


def tracker(spec: str) -> Tracker:
    """The tracker of ``TOOL:PLACE``.

    Raises:
        CommandError: no such tool, no place, or the tool is not installed.
    """
    tool, _, place = spec.partition(":")
    if tool not in _TOOLS or not place:
        hint = _FORMS if tool in _TOOLS else nearest(tool, _TOOLS, _FORMS)
        raise CommandError(f"--track {spec} is not TOOL:PLACE", hint=hint)
    try:
        made: Tracker = import_module(f"{__package__}.{tool}_runs").Runs(place)
    except ModuleNotFoundError as error:
        message = f"--track {spec}: {error.name} is not installed"
        raise CommandError(message, hint=f"pip install {tool}") from error
    return made
