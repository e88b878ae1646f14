"""Small programs that report what they are told to, and the packs that train them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.plan import Measurement, Outcome, Pack, Trial, WorkloadRef
from experiments.programs.algorithm import OWN
from experiments.programs.training import ProgramTraining
from tests import problems
from workloads.user_code.program import Program

Event = Measurement | Outcome

HEAD = """
import json, os, signal, sys, time
def say(step, **metrics):
    print(json.dumps({"step": step, **metrics}), flush=True)
def here(name, folder):
    with open(os.path.join(folder, name), "a") as stream:
        stream.write(f"{os.getpid()}\\n")
"""


def pack(
    folder: Path,
    code: str,
    *arguments: str,
    resume: str | None = None,
    reports: str | None = None,
    known: tuple[int, ...] = (),
    metaparameters: dict[str, Any] | None = None,
    **changes: Any,
) -> Pack:
    """One trial of a program of this code; its target is ``val_loss < 0.5``, its budget 100."""
    (folder / "train.py").write_text(HEAD + textwrap.dedent(code))
    program = Program(
        command=("python", "train.py", "{batch_size}", *arguments),
        resume=(resume,) if resume else (),
        reports=reports,
    )
    study = problems.study(
        workload=WorkloadRef(spec=program, base=str(folder)),
        optimizer=OWN,
        target=changes.pop("target", "val_loss < 0.5"),
        budget_steps=changes.pop("budget_steps", 100),
        **changes,
    )
    trial = Trial(id="trial", index=0, seed=2**40 + 7, metaparameters=metaparameters or {})
    return Pack(id="pack", study=study, trials=(trial,), known=known)


def trained(
    of: Pack, folder: Path, should_stop: Callable[[], bool] = lambda: False
) -> tuple[list[Measurement], Outcome | None]:
    """Its measurements and its outcome."""
    training = ProgramTraining(of, folder=str(folder / "programs"))
    events: list[Event] = [e for each in training.run(should_stop) for e in each]
    measured = [event for event in events if isinstance(event, Measurement)]
    outcomes = [event for event in events if isinstance(event, Outcome)]
    assert [e for e in events if isinstance(e, Outcome)] == events[len(measured) :]
    assert bool(training.active) == (not outcomes)
    return measured, outcomes[0] if outcomes else None


def ended(of: Pack, folder: Path) -> tuple[list[Measurement], Outcome]:
    """The same of a trial that comes to its end."""
    measured, outcome = trained(of, folder)
    assert outcome is not None
    return measured, outcome
