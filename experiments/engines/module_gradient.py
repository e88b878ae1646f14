"""The gradient of one model's step, and the hooks of a trial's techniques on that model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from experiments.engines.passes import ForwardPasses
from experiments.engines.randomness import refuse_random_numbers
from experiments.errors import ExperimentError
from experiments.techniques import Techniques
from experiments.training.study_context import StudyContext
from workloads import Batch


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
            buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
            self.set_weights(
                self.now.changed("perturbed", weights, gradients, state=self.state, step=made)
            )
        yield
        with torch.no_grad():
            self.set_weights(trained)
            for name, buffer in self.model.named_buffers():
                buffer.copy_(buffers[name])

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
    """The gradient of the mean loss over the global batch, in ``.grad``."""

    def __init__(
        self,
        techniques: ModuleTechniques,
        passes: ForwardPasses,
        losses: Tensor,
    ) -> None:
        """
        Args:
            losses: the running sum of all losses, which is added to.

        Raises:
            ExperimentError: a pipeline cannot do what a technique wants, or the layout or a
                technique cannot scale losses.
        """
        self.scaler = _scaler(techniques) if techniques.context.precision.scales else None
        self.skipped = 0
        """Steps without an update, whose scaled gradient overflowed."""
        self.techniques, self.passes, self.losses = techniques, passes, losses
        self.model, self.layout = techniques.model, techniques.context.layout
        self._parameters = tuple(self.model.parameters())
        if self.layout.staged:
            for part in techniques.techniques:
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
        weights = self._selected(batch, step) if self.techniques.has["select"] else None
        self._gradient(batch, step, weights)
        if self.techniques.has["perturbed"]:
            with self.techniques.perturbed(step):
                self._gradient(batch, step, weights)

    def update(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Let ``optimizer`` and the techniques change the weights; a gradient that is not finite
        is skipped where losses are scaled."""
        if self.scaler is not None and not self._unscaled(self.scaler, optimizer):
            self.skipped += 1
            return
        self.techniques.change_gradient(step)
        optimizer.step()
        self.techniques.change_weights("after_step", step)

    def _unscaled(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
        """Divide the gradient by the scale; whether it is finite."""
        scale = scaler.get_scale()
        scaler.unscale_(optimizer)
        scaler.update()
        return scaler.get_scale() >= scale

    def _gradient(self, batch: Batch, step: int, weights: Tensor | None) -> None:
        scale = None if self.scaler is None else self.scaler.scale
        passes = self.passes.of(batch, step, weights, scale)
        for parameter in self._parameters:
            parameter.grad = None
        self.layout.accumulate(self.model, passes, self.losses)
        self.layout.finish_gradient(self.model)

    @torch.no_grad()
    def _selected(self, batch: Batch, step: int) -> Tensor:
        """The weights of this rank's examples."""
        context, share = self.passes.context, self.passes.context.part(step)
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        parts = [each.loss(self.model) for each in self.passes.of(batch, step)]
        for name, buffer in self.model.named_buffers():
            buffer.copy_(buffers[name])
        of_rank = torch.cat(parts) if parts else self.losses.new_zeros(0)
        losses = of_rank.new_zeros(context.study.batches.size(step))
        losses[share] = of_rank
        losses = self.layout.all_reduce(losses)
        made = torch.tensor(step, device=context.device)
        return self.techniques.techniques.select(losses, made)[share]


def _scaler(techniques: ModuleTechniques) -> torch.amp.GradScaler:
    """
    Raises:
        ExperimentError: the layout or a technique cannot scale losses.
    """
    layout, device = techniques.context.study.layout, techniques.context.device
    if layout.dimensions or layout.name not in (None, "data"):
        raise ExperimentError(
            "precision float16 scales the loss, which needs the whole gradient on each rank",
            hint="precision: bfloat16, or data parallelism alone",
        )
    for part in techniques.techniques:
        if part.defines("perturbed") or part.defines("communication"):
            raise ExperimentError(
                f"technique {part.label} needs the gradient before it is scaled back, which "
                "precision float16 scales",
                hint="precision: bfloat16",
            )
    return torch.amp.GradScaler(device.type)
