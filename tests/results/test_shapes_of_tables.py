"""Tables of the shapes that trainers and trackers write, of runs whose truth is known: steps to the
target are 200 (1 + 256 / B), and the metric at a step is (that / step)^0.3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import batchscale as bs
import results
from analysis.notes import Note
from results.errors import ResultsError
from results.extensions import IMPORTS

SIZES = [2**power for power in range(4, 13)]


def steps(size: int) -> int:
    return round(200 * (1 + 256 / size))


def evaluations(size: int, *, harder: float = 1.0) -> Iterator[tuple[int, float]]:
    """Each twentieth of the way to the target, and a little beyond."""
    for part in range(1, 26):
        step = max(1, round(steps(size) * part / 20))
        yield step, harder * (steps(size) / step) ** 0.3


def curves(**constant: Any) -> pd.DataFrame:
    rows = [
        {"batch_size": size, "step": step, "val_loss": loss, **constant}
        for size in SIZES
        for step, loss in evaluations(size)
    ]
    return pd.DataFrame(rows)


def written(tmp_path: Path, frame: pd.DataFrame, name: str = "mine.csv") -> Path:
    frame.to_csv(tmp_path / name, index=False)
    return tmp_path / name


def reached(path: Path, target: str = "val_loss < 1.00001") -> dict[int, float]:
    trials = results.open(path).with_target(target).trials
    return dict(zip(trials["batch_size"], trials["steps_to_target"], strict=True))


TRUE = {size: float(steps(size)) for size in SIZES}


# Points.


def grid(name: str) -> pd.DataFrame:
    """The best learning rate grows with the batch size; the others take longer."""
    rows = [
        (size, rate, steps(size) * (1 + abs(at - size.bit_length() % 5)))
        for size in SIZES
        for at, rate in enumerate([0.003, 0.01, 0.03, 0.1, 0.3])
    ]
    return pd.DataFrame(rows, columns=["batch_size", name, "steps"])


@pytest.mark.parametrize("name", ["learning_rate", "lr", "peak"])
def test_settings_are_minimized_over_whatever_they_are_called(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, grid(name))
    name = "learning_rate" if name == "lr" else name
    (curve,) = bs.regimes(path)
    assert [point["steps"] for point in curve["points"]] == [*TRUE.values()]
    assert {point["trials"] for point in curve["points"]} == {5}
    assert Note("settings", names=f"{name} (5 values)", by=name) in curve["notes"]
    apart = bs.regimes(path, by=[name])
    assert [each[name] for each in apart] == [0.003, 0.01, 0.03, 0.1, 0.3]
    assert not any("settings" in each["note_codes"] for each in apart)


def test_repeated_settings_are_searches_of_their_own(tmp_path: Path) -> None:
    """The least of all runs would be the luckiest seed's."""
    frame = pd.concat([grid("lr").assign(seed=1), grid("lr").assign(seed=2)])
    frame["steps"] = frame["steps"].where(frame["seed"] == 1, 1.21 * frame["steps"])
    (curve,) = bs.regimes(written(tmp_path, frame))
    assert [point["steps"] for point in curve["points"]] == pytest.approx(
        [1.1 * each for each in TRUE.values()]
    )


def test_repeats_of_settings_are_told_apart_by_their_seeds_in_any_order(tmp_path: Path) -> None:
    """Of a table that is sorted by its steps, the luckiest run of each setting was one search."""
    luck = {(0.1, 1): 1.0, (0.2, 2): 1.5, (0.2, 1): 2.0, (0.1, 2): 4.0}
    rows = [(size, *key, steps(size) * by) for size in SIZES for key, by in luck.items()]
    frame = pd.DataFrame(rows, columns=["batch_size", "lr", "seed", "steps"])
    (curve,) = bs.regimes(written(tmp_path, frame))
    found = [point["steps"] for point in curve["points"]]
    assert found == pytest.approx([1.5**0.5 * each for each in TRUE.values()])


def test_repeats_without_settings_stay_repeats(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"batch_size": size, "rng_seed": seed, "seconds": size + 0.1 * seed, "steps": steps(size)}
        for size in SIZES
        for seed in range(3)
    )
    trials = results.open(written(tmp_path, frame)).trials
    assert set(trials["role"]) == {"repeat"}
    assert trials["fields"].isna().all()


def test_a_number_that_differs_in_every_run_is_said_to_be_none(tmp_path: Path) -> None:
    frame = grid("lr").assign(peak=lambda f: 0.01 + 0.001 * f.index)
    curve, *_ = bs.regimes(written(tmp_path, frame))
    assert any(note.startswith("peak is taken for") for note in curve["notes"])


@pytest.mark.parametrize("cell", ["inf", "DNF", "Infinity", "", "nan", "FAIL", "PRUNED", "> 9000"])
def test_a_run_that_did_not_reach_the_target(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "mine.csv"
    rows = "".join(f"{size},{steps(size)}\n" for size in SIZES)
    path.write_text(f"batch_size,steps\n{rows}8192,{cell}\n")
    (curve,) = bs.regimes(path)
    assert curve["censored"] == [8192]
    assert "nothing reached the target at batch size 8192" in curve["notes"]
    path.write_text(f"batch_size,steps\n{rows}")
    (complete,) = bs.regimes(path)
    assert curve["critical_batch_size"] == complete["critical_batch_size"]


# Whole curves.


def test_a_column_that_differs_in_every_row_distinguishes_no_runs(tmp_path: Path) -> None:
    frame = curves(hostname="node-a")
    frame["date"] = [f"2026-11-01_00-{at // 60:02}-{at % 60:02}" for at in range(len(frame))]
    frame["trial_id"] = [f"tr_{size:05}" for size in frame["batch_size"]]
    path = written(tmp_path, frame)
    assert reached(path) == TRUE
    (curve,) = bs.regimes(path, target="val_loss < 1.00001")
    assert len(curve["batch_sizes"]) == len(SIZES)


def test_two_runs_of_a_batch_size_that_a_text_distinguishes(tmp_path: Path) -> None:
    """Their evaluations need not fall on one grid."""
    first, second = curves(name="a"), curves(name="b")
    second["step"] += 1
    trials = results.open(written(tmp_path, pd.concat([first, second]))).trials
    assert len(trials) == 2 * len(SIZES)


def test_a_learning_rate_that_is_logged_at_each_step_is_a_measurement(tmp_path: Path) -> None:
    frame = curves()
    frame["learning_rate"] = [0.1, 0.2, *[0.1] * 23] * len(SIZES)  # a warmup
    trials = results.open(written(tmp_path, frame)).trials
    assert len(trials) == len(SIZES)
    assert trials["learning_rate"].isna().all()


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_run_that_went_on_from_a_checkpoint(tmp_path: Path, suffix: str) -> None:
    """What was logged between the checkpoint and the crash belongs to no run."""
    parts = []
    for size, part in curves().groupby("batch_size"):
        lost = part.iloc[10:15].assign(val_loss=0.5)
        parts.append(pd.concat([part.iloc[:10], lost, part.iloc[10:]]).assign(run=f"t{size}"))
    frame, path = pd.concat(parts), tmp_path / f"mine.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    assert reached(path) == TRUE


def test_a_run_that_begins_again_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, pd.concat([curves(run="a"), curves(run="a")]))
    with pytest.raises(ResultsError, match="run a begins again, at step 170") as caught:
        results.open(path)
    assert "a column `run`" in str(caught.value.hint)


def test_a_batch_size_that_grows_within_a_run_makes_no_partial_runs(tmp_path: Path) -> None:
    growing = pd.DataFrame(
        {"batch_size": size, "step": start + step, "val_loss": 2.0, "run": "ramp"}
        for size, start in ((64, 0), (256, 200), (1024, 400))
        for step in range(20, 201, 20)
    )
    frame = pd.concat([curves(), growing])
    frame["run"] = frame["run"].fillna("const-" + frame["batch_size"].astype(str))
    path = written(tmp_path, frame)
    others = results.open(path).where("technique IS NULL").with_target("val_loss < 1.00001").trials
    assert dict(zip(others["batch_size"], others["steps_to_target"], strict=True)) == TRUE
    ramp = results.open(path).where("technique LIKE '%64 to 1024%'").trials.iloc[0]
    phases = {"starts": [0, 200, 400], "sizes": [64, 256, 1024], "schedule_steps": 600}
    assert json.loads(ramp["batch_sizes"]) == phases
    assert ramp["examples_run"] == 200 * (64 + 256 + 1024)
    assert "changes between two evaluations" in str(results.open(path).studies["notes"].max())
    numbered = curves(run=0)  # the same number in runs of all batch sizes
    assert reached(written(tmp_path, numbered)) == TRUE
    last = numbered.groupby("batch_size", as_index=False).last()  # their steps go back
    assert len(results.open(written(tmp_path, last)).trials) == len(TRUE)


@pytest.mark.parametrize("name", ["key", "metric", "tag"])
def test_a_row_for_each_metric(tmp_path: Path, name: str) -> None:
    """Never a curve of the values of both metrics: the other one passes the target earlier."""
    frame = curves().rename(columns={"val_loss": "value"})
    easier = frame.assign(value=0.7 * frame["value"]).assign(**{name: "train_loss"})
    both = pd.concat([frame.assign(**{name: "val_loss"}), easier]).sort_values("step")
    path = written(tmp_path, both)
    assert reached(path) == TRUE
    assert reached(path, "train_loss < 0.70001") == TRUE


def test_a_run_that_diverged(tmp_path: Path) -> None:
    """NaN is a value, an empty cell none."""
    path = tmp_path / "mine.csv"
    path.write_text(
        "batch_size,step,run,val_loss,train_loss\n"
        "8,1,a,2.0,3\n8,2,a,NaN,nan\n8,1,b,2.0,NaN\n8,2,b,,1\n"
    )
    trials = results.open(path).trials
    assert trials["status"].tolist() == ["INFEASIBLE", "COMPLETE"]
    assert trials["stop_reason"].tolist() == ["diverged", "budget"]


def test_a_curve_over_tokens_is_no_set_of_final_losses(tmp_path: Path) -> None:
    frame = curves(run="a")
    frame["tokens"] = frame["step"] * frame["batch_size"]
    path = written(tmp_path, frame.drop(columns="step"))
    assert reached(path) == TRUE
    assert set(results.open(path).trials["example_unit"]) == {"token"}
    frame = frame.assign(tokens=512 * frame["tokens"], tokens_per_example=512)
    assert reached(written(tmp_path, frame.drop(columns="step"))) == TRUE


def test_an_evaluation_before_training_and_one_after_it(tmp_path: Path) -> None:
    rows = [(size, step, loss) for size in SIZES for step, loss in ((0, 3.0), (steps(size), 1.0))]
    frame = pd.DataFrame(rows, columns=["batch_size", "step", "val_loss"])
    path = written(tmp_path, frame.assign(target="val_loss < 2"))
    (curve,) = bs.regimes(path)
    assert [point["steps"] for point in curve["points"]] == [*TRUE.values()]


# Histories of Weights & Biases.


def histories(tmp_path: Path, frames: dict[str, pd.DataFrame]) -> Path:
    folder = tmp_path / "histories"
    folder.mkdir()
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def history(size: int, *, rate: float = 0.1, harder: float = 1.0, **config: Any) -> pd.DataFrame:
    rows = [
        {"global_step": step, "val/loss": loss, "config.batch_size": size}
        for step, loss in evaluations(size, harder=harder)
    ]
    frame = pd.DataFrame(rows).assign(**{"config.learning_rate": rate}, **config)
    return frame.rename_axis("_step").reset_index()


def imported(tmp_path: Path, frames: dict[str, pd.DataFrame], **options: Any) -> results.Results:
    IMPORTS.get("log")(histories(tmp_path, frames), tmp_path / "runs", name="x", **options)
    return results.open(tmp_path / "runs")


def of_wandb(run: results.Results) -> dict[int, float]:
    trials = run.with_target("val_loss < 1.00001").trials
    return dict(zip(trials["batch_size"], trials["steps_to_target"], strict=True))


def test_only_what_survived_a_restart_counts(tmp_path: Path) -> None:
    frames = {}
    for size in SIZES:
        whole = history(size)
        lost = whole.iloc[12:18].assign(**{"val/loss": 0.9})
        frame = pd.concat([whole.iloc[:12], lost, whole.iloc[12:]])
        frames[f"b{size}"] = frame.assign(_step=range(len(frame)))
    run = imported(tmp_path, frames)
    assert of_wandb(run) == TRUE
    (note,) = json.loads(run.studies["notes"][0])
    assert note.startswith(f"{6 * len(SIZES)} rows were logged before a run went on from a check")


def test_a_global_batch_is_a_product(tmp_path: Path) -> None:
    frames = {
        f"b{size}": history(
            size,
            **{
                "config.per_device_train_batch_size": 2,
                "config.gradient_accumulation_steps": size // 16,
                "config.n_gpu": 8,
            },
        ).drop(columns="config.batch_size")
        for size in SIZES
    }
    run = imported(tmp_path, frames)
    assert of_wandb(run) == TRUE
    assert len(bs.regimes(tmp_path / "runs", target="val_loss < 1.00001")) == 1
    with pytest.raises(ResultsError, match="the batch size of one device's forward pass"):
        IMPORTS.get("log")(
            tmp_path / "histories",
            tmp_path / "other",
            columns={"batch_size": "config.per_device_train_batch_size"},
        )
    assert not (tmp_path / "other").exists()


def test_diverged_runs_of_a_grid_of_learning_rates(tmp_path: Path) -> None:
    frames = {}
    for size in SIZES:
        frames[f"b{size}-0.1"] = history(size)
        frames[f"b{size}-0.2"] = history(size, rate=0.2, harder=1.1)
        diverged = history(size, rate=0.8)
        diverged["val/loss"] = pd.Series(["2.0"] + ["NaN"] * (len(diverged) - 1))
        frames[f"b{size}-0.8"] = diverged
    run = imported(tmp_path, frames)
    status = run.trials.groupby("learning_rate")["status"].unique()
    assert [each.tolist() for each in status] == [["COMPLETE"], ["COMPLETE"], ["INFEASIBLE"]]
    (curve,) = bs.regimes(tmp_path / "runs", target="val_loss < 1.00001")
    assert [point["steps"] for point in curve["points"]] == [*TRUE.values()]
    assert any("over learning_rate (3 values)" in note for note in curve["notes"])


def test_two_columns_never_become_one(tmp_path: Path) -> None:
    frames = {f"b{size}": history(size, **{"eval/loss": 1.1, "val_loss": 9.0}) for size in SIZES}
    with pytest.raises(ResultsError, match="val/loss and val_loss both are val_loss"):
        imported(tmp_path, frames)
    assert not (tmp_path / "runs").exists()
    frames = {name: frame.drop(columns="val_loss") for name, frame in frames.items()}
    (tmp_path / "histories").rename(tmp_path / "refused")
    assert of_wandb(imported(tmp_path, frames)) == TRUE
    assert json.loads(results.open(tmp_path / "runs").trials["metaparameters"][0]) == {
        "learning_rate": 0.1
    }
