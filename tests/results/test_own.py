"""The packaged own data: made from results folders, the same each time, and naming no machine."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import batchscale as bs
import results
from experiments.config import sources
from experiments.config.compile import load
from experiments.identity import study_id
from results.errors import ResultsError
from results.storage.location import PACKAGED
from results.store import Store
from tests.results import synthetic
from validation.package_own import LEFT_OUT, SOURCE, main, make, tables
from workloads.data import present

ROOT = Path(__file__).resolve().parents[2]

LIBRARY = [
    *(f"techniques-{name}" for name in ("digits", "mnist", "text", "transfer", "compression")),
    "lm-tiny",
]
"""Packaged experiments, besides the demo, whose files are in the library."""
BEGUN = "cifar10-resnet8-momentum"
"""One whose largest batch sizes are not trained yet."""


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_what_counts_arrives_with_its_source(folder: Path, tmp_path: Path) -> None:
    assert make([folder], tmp_path / "own") == 48
    there, mine = results.open(folder), results.open(tmp_path / "own")
    assert set(mine.trials["source"]) == set(mine.studies["source"]) == {SOURCE}
    kept = [name for name in there.trials if name not in {*LEFT_OUT, "source", "run"}]
    order = {study: place for place, study in enumerate(there.studies["study"])}
    before = there.trials.assign(place=there.trials["study"].map(order))
    before = before.sort_values(["place", "index"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(mine.trials[kept], before[kept])
    assert mine.trials[list(LEFT_OUT)].isna().all(axis=None)
    assert mine.studies["study"].tolist() == there.studies["study"].tolist()
    (source,) = mine.sources.to_dict("records")
    assert (source["source"], source["experiment"]) == (SOURCE, "synthetic")
    assert source["licence"] == "Apache-2.0"
    assert '"torch":"2.11.0"' in source["notes"]
    assert mine.measurements.empty


def test_measurements_come_with_what_goes_past_its_target(tmp_path: Path) -> None:
    row = synthetic.trial_row("mnist-fc", "adam", 16, 1)
    study = synthetic.study_row("mnist-fc", "adam", 16, trials_wanted=1)
    looks = [
        {"trial": row["trial"], "step": step, "examples": 16 * step, "train_seconds": 0.1,
         "validation_error": 1 / step, "metrics": {"validation_margin": float(step)}}
        for step in (1, 2, 4)
    ]  # fmt: skip
    for name, stops in (("on", False), ("off", True)):
        store = Store(tmp_path / name)
        store.add_studies([{**study, "stop_at_target": stops}])
        trial = {**row, "stop_at_target": stops}
        store.commit("synthetic", measurements=looks[::-1], trials=[trial])
        make([tmp_path / name], tmp_path / f"own-{name}")
    assert results.open(tmp_path / "own-off").measurements.empty
    on = results.open(tmp_path / "own-on")
    found = on.measurements
    assert found["step"].tolist() == [1, 2, 4]
    assert found["validation_error"].tolist() == [1, 0.5, 0.25]
    assert found["metrics"].notna().all()
    assert found["train_seconds"].isna().all()
    assert set(found["run"]) == {SOURCE}
    assert "and its measurements" in on.sources["notes"].iloc[0]
    assert on.with_target("validation_error < 0.3").trials["steps_to_target"].tolist() == [4]


def test_packaged_trials_have_the_same_steps_to_an_easier_target(tmp_path: Path) -> None:
    """Those that were dominated, or diverged, after they had reached it too."""
    goals = ["validation_error < 0.3", "validation_error < 0.1"]
    study = synthetic.study_row("digits-mlp", "sgd", 16, trials_wanted=3, targets=goals)
    row = synthetic.trial_row("digits-mlp", "sgd", 16, 0)
    ends: list[dict[str, Any]] = [
        {"status": "COMPLETE", "stop_reason": "target"},
        {"status": "INCOMPLETE", "stop_reason": "dominated", "steps_to_target": None},
        {"status": "INFEASIBLE", "stop_reason": "diverged", "steps_to_target": None},
        {"status": "INCOMPLETE", "stop_reason": "dominated", "steps_to_target": None},
        {"status": "INCOMPLETE", "stop_reason": "dominated", "steps_to_target": None},
    ]
    trials = [{**row, **end, "trial": f"t{i}", "seed": i + 1} for i, end in enumerate(ends)]
    errors = [
        (0.5, 0.2, 0.05),
        (0.5, 0.4, 0.25),
        (0.2, 0.5, 0.9),
        (0.5, 0.4, 0.35),
        (0.28, 0.3, 0.3),
    ]
    measured = [
        {"trial": f"t{i}", "step": step, "examples": 16 * step, "validation_error": error}
        for i, each in enumerate(errors)
        for step, error in zip((2, 4, 8), each, strict=True)
    ]
    Store(tmp_path / "there").add_studies([study])
    Store(tmp_path / "there").commit("synthetic", measurements=measured, trials=trials)
    make([tmp_path / "there"], tmp_path / "own")
    steps = []
    for folder in ("there", "own"):
        easier = results.open(tmp_path / folder).with_target(goals[0]).trials.set_index("trial")
        steps.append(easier["steps_to_target"].reindex([f"t{i}" for i in range(5)]))
    pd.testing.assert_series_equal(steps[0], steps[1])
    assert steps[1].fillna(0).tolist() == [4, 8, 2, 0, 2]


def test_unfinished_studies_stay_out(folder: Path, tmp_path: Path) -> None:
    """A curve is cut to the trials that all of its batch sizes share."""
    more = synthetic.study_row("digits-mlp", "sgd", 8, trials_wanted=5)
    Store(folder).add_studies([more])
    assert make([folder], tmp_path / "own") == 44
    assert more["study"] not in set(results.open(tmp_path / "own").studies["study"])
    broken = synthetic.trial_row("digits-mlp", "sgd", 16, 2)
    ended = {**broken, "status": "INCOMPLETE", "stop_reason": "error", "steps_to_target": None}
    Store(folder).commit("synthetic", measurements=[], trials=[ended])
    assert make([folder], tmp_path / "own") == 40
    dominated = {**ended, "stop_reason": "dominated"}
    Store(folder).commit("synthetic", measurements=[], trials=[dominated])
    assert make([folder], tmp_path / "own") == 44


def test_a_study_whose_trials_all_diverge_is_finished(folder: Path, tmp_path: Path) -> None:
    more = synthetic.study_row("digits-mlp", "sgd", 64, trials_wanted=1)
    diverged = {"status": "INFEASIBLE", "stop_reason": "diverged", "steps_to_target": None}
    rows = [{**synthetic.trial_row("digits-mlp", "sgd", 64, i), **diverged} for i in range(4)]
    Store(folder).add_studies([more])
    Store(folder).commit("synthetic", measurements=[], trials=rows[:3])
    assert make([folder], tmp_path / "own") == 48
    Store(folder).commit("synthetic", measurements=[], trials=rows)
    assert make([folder], tmp_path / "own") == 52


@pytest.mark.parametrize(("ran", "counts"), [(9, True), (8, False)])
def test_a_trial_that_diverges_after_the_cutoff_counts(
    folder: Path, tmp_path: Path, ran: int, counts: bool
) -> None:
    """Of four, the second best ends dominated stopping; before that, divergence counts not."""
    wanted = {"trials_wanted": 4, "keep": 2, "stop_at_target": True}
    Store(folder).add_studies([synthetic.study_row("digits-mlp", "sgd", 64, **wanted)])
    rows = [synthetic.trial_row("digits-mlp", "sgd", 64, i) for i in range(4)]
    for row, steps in zip(rows, (6, 8, 12), strict=False):
        row["steps_to_target"] = steps
    lost = {"status": "INFEASIBLE", "stop_reason": "diverged", "steps_to_target": None}
    rows[3] |= {**lost, "steps_run": ran}
    Store(folder).commit("synthetic", measurements=[], trials=rows)
    assert make([folder], tmp_path / "own") == (52 if counts else 48)


def test_superseded_rows_stay_out(folder: Path, tmp_path: Path) -> None:
    again = synthetic.trial_row("digits-mlp", "sgd", 8, 0)
    Store(folder).commit("synthetic", measurements=[], trials=[{**again, "steps_to_target": 3}])
    assert make([folder], tmp_path / "own") == 48
    trials = results.open(tmp_path / "own").committed.to_pandas().set_index("trial")
    assert trials.loc[again["trial"], "steps_to_target"] == 3


def test_a_search_that_has_grown_is_that_of_its_newest_file(tmp_path: Path) -> None:
    """Its studies, its space, and its settings in all rows; former ones stay out."""
    early, late = (pd.Timestamp(f"2026-01-0{day}", tz="UTC") for day in (1, 2))
    former = {"experiment_yaml": "trials: 1\n", "search_id": "narrow", "time": early}
    newest = {"experiment_yaml": "trials: 2\n", "search_id": "wide", "time": late}
    grown = {"trials_wanted": 2, "keep": 10, "estimator": "best_of_10"}
    wide = synthetic.study_row("digits-mlp", "sgd", 8, **newest, **grown)
    left = synthetic.study_row("digits-mlp", "sgd", 16, **former, trials_wanted=1)
    before = {"trials_wanted": 1, "keep": 4, "estimator": "minimum"}
    trials = [
        {**synthetic.trial_row("digits-mlp", "sgd", size, index), **settings, "search_id": search}
        for size, index, settings, search in (
            (8, 0, before, "wide"), (8, 1, grown, "wide"), (8, 2, before, "narrow"),
            (16, 0, before, "narrow"),
        )
    ]  # fmt: skip
    store = Store(tmp_path / "runs")
    store.add_studies([left, wide])
    store.commit("synthetic", measurements=[], trials=trials)
    assert make([tmp_path / "runs"], tmp_path / "own") == 2
    own = results.open(tmp_path / "own")
    assert set(own.studies["study"]) == {wide["study"]}
    assert own.trials["index"].tolist() == [0, 1]
    for name, value in grown.items():
        assert own.trials[name].tolist() == [value, value]


def test_twice_it_is_the_same_to_the_byte_and_others_stay(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    make([folder], own)
    before = files(own)
    row = synthetic.trial_row("mnist-fc", "adam", 16, 1)
    store = Store(tmp_path / "other")
    study = synthetic.study_row("mnist-fc", "adam", 16, experiment="later", trials_wanted=1)
    store.add_studies([study])
    with_other_seed = {**row, "experiment": "later", "trial": "another"}
    store.commit("later", measurements=[], trials=[with_other_seed])
    assert make([tmp_path / "other"], own) == 1
    after = files(own)
    assert before.items() <= after.items()
    assert len(after) == len(before) + 3
    make([folder, tmp_path / "other"], own)
    assert files(own) == after


def test_trials_of_another_experiment_are_refused(folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "other")
    study = synthetic.study_row("mnist-fc", "adam", 16, experiment="later", trials_wanted=1)
    store.add_studies([study])
    row = {**synthetic.trial_row("mnist-fc", "adam", 16, 1), "experiment": "later"}
    store.commit("later", measurements=[], trials=[row])
    message = "later has 1 trial of synthetic, and a dataset counts a trial once"
    with pytest.raises(ResultsError, match=message):
        make([folder, tmp_path / "other"], tmp_path / "together")
    own = tmp_path / "own"
    make([folder], own)
    before = files(own)
    with pytest.raises(ResultsError, match=message):
        make([tmp_path / "other"], own)
    assert files(own) == before


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("experiment_yaml", "workload: /data/me/mine.py:Mine\n"),
        ("notes", ["trained in ~/runs"]),
        ("model", "C:\\models\\mlp"),
        ("technique", {"file": "/opt/x/precision.py"}),
        ("schedule", "on host-of-mine"),
    ],
)
def test_no_machine_is_named(
    folder: Path, tmp_path: Path, column: str, cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validation.package_own.socket.gethostname", lambda: "host-of-mine")
    study = synthetic.study_row("digits-mlp", "sgd", 8, **{column: cell})
    Store(folder).add_studies([study])
    with pytest.raises(ResultsError, match=f"column {column} of studies names this machine"):
        make([folder], tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_wrong_folders(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no such folder"):
        tables([tmp_path / "gone"])
    Store(tmp_path / "empty")
    with pytest.raises(ResultsError, match="holds no trials") as caught:
        tables([tmp_path / "empty"])
    assert caught.value.hint == "name the folder of a sweep"
    with pytest.raises(ResultsError, match="two folders have the experiment synthetic"):
        tables([folder, folder])
    row = synthetic.trial_row("mnist-fc", "adam", 16, 1)
    store = Store(tmp_path / "begun")
    store.add_studies([synthetic.study_row("mnist-fc", "adam", 16)])
    store.commit("synthetic", measurements=[], trials=[row])
    with pytest.raises(ResultsError, match=r"no study of synthetic in .* is finished"):
        tables([tmp_path / "begun"])
    for words in ([], ["--too"], [str(folder), "--to"]):
        with pytest.raises(ResultsError) as caught:
            main(words)
        assert str(caught.value.hint).startswith("usage: python -m validation.package_own")


def test_the_command(folder: Path, tmp_path: Path) -> None:
    assert main([str(folder), "--to", str(tmp_path / "own")]) == "48 trials"
    done = subprocess.run(
        [sys.executable, "-m", "validation.package_own", str(tmp_path / "gone")],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: no results at")


@pytest.fixture(scope="module")
def own() -> results.Results:
    return results.open("own")


def test_every_row_of_the_packaged_data_has_its_source(own: results.Results) -> None:
    assert set(own.trials["source"]) == {SOURCE}
    assert set(own.sources["experiment"]) == set(own.trials["experiment"])
    assert set(own.trials["study"]) == set(own.studies["study"])
    assert own.trials["trial"].is_unique
    assert own.trials[list(LEFT_OUT)].isna().all(axis=None)
    assert own.trials["steps_to_target"].notna().sum() > 100


def test_the_packaged_data_names_no_machine(own: results.Results) -> None:
    words = [word for word in (socket.gethostname(), getpass.getuser()) if len(word) > 3]
    for frame in (own.trials, own.studies, own.sources):
        for column in frame:
            cells = frame[column].dropna().astype(str)
            assert not cells.str.contains(r"(?:^|[\s'\"=:])(?:/[^\s/]+/|~/)").any(), column
            assert not any(cells.str.contains(word, regex=False).any() for word in words), column


@pytest.mark.parametrize("target", ["0.4", "0.35", "0.3"])
def test_the_steps_of_resnet_on_its_page_are_those_of_the_packaged_trials(target: str) -> None:
    """Dominated trials among them, which may have come to an easier target first."""
    page = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith(f"| < {target} |"))
    goal = f"validation_error < {target}"
    (curve,) = bs.regimes("own", where=f"experiment = '{BEGUN}'", target=goal)
    steps = [f"{point['steps']:,.0f}" for point in curve["points"]]
    assert row == f"| < {target} | {' | '.join(steps)} |"


def test_the_packaged_data_is_small() -> None:
    sizes = [file.stat().st_size for file in PACKAGED["own"].rglob("*.parquet")]
    assert sum(sizes) < 20_000_000


STANDARD_LIBRARY = "b129ca8f071b26718553740faf15e5f596034e7fd536f84c5577428466b3ce9a"
"""The hash of Python 3.11.7's; each version of Python has another."""

RECIPES = ROOT / "results" / "own" / "experiments"


def test_the_file_of_every_packaged_experiment_is_there(own: results.Results) -> None:
    files = {path.stem for path in RECIPES.glob("*.yaml")}
    assert set(own.studies["experiment"]) == {*files, "digits", BEGUN, *LIBRARY}
    assert {"digits", *LIBRARY} <= set(sources.names())


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARY)
def test_the_packaged_studies_are_those_of_the_experiment(own: results.Results, name: str) -> None:
    studies = own.studies[own.studies["experiment"] == name]
    planned = {study_id(as_trained(plan.identity)) for plan in load(name).studies()}
    assert set(studies["study"]) == planned


@pytest.mark.skipif(not present("cifar10"), reason="needs CIFAR-10 in BATCHSCALE_DATA")
def test_a_sweep_into_a_copy_goes_on_with_what_was_begun(own: results.Results) -> None:
    studies = own.studies[own.studies["experiment"] == BEGUN]
    assert set(studies["study"]) < {study_id(plan.identity) for plan in load(BEGUN).studies()}


def test_a_language_models_claim_can_be_recomputed(own: results.Results) -> None:
    trials = own.trials[own.trials["experiment"] == "lm-tiny"]
    drawn = trials[trials["role"] == "search"]
    counts = drawn.groupby(["optimizer", "batch_size"])["trial"].nunique()
    assert counts.to_dict() == {(o, 2**k): 16 for o in ("adamw", "muon") for k in range(8)}
    where = "experiment = 'lm-tiny'"
    adamw, muon = bs.regimes("own", where=where, unit="tokens", baseline="adamw")
    assert [adamw["optimizer"], muon["optimizer"]] == ["adamw", "muon"]
    assert muon["against"]["ratios"]["critical_batch_size"]["low"] > 1
    assert muon["against"]["ratios"]["min_steps"]["high"] < 1


def as_trained(identity: Mapping[str, Any]) -> dict[str, Any]:
    """A study's identity where the standard library is the one that the packaged studies read."""
    workload = identity["workload"]
    text = workload["fields"].get("text") == "stdlib"
    return {**identity, "workload": {**workload, "data": STANDARD_LIBRARY} if text else workload}


@pytest.mark.parametrize(
    "name", ["gallery-goals", "gallery-models", "gallery-rules", "gallery-smoothing"]
)
def test_a_packaged_experiment_is_what_its_file_says(own: results.Results, name: str) -> None:
    """A study that two experiments share was trained once, and stands with the first."""
    studies = own.studies
    planned = {plan.id for plan in load(RECIPES / f"{name}.yaml").studies()}
    mine = set(studies[studies["experiment"] == name]["study"])
    assert mine <= planned <= set(studies["study"])
    assert len(mine) >= 21
