"""The ``grid`` of an experiment file with a ``program``: factors are ``{names}`` of its command."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.config.grid import Grid, axis_values
from experiments.config.schema import EITHER_KEYS, ExperimentFile
from experiments.errors import nearest
from experiments.programs.algorithm import OWN, ProgramOptimizer, ProgramSchedule, argument_names
from workloads.user_code.program import OF_TRIAL

OF_WORKLOADS = (
    *EITHER_KEYS,
    *("engine", "workers", "layout", "gpus", "micro_batch"),
    *("repeat_data", "evaluate", "evaluation_ratio"),
)
"""Keys that say how a workload is trained; a program does that by itself."""


def program_grid(file: ExperimentFile) -> Grid:
    """The grid of a program.

    Raises:
        ExperimentError: a key that only workloads have, a name that has no value, or a value that
            no name takes; with its place.
    """
    program = file.spec
    assert not isinstance(program, str)
    for key in OF_WORKLOADS:
        if key in file.model_fields_set or key in file.grid:
            message = f"{key} is of workloads: what a program does is in its command"
            hint = f"give it as an argument: --{key}={{its_{key}}}"
            raise file.error(file.path_of(key), message, hint)
    if isinstance(file.grid.get("batch_size"), Mapping):
        message = "a batch size that grows is of workloads"
        raise file.error(("grid", "batch_size"), message, "for example: batch_size: 32..512")
    if not file.target:
        message = "a program has no target of its own"
        raise file.error(("program",), message, "for example: target: val_loss < 3.3")
    axes = {key: axis_values(file, key, value) for key, value in file.grid.items()}
    swept = [key for key in axes if key not in ("batch_size", "optimizer")]
    names = {*program.names}
    for key in axes:
        taken = key in OF_TRIAL and key != "batch_size"
        if (key not in names and key != "batch_size") or taken:
            own = "is what each trial has of its own" if taken else "is no name of the command"
            hint = f"write it into the command: --{key}={{{key}}}"
            raise file.error(("grid", key), f"{key} {own}", None if taken else hint)
    of_search = sorted({*argument_names(program)} - {*swept})
    _check_search(file, of_search)
    if "optimizer" in names and "optimizer" not in axes:
        hint = "grid: {optimizer: [adamw, muon]}, as the program calls them"
        raise file.error(("grid",), "grid has no optimizer, which the command has", hint)
    optimizers = [str(name) for name in axes.get("optimizer", [OWN])]
    return Grid(
        optimizers=[ProgramOptimizer(name, of_search) for name in optimizers],
        schedules=[ProgramSchedule()],
        techniques=[{}],
        technique_paths=[("program",)],
        ramps=[None],
        rules=[None],
        fields=swept,
        swept={key: axes[key] for key in swept},
    )


def _check_search(file: ExperimentFile, names: list[str]) -> None:
    """What is below ``search`` are names of the command, and each other name is there."""
    given = file.search_paths
    for name, path in given.items():
        if name not in names:
            message = f"{name} is no name of the command, or is in the grid"
            raise file.error(path, message, nearest(name, names) if names else None)
    if isinstance(file.points, Mapping):
        return
    if missing := [name for name in names if name not in given]:
        raise file.error(
            ("program",),
            f"{{{missing[0]}}} of the command has no value",
            f"search: {{{missing[0]}: …}}, a value or a range such as {{log: [1e-4, 1e-2]}}; or "
            "below grid",
        )
