"""The error of this package: one line that names the thing and the place, and a hint."""

from __future__ import annotations

from results.errors import ClearError
from workloads.errors import nearest

__all__ = ["ExperimentError", "nearest"]


class ExperimentError(ClearError):
    """Something the user can mend. The message is printed, then the hint."""
