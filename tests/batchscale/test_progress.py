"""How far a long command is."""

from __future__ import annotations

import pytest

from analysis.figure_data import FigureData, Query
from batchscale.output import progress as module
from batchscale.output.progress import ProgressLines


def test_each_reports_what_is_done_after_it_is() -> None:
    heard: list[str] = []
    data = FigureData(Query(), progress=heard.append)
    gone = [(letter, list(heard)) for letter in data.each("abc", "letters read")]
    assert gone == [("a", []), ("b", heard[:1]), ("c", heard[:2])]
    assert heard == ["1 of 3 letters read", "2 of 3 letters read", "3 of 3 letters read"]
    assert list(FigureData(Query()).each("ab", "letters read")) == ["a", "b"]
    assert len(heard) == 3


def test_a_line_comes_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    tell = ProgressLines("{:,} done".format)
    for second in range(26):
        now[0] = float(second)
        tell(1000 * second)
    said = capsys.readouterr()
    assert said.err == "10,000 done\n20,000 done\n"
    assert said.out == ""
