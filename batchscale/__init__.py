"""The public interface: the command line and the Python API, one function behind each command.

Heavy modules are imported when they are first used: ``import batchscale`` and ``batchscale --help``
are instant, and what reads results works with torch and Ray absent.
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchscale.analysis import best_at_batch as best_at_batch
    from batchscale.analysis import laws as laws
    from batchscale.analysis import optimal_batch as optimal_batch
    from batchscale.analysis import plot as plot
    from batchscale.analysis import regimes as regimes
    from batchscale.analysis import serve as serve
    from batchscale.analysis import techniques as techniques
    from batchscale.api import check as check
    from batchscale.api import listing as list  # noqa: F401
    from batchscale.api import logs as logs
    from batchscale.api import new as new
    from batchscale.api import open as open
    from batchscale.api import query as query
    from batchscale.api import status as status
    from batchscale.api import sweep as sweep
    from batchscale.api import take_in as take_in
    from batchscale.branches import branch as branch
    from batchscale.exchange import export as export
    from batchscale.noise.scale import NoiseScale as NoiseScale
    from batchscale.planning.devices import plan as plan
    from batchscale.planning.devices import step_times as step_times
    from batchscale.recorded_noise import noise_scales as noise_scales
    from batchscale.reporting import report as report
    from batchscale.run import Run as Run
    from batchscale.training import rerun as rerun
    from batchscale.training import trial as trial
    from batchscale.upkeep import compact as compact
    from batchscale.upkeep import fsck as fsck
    from experiments.errors import ExperimentError as ExperimentError
    from experiments.parallel import ParallelLayout as ParallelLayout
    from experiments.schedules import Schedule as Schedule
    from experiments.techniques import Technique as Technique
    from results.errors import ResultsError as ResultsError
    from results.targets.target import Target as Target
    from workloads import Classification as Classification
    from workloads import GeneratedSplit as GeneratedSplit
    from workloads import LanguageModel as LanguageModel
    from workloads import LayoutPlan as LayoutPlan
    from workloads import SequencePlan as SequencePlan
    from workloads import TokenStream as TokenStream
    from workloads import Workload as Workload
    from workloads.errors import WorkloadError as WorkloadError

_MODULES = {
    "batchscale.analysis": "best_at_batch laws optimal_batch plot regimes serve techniques",
    "batchscale.api": "check list logs new open query status sweep take_in",
    "batchscale.branches": "branch",
    "batchscale.exchange": "export",
    "batchscale.noise.scale": "NoiseScale",
    "batchscale.planning.devices": "plan step_times",
    "batchscale.recorded_noise": "noise_scales",
    "batchscale.reporting": "report",
    "batchscale.run": "Run",
    "batchscale.training": "rerun trial",
    "batchscale.upkeep": "compact fsck",
    "experiments.errors": "ExperimentError",
    "experiments.parallel": "ParallelLayout",
    "experiments.schedules": "Schedule",
    "experiments.techniques": "Technique",
    "results.errors": "ResultsError",
    "results.targets.target": "Target",
    "workloads": "Classification GeneratedSplit LanguageModel LayoutPlan SequencePlan TokenStream "
    "Workload",
    "workloads.errors": "WorkloadError",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("batchscale")
    if name not in _HOMES:
        raise AttributeError(f"module 'batchscale' has no attribute {name!r}")
    attribute = "listing" if name == "list" else name
    value = getattr(importlib.import_module(_HOMES[name]), attribute)
    if isinstance(value, FunctionType):
        from workloads.user_code.import_guard import entry_point

        value = entry_point(value, name)
    globals()[name] = value
    return value


def __dir__() -> Any:
    return sorted({*globals(), *__all__})
