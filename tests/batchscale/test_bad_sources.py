"""What wrong sources get: results folders, CSV files, SQL, disks."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.batchscale.conftest import Answer, Command
from tests.batchscale.test_bad_input import GOOD, clear

Watch = Callable[[Path], Callable[[], bool]]


@pytest.fixture
def mine(small: Path, tmp_path: Path) -> Path:
    """A copy of the small results folder, to be broken."""
    return Path(shutil.copytree(small, tmp_path / "runs"))


def reads(command: Command, source: Path | str) -> list[Answer]:
    """What every command that reads results says of a source."""
    return [
        command("regimes", source),
        command("plot", "steps", source),
        command("query", "SELECT * FROM trials", source),
        command("status", source),
    ]


def test_a_folder_that_is_not_there(command: Command, here: Path) -> None:
    for answer in reads(command, "nowhere"):
        clear(answer, "nowhere", "no such folder", hint="--results")
    assert not list(here.iterdir())


def test_a_folder_that_is_not_a_results_folder(
    command: Command, here: Path, untouched: Watch
) -> None:
    (here / "photos").mkdir()
    (here / "photos" / "cat.jpg").write_bytes(b"meow")
    (here / "mine.yaml").write_text(GOOD)
    same = untouched(here)
    for answer in reads(command, "photos"):
        clear(answer, "photos is not a results folder", hint="--results")
    swept = command("sweep", "mine.yaml", "--address", "none", "--results", "photos")
    clear(swept, "photos is not a results folder", hint="empty or new folder")
    assert same()


def test_the_default_folder_before_any_sweep(command: Command, here: Path) -> None:
    for answer in (command("status"), command("query", "SELECT * FROM trials")):
        clear(answer, "results/runs", hint="sweep")
    assert not list(here.iterdir())


@pytest.mark.parametrize("content", [b"PAR1 and then the power went", b""])
def test_a_half_written_parquet_file(
    command: Command, mine: Path, untouched: Watch, content: bytes
) -> None:
    broken = mine / "trials" / "small" / "half.parquet"
    broken.write_bytes(content)
    same = untouched(mine)
    for answer in reads(command, mine):
        clear(answer, "half.parquet", hint="")
    assert same()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("batch_size,steps\n8,100\n16,many\n32,30\n", ["many", "line 3"]),
        ("batch_size,steps\n8,100\n8,120\n8,90\n", ["batch size"]),
        ("", ["curve.csv"]),
    ],
)
def test_a_csv_that_cannot_be_read(
    command: Command, here: Path, untouched: Watch, text: str, parts: list[str]
) -> None:
    """All that is refused in one is in ``tests/results/test_curves.py``."""
    (here / "curve.csv").write_text(text)
    same = untouched(here)
    for answer in (command("regimes", "curve.csv"), command("regimes", "curve.csv", "--json")):
        clear(answer, *parts)
        assert "hint: " in answer.err
    assert same()


def test_a_csv_has_no_status(command: Command, here: Path, untouched: Watch) -> None:
    (here / "curve.csv").write_text("batch_size,steps\n8,100\n16,60\n32,40\n")
    same = untouched(here)
    clear(command("status", "curve.csv"), "curve.csv is a file, not a results folder", hint="")
    assert same()


def test_two_files_of_one_name(command: Command, here: Path) -> None:
    """The rows of the second were left out as the same trials."""
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name / "curves.csv").write_text(
            f"batch_size,steps,optimizer\n8,9,{name}\n16,5,{name}\n32,4,{name}\n"
        )
    answer = command("regimes", "a/curves.csv", "b/curves.csv")
    clear(answer, "a/curves.csv and b/curves.csv have the same name", hint="rename one of them")
    assert command("regimes", "a/curves.csv", here / "a" / "curves.csv").status == 0


def test_an_unknown_figure_and_a_wrong_place(command: Command, small: Path, here: Path) -> None:
    clear(command("plot", "stesp", small), "'stesp'", hint="steps")
    clear(command("plot", "steps", small, "-o", "a.docx"), ".docx", hint=".pdf")
    clear(command("plot", "steps", small, "--width", "wide"), "'wide'", hint="two-columns")
    clear(command("plot", "steps", small, "--width", "0.5"), "0.5 inches", hint="2.5")
    clear(command("plot", "steps", small, "--style", "gplot"), "'gplot'", hint="ggplot")
    clear(command("plot", "steps", small, "--by", "optimzer"), "'optimzer'", hint="optimizer")
    assert not [path for path in here.iterdir() if path.suffix]


@pytest.mark.slow
def test_a_report_that_cannot_be_made(command: Command, small: Path, here: Path) -> None:
    clear(command("report", small, "-o", "a.pdf"), "a.pdf", hint=".html")
    clear(command("report", "nowhere"), "nowhere", hint="")
    clear(command("report", small, "--target", "validation_error"), "is not METRIC", hint="0.05")
    clear(command("report", small, "--baseline", "sdg"), "'sdg'", hint="sgd")
    clear(command("report", small, "--tolerance", "0"), "tolerance 0", hint="0.2")
    clear(command("report", small, "--estimator", "mean"), "mean", hint="")
    (here / "full").write_text("")
    clear(command("report", small, "-o", "full/a.html"), "cannot write full/a.html")
    assert [path.name for path in here.iterdir()] == ["full"]


@pytest.mark.parametrize(
    ("options", "parts", "hint"),
    [
        (["--target", "validation_error"], ["METRIC < VALUE"], "for example"),
        (["--target", "validation_eror < 0.2"], ["validation_eror"], "validation_error"),
        (["--target", "validation_error < 0.001"], ["validation_error < 0.001"], ""),
        (["--where", "optimzer = 'sgd'"], ["optimzer"], "optimizer"),
        (["--where", "batch_size >"], ["SQL: syntax error"], None),
        (["--where", "batch_size = 7"], ["batch_size = 7"], None),
        (["--tolerance", "-1"], ["-1"], ""),
        (["--baseline", "adm"], ["'adm'"], ""),
        (["--by", "optimzer"], ["'optimzer'"], "optimizer"),
        (["--by", "batch_size"], ["'batch_size'"], "for example: optimizer"),
        (["--definition", "zhang2025"], ["'zhang2025'"], "zhang2024"),
        (["--estimator", "best_of_ten"], ["'best_of_ten'"], "best_of_10"),
        (["--estimator", "best_of_10"], ["ten feasible trials"], "--estimator minimum"),
    ],
)
def test_options_of_regimes(
    command: Command, small: Path, options: list[str], parts: list[str], hint: str | None
) -> None:
    clear(command("regimes", small, *options), *parts, hint=hint)


@pytest.mark.parametrize(
    "sql", ["SELEC 1", "DROP TABLE trials", "COPY (SELECT 1) TO 'a.csv'", "FROM 'secret.csv'", ""]
)
def test_sql_with_an_error_or_that_writes(
    command: Command, small: Path, here: Path, untouched: Watch, sql: str
) -> None:
    """All that is refused is in ``tests/results/test_query.py``."""
    (here / "secret.csv").write_text("a\n1\n")
    same, kept = untouched(here), untouched(small)
    answer = command("query", sql, small)
    clear(answer)
    assert same()
    assert kept()


def test_a_source_before_the_sql(command: Command, small: Path) -> None:
    answer = command("query", small, "SELECT count(*) FROM trials")
    clear(answer, "the source stands before the SQL", hint='query "SELECT count(*) FROM trials"')


def test_a_trial_that_is_not_recorded(command: Command, small: Path, here: Path) -> None:
    clear(command("trial", "--from", "zzz", "--results", small), "'zzz'", hint="SELECT trial")
    clear(command("trial", "--from", "", "--results", small), "32 trials", hint="digits")
    clear(command("trial", "--from", "zzz"), "results/runs", hint="--results")
    both = command("trial", "digits-mlp", "--from", "zzz")
    clear(both, "not both")
    assert not list(here.iterdir())


def test_a_read_only_disk(command: Command, here: Path) -> None:
    """As root every folder is writable, so that a folder which can never be made stands in."""
    (here / "mine.yaml").write_text(GOOD)
    done = command("sweep", "mine.yaml", "--address", "none", "--results", "/proc/batchscale/runs")
    lines = done.complaint
    assert done.status == 1
    assert lines[0].startswith("error: cannot write /proc/batchscale")
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2


@pytest.mark.slow
@pytest.mark.parametrize("room", [4, 18])
def test_a_disk_that_fills_up_in_a_sweep(
    command: Command, here: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """What was committed stays; the same command finishes the rest once there is room."""
    (here / "mine.yaml").write_text(GOOD)
    synced, fsync = [0], os.fsync

    def full(handle: int) -> None:
        synced[0] += 1
        if synced[0] > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        answer = command("sweep", "mine.yaml", "--address", "none")
    assert answer.status == 1
    last = answer.err.splitlines()[-2:]
    assert last[0].startswith("error: cannot write ")
    assert "No space left on device" in last[0]
    assert "free some space" in last[1]
    assert "Traceback" not in answer.err
    before = command("query", "SELECT count(*) AS n FROM trials", "--format", "csv").out
    assert command("sweep", "mine.yaml", "--address", "none").status == 0
    after = command("query", "SELECT count(*) AS n FROM trials", "--format", "csv").out
    assert int(before.split()[1]) < int(after.split()[1]) == 6


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_under_an_output_file(command: Command, small: Path, here: Path) -> None:
    os.symlink("/dev/full", here / "steps.png")
    answer = command("plot", "steps", small, "-o", "steps.png")
    assert answer.status == 1
    assert "No space left on device" in answer.err.splitlines()[0]
    assert "steps.png" in answer.err.splitlines()[0]
