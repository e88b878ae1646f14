"""The packaged data: whose it is, and its traps."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pandas as pd
import pytest

import results
from results.reader import Results
from results.storage.location import PACKAGED

DIGESTS = {
    "sources": "219fcb0208db6cbc",
    "studies": "ef25d5cfda40fa97",
    "trials": "ee7cd188e660b440",
}


@pytest.fixture(scope="module")
def published() -> Results:
    return results.open("published")


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


@pytest.mark.parametrize("name", DIGESTS)
def test_they_are_what_was_packaged(published: Results, name: str) -> None:
    """The scripts of examples/importers say how units, outliers and sizes were read."""
    rows = published.source.table(name).to_pylist()
    text = "\n".join(sorted(json.dumps(row, default=str) for row in rows))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[name]


def test_no_name_of_a_folder_is_in_it(published: Results) -> None:
    for frame in (published.trials, published.studies, published.sources):
        for column in frame.columns:
            cells = frame[column].dropna().astype(str)
            assert not cells.str.contains(r"(?:^|\s)/(?:work|home|tmp)/").any()


def test_it_is_small() -> None:
    sizes = [file.stat().st_size for file in PACKAGED["published"].rglob("*.parquet")]
    assert sum(sizes) < 300_000
