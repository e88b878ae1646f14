"""For a ``transformers.Trainer``: ``Trainer(…, callbacks=[ReportCallback()])``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from batchscale.reporting import report

_OF_RUN = ("train_", "total_")
"""How names of what is said of the whole run begin, once it has ended."""


class ReportCallback(TrainerCallback):
    """Reports what the Trainer logs, at its ``global_step``: ``eval_loss``, ``loss``, ``epoch``.

    Give the Trainer ``logging_nan_inf_filter=False``, or a training loss that is not finite is
    logged as a mean of others.
    """

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Report, on one process; end the training once the sweep is to end it."""
        measured = {
            name: value
            for name, value in (logs or {}).items()
            if isinstance(value, (int, float)) and not name.startswith(_OF_RUN)
        }
        if not (measured and state.is_world_process_zero):
            return
        stop = report(step=state.global_step, **measured)
        if stop and args.world_size == 1:  # several are ended from outside, all at once
            control.should_training_stop = True
