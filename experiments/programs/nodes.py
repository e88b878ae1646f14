"""A trial of several machines: a part of its program on each, led by the first one's.

The ranks of a worker group (``execution.ray.ranks``) have a part each. Rank 0 trains as a worker
alone does (``ProgramTraining``), and tells the others again and again what it has started, what has
been measured, and when all parts are to end. Their output is in folders of their own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.errors import ProgramError
from experiments.parallel.ranks import LOOPBACK, Ranks
from experiments.plan import Study, Trial
from experiments.programs.command import command
from experiments.programs.metrics import Metrics
from experiments.programs.place import write_script
from experiments.programs.process import Process

_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where the parts of a program meet, as torch.distributed and torchrun read it."""

    address: str = LOOPBACK
    port: int
    nodes: int = 1
    devices: int = 1
    """GPUs of each part."""

    @classmethod
    def at(cls, address: str, nodes: int, devices: int) -> Meeting:
        """At a free port of this machine."""
        with socket.create_server((address, 0)) as server:
            port = server.getsockname()[1]
        return cls(address=address, port=port, nodes=nodes, devices=devices)

    def environment(self, node: int) -> dict[str, str]:
        """The variables of a part; those of torchrun's options begin with ``PET_``."""
        meeting = {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)}
        nodes = {"NNODES": str(self.nodes), "NODE_RANK": str(node)}
        of_torchrun = {f"PET_{name}": value for name, value in {**meeting, **nodes}.items()}
        return {**meeting, **nodes, **of_torchrun, "PET_NPROC_PER_NODE": str(self.devices)}


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What rank 0 tells the others."""

    started: int = 0
    """How many times it has started the program."""
    meeting: Meeting | None = None
    resume: bool = False
    ending: bool = False
    """Whether the program is to end."""
    events: Sequence[Any] = ()
    state: Mapping[str, Any] | None = None
    """What the trainer of each rank says of the trial."""


def start(
    study: Study,
    trial: Trial,
    folder: Path,
    *,
    resume: bool = False,
    meeting: Meeting | None = None,
    node: int = 0,
    from_now: bool = False,
) -> Process:
    """The program of a trial, started in its folder, which exists; its part on another node in one
    beside it. ``from_now``: as in ``Process``."""
    program, work = study.workload.program, study.workload.base
    assert program is not None
    parts = command(program, study, trial, folder, resume=resume)
    of_part = folder if node == 0 else folder.with_name(f"{folder.name}.node{node}")
    of_part.mkdir(parents=True, exist_ok=True)
    write_script(of_part, work, parts)
    meeting = meeting or Meeting.at(LOOPBACK, 1, program.devices)
    return Process(
        parts,
        folder=of_part,
        work=work or None,
        environment={"BATCHSCALE_TRIAL": trial.id, **meeting.environment(node)},
        metrics=Metrics(program.reports),
        from_now=from_now,
    )


def lead(
    polled: Iterator[Sequence[Any]], instruct: Callable[[], Instruction], group: Ranks
) -> Iterator[list[Any]]:
    """Rank 0's events, of which it tells the others."""
    for events in polled:
        group.agree(replace(instruct(), events=events))
        yield [*events]
    group.agree(None)


def follow(
    start: Callable[[Instruction], Process], take: Callable[[Instruction], None], group: Ranks
) -> Iterator[list[Any]]:
    """The same events on another rank, whose part of the program runs meanwhile.

    Raises:
        ProgramError: its part has failed.
    """
    process, number = None, 0
    try:
        while (said := group.agree(None)) is not None:
            take(said)
            if said.started > number and not said.ending:
                if process is not None:
                    process.close()
                process, number = start(said), said.started
            if process is not None:
                _watch(process, group, said)
            yield [*said.events]
        if process is not None and process.ended is None:
            process.end()
            while process.ended is None:
                process.reports(_POLL_SECONDS)
    finally:
        if process is not None:
            process.close()


def _watch(process: Process, group: Ranks, said: Instruction) -> None:
    if process.ended is None and said.ending:
        process.end()
    process.reports(0.0)
    if process.ended is not None and process.ended.exit != 0 and not said.ending:
        text = f"its part {group.rank + 1} of {group.size} ended: {process.ended}"
        raise ProgramError("\n".join([*process.ended.stderr, text]))
