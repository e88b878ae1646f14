"""Several packs in one process, each in a thread of its own, that take their steps jointly.

One of the threads runs at a time, from the steps that its pack has taken to the next ones that it
wants; once all of them want steps, those of small models are taken jointly (``joint.groups``), and
the others one pack after the other. Which pack is with which changes the rounding alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch

from experiments.joint import groups as joint
from experiments.joint.groups import JointMember
from experiments.training.clock import Clock

_WAKE_SECONDS = 0.2
"""A thread that waits is interrupted when it wakes (``execution.watchdog``)."""


@dataclass(eq=False)
class _Request:
    """The steps that a pack wants."""

    member: JointMember
    left: int
    alone: int = 0
    """Of those, steps that its own thread is to take now."""
    seconds: float = 0.0
    """That its steps have taken, without those of others."""

    def take_alone(self) -> None:
        """Take the steps that this pack is to take by itself."""
        began, steps, self.alone = time.perf_counter(), self.alone, 0
        self.member.engine.advance(steps)
        self.wait_for_device()
        self.left -= steps
        self.seconds += time.perf_counter() - began

    def wait_for_device(self) -> None:
        device = self.member.engine.context.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)


class JointTraining:
    """The packs of this process."""

    def __init__(self) -> None:
        self.can_grow = False
        """Whether a further pack of the same shape could take its steps with all others; decided
        whenever all want steps."""
        self._turn = threading.Condition()
        self._waiting: list[_Request] = []
        self._packs = 0
        self._counting = threading.Lock()

    def enter(self) -> None:
        """A thread will train a pack: the others wait until that wants steps too."""
        with self._counting:
            self._packs += 1
            self.can_grow = False

    @contextmanager
    def turns(self) -> Iterator[None]:
        """Around all that a thread does for its pack, which has entered."""
        with self._turn:
            try:
                yield
            finally:
                with self._counting:
                    self._packs -= 1
                self._turn.notify_all()

    def advance(self, member: JointMember, clock: Clock, steps: int) -> None:
        """Take so many steps of a pack, jointly where that can be; called in its thread.

        What others have taken meanwhile is not counted as its training.
        """
        began, request = time.perf_counter(), _Request(member, steps)
        self._waiting.append(request)
        try:
            while request.left:
                if request.alone:
                    request.take_alone()
                elif self._all_want_steps:
                    self._take_jointly()
                else:
                    self._turn.wait(_WAKE_SECONDS)
        finally:
            self._waiting.remove(request)
            self._turn.notify_all()
            clock.train -= time.perf_counter() - began - request.seconds

    @property
    def _all_want_steps(self) -> bool:
        return len(self._waiting) == self._packs and all(
            r.left and not r.alone for r in self._waiting
        )

    def _take_jointly(self) -> None:
        """Take the steps that all want, up to the next evaluation of any: those of groups here, the
        others each in its own thread, where what they raise belongs."""
        steps = min(request.left for request in self._waiting)
        requests = {id(request.member): request for request in self._waiting}
        members = [request.member for request in self._waiting]
        for group in joint.groups(members):
            of_group = [requests.pop(id(member)) for member in group]
            if not _took(of_group, steps):
                for request in of_group:
                    request.member.apart = True
                    requests[id(request.member)] = request
        for request in requests.values():
            request.alone = steps
        self.can_grow = joint.can_grow(members)
        self._turn.notify_all()


def _took(requests: Sequence[_Request], steps: int) -> bool:
    """Take steps of a group jointly; whether that was possible."""
    taken = False
    # What one model raises is raised again where it trains by itself, in the thread of its pack.
    with suppress(Exception):
        began = time.perf_counter()
        taken = joint.advance([request.member for request in requests], steps)
        requests[0].wait_for_device()
        for request in requests if taken else ():
            request.left -= steps
            request.seconds += time.perf_counter() - began
    return taken
