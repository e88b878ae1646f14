"""A training step, written once: of one model (``SingleModel``), and of a stack of them
(``StackedEngine``); and the techniques in it.

A technique that has a hook between the passes of a step sees weights and gradients as those of one
model. ``Hooks`` calls it for a single model as it is, for a stack by ``torch.func.vmap``.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from experiments.engines.half_batch import Observers, half_of
from experiments.engines.randomness import refuse_random_numbers
from experiments.plan import Trial
from experiments.seeds import derive
from experiments.techniques import Step, Techniques
from experiments.training.study_context import StudyContext
from workloads import Batch

HOOKS = ("before_step", "select", "observe", "perturbed", "gradient", "after_step")
"""Those that are called in a step, besides those of the forward pass."""


class Models(abc.ABC):
    """One model in training, or a stack of them.

    Tensors of a stack have the models as first dimension; those of one model are its own.
    """

    stacked: ClassVar[bool]
    context: StudyContext
    hooks: Hooks
    size: int
    """Examples of the global batch of the present steps."""
    share: slice
    """This rank's examples of it."""
    skipped = 0
    """Steps without an update, whose scaled gradient overflowed."""

    def take(self, steps: Sequence[int], batch: Batch) -> None:
        """Train each model on its part of ``batch``, this rank's share of a global batch.

        ``steps``: those that each model has taken before.
        """
        hooks = self.hooks
        hooks.begin([step - self.skipped for step in steps], self.begin(steps))
        hooks.change("before_step")
        examples = None
        if "select" in hooks.defined:
            examples = hooks.select(self.losses(batch))[..., self.share]
        half = self.half_gradient(batch) if hooks.observes() else None
        self.take_gradient(batch, examples)
        if half is not None:
            hooks.observe(half)
        if "perturbed" in hooks.defined:
            trained = {name: weight.clone() for name, weight in self.trained().items()}
            hooks.change("perturbed")
            with self.buffers_kept():
                self.take_gradient(batch, examples)
            self.set_trained(trained)
        if self.unscale_gradient():
            hooks.change("gradient")
            self.update_weights()
            hooks.change("after_step")
        self.finish_step()

    def half_gradient(self, batch: Batch) -> dict[str, Tensor]:
        """The gradient of the mean loss over the first half of each rank's examples."""
        size, share, layout = self.size, self.share, self.context.layout
        self.size = half_of(size, layout.data_ranks)
        part = layout.share(self.size)
        count = part.stop - part.start
        self.share = slice(share.start, share.start + count)
        losses = self.loss_sums().clone()
        with self.buffers_kept():
            self.take_gradient(tuple(x.narrow(int(self.stacked), 0, count) for x in batch), None)
        # Where models are at different steps, it is not due in all of them.
        self.loss_sums().copy_(losses)
        self.size, self.share = size, share
        return {name: gradient.clone() for name, gradient in self.gradients().items()}

    @abc.abstractmethod
    def begin(self, steps: Sequence[int]) -> Tensor | float:
        """Set learning rates, and keys of random numbers, for the step after so many.

        Returns the learning rate of one model, or those of a stack, ``(models, 1)`` float64.
        """

    @abc.abstractmethod
    def losses(self, batch: Batch) -> Tensor:
        """The loss of each example of the global batch, on every rank; without a gradient."""

    @abc.abstractmethod
    def loss_sums(self) -> Tensor:
        """The running sum of all losses, of each model: once not finite, it never is again."""

    @abc.abstractmethod
    def take_gradient(self, batch: Batch, examples: Tensor | None) -> None:
        """Make the gradient that of the mean loss over the global batch, summed over all ranks.

        ``examples``: weights of the examples of ``batch`` in that mean; equal ones unless given.
        """

    def buffers_kept(self) -> contextlib.AbstractContextManager[None]:
        """Behind it, the buffers of a model are as they were."""
        return contextlib.nullcontext()

    def unscale_gradient(self) -> bool:
        """Divide the gradient by what losses were multiplied with; whether it is finite then: if
        not, the step changes no weight."""
        return True

    @abc.abstractmethod
    def update_weights(self) -> None:
        """Let the optimizer change the weights."""

    def finish_step(self) -> None:  # noqa: B027 - a hook
        """Bring up to date what a step changes besides weights."""

    @abc.abstractmethod
    def trained(self) -> dict[str, Tensor]:
        """Trained parameters by name, whole."""

    @abc.abstractmethod
    def gradients(self) -> dict[str, Tensor]:
        """Their gradients by name, whole; without those of parameters that no example used."""

    @abc.abstractmethod
    def set_trained(self, weights: Mapping[str, Tensor]) -> None:
        """Give some trained parameters these whole values."""

    @abc.abstractmethod
    def set_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        """As ``set_trained``."""


class Hooks(Observers):
    """The techniques of ``models``, with their states."""

    def __init__(
        self, models: Models, trials: Sequence[Trial], trained: Mapping[str, Tensor]
    ) -> None:
        """``trained``: the first weights of the models of ``trials``, whole, by name."""
        self.models = models
        self.rows = [models.context.techniques_of(trial) for trial in trials]
        self.techniques = self.rows[0]
        self.defined = {hook for hook in HOOKS if self.techniques.define(hook)}
        self._like = next(iter(trained.values())).new_empty(0)
        self._numbers: dict[str, Any] = {
            "seed": {
                name: self._column([derive(t.seed, "technique", part.label) for t in trials])
                for name, part in self.techniques.parts.items()
            },
            # A stack has the values that the search tunes as tensors, a model by itself as numbers.
            "tuned": {
                name: {
                    argument: self._column(
                        [float(row.tuned[name][argument]) for row in self.rows], self._like.dtype
                    )
                    for argument in arguments
                }
                for name, arguments in self.techniques.tuned.items()
                if models.stacked
            },
        }
        """Of each model, by technique: its seed, and its arguments that the search tunes."""
        self.state: dict[str, Any] = {}
        if self.techniques.parts:
            self.state = self._each(Techniques.start, trained)

    def _column(self, values: Sequence[float], dtype: torch.dtype = torch.int64) -> Tensor:
        """A number of each model."""
        column = torch.tensor(values, dtype=dtype, device=self._like.device)
        return column if self.models.stacked else column[0]

    def _each(
        self, hook: Callable[..., Any], *inputs: Any, numbers: dict[str, Any] | None = None
    ) -> Any:
        """``hook`` of each model's techniques and of its part of ``inputs``."""

        def of_model(tuned: dict[str, Any], *inputs: Any) -> Any:
            return hook(self.techniques.with_arguments(tuned), *inputs)

        tuned = (self._numbers if numbers is None else numbers)["tuned"]
        return (vmap(of_model) if self.models.stacked else of_model)(tuned, *inputs)

    def begin(self, steps: Sequence[int], rates: Tensor | float) -> None:
        """Say which step follows: after how many updates of each model, and with which rates."""
        if not self.defined:
            return
        self._due = self.techniques.due(steps, self.rows)
        if self.defined == {"observe"} and not self.observes():
            return  # no hook is called in this step
        self._first = steps[0]
        rate = torch.as_tensor(rates, dtype=torch.float64).to(self._like)
        self._now = (
            self._column(steps),
            rate.flatten() if self.models.stacked else rate,
            self._numbers["seed"],
        )

    def _in_step(self, hook: Callable[..., Any], *inputs: Any) -> Any:
        """As ``_each``, of a hook that gets the ``Step`` of each technique besides."""

        def with_steps(
            techniques: Techniques, number: Tensor, rate: Tensor, seeds: Any, *inputs: Any
        ) -> Any:
            steps = {
                name: Step(number=number, learning_rate=rate, seed=seed, due=self._due[name])
                for name, seed in seeds.items()
            }
            return hook(techniques, steps, *inputs)

        device = self._like.device
        with torch.no_grad(), refuse_random_numbers(self.techniques, self._first, device):
            return self._each(with_steps, *self._now, *inputs)

    def select(self, losses: Tensor) -> Tensor:
        """The weight of each example of the global batch in the loss, from the losses of all."""
        weights: Tensor = self._in_step(Techniques.select, losses)
        return weights

    def change(self, hook: str) -> None:
        """Let a hook change the weights, or the gradient (``gradient``), in this step."""
        if hook not in self.defined:
            return

        def changed(techniques: Techniques, steps: Any, given: Any, state: Any) -> Any:
            return techniques.changed(hook, *given, state=state, steps=steps), state

        with torch.no_grad():
            weights = self.models.trained()
            given: tuple[Any, ...] = (weights,)
            if hook in ("perturbed", "gradient"):
                gradients = self.models.gradients()
                weights = {name: weights[name] for name in gradients}
                given = (gradients, weights) if hook == "gradient" else (weights, gradients)
            values, self.state = self._in_step(changed, given, self.state)
            put = self.models.set_gradients if hook == "gradient" else self.models.set_trained
            put({n: v for n, v in values.items() if n in given[0] and not _same(v, given[0][n])})

    def evaluated(self, trained: Mapping[str, Tensor], rows: Tensor | None = None) -> Any:
        """The weights that evaluations measure in the place of ``trained``.

        ``rows``: of the models of a stack; all unless given.
        """
        state, numbers = self.state, self._numbers
        if rows is not None:
            state, numbers = (_map(lambda value: value[rows], each) for each in (state, numbers))
        return self._each(Techniques.evaluated, trained, state, numbers=numbers)

    def keep(self, rows: Tensor) -> None:
        """Keep only ``rows`` of a stack."""
        self.rows = [self.rows[row] for row in rows.tolist()]
        self._numbers = _map(lambda value: value[rows], self._numbers)
        self.state = _map(lambda value: value[rows], self.state)

    def add(self, other: Hooks) -> None:
        """Append the rows of ``other``, as the stack does."""
        self.rows += other.rows
        self._numbers = _map(_joined, self._numbers, other._numbers)
        self.state = _map(_joined, self.state, other.state)

    def of_row(self, row: int) -> Any:
        """The state of a row, for ``restore``; the tensors are not copied."""
        return _map(lambda value: value[row], self.state)

    def restore(self, row: int, state: dict[str, Any]) -> None:
        """Set a row to its ``state``."""
        _map(lambda value, saved: value[row].copy_(saved), self.state, state)


def _same(value: Tensor, other: Tensor) -> bool:
    """Whether a hook has returned a tensor as it was."""
    return value.data_ptr() == other.data_ptr() and value.stride() == other.stride()


def _joined(value: Tensor, other: Tensor) -> Tensor:
    return torch.cat([value, other])


def _map(function: Callable[..., Any], *values: Any) -> Any:
    """``function`` of the tensors at each place of nested dictionaries."""
    if not isinstance(values[0], dict):
        return function(*values)
    return {name: _map(function, *(value[name] for value in values)) for name in values[0]}
