"""The packaged data: whose it is, and its traps."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

import results
from results.reader import Results
from results.storage.location import PACKAGED


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
