"""Runs of Weights & Biases, by its SDK: ``PROJECT`` or ``ENTITY/PROJECT``.

``WANDB_MODE=offline`` writes them into ``wandb/`` here (or ``$WANDB_DIR``), for ``wandb sync``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from batchscale.tracking.tracker import TrialRun

_SECONDS = 1.0
"""W&B names a run's folder by its id and the second: two in one second would be one folder."""
_opened: dict[str, float] = {}
"""When this process has opened each run."""


class Runs:
    """A run has the trial's id: one that is known is resumed, where W&B can be asked. Offline it is
    written whole into a folder of its own."""

    def __init__(self, project: str) -> None:
        import wandb

        self._wandb: Any = wandb
        entity, _, self._project = project.rpartition("/")
        self._entity = entity or None
        # Nothing of the terminal, the machine or the program belongs to one trial.
        self._settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        self._run: Any = None
        if os.environ.get("WANDB_MODE", "online") == "online":
            wandb.login()  # it may ask for a key: before the sweep begins

    def start(self, run: TrialRun) -> int:
        if run.id in _opened:
            time.sleep(max(0.0, _opened[run.id] + _SECONDS - time.time()))
        self._run = self._wandb.init(
            project=self._project,
            entity=self._entity,
            id=run.id,
            name=run.name,
            group=run.row["study"],
            config=run.config,
            resume="allow",
            reinit="create_new",
            settings=self._settings,
        )
        _opened[run.id] = time.time()
        return int(self._run.starting_step) - 1

    def measure(self, step: int, time: float, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        self._run.log(dict(metrics), step=step)

    def end(self, run: TrialRun, time: float) -> None:  # noqa: ARG002
        self._run.config.update({"status": run.outcome["status"]}, allow_val_change=True)
        # A run that is opened again has what an easier target gave.
        stale = () if self._run.summary.get("steps_to_target") is None else ("steps_to_target",)
        self._run.summary.update({**dict.fromkeys(stale), **run.outcome})
        self._run.finish(exit_code=int(run.failed))
