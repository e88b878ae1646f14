"""One trial's model in training by itself: autograd, and torch's or a library's optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from experiments.engines.base import gather
from experiments.engines.metric_sums import MetricSums, chunks
from experiments.engines.passes import ForwardPasses
from experiments.engines.randomness import RandomDraws, refuse_random_numbers
from experiments.optimizers.groups import Rates, parameter_options
from experiments.optimizers.schedule_free import evaluated_weights
from experiments.plan import Trial
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
    ) -> None:
        """
        Args:
            micro_batch: examples of one forward pass.
            draws_of: what a forward pass of the trial's model draws.
            cache: of what depends on shapes alone; the runs of an engine share it.
        """
        self.context, self.trial = context, trial
        self.workload = context.workload_of(trial)
        self.techniques = context.techniques_of(trial)
        model, layout = context.model(trial), context.layout
        self.draws = draws_of(trial, model)
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
        self.optimizer = layout.optimizer(
            self.model, lambda named: context.optimizer.module(named, values, options), whole
        )
        layout.communicate(self.model, self.techniques.communication())
        self.rates = Rates(self.optimizer, context.optimizer.name)
        self.technique_state = self.techniques.start(self.trained_weights())
        self.passes = ForwardPasses(context, trial, self.techniques, self.draws, micro_batch, cache)
        self.order = context.order(trial)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=context.device)
        """Running sum of all losses: once it is not finite, it never is again."""
        self.step = 0

    def advance(self, steps: int) -> None:
        """Take so many steps."""
        context, meta = self.context, self.trial.metaparameters
        constant, factor = context.schedule.is_constant(meta), context.schedule.factor_of(meta)
        normed, define = has_batch_norm(self.model), self.techniques.define
        changes_gradient, changes_weights = define("gradient"), define("after_step")
        pieces, seed = context.study.batches.pieces(self.step, steps), self.trial.seed
        for step, batch in context.train.batches_of(self.order, pieces, context.part, seed):
            if not constant:
                self.rates.scale(factor(step))
            self._gradient(batch, step)
            if changes_gradient:
                with refuse_random_numbers(self.techniques, step, context.device):
                    self._change_gradient(step)
            self.optimizer.step()
            if changes_weights:
                with refuse_random_numbers(self.techniques, step, context.device):
                    self._change_weights(step)
            if normed:
                finish_step(self.model, context.layout.all_reduce)
        self.step += steps

    def _gradient(self, batch: Batch, step: int) -> None:
        """The gradient of the mean loss over the global batch, in ``.grad``."""
        self.model.zero_grad()
        layout = self.context.layout
        layout.accumulate(self.model, self.passes.of(batch, step), self.loss_sum)
        layout.finish_gradient(self.model)

    @torch.no_grad()
    def _change_gradient(self, step: int) -> None:
        """Let techniques change the gradient of the global batch."""
        layout = self.context.layout
        parameters = {n: p for n, p in self.model.named_parameters() if p.grad is not None}
        given = {n: p.grad for n, p in parameters.items() if p.grad is not None}
        gradients = layout.gather(self.model, given)
        weights = layout.gather(self.model, {n: p.detach() for n, p in parameters.items()})
        made = torch.tensor(step, device=self.context.device)
        changed = self.techniques.gradient(gradients, weights, self.technique_state, made)
        for name in parameters.keys() & changed.keys():
            parameters[name].grad = layout.part(self.model, name, changed[name])

    @torch.no_grad()
    def _change_weights(self, step: int) -> None:
        """Let techniques change the weights, after the update that followed ``step`` others."""
        weights, made = self.trained_weights(), torch.tensor(step, device=self.context.device)
        changed = self.techniques.after_step(weights, self.technique_state, made)
        self._set({name: w for name, w in changed.items() if w is not weights[name]})

    def trained_weights(self) -> dict[str, Tensor]:
        """The trained parameters by name, whole and without their gradients."""
        trained = {n: p.detach() for n, p in self.model.named_parameters() if p.requires_grad}
        return self.context.layout.gather(self.model, trained)

    def _set(self, weights: Mapping[str, Tensor]) -> None:
        """Give trained parameters these whole values."""
        for name, parameter in self.model.named_parameters():
            if name in weights:
                part = self.context.layout.part(self.model, name, weights[name])
                parameter.detach().copy_(part)

    def evaluate(self, split: str, chunk: int) -> dict[str, float]:
        """The metrics on a whole split, at most ``chunk`` examples at a time."""
        context, data = self.context, self.context.splits[split]
        sums = MetricSums(1, context.device, self.workload, len(data))
        with self.measured_weights():
            self.model.eval()
            share, passes = context.layout.share(len(data)), context.layout.passes(len(data), chunk)
            for indices, batch in data.fetch_parts(chunks(share, chunk, passes)):
                with context.autocast():
                    output = self.workload.forward(self.model, batch)
                    metrics = self.workload.metrics(output, batch)
                check_metrics(metrics, len(indices), self.workload)
                sums.add(metrics, indices, batch, output)
            self.model.train()
        return sums.means(context.layout.all_reduce)[0]

    @contextmanager
    def measured_weights(self) -> Iterator[None]:
        """Within, the model has the weights that are measured: its own, or averages of them."""
        with evaluated_weights(self.optimizer, self.context.layout.publish):
            if not self.techniques.define("evaluated"):
                yield
                return
            trained = {name: w.clone() for name, w in self.trained_weights().items()}
            self._set(self.techniques.evaluated(trained, self.technique_state))
            yield
            self._set(trained)

    def copy(self) -> dict[str, Any]:
        """All that ``restore`` needs; the tensors are not copied."""
        return {
            "step": self.step,
            **self.context.layout.state(self.model, self.optimizer),
            "loss": self.context.layout.all_reduce(self.loss_sum.clone()),
            "techniques": self.technique_state,
            "order": self.order.state(),
            "communication": self.context.layout.communication_state(self.model),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self.step = state["step"]
        self.order.load(state.get("order"), self.step)
        # An optimizer keeps what it is given and changes it in place.
        whole = {**state, "optimizer": gather(state["optimizer"])}
        self.context.layout.load(self.model, self.optimizer, whole)
        self.context.layout.load_communication(self.model, state.get("communication", {}))
        self.loss_sum.copy_(state["loss"] / self.context.layout.data_ranks)
        self.technique_state = gather(state["techniques"], self.context.device)
