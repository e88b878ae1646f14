"""One trial's model in training by itself: autograd, and torch's or a library's optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from experiments.engines.base import gather
from experiments.engines.metric_sums import MetricSums, chunks
from experiments.engines.randomness import RandomDraws, refuse_random_numbers
from experiments.optimizers.groups import Rates, parameter_options
from experiments.optimizers.schedule_free import evaluated_weights
from experiments.plan import Trial
from experiments.training.study_context import StudyContext
from workloads import Batch
from workloads.checks import check_metrics, check_per_example
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
        self.context, self.trial, self.micro_batch, self.cache = context, trial, micro_batch, cache
        self.workload = context.workload_of(trial)
        self.model = context.layout.wrap(context.model(trial)).train()
        self.techniques = context.techniques_of(trial)
        trained = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        values = context.optimizer.arguments_in(trial.metaparameters)
        options = parameter_options(context.optimizer, self.workload, dict(trained))
        self.optimizer = context.optimizer.module(trained, values, options)
        self.rates = Rates(self.optimizer, context.optimizer.name)
        self.technique_state = self.techniques.start(self.trained_weights())
        self.draws = draws_of(trial, self.model)
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
        self.optimizer.zero_grad()
        context, size, first = self.context, len(batch[0]), self.context.part(step).start
        for low in range(0, size, self.micro_batch):
            part = batch
            if size > self.micro_batch:
                part = tuple(x[low : low + self.micro_batch] for x in batch)
            examples, start = len(part[0]), first + low
            drawing = self.draws.drawing(
                self.trial.seed, step, start, examples, context.device, self.cache
            )
            with drawing, context.autocast():
                loss = self.techniques.loss(self.workload, self.model, part)
            if loss.dim() != 1 or len(loss) != examples:
                check_per_example(loss, examples, "loss", self.workload)
            # The gradient of sum(loss) / batch size, without two more nodes in the graph.
            loss.backward(self._shares(examples, context.study.batches.size(step), loss.dtype))
            self.loss_sum.add_(loss.detach().sum())
        if context.layout.ranks.size > 1:
            trained = [p for p in self.model.parameters() if p.requires_grad]
            for p in trained:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            context.layout.reduce_gradients([p.grad for p in trained if p.grad is not None])

    def _shares(self, examples: int, whole: int, dtype: torch.dtype) -> Tensor:
        """Each example's weight in the mean over a global batch of ``whole``, ``(examples,)``."""
        key, device = (examples, whole, dtype), self.context.device
        if key not in self.cache:
            self.cache[key] = torch.full((examples,), 1 / whole, dtype=dtype, device=device)
        return self.cache[key]

    @torch.no_grad()
    def _change_gradient(self, step: int) -> None:
        """Let techniques change the gradient of the global batch."""
        parameters = {n: p for n, p in self.model.named_parameters() if p.grad is not None}
        gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        weights = {name: p.detach() for name, p in parameters.items()}
        made = torch.tensor(step, device=self.context.device)
        changed = self.techniques.gradient(gradients, weights, self.technique_state, made)
        for name, gradient in changed.items():
            parameters[name].grad = gradient

    @torch.no_grad()
    def _change_weights(self, step: int) -> None:
        """Let techniques change the weights, after the update that followed ``step`` others."""
        weights, made = self.trained_weights(), torch.tensor(step, device=self.context.device)
        changed = self.techniques.after_step(weights, self.technique_state, made)
        for name, value in changed.items():
            if value is not weights[name]:
                weights[name].copy_(value)

    def trained_weights(self) -> dict[str, Tensor]:
        """The trained parameters by name, without their gradients."""
        return {n: p.detach() for n, p in self.model.named_parameters() if p.requires_grad}

    def evaluate(self, split: str, chunk: int) -> dict[str, float]:
        """The metrics on a whole split, at most ``chunk`` examples at a time."""
        context, data = self.context, self.context.splits[split]
        sums = MetricSums(1, context.device, self.workload, len(data))
        with self.measured_weights():
            self.model.eval()
            for indices, batch in data.fetch_parts(chunks(context.layout.share(len(data)), chunk)):
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
        with evaluated_weights(self.optimizer):
            trained: dict[str, Tensor] = {}
            if self.techniques.define("evaluated"):
                trained = self.trained_weights()
                for name, w in self.techniques.evaluated(trained, self.technique_state).items():
                    self.model.get_parameter(name).data = w
            yield
            for name, weight in trained.items():
                self.model.get_parameter(name).data = weight

    def copy(self) -> dict[str, Any]:
        """All that ``restore`` needs; the tensors are not copied."""
        return {
            "step": self.step,
            **self.context.layout.state(self.model, self.optimizer),
            "loss": self.loss_sum,
            "techniques": self.technique_state,
            "order": self.order.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self.step = state["step"]
        self.order.load(state.get("order"), self.step)
        # An optimizer keeps what it is given and changes it in place.
        whole = {**state, "optimizer": gather(state["optimizer"])}
        self.context.layout.load(self.model, self.optimizer, whole)
        self.loss_sum.copy_(state["loss"])
        self.technique_state = gather(state["techniques"], self.context.device)
