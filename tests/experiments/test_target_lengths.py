"""Lengths as shares of the baseline's steps to target, ``0.5 of target``: files, sweeps, status."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results as dataset
from batchscale.training import rerun
from experiments.canonical import canonical
from experiments.config.compile import Experiment, parse
from experiments.errors import ExperimentError
from experiments.execution.sweep import Summary, sweep
from experiments.factors.target_share import TargetShare, mentions, resolved
from experiments.plan import Study
from experiments.records.baselines import baseline_steps
from experiments.records.status import status
from experiments.scheduling.messages import Begun, Event, Note, StudyPlanned
from tests.experiments.fakes import FakeTraining
from tests.experiments.test_sweep import experiment

FILE = """\
name: lengths
workload: digits-softmax
design: one_factor
grid:
  batch_size: {from: [64, 256], ramp: [none, {double_at: [0.25 of target, 0.5 of target]}]}
  optimizer: sgd
  technique: [none, {swa: 0.5 of target}, {prune: {sparsity: 0.5, until: 0.4 of target}}]
  schedule: [constant, wsd]
search:
  learning_rate: {log: [0.05, 1]}
  wsd: {stable: 0.5 of target, decay: 0.25 of target}
trials: 4
budget: 400 steps
target: validation_error < 0.1
"""


def plans_of(file: Experiment, steps: int | None) -> list[Study]:
    """With as many steps to target of each baseline."""
    return file.studies(None, lambda _: steps)


def test_lengths_are_of_the_baselines_steps() -> None:
    file = parse(FILE)
    unknown, known, other = (plans_of(file, steps) for steps in (None, 80, 100))
    assert [plan.waits for plan in unknown] == [False] * 2 + [True] * 8
    assert not any(plan.waits for plan in known)
    ramp, swa, prune, wsd = (known[at] for at in (2, 4, 6, 8))
    assert ramp.batches.starts == (0, 20, 30)  # 20 steps of 64, then 10 of 128
    assert swa.technique["swa"] == 0.5 * 80 / 400
    assert prune.technique["prune"] == {"sparsity": 0.5, "until": 0.08}
    point = known[8].trial(0).metaparameters
    assert (point["stable_steps"], point["decay_steps"]) == (40, 20)
    assert wsd.baseline_steps == 80
    text = FILE.replace("wsd", "linear").replace("stable: 0.5", "warmup: 0.5")
    point = plans_of(parse(text), 80)[8].trial(0).metaparameters
    assert (point["warmup_steps"], point["decay_steps"]) == (40, 20)
    # A curve has one text at all batch sizes, and a study one id.
    for plans in (unknown, known, other):
        assert plans[4].technique_by_label == {
            "precision": "float32", "swa": "0.5 of target",
        }  # fmt: skip
        assert plans[2].technique_by_label["ramp"] == "2x at 0.25 of target, 4x at 0.5 of target"
    assert [p.id for p in unknown] == [p.id for p in known]
    assert len({p.id for p in known}) == len(known)
    # Its trials are those of the resolved length, and of its search.
    for first, second in ((unknown, known), (known, other)):
        for before, after in zip(first, second, strict=True):
            same = not before.baseline
            assert (before.trial(0).id == after.trial(0).id) == same
            assert (before.search.id == after.search.id) == same
    again = plans_of(parse(file.to_yaml()), 80)
    assert [(p, p.trial(0)) for p in again] == [(p, p.trial(0)) for p in known]


def test_a_baseline_of_several_searches_decides_by_all_of_them(tmp_path: Path) -> None:
    """Its steps are the geometric mean of their minima."""
    text = FILE.replace("design: one_factor", "design: {one_factor: {baseline: 2}}").replace(
        ", ramp: [none, {double_at: [0.25 of target, 0.5 of target]}]", ""
    )
    file = parse(text)
    plans = plans_of(file, None)
    searches = [p.id for p in plans if not p.baseline and p.batch_size == 64]
    assert [p.replicate for p in plans if not p.baseline] == [0, 0, 1, 1]
    waiting = [p for p in plans if p.waits and p.batch_size == 64]
    assert len(waiting) == 3
    assert all(list(p.baseline) == searches for p in waiting)
    summary = sweep(file, results=tmp_path, address="none")
    assert summary.complete
    trials = dataset.open(tmp_path).trials
    minima = trials.groupby("study")["steps_to_target"].min()
    mean = float(np.exp(np.log(minima[searches]).mean()))
    of_arms = trials[(trials["batch_size"] == 64) & trials["technique"].str.contains("swa")]
    assert of_arms["baseline_steps"].unique().tolist() == [round(mean)]
    assert rerun(of_arms["trial"].iloc[0], results=tmp_path).equal
    assert minima[searches].nunique() == 2


def test_a_plain_share_is_another_study() -> None:
    text = FILE.replace("{swa: 0.5 of target}", "{swa: 0.5 of target}, {swa: 0.5}, {swa: 0.1}")
    plans = plans_of(parse(text), 80)
    swa = [p for p in plans if "swa" in p.technique and p.batch_size == 64]
    assert [p.technique["swa"] for p in swa] == [0.1, 0.5, 0.1]
    assert len({p.id for p in swa}) == len({p.search.id for p in swa[:2]}) + 1 == 3
    assert len({p.made({"learning_rate": 0.1}, 0, index=0).id for p in swa}) == 3


def test_a_share_of_the_target() -> None:
    share = TargetShare.parse(" 0.50 of target")
    assert share == TargetShare(0.5)
    assert share != 0.5
    assert pickle.loads(pickle.dumps(share)) == share
    assert (str(share), canonical({"begin": share})) == (
        "0.5 of target",
        '{"begin":"0.5 of target"}',
    )
    for text in ("0.5 of targets", "half of target", "0.5", 0.5, True):
        assert TargetShare.parse(text) is text
    nested = {"a": [(share, 0.5)], "b": "text"}
    assert mentions(nested)
    assert resolved(nested, 60, 300) == {"a": [(0.1, 0.5)], "b": "text"}
    assert not mentions(resolved(nested, 60, 300))


def test_a_length_that_a_technique_cannot_have_once_it_is_known() -> None:
    text = FILE.replace("until: 0.4 of target", "until: 0.4 of target, begin: 0.1")
    file = parse(text)
    assert file.studies()
    with pytest.raises(ExperimentError, match=r":7: with 80 steps to target at batch size 64: .*"):
        plans_of(file, 80)


def fake(**changes: Any) -> Experiment:
    """A baseline and an arm that begins at half of its steps; a point is a share of 100 steps."""
    grid = {"batch_size": [64, 128], "optimizer": ["sgd"]}
    given = {
        "name": "lengths",
        "design": "one_factor",
        "grid": {**grid, "technique": ["none", {"swa": "0.5 of target"}]},
        "search": {"learning_rate": {"linear": [0.05, 1.2]}},
        "trials": 6,
    }
    return experiment(**{**given, **changes})


def run(root: Path, of: Experiment, **options: Any) -> Summary:
    return sweep(of, results=root, address="none", trainer=FakeTraining, **options)


def rows(root: Path) -> pd.DataFrame:
    trials = dataset.open(root).trials
    arm = trials["technique"].str.contains("of target")
    return trials.assign(arm=arm).sort_values("trial").reset_index(drop=True)


def least(trials: pd.DataFrame) -> dict[int, int]:
    """The baseline's steps to target by batch size."""
    hits = trials[~trials["arm"]].groupby("batch_size")["steps_to_target"].min().dropna()
    return {int(size): int(steps) for size, steps in hits.items()}  # type: ignore[call-overload]


def recorded(trials: pd.DataFrame) -> dict[int, int]:
    """The steps that the arm was planned by, by batch size."""
    pairs = trials[trials["arm"]].groupby("batch_size")["baseline_steps"].unique()
    return {int(size): int(steps.item()) for size, steps in pairs.items()}  # type: ignore[call-overload]


def test_an_arm_waits_for_its_baseline(tmp_path: Path) -> None:
    seen: list[Event] = []
    did = run(tmp_path, fake(), observer=seen.append)
    assert (did.complete, did.studies) == (True, 4)
    trials = rows(tmp_path)
    assert recorded(trials) == least(trials)
    studies = dataset.open(tmp_path).studies.set_index("study")
    for row in studies[studies["baseline"].notna()].to_dict("records"):
        (baseline,) = json.loads(row["baseline"])
        assert studies["batch_size"][baseline] == row["batch_size"]
        assert row["baseline_steps"] == least(trials)[row["batch_size"]]
    of_arm = set(trials["study"][trials["arm"]])
    packs = [e.study in of_arm for e in seen if isinstance(e, Begun)]
    assert packs == sorted(packs)
    assert len([e for e in seen if isinstance(e, StudyPlanned)]) == 4
    notes = [e.text for e in seen if isinstance(e, Note)]
    assert "2 studies wait for the baseline's steps to target at batch 64 and 128." in notes
    again = run(tmp_path, fake())
    assert (again.trained, again.complete) == (0, True)


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("pack_of", ["baseline", "arm"])
def test_a_killed_sweep_goes_on_with_the_same_trials(tmp_path: Path, pack_of: str) -> None:
    run(tmp_path / "whole", fake())
    whole = rows(tmp_path / "whole")
    of_arm = set(whole["study"][whole["arm"]])

    def kill(event: Event) -> None:
        if isinstance(event, Begun) and (event.study in of_arm) == (pack_of == "arm"):
            raise _Killed

    with pytest.raises(_Killed):
        run(tmp_path / "killed", fake(), observer=kill)
    found = status(tmp_path / "killed").studies
    waits = "waits for the baseline's steps to target" if pack_of == "baseline" else None
    assert {
        w if isinstance(w, str) else None for w in found["waits"][found["study"].isin(of_arm)]
    } == {waits}
    assert run(tmp_path / "killed", fake()).complete
    assert rows(tmp_path / "killed")["trial"].tolist() == whole["trial"].tolist()
    assert status(tmp_path / "killed").left == 0


def test_the_first_complete_baseline_decides(tmp_path: Path) -> None:
    run(tmp_path, fake(trials=1, seed=4))
    first = recorded(rows(tmp_path))
    assert run(tmp_path, fake(trials=40, seed=4)).complete
    trials = rows(tmp_path)
    assert all(steps < first[size] for size, steps in least(trials).items())
    assert recorded(trials) == first


def test_another_target_has_other_lengths(tmp_path: Path) -> None:
    run(tmp_path, fake())
    first = rows(tmp_path)
    assert run(tmp_path, fake(target="validation_error < 0.04")).complete
    trials = rows(tmp_path)
    assert not set(first["trial"][first["arm"]]) & set(
        trials["trial"][trials["baseline_steps"].isin(least(trials).values())]
    )
    found = status(tmp_path)
    assert found.left == 0
    assert (found.studies["other_searches"] > 0).sum() == 2


def test_a_baseline_that_does_not_reach_the_target(tmp_path: Path) -> None:
    seen: list[Event] = []
    of = fake(trials=1, seed=16)
    did = run(tmp_path, of, observer=seen.append)
    assert (did.complete, did.studies) == (True, 3)
    trials = rows(tmp_path)
    ((unreached,),) = (tuple({64, 128} - least(trials).keys()),)
    assert set(trials["batch_size"][trials["arm"]]) == {128 + 64 - unreached}
    line = f"1 study is not trained: the baseline did not reach the target at batch {unreached}."
    assert line in [e.text for e in seen if isinstance(e, Note)]
    found = status(tmp_path)
    assert found.left == 0
    (waits,) = found.studies["waits"].dropna()
    assert line == f"1 study {waits} at batch {unreached}."


def test_one_of_several_baselines_that_does_not_reach_the_target() -> None:
    class Complete:
        def __init__(self, *hits: int) -> None:
            self._hits = list(hits)

        def hits(self) -> Sequence[int]:
            return self._hits

    studies: Any = [Complete(10, 70), Complete(40), Complete(20, 21)]
    assert baseline_steps(studies) == 20
    assert baseline_steps(studies[:1]) == 10
    studies.append(Complete())
    assert baseline_steps(studies) is None
