"""Commands with arguments that nobody would type: one clear line, and nothing is harmed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batchscale.conftest import Answer, Command
from tests.batchscale.test_bad_input import GOOD, clear
from tests.marks import quick

POINTS = "batch_size,steps\n8,100\n16,60\n32,40\n64,35\n"
NOT_UTF8 = os.fsdecode(b"\xff\xfe")
LONG = "n" * 300
NAMES = ["", " ", ".", "..", "/", "dir", "dir.csv", "nowhere", "nowhere/x", LONG, f"{LONG}.csv",
         "n/" * 3000, NOT_UTF8, "\u202e", "\x07", "~nobody-at-all/x", "/dev/null", "/dev/null/x",
         "loop.csv", "gone.csv", "points.csv/", "points.csv/x", "://", "s3:", "file:///nowhere",
         "*", "'", "a\nb"]  # fmt: skip
"""Of what is no results folder."""


@pytest.fixture
def place(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with things of every kind, in one of its own: ``..`` has no other test's logs."""
    here = here / "work"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "dir").mkdir()
    (here / "dir.csv").mkdir()
    (here / "dir.yaml").mkdir()
    (here / "loop.csv").symlink_to("loop.csv")
    (here / "gone.csv").symlink_to("nowhere")
    (here / "points.csv").write_text(POINTS)
    (here / "mine.yaml").write_text(GOOD)
    (here / "bytes").write_bytes(bytes(range(256)))
    for suffix in (".yaml", ".csv", ".py"):
        (here / f"bytes{suffix}").write_bytes(bytes(range(256)))
    return here


def one_line(answer: Answer) -> None:
    """An error in one line, and a hint at the most."""
    assert answer.status in (1, 2)
    lines = answer.complaint
    if answer.status == 1:
        assert lines[0].startswith("error: ")
        assert len(lines) <= 2
        assert "an error in batchscale" not in answer.err
    assert "Traceback" not in answer.err
    assert answer.err.isprintable() or not set(answer.err) & set("\x07\u202e\udcff")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(
    "words",
    [["regimes", None], ["query", "SELECT 1", None], ["export", "tensorboard", None, "-o", "tb"]],
    ids=lambda words: words[0],
)
def test_a_source(command: Command, place: Path, words: list[str | None], name: str) -> None:
    if name == "" and words[0] == "query":
        return  # as without: the default results folder, which test_bad_sources.py has
    before = sorted(path.name for path in place.iterdir())
    one_line(command(*(name if word is None else word for word in words)))
    assert sorted(path.name for path in place.iterdir()) == before


@pytest.mark.parametrize(
    "name", [*NAMES[:11], "dir.yaml", "bytes.yaml", "bytes", "/dev/zero", "~nobody-at-all/x.yaml"],
    ids=ascii,
)  # fmt: skip
def test_an_experiment(command: Command, place: Path, name: str) -> None:
    assert (place / "mine.yaml").is_file()
    one_line(command("sweep", name, "--address", "none"))
    one_line(command("sweep", "mine.yaml", "--dry-run", "--set", f"extends='{name}'"))


@pytest.mark.parametrize("name", ["bytes.py", "bytes.py:A", f"{LONG}.py:A", "~nobody-at-all/a.py:A",
                                  "dir.py:A", ".py", ":", "a\nb", NOT_UTF8])  # fmt: skip
def test_a_workload(command: Command, place: Path, name: str) -> None:
    del place
    one_line(command("check", name))
    one_line(command("trial", name, "--batch-size", "8", "--param", "learning_rate=0.1"))


@pytest.mark.parametrize(
    "name", quick(["", "dir", LONG + ".csv", "s3://b/a.csv", "/dev/null/a.csv"], 1)
)
def test_a_file_to_write(command: Command, place: Path, name: str) -> None:
    before = sorted(path.name for path in place.iterdir())
    one_line(command("query", "SELECT 1 AS a", "points.csv", "-o", name or " "))
    one_line(command("plot", "steps", "points.csv", "-o", name.replace(".csv", ".png") or " "))
    one_line(command("report", "points.csv", "-o", name.replace(".csv", ".html") or " "))
    assert sorted(path.name for path in place.iterdir()) == before


def test_the_numbers_of_a_figure_never_replace_what_it_is_drawn_of(
    command: Command, place: Path
) -> None:
    for words in (["-o", "points.png"], ["-o", "./dir/../points.svg"]):
        answer = command("plot", "steps", "points.csv", *words)
        clear(answer, "would overwrite points.csv", hint="points-figure")
    (place / "steps.csv").write_text(POINTS)
    clear(command("plot", "steps", "steps.csv"), "would overwrite steps.csv", hint="-o")
    assert (place / "points.csv").read_text() == (place / "steps.csv").read_text() == POINTS
    assert command("plot", "steps", "points.csv", "-o", "other.png").status == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    quick(
        [
            f"{NOT_UTF8}.csv",
            "[red]x[b].csv",
            *(pytest.param(n, marks=pytest.mark.slow) for n in ("é ü.csv", "日本.csv", "a\nb.csv")),
        ],
        1,
    ),
    ids=ascii,
)
def test_names_that_are_not_utf_8_and_names_of_any_letters(
    command: Command, place: Path, name: str
) -> None:
    (place / name).write_text(POINTS)
    assert command("regimes", name).status == 0
    assert command("query", "SELECT workload FROM trials", name).status == 0
    assert command("report", name, "-o", "a.html", "--title", name).status == 0
    imported = command(
        "import", "csv", name, "--results", "runs", "--name", "a", "--citation", name
    )
    assert imported.status == 0
    addresses = command("query", "SELECT address FROM sources", "runs", "--json").out
    assert len(json.loads(addresses)) == 1
    if NOT_UTF8 in name:
        assert "udcff" in addresses


def test_sql_that_names_two_columns_alike(command: Command, place: Path) -> None:
    del place
    sql = 'SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS "[/b]"'
    assert (
        command("query", sql, "points.csv", "--format", "csv").out == "a,a_1,a_1_1,[/b]\n1,2,3,4\n"
    )
    assert "[/b]" in command("query", sql, "points.csv").out
    assert command("query", sql, "points.csv", "-o", "a.parquet").status == 0
    one_line(command("query", NOT_UTF8, "points.csv"))
    one_line(command("regimes", "points.csv", "--where", NOT_UTF8))


@pytest.mark.parametrize("size", ["-1", "0", "1298", "9" * 400])
def test_a_batch_size_of_check(command: Command, size: str) -> None:
    one_line(command("check", "digits-softmax", "--batch-size", size))


@pytest.mark.parametrize("style", ["bytes", "dir", f"{LONG}.mplstyle", "/proc/self/mem"])
def test_a_style(command: Command, place: Path, style: str) -> None:
    del place
    one_line(command("plot", "steps", "points.csv", "--style", style, "-o", "a.png"))


@pytest.mark.slow
def test_a_terminal_that_knows_ascii_alone(place: Path) -> None:
    (place / "é.csv").write_text("batch_size,steps,optimizer\n8,100,é\n16,60,é\n32,40,é\n")
    done = subprocess.run(
        [sys.executable, "-m", "batchscale", "regimes", "é.csv"],
        cwd=place, capture_output=True, check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"\\u2264" in done.stdout or b"\\u2265" in done.stdout  # "≤" and "≥"


@pytest.mark.slow
def test_letters_that_the_font_lacks_are_one_note(command: Command, place: Path) -> None:
    rows = "".join(f"{size},{800 // size},日本\n{size},{900 // size},b\n" for size in (8, 16, 32))
    (place / "two.csv").write_text(f"batch_size,steps,optimizer\n{rows}")
    for words in (["plot", "steps"], ["report"]):
        answer = command(*words, "two.csv", "-o", f"a.{'png' if len(words) > 1 else 'html'}")
        assert answer.status == 0
        assert answer.err.count("note: the font has no 日 本") == 1
        assert "Warning" not in answer.err
