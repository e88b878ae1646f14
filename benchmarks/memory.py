"""Memory of this process."""

from __future__ import annotations

import re
import resource
from pathlib import Path


def peak_gigabytes() -> float:
    """The most that it has held, in GB.

    Not what ``getrusage`` says, if the system tells more: that of a program begins with what the
    process held that started it.
    """
    status = Path("/proc/self/status")
    if status.exists() and (peak := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(peak[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
