"""For a Lightning ``Trainer``: ``Trainer(…, callbacks=[ReportCallback()])``."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer

from batchscale.reporting import report


class ReportCallback(Callback):
    """Reports what the module has logged, after each validation, at the Trainer's
    ``global_step``: the steps of all its optimizers."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report, on one process; end the training once the sweep is to end it."""
        del pl_module
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        measured = {name: value.item() for name, value in trainer.callback_metrics.items()}
        measured.pop("step", None)  # as modules log it for the axis of their loggers
        stop = report(step=trainer.global_step, **measured)
        if stop and trainer.world_size == 1:  # several are ended from outside, all at once
            trainer.should_stop = True
