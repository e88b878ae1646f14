"""``export tensorboard``: what TensorBoard's own reader finds in it is what the dataset holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tensorboard import context
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler

import results
from results.errors import ResultsError
from results.exports import MARK
from results.exports import tensorboard as runs
from results.exports.tensorboard import export_tensorboard as export
from results.extensions import EXPORTS
from results.reader import Results
from results.schema import METRIC_COLUMNS
from results.storage.compact import compact
from results.storage.location import Location
from results.store import Store
from tests.results import synthetic


def runs_of(folder: Path) -> dict[str, Path]:
    """The folder of each run by the trial that it is of."""
    found = {}
    for file in folder.glob("*/*/*/events.*"):
        accumulator = EventAccumulator(str(file.parent)).Reload()
        content = accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        from tensorboard.plugins.hparams import plugin_data_pb2

        start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
        found[start.group_name] = file.parent
    return found


def scalars_of(run: Path) -> dict[str, list[tuple[int, float, float]]]:
    """``tag: [(step, wall time, value)]`` as TensorBoard reads it."""
    accumulator = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    return {
        tag: [(e.step, e.wall_time, e.value) for e in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def expected(looks: pd.DataFrame, trial: pd.Series) -> dict[str, list[tuple[int, float]]]:
    """The same out of frames: the plain way, in single precision."""
    found: dict[str, list[tuple[int, float]]] = {}
    for _, look in looks.sort_values("step", kind="stable").iterrows():
        values = {name: look[name] for name in METRIC_COLUMNS if not pd.isna(look[name])}
        values |= json.loads(look["metrics"]) if isinstance(look["metrics"], str) else {}
        for name, value in values.items():
            tag = name.replace("_", "/", 1)
            found.setdefault(tag, []).append((int(look["step"]), float(np.float32(value))))
    if not pd.isna(trial["steps_to_target"]):
        steps = trial["steps_to_target"]
        found["steps_to_target"] = [(int(steps), float(np.float32(steps)))]
    return found


def same(found: Results, folder: Path) -> None:
    """Every trial of ``found`` is a run of ``folder``, value for value."""
    runs = runs_of(folder)
    assert set(runs) == set(found.trials["trial"])
    for _, trial in found.trials.iterrows():
        looks = found.measurements[found.measurements["trial"] == trial["trial"]]
        read = scalars_of(runs[trial["trial"]])
        plain = {tag: [(step, value) for step, _, value in each] for tag, each in read.items()}
        assert plain == expected(looks, trial)


@pytest.fixture
def mixed(folder: Path) -> Path:
    """The synthetic dataset with a failed trial that has no looks, one that was trained again, one
    whose values are not finite, and one with looks that a crash left."""
    store = Store(folder)
    group = synthetic.trial_row("digits-mlp", "sgd", 8, 0)
    odd = {**group, "trial": "odd", "index": 9, "steps_run": 2, "steps_to_target": None}
    broken = {"validation_error": float("nan"), "train_loss": float("inf"), "test_own": "-inf"}
    store.commit(
        "synthetic",
        trials=[
            {**odd, "status": "INFEASIBLE", "stop_reason": "diverged"},
            {**odd, "trial": "failed", "status": "INCOMPLETE", "stop_reason": "error"},
            {**synthetic.trial_row("digits-mlp", "sgd", 16, 1), "steps_run": 4},
        ],
        measurements=[
            {"trial": "odd", "step": 2, "train_seconds": None, "metrics": broken},
            {"trial": "digits-mlp-sgd-16-1", "step": 4, "metrics": {"validation_error": 0.125}},
        ],
    )
    return folder


def test_every_value_is_what_the_dataset_holds(mixed: Path, tmp_path: Path) -> None:
    found = results.open(mixed)
    done = export(found, tmp_path / "tb")
    assert (done.trials, done.of, done.changed) == (50, 50, 50)
    plain = found.measurements
    assert done.measurements == len(plain)
    # NaN equals nothing: the odd trial is held to it here, the others value for value.
    odd = scalars_of(runs_of(tmp_path / "tb")["odd"])
    assert odd["train/loss"][0][2] == np.inf
    assert odd["test/own"][0][2] == -np.inf
    assert np.isnan(odd["validation/error"][0][2])  # TensorBoard draws it as what it is
    assert set(odd) == {"train/loss", "test/own", "validation/error"}
    others = found.where("trial <> 'odd'")
    export(others, tmp_path / "others")
    same(others, tmp_path / "others")


def test_wall_time_goes_back_from_the_commit(folder: Path, tmp_path: Path) -> None:
    found = results.open(folder)
    export(found, tmp_path / "tb")
    runs = runs_of(tmp_path / "tb")
    trial = found.trials.set_index("trial").loc["mnist-fc-adam-32-2"]
    read = scalars_of(runs["mnist-fc-adam-32-2"])["validation/error"]
    ended = trial["time"].timestamp()
    assert [round(wall - ended, 3) for _, wall, _ in read] == [-0.5, -0.4, -0.3, -0.2, -0.1, 0.0]


def test_runs_have_names_that_sort_and_say_what_they_are(folder: Path, tmp_path: Path) -> None:
    export(results.open(folder), tmp_path / "tb")
    names = sorted(
        str(path.parent.relative_to(tmp_path / "tb")) for path in tmp_path.glob("tb/*/*/*/events.*")
    )
    assert len(names) == 48
    assert names[0].startswith("synthetic/adam-b00008/000-")
    assert [name.split("/")[1] for name in names[::8]] == [
        f"{optimizer}-b{size:05d}" for optimizer in ("adam", "sgd") for size in (8, 16, 32)
    ]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({}, "digits/sgd-b00064/003-0123456789abcdef"[:-8]),
        ({"optimizer": None, "index": None}, "digits/b00064/01234567"),
        ({"optimizer": "../my opt.py:Sophia"}, "digits/my-opt.py-Sophia-b00064/003-01234567"),
        ({"experiment": ".."}, "unnamed/sgd-b00064/003-01234567"),
        ({"experiment": None}, "trials/sgd-b00064/003-01234567"),
        ({"batch_size": 131_072}, "digits/sgd-b131072/003-01234567"),
    ],
)
def test_names_are_folders(row: dict[str, Any], name: str) -> None:
    usual = {"experiment": "digits", "optimizer": "sgd", "batch_size": 64, "index": 3}
    assert runs.run_name({**usual, "trial": "0123456789abcdef", **row}) == name


def test_a_trial_of_others_has_a_name_of_its_own() -> None:
    usual = {"experiment": "x", "optimizer": "sgd", "batch_size": 64, "index": 3}
    names = {runs.run_name({**usual, "trial": f"shallue_2019/{i}"}) for i in range(500)}
    assert len(names) == 500


def hparams(folder: Path) -> tuple[Any, list[Any]]:
    """The columns of the HPARAMS tab, and its rows, by TensorBoard's own back end."""
    runs = EventMultiplexer().AddRunsFromDirectory(str(folder)).Reload()
    provider = MultiplexerDataProvider(runs, str(folder))
    backend, request = Context(TBContext(data_provider=provider)), context.RequestContext()
    metadata = backend.hparams_metadata(request, "")
    columns = backend.experiment_from_metadata(request, "", True, metadata, [])
    asked = api_pb2.ListSessionGroupsRequest(
        start_index=0,
        slice_size=1000,
        allowed_statuses=[
            api_pb2.STATUS_SUCCESS,
            api_pb2.STATUS_FAILURE,
            api_pb2.STATUS_RUNNING,
            api_pb2.STATUS_UNKNOWN,
        ],
        col_params=[api_pb2.ColParams(metric=m.name) for m in columns.metric_infos],
    )
    return columns, list(Handler(request, backend, "", asked).run().session_groups)


def test_the_hparams_tab_compares_trials(mixed: Path, tmp_path: Path) -> None:
    found = results.open(mixed)
    export(found, tmp_path / "tb")
    columns, rows = hparams(tmp_path / "tb")
    kinds = {info.name: api_pb2.DataType.Name(info.type) for info in columns.hparam_infos}
    assert kinds["learning_rate"] == kinds["batch_size"] == kinds["width"] == "DATA_TYPE_FLOAT64"
    assert kinds["optimizer"] == "DATA_TYPE_STRING"
    tags = [info.name.tag for info in columns.metric_infos]
    assert tags[0] == "steps_to_target"
    assert {"validation/error", "test/error", "validation/top5", "train/loss"} <= set(tags)
    trials = found.trials.set_index("trial")
    assert {row.name for row in rows} == set(trials.index)
    for row in rows:
        trial = trials.loc[row.name]
        given = {name: value for name, value in row.hparams.items() if value.WhichOneof("kind")}
        assert given["learning_rate"].number_value == trial["learning_rate"]
        assert given["batch_size"].number_value == trial["batch_size"]
        assert given["optimizer"].string_value == trial["optimizer"]
        assert ("width" in given) == (trial["workload"] == "digits-mlp")
        values = {metric.name.tag: metric.value for metric in row.metric_values}
        if pd.isna(trial["steps_to_target"]):
            assert "steps_to_target" not in values
        else:
            assert values["steps_to_target"] == trial["steps_to_target"]
        failed = row.name in ("odd", "failed")
        (session,) = row.sessions
        assert session.status == (api_pb2.STATUS_FAILURE if failed else api_pb2.STATUS_SUCCESS)


def test_names_that_meet_are_told_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    base = synthetic.trial_row("digits-mlp", "sgd", 8, 0)
    trials = [
        {**base, "fields": {"momentum": 2, "own": [1, 2]}, "metaparameters": {"momentum": 0.5}},
        {**base, "trial": "b", "fields": {"own": 3, "flag": True}, "metaparameters": {"role": 1}},
    ]
    store.commit(
        "x",
        trials=trials,
        measurements=[{"trial": "b", "step": 1, "metrics": {"validation_error": 0.5}}],
    )
    export(results.open(tmp_path / "runs"), tmp_path / "tb")
    columns, rows = hparams(tmp_path / "tb")
    kinds = {info.name: api_pb2.DataType.Name(info.type) for info in columns.hparam_infos}
    assert kinds["own"] == "DATA_TYPE_STRING"
    assert kinds["flag"] == "DATA_TYPE_BOOL"
    values = {row.name: row.hparams for row in rows}
    first, second = values[base["trial"]], values["b"]
    assert first["momentum"].number_value == 0.5
    assert first["workload.momentum"].number_value == 2
    assert first["own"].string_value == "[1, 2]"
    assert second["own"].number_value == 3
    assert second["flag"].bool_value
    assert second["role"].string_value == "search"
    assert second["tuned.role"].number_value == 1


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("events.*")
    }


def test_the_same_again_changes_nothing(folder: Path, tmp_path: Path) -> None:
    export(results.open(folder), tmp_path / "tb")
    before = snapshot(tmp_path / "tb")
    compact(Location(folder))
    again = export(results.open(folder), tmp_path / "tb")
    assert (again.trials, again.changed) == (48, 0)
    assert snapshot(tmp_path / "tb") == before
    assert not [path for path in (tmp_path / "tb").rglob("*") if path.name.endswith(".tmp")]


def test_more_trials_join_those_that_are_there(folder: Path, tmp_path: Path) -> None:
    found = results.open(folder)
    export(found.where("optimizer = 'sgd'"), tmp_path / "tb")
    before = snapshot(tmp_path / "tb")
    more = export(found.where("optimizer = 'adam'"), tmp_path / "tb")
    assert (more.trials, more.changed) == (24, 24)
    after = snapshot(tmp_path / "tb")
    root = str(tmp_path / "tb" / "events.out.tfevents.batchscale")
    assert {name: after[name] for name in before if name != root} == {
        name: content for name, content in before.items() if name != root
    }
    same(found, tmp_path / "tb")
    columns, rows = hparams(tmp_path / "tb")
    assert len(rows) == 48
    # Only sgd's had no test error: its columns and the other's stand side by side.
    assert {"test/error", "validation/error"} <= {info.name.tag for info in columns.metric_infos}


def test_looks_that_do_not_stand_together_are_one_run(tmp_path: Path) -> None:
    """A file of one's own, a row a step: no trial's looks stand together, nor by step."""
    steps, sizes = (30, 10, 20), (8, 16, 32, 64)
    lines = [f"{size},{step},{size / step}" for step in steps for size in sizes]
    path = tmp_path / "curves.csv"
    path.write_text("batch_size,step,validation_error\n" + "\n".join(lines) + "\n")
    store = Store(tmp_path / "runs")
    found = results.open(path)
    rows = found.source.table("measurements").to_pylist()
    order = [row for step in steps for row in rows if row["step"] == step]
    trials = found.trial_rows.to_pylist()
    store.commit(
        "curves",
        trials=trials,
        measurements=[{key: row[key] for key in row if key != "run"} for row in order],
    )
    opened = results.open(tmp_path / "runs")
    done = export(opened, tmp_path / "tb")
    assert (done.trials, done.measurements) == (4, 12)
    same(opened, tmp_path / "tb")
    export(found, tmp_path / "direct")
    same(found, tmp_path / "direct")


@pytest.mark.parametrize(
    ("prepare", "says", "hint"),
    [
        (lambda path: path.write_text("mine"), "it is a file", "empty folder"),
        (lambda path: path.joinpath("sub").mkdir(parents=True), "nothing was changed", "empty"),
        (
            lambda path: (path.mkdir(), path.joinpath(MARK).write_text('{"export": "other"}')),
            "no export to tensorboard has written",
            "empty",
        ),
        (
            lambda path: (path.mkdir(), path.joinpath(MARK).write_text("{broken")),
            "no export to tensorboard has written",
            "empty",
        ),
    ],
)
def test_a_folder_that_is_not_an_exports_is_refused(
    folder: Path, tmp_path: Path, prepare: Any, says: str, hint: str
) -> None:
    prepare(tmp_path / "tb")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(ResultsError, match=says) as error:
        export(results.open(folder), tmp_path / "tb")
    assert hint in (error.value.hint or "")
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_what_cannot_be_exported_is_one_line(folder: Path, tmp_path: Path) -> None:
    found = results.open(folder)
    with pytest.raises(ResultsError, match="no export of 'tensorbord'") as error:
        EXPORTS.get("tensorbord")
    assert error.value.hint == "did you mean tensorboard?"
    with pytest.raises(ResultsError, match="s3://bucket/tb: it is not a local folder"):
        export(found, "s3://bucket/tb")
    with pytest.raises(ResultsError, match="published has no measurements of these trials"):
        export(results.open("published"), tmp_path / "tb")
    with pytest.raises(ResultsError, match="has no trials"):
        export(found.where("batch_size = 5"), tmp_path / "tb")
    assert not (tmp_path / "tb").exists()
