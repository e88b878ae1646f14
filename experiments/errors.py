"""The error of this package: one line that names the thing and the place, and a hint."""

from __future__ import annotations

from results.errors import ClearError
from workloads.errors import nearest

__all__ = ["DeviceError", "ExperimentError", "nearest"]


class ExperimentError(ClearError):
    """Something the user can mend. The message is printed, then the hint."""


class DeviceError(ExperimentError):
    """What was asked for is not on this device, and may be on another."""
