"""``batchscale plan``: its tables, and its messages."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import batchscale as bs
from batchscale.cli.plan import numbers_of
from batchscale.output.errors import CommandError
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear

MODEL = ["--seconds-per-example", "1e-4", "--gradient-bytes", "4e6", "--bandwidth", "1e10"]
OF_DIGITS = ["--where", "experiment = 'digits'"]


def test_the_plan_of_a_packaged_sweep(command: Command) -> None:
    text = command("plan", "own", *OF_DIGITS, "--devices", "1..8", *MODEL, "--price", "2.5/h").out
    lines = text.splitlines()
    assert lines[0] == "digits-mlp, sgd: to validation_error < 0.04"
    titles = ["devices", "batch size", "steps", "a step", "time (s)", "saves", "cost", "frontier"]
    assert lines[1].split("   ")[0].strip() == titles[0]
    assert all(title in lines[1] for title in titles)
    assert [line.split()[0] for line in lines[3:7]] == ["1", "2", "4", "8"]
    assert "- intervals are of the steps alone: the step times have none" in lines
    assert any("8 devices: adam is quickest" in line for line in lines)


def test_its_formats_say_the_same(command: Command, tmp_path: Path) -> None:
    places = [(n, size, 1e-3 + 1e-4 * size / n) for n in (1, 4) for size in (4, 64, 1024)]
    table = pd.DataFrame(places, columns=["devices", "batch_size", "seconds"])
    table.to_csv(tmp_path / "times.csv", index=False)
    given = ["plan", "own", *OF_DIGITS, "--devices", "1,4", "--step-time", tmp_path / "times.csv"]
    answer = json.loads(command(*given, "--json").out)
    rows = command(*given, "--format", "csv").out.splitlines()
    made = bs.plan("own", where="experiment = 'digits'", devices=[4, 1, 4], step_time=table)
    choices = [choice for plan in answer["plans"] for choice in plan["choices"]]
    assert len(rows) == 1 + len(choices)
    assert [c["seconds"] for p in made["plans"] for c in p["choices"]] == [
        c["seconds"] for c in choices
    ]
    assert {choice["devices"] for choice in choices} == {1, 4}
    assert {each["devices"] for each in answer["winners"]} == {1, 4}


def test_its_figure_and_the_numbers_beside_it(command: Command, tmp_path: Path) -> None:
    given = ["plan", "own", *OF_DIGITS, "--devices", "1,16", *MODEL, "--json"]
    answer = json.loads(command(*given, "-o", tmp_path / "made" / "plan.png").out)
    assert (tmp_path / "made" / "plan.png").stat().st_size > 10_000
    rows = pd.read_csv(tmp_path / "made" / "plan.csv")
    choices = [choice for plan in answer["plans"] for choice in plan["choices"]]
    assert list(rows["devices"]) == [choice["devices"] for choice in choices]
    assert list(rows["frontier"]) == [choice["frontier"] for choice in choices]
    for row, choice in zip(rows.to_dict("records"), choices, strict=True):
        high = choice["seconds"]["high"]
        assert row["seconds_high"] == pytest.approx(high)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the seconds of a step are needed"),
        ([*MODEL, "--devices", "0..4"], "--devices 0..4 are no numbers of devices"),
        ([*MODEL, "--devices", "few"], "--devices few are no numbers of devices"),
        ([*MODEL, "--price", "cheap"], "--price cheap is no price of an hour"),
        ([*MODEL, "--price", "0/h"], "--price 0/h is no price of an hour"),
        ([*MODEL, "--unit", "tokens"], "a model of step times is of whole examples"),
        ([*MODEL, "--devices", "1000000"], "no step time is known at the tested batch sizes"),
    ],
)
def test_what_it_cannot_do_is_said(command: Command, arguments: list[str], message: str) -> None:
    clear(command("plan", "own", *OF_DIGITS, *arguments), message)


def test_what_was_measured_is_planned_and_never_overwritten(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "times.csv").write_text(text := "devices,batch_size,seconds\n1,64,0.4\n3,64,0.1\n")
    given = ["plan", "own", *OF_DIGITS, "--step-time", tmp_path / "times.csv"]
    answer = json.loads(command(*given, "--json").out)
    assert [c["devices"] for c in answer["plans"][0]["choices"]] == [1, 3]
    assert "no_step_time" not in answer["plans"][0]["note_codes"]
    clear(command(*given, "-o", tmp_path / "times.png"), "would overwrite", hint="times-figure")
    assert (tmp_path / "times.csv").read_text() == text
    (tmp_path / "steps.csv").write_text("batch_size,steps\n1,2000\n4,520\n16,160\n")
    clear(
        command("plan", tmp_path / "steps.csv", *MODEL, "-o", tmp_path / "steps.svg"), "overwrite"
    )


def test_a_label_that_no_curve_has_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("curve,devices,batch_size,seconds\nSGD,1,64,0.1\n")
    said = command("plan", "own", *OF_DIGITS, "--step-time", tmp_path / "times.csv")
    clear(said, "the step times are of a curve 'SGD', which is not among those planned")


def test_curves_without_a_plan_are_named(command: Command, tmp_path: Path) -> None:
    rows = ["optimizer,batch_size,steps", *(f"sgd,{b},{9e3 / b:.0f}" for b in (8, 16, 32))]
    rows += ["adam,8,500", "adam,16,260", "muon,64,90", "muon,128,50", "muon,256,40"]
    (tmp_path / "steps.csv").write_text("\n".join(rows))
    (tmp_path / "times.csv").write_text("devices,batch_size,seconds\n1,8,1\n1,32,2\n")
    given = ["plan", tmp_path / "steps.csv", "--step-time", tmp_path / "times.csv"]
    left_out = json.loads(command(*given, "--json").out)["left_out"]
    assert left_out == [
        "adam: two batch sizes have steps, and the regimes need three",
        "muon: no step time is known at its batch sizes",
    ]
    assert [f"left out: {each}" for each in left_out] == command(*given).out.splitlines()[-3:-1]


def test_numbers_of_devices() -> None:
    assert numbers_of("1..8") == [1, 2, 4, 8]
    assert numbers_of("3..20") == [3, 6, 12]
    assert numbers_of("8, 1,12") == [1, 8, 12]
    for wrong in ([0], [-1, 4], [4, 1.5]):
        with pytest.raises(CommandError, match="are not whole numbers of at least 1"):
            bs.plan("own", devices=wrong, seconds_per_example=1e-4)  # type: ignore[arg-type]
