"""Processes that tests start: forked from one that has imported what they need.

An import of torch, and of what its optimizers import when they are first made, takes seconds.
"""

from __future__ import annotations

import multiprocessing
from typing import Final

METHOD: Final = "forkserver"
SERVER = multiprocessing.get_context(METHOD)
SERVER.set_forkserver_preload(["torch._dynamo", "tests.experiments.sweeping"])
