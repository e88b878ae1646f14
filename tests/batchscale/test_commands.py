"""Every command on a small experiment that was swept: what it prints, and its exit status."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

import batchscale as bs
from batchscale.sweeps import plan
from tests.batchscale.conftest import EXPERIMENT, Command
from tests.batchscale.test_bad_input import clear
from tests.contract import frozen
from tests.experiments.test_target_lengths import fake, run


def test_help_lists_the_commands(command: Command) -> None:
    answer = command("--help")
    assert answer.status == 0
    names = frozen.interface()["commands"]
    assert all(f"  {name} " in answer.out for name in names)
    assert all(command(name, "--help").status == 0 for name in names)


def test_the_version_the_kinds_and_sql_without_quotes(command: Command) -> None:
    assert command("--version").out == f"batchscale {bs.__version__}\n"
    assert command("list").out.split()[2:4] == ["workloads", "texts"]
    answer = command("query", "SELECT", "count", "from", "trials")
    assert answer.status == 2
    assert answer.err.endswith('in quotes: batchscale query "SELECT …"\n')


def test_no_command_and_an_unknown_one_are_wrong_usage(command: Command) -> None:
    assert command().status == 2
    answer = command("swep", "digits")
    assert answer.status == 2
    assert "Did you mean 'sweep'?" in answer.err


@pytest.mark.slow
def test_a_dry_run_says_what_and_writes_nothing(command: Command, here: Path) -> None:
    (here / "small.yaml").write_text(EXPERIMENT)
    answer = command("sweep", "small.yaml", "--dry-run", "--set", "trials=6")
    assert answer.status == 0
    assert "8 studies, 48 feasible trials wanted, 0 trials recorded" in answer.out
    assert [path.name for path in here.iterdir()] == ["small.yaml"]


def test_commands_say_which_studies_wait(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "lengths.yaml"
    file.write_text(fake().to_yaml())
    line = "2 studies wait for the baseline's steps to target at batch 64 and 128."
    root = tmp_path / "runs"
    answer = command("sweep", file, "--dry-run", "--results", root)
    assert answer.out.endswith(f"\n{line}\n")
    run(root, fake(), seconds=0)
    assert f"\n{line}\n" in command("status", root).out
    run(root, fake())
    assert "wait" not in command("status", root).out
    table = plan(file, results=root)
    assert table.attrs["waits"] == []
    assert table["swa"].dropna().unique().tolist() == ["0.5 of target"]


def test_a_plan_shows_a_field_that_is_a_list(command: Command, here: Path) -> None:
    (here / "two.yaml").write_text(
        "workload: digits-fc\ngrid:\n  batch_size: [64]\n  optimizer: [sgd]\n"
        "  widths: [[16], [32, 16]]\ntrials: 1\n"
    )
    answer = command("sweep", "two.yaml", "--dry-run")
    assert answer.status == 0, answer.err
    assert [line.split("64 ")[0].split()[1:] for line in answer.out.splitlines()[2:4]] == [
        ["[16]"],
        ["[32,", "16]"],
    ]


@pytest.mark.slow
def test_a_sweep_again_trains_nothing(command: Command, small: Path) -> None:
    file = small.parent / "small.yaml"
    answer = command("sweep", file, "--results", small, "--address", "none")
    assert answer.status == 0
    assert "0 trials trained" in answer.out
    assert "8 of 8 studies reached the target" in answer.out
    plan = json.loads(command("sweep", file, "--results", small, "--dry-run", "--json").out)
    assert [row["recorded"] for row in plan] == [4] * 8


def test_status_says_what_is_left(command: Command, small: Path) -> None:
    answer = command("status", small)
    assert answer.status == 0
    assert answer.out.endswith("\ncomplete\n")
    rows = json.loads(command("status", small, "--json").out)
    assert {row["batch_size"] for row in rows} == {32, 64, 128, 256}
    assert all(row["done"] == 4 and row["left"] == 0 for row in rows)


def test_regimes_as_a_table_and_as_json(command: Command, small: Path) -> None:
    answer = command("regimes", small)
    assert answer.status == 0
    assert "critical batch size" in answer.out
    assert "90% intervals, tolerance 0.2, each point the best of N" in answer.out
    assert "slopes" in answer.out
    curves = json.loads(command("regimes", small, "--json", "--baseline", "momentum").out)
    assert [curve["optimizer"] for curve in curves] == ["momentum", "sgd"]
    assert set(curves[0]["critical_batch_size"]) == {"value", "low", "high"}
    assert curves[0]["trials"] == 4
    rows = list(csv.DictReader(io.StringIO(command("regimes", small, "--format", "csv").out)))
    assert float(rows[0]["min_steps_high"]) > 0
    assert -1 <= float(rows[0]["slope_first"]) <= 0
    assert rows[0]["level_large_end"] in ("True", "False")


@pytest.mark.slow
def test_a_baseline_is_held_against(command: Command, small: Path, here: Path) -> None:
    curve = here / "theirs.csv"
    rows = [
        f"{name},{2**k},{1000 * (1 + at / 2**k):.0f}\n"
        for name, at in (("sgd", 40), ("mine", 200))
        for k in range(16)
    ]
    curve.write_text("optimizer,batch_size,steps\n" + "".join(rows))
    answer = command("regimes", curve, "--baseline", "sgd")
    assert answer.status == 0
    assert "\n\nThe critical batch size of mine is 4.9 [" in answer.out
    first, second = json.loads(command("regimes", curve, "--baseline", "sgd", "--json").out)
    assert first["against"] is None
    assert second["against"]["baseline"] == "sgd"
    assert second["against"]["ratios"]["critical_batch_size"]["value"] == pytest.approx(
        201 / 41, rel=0.02
    )
    assert "against" not in json.loads(command("regimes", curve, "--json").out)[0]
    swept = json.loads(command("regimes", small, "--baseline", "sgd", "--json").out)
    assert swept[1]["against"]["sentence"]


@pytest.mark.slow
def test_a_law_across_curves(command: Command, here: Path) -> None:
    curve = here / "theirs.csv"
    rows = [
        f"{width},{2**k},{100 * (1 + 5 * width**0.5 / 2**k):.0f}\n"
        for width in (16, 64, 256)
        for k in range(12)
    ]
    curve.write_text("width,batch_size,steps\n" + "".join(rows))
    answer = command("regimes", curve, "--by", "width", "--law", "width")
    assert answer.status == 0, answer.err
    assert "\n\nCritical batch size = 5 [" in answer.out
    by_field = ("--by", "width", "--law", "fields.width", "--json")
    curves = json.loads(command("regimes", curve, *by_field).out)
    (power,) = {one["law"]["exponent"]["value"] for one in curves}
    assert power == pytest.approx(0.5, abs=0.01)
    (law,) = bs.laws(curve, by=["width"], against="width", quantity="min_examples")
    assert law["exponent"]["value"] == pytest.approx(0.5, abs=0.01)
    assert len(law["curves"]) == 3
    mended = command("regimes", curve, "--by", "width", "--law", "wdith")
    assert mended.status == 1
    assert (
        mended.err
        == "error: no column 'wdith' distinguishes these curves\nhint: did you mean width?\n"
    )


@pytest.mark.parametrize(
    "other",
    [("--law", "width"), ("--crossover",), ("--definition", "zhang2024"), ("--form", "knee")],
)
def test_optimal_batch_sizes_are_a_table_of_their_own(
    command: Command, small: Path, other: tuple[str, ...]
) -> None:
    answer = command("regimes", small, "--optimal-batch", *other)
    clear(answer, f"--optimal-batch and {other[0]} exclude each other", hint="leave one out")


def test_a_definition_of_others(command: Command, small: Path) -> None:
    named = ("--definition", "mccandlish2018", "--json")
    (first, *_) = json.loads(command("regimes", small, *named).out)
    assert set(first["critical_batch_size_mccandlish2018"]) == {"value", "low", "high"}
    chosen = ("--where", "optimizer = 'sgd' OR batch_size < 128")
    curves = json.loads(command("regimes", small, *named, *chosen).out)
    short = next(curve for curve in curves if curve["optimizer"] == "momentum")
    assert short["critical_batch_size_mccandlish2018"]["value"] is None


def test_curves_stand_in_the_experiments_order(command: Command, small: Path) -> None:
    curves = json.loads(command("regimes", small, "--json").out)
    assert [curve["optimizer"] for curve in curves] == ["sgd", "momentum"]


def test_several_sources_are_read_as_one(command: Command, small: Path, here: Path) -> None:
    curve = here / "theirs.csv"
    rows = "".join(f"{2**k},{100 * (1 + 64 / 2**k):.0f}\n" for k in range(10))
    curve.write_text("batch_size,steps\n" + rows)
    curves = json.loads(command("regimes", small, curve, "--json").out)
    assert len(curves) == 3


def test_a_curve_that_cannot_be_fitted_stands_with_the_reason(
    command: Command, small: Path
) -> None:
    chosen = "optimizer = 'sgd' OR batch_size < 128"
    curves = json.loads(command("regimes", small, "--where", chosen, "--json").out)
    short = next(curve for curve in curves if curve["optimizer"] == "momentum")
    assert short["critical_batch_size"] == {"value": None, "low": None, "high": None}
    assert "batch sizes reached the target" in short["notes"][0]


def test_another_target_is_found_in_the_measurements(command: Command, small: Path) -> None:
    easier = ("--target", "validation_error < 0.3", "--json")
    first = json.loads(command("regimes", small, "--json").out)[0]
    again = json.loads(command("regimes", small, *easier).out)[0]
    assert again["target"] == "validation_error < 0.3"
    assert again["best"]["min_steps"] < first["best"]["min_steps"]


@pytest.mark.parametrize("figure", ["steps", "learning_rate", "rates"])
def test_plots_are_written_with_their_numbers_beside_them(
    command: Command, small: Path, here: Path, figure: str
) -> None:
    answer = command("plot", figure, small)
    assert answer.status == 0
    assert answer.out == f"wrote {figure}.pdf\nwrote {figure}.csv\n"
    assert (here / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
    assert len(list(csv.DictReader(io.StringIO((here / f"{figure}.csv").read_text())))) == 8


def test_an_estimator_stands_in_the_answer_and_its_points(command: Command, small: Path) -> None:
    named = ("--estimator", "median_of_searches")
    assert "each point the median of several bests of N" in command("regimes", small, *named).out
    (first, *_) = json.loads(command("regimes", small, "--json", *named).out)
    assert first["estimator"] == "median_of_searches"
    assert [point["batch_size"] for point in first["points"]] == first["batch_sizes"]
    assert {point["estimator"] for point in first["points"]} == {"median_of_searches"}
    assert {"edges", "half_trials_ratio", "repeats_median"} <= set(first["points"][0])


def test_a_plot_under_budgets(command: Command, small: Path, here: Path) -> None:
    under = ("--under", "40 steps", "--under", "2 epochs")
    answer = command("plot", "shallue-fig11", small, *under, "-o", "best.png")
    assert answer.status == 0, answer.err
    rows = list(csv.DictReader(io.StringIO((here / "best.csv").read_text())))
    assert {row["under"] for row in rows} == {"40 steps", "2 epochs"}
    wrong = command("plot", "steps", small, "--under", "5 hours")
    assert wrong.status == 1
    assert wrong.err.splitlines()[0] == "error: 'hours' is not a unit of a budget"


@pytest.mark.slow
def test_a_plot_goes_where_it_is_told(command: Command, small: Path, here: Path) -> None:
    answer = command("plot", "steps", small, "-o", "figures/mine.png")
    assert answer.out == "wrote figures/mine.png\nwrote figures/mine.csv\n"
    assert (here / "figures" / "mine.png").stat().st_size > 10_000


def test_query_prints_and_writes(command: Command, small: Path, here: Path) -> None:
    sql = "SELECT optimizer, count(*) AS trials FROM trials GROUP BY ALL ORDER BY ALL"
    assert command("query", sql, small, "--format", "csv").out == (
        "optimizer,trials\nmomentum,16\nsgd,16\n"
    )
    for name in ("a.csv", "a.json", "a.parquet", "a.md", "a.tex"):
        assert command("query", sql, small, "-o", name).out == f"wrote {name}\n"
        assert (here / name).stat().st_size > 0
    assert "| momentum | 16 |" in (here / "a.md").read_text()


def test_a_query_without_rows_says_so(command: Command, small: Path) -> None:
    answer = command("query", "SELECT trial FROM trials WHERE batch_size = 7", small)
    assert answer.status == 0
    assert answer.out.endswith("no rows\n")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("workloads", "digits-mlp"),
        ("texts", "wikitext2-bpe"),
        ("optimizers", "nesterov"),
        ("schedules", "cosine"),
        ("layouts", "data"),
        ("figures", "learning_rate"),
        ("experiments", "digits-small"),
    ],
)
def test_lists(command: Command, kind: str, name: str) -> None:
    rows = json.loads(command("list", kind, "--json").out)
    assert name in {row["name"] for row in rows}
    assert all(row["what"] for row in rows)


def test_a_trial_prints_its_looks_and_how_it_ended(command: Command, here: Path) -> None:
    given = ("digits-softmax", "--batch-size", "64", "--param", "learning_rate=0.5")
    target = ("--target", "validation_error < 0.1")
    answer = command("trial", *given, *target, "--save", "model.safetensors")
    assert answer.status == 0
    assert "validation_error < 0.1 reached at step" in answer.out.splitlines()[-1]
    with safe_open(here / "model.safetensors", framework="pt") as held:
        assert {held.get_tensor(name).shape[0] for name in held.keys()} == {10}  # noqa: SIM118
        assert held.metadata()["workload"] == "digits-softmax"
    rows = json.loads(command("trial", *given, *target, "--json").out)
    assert rows[-1]["validation_error"] < 0.1
    assert rows[-2]["validation_error"] >= 0.1


def test_a_trial_says_the_values_that_it_had(command: Command) -> None:
    given = ("digits-softmax", "--optimizer", "adamw", "--batch-size", "64", "--budget", "9 steps")
    answer = command("trial", *given)
    assert answer.status == 0, answer.err
    line = "adamw: learning_rate 0.001, weight_decay 0.01, beta1 0.9, beta2 0.999, epsilon 1e-08"
    assert answer.out.splitlines()[-2] == f"{line}; 1 thread"
    quiet = command("trial", *given, "--json")
    assert line in quiet.err
    assert json.loads(quiet.out)[-1]["step"] == 9


def test_a_recorded_trial_again_is_equal(command: Command, small: Path) -> None:
    trials = bs.open(small).trials
    for reason in trials["stop_reason"].unique():
        row = trials[trials["stop_reason"] == reason].iloc[-1]
        answer = command("trial", "--from", row["trial"][:12], "--results", small)
        steps = f"{int(row['steps_run']):,}"
        assert answer.out.splitlines()[-1] == f"{steps} steps, recorded {steps}: equal"
        assert answer.status == 0


@pytest.mark.slow
def test_check_tells_promises_from_facts(command: Command) -> None:
    answer = command("check", "digits-softmax", "--json")
    said = answer.err.splitlines()
    assert said[0] == "loading the workload and its data …"
    assert said[-1] == "timing the stacked engine …"
    assert answer.status == 0
    found = {row["check"]: row["passed"] for row in json.loads(answer.out)}
    promises = ("loss and metrics", "initialization", "micro-batches", "evaluation")
    assert all(found[name] is True for name in promises)
    assert found["stackable"] is None
    assert "stacked engine" in found


def test_new_writes_a_pair_that_runs_as_it_stands(command: Command, here: Path) -> None:
    answer = command("new", "my_model.py")
    assert answer.status == 0
    assert "batchscale check my_model.py:MyModel" in answer.out
    quick = ("--set", "trials=1", "--set", "grid.batch_size=64", "--set", "budget=20 steps")
    swept = command("sweep", "my_model.yaml", "--address", "none", *quick)
    assert swept.status == 0
    assert "2 trials trained" in swept.out
    assert (here / "results" / "runs" / "trials").is_dir()


@pytest.mark.slow
def test_python_m_batchscale_and_a_closed_pipe(small: Path) -> None:
    sql = "SELECT * FROM measurements, range(20)"
    line = f"'{sys.executable}' -m batchscale query '{sql}' {small} --format csv | head -n 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("experiment,study,")
    assert not done.stderr


@pytest.mark.slow
def test_a_report_goes_where_it_is_told(command: Command, small: Path, here: Path) -> None:
    answer = command("report", small, "-o", "pages/mine.html", "--title", "Mine & yours")
    assert answer.status == 0, answer.err
    assert answer.out == "wrote pages/mine.html\n"
    text = (here / "pages" / "mine.html").read_text(encoding="utf-8")
    assert "<h1>Mine &amp; yours</h1>" in text
    assert "only 4 trials" in text
    for curve in bs.regimes(small):
        assert f'"label":"{curve["optimizer"]}"' in text
