"""Measures the gradient noise scale while a model is trained, in anybody's loop."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from batchscale.noise.dual import DIRECTIONS, Halves, bounded
from batchscale.noise.gradients import adam_divisor, layers_of, local, of_examples, squared
from results.noise_estimate import NoiseEstimate, estimate

_EXCESS = 1.05
"""A mean gradient is at most as long as the root mean square of its parts, but for rounding."""
_RAISED = "step: one of its micro-batches has raised"
_UNSEEN = 0.1
"""What share of a layer's squared gradient may be rounding, in the narrowest types."""


class NoiseScale:
    """The gradient noise scale ``tr(Σ) / |G|²`` of a model in training (McCandlish et al. 2018,
    arXiv:1812.06162), from gradients at two batch sizes: micro-batches, and the batch of a step.

    **It is not the critical batch size.** It predicts one under assumptions that need not hold. A
    sweep measures that.

    ::

        noise = batchscale.NoiseScale(model)
        for batch in data:
            for part in batch.chunk(4):
                with noise.micro_batch(len(part)):
                    loss(model(part)).backward()
            noise.step()  # before clipping, unscaling and the optimizer's step
            optimizer.step()
            optimizer.zero_grad()
        print(noise.estimate())

    Steps may be left out: they take neither ``micro_batch`` nor ``step``. After an error within a
    micro-batch, such as for want of memory, ``zero_grad()`` ends the step too.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        per_example: bool = False,
        norm: str = "euclidean",
        window: int | None = None,
        tokens_per_example: int | None = None,
        group: Any = None,
    ) -> None:
        """Watch the gradients of ``model``.

        Args:
            model: what is trained. A ``DistributedDataParallel`` is given itself, not its module:
                one micro-batch on each of two ranks is then enough. Of a model that
                ``fully_shard`` (FSDP2) has sharded, a micro-batch is that of all ranks together.
            optimizer: an Adam-like one, for ``estimate(preconditioned=True)``.
            per_example: take single examples as the small batches, so that a step may be one
                micro-batch. Exact where all parameters are those of ``Linear``, ``Embedding``,
                ``LayerNorm`` and ``RMSNorm``, each called once in a forward pass with the examples
                along the first dimension, and the loss is a mean over examples.
            norm: ``sign``, of Signum and Lion, or ``spectral``, of Muon: what is estimated is N² /
                ``‖G‖*²`` in their dual norm, the batch size at which noise and gradient are equal
                in it, by a definition and an estimator of our own, which may be off by more than
                the interval (docs/noise.md). It keeps a copy of the gradient.
            window: how many steps an estimate is of, the last ones; None: all.
            tokens_per_example: of a sequence, for ``estimate(unit="tokens")``.
            group: the processes that average gradients, if not by ``DistributedDataParallel``.

        Raises:
            ValueError: a model or an optimizer that cannot be measured so.
        """
        self._parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not self._parameters:
            raise ValueError("the model has no parameters to train")
        self._group, self._ranks, self._sharded = _ranks(model, group)
        if self._sharded and per_example:
            raise ValueError("per_example: not of sharded parameters: split each batch")
        self._optimizer, self._groups = optimizer, dict[Tensor, Any]()
        if optimizer is not None:
            if per_example or not {"betas", "eps"} <= {*optimizer.defaults}:
                raise ValueError("optimizer: an Adam-like one, and without per_example")
            self._groups = {p: g for g in optimizer.param_groups for p in g["params"]}
        if norm not in ("euclidean", *DIRECTIONS):
            raise ValueError(f"norm: euclidean, {' or '.join(DIRECTIONS)}, not {norm}")
        if norm in DIRECTIONS and (per_example or optimizer is not None or self._sharded):
            raise ValueError(f"norm={norm}: without per_example, optimizer and sharded parameters")
        self._halves = Halves(norm, self._group, self._ranks) if norm in DIRECTIONS else None
        self._bounds: deque[tuple[float, float]] = deque(maxlen=window)  # of a dual norm
        self._tokens_per_example = tokens_per_example
        self._layers = layers_of(model) if per_example else {}
        self._whole = {name: [0.0, 0.0] for name in self._layers}
        """Of layers not checked yet: the squared gradient, by their parameters and by outputs."""
        self._examples: int | None = None  # of the micro-batch that is open
        self._squares: dict[str, Tensor] = {}  # of its gradient, by parameter or layer
        self._parts: list[Tensor] = []  # of the micro-batches of this step, their sums
        self._versions: list[int] = []  # of the gradient after the last of them
        self._error = ""
        self._unready = False
        self._skipped = 0
        self._rows: deque[list[tuple[float, float]]] = deque(maxlen=window)
        self._hooks: list[Any] = []
        for name, parameter in self._parameters.items():
            self._hooks.append(parameter.register_hook(partial(self._on_gradient, name)))
            accumulated = partial(self._on_accumulated, name)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(accumulated))
        for name, layer in self._layers.items():
            self._hooks.append(layer.register_forward_hook(partial(self._on_forward, name)))

    def __deepcopy__(self, memo: Any) -> NoiseScale:
        """A copy of the model, such as an average of its weights, has the same hooks."""
        return self

    @contextmanager
    def micro_batch(self, examples: int, *, scale: float = 1.0) -> Iterator[None]:
        """Forward and one backward pass of examples of a step, drawn independently.

        Args:
            examples: how many. A sequence is one: its tokens are not independent.
            scale: by what the mean loss of these examples is multiplied: 1 if it is not, 1 / N if
                it is divided by the number of micro-batches, ``examples`` if it is a sum, times
                ``GradScaler.get_scale()``. If a factor that is the same in all steps is left out,
                the terms are wrong, and their ratio is right.

        Raises:
            ValueError: none or several backward passes, or a gradient that is left from before.
        """
        if self._examples is not None or examples < 1 or not 0 < scale < math.inf:
            raise ValueError("micro_batch: examples and scale are above 0, and none is in another")
        empty = all(p.grad is None for p in self._parameters.values())
        # Within a step, nothing waits for a device unless the gradient was changed.
        if not empty and (not self._parts or self._changes() != self._versions):
            empty = float(self._gradient()[0]) == 0
        if empty and self._error == _RAISED:
            self._parts = []
        if not self._parts:
            self._error, self._unready = "", False
            if self._halves is not None:
                self._halves.begin()
        if empty == bool(self._parts):
            raise ValueError("micro_batch: call step(), then zero_grad(), at the end of each step")
        self._examples, self._squares = examples, {}
        self._whole = {name: [0.0, 0.0] for name in self._whole}
        before = self._hold() if self._sharded else {}
        try:
            yield
        except BaseException:
            self._error = _RAISED
            raise
        finally:
            self._examples = None
            self._put_back(before)
            self._versions = self._changes()
        if self._error or not self._squares:
            why = ", or FSDP was told not to reduce its gradient" if self._sharded else ""
            raise ValueError(self._error or f"micro_batch: no backward pass in it{why}")
        squares = _sum(self._squares.values())
        if self._sharded:
            own = squares.new_tensor([scale, scale**2 / examples])
            self._parts.append(torch.cat([own, squares]))
            return
        if self._halves is not None:
            self._halves.end(scale, examples)
        small = examples if self._layers else 1  # how many small batches it is
        terms = [scale, scale**2 / examples, scale * small / examples]
        self._parts.append(torch.cat([squares.new_tensor(terms), squares * (small / scale)]))
        self._check_layers()

    def step(self) -> None:
        """End a step. The gradient is whole, averaged over ranks, and neither clipped nor unscaled.

        A step whose gradient is not finite, such as a ``GradScaler`` skips, is left out.

        Raises:
            ValueError: a single small batch, or a gradient that is not that of the micro-batches.
        """
        parts, self._parts = self._parts, []
        if self._error or not parts:
            raise ValueError(self._error or "step: no micro_batch before it")
        gradient = self._gradient()
        if self._sharded:
            parts, gradient = self._over_ranks(parts, gradient)
        sums = torch.stack(parts).sum(0)
        if self._ranks > 1 and not self._sharded:
            dist.all_reduce(sums, group=self._group)
        # The step's gradient is a mean over small batches, weighted by scale, with noise `whole`
        # tr(Σ). The mean |g|² of small batches, with the same weights, has `small` tr(Σ) of noise.
        weight, whole, small, *squares = sums.tolist()
        whole, small, squares = whole / weight**2, small / weight, [s / weight for s in squares]
        norms = [norm * (self._ranks / weight) ** 2 for norm in gradient.tolist()]
        if small - whole < 1e-9 * small:
            raise ValueError("step: a single small batch: split it, or give per_example=True")
        if not all(map(math.isfinite, [*norms, *squares])):
            self._skipped += 1
            return
        if norms[0] == 0 < squares[0]:
            raise ValueError("step: the gradient was zeroed; call it before zero_grad()")
        if norms[0] > _EXCESS * squares[0]:
            raise ValueError("step: the gradient has more in it than its micro-batches; see scale=")
        if self._halves is not None:
            gradients = {n: p.grad for n, p in self._parameters.items() if p.grad is not None}
            row, bounds = self._halves.terms(gradients, weight, whole * weight**2)
            self._rows.append([row])
            self._bounds.append(bounds)
            return
        traces = [(s - n) / (small - whole) for s, n in zip(squares, norms, strict=True)]
        terms = [(s - small * trace, trace) for s, trace in zip(squares, traces, strict=True)]
        self._rows.append(terms[:1] if self._unready else terms)

    def estimate(self, *, preconditioned: bool = False, unit: str = "examples") -> NoiseEstimate:
        """The noise scale of the window: the mean of tr(Σ) over its steps by that of ``|G|²``,
        or of N² by that of ``‖G‖*²``.

        Args:
            preconditioned: of the gradient divided by sqrt(second moment) + eps, both of the
                optimizer's state before the step.
            unit: ``examples``, or ``tokens``: times ``tokens_per_example``.

        Raises:
            ValueError: nothing that it can be of was measured.
        """
        tokens = {"examples": None, "tokens": self._tokens_per_example}.get(unit)
        if tokens is None and unit != "examples":
            raise ValueError("unit: examples, or tokens by NoiseScale(tokens_per_example=…)")
        rows = [(1, *row[preconditioned]) for row in self._rows if len(row) > preconditioned]
        if not rows:
            why = " with the optimizer's second moments" if preconditioned else ""
            raise ValueError(f"estimate: no step was measured{why}")
        given = estimate(rows, tokens_per_example=tokens, skipped=self._skipped)
        if self._halves is not None:
            given = bounded(given, self._halves.norm, self._bounds, tokens or 1)
        return given

    def remove(self) -> None:
        """Watch the model no longer."""
        for hook in self._hooks:
            hook.remove()

    def _gradient(self) -> Tensor:
        """The squared norm of the gradient that the optimizer will see, and its preconditioned."""
        gradients = {name: p.grad for name, p in self._parameters.items()}
        norms = [self._norms(name, g) for name, g in gradients.items() if g is not None]
        if not norms:
            raise ValueError("step: no gradient; call it before zero_grad()")
        return _sum(norms)

    def _changes(self) -> list[int]:
        """How often each gradient was changed in place."""
        return [p.grad._version for p in self._parameters.values() if p.grad is not None]

    def _hold(self) -> dict[str, Tensor]:
        """The shards of the gradient so far, which leave their place for a micro-batch's."""
        held = {name: p.grad for name, p in self._parameters.items() if p.grad is not None}
        for name in held:
            self._parameters[name].grad = None
        return held

    def _put_back(self, before: dict[str, Tensor]) -> None:
        """Take the squares of a micro-batch's shards, and add these to those ``before``."""
        for name in self._squares if self._sharded else ():
            gradient = self._parameters[name].grad
            assert gradient is not None  # it was accumulated
            self._squares[name] = self._norms(name, gradient)
        for name, gradient in before.items():
            parameter = self._parameters[name]
            parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)

    def _over_ranks(self, parts: list[Tensor], gradient: Tensor) -> tuple[list[Tensor], Tensor]:
        """The parts of all ranks together, and the gradient's squares, by one sum over the ranks.

        Each part is [S, Q, squares], with S and Q the ranks' sums of scale and scale² / examples:
        its gradient is their mean, that of S² / Q examples times S / ranks.
        """
        rows = torch.stack([*parts, torch.cat([gradient.new_zeros(2), gradient])])
        dist.all_reduce(rows, group=self._group)
        scale, noise = rows[:-1, :1], rows[:-1, 1:2]
        squares = rows[:-1, 2:] * self._ranks**2 / scale
        return [*torch.cat([scale, noise, noise / scale, squares], 1)], rows[-1, 2:]

    def _norms(self, name: str, gradient: Tensor) -> Tensor:
        """|g|² of a parameter's gradient, or of this rank's shard of it, and, with an optimizer, of
        the preconditioned."""
        gradient = local(gradient)
        norms = [squared(gradient)]
        if self._optimizer is not None:
            parameter = self._parameters[name]
            state = self._optimizer.state.get(parameter, {})
            divisor = adam_divisor(state, self._groups.get(parameter, {}))
            self._unready |= divisor is None
            norms.append(
                norms[0] if divisor is None else squared(gradient.to_dense() / local(divisor))
            )
        return torch.stack(norms)

    def _on_gradient(self, name: str, gradient: Tensor) -> None:
        """Of a parameter, by one backward pass, on this rank alone."""
        if self._examples is None:
            return
        if self._halves is not None:
            self._halves.add(name, gradient)
        if not self._layers:
            self._add(name, self._norms(name, gradient))
        elif (layer := name.rpartition(".")[0]) in self._whole:
            self._whole[layer][0] += float(squared(gradient))

    def _on_accumulated(self, name: str, parameter: Tensor) -> None:
        if self._examples is None and self._parts:
            self._error = "step: a backward pass outside of micro_batch added to the gradient"
        elif self._examples is not None and self._sharded:  # its squares are taken at the end
            self._add(name, parameter)

    def _on_forward(self, name: str, _: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
        if self._examples is None or not out.requires_grad:
            return
        shape = tuple(given[0].shape)
        if len(shape) < 2 or shape[0] != self._examples:  # of an index: (examples, tokens)
            call = f"micro_batch({self._examples})"
            raise ValueError(f"per_example: {name} gets {shape}, not (examples, …) as in {call}")
        out.register_hook(partial(self._on_output, name, given[0].detach()))

    def _on_output(self, name: str, x: Tensor, gradient: Tensor) -> None:
        layer = self._layers[name]
        self._add(name, of_examples(layer, x, gradient).sum()[None])
        if name in self._whole:  # all examples, as tokens of a single one
            self._whole[name][1] += float(of_examples(layer, x[None], gradient[None]))

    def _add(self, name: str, norms: Tensor) -> None:
        if name in self._squares:
            self._error = f"micro_batch: a second gradient of {name}; one backward pass in each"
        self._squares[name] = norms

    def _check_layers(self) -> None:
        """Once it is not zero, as behind weights of zero: the gradient of each layer is that of its
        output, and none of a use elsewhere."""
        for name, (whole, explained) in self._whole.items():
            if abs(whole - explained) > _UNSEEN * whole:
                raise ValueError(f"per_example: the weights of {name} are used elsewhere too")
        self._whole = {n: each for n, each in self._whole.items() if not 0 < each[0] < math.inf}


def _sum(norms: Iterable[Tensor]) -> Tensor:
    """Over parameters or layers, wherever they are; one wait for a device."""
    each = list(norms)
    return torch.stack([norm.to(each[0].device) for norm in each]).sum(0)


def _ranks(model: nn.Module, group: Any) -> tuple[Any, int, bool]:
    """The processes that average their gradients, how many they are, and whether each has a shard
    of every parameter."""
    modules, parameters = list(model.modules()), list(model.parameters())
    if any(type(m).__name__ == "FullyShardedDataParallel" for m in modules):
        raise ValueError("FSDP1 is not measured: shard the model with fully_shard (FSDP2)")
    if meshes := {p.device_mesh for p in parameters if hasattr(p, "device_mesh")}:
        # That of a parameter that is not sharded is empty.
        placed: list[Any] = [getattr(p, "placements", ()) for p in parameters]
        fsdp = any(hasattr(m, "set_requires_gradient_sync") for m in modules)
        shards = all(len(each) == 1 and each[0].is_shard() for each in placed)
        if len(meshes) > 1 or not (fsdp and shards):
            raise ValueError(
                "sharded parameters are measured if fully_shard alone shards all of them, on one "
                "mesh of one dimension"
            )
        (mesh,) = meshes
        return mesh.get_group(), mesh.size(), True
    groups = [m.process_group for m in modules if isinstance(m, DistributedDataParallel)]
    group = groups[0] if groups else group
    if not (dist.is_available() and dist.is_initialized()):
        return None, 1, False
    ranks = dist.get_world_size(group)
    if group is None and ranks > 1:
        raise ValueError("several processes: give the DistributedDataParallel itself, or group=")
    return group, ranks, False
