"""The command of a trial: the words of a program with the trial's values."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.errors import ExperimentError
from experiments.plan import Study, Trial
from results.counts import count
from workloads.user_code.program import NAME, Program

ACCUMULATE = "accumulate"
"""The name of how many forward passes a device makes a step."""
PYTHON = ("python", "python3")
_SEED_BITS = 31
"""Bits of ``{seed}``: numpy takes no more than 32, and an argument may be signed."""


def command(
    program: Program, study: Study, trial: Trial, folder: Path, *, resume: bool
) -> list[str]:
    """The words that start a trial.

    Args:
        folder: the trial's, for ``{folder}``.
        resume: whether it goes on, so that the words of ``resume`` are appended.
    """
    given = {**program.values, **trial.metaparameters}
    values = {
        "optimizer": study.optimizer,
        **given,
        "batch_size": study.batch_size,
        "budget": study.budget_steps,
        "seed": trial.seed % 2**_SEED_BITS,
        "folder": str(folder),
        "devices": program.devices,
        "per_device": per_device(program, study.batch_size, given),
    }
    parts = [*program.command, *(program.resume if resume else ())]
    first = sys.executable if parts[0] in PYTHON else parts[0]
    return [first, *(filled(part, values) for part in parts[1:])]


def filled(part: str, values: Mapping[str, Any]) -> str:
    """A word with values in the place of its names; ``True`` and ``1e-05``, as Python has them."""

    def value(name: re.Match[str]) -> str:
        return (repr if name[0].endswith("!r}") else str)(values[name[1]])

    return NAME.sub(value, part)


def per_device(program: Program, batch_size: int, values: Mapping[str, Any]) -> int | None:
    """Examples of a forward pass of a device; ``None`` where the command does not ask.

    Raises:
        ExperimentError: the batch size is no whole number of them.
    """
    if "per_device" not in program.names:
        return None
    devices, passes = program.devices, values.get(ACCUMULATE, 1)
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise ExperimentError(f"{ACCUMULATE} is {passes!r}", hint="a whole number from 1 on")
    size, rest = divmod(batch_size, devices * passes)
    if rest:
        among = count(devices, "device")
        among += f" × {count(passes, 'forward pass')}" if passes > 1 else ""
        raise ExperimentError(
            f"batch size {batch_size} cannot be divided among {among}",
            hint=f"a multiple of {devices * passes}; or other devices or {ACCUMULATE}",
        )
    return size


def names(parts: Sequence[str]) -> list[str]:
    """The names in words, each once, in their order."""
    return list(dict.fromkeys(name for part in parts for name in NAME.findall(part)))
