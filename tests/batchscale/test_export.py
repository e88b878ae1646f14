"""``batchscale export`` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

import batchscale as bs
from batchscale.output import progress
from results.exports import tensorboard
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear


def test_export_and_again(command: Command, here: Path, small: Path) -> None:
    count = len(bs.open(small).measurements)
    done = command("export", "tensorboard", small, "-o", "tb")
    assert done.status == 0
    assert done.out == (
        f"exported 32 trials with {count:,} measurements to tb\nnext: tensorboard --logdir tb\n"
    )
    assert len(list(here.glob("tb/small/*/*/events.*"))) == 32
    again = command("export", "tensorboard", small, "-o", "tb")
    assert again.out.startswith(f"tb has these 32 trials with {count:,} measurements already\n")


def test_where_chooses_and_python_does_the_same(command: Command, here: Path, small: Path) -> None:
    where = "optimizer = 'sgd' AND batch_size = 64"
    assert command("export", "tensorboard", small, "-o", "tb", "--where", where).status == 0
    assert {path.parent.parent.name for path in here.glob("tb/small/*/*/events.*")} == {
        "sgd-b00064"
    }
    done = bs.export("tensorboard", small, output="tb", where=where)
    assert (done.trials, done.changed) == (4, 0)
    joined = bs.open(small).where("optimizer = 'sgd'").export("tensorboard", output="tb")
    assert (joined.trials, joined.changed) == (16, 12)


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["tensorbord", "SMALL", "-o", "tb"], "no export of 'tensorbord'", "tensorboard?"),
        (["tensorboard", "none", "-o", "tb"], "no results at none", "--results"),
        (["tensorboard", "published", "-o", "tb"], "published has no measurements", "a sweep"),
        (["tensorboard", "points.csv", "-o", "tb"], "points.csv has no measurements", "a sweep"),
        (["tensorboard", "SMALL", "-o", "points.csv"], "points.csv: it is a file", "folder"),
        (["tensorboard", "SMALL", "-o", "."], ". holds files that no export", "empty folder"),
        (["tensorboard", "SMALL", "-o", "tb", "--where", "bach_size = 8"], "bach_size", ""),
        (["tensorboard", "SMALL", "-o", "tb", "--where", "false"], "no trials to export", "sweep"),
    ],
)
def test_wrong_words_are_one_line(
    command: Command, here: Path, small: Path, words: list[str], says: str, hint: str
) -> None:
    (here / "points.csv").write_text("batch_size,steps\n8,100\n16,55\n32,40\n")
    given = [str(small) if word == "SMALL" else word for word in words]
    clear(command("export", *given), says, hint=hint)
    assert [path.name for path in here.iterdir()] == ["points.csv"]


@pytest.mark.usefixtures("here")
def test_a_folder_has_to_be_named(command: Command, small: Path) -> None:
    assert command("export", "tensorboard", small).status == 2


def test_progress_is_said(
    command: Command, here: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    monkeypatch.setattr(tensorboard, "_MANY", 31)
    done = command("export", "tensorboard", small, "-o", here / "tb")
    lines = done.err.splitlines()
    assert lines[0].startswith("1 of 32 trials, ")
    assert lines[31].startswith("32 of 32 trials, ")
    assert "select some with --where" in lines[32]
