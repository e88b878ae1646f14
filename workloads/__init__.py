"""What is trained: data, models, loss, metrics and target. Knows nothing of the rest.

Names are imported when first used: listing the workloads needs neither torch nor a data library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.base import Batch, Classification, Workload
    from workloads.data import data_root
    from workloads.errors import WorkloadError
    from workloads.generated.split import GeneratedSplit
    from workloads.layout_plan import LayoutPlan, SequencePlan
    from workloads.registry import names
    from workloads.text.language_model import LanguageModel
    from workloads.text.tokens import TokenStream
    from workloads.user_code.fingerprint import identity
    from workloads.user_code.loading import load

_HOME = {
    "Batch": "workloads.base",
    "Classification": "workloads.base",
    "GeneratedSplit": "workloads.generated.split",
    "LanguageModel": "workloads.text.language_model",
    "LayoutPlan": "workloads.layout_plan",
    "SequencePlan": "workloads.layout_plan",
    "TokenStream": "workloads.text.tokens",
    "Workload": "workloads.base",
    "WorkloadError": "workloads.errors",
    "data_root": "workloads.data",
    "identity": "workloads.user_code.fingerprint",
    "load": "workloads.user_code.loading",
    "names": "workloads.registry",
}

__all__ = [
    "Batch",
    "Classification",
    "GeneratedSplit",
    "LanguageModel",
    "LayoutPlan",
    "SequencePlan",
    "TokenStream",
    "Workload",
    "WorkloadError",
    "data_root",
    "identity",
    "load",
    "names",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
