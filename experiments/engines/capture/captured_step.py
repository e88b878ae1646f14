"""A step that is recorded once and replayed many times: CUDA graphs behind one interface.

A small model's step is dozens of kernels of a few microseconds each, and a processor takes as long
to launch one. A graph launches all of them at once. What is recorded is which kernels run on which
memory, so that a step must keep these rules, which tests hold on a CPU too, by a recorder that
replays the operations of torch:

- All that changes from step to step is in tensors that stay where they are (``StepInputs``); a
  number of Python's is recorded as it was.
- Nothing is read on the host, and no shape depends on a tensor's numbers.
- No tensor that is made in the step is used after it: the memory is that of all graphs together,
  which is safe in any order since they are replayed one at a time.
"""

from __future__ import annotations

import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from experiments.engines.capture.rules import CaptureError, Checked

_WARM_UP = 10
"""Steps that are taken before one is recorded: libraries choose kernels and take memory there. To
record a step takes longer than a few of them. The last one is checked (``rules``)."""
_PROGRAMS = 16
"""Programs that a process keeps."""


class Graph(Protocol):
    """Recorded work."""

    def record(self, work: Callable[[], None]) -> None:
        """Record ``work``, whose operations are not executed."""

    def replay(self) -> None:
        """Execute it, on the present contents of the memory that it was recorded with."""


class CUDAGraph:
    """``torch.cuda.CUDAGraph``."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._graph = device, torch.cuda.CUDAGraph()

    def record(self, work: Callable[[], None]) -> None:
        """See ``Graph``. Other threads may go on using the device."""
        pool, stream = _pool(self._device), _side_stream(self._device)
        with torch.cuda.graph(self._graph, pool, stream, capture_error_mode="thread_local"):
            work()

    def replay(self) -> None:
        """See ``Graph``."""
        self._graph.replay()


RECORDERS: dict[str, Callable[[torch.device], Graph]] = {"cuda": CUDAGraph}
"""By kind of device; on others all steps are taken one by one."""


@lru_cache
def _pool(device: torch.device) -> Any:  # noqa: ARG001 - one for each
    return torch.cuda.graph_pool_handle()


@lru_cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def _on_side_stream(device: torch.device) -> Iterator[None]:
    """Work cannot be recorded on the default stream; libraries keep memory for each stream, so
    that steps before the recording run on that stream too."""
    if device.type != "cuda":
        yield
        return
    present, side = torch.cuda.current_stream(device), _side_stream(device)
    side.wait_stream(present)
    with torch.cuda.stream(side):
        yield
    present.wait_stream(side)


class StepInputs:
    """What changes from step to step: tensors with the steps as first dimension, filled for many
    steps at once, and the number of the next step, which is on the device too."""

    def __init__(self, steps: int, device: torch.device) -> None:
        """``steps``: the most that are filled at once."""
        self.steps, self.device = steps, device
        self._next = torch.zeros(1, dtype=torch.int64, device=device)
        self._tables: dict[str, Tensor] = {}

    def fill(self, values: Mapping[str, Tensor]) -> None:
        """Take the next steps from ``values``; those of the host are copied without a wait."""
        for name, value in values.items():
            if name not in self._tables:
                shape = (self.steps, *value.shape[1:])
                self._tables[name] = torch.zeros(shape, dtype=value.dtype, device=self.device)
            on_the_way = self.device.type == "cuda" and value.device.type == "cpu"
            pinned = value.pin_memory() if on_the_way else value
            self._tables[name][: len(value)].copy_(pinned, non_blocking=True)
        self._next.zero_()

    def __getitem__(self, name: str) -> Tensor:
        table = self._tables[name]
        return table[0] if self.steps == 1 else table.index_select(0, self._next)[0]

    def advance(self) -> None:
        """Go on to the next step; a part of the recorded step."""
        self._next.add_(1)


class Program:
    """A step that is taken a few times, then recorded and replayed, with the memory that it works
    on, for all trials and packs of one shape.

    Their tensors are copied in before steps and out after them, so that a pack may change as it
    likes between steps: a trial that leaves or joins, a snapshot, another study.
    """

    seconds: ClassVar[float] = 0.0
    """Seconds that all recordings of this process took."""
    broken: ClassVar[bool] = False
    """Whether a recording of this process failed: then there are no others, since torch's allocator
    may not be as before."""

    def __init__(
        self,
        step: Callable[[StepInputs], None],
        device: torch.device,
        name: str,
        *,
        state: Sequence[Tensor],
        settings: Sequence[Tensor],
        steps: int,
    ) -> None:
        """
        Args:
            name: what a warning calls it.
            state: what ``step`` changes; ``settings``: what it reads, of these trials.
            steps: the most whose inputs are filled at once.
        """
        self.device, self.name, self.inputs = device, name, StepInputs(steps, device)
        self.refusal = "an earlier recording failed" if Program.broken else None
        """Why it cannot be recorded."""
        self.taken = 0
        self._step = step
        self._graph: Graph | None = None
        self._state, self._settings = list(state), list(settings)

    def advance(
        self,
        state: Sequence[Tensor],
        settings: Sequence[Tensor],
        inputs: Iterable[tuple[int, Mapping[str, Tensor]]],
    ) -> bool:
        """Train trials with this state and these settings.

        ``inputs``: those of the next steps, with how many. Whether that was possible: else all is
        as it was, and the caller takes the steps.
        """
        try:
            with torch.no_grad(), _on_side_stream(self.device):
                _copy(self._state, state)
                _copy(self._settings, settings)
                for count, of_steps in inputs:
                    self.inputs.fill(of_steps)
                    if not self.run(count):
                        return False
                _copy(state, self._state)
        except torch.OutOfMemoryError:
            forget()  # a smaller pack will need the memory
            raise
        return True

    def run(self, steps: int) -> bool:
        """Take so many steps on the program's own memory; whether that was possible."""
        for _ in range(steps):
            if self.taken < _WARM_UP:
                self._check()
            else:
                self._graph = self._graph or self._recorded()
                if self._graph is not None:
                    self._graph.replay()
            if self.refusal is not None:
                return False
            self.taken += 1
        return True

    def _whole(self) -> None:
        self._step(self.inputs)
        self.inputs.advance()

    def _check(self) -> None:
        """Take a step as it is."""
        try:
            with Checked() if self.taken == _WARM_UP - 1 else nullcontext():
                self._whole()
        except CaptureError as error:
            self._refuse(str(error))

    def _recorded(self) -> Graph | None:
        began = time.perf_counter()
        graph = RECORDERS[self.device.type](self.device)
        try:
            graph.record(self._whole)
        # What a user's model does that cannot be recorded fails in any way; it is reported.
        except Exception as error:
            Program.broken = True
            while isinstance(error.__context__, Exception):  # the first, which broke the recording
                error = error.__context__
            self._refuse(str(error).splitlines()[0] if str(error) else type(error).__name__)
            return None
        finally:
            Program.seconds += time.perf_counter() - began
        return graph

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        warnings.warn(
            f"{self.name} is trained without CUDA graphs, which is slower: {reason}", stacklevel=2
        )


def _copy(into: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    assert [x.shape for x in into] == [x.shape for x in values]
    if into:
        torch._foreach_copy_(list(into), list(values))


_programs: OrderedDict[Hashable, Program] = OrderedDict()


def program(key: Hashable, make: Callable[[], Program]) -> Program:
    """The program of this process that ``key`` names, made if there is none."""
    if key not in _programs:
        while len(_programs) >= _PROGRAMS:
            _programs.popitem(last=False)
        _programs[key] = make()
    _programs.move_to_end(key)
    return _programs[key]


def forget() -> None:
    """Give back the memory of all programs."""
    _programs.clear()
