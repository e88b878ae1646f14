"""Random numbers of a forward pass (dropout, noise) that depend on the example's place alone.

torch draws a mask for the tensor at hand, so that a batch in two parts, on two workers or in a
stack gets other masks than the whole. Here every number is a hash of the trial's key, the step, the
number of the draw in the forward pass, and the place of its example in the global batch: SplitMix64
(Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), whose integer arithmetic is exact on every
device. While ``ExampleRandomness`` is entered, the functions of torch that draw are replaced by
these numbers; a ``RandomDraws`` says beforehand which dimension of each draw is the batch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from experiments.counter_random import kept
from experiments.engines.random_functions import EMPTY, REPLACED
from experiments.errors import ExperimentError
from experiments.seeds import derive
from experiments.techniques import Techniques
from experiments.training.micro_batch import buffers_kept
from experiments.training.study_context import StudyContext
from workloads import Workload, WorkloadError
from workloads.generated.counters import DRAW, PLACE, mixed, signed
from workloads.ghost import has_batch_norm


def key_of(seed: int, step: int) -> int:
    """The key of a trial's random numbers at one step, 63 bits."""
    return derive(seed, "dropout", step)


def random_state(device: torch.device) -> Tensor:
    """The state of torch's generator of a device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@contextlib.contextmanager
def refuse_random_numbers(
    techniques: Techniques, step: int, device: torch.device
) -> Iterator[None]:
    """Check in the first step that hooks after the forward pass draw no random numbers.

    Raises:
        ExperimentError: they do; a trial that stops and continues would draw other numbers.
    """
    before = random_state(device) if step == 0 else None
    yield
    if before is not None and not torch.equal(before, random_state(device)):
        labels = ", ".join(part.label for part in techniques)
        raise ExperimentError(
            f"technique {labels} draws random numbers in gradient or after_step: they "
            "would differ when a trial stops and continues",
            hint="draw them in batch or loss, where they follow the example",
        )


class Draw(NamedTuple):
    """One draw of a forward pass of ``examples`` examples."""

    shape: tuple[int, ...]
    examples: int
    dim: int | None
    """The dimension that is the batch; ``None``: all examples share the numbers."""
    each: int
    """Entries of that dimension an example: 4 where heads are folded into the batch, else 1."""

    def fits(self, shape: Sequence[int], examples: int) -> bool:
        """Whether a draw of ``shape`` may be this one in a batch of another size."""
        expected = list(self.shape)
        if self.dim is not None:
            expected[self.dim] = self.each * examples
        return expected == list(shape)


@dataclass(frozen=True, kw_only=True)
class RandomDraws:
    """What a training forward of a model draws."""

    draws: tuple[Draw, ...] = ()
    unsupported: str | None = None
    """Why its random numbers cannot be tied to examples: the function that draws otherwise."""
    before: Mapping[str, int] = field(default_factory=dict)
    """Draws before each module of the model is called for the first time, by name; the model itself
    is ``""``."""
    in_model: int = 0
    """Draws until the model's output is there."""

    def __bool__(self) -> bool:
        return bool(self.draws) or self.unsupported is not None

    @classmethod
    def of(
        cls,
        context: StudyContext,
        model: nn.Module,
        workload: Workload | None = None,
        techniques: Techniques | None = None,
    ) -> RandomDraws:
        """Try ``model`` on batches of two sizes; its buffers stay as they are.

        Args:
            workload: as the trial has it, where it tunes fields.
            techniques: as the trial has them.
        """
        workload, techniques = workload or context.workload, techniques or context.techniques
        unit = context.ghost_batch or (32 if has_batch_norm(model) else 1)
        sizes = (2 * unit, 3 * unit)
        with buffers_kept(model):
            recorded = [
                _Recorder.record(context, workload, techniques, model, size) for size in sizes
            ]
        reason = next((each.foreign for each in recorded if each.foreign), None)
        if reason is not None:
            return cls(unsupported=reason)
        first, second = (each.shapes for each in recorded)
        if len(first) != len(second):
            return cls(unsupported="how often it draws depends on the batch")
        draws = [_draw(a, b, sizes) for a, b in zip(first, second, strict=True)]
        if None in draws:
            shape = first[draws.index(None)]
            return cls(unsupported=f"the shape {shape} does not follow the batch size")
        return cls(
            draws=tuple(draw for draw in draws if draw is not None),
            before=recorded[0].before,
            in_model=recorded[0].in_model,
        )

    def first_of(self, modules: Collection[str]) -> int:
        """The number of the draw with which the first of ``modules`` begins."""
        return min((self.before[name] for name in modules if name in self.before), default=0)

    def refuse_stages(self, context: StudyContext) -> None:
        """
        Raises:
            WorkloadError: random numbers are drawn where a pipeline of stages cannot draw them.
        """
        self.refuse_parts(context)
        if len(self.draws) > self.in_model:
            raise WorkloadError(
                f"the loss of {context.workload.name}, or a technique's, draws random numbers, "
                "which a pipeline cannot",
                hint="draw them in the model, or in a technique's batch",
            )

    def refuse_parts(self, context: StudyContext) -> None:
        """
        Raises:
            WorkloadError: the random numbers depend on how the batch is cut up, and it is cut up.
        """
        if self.unsupported is not None:
            raise WorkloadError(
                f"workload {context.workload.name} draws random numbers in its forward pass that "
                f"depend on how a batch is divided ({self.unsupported}), and batch size "
                f"{context.study.batches.largest} is divided over workers or micro-batches",
                hint="use torch.nn.Dropout or torch.nn.functional.dropout there, which follow the "
                "example; or one worker and a micro_batch of the whole batch",
            )

    def drawing(
        self,
        seed: int,
        step: int,
        start: int,
        examples: int,
        device: torch.device,
        places: dict[Any, Tensor],
        *,
        first: int = 0,
        part: tuple[int, int] = (0, 1),
    ) -> contextlib.AbstractContextManager[Any]:
        """The random numbers of one forward pass of a trial.

        Args:
            start: the place of the first of its ``examples`` in the global batch.
            places, first, part: see ``ExampleRandomness``.
        """
        if not self:
            return contextlib.nullcontext()
        if self.unsupported:  # then the batch is one part
            torch.manual_seed(key_of(seed, step))
            return contextlib.nullcontext()
        key = torch.tensor(key_of(seed, step), device=device)
        return ExampleRandomness(self, key, examples, start, places=places, first=first, part=part)


def _draw(first: Sequence[int], second: Sequence[int], sizes: tuple[int, int]) -> Draw | None:
    shape = tuple(first)
    if shape == tuple(second):
        return Draw(shape, sizes[0], None, 1)
    if len(first) != len(second):
        return None
    differ = [i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    dim = differ[0]
    each, rest = divmod(first[dim], sizes[0])
    if len(differ) > 1 or rest or second[dim] != each * sizes[1]:
        return None
    return Draw(shape, sizes[0], dim, each)


class ExampleRandomness(TorchFunctionMode):
    """The numbers of one forward pass: ``with ExampleRandomness(draws, key, …): model(x)``.

    Args:
        key: int64 scalar of the trial and the step; under ``vmap`` the one of each model.
        examples: how many are in this forward pass.
        start: the place of the first of them in the global batch, int64 scalar or integer.
        places: a store for what depends on shapes alone; share it between passes.
        first: the number of the pass's first draw, where it begins inside of the model.
        part: this rank's number, and how many ranks share the activations of an example. A draw
            whose shape is a share of the recorded one in one dimension is that part of it.
    """

    def __init__(
        self,
        draws: RandomDraws,
        key: Tensor,
        examples: int,
        start: Tensor | int = 0,
        *,
        stacked: bool = False,
        places: dict[Any, Tensor] | None = None,
        first: int = 0,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        super().__init__()
        self._draws, self._key = draws.draws, key
        self._examples = examples
        self._start = start
        self._stacked = stacked
        self._places = {} if places is None else places
        self._count, self._part = first, part

    def __torch_function__(
        self, func: Any, types_: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if self._stacked and func in EMPTY:
            # What is filled in place below must hold a number for every model of the stack.
            made = func(*args, **named)
            return made + (self._key * 0).to(made.dtype) if made.is_floating_point() else made
        replacement = REPLACED.get(func)
        if replacement is not None:
            return replacement(self, func, *args, **named)
        return func(*args, **named)

    def hashes(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """64 random bits for each entry of ``shape``, int64."""
        places, key = self._next(shape, device)
        return mixed(places + key)

    def kept(self, shape: Sequence[int], threshold: int, scale: float, like: Tensor) -> Tensor:
        """``scale`` where the upper 24 bits are at least ``threshold``, else 0."""
        places, key = self._next(shape, like.device)
        return kept(places, key, threshold, scale, like.dtype)

    def _next(self, shape: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        """The places of the next draw, and the key of the draw: hashed is the sum of both."""
        draw, whole = self._which(tuple(shape))
        places = self._place(draw, tuple(shape), whole, device)
        offset = self._key + signed(DRAW * (self._count + 1) % 2**64)
        if draw.dim is not None:
            others = math.prod(whole) // max(whole[draw.dim], 1)
            stride = signed(PLACE * draw.each * others % 2**64)
            first = self._start * stride
            offset = offset + (first if isinstance(first, Tensor) else signed(first % 2**64))
        self._count += 1
        return places, offset

    def _which(self, shape: tuple[int, ...]) -> tuple[Draw, tuple[int, ...]]:
        """The draw that was recorded at this place in the pass, and its shape on all ranks; or any
        draw of this shape, since a pass that leaves out layers at random reaches other places."""
        usual = self._draws[self._count : self._count + 1]
        for draws in (usual, self._draws):
            fitting = {
                (d.dim, d.each, whole): (d, whole)
                for d in draws
                for whole in self._wholes(shape)
                if d.fits(whole, self._examples)
            }
            if len(fitting) == 1:
                return next(iter(fitting.values()))
        raise WorkloadError(
            f"the forward pass draws random numbers of shape {shape}, unlike in the trial run",
            hint="draw the same numbers in every training step, in the same order",
        )

    def _wholes(self, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The shapes of which ``shape`` may be this rank's part."""
        yield shape
        ranks = self._part[1]
        for dim in range(len(shape)) if ranks > 1 else ():
            yield (*shape[:dim], shape[dim] * ranks, *shape[dim + 1 :])

    def _place(
        self, draw: Draw, shape: tuple[int, ...], whole: tuple[int, ...], device: torch.device
    ) -> Tensor:
        """Each entry's place times the Weyl constant: example by example, then within it."""
        key = (draw.dim, shape, whole, device)
        if key not in self._places:
            at = torch.arange(math.prod(whole), device=device)
            if draw.dim is None:
                at = at.view(whole)
            else:
                rest = [n for i, n in enumerate(whole) if i != draw.dim]
                at = at.view(whole[draw.dim], *rest).movedim(0, draw.dim)
            for dim, (size, each) in enumerate(zip(whole, shape, strict=True)):
                if each < size:
                    at = at.narrow(dim, self._part[0] * each, each)
            self._places[key] = at * PLACE
        return self._places[key]


class _Recorder(ExampleRandomness):
    """Records the shapes that are drawn, and the first unsupported function that draws."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(RandomDraws(), torch.zeros((), dtype=torch.int64, device=device), 0)
        self._device = device
        self.shapes: list[tuple[int, ...]] = []
        self.before: dict[str, int] = {}
        self.in_model = 0
        self.foreign: str | None = None

    @classmethod
    def record(
        cls,
        context: StudyContext,
        workload: Workload,
        techniques: Techniques,
        model: nn.Module,
        examples: int,
    ) -> _Recorder:
        """One training forward pass and loss of this many examples."""
        recorder = cls(context.device)
        places = torch.arange(examples) % len(context.train)
        batch = context.train.fetch(places, training=True, change=techniques.augmentation(0))
        with torch.random.fork_rng(), torch.no_grad(), context.autocast():
            torch.manual_seed(0)
            before = random_state(recorder._device)
            with recorder, recorder._noting_modules(model):
                techniques.loss(workload, model.train(), batch)
            if recorder.foreign is None and not torch.equal(before, random_state(recorder._device)):
                recorder.foreign = "a function that is not one of torch's"
        return recorder

    @contextlib.contextmanager
    def _noting_modules(self, model: nn.Module) -> Iterator[None]:
        """Note how many draws there were when each module is called, and when the model returns."""

        def entered(name: str, *_: Any) -> None:
            self.before.setdefault(name, len(self.shapes))

        def returned(*_: Any) -> None:
            self.in_model = len(self.shapes)

        modules = list(model.named_modules())
        handles = [
            module.register_forward_pre_hook(partial(entered, name)) for name, module in modules
        ]
        handles.append(model.register_forward_hook(returned))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _next(self, shape: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        self.shapes.append(tuple(shape))
        places = torch.arange(math.prod(shape), device=device).view(tuple(shape)) * PLACE
        return places, places.new_zeros(())

    def __torch_function__(
        self, func: Any, types_: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.foreign is not None or func in REPLACED:
            return super().__torch_function__(func, types_, args, kwargs)
        before = random_state(self._device)
        result = func(*args, **dict(kwargs or {}))
        if not torch.equal(before, random_state(self._device)):
            self.foreign = resolve_name(func) or getattr(func, "__name__", str(func))
        return result
