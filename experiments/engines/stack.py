"""One gradient of a stack of models, traced once and run many times.

``torch.func`` says what to compute (``vmap`` of ``grad``); tracing it into a graph of plain tensor
operations leaves out the interpreter of function transforms, which costs more than the
arithmetic of a small model.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from experiments.engines.metric_sums import OUTPUTS
from experiments.engines.randomness import ExampleRandomness, RandomDraws
from experiments.engines.tracing.sequence_functions import SequenceFunctions
from experiments.engines.tracing.simplify import simplified
from experiments.optimizers.stacked_update import ALIGNMENT, ParameterSlice
from experiments.training.study_context import StudyContext
from workloads import Batch

_Trace = tuple[Callable[..., Any], dict[str, float | None]]
"""A traced function, and the counts of the metrics it returns (``None``: one value an example;
``_EACH``: a sum and a count of each example)."""
_EACH = -1
_TRACES = 64
_traces: OrderedDict[Any, _Trace] = OrderedDict()


def width_of(models: int) -> int:
    """The least stack width of the ladder 2, 3, 4, 6, 8, 12, 16, 24 … that holds ``models``.

    At least 2: kernels treat a stack of one differently, and a trial's bits would show it.
    """
    width = 2
    while width < models:
        if width + width // 2 >= models and width + width // 2 > width:
            return width + width // 2
        width *= 2
    return width


def offsets_of(shapes: Sequence[torch.Size]) -> list[int]:
    """The offset of each parameter in a row, and the end of the last one."""
    ends = [0]
    for shape in shapes:
        ends.append(ends[-1] + -(-shape.numel() // ALIGNMENT) * ALIGNMENT)
    return ends


@dataclass(kw_only=True)
class Stack:
    """The weights and the gradient of ``width`` models, ``(width, size)`` each."""

    names: list[str]
    shapes: list[torch.Size]
    trainable: list[str]
    weights: Tensor
    losses: Tensor
    """Running sum of each model's losses, float64: once it is not finite, it never is again."""
    gradient: Tensor = field(init=False)
    views: dict[str, Tensor] = field(init=False)
    """Parameters by name, ``(width, *shape)``, sharing memory with ``weights``."""
    gradient_views: dict[str, Tensor] = field(init=False)
    """Gradients by name, sharing memory with ``gradient``."""

    def __post_init__(self) -> None:
        self._hold(self.weights, self.losses)

    def _hold(self, weights: Tensor, losses: Tensor) -> None:
        self.weights, self.losses, self.gradient = weights, losses, torch.zeros_like(weights)
        self.views, self.gradient_views = map(self.views_of, (weights, self.gradient))

    @classmethod
    def of(cls, models: Sequence[nn.Module], width: int) -> Stack:
        """The weights of ``models``; rows up to ``width`` repeat the last one.

        Frozen parameters are at the end of a row, behind what the optimizer updates.
        """
        named = dict(sorted(models[0].named_parameters(), key=lambda n: not n[1].requires_grad))
        shapes = [p.shape for p in named.values()]
        zeros = next(iter(named.values())).detach().new_zeros
        stack = cls(
            names=list(named),
            shapes=shapes,
            trainable=[n for n, p in named.items() if p.requires_grad],
            weights=zeros(width, offsets_of(shapes)[-1]),
            losses=zeros(width, dtype=torch.float64),
        )
        for row in range(width):
            model = models[min(row, len(models) - 1)]
            for name, p in model.named_parameters():
                stack.views[name][row].copy_(p.detach())
        return stack

    @property
    def width(self) -> int:
        """Number of rows."""
        return len(self.weights)

    @property
    def size(self) -> int:
        """Numbers in a row, padding included."""
        return self.weights.shape[1]

    @property
    def offsets(self) -> list[int]:
        """See ``offsets_of``."""
        return offsets_of(self.shapes)

    @property
    def trained_size(self) -> int:
        """Numbers in a row without those of frozen parameters, padding included."""
        return self.offsets[len(self.trainable)]

    @property
    def slices(self) -> list[ParameterSlice]:
        """Where each trainable parameter is in a row."""
        places = zip(self.names, self.offsets, self.shapes, strict=False)
        return [ParameterSlice(*place) for place in places if place[0] in self.trainable]

    def views_of(self, of: Tensor) -> dict[str, Tensor]:
        """The parts of ``(models, size)`` by parameter, ``(models, *shape)``."""
        views = {}
        for name, shape, start in zip(self.names, self.shapes, self.offsets, strict=False):
            flat = of[:, start : start + shape.numel()]
            views[name] = flat.view(len(of), *shape)
        return views

    def keep(self, rows: Tensor) -> None:
        """Go on with ``rows`` (int64 indices)."""
        self._hold(self.weights[rows], self.losses[rows])

    def add(self, other: Stack) -> None:
        """Append the rows of another stack."""
        losses = torch.cat([self.losses, other.losses])
        self._hold(torch.cat([self.weights, other.weights]), losses)


def copy_into(views: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy by name."""
    if values:
        torch._foreach_copy_([views[name] for name in values], list(values.values()))


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


class _Loss(nn.Module):
    """The workload's forward and loss as a module, so that ``functional_call`` reaches it."""

    def __init__(self, context: StudyContext, model: nn.Module) -> None:
        super().__init__()
        self.context, self.model = context, model

    def forward(self, batch: Batch) -> Tensor:
        with self.context.autocast():
            return self.context.techniques.loss(self.context.workload, self.model, batch)


class _Metrics(_Loss):
    def forward(self, batch: Batch) -> Any:
        with self.context.autocast():
            workload = self.context.workload
            techniques = self.context.techniques
            output = techniques.output(workload, self.model, batch)
            metrics = techniques.metrics(
                workload.metrics(output, batch), workload, self.model, batch
            )
            return {**metrics, OUTPUTS: output} if workload.measures_split else metrics


class StackedStep:
    """Gradients and metrics of the models in ``stack``."""

    def __init__(
        self, context: StudyContext, base: nn.Module, stack: Stack, draws: RandomDraws, micro: int
    ) -> None:
        """
        Args:
            base: a model of the stack's shape.
            draws: what a forward pass draws.
            micro: most examples of a model in one forward pass of training.
        """
        self.context, self.stack, self.draws, self.micro = context, stack, draws, micro
        self.loss, self.measured = _Loss(context, base), _Metrics(context, base)
        self.base = base
        self._counts: dict[str, float | None] = {}
        self._owner = object()
        self._weighted = context.techniques.define("select")
        """Whether the examples have weights in the loss."""
        self._places: dict[int, Tensor] = {}
        """Places of examples as tensors: a captured step makes none."""

    def take_gradient(
        self,
        batch: Batch,
        batch_size: int,
        keys: Tensor | None = None,
        start: int = 0,
        weights: Tensor | None = None,
    ) -> None:
        """Make the stack's gradient each model's of (its loss sum / the global batch), and add the
        loss sums to its losses.

        Args:
            batch: this rank's share, ``(models, examples, …)`` each.
            batch_size: examples of the global batch.
            keys: of the models' random numbers in this step, int64, where they draw some.
            start: the place of the share's first example in the global batch.
            weights: of the examples in the mean loss, where they have some.
        """
        views = self.stack.views
        into = [self.stack.gradient_views[name] for name in self.stack.trainable]
        if batch[0].shape[1] == 0:
            self.stack.gradient.zero_()
        gradient = partial(self._gradient, batch_size)
        batch = batch if weights is None else (*batch, weights)
        for low, part in self._parts(batch):
            given = (*self._random(keys, start + low), *part)
            graph, _ = self._graph(("gradient", batch_size), gradient, views, given)
            *gradients, total = graph(*views.values(), *given)
            if low == 0:
                torch._foreach_copy_(into, gradients)
            else:
                torch._foreach_add_(into, gradients)
            self.stack.losses.add_(total)

    def losses(self, batch: Batch, keys: Tensor | None = None, start: int = 0) -> Tensor:
        """Each model's loss of each example in training, ``(models, examples)``.

        Args: those of ``take_gradient``.
        """
        views = self.stack.views
        parts = [self.stack.weights.new_zeros(self.stack.width, 0)]
        for low, part in self._parts(batch):
            given = (*self._random(keys, start + low), *part)
            graph, _ = self._graph("losses", self._losses, views, given)
            parts += graph(*views.values(), *given)
        return torch.cat(parts, dim=1)

    def _parts(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """The micro-batches, each with the place of its first example."""
        examples = batch[0].shape[1]
        for low in range(0, examples, self.micro):
            whole = examples <= self.micro
            yield low, batch if whole else tuple(x[:, low : low + self.micro] for x in batch)

    def _random(self, keys: Tensor | None, start: int) -> Batch:
        if keys is None:
            return ()
        if start not in self._places:
            self._places[start] = torch.tensor(start, device=keys.device)
        return keys, self._places[start]

    def _losses_of_model(self, named: dict[str, Tensor], batch: Batch, random: Batch) -> Any:
        named = {f"model.{k}": v for k, v in named.items()}
        drawing: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if random:
            key, start = random
            drawing = ExampleRandomness(self.draws, key, len(batch[0]), start, stacked=True)
        with drawing, SequenceFunctions():
            return functional_call(self.loss, named, (batch,))

    def _gradient(self, batch_size: int, *flat: Tensor) -> list[Tensor]:
        def loss_of_model(
            trained: dict[str, Tensor], frozen: dict[str, Tensor], batch: Batch, random: Batch
        ) -> Any:
            weights = None
            if self._weighted:
                *rest, weights = batch
                batch = tuple(rest)
            losses = self._losses_of_model(trained | frozen, batch, random)
            total = losses.sum()
            return total / batch_size if weights is None else (losses * weights).sum(), total

        views, batch, random, dims = self._unpacked(flat)
        trained = {n: views.pop(n) for n in self.stack.trainable}
        each = vmap(grad(loss_of_model, has_aux=True), in_dims=(0, 0, 0, dims))
        gradients, total = each(trained, views, batch, random)
        return [*(gradients[n] for n in self.stack.trainable), total]

    def _losses(self, *flat: Tensor) -> list[Tensor]:
        views, batch, random, dims = self._unpacked(flat)
        with torch.no_grad():
            return [vmap(self._losses_of_model, in_dims=(0, 0, dims))(views, batch, random)]

    def _unpacked(
        self, flat: Batch
    ) -> tuple[dict[str, Tensor], Batch, Batch, tuple[int | None, ...]]:
        """Parameters by name, the batch, the keys of random numbers with the place of the first
        example, and the dimension of each of the two that is the models."""
        count, drawn = len(self.stack.names), 2 if self.draws else 0
        views = dict(zip(self.stack.names, flat[:count], strict=True))
        return views, flat[count + drawn :], flat[count : count + drawn], (0, None)[:drawn]

    def metrics(self, batch: Batch, views: dict[str, Tensor] | None = None) -> dict[str, Any]:
        """Each model's metrics on one batch that all share.

        Args:
            views: the models' parameters (``Stack.views_of``); the stack's unless given.

        Returns:
            Per metric ``(models, examples)`` values, or a pair of ``(models,)`` sums and a count;
            and the models' outputs, where the workload has metrics of a whole split.
        """
        views = self.stack.views if views is None else views
        graph, counts = self._graph("metrics", self._metrics, views, batch)
        values = graph(*views.values(), *batch)
        pairs = zip(counts.items(), values, strict=True)
        return {
            name: value
            if count is None
            else tuple(value.unbind(1))
            if count < 0
            else (value, count)
            for (name, count), value in pairs
        }

    def _metrics(self, *flat: Tensor) -> list[Tensor]:
        number = len(self.stack.names)
        batch = flat[number:]

        def of_model(*parameters: Tensor) -> list[Tensor]:
            named = zip(self.stack.names, parameters, strict=True)
            with SequenceFunctions():
                metrics = functional_call(
                    self.measured, {f"model.{k}": v for k, v in named}, (batch,)
                )
            # What is not a tensor, a count, leaves here: it is the same for every model.
            self._counts, plain = {}, []
            for name, value in metrics.items():
                pair = value if isinstance(value, tuple) else (value, None)
                each = torch.is_tensor(pair[1]) and pair[1].dim() > 0
                plain.append(torch.stack([x.to(_wide(x)) for x in pair]) if each else pair[0])
                self._counts[name] = _EACH if each else None if pair[1] is None else float(pair[1])
            return [torch.as_tensor(v) for v in plain]

        self.base.eval()
        metrics = list(vmap(of_model)(*flat[:number]))
        self.base.train()
        return metrics

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """What has the same computes the same of equal shapes: a key of this process."""
        context, study = self.context, self.context.study
        # A model's buffers are constants of the trace, so only models without any share one.
        # So are tensors that techniques have prepared; the packs of a study share those.
        owner = self._owner if dict(self.base.named_buffers()) else context.techniques.prepared
        return (
            owner,
            *context.identity,
            study.technique_steps if context.techniques.uses_budget else None,
            context.device,
            context.dtype,
        )

    def _graph(
        self, what: Any, function: Callable[..., Any], views: dict[str, Tensor], batch: Batch
    ) -> _Trace:
        """``function``, which ``what`` names, traced for these shapes: once in a process."""
        shapes = tuple((x.shape, x.dtype) for x in batch)
        key = (what, len(next(iter(views.values()))), shapes, *self.identity)
        if key not in _traces:
            with torch.enable_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                traced = make_fx(function)(*views.values(), *batch)
            _traces[key] = (simplified(traced), self._counts)
            while len(_traces) > _TRACES:
                _traces.popitem(last=False)
        _traces.move_to_end(key)
        return _traces[key]
