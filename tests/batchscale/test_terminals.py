"""What reaches a terminal or a CSV file: no raw control character, no number that is cut off, and
an output that is closed."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from batchscale.output.errors import report
from batchscale.output.progress import say
from batchscale.output.tables import frame_text, render
from results.storage.save import save
from tests.batchscale.conftest import Command

ODD = "a\x1b[31m\x07\x9b\u202eb"
ESCAPED = r"a\x1b[31m\x07\x9b\u202eb"


def test_no_csv_file_has_a_control_character(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": [f"{ODD}\n\tlast"], ODD: [1.5]})
    save(frame, tmp_path / "a.csv")
    for text in ((tmp_path / "a.csv").read_text(encoding="utf-8"), frame_text(frame, "csv")):
        read = pd.read_csv(io.StringIO(text))
        assert list(read.columns) == ["name", ESCAPED]
        assert read["name"].tolist() == [f"{ESCAPED}\n\tlast"]


@pytest.mark.parametrize("debug", [False, True])
def test_a_traceback_has_none(capsys: pytest.CaptureFixture[str], debug: bool) -> None:
    def raising() -> None:
        raise ValueError(f"{ODD}\n\tsecond line")

    with pytest.raises(ValueError, match="second line") as caught:
        raising()
    report(caught.value, debug=debug)
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert f"ValueError: {ESCAPED}\n" in err
    assert not {"\x1b", "\x07", "\x9b", "\t"} & {*err}


def test_a_name_on_a_line_of_its_own_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"wrote {ODD}")
    assert capsys.readouterr().out == f"wrote {ESCAPED}\n"


def test_a_path_has_none(command: Command, here: Path) -> None:
    folder = here / "x\x1b[31m"
    folder.mkdir()
    (here / "a.csv").write_text("batch_size,steps\n8,100\n16,60\n32,40\n")
    answer = command("query", "SELECT batch_size FROM trials", "a.csv", "-o", folder / "b.csv")
    assert answer.status == 0
    assert r"x\x1b[31m" in answer.out


@pytest.mark.parametrize("width", [10, 40])
def test_a_narrow_terminal_cuts_off_no_number(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    row = {"optimizer": "a long name", **{f"column_{i}": 1234567.0 + i for i in range(6)}}
    text = render([row], "table")
    assert "…" not in text
    assert all(str(1234567 + i) in text for i in range(6))
    assert "optimizer" in text


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- 2>&-"])
def test_an_output_that_is_closed(tmp_path: Path, closed: str) -> None:
    """No later file takes its place, and it is no error."""
    (tmp_path / "a.csv").write_text("batch_size,steps\n8,100\n16,60\n32,40\n")
    program = f"{sys.executable} -m batchscale query 'SELECT batch_size FROM trials' a.csv"
    done = subprocess.run(
        ["sh", "-c", f"{program} -o b.csv {closed}"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "b.csv").read_text() == "batch_size\n8\n16\n32\n"
