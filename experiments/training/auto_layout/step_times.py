"""Seconds of a step on this machine: of one model by itself, on one rank or on several that share
its batches. Evaluations are no part of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from experiments.engines import Engine
from experiments.engines.module import ModuleEngine
from experiments.errors import ExperimentError
from experiments.parallel.local_ranks import on_local_ranks
from experiments.parallel.ranks import SOLO, Ranks
from experiments.parallel.renewal import Meeting
from experiments.plan import Layout, Study, Trial
from experiments.training.auto_layout.choice import OUT_OF_MEMORY
from experiments.training.clock import wait_for
from experiments.training.study_context import StudyContext
from experiments.training.threads import single_thread
from results.counts import count
from workloads.user_code.trust import named_by_record

REPEATS = 5
_SECONDS = 0.2
"""Least seconds of a repeat."""
_WARM_UP = 2
"""Steps that compile, fill caches and make the optimizer's state."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is measured: a trial at its study's batch size."""

    study: Study
    trial: Trial
    record: str | None = None
    """The results folder that names the user's files; ``None``: these are trusted."""

    def context(self, device: str, ranks: Ranks = SOLO) -> StudyContext:
        """Its study, by data parallelism alone.

        Raises:
            ExperimentError, WorkloadError: it cannot be trained here.
            RefusedCodeError: the record names a file that is not to be run.
        """
        layout = Layout(workers=ranks.size, micro_batch=self.study.layout.micro_batch)
        with trusting(self.record):
            return StudyContext.load(replace(self.study, layout=layout), device, ranks)


def trusting(record: str | None) -> AbstractContextManager[None]:
    """Inside, what names the user's files is a record of this folder; ``None``: the user."""
    return nullcontext() if record is None else named_by_record(record)


def step_times(
    subjects: Sequence[Subject],
    device: str,
    workers: int = 1,
    *,
    repeats: int = REPEATS,
    say: Callable[[str], object] | None = None,
) -> list[list[float] | None]:
    """Seconds of a step of each subject, one a repeat; ``None``: it does not fit into the memory.

    The repeats of all subjects are interleaved, so that other work on the machine, and its clock,
    are spread over them. On a CPU a rank is one thread, as a sweep's worker is.

    Args:
        workers: ranks of this machine that share each batch, by data parallelism.
        say: is called with the progress; for several workers it can be pickled.

    Raises:
        ExperimentError, WorkloadError: something cannot be trained so.
    """
    if workers == 1:
        with single_thread():
            return _measure(SOLO, device, subjects, repeats, say)
    made: list[list[float] | None]
    made = on_local_ranks(workers, device, _measure, list(subjects), repeats, say)
    return made


def _measure(
    ranks: Ranks,
    device: str,
    subjects: Sequence[Subject],
    repeats: int,
    say: Callable[[str], object] | None,
) -> list[list[float] | None]:
    meeting = Meeting(ranks)
    made: list[list[float] | None] = [[] for _ in subjects]
    for repeat in range(repeats):
        for i, subject in enumerate(subjects):
            if (times := made[i]) is None:
                continue
            if say is not None and ranks.rank == 0:
                at = f"batch size {subject.study.batch_size:,} on {count(ranks.size, 'device')}"
                say(f"measuring a step: {at}, repeat {repeat + 1} of {repeats}")
            seconds, failure = attempt(lambda s=subject: _seconds(s, device, ranks), ranks, meeting)  # type: ignore[misc]
            if seconds is not None:
                times.append(seconds)
            elif failure == OUT_OF_MEMORY:
                made[i] = None
            else:
                raise ExperimentError(f"a step cannot be measured: {failure}")
    meeting.close()
    return made


def _seconds(subject: Subject, device: str, ranks: Ranks) -> float:
    """Of a model that begins anew, and ends with it: no two hold memory at once."""
    with trusting(subject.record):
        engine = ModuleEngine(subject.context(device, ranks), [subject.trial])
        try:
            return seconds_of_step(engine, _SECONDS)
        finally:
            engine.close()


def seconds_of_step(engine: Engine, least: float) -> float:
    """The mean over a block of steps of an engine that takes ``least`` seconds or more; shorter
    blocks before it warm up. All ranks call it together."""
    ranks, device = engine.context.layout.ranks, engine.context.device
    engine.advance(_WARM_UP)
    steps = 1
    while True:
        wait_for(device)
        began = time.perf_counter()
        engine.advance(steps)
        wait_for(device)
        spent = time.perf_counter() - began
        # Ranks take the same steps: rank 0 says when they are enough.
        if ranks.agree(spent >= least):
            return spent / steps
        steps *= 2


def attempt(
    measure: Callable[[], float], ranks: Ranks, meeting: Meeting
) -> tuple[float | None, str | None]:
    """The seconds of rank 0, or why they could not be measured: ``OUT_OF_MEMORY`` or a line. The
    ranks meet again after a failure of any, whose memory is free then."""
    seconds: float | None = None
    failure: str | None = None
    try:
        seconds = measure()
    except torch.OutOfMemoryError as error:
        failure = _without_frames(error, OUT_OF_MEMORY)
    # What cannot be trained so shows in many ways, and is told.
    except Exception as error:
        failure = _without_frames(error, f"{type(error).__name__}: {error}".splitlines()[0])
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    failures = [each for each in meeting.exchange(failure) if each is not None]
    if not failures:
        return ranks.agree(seconds), None
    return None, _cause(failures)


def _without_frames(error: BaseException, text: str) -> str:
    """``text``, when what the frames of an error hold has been let go: memory, process groups."""
    reason: BaseException | None = error
    while reason is not None:
        reason.__traceback__ = None
        reason = reason.__cause__ or reason.__context__
    return text


def _cause(failures: Sequence[str]) -> str:
    """What failed first: other ranks say that the connection to it is lost."""
    if OUT_OF_MEMORY in failures:
        return OUT_OF_MEMORY
    of_others = ("Connection closed", "Connection reset", "gloo", "NCCL", "Broken pipe")
    causes = [each for each in failures if not any(part in each for part in of_others)]
    return (causes or list(failures))[0]
