"""`batchscale new --program`: the options of a program become an experiment file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from batchscale import api
from batchscale.cli import main
from batchscale.output.errors import CommandError
from experiments.config.compile import load
from experiments.errors import ExperimentError

PROGRAM = """
import argparse

def options(parser):
    parser.add_argument("-b", "--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--max_steps", type=int, default=2000)
    parser.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    parser.add_argument("--out_dir", default="out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("data")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def test_its_options_become_a_command(program: Path) -> None:
    beside = api.new_program(program)
    text = beside.read_text()
    assert "# left at their defaults: --dropout\n" in text
    said = yaml.safe_load(text)
    assert said.pop("program") == (
        "python train.py --batch-size={batch_size} --lr={learning_rate} --max_steps={budget} "
        "--seed={seed} --out_dir={folder} --optimizer={optimizer}"
    )
    assert said == {
        "grid": {"batch_size": "8..512", "optimizer": ["adamw", "muon"]},
        "search": {"learning_rate": {"log": ["3e-05", 0.003]}},  # here it is a number
        "resume": "--resume",
        "target": "val_loss < 1.0",
        "trials": 16,
        "budget": "2000 steps",
    }
    assert len(load(beside).studies()) == 2 * 7
    with pytest.raises(CommandError, match=r"train\.yaml exists already"):
        api.new_program(program)


@pytest.mark.parametrize(
    ("how", "resume"),
    [("action=argparse.BooleanOptionalAction", "--resume"), ("type=str, default=''", None)],
)
def test_a_resume_that_takes_a_path_is_to_be_filled_in(
    program: Path, how: str, resume: str | None
) -> None:
    program.write_text(PROGRAM.replace('"--resume", action="store_true"', f'"--resume", {how}'))
    text = api.new_program(program).read_text()
    assert yaml.safe_load(text).get("resume") == resume
    assert ("# resume: --resume={folder}/CHECKPOINT\n" in text) == (resume is None)
    assert "# left at their defaults: --dropout\n" in text
    filled = text.replace("# resume: ", "resume: ")
    program.with_suffix(".yaml").write_text(filled)
    load(program.with_suffix(".yaml"))


@pytest.mark.parametrize(
    ("length", "command", "said"),
    [
        ("--max_train_steps", "--max_train_steps={budget}", None),
        ("--max-iter", "--max-iter={budget}", None),
        ("--num_train_epochs", "", "# --num_train_epochs: to be set so that no trial ends before"),
        ("--total_tokens", "", "# --total_tokens: to be set so that no trial ends before its"),
    ],
)
def test_how_long_it_trains(program: Path, length: str, command: str, said: str | None) -> None:
    program.write_text(PROGRAM.replace("--max_steps", length))
    text = api.new_program(program).read_text()
    assert command in yaml.safe_load(text)["program"]
    assert said in text if said else "to be set" not in text


def test_what_must_be_given_is_said(program: Path) -> None:
    more = '    parser.add_argument("more", nargs="?")\n'
    text = PROGRAM.replace('"--dropout", type=float, default=0.0', '"--dropout", required=True')
    program.write_text(text.replace("type=int, default=1)", "type=int, required=True)") + more)
    text = api.new_program(program).read_text()
    assert "# to be added, for it requires them: --dropout, data\n" in text
    assert "left at their defaults" not in text


@pytest.mark.parametrize("option", ["--grad-accum", "--gradient_accumulation_steps"])
def test_what_a_step_adds_up_is_not_left_at_its_default(program: Path, option: str) -> None:
    """By it a step may have several times the examples that a sweep counts."""
    program.write_text(PROGRAM.replace("--dropout", option))
    text = api.new_program(program).read_text()
    assert f"# {option}: to be set so that a whole step has {{batch_size}}\n" in text
    assert "left at their defaults" not in text


def test_a_name_with_a_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "my train.py"
    program.write_text(PROGRAM.replace('    parser.add_argument("data")\n', ""))
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["new", "--program", str(program)])
    assert f"  batchscale check '{program.with_suffix('.yaml')}'\n" in capsys.readouterr().out
    (study, *_) = load(program.with_suffix(".yaml")).studies()
    spec = study.workload.program
    assert spec is not None
    assert spec.command[1] == "my train.py"


def test_a_resume_without_a_folder_is_left_out(program: Path) -> None:
    program.write_text(PROGRAM.replace("--out_dir", "--place"))
    text = api.new_program(program).read_text()
    assert "# left at their defaults: --place, --resume, --dropout\n" in text
    assert "resume" not in yaml.safe_load(text)


def test_what_it_cannot_tell_it_says(program: Path) -> None:
    program.write_text(PROGRAM.replace("--batch-size", "--width"))
    with pytest.raises(ExperimentError, match=r"no option for its batch size.*--width, --lr"):
        api.new_program(program)
    program.write_text("x = (")
    with pytest.raises(ExperimentError, match=r"cannot read .*train\.py"):
        api.new_program(program)
    program.unlink()
    with pytest.raises(ExperimentError, match=r"train\.py: No such file or directory$"):
        api.new_program(program)
    assert not program.with_suffix(".yaml").exists()
