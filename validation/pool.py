"""Many independent pieces of work on all cores, with one line of progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def run(
    work: Callable[[Task], Answer], tasks: Sequence[Task], name: str, processes: int | None = None
) -> list[Answer]:
    """``work`` of each task, in the tasks' order whoever does them.

    ``work`` is a function of a module, and depends on nothing but its task: answers are the same
    on any number of ``processes`` (None: one a core).
    """
    several = len(os.sched_getaffinity(0)) if processes is None else processes
    if several == 1:
        return list(_told(map(work, tasks), len(tasks), name))
    with ProcessPoolExecutor(several, mp_context=get_context("spawn")) as pool:
        return list(_told(pool.map(work, tasks), len(tasks), name))


def _told(answers: Iterable[Answer], count: int, name: str) -> Iterator[Answer]:
    """The answers, and how many are there: on a terminal each, in a log every tenth of them."""
    shown = sys.stderr.isatty()
    for done, answer in enumerate(answers, 1):
        if shown or done == count or done % max(1, count // 10) == 0:
            text = f"{name}: {done}/{count}"
            end = "\n" if done == count or not shown else ""
            print(f"\r{text}" if shown else text, end=end, file=sys.stderr, flush=True)
        yield answer
