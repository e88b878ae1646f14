"""Runs of MLflow, by its client: ``URI`` is a server, ``sqlite:///FILE`` or a folder.

An experiment of ours is one of MLflow's; a run's tag ``batchscale.trial`` is the trial's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchscale.tracking.tracker import TrialRun

_TAG = "batchscale.trial"
_OUTCOME = {"steps_run", "steps_to_target"}
_PARAMETERS, _METRICS = 100, 1_000
"""The most that one request may hold."""


class Runs:
    """A trial that MLflow has a run of is written into that."""

    def __init__(self, uri: str) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric, self._parameter = Metric, Param
        self._client: Any = MlflowClient(tracking_uri=uri)
        self._experiments: dict[str, str] = {}
        self._known: dict[str, str] = {}
        """The run of each trial in those."""
        self._run = ""
        self._metrics: list[Any] = []

    def start(self, run: TrialRun) -> int:
        if run.row["experiment"] not in self._experiments:
            self._open(run.row["experiment"])
        if run.id in self._known:
            self._run = self._known[run.id]
            self._client.update_run(self._run, status="RUNNING")
            names = {*self._client.get_run(self._run).data.metrics} - _OUTCOME
            points = (m for n in names for m in self._client.get_metric_history(self._run, n))
            return max((point.step for point in points), default=-1)
        made = self._client.create_run(
            self._experiments[run.row["experiment"]],
            start_time=round(1_000 * run.began),
            tags={_TAG: run.id},
            run_name=run.name,
        )
        self._run = self._known[run.id] = made.info.run_id
        values = [self._parameter(name, str(value)) for name, value in run.config.items()]
        for start in range(0, len(values), _PARAMETERS):
            self._client.log_batch(self._run, params=values[start : start + _PARAMETERS])
        return -1

    def measure(self, step: int, time: float, metrics: Mapping[str, float]) -> None:
        now = round(1_000 * time)
        self._metrics += [self._metric(name, v, now, step) for name, v in metrics.items()]

    def end(self, run: TrialRun, time: float) -> None:
        numbers = {n: v for n, v in run.outcome.items() if not isinstance(v, str)}
        self.measure(int(run.outcome["steps_run"]), time, numbers)
        metrics, self._metrics = self._metrics, []
        for start in range(0, len(metrics), _METRICS):
            self._client.log_batch(self._run, metrics=metrics[start : start + _METRICS])
        for name in run.outcome.keys() - numbers.keys():
            self._client.set_tag(self._run, name, run.outcome[name])
        status = "FAILED" if run.failed else "FINISHED"
        self._client.set_terminated(self._run, status=status, end_time=round(1_000 * time))

    def _open(self, name: str) -> None:
        """Find the experiment and the runs of its trials; make it if there is none."""
        known = self._client.get_experiment_by_name(name)
        made = known.experiment_id if known else self._client.create_experiment(name)
        page = self._client.search_runs([made], max_results=1_000)
        while page:
            self._known |= {r.data.tags[_TAG]: r.info.run_id for r in page if _TAG in r.data.tags}
            more = {"max_results": 1_000, "page_token": page.token}
            page = page.token and self._client.search_runs([made], **more)
        self._experiments[name] = made
