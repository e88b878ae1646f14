"""Evaluation in a process beside the one that trains, which trains on meanwhile.

The result is exact: the other process gets a copy of the trials at the step of the evaluation, and
the loop applies it as if it had been there at once. Trials that end by it, and those that go on
from elsewhere, are set back to the copy; the steps that they had taken since are discarded.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from experiments.engines.base import Engine
from experiments.training.evaluation.evaluator import Evaluator
from experiments.training.evaluation.process import EvaluationProcess

_Result = TypeVar("_Result")
_WAIT_SECONDS = 10.0
_PYTHON_SECONDS = 0.5
"""After so long a wait comes back to Python, where the watchdog can interrupt it."""


class EvaluationWorker(Evaluator):
    """Evaluates elsewhere; where that fails, here, which raises what an evaluation here raises."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._process: EvaluationProcess | None = None
        self._failed = False
        self._answer: Future[list[dict[str, float]]] | None = None
        self._rows: list[int] = []
        self._states: list[Any] = []
        """The engine's copies of all trials at the step of the evaluation."""
        self._steps: list[int] = []
        """The steps of all trials then."""
        self._discarded: dict[int, int] = {}
        self._start()  # it loads the data meanwhile

    def _start(self) -> EvaluationProcess:
        """The process, in which the study has begun."""
        if self._process is None:
            context = self.engine.context
            self._process = EvaluationProcess.take()
            self._process.begin(context.study, self.engine.kind, str(context.device))
        return self._process

    def begin(self, rows: Sequence[int]) -> None:
        if self._failed:
            super().begin(rows)
            return
        engine, process = self.engine, self._start()
        self._rows, self._steps = list(rows), list(engine.steps)
        self._states = engine.copy(range(len(engine.trials)))
        states = {row: self._states[row] for row in rows}
        self._answer = _in_thread(process.evaluate, list(engine.trials), states)

    @property
    def ready(self) -> bool:
        return self._answer is None or self._answer.done()

    def result(self) -> list[dict[str, float]]:
        if self._answer is None:
            return super().result()
        while not wait([self._answer], timeout=_PYTHON_SECONDS).done:
            pass
        error = self._answer.exception()
        if error is None:
            return self._answer.result()
        self._answer, self._failed = None, True
        self._end_process()
        self.rewind(range(len(self._states)))
        super().begin(self._rows)
        warnings.warn(f"the trainer evaluates from now on: {error}", stacklevel=2)
        return super().result()

    def rewind(self, rows: Sequence[int]) -> None:
        for row in rows if self._states else ():
            if row not in self._discarded:
                self._discarded[row] = self.engine.steps[row] - self._steps[row]
                self.engine.restore(row, self._states[row])

    def copy(self, rows: Sequence[int]) -> list[Any]:
        return [self._states[row] for row in rows] if self._states else super().copy(rows)

    def end(self) -> Mapping[int, int]:
        discarded = {row: self._discarded.get(row, 0) for row in self._rows if self._states}
        discarded |= self._discarded
        self._answer, self._states, self._steps, self._discarded = None, [], [], {}
        return discarded

    def close(self) -> None:
        if self._process is not None and self._answer is None:
            self._process.give_back()
            self._process = None
        self._end_process()

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            if self._answer is not None:  # its thread uses what the process has
                wait([self._answer], timeout=_WAIT_SECONDS)
            self._process.end()
            self._process = None


def _in_thread(function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
    """The result of a call that another thread makes; nothing waits for that thread."""
    future: Future[_Result] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True, name="evaluation").start()
    return future
