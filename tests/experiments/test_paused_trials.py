"""Trials that an early round sets aside go on later as if nothing had been between."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results as dataset
from experiments.engines.selection import Kind
from experiments.execution import sweep as driver
from experiments.execution.ledger import Ledger
from experiments.execution.worker import Pace, run_pack
from experiments.plan import Outcome, Pack, Study, Trial
from experiments.scheduling.messages import Assignment, Channel
from experiments.training import snapshot
from experiments.training.pack_training import Training
from tests import problems
from tests.experiments.fakes import FakeTraining, Pair, listed, points
from tests.experiments.fakes import study as fake_study
from tests.experiments.test_sweep import experiment

QUICK = Pace(ask=0.01, renew=0.02, commit=0.0, snapshot=0.0)


pytestmark = pytest.mark.usefixtures("one_thread")


def coarse(**changes: Any) -> Study:
    """A study of few evaluations."""
    given = {
        "optimizer": "adam",
        "budget_steps": 160,
        "evaluation_ratio": 1.4,
        "target": "validation_error < 0.07",
        "keep": None,
        **changes,
    }
    return problems.study(**given)


def some_of(of: Study, count: int) -> tuple[Trial, ...]:
    """Trials that reach the target after 20 to 160 steps."""
    rates = np.geomspace(0.03, 0.15, count) / (1 if of.optimizer == "adam" else 4)
    return tuple(
        replace(t, metaparameters={**t.metaparameters, "learning_rate": float(rate)})
        for t, rate in zip(problems.trials(of, count, seed=3, decay_steps=200), rates, strict=True)
    )


def first_round(of: Study, some: tuple[Trial, ...], kind: Kind) -> tuple[dict[str, bytes], Any]:
    """What is set aside where another pack has hit after 15 steps, and the events until then."""
    pack = Pack(id="pack", study=replace(of, keep=1), trials=some, engine=kind)
    training = Training(replace(pack, known=(15,), keep_paused=True))
    events = [event for look in training.run() for event in look]
    return training.paused, events


def test_models_that_are_too_large_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    of = coarse()
    monkeypatch.setattr(snapshot, "LARGEST_BYTES", 1000)
    held, events = first_round(of, some_of(of, 5), "stacked")
    assert held == {}
    assert any(o.stop_reason == "dominated" for o in problems.outcomes(events).values())


# Through workers and the results folder


def assignment(
    of: Study, some: tuple[Trial, ...], before: dict[str, str] | None = None
) -> Assignment:
    pack = Pack(id="pack", study=of, trials=some, engine="module", keep_paused=before is None)
    return Assignment(
        pack=pack,
        round=0,
        columns={"study": of.id, "workload": "w", "batch_size": of.batch_size},
        wanted=frozenset(trial.id for trial in some),
        before=before or {},
    )


def run(one: Assignment, root: Path, **how: Any) -> None:
    deaf = Channel(send=lambda _: None, ask=lambda known: known)
    how = {"trainer": Training, "pace": QUICK, **how}
    assert run_pack(one, Ledger(str(root)), deaf, **how).end == "done"


def later(root: Path, some: tuple[Trial, ...]) -> tuple[tuple[Trial, ...], dict[str, str]]:
    """Those that were set aside, and the commits that say so."""
    rows = Ledger(str(root)).store.trials()
    rows = rows[rows["stop_reason"] == "dominated"]
    runs = dict(zip(rows["trial"], rows["run"], strict=True))
    return tuple(trial for trial in some if trial.id in runs), runs


def looks(root: Path) -> pd.DataFrame:
    columns = ["trial", "step", "validation_error", "validation_cross_entropy"]
    found = dataset.open(root).measurements.sort_values(["trial", "step"])[columns]
    return found.reset_index(drop=True)


def ends(root: Path) -> list[tuple[Any, ...]]:
    rows = Ledger(str(root)).store.trials().sort_values("trial")
    columns = ["trial", "stop_reason", "steps_run", "steps_to_target", "last_miss"]
    return list(rows[columns].astype(str).itertuples(index=False, name=None))


def files(root: Path) -> list[str]:
    return [path.name for path in (root / "checkpoints").glob("*.trial")]


@pytest.mark.parametrize("changes", [{"budget_steps": 161}, {"engine": "stacked"}])
def test_what_was_set_aside_under_other_settings_is_left(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    of = coarse()
    some = some_of(of, 4)
    run(assignment(replace(of, keep=1), some), tmp_path)
    left, runs = later(tmp_path, some)
    kind = changes.pop("engine", "module")
    one = assignment(replace(of, **changes), left, runs)
    run(replace(one, pack=replace(one.pack, engine=kind)), tmp_path)
    found = looks(tmp_path)
    first = found[found["trial"].isin([trial.id for trial in left])].groupby("trial")["step"]
    assert set(first.min()) == {1}
    assert (found.groupby("trial")["step"].diff().dropna() > 0).all()


def test_all_ranks_go_on_from_the_same_step(tmp_path: Path) -> None:
    some = tuple(listed(fake_study(), points(80)).draw(0, 8))
    of = fake_study(keep=1)
    run(assignment(of, some), tmp_path, trainer=FakeTraining)
    left, runs = later(tmp_path, some)
    one = assignment(replace(of, keep=None), left, runs)
    line: queue.Queue[Any] = queue.Queue()
    resumed: dict[int, list[str]] = {}

    def trainer(rank: int) -> type:
        class Ranked(FakeTraining):
            def resume(self, held: Any) -> set[str]:
                resumed[rank] = sorted(held)
                return super().resume(held)

        return Ranked

    def second() -> None:
        deaf = Channel(send=lambda _: None, ask=lambda known: known)
        how: dict[str, Any] = {"trainer": trainer(1), "pace": QUICK, "group": Pair(1, line)}
        run_pack(one, Ledger(str(tmp_path)), deaf, **how)

    thread = threading.Thread(target=second)
    thread.start()
    run(one, tmp_path, trainer=trainer(0), group=Pair(0, line))
    thread.join(30)
    assert not thread.is_alive()
    assert resumed[0] == resumed[1] == sorted(trial.id for trial in left)


# Through whole sweeps


@pytest.mark.slow
def test_a_sweep_goes_on_with_what_its_early_rounds_set_aside(tmp_path: Path) -> None:
    steps: dict[str, list[int]] = {}
    twice = []

    class Watched(FakeTraining):
        def run(self, *arguments: Any) -> Any:
            for look in super().run(*arguments):
                for event in look:
                    if isinstance(event, Outcome):
                        twice.append(event.trial)
                    else:
                        steps.setdefault(event.trial, []).append(event.step)
                yield look

    how: dict[str, Any] = {"address": "none", "pack_size": 8}
    of = experiment(batch_size="64", trials=40, keep=6, seed=2, method="random")
    did = driver.sweep(of, results=tmp_path / "runs", trainer=Watched, **how)
    assert did.complete
    assert did.trials == did.trained == len(steps)  # those that went on count once
    assert len(twice) > len(set(twice))
    assert all(each == sorted(set(each)) for each in steps.values())  # no step twice
    assert files(tmp_path / "runs") == []
    found = looks(tmp_path / "runs").groupby("trial")["step"].apply(list).to_dict()
    assert found == steps
    every = experiment(batch_size="64", trials=40, keep="off", seed=2, method="random")
    driver.sweep(every, results=tmp_path / "off", trainer=FakeTraining, **how)
    rows = [Ledger(str(tmp_path / name)).store.trials() for name in ("runs", "off")]
    assert set(rows[0]["trial"]) <= set(rows[1]["trial"])
    rows[1] = rows[1][rows[1]["trial"].isin(rows[0]["trial"])]
    best = [sorted(table["steps_to_target"].dropna())[:6] for table in rows]
    assert best[0] == best[1]
