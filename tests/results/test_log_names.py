"""What names of runs, and of their files and folders, say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import batchscale as bs
import results
from results.errors import ResultsError
from results.extensions import IMPORTS
from tests.results.test_log_formats import SOME, folder, lines, some
from tests.results.test_shapes_of_tables import TRUE, curves, evaluations, reached, written

POINTS = ["batch_size", "steps"]
TARGET = "val_loss < 1.00001"


def test_a_learning_rate_and_a_seed_are_settings(tmp_path: Path) -> None:
    """And no mean is taken over them."""
    rows = [
        {"run": f"adamw-bs{size}-lr{lr}-seed{seed}", "step": step, "val_loss": loss * (1 + worse)}
        for size in SOME
        for lr, worse in (("3e-4", 0.0), ("1e-2", 0.3))
        for seed in (0, 1)
        for step, loss in evaluations(size)
    ]
    path = written(tmp_path, pd.DataFrame(rows))
    trials = results.open(path).with_target(TARGET).trials
    assert set(trials["learning_rate"]) == {3e-4, 1e-2}
    assert set(trials["seed"]) == {0, 1}
    assert set(trials["role"]) == {"search"}
    best = trials.groupby("batch_size")["steps_to_target"].min()
    assert best.to_dict() == some()


def test_other_numbers_of_names_are_settings_too(tmp_path: Path) -> None:
    """And no mean is taken over momenta; a date, an index or a repetition is none."""
    rows = [
        {"run": f"sgd_mom{mom}_warmup10_bs{size}_try{n}", "step": step, "val_loss": loss * worse}
        for size in SOME
        for mom, worse in ((0.9, 1.0), (0.5, 1.3))
        for n in (1, 2)
        for step, loss in evaluations(size)
    ]
    path = written(tmp_path, pd.DataFrame(rows))
    trials = results.open(path).with_target(TARGET).trials
    assert {str(each) for each in trials["metaparameters"]} == {'{"mom":0.9}', '{"mom":0.5}'}
    best = trials.groupby("batch_size")["steps_to_target"].min()
    assert best.to_dict() == some()
    assert len(bs.regimes(path, target=TARGET)) == 1


@pytest.mark.parametrize("ends", [("_1", "_2"), ("-77ebd04", "-77fade5")])
def test_what_numbers_runs_of_an_optimizer_is_no_setting(
    tmp_path: Path, ends: tuple[str, str]
) -> None:
    """Behind its name a number, or an identifier, of which no letters are a name."""
    rows = [
        {"run": f"bs{size}-{optimizer}{end}", "step": round(factor * step), "val_loss": loss}
        for size in SOME
        for optimizer, factor in (("adamw", 1.0), ("muon", 0.8))
        for end in ends
        for step, loss in evaluations(size)
    ]
    path = written(tmp_path, pd.DataFrame(rows))
    assert set(results.open(path).with_target(TARGET).trials["name"]) == {"adamw", "muon"}


def optimizers(path: Path) -> Path:
    for optimizer, factor in (("adamw", 1.0), ("muon", 0.8)):
        for size in SOME:
            for seed in (0, 1):
                place = folder(path / f"{optimizer}_bs{size}_seed{seed}")
                looks = [(round(factor * step), loss) for step, loss in evaluations(size)]
                rows = [{"step": step, "val_loss": loss} for step, loss in looks]
                (place / "metrics.jsonl").write_text(lines(rows))
    return path


def test_what_else_names_say_makes_a_curve_each(tmp_path: Path) -> None:
    path = optimizers(tmp_path / "runs")
    done = IMPORTS.get("log")(path, tmp_path / "imported")
    assert "a curve for each: adamw, muon" in done.said
    trials = results.open(path).with_target(TARGET).trials
    assert set(trials["name"]) == {"adamw", "muon"}
    assert len(bs.regimes(path, target=TARGET)) == 2


@pytest.mark.parametrize("names", [["a", "b"], ["try1", "try2"], ["x7ab", "k2qz"]])
def test_names_of_repetitions_make_none(tmp_path: Path, names: list[str]) -> None:
    rows = [
        {"run": f"bs{size}-{name}", "step": step, "val_loss": loss}
        for size in SOME
        for name in names
        for step, loss in evaluations(size)
    ]
    assert len(bs.regimes(written(tmp_path, pd.DataFrame(rows)), target=TARGET)) == 1


@pytest.mark.parametrize("kind", ["points", "curves"])
def test_a_table_of_each_seed(tmp_path: Path, kind: str) -> None:
    """Is no curve of its own, as one of each optimizer is."""
    place = folder(tmp_path / "tables")
    for seed in (0, 1):
        frame = curves() if kind == "curves" else pd.DataFrame(TRUE.items(), columns=POINTS)
        frame.to_csv(place / f"results_seed{seed}.csv", index=False)
    regimes = bs.regimes(place, target=TARGET if kind == "curves" else None)
    assert len(regimes) == 1
    assert set(results.open(place).trials["seed"]) == {0, 1}


def test_columns_stand_above_names(tmp_path: Path) -> None:
    rows = [
        {"run": f"bs{size}-lr0.5", "batch_size": 2 * size, "lr": 0.1, "step": 9, "val_loss": 1}
        for size in SOME
    ]
    trials = results.open(written(tmp_path, pd.DataFrame(rows))).trials
    assert trials["batch_size"].tolist() == [2 * size for size in SOME]
    assert set(trials["learning_rate"]) == {0.1}


def test_a_column_of_names(tmp_path: Path) -> None:
    rows = [{"Name": f"bs{n}", "Step": s, "val/loss": v} for n in SOME for s, v in evaluations(n)]
    assert reached(written(tmp_path, pd.DataFrame(rows))) == some()


def test_multiples_of_a_batch_size_are_asked_about(tmp_path: Path) -> None:
    place = folder(tmp_path / "runs")
    for size in SOME:
        rows = [{"step": step, "val_loss": loss} for step, loss in evaluations(size)]
        (place / f"bs{size // 4}_ga4.jsonl").write_text(lines(rows))
    with pytest.raises(ResultsError, match="of one device's forward pass, for ga4 is there too"):
        results.open(place)
    for size in SOME:
        (place / f"bs{size // 4}_ga4.jsonl").rename(place / f"bs{size}_ga1_gpu0.jsonl")
    assert reached(place) == some()
