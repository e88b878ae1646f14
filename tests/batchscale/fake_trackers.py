"""Weights & Biases, MLflow and Trackio in memory: what we call of each, with its real parameters
(``test_tracking_sdks`` compares them) and what it does with a run that is opened again."""
# ruff: noqa: ARG001, ARG002

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any


@dataclass
class Seen:
    """What a tool has of a run."""

    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)
    failed: bool | None = None
    """None while it is open."""

    @property
    def last(self) -> int:
        return max((step for step, _ in self.history), default=-1)


Runs = dict[str, Seen]
"""By trial."""


def wandb(runs: Runs) -> dict[str, ModuleType]:
    class Settings:
        def __init__(self, *, silent: bool, console: str, x_disable_stats: bool) -> None:
            assert silent
            assert console == "off"

    class Config(dict[str, Any]):
        def update(self, d: dict[str, Any], allow_val_change: bool | None = None) -> None:  # type: ignore[override]
            assert allow_val_change
            super().update(d)

    class Run:
        def __init__(self, seen: Seen) -> None:
            self._seen, self.starting_step = seen, seen.last + 1
            self.config, self.summary = Config(seen.config), seen.outcome

        def log(self, data: dict[str, Any], step: int | None = None) -> None:
            assert step is not None
            assert step > self._seen.last, "W&B drops what goes back"
            self._seen.history.append((step, data))

        def finish(self, exit_code: int | None = None) -> None:
            self._seen.failed, self._seen.config = bool(exit_code), dict(self.config)

    def init(
        *,
        entity: str | None = None,
        project: str | None = None,
        id: str | None = None,
        name: str | None = None,
        group: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str | None = None,
        reinit: str | None = None,
        settings: Settings | None = None,
    ) -> Run:
        assert (entity, project, resume, reinit) == ("me", "mine", "allow", "create_new")
        assert settings
        assert group
        seen = runs.setdefault(id or "", Seen(name=name or ""))
        seen.config, seen.failed = dict(config or {}), None
        return Run(seen)

    return {"wandb": _module("wandb", Settings=Settings, init=init, login=lambda: True)}


def mlflow(runs: Runs) -> dict[str, ModuleType]:
    class Page(list[Any]):
        token: str | None = None

    class MlflowClient:
        def __init__(self, tracking_uri: str | None = None) -> None:
            assert tracking_uri == "me/mine"

        def get_experiment_by_name(self, name: str) -> Any:
            return SimpleNamespace(experiment_id="7") if runs else None

        def create_experiment(self, name: str) -> str:
            assert name == "synthetic"
            return "7"

        def search_runs(
            self, experiment_ids: list[str], max_results: int = 1, page_token: str | None = None
        ) -> Page:
            assert experiment_ids == ["7"]
            start = int(page_token or 0)
            listed = [*map(self.get_run, runs)]
            page = Page(listed[start : start + 2])  # a server may give fewer than it is asked for
            page.token = str(start + 2) if start + 2 < len(listed) else None
            return page

        def get_run(self, run_id: str) -> Any:
            names = {name for _, values in runs[run_id].history for name in values}
            numbers = {n for n, v in runs[run_id].outcome.items() if not isinstance(v, str)}
            metrics = dict.fromkeys(names | numbers, 0.0)
            data = SimpleNamespace(metrics=metrics, tags={"batchscale.trial": run_id})
            return SimpleNamespace(info=SimpleNamespace(run_id=run_id), data=data)

        def get_metric_history(self, run_id: str, key: str) -> list[Any]:
            points = [step for step, values in runs[run_id].history if key in values]
            return [SimpleNamespace(step=step) for step in points]

        def update_run(self, run_id: str, status: str | None = None) -> None:
            assert status == "RUNNING"
            runs[run_id].failed = None

        def create_run(
            self,
            experiment_id: str,
            start_time: int | None = None,
            tags: dict[str, Any] | None = None,
            run_name: str | None = None,
        ) -> Any:
            trial = (tags or {})["batchscale.trial"]
            assert trial not in runs
            runs[trial] = Seen(name=run_name or "")
            return self.get_run(trial)

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
            assert len(params) <= 100
            assert len(metrics) <= 1_000
            assert not runs[run_id].config or not params, "a parameter is written once"
            runs[run_id].config |= {p.key: p.value for p in params}
            for each in metrics:
                if each.key in ("steps_run", "steps_to_target"):
                    runs[run_id].outcome[each.key] = each.value
                else:
                    runs[run_id].history.append((each.step, {each.key: each.value}))

        def set_tag(self, run_id: str, key: str, value: Any) -> None:
            runs[run_id].outcome[key] = value

        def set_terminated(
            self, run_id: str, status: str | None = None, end_time: int | None = None
        ) -> None:
            runs[run_id].failed = {"FINISHED": False, "FAILED": True}[status or ""]

    class Metric(SimpleNamespace):
        def __init__(self, key: str, value: float, timestamp: int, step: int) -> None:
            super().__init__(key=key, value=value, timestamp=timestamp, step=step)

    class Param(SimpleNamespace):
        def __init__(self, key: str, value: str) -> None:
            super().__init__(key=key, value=value)

    entities = _module("mlflow.entities", Metric=Metric, Param=Param)
    return {
        "mlflow": _module("mlflow", MlflowClient=MlflowClient, entities=entities),
        "mlflow.entities": entities,
    }


def trackio(runs: Runs) -> dict[str, ModuleType]:
    class Run:
        def __init__(self, seen: Seen) -> None:
            self._seen, self._next_step = seen, seen.last + 1

        def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
            assert step is not None
            if "status" in metrics:
                self._seen.outcome = metrics
            else:
                self._seen.history.append((step, metrics))

        def finish(self) -> None:
            print("* Run finished.")
            self._seen.failed = self._seen.outcome["stop_reason"] == "error"

    def init(
        project: str,
        name: str | None = None,
        group: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str = "never",
        embed: bool = True,
        auto_log_gpu: bool | None = None,
        auto_log_cpu: bool | None = None,
    ) -> Run:
        print("* Created new run")
        assert (project, resume, embed) == ("me/mine", "allow", False)
        assert config
        seen = runs.setdefault(config["trial"], Seen(name=name or "", config=config))
        assert seen.name == name
        return Run(seen)

    return {"trackio": _module("trackio", init=init)}


def _module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


TOOLS = {"wandb": wandb, "mlflow": mlflow, "trackio": trackio}
