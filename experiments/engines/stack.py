"""One gradient of a stack of models, traced once and run many times.

``torch.func`` says what to compute (``vmap`` of ``grad``); tracing it into a graph of plain tensor
operations leaves out the interpreter of function transforms, which costs more than the
arithmetic of a small model.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import workloads
from experiments.engines.metric_sums import OUTPUTS
from experiments.engines.randomness import ExampleRandomness, RandomDraws
from experiments.engines.tracing.sequence_functions import SequenceFunctions
from experiments.engines.tracing.simplify import simplified
from experiments.identity import technique_identity
from experiments.optimizers.stacked_update import ALIGNMENT, ParameterSlice
from experiments.training.study_context import StudyContext
from workloads import Batch

_Trace = tuple[Callable[..., Any], dict[str, int | None]]
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


@dataclass(kw_only=True)
class Stack:
    """The weights and the gradient of ``width`` models, ``(width, size)`` each, and their views."""

    names: list[str]
    shapes: list[torch.Size]
    trainable: list[str]
    weights: Tensor
    gradient: Tensor

    @classmethod
    def of(cls, models: Sequence[nn.Module], width: int) -> Stack:
        """The weights of ``models``; rows up to ``width`` repeat the last one.

        Frozen parameters are at the end of a row, behind what the optimizer updates.
        """
        named = dict(sorted(models[0].named_parameters(), key=lambda n: not n[1].requires_grad))
        first = next(iter(named.values()))
        stack = cls(
            names=list(named),
            shapes=[p.shape for p in named.values()],
            trainable=[n for n, p in named.items() if p.requires_grad],
            weights=first.new_zeros(0),
            gradient=first.new_zeros(0),
        )
        stack.weights = first.detach().new_zeros(width, stack.size)
        stack.gradient = torch.zeros_like(stack.weights)
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
        return self.offsets[-1]

    @property
    def offsets(self) -> list[int]:
        """The offset of each parameter in a row, and the end of the last one."""
        ends = [0]
        for shape in self.shapes:
            ends.append(ends[-1] + -(-shape.numel() // ALIGNMENT) * ALIGNMENT)
        return ends

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

    @property
    def views(self) -> dict[str, Tensor]:
        """Parameters by name, ``(width, *shape)``, sharing memory with ``weights``."""
        return self.views_of(self.weights)

    @property
    def gradient_views(self) -> dict[str, Tensor]:
        """Gradients by name, sharing memory with ``gradient``."""
        return self.views_of(self.gradient)

    def keep(self, rows: Tensor) -> None:
        """Go on with ``rows`` (int64 indices)."""
        self.weights = self.weights[rows]
        self.gradient = torch.zeros_like(self.weights)

    def add(self, other: Stack) -> None:
        """Append the rows of another stack."""
        self.weights = torch.cat([self.weights, other.weights])
        self.gradient = torch.zeros_like(self.weights)

    def cut(self, rows: Tensor) -> dict[str, Tensor]:
        """A copy of the parameters of ``rows`` by name, ``(rows, *shape)``, laid out as here."""
        return self.views_of(self.weights[rows])


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
        self,
        context: StudyContext,
        base: nn.Module,
        stack: Stack,
        draws: RandomDraws,
    ) -> None:
        self.context, self.stack, self.draws = context, stack, draws
        self.loss, self.measured = _Loss(context, base), _Metrics(context, base)
        self.base = base
        self._cached_views: tuple[int, dict[str, Tensor], list[Tensor]] | None = None
        self._graphs: dict[Any, _Trace] = {}
        self._counts: dict[str, int | None] = {}
        self._owner = object()
        self._batch_size = context.study.batch_size
        self._weighted = context.techniques.define("select")
        """Whether the examples have weights in the loss."""

    def _views(self) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Weights by name and the trainable gradients, made again when the stack has moved."""
        if self._cached_views is None or self._cached_views[0] != self.stack.weights.data_ptr():
            gradients = self.stack.gradient_views
            self._cached_views = (
                self.stack.weights.data_ptr(),
                self.stack.views,
                [gradients[n] for n in self.stack.trainable],
            )
        return self._cached_views[1], self._cached_views[2]

    def add_gradient(
        self,
        batch: Batch,
        random: Batch = (),
        batch_size: int | None = None,
        *,
        weights: Tensor | None = None,
        first: bool = False,
    ) -> Tensor:
        """Add each model's gradient of (its loss sum / the global batch) to the stack's.

        Args:
            first: the gradient is the stack's: what that was is overwritten.
            batch: ``(models, examples, …)`` each.
            random: where the models draw random numbers, their keys ``(models,)`` and the place of
                the first example in the global batch, int64.
            batch_size: examples of the global batch; the study's unless given.
            weights: of the examples in the mean loss, where they have some.

        Returns:
            Each model's loss sum, ``(models,)``.
        """
        views, into = self._views()
        self._batch_size = batch_size or self.context.study.batch_size
        if batch[0].shape[1] == 0:
            return torch.zeros(self.stack.width, device=self.context.device)
        batch = batch if weights is None else (*batch, weights)
        graph, _ = self._graph("gradient", self._gradient, views, (*random, *batch))
        *gradients, total = graph(*views.values(), *random, *batch)
        if first:
            torch._foreach_copy_(into, gradients)
        else:
            torch._foreach_add_(into, gradients)
        loss_sums: Tensor = total
        return loss_sums

    def losses(self, batch: Batch, random: Batch = ()) -> Tensor:
        """Each model's loss of each example in training, ``(models, examples)``.

        Args: those of ``add_gradient``.
        """
        views = self._views()[0]
        if batch[0].shape[1] == 0:
            return self.stack.weights.new_zeros(self.stack.width, 0)
        graph, _ = self._graph("losses", self._losses, views, (*random, *batch))
        losses: Tensor = graph(*views.values(), *random, *batch)[0]
        return losses

    def _losses_of_model(self, named: dict[str, Tensor], batch: Batch, random: Batch) -> Any:
        named = {f"model.{k}": v for k, v in named.items()}
        with self._drawing(len(batch[0]), *random), SequenceFunctions():
            return functional_call(self.loss, named, (batch,))

    def _loss_of_model(
        self, trained: dict[str, Tensor], frozen: dict[str, Tensor], batch: Batch, random: Batch
    ) -> Any:
        if self._weighted:
            *rest, weights = batch
            losses = self._losses_of_model(trained | frozen, tuple(rest), random)
            return (losses * weights).sum(), losses.sum()
        total = self._losses_of_model(trained | frozen, batch, random).sum()
        return total / self._batch_size, total

    def _drawing(
        self, examples: int, key: Tensor | None = None, start: Tensor | None = None
    ) -> contextlib.AbstractContextManager[Any]:
        if key is None or start is None:
            return contextlib.nullcontext()
        return ExampleRandomness(self.draws, key, examples, start, stacked=True)

    def _gradient(self, *flat: Tensor) -> list[Tensor]:
        count = len(self.stack.names)
        views = dict(zip(self.stack.names, flat[:count], strict=True))
        trained = {n: views[n] for n in self.stack.trainable}
        frozen = {n: v for n, v in views.items() if n not in trained}
        random, batch, dims = self._random_and_batch(flat[count:])
        each = vmap(grad(self._loss_of_model, has_aux=True), in_dims=(0, 0, 0, dims))
        gradients, total = each(trained, frozen, batch, random)
        return [*(gradients[n] for n in self.stack.trainable), total]

    def _losses(self, *flat: Tensor) -> list[Tensor]:
        count = len(self.stack.names)
        views = dict(zip(self.stack.names, flat[:count], strict=True))
        random, batch, dims = self._random_and_batch(flat[count:])
        with torch.no_grad():
            return [vmap(self._losses_of_model, in_dims=(0, 0, dims))(views, batch, random)]

    def _random_and_batch(self, flat: Batch) -> tuple[Batch, Batch, tuple[int | None, ...]]:
        """With the dimensions of the first that are the models: keys are the models' own; the
        place of the first example is that of all."""
        drawn = 2 if self.draws else 0
        return flat[:drawn], flat[drawn:], (0, None)[:drawn]

    def metrics(self, batch: Batch, views: dict[str, Tensor] | None = None) -> dict[str, Any]:
        """Each model's metrics on one batch that all share.

        Args:
            views: the models' parameters (``Stack.cut``); those of the whole stack unless given.

        Returns:
            Per metric ``(models, examples)`` values, or a pair of ``(models,)`` sums and a count;
            and the models' outputs, where the workload has metrics of a whole split.
        """
        views = self._views()[0] if views is None else views
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
                self._counts[name] = _EACH if each else None if pair[1] is None else int(pair[1])
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
            json.dumps(workloads.identity(context.workload), sort_keys=True),
            json.dumps(technique_identity(study.technique, study.workload.base), sort_keys=True),
            study.technique_steps if context.techniques.uses_budget else None,
            context.device,
            context.dtype,
        )

    def _graph(
        self, what: str, function: Callable[..., Any], views: dict[str, Tensor], batch: Batch
    ) -> _Trace:
        """``function`` traced for these shapes: from this process's store if it has it."""
        shapes = tuple((x.shape, x.dtype) for x in batch)
        size = self._batch_size if what == "gradient" else None
        models = len(next(iter(views.values())))
        local_key = (what, models, shapes, size, self._weighted)
        if local_key in self._graphs:
            return self._graphs[local_key]
        key = (*local_key, *self.identity)
        if key not in _traces:
            with torch.enable_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                traced = make_fx(function)(*views.values(), *batch)
            _traces[key] = (simplified(traced), self._counts)
            while len(_traces) > _TRACES:
                _traces.popitem(last=False)
        _traces.move_to_end(key)
        self._graphs[local_key] = _traces[key]
        return _traces[key]
