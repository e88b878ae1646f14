"""One trial's model in training by itself: autograd, and torch's or a library's optimizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.convolutions import keep_channels_last
from experiments.engines.base import gather
from experiments.engines.batch_statistics import take_statistics, takes_statistics
from experiments.engines.batches import Batches, Row
from experiments.engines.metric_sums import MetricSums, measure, watched
from experiments.engines.randomness import RandomDraws
from experiments.engines.step import Hooks, Models
from experiments.errors import ExperimentError
from experiments.optimizers.groups import Rates, parameter_options
from experiments.optimizers.schedule_free import evaluated_weights
from experiments.parallel.base import ForwardPass
from experiments.plan import Trial
from experiments.seeds import derive, seed_torch
from experiments.training.evaluation.misses import MissTest
from experiments.training.evaluation.parts import Parts
from experiments.training.micro_batch import buffers_kept
from experiments.training.study_context import StudyContext
from workloads import Batch
from workloads.checks import check_metrics, check_per_example
from workloads.ghost import finish_step, has_batch_norm


class SingleModel(Models):
    """Takes a trial's steps, of which ``Models.take`` is one, and measures its model."""

    stacked = False

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
            micro_batch: most examples of one forward pass.
            draws_of: what a forward pass of the trial's model draws.
            cache: of what depends on shapes alone; the models of an engine share it.
            channels_last: whether convolutions compute with their channels last in memory.

        Raises:
            ExperimentError: a pipeline cannot do what a technique wants, or the layout or a
                technique cannot scale losses.
        """
        self.context, self.trial, self.layout = context, trial, context.layout
        self.micro_batch, self.cache = micro_batch, cache
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
        normed = has_batch_norm(model)
        self.model = layout.spread(model, self.workload.layout_plan()).train()
        optimizer = layout.optimizer(
            self.model, lambda named: context.optimizer.module(named, values, options), whole
        )
        self.optimizer = self.techniques.optimizer(optimizer)
        layout.communicate(self.model, self.techniques.communication())
        meta, schedule = trial.metaparameters, context.schedule
        self._rates = Rates(self.optimizer, context.optimizer.name)
        self._factor = None if schedule.is_constant(meta) else schedule.factor_of(meta)
        self._rate = context.optimizer.learning_rate(meta)
        self.order = context.order(trial)
        self.batches = Batches(context, stacked=False)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=context.device)
        self.hooks = Hooks(self, [trial], self.trained())
        self.step = 0
        self.scaler = _scaler(self) if context.precision.scales else None
        self._normed = has_batch_norm(self.model)
        own = normed and takes_statistics(self.optimizer, self.techniques, layout)
        self._takes_statistics = own
        self._parameters = tuple(self.model.parameters())
        self._divided: dict[int, tuple[int, int, bool]] = {}
        for part in self.techniques if layout.staged else ():
            if any(part.defines(hook) for hook in ("select", "observe", "forward")):
                raise ExperimentError(
                    f"technique {part.label} cannot be used in a pipeline: no rank has the whole "
                    "forward pass",
                    hint="leave pipeline out of the layout",
                )

    def advance(self, steps: int) -> None:
        """Take so many steps."""
        batches = self.context.study.batches
        for piece in batches.pieces(self.step, steps):
            self.size, self.share = batches.size(piece.start), self.context.part(piece.start)
            row = Row(trial=self.trial, order=self.order, step=piece.start)
            for done, batch in self.batches.take([row], 1, len(piece)):
                self.take([piece.start + done], batch)
        self.step += steps

    # What a step is made of.

    def begin(self, steps: Sequence[int]) -> float:
        (self._now,) = steps
        if self._factor is None:
            return self._rate
        factor = self._factor(self._now)
        self._rates.scale(factor)
        return self._rate * factor

    def take_gradient(self, batch: Batch, examples: Tensor | None) -> None:
        for parameter in self._parameters:
            parameter.grad = None
        self.layout.accumulate(self.model, self._passes(batch, examples), self.loss_sum)
        self.layout.finish_gradient(self.model)

    def loss_sums(self) -> Tensor:
        return self.loss_sum

    @torch.no_grad()
    def losses(self, batch: Batch) -> Tensor:
        with self.buffers_kept():
            parts = [each.loss(self.model) for each in self._passes(batch)]
        # Of one type on all ranks, that of a rank without examples too.
        losses = torch.zeros(self.size, dtype=self.context.dtype, device=self.context.device)
        if parts:
            losses[self.share] = torch.cat(parts)
        return self.layout.all_reduce(losses)

    def buffers_kept(self) -> AbstractContextManager[None]:
        return buffers_kept(self.model)

    def unscale_gradient(self) -> bool:
        if self.scaler is None:
            return True
        scale = self.scaler.get_scale()
        self.scaler.unscale_(self.optimizer)
        self.scaler.update()
        finite = self.scaler.get_scale() >= scale
        self.skipped += not finite
        return finite

    def update_weights(self) -> None:
        self.optimizer.step()

    def finish_step(self) -> None:
        if self._normed:
            finish_step(self.model, self.layout.all_reduce)

    def trained(self) -> dict[str, Tensor]:
        named = self.model.named_parameters()
        return self.layout.gather(self.model, {n: p.detach() for n, p in named if p.requires_grad})

    def gradients(self) -> dict[str, Tensor]:
        named = self.model.named_parameters()
        return self.layout.gather(self.model, {n: p.grad for n, p in named if p.grad is not None})

    def set_trained(self, weights: Mapping[str, Tensor]) -> None:
        for name, parameter in self.model.named_parameters():
            if name in weights:
                part = self.layout.part(self.model, name, weights[name])
                parameter.detach().copy_(part)

    def set_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        for name, parameter in self.model.named_parameters():
            if name in gradients:
                parameter.grad = self.layout.part(self.model, name, gradients[name])

    # The forward passes of a step.

    def _passes(self, batch: Batch, examples: Tensor | None = None) -> Iterator[ForwardPass]:
        """Those of this rank's share. ``examples``: the weights of its examples in the mean loss;
        equal ones unless given."""
        if self.size not in self._divided:
            self._divided[self.size] = self._divide()
        most, count, everywhere = self._divided[self.size]
        for i in range(count):
            part = batch
            if count > 1:
                part = tuple(x[i * most : (i + 1) * most] for x in batch)
            number = part[0].shape[0]
            weights: Callable[[torch.dtype], Tensor] = partial(self._equal_weights, number)
            if examples is not None:
                weights = examples[i * most : (i + 1) * most].to
            drawing = partial(self._drawing, self.share.start + i * most, number)
            yield ForwardPass(
                batch=part,
                loss=partial(self._loss, part, drawing),
                drawing=drawing,
                weights=weights if self.scaler is None else _scaled(weights, self.scaler),
                sums=everywhere and i == count - 1,
            )

    def _divide(self) -> tuple[int, int, bool]:
        """Most examples of a pass, this rank's passes, and whether every rank has one."""
        layout, unit = self.layout, self.context.ghost_batch or 1
        most = layout.micro_batch(self.size, self.micro_batch, unit)
        count = layout.passes(self.size, most, unit)
        return most, count, self.size // unit >= layout.data_ranks

    @contextmanager
    def _drawing(self, start: int, examples: int, modules: Collection[str] = ()) -> Iterator[None]:
        drawing = self.draws.drawing(
            self.trial.seed,
            self._now,
            start,
            examples,
            self.context.device,
            self.cache,
            first=self.draws.first_of(modules) if modules else 0,
            part=self.layout.activation_part,
        )
        with drawing, self.context.autocast():
            yield

    def _loss(self, batch: Batch, drawing: Any, model: Any) -> Tensor:
        with drawing():
            loss = self.techniques.loss(self.workload, model, batch)
        if loss.shape != batch[0].shape[:1]:
            check_per_example(loss, len(batch[0]), "loss", self.workload)
        return loss

    def _equal_weights(self, examples: int, dtype: torch.dtype) -> Tensor:
        key, device = (examples, self.size, dtype), self.context.device
        if key not in self.cache:
            self.cache[key] = torch.full((examples,), 1 / self.size, dtype=dtype, device=device)
        return self.cache[key]

    # Evaluations and states.

    def evaluate(
        self, split: str, chunk: int, parts: Parts | None = None, tests: Sequence[MissTest] = ()
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
            # A model may sample in evaluation too, which must not depend on the rest of its pack.
            seed_torch(derive(self.trial.seed, "evaluation", split, self.step), context.device)
            means = measure(sums, data, context.layout, chunk, metrics_of, [0], parts, tests)
            self.model.train()
        return means[0]

    @contextmanager
    def measured_weights(self) -> Iterator[None]:
        """Within, the model has the weights that are measured: its own, or averages of them."""
        with evaluated_weights(self.optimizer, self.layout.publish):
            trained = {}
            if self.techniques.define("evaluated"):
                trained = {name: weight.clone() for name, weight in self.trained().items()}
                self.set_trained(self.hooks.evaluated(trained))
            with self._own_statistics():
                yield
            self.set_trained(trained)

    @contextmanager
    def _own_statistics(self) -> Iterator[None]:
        """Within, running statistics of batch norm are those of the average that is measured."""
        if not self._takes_statistics:
            yield
            return
        with self.buffers_kept():
            take_statistics(
                self.model, self.context, self.micro_batch,
                lambda batch: self.techniques.output(self.workload, self.model, batch),
            )  # fmt: skip
            yield

    def copy(self) -> dict[str, Any]:
        """All that ``restore`` needs; the tensors are not copied."""
        scaler = {} if self.scaler is None else self.scaler.state_dict()
        return {
            "step": self.step,
            **self.layout.state(self.model, self.optimizer),
            "loss": self.layout.all_reduce(self.loss_sum.clone()),
            "scaling": {**scaler, "skipped": self.skipped} if scaler else {},
            "techniques": self.hooks.state,
            "order": self.order.state(),
            "communication": self.layout.communication_state(self.model),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self.step = state["step"]
        self.order.load(state["order"], self.step)
        # An optimizer keeps what it is given and changes it in place.
        whole = {**state, "optimizer": gather(state["optimizer"])}
        self.layout.load(self.model, self.optimizer, whole)
        self.layout.load_communication(self.model, state["communication"])
        self.loss_sum.copy_(state["loss"] / self.layout.data_ranks)
        if self.scaler is not None and state["scaling"]:
            of_scaler = dict(state["scaling"])
            self.skipped = of_scaler.pop("skipped")
            self.scaler.load_state_dict(of_scaler)
        self.hooks.state = gather(state["techniques"], self.context.device)


def _scaled(
    weights: Callable[[torch.dtype], Tensor], scaler: torch.amp.GradScaler
) -> Callable[[torch.dtype], Tensor]:
    return lambda dtype: scaler.scale(weights(dtype))


def _scaler(model: SingleModel) -> torch.amp.GradScaler:
    """
    Raises:
        ExperimentError: the layout or a technique cannot scale losses.
    """
    layout, device = model.context.study.layout, model.context.device
    if layout.dimensions or layout.name not in (None, "data"):
        message = "precision float16 scales the loss, which needs the whole gradient on each rank"
        raise ExperimentError(message, hint="precision: bfloat16, or data parallelism alone")
    for part in model.techniques:
        if any(part.defines(hook) for hook in ("observe", "perturbed", "communication")):
            raise ExperimentError(
                f"technique {part.label} needs the gradient before it is scaled back, which "
                "precision float16 scales",
                hint="precision: bfloat16",
            )
    return torch.amp.GradScaler(device.type)
