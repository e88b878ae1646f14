"""Trainers of Ray workers whose steps are captured on a CPU (``recorded_graph``).

Importing this in a worker makes its steps so; each worker of a sweep is a process of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ray

from experiments.engines.capture import captured_step
from experiments.plan import Measurement, Outcome
from experiments.training.pack_training import Training
from tests.experiments.recorded_graph import RecordedGraph

if ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE:
    captured_step.RECORDERS["cpu"] = RecordedGraph
    captured_step._WARM_UP = 2


class DiesOnce(Training):
    """Takes its time, so that packs meet. That of batch size 16 ends its worker's process at its
    twentieth evaluation, once: the experiment is called as a file is that is there afterwards."""

    def run(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Measurement | Outcome]]:
        evaluations, mark = 0, Path("/tmp", self.pack.study.experiment)
        for events in super().run(should_stop):
            yield events
            time.sleep(0.03)
            evaluations += bool(events)
            if self.pack.study.batch_size == 16 and evaluations == 20 and not mark.exists():
                mark.touch()
                os._exit(1)
