"""The packaged data: whose it is, its traps, and that it can be made again."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc
import pytest

import results
from results.errors import ResultsError
from results.reader import Results
from results.storage.location import PACKAGED
from validation.package_published import make, tables

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Path(os.environ.get("BATCHSCALE_REFERENCE", ROOT / "no reference"))
here = pytest.mark.skipif(not REFERENCE.is_dir(), reason="BATCHSCALE_REFERENCE names no folder")


@pytest.fixture(scope="module")
def published() -> Results:
    return results.open("published")


@pytest.fixture(scope="module")
def mlperf(published: Results) -> pd.DataFrame:
    trials = published.trials
    return trials[trials["source"] == "mlperf_rcp"]


def told(trials: pd.DataFrame, name: str) -> list[Any]:
    return [json.loads(text).get(name) for text in trials["as_published"]]


def notes(published: Results, workload: str) -> list[str]:
    texts = published.studies.query(f"workload == {workload!r}")["notes"].dropna()
    return list(dict.fromkeys(note for text in texts for note in json.loads(text)))


def test_every_source_says_whose_it_is(published: Results) -> None:
    sources = published.sources.set_index("source")
    assert sorted(sources.index) == ["mlperf_rcp", "shallue_2019_digitized", "zhang_2024"]
    for column in ("citation", "licence", "address", "checksum", "notes"):
        assert sources[column].str.len().gt(2).all()
    assert dict(sources["licence"]) == {
        "mlperf_rcp": "Apache-2.0",
        "shallue_2019_digitized": "Apache-2.0",
        "zhang_2024": "MIT",
    }
    assert set(published.trials["source"]) == set(sources.index)


def test_every_row_of_the_references_is_a_run_of_its_own(published: Results) -> None:
    trials = published.trials
    count = {"mlperf_rcp": 1940, "shallue_2019_digitized": 89, "zhang_2024": 27}
    assert dict(trials["source"].value_counts()) == count
    assert set(trials["role"]) == {"repeat"}
    assert trials["trial"].is_unique
    assert set(trials["study"]) == set(published.studies["study"])
    assert trials["as_published"].notna().all()


def test_curves_have_the_names_of_our_workloads_and_optimizers(published: Results) -> None:
    curves = published.trials.query("source == 'shallue_2019_digitized'")
    sizes = curves.groupby(["workload", "model", "dataset", "optimizer"]).size()
    assert sizes["mnist-simple-cnn", "simple-cnn", "mnist", "nesterov"] == 10
    assert sizes["cifar10-resnet8", "resnet8", "cifar10", "sgd"] == 13
    assert sizes["lm1b-lstm", "lstm", "lm1b", "nesterov"] == 7
    assert len(sizes) == 7
    one = curves.query("workload == 'cifar10-resnet8' and optimizer == 'sgd' and batch_size == 64")
    assert one["steps_to_target"].item() == 6440
    assert one["examples_run"].item() == 64 * 6440
    assert one["target_metric"].item() == "validation_error"
    assert one["target_value"].item() == 0.3
    assert one["relative_error"].item() == 0.03
    assert told(one, "relative_error") == [0.03]
    assert (curves["relative_error"] == told(curves, "relative_error")).all()
    assert (
        published.trials.query("source != 'shallue_2019_digitized'")["relative_error"].isna().all()
    )
    assert told(one, "optimizer") == ["sgd"]


def test_markers_that_another_hides_are_named(published: Results) -> None:
    said = notes(published, "cifar10-resnet8")
    assert "read off a figure: each point is known to about 3 %, about 10 % at 2" in said


def test_steps_of_the_language_models_are_those_fitted(published: Results) -> None:
    curves = published.trials.query("source == 'zhang_2024'")
    logged = pd.Series(told(curves, "steps_logged"), curves.index)
    assert (logged != curves["steps_to_target"]).sum() == 5
    one = curves.query("model == 'transformer-151m' and batch_size == 4096")
    assert one["steps_to_target"].item() == 2940
    assert logged[one.index].item() == 2760
    assert set(curves["tokens_per_example"]) == {512}
    assert set(curves["example_unit"]) == {"sequence"}
    assert sorted(set(curves["parameters"])) == [85e6, 151e6, 604e6]
    assert notes(published, "c4-transformer-85m") == [
        "the authors' log has other steps than they fitted: 2,500 at 2048, 1,800 at 4096"
    ]
    assert notes(published, "c4-transformer-604m") == []


@pytest.mark.parametrize(
    ("benchmark", "batch_size", "value", "unit", "steps", "examples"),
    [
        ("bert", 256, 2834944, "sample", 2834944 / 256, 2834944),
        ("resnet", 1632, 34, "epoch", 34 * 1281167 / 1632, 34 * 1281167),
        ("gpt3", 1536, 1157627904, "token", 368, 368 * 1536),
        ("ssd", 256, 4, "epoch", 4 * 1170301 / 256, 4 * 1170301),
        ("gnn", 4096, 0.85, "epoch", 0.85 / 4096, None),
    ],
)
def test_units_differ_by_benchmark(
    mlperf: pd.DataFrame,
    benchmark: str,
    batch_size: int,
    value: float,
    unit: str,
    steps: float,
    examples: float | None,
) -> None:
    rows = mlperf[(mlperf["workload"] == benchmark) & (mlperf["batch_size"] == batch_size)]
    first = rows[[run == 0 for run in told(rows, "run")]]
    assert told(first, "value") == [value]
    assert told(first, "unit") == [unit]
    assert first["steps_to_target"].item() == pytest.approx(steps, rel=1e-12)
    if examples is None:
        assert first["examples_run"].isna().all()
        assert first["steps_run"].isna().all()
    else:
        assert first["examples_run"].item() == examples


def test_sizes_from_memory_and_sizes_that_are_not_known_are_named(published: Results) -> None:
    assert any("1,170,301 examples an epoch is a number from" in n for n in notes(published, "ssd"))
    assert any("4,195,197,692 examples" in note for note in notes(published, "dlrm"))
    assert any("2,048 tokens an example is a" in note for note in notes(published, "gpt3"))
    for benchmark in ("gnn", "oc20", "cosmoflow"):
        assert any("epochs / batch size" in note for note in notes(published, benchmark))
    assert notes(published, "bert") == notes(published, "resnet") == []


def test_the_outlier_is_kept_and_is_no_point(mlperf: pd.DataFrame, published: Results) -> None:
    out = mlperf[mlperf["status"] != "COMPLETE"]
    assert out[["workload", "batch_size", "stop_reason"]].values.tolist() == [
        ["gpt3", 3072, "error"]
    ]
    assert out["steps_to_target"].isna().all()
    assert told(out, "value") == [13790871552]
    assert "5 times the median" in out["error"].item()
    assert any("1 of the runs at batch size 3072" in note for note in notes(published, "gpt3"))


def test_cosmoflow_of_changed_hyperparameters_is_a_curve_of_its_own(mlperf: pd.DataFrame) -> None:
    rows = mlperf[mlperf["workload"] == "cosmoflow"]
    sizes = rows.groupby(rows["recipe"].fillna("usual"))["batch_size"].unique()
    assert {name: sorted(own) for name, own in sizes.items()} == {
        "changed": [32, 64],
        "usual": [128, 512, 1024],
    }


def test_a_run_has_its_submitter(mlperf: pd.DataFrame) -> None:
    who = mlperf.groupby("workload")["submitter"].unique().map(set)
    assert who["resnet"] == who["bert"] == {"Google", "NVIDIA"}
    assert who["gnn"] == {"Intel", "NVIDIA"}
    assert who["gpt3"] == {"Google & NVIDIA"}
    assert mlperf[mlperf["submitter"].isna()]["workload"].unique().tolist() == [
        "cosmoflow", "oc20", "openfold",
    ]  # fmt: skip


def test_too_few_batch_sizes_are_named(published: Results) -> None:
    for benchmark in ("deepseekv3_671b", "qwen35_397b_grpo"):
        assert any("too few to say where" in note for note in notes(published, benchmark))
    assert not any("too few" in note for note in notes(published, "bert"))


def test_no_name_of_a_folder_is_in_it(published: Results) -> None:
    for frame in (published.trials, published.studies, published.sources):
        for column in frame.columns:
            cells = frame[column].dropna().astype(str)
            assert not cells.str.contains(r"(?:^|\s)/(?:work|home|tmp)/").any()


def test_it_is_small() -> None:
    sizes = [file.stat().st_size for file in PACKAGED["published"].rglob("*.parquet")]
    assert sum(sizes) < 300_000


@here
def test_it_is_what_the_command_makes() -> None:
    made = tables(REFERENCE)
    for name in ("trials", "studies", "sources"):
        table = results.open("published").source.table(name)
        for source, own in made.items():
            mine = table.filter(pc.equal(table["experiment"], source))
            assert mine.equals(own[name].replace_schema_metadata(None))


@here
def test_derived_steps_are_those_of_the_reference(mlperf: pd.DataFrame) -> None:
    with (REFERENCE / "mlperf_rcp.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    given = {(r["benchmark"], int(r["batch_size"]), int(r["run"])): r for r in rows}
    trial: Any
    for trial, run in zip(mlperf.itertuples(), told(mlperf, "run"), strict=True):
        row = given.pop((trial.workload, trial.batch_size, run))
        assert (trial.status != "COMPLETE") == (row["outlier"] == "True")
        if trial.status == "COMPLETE":
            wanted = row["steps_to_target"] or row["raw_per_bs"]
            assert trial.steps_to_target == pytest.approx(float(wanted), rel=1e-12)
    assert not given


@here
def test_made_twice_it_is_the_same_to_the_byte(tmp_path: Path) -> None:
    (tmp_path / "one" / "trials" / "old").mkdir(parents=True)
    (tmp_path / "one" / "trials" / "old" / "old.parquet").write_bytes(b"of an earlier time")
    for name in ("one", "two"):
        assert make(REFERENCE, tmp_path / name) == 2056
    files = {
        name: {f.relative_to(tmp_path / name): f.read_bytes() for f in files if f.is_file()}
        for name in ("one", "two")
        for files in [sorted((tmp_path / name).rglob("*"))]
    }
    assert files["one"] == files["two"]
    assert len(files["one"]) == 9


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "validation.package_published", tmp_path, tmp_path / "out"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no file")
    assert not (tmp_path / "out").exists()


@here
@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("mlperf_rcp.csv", ",34,epoch,", ",34,sample,", "line 2: resnet counts in epochs, not sam"),
        ("mlperf_rcp.csv", ",34,epoch,", ",many,epoch,", "line 2: raw_value is 'many', not a num"),
        ("mlperf_rcp.csv", "lars,1632,0", "lars,1632,7", "line 2: run 7 is not the next"),
        ("llm_2024.csv", "c4,adamw_ewa", "c5,adamw_ewa", "line 2: a curve of zhang_2024 on c5"),
        ("llm_2024.csv", "3.42,64,46000", "3.42,64.5,46000", "line 2: batch_size is '64.5'"),
        ("llm_2024.csv", "3.42,128,", "3.42,64,", "has batch size 64 of a curve twice"),
        ("shallue_2019_digitized.csv", "1,66000", "1,-66000", "line 2: steps is '-66000'"),
    ],
)
def test_a_row_without_a_place_is_named(
    tmp_path: Path, file: str, old: str, new: str, says: str
) -> None:
    for name in ("mlperf_rcp.csv", "llm_2024.csv", "shallue_2019_digitized.csv"):
        shutil.copy(REFERENCE / name, tmp_path)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    with pytest.raises(ResultsError) as caught:
        tables(tmp_path)
    assert says in str(caught.value)
    assert file in str(caught.value)
