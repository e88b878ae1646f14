"""What is trained: data, models, loss, metrics and target. Knows nothing of the rest.

Names are imported when first used: listing the workloads needs neither torch nor a data library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.base import Batch as Batch
    from workloads.base import Classification as Classification
    from workloads.base import Workload as Workload
    from workloads.data import data_root as data_root
    from workloads.errors import WorkloadError as WorkloadError
    from workloads.generated.split import GeneratedSplit as GeneratedSplit
    from workloads.layout_plan import LayoutPlan as LayoutPlan
    from workloads.layout_plan import SequencePlan as SequencePlan
    from workloads.registry import names as names
    from workloads.text.language_model import LanguageModel as LanguageModel
    from workloads.text.tokens import TokenStream as TokenStream
    from workloads.user_code.fingerprint import identity as identity
    from workloads.user_code.loading import load as load

_HOME = {
    "Batch": "base",
    "Classification": "base",
    "GeneratedSplit": "generated.split",
    "LanguageModel": "text.language_model",
    "LayoutPlan": "layout_plan",
    "SequencePlan": "layout_plan",
    "TokenStream": "text.tokens",
    "Workload": "base",
    "WorkloadError": "errors",
    "data_root": "data",
    "identity": "user_code.fingerprint",
    "load": "user_code.loading",
    "names": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"workloads.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
