"""One trial's model in training by itself: autograd, and torch's or a library's optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from experiments.convolutions import keep_channels_last
from experiments.engines.base import gather
from experiments.engines.batches import Batches, Row
from experiments.engines.metric_sums import MetricSums, measure, watched
from experiments.engines.module_gradient import ModuleGradient, ModuleTechniques
from experiments.engines.randomness import RandomDraws
from experiments.optimizers.groups import Rates, parameter_options
from experiments.optimizers.schedule_free import evaluated_weights
from experiments.plan import Trial
from experiments.training.evaluation.misses import MissTest
from experiments.training.evaluation.parts import SplitParts
from experiments.training.study_context import StudyContext
from workloads import Batch
from workloads.checks import check_metrics
from workloads.ghost import finish_step, has_batch_norm


class ModuleRun:
    """Takes a trial's steps and measures its model."""

    def __init__(
        self,
        context: StudyContext,
        trial: Trial,
        micro_batch: int,
        draws_of: Callable[[Trial, nn.Module], RandomDraws],
        cache: dict[Any, Tensor],
        *,
        channels_last: bool = False,
    ) -> None:
        """
        Args:
            micro_batch: examples of one forward pass.
            draws_of: what a forward pass of the trial's model draws.
            cache: of what depends on shapes alone; the runs of an engine share it.
            channels_last: whether convolutions compute with their channels last in memory.
        """
        self.context, self.trial = context, trial
        self.workload = context.workload_of(trial)
        self.techniques = context.techniques_of(trial)
        model, layout = context.model(trial), context.layout
        self.draws = draws_of(trial, model)
        if channels_last:
            keep_channels_last(model)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        values = context.optimizer.arguments_in(trial.metaparameters)
        options = parameter_options(
            context.optimizer,
            self.workload,
            trained,
            self.techniques,
            dict(model.named_parameters()),
        )
        whole = context.optimizer.whole({n: p.shape for n, p in trained.items()}, options)
        self.model = layout.spread(model, self.workload.layout_plan()).train()
        optimizer = layout.optimizer(
            self.model, lambda named: context.optimizer.module(named, values, options), whole
        )
        self.optimizer = self.techniques.optimizer(optimizer)
        layout.communicate(self.model, self.techniques.communication())
        self.rates = Rates(self.optimizer, context.optimizer.name)
        self.hooks = ModuleTechniques(context, self.techniques, self.model)
        self.order = context.order(trial)
        self.batches = Batches(context, stacked=False)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=context.device)
        """Running sum of all losses: once it is not finite, it never is again."""
        self.gradient = ModuleGradient(
            self.hooks, trial, self.draws, micro_batch, self.loss_sum, cache
        )
        self.step = 0

    def advance(self, steps: int) -> None:
        """Take so many steps."""
        context, meta = self.context, self.trial.metaparameters
        constant, factor = context.schedule.is_constant(meta), context.schedule.factor_of(meta)
        normed, hooks = has_batch_norm(self.model), self.hooks
        rate = float(meta.get("learning_rate", 1.0))
        for piece in context.study.batches.pieces(self.step, steps):
            row = Row(trial=self.trial, order=self.order, step=piece.start)
            for done, batch in self.batches.take([row], 1, len(piece)):
                step = piece.start + done
                if not constant:
                    self.rates.scale(factor(step))
                hooks.begin(step, rate if constant else rate * factor(step))
                hooks.change_weights("before_step", step)
                self.gradient.take(batch, step)
                self.gradient.update(self.optimizer, step)
                if normed:
                    finish_step(self.model, context.layout.all_reduce)
        self.step += steps

    def evaluate(
        self,
        split: str,
        chunk: int,
        parts: SplitParts | None = None,
        tests: Sequence[MissTest] = (),
    ) -> dict[str, float]:
        """The metrics on a split, at most ``chunk`` examples at a time (``Engine.evaluate``)."""
        context, data = self.context, self.context.splits[split]
        sums = MetricSums(1, context.device, self.workload, len(data), watched(split, tests))

        def metrics_of(batch: Batch) -> tuple[Mapping[str, Any], Any]:
            with context.autocast():
                output = self.techniques.output(self.workload, self.model, batch)
                metrics = self.techniques.metrics(
                    self.workload.metrics(output, batch), self.workload, self.model, batch
                )
            check_metrics(metrics, len(batch[0]), self.workload)
            return metrics, output

        with self.measured_weights():
            self.model.eval()
            means = measure(sums, data, context.layout, chunk, metrics_of, [0], parts, tests)
            self.model.train()
        return means[0]

    @contextmanager
    def measured_weights(self) -> Iterator[None]:
        """Within, the model has the weights that are measured: its own, or averages of them."""
        with (
            evaluated_weights(self.optimizer, self.context.layout.publish),
            self.hooks.measured(),
        ):
            yield

    def copy(self) -> dict[str, Any]:
        """All that ``restore`` needs; the tensors are not copied."""
        return {
            "step": self.step,
            **self.context.layout.state(self.model, self.optimizer),
            "loss": self.context.layout.all_reduce(self.loss_sum.clone()),
            "scaling": self.gradient.state(),
            "techniques": self.hooks.state,
            "order": self.order.state(),
            "communication": self.context.layout.communication_state(self.model),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self.step = state["step"]
        self.order.load(state["order"], self.step)
        # An optimizer keeps what it is given and changes it in place.
        whole = {**state, "optimizer": gather(state["optimizer"])}
        self.context.layout.load(self.model, self.optimizer, whole)
        self.context.layout.load_communication(self.model, state["communication"])
        self.loss_sum.copy_(state["loss"] / self.context.layout.data_ranks)
        self.gradient.load(state["scaling"])
        self.hooks.state = gather(state["techniques"], self.context.device)
