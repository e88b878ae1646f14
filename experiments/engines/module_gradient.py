"""The gradient of one model's step, and the hooks of a trial's techniques on that model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.engines.randomness import RandomDraws, refuse_random_numbers
from experiments.errors import ExperimentError
from experiments.parallel.base import ForwardPass
from experiments.plan import Trial
from experiments.techniques import Techniques
from experiments.training.micro_batch import buffers_kept
from experiments.training.study_context import StudyContext
from workloads import Batch
from workloads.checks import check_per_example


class ModuleTechniques:
    """The techniques of a trial on its model, with their state."""

    def __init__(self, context: StudyContext, techniques: Techniques, model: nn.Module) -> None:
        self.context, self.techniques, self.model = context, techniques, model
        hooks = ("before_step", "gradient", "after_step", "evaluated", "select", "perturbed")
        self.has = {hook: techniques.define(hook) for hook in hooks}
        self.state = techniques.start(self.weights())
        self.now = techniques
        """The techniques as they are in this step."""

    def begin(self, step: int, learning_rate: float) -> None:
        """Say what step follows, after ``step`` others, with its learning rate."""
        if self.techniques.change_by_step:
            context = self.context
            rate = torch.tensor(learning_rate, dtype=context.dtype, device=context.device)
            self.now = self.techniques.at((step,), rate)

    def weights(self) -> dict[str, Tensor]:
        """The trained parameters by name, whole and without their gradients."""
        trained = {n: p.detach() for n, p in self.model.named_parameters() if p.requires_grad}
        return self.context.layout.gather(self.model, trained)

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Give trained parameters these whole values."""
        for name, parameter in self.model.named_parameters():
            if name in weights:
                part = self.context.layout.part(self.model, name, weights[name])
                parameter.detach().copy_(part)

    def change_gradient(self, step: int) -> None:
        """Let techniques change the gradient of the global batch."""
        if self.has["gradient"]:
            with self._checked(step) as made:
                gradients, weights = self._gradients()
                changed = self.now.changed(
                    "gradient", gradients, weights, state=self.state, step=made
                )
                for name, parameter in self.model.named_parameters():
                    if name in gradients and name in changed:
                        parameter.grad = self.context.layout.part(self.model, name, changed[name])

    def change_weights(self, hook: str, step: int) -> None:
        """Let ``before_step`` or ``after_step`` change the weights of the step after ``step``
        others."""
        if self.has[hook]:
            with self._checked(step) as made:
                weights = self.weights()
                changed = self.now.changed(hook, weights, state=self.state, step=made)
                self.set_weights({n: w for n, w in changed.items() if w is not weights[n]})

    @contextmanager
    def perturbed(self, step: int) -> Iterator[None]:
        """Within, the model has the weights at which its gradient is taken again, and its buffers
        are as they were afterwards."""
        with self._checked(step) as made:
            gradients, weights = self._gradients()
            trained = {name: w.clone() for name, w in weights.items()}
            self.set_weights(
                self.now.changed("perturbed", weights, gradients, state=self.state, step=made)
            )
        with buffers_kept(self.model):
            yield
        with torch.no_grad():
            self.set_weights(trained)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Within, the model has the weights that evaluations measure."""
        if not self.has["evaluated"]:
            yield
            return
        trained = {name: w.clone() for name, w in self.weights().items()}
        self.set_weights(self.techniques.evaluated(trained, self.state))
        yield
        self.set_weights(trained)

    @contextmanager
    def _checked(self, step: int) -> Iterator[Tensor]:
        """Gives the number of updates made, as a scalar."""
        device = self.context.device
        with torch.no_grad(), refuse_random_numbers(self.techniques, step, device):
            yield torch.tensor(step, device=device)

    def _gradients(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Whole gradients, and the weights that have them."""
        layout, model = self.context.layout, self.model
        parameters = {n: p for n, p in model.named_parameters() if p.grad is not None}
        given = {n: p.grad for n, p in parameters.items() if p.grad is not None}
        weights = layout.gather(model, {n: p.detach() for n, p in parameters.items()})
        return layout.gather(model, given), weights


class ModuleGradient:
    """The gradient of the mean loss over the global batch, in ``.grad``: of micro-batches, with
    random numbers and weights."""

    def __init__(
        self,
        hooks: ModuleTechniques,
        trial: Trial,
        draws: RandomDraws,
        micro_batch: int,
        losses: Tensor,
        cache: dict[Any, Tensor],
    ) -> None:
        """
        Args:
            draws: what a forward pass of the trial's model draws.
            micro_batch: most examples of a pass.
            losses: the running sum of all losses, which is added to.
            cache: of what depends on shapes alone; the runs of an engine share it.

        Raises:
            ExperimentError: a pipeline cannot do what a technique wants, or the layout or a
                technique cannot scale losses.
        """
        self.hooks, self.context, self.model = hooks, hooks.context, hooks.model
        self.trial, self.workload = trial, self.context.workload_of(trial)
        self.draws, self.micro_batch, self.losses, self.cache = draws, micro_batch, losses, cache
        self.layout = self.context.layout
        self.scaler = _scaler(hooks) if self.context.precision.scales else None
        self.skipped = 0
        """Steps without an update, whose scaled gradient overflowed."""
        self._parameters = tuple(self.model.parameters())
        self._divided: dict[int, tuple[int, int, int, bool]] = {}
        if self.layout.staged:
            for part in hooks.techniques:
                for hook in ("select", "forward"):
                    if part.defines(hook):
                        raise ExperimentError(
                            f"technique {part.label} cannot be used in a pipeline: no rank has "
                            "the whole forward pass",
                            hint="leave pipeline out of the layout",
                        )

    def state(self) -> dict[str, Any]:
        """Of the scaling, for ``load``."""
        return {} if self.scaler is None else {**self.scaler.state_dict(), "skipped": self.skipped}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        if self.scaler is not None and state:
            of_scaler = dict(state)
            self.skipped = of_scaler.pop("skipped")
            self.scaler.load_state_dict(of_scaler)

    def take(self, batch: Batch, step: int) -> None:
        """That of a step, of whose global batch this rank has ``batch``."""
        weights = self._selected(batch, step) if self.hooks.has["select"] else None
        self._gradient(batch, step, weights)
        if self.hooks.has["perturbed"]:
            with self.hooks.perturbed(step):
                self._gradient(batch, step, weights)

    def update(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Let ``optimizer`` and the techniques change the weights; a gradient that is not finite
        is skipped where losses are scaled."""
        if self.scaler is not None and not self._unscaled(self.scaler, optimizer):
            self.skipped += 1
            return
        self.hooks.change_gradient(step)
        optimizer.step()
        self.hooks.change_weights("after_step", step)

    def _unscaled(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
        """Divide the gradient by the scale; whether it is finite."""
        scale = scaler.get_scale()
        scaler.unscale_(optimizer)
        scaler.update()
        return scaler.get_scale() >= scale

    def _gradient(self, batch: Batch, step: int, weights: Tensor | None) -> None:
        for parameter in self._parameters:
            parameter.grad = None
        self.layout.accumulate(self.model, self._passes(batch, step, weights), self.losses)
        self.layout.finish_gradient(self.model)

    @torch.no_grad()
    def _selected(self, batch: Batch, step: int) -> Tensor:
        """The weights of this rank's examples."""
        share = self.context.part(step)
        with buffers_kept(self.model):
            parts = [each.loss(self.model) for each in self._passes(batch, step)]
        of_rank = torch.cat(parts) if parts else self.losses.new_zeros(0)
        losses = of_rank.new_zeros(self.context.study.batches.size(step))
        losses[share] = of_rank
        losses = self.layout.all_reduce(losses)
        made = torch.tensor(step, device=self.context.device)
        return self.hooks.techniques.select(losses, made)[share]

    def _passes(
        self, batch: Batch, step: int, weights: Tensor | None = None
    ) -> Iterator[ForwardPass]:
        """The forward passes of a step. ``weights``: of the examples of ``batch`` in the mean loss;
        equal ones unless given."""
        whole = self.context.study.batches.size(step)
        if whole not in self._divided:
            self._divided[whole] = self._divide(step, whole)
        first, most, count, everywhere = self._divided[whole]
        for i in range(count):
            part = batch
            if count > 1:
                part = tuple(x[i * most : (i + 1) * most] for x in batch)
            examples = part[0].shape[0]
            of_part: Callable[[torch.dtype], Tensor] = partial(self._weights, examples, whole)
            if weights is not None:
                of_part = weights[i * most : (i + 1) * most].to
            drawing = partial(self._drawing, step, first + i * most, examples)
            yield ForwardPass(
                batch=part,
                loss=partial(self._loss, part, drawing),
                drawing=drawing,
                weights=of_part if self.scaler is None else _scaled(of_part, self.scaler),
                sums=everywhere and i == count - 1,
            )

    def _divide(self, step: int, whole: int) -> tuple[int, int, int, bool]:
        """Of a global batch of so many examples: the place of this rank's first one, most examples
        of a pass, this rank's passes, and whether every rank has one."""
        layout, unit = self.layout, self.context.ghost_batch or 1
        most = layout.micro_batch(whole, self.micro_batch, unit)
        count = layout.passes(whole, most, unit)
        return self.context.part(step).start, most, count, whole // unit >= layout.data_ranks

    @contextmanager
    def _drawing(
        self, step: int, start: int, examples: int, modules: Collection[str] = ()
    ) -> Iterator[None]:
        drawing = self.draws.drawing(
            self.trial.seed,
            step,
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
            loss = self.hooks.techniques.loss(self.workload, model, batch)
        if loss.shape != batch[0].shape[:1]:
            check_per_example(loss, len(batch[0]), "loss", self.workload)
        return loss

    def _weights(self, examples: int, whole: int, dtype: torch.dtype) -> Tensor:
        key, device = (examples, whole, dtype), self.context.device
        if key not in self.cache:
            self.cache[key] = torch.full((examples,), 1 / whole, dtype=dtype, device=device)
        return self.cache[key]


def _scaled(
    weights: Callable[[torch.dtype], Tensor], scaler: torch.amp.GradScaler
) -> Callable[[torch.dtype], Tensor]:
    return lambda dtype: scaler.scale(weights(dtype))


def _scaler(hooks: ModuleTechniques) -> torch.amp.GradScaler:
    """
    Raises:
        ExperimentError: the layout or a technique cannot scale losses.
    """
    layout, device = hooks.context.study.layout, hooks.context.device
    if layout.dimensions or layout.name not in (None, "data"):
        raise ExperimentError(
            "precision float16 scales the loss, which needs the whole gradient on each rank",
            hint="precision: bfloat16, or data parallelism alone",
        )
    for part in hooks.techniques:
        if part.defines("perturbed") or part.defines("communication"):
            raise ExperimentError(
                f"technique {part.label} needs the gradient before it is scaled back, which "
                "precision float16 scales",
                hint="precision: bfloat16",
            )
    return torch.amp.GradScaler(device.type)
