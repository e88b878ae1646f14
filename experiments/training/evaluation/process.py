"""The process that evaluates for another one: started, used and ended by ``EvaluationWorker``.

It has the study's context and an engine of the same kind, whose trials it restores to the states
that it is sent. Requests and answers go through a socket, tensors through shared memory; both are
between these two processes alone. When the socket closes, however the other process has ended,
this one ends, also in the middle of an evaluation.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from experiments.engines import Engine, make_engine
from experiments.engines.base import gather
from experiments.plan import Study, Trial
from experiments.training.evaluation.evaluator import Evaluator
from experiments.training.evaluation.shared_memory import SharedMemory, Written
from experiments.training.study_context import StudyContext
from experiments.training.threads import use_single_thread

_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from experiments.training.evaluation.process import serve
serve(int(sys.argv[2]), int(sys.argv[3]))
"""
"""Not multiprocessing's: a user's script need not be importable without running it."""


class EvaluationError(Exception):
    """The process could not evaluate."""


@dataclass(frozen=True, kw_only=True)
class _Begin:
    """What the process evaluates from now on."""

    study: Study
    engine: str
    device: str
    threads: int


@dataclass(frozen=True, kw_only=True)
class _Evaluate:
    trials: Sequence[Trial]
    """All that train, in the order of the trainer's engine."""
    states: Written
    """The engine's copies of those that are evaluated, by their positions."""


class EvaluationProcess:
    """The other process, as the one that trains sees it."""

    _idle: list[EvaluationProcess] = []  # noqa: RUF012 - shared: by all packs of this process

    def __init__(self) -> None:
        self._memory = SharedMemory.new()
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = theirs.fileno(), self._memory.descriptor
            arguments = [json.dumps(sys.path), *map(str, descriptors)]
            self._popen = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *arguments],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._owner = os.getpid()
        self.end = weakref.finalize(
            self, _end, self._owner, self._popen, self._connection, self._memory
        )
        """Ends the process; called when this one exits at the latest."""

    @classmethod
    def take(cls) -> EvaluationProcess:
        """One that an earlier pack has started and given back, or else a new one."""
        while cls._idle:
            process = cls._idle.pop()
            if process._owner == os.getpid() and process._popen.poll() is None:
                return process
            process.end()
        return cls()

    def give_back(self) -> None:
        """Leave it to the next pack, without an evaluation under way."""
        try:
            self._connection.send(None)
        except OSError:
            self.end()
        else:
            self._idle.append(self)

    def kill(self) -> None:
        """End the process; an evaluation under way fails."""
        self._popen.kill()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._popen.pid

    def begin(self, study: Study, engine: str, device: str) -> None:
        """Let it load what the study names; it says nothing of that."""
        threads = torch.get_num_threads()
        request = _Begin(study=study, engine=engine, device=device, threads=threads)
        with suppress(OSError):  # it has ended: the first evaluation says so
            self._connection.send(request)

    def evaluate(
        self, trials: Sequence[Trial], states: Mapping[int, Any]
    ) -> list[dict[str, float]]:
        """The metrics of trials in ``states``, by their positions in ``trials``.

        Raises:
            EvaluationError: that raised an exception there, or the process has ended.
        """
        try:
            request = _Evaluate(trials=trials, states=self._memory.write(dict(states)))
            self._connection.send(request)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise EvaluationError("the process that evaluates has ended") from error
        if isinstance(answer, str):
            raise EvaluationError(answer)
        metrics: list[dict[str, float]] = answer
        return metrics


def _end(
    owner: int, popen: subprocess.Popen[bytes], connection: Connection, memory: SharedMemory
) -> None:
    if owner == os.getpid():  # not in a copy of that process, which inherits all this
        popen.kill()
        popen.wait()
    connection.close()
    memory.close()


def serve(descriptor: int, memory: int) -> None:
    """Evaluate what is asked for until the other process closes the socket; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that trains
    connection, shared = Connection(descriptor), SharedMemory(memory)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    begun: _Begin | None = None
    engine: Engine | None = None
    while True:
        request = requests.get()
        if not isinstance(request, _Evaluate):
            begun, engine = request, None
            if begun is None and torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            continue
        assert begun is not None
        try:
            engine = _with_trials(engine, begun, request.trials)
            answer: Any = _evaluated(engine, request, shared.read(request.states))
        # The user's code can raise anything. The other process evaluates too, and raises it again.
        except (Exception, SystemExit) as error:
            answer = f"{type(error).__name__}: {error}"
        connection.send(answer)


def _receive(connection: Connection, requests: queue.SimpleQueue[Any]) -> None:
    while True:
        try:
            requests.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


def _with_trials(engine: Engine | None, begun: _Begin, trials: Sequence[Trial]) -> Engine:
    """The engine with these trials; what it has is used again."""
    wanted = {trial.id for trial in trials}
    kept = [row for row, t in enumerate(engine.trials) if t.id in wanted] if engine else []
    if engine is None or not kept:
        use_single_thread()
        torch.set_num_threads(begun.threads)
        context = engine.context if engine else StudyContext.load(begun.study, begun.device)
        return make_engine(begun.engine, context, trials)
    if len(kept) < len(engine.trials):
        engine.keep(kept)
    held = {trial.id for trial in engine.trials}
    if new := [trial for trial in trials if trial.id not in held]:
        engine.add(new)
    return engine


def _evaluated(
    engine: Engine, request: _Evaluate, states: Mapping[int, Any]
) -> list[dict[str, float]]:
    """The metrics of the trials in ``states``."""
    positions = {trial.id: row for row, trial in enumerate(engine.trials)}
    rows = [positions[request.trials[i].id] for i in states]
    for row, state in zip(rows, states.values(), strict=True):
        engine.restore(row, gather(state, engine.context.device))
    evaluator = Evaluator(engine)
    evaluator.begin(rows)
    return evaluator.result()
